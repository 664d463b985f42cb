"""A transformer in training: which one, and what is done with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import Annotated

from crosstack.errors import require, require_quantity, unknown_name
from crosstack.records import Checked, Count, Number, require_types
from crosstack.workload.architectures import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.optimizer import Optimizer


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
    p - s of them. ``ZB_H1``: as that, but gradients of weights wait until there is nothing else to
    do (``qi2024zero``); at least as many microbatches as stages. ``DUALPIPE``: microbatches enter
    at both ends, and a forward pass runs together with a backward pass, so that tokens are on their
    way to experts while others are computed (``deepseek2024v3``, section 3.2.1); an even number of
    stages, and of microbatches, twice as many at least.
    """

    GPIPE = "gpipe"
    ONE_F_ONE_B = "1f1b"
    ZB_H1 = "zb-h1"
    DUALPIPE = "dualpipe"

    @property
    def defers_weights(self) -> bool:
        """Whether gradients of weights are computed apart from those of inputs, and later."""
        return self in (Schedule.ZB_H1, Schedule.DUALPIPE)

    @property
    def both_ends(self) -> bool:
        """Whether microbatches enter at both ends, so that each chip has two stages."""
        return self is Schedule.DUALPIPE

    @property
    def at_once(self) -> int:
        """Passes that a chip runs together. [1]"""
        return 2 if self.both_ends else 1


class Zero(StrEnum):
    """What data-parallel chips have shares of, instead of all of it each.

    ``NONE``: nothing; ``STATE``: the optimizer's state, of which each updates its part of the
    weights; ``GRADIENTS``: those too; ``WEIGHTS``, or fsdp: weights too (``rajbhandari2020zero``).
    ``HYBRID``: all three, but among the chips that the fastest links join, and each such group has
    all (hybrid sharding, ``zhao2023fsdp`` section 3.2.2).
    """

    NONE = "0"
    STATE = "1"
    GRADIENTS = "2"
    WEIGHTS = "3"
    HYBRID = "hsdp"
    FSDP = "3"

    @property
    def number(self) -> int:
        """Its place in `ZEROS`: each shares what those before it do, but among other chips. [1]"""
        return ZEROS.index(self)


ZEROS: tuple[Zero, ...] = tuple(Zero)


class Hidden(StrEnum):
    """What chips send beside their work, instead of waiting until it is sent.

    ``GRADIENTS``: sums of gradients of a layer, or of a bucket of them, while others run backward
    (``li2020pytorch``, section 3.2). ``WEIGHTS``: what layers bring of weights that data-parallel
    chips have shares of, before they need it (prefetching, ``zhao2023fsdp`` section 3.3).
    ``SENDS``: activations and their gradients from stage to stage.
    """

    GRADIENTS = "gradients"
    WEIGHTS = "weights"
    SENDS = "sends"


def overlap_named(said: str | Iterable[str]) -> tuple[Hidden, ...]:
    """Return what is hidden, each once and in the order of `Hidden`.

    Parameters
    ----------
    said : str or iterable of str
        Words with commas between them, or ``none``; or the words.

    Raises
    ------
    InputError
        If a word is not known, at ``overlap``.
    """
    if isinstance(said, str):
        said = () if said == "none" else said.split(",")
    words = tuple(word.strip() for word in said)
    for word in words:
        if word not in list(Hidden):
            raise unknown_name("overlap", "traffic is", word, [*Hidden, "none"])
    return tuple(kind for kind in Hidden if kind in words)


# Fields of a step that take a word.
CHOICES: dict[str, type[StrEnum]] = {
    "exchange": Exchange,
    "recompute": Recompute,
    "schedule": Schedule,
    "zero": Zero,
    "gradients": Dtype,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerTraining(Checked):
    """A model and one step of its training, with what is decided of it; None: that is not given.

    Parameters
    ----------
    model : Transformer
        What is trained.
    batch, sequence : int
        Sequences of one step, and tokens of each. [1]
    microbatches, microbatch_size : int
        Parts of a replica's batch that follow one another through the pipeline, or sequences of
        each: one of the two. [1]
    exchange, recompute, schedule, zero
        What the chips of a kernel split send one another, what the backward pass computes again,
        in which order a stage takes its microbatches, and what data-parallel chips have shares of.
    interleave : int
        Stages on every chip, spread over the model; above 1 with `Schedule.ONE_F_ONE_B`. [1]
    overlap
        As of `crosstack.mapping.mapping.Constraints`.
    expert_imbalance : float
        As of a `Job`. [1]
    gradients, optimizer
        As of a `Job`.
    tokens : float
        Of a whole training run, of which a step is a part; 0 where only a step is asked for. [1]
    ideal_stages, communication : int, float
        Of a whole run that is only estimated: stages that its layers are divided by, and what is
        added for communication; a step reads neither. [1], [s]
    """

    model: Transformer
    batch: Count
    sequence: Count
    microbatches: Count | None = None
    microbatch_size: Count | None = None
    exchange: Exchange | None = None
    recompute: Recompute | None = None
    schedule: Schedule | None = None
    interleave: Count | None = None
    zero: Zero | None = None
    overlap: tuple[Hidden, ...] | None = None
    expert_imbalance: Number | None = None
    gradients: Dtype | None = None
    optimizer: Optimizer | None = None
    tokens: Number = 0.0
    ideal_stages: Count = 1
    communication: Annotated[float, partial(require_quantity, unit="s")] = 0.0

    def __post_init__(self) -> None:
        require_types(self)
        one = self.microbatches is None or self.microbatch_size is None
        require(one, "microbatch_size", self.microbatch_size, "none beside microbatches")
        if self.expert_imbalance is not None:
            require_imbalance(self.model, self.expert_imbalance)

    @property
    def name(self) -> str:
        """That of the model, for people."""
        return self.model.name

    @property
    def steps(self) -> float:
        """Steps of a training run: tokens over those of a step. [1]"""
        return self.tokens / (self.batch * self.sequence)


def require_imbalance(model: Transformer, imbalance: float) -> None:
    """Raise `InputError` unless a model may have experts that are so unevenly full. [1]"""
    require_quantity("expert_imbalance", imbalance, "1")
    require(imbalance >= 1, "expert_imbalance", imbalance, "1 or more: an even share")
    even = model.experts is not None or imbalance == 1
    require(even, "expert_imbalance", imbalance, f"1: {model.name} has no experts")


def training_of(step: object) -> TransformerTraining | None:
    """Return a step that may say how it is trained, None for everything else."""
    return step if isinstance(step, TransformerTraining) else None
