"""A transformer in training: which one, and what is done with it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require, require_quantity, require_whole
from crosstack.records import require_type
from crosstack.workload.architectures import Transformer

__all__ = [
    "CHOICES",
    "Exchange",
    "Recompute",
    "Schedule",
    "TransformerTraining",
    "training_of",
]


class Exchange(StrEnum):
    """What the chips of a kernel split send one another between the products of a layer.

    ``GATHERED``: every output, so that any product may follow (``ardalani2022deepflow``).
    ``PAIRED``: the second product of attention and of the feed-forward network takes the rows of
    its weight that match the columns its chip has; their partial sums are added on every chip
    (``shoeybi2019megatron``). ``SEQUENCE``: the same, and each chip is left with the sums of its
    own tokens, so that norms and residual sums are spread too (``korthikanti2023reducing``).
    """

    GATHERED = "gathered"
    PAIRED = "paired"
    SEQUENCE = "sequence"


class Recompute(StrEnum):
    """What is computed again in the backward pass instead of being kept (``chen2016training``).

    ``ATTENTION``: scores, softmax and weighted values, the *selective* recomputation of
    ``korthikanti2023reducing``. ``FULL``: a layer keeps its input alone.
    """

    NONE = "none"
    ATTENTION = "attention"
    FULL = "full"


class Schedule(StrEnum):
    """In which order a stage takes its microbatches.

    ``GPIPE``: all forward, then all backward (``huang2019gpipe``). ``ONE_F_ONE_B``: as soon as one
    has come back, it goes first (``narayanan2021megatron``), so that stage s of p holds at most
    p - s of them.
    """

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"


# Fields of a step that take a word.
CHOICES: dict[str, type[StrEnum]] = {
    "exchange": Exchange,
    "recompute": Recompute,
    "schedule": Schedule,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerTraining:
    """A model and one step of its training, with what is decided of it; None: that is not given.

    Parameters
    ----------
    model : Transformer
        What is trained.
    batch : int
        Sequences of one step. [1]
    sequence : int
        Tokens of a sequence. [1]
    microbatches : int
        Parts of a replica's batch that follow one another through the pipeline. [1]
    exchange : Exchange
        What the chips of a kernel split send one another.
    recompute : Recompute
        What the backward pass computes again.
    schedule : Schedule
        In which order a stage takes its microbatches.
    interleave : int
        Stages on every chip, spread over the model; above 1 with `Schedule.ONE_F_ONE_B`. [1]
    tokens : float
        Of a whole training run, of which a step is a part; 0 where only a step is asked for. [1]
    ideal_stages, communication : int, float
        Of a whole run that is only estimated: stages that its layers are divided by, and what is
        added for communication; a step reads neither. [1], [s]
    """

    model: Transformer
    batch: int
    sequence: int
    microbatches: int | None = None
    exchange: Exchange | None = None
    recompute: Recompute | None = None
    schedule: Schedule | None = None
    interleave: int | None = None
    tokens: float = 0.0
    ideal_stages: int = 1
    communication: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        require_type("model", self.model, Transformer)
        for field in ("batch", "sequence", "microbatches", "interleave", "ideal_stages"):
            if getattr(self, field) is not None:
                require_whole(field, getattr(self, field))
        require_quantity("tokens", self.tokens, "1")
        require_quantity("communication", self.communication, "s")
        for name, choices in CHOICES.items():
            value = getattr(self, name)
            allowed = f"one of {choices.__name__}: {', '.join(choices)}"
            require(value is None or isinstance(value, choices), name, value, allowed)

    @property
    def name(self) -> str:
        """That of the model, for people."""
        return self.model.name

    @property
    def steps(self) -> float:
        """Steps of a training run: tokens over those of a step. [1]"""
        return self.tokens / (self.batch * self.sequence)


def training_of(step: object) -> TransformerTraining | None:
    """Return a step that may say how it is trained, None for everything else."""
    return step if isinstance(step, TransformerTraining) else None
