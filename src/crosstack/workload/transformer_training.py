"""A decoder-only transformer in training: its shape and that of one batch."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require, require_quantity, require_whole

__all__ = ["Recompute", "Schedule", "TransformerTraining"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TransformerTraining:
    """The shape of the model and of one batch.

    Parameters
    ----------
    batch : int
        Sequences of one step. [1]
    sequence : int
        Tokens of a sequence. [1]
    layers, hidden, heads : int
        Layers, their width, attention heads; heads divide the width. [1]
    feed_forward : int
        Width inside the feed-forward network. [1]
    vocabulary : int
        Tokens known. [1]
    microbatches : int
        Parts of a replica's batch that follow one another through the pipeline. [1]
    recompute : Recompute
        What the backward pass computes again.
    schedule : Schedule
        In which order a stage takes its microbatches.
    tokens : float
        Of a whole training run, of which a step is a part; 0 where only a step is asked for. [1]
    ideal_stages, communication : int, float
        What the estimate of the 2025 release divides by, and adds to a run
        (`StepRules.estimates_transformers`); nothing else reads them. [1], [s]
    """

    batch: int
    sequence: int
    layers: int
    hidden: int
    heads: int
    feed_forward: int
    vocabulary: int
    microbatches: int = 1
    recompute: Recompute = Recompute.NONE
    schedule: Schedule = Schedule.GPIPE
    tokens: float = 0.0
    ideal_stages: int = 1
    communication: float = 0.0
    name: str = "transformer"

    def __post_init__(self) -> None:
        """Check every field."""
        whole = ("batch", "sequence", "layers", "hidden", "heads", "feed_forward", "vocabulary")
        for field in (*whole, "microbatches", "ideal_stages"):
            require_whole(field, getattr(self, field))
        require_quantity("tokens", self.tokens, "1")
        require_quantity("communication", self.communication, "s")
        for name, choices in (("recompute", Recompute), ("schedule", Schedule)):
            value = getattr(self, name)
            allowed = f"one of {choices.__name__}: {', '.join(choices)}"
            require(isinstance(value, choices), name, value, allowed)
        divides = self.hidden % self.heads == 0
        require(divides, "heads", self.heads, f"a divisor of hidden, {self.hidden}")

    @property
    def steps(self) -> float:
        """Steps of a training run: tokens over those of a step. [1]"""
        return self.tokens / (self.batch * self.sequence)

    @property
    def layer_parameters(self) -> int:
        """Weights of one layer: ``4 d^2 + 2 d f``. [1]"""
        return 4 * self.hidden**2 + 2 * self.hidden * self.feed_forward

    @property
    def parameters(self) -> int:
        """Weights of all layers, of the embedding and of the head: ``+ 2 V d``. [1]"""
        return self.layers * self.layer_parameters + 2 * self.vocabulary * self.hidden
