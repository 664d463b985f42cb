"""What a stage of a pipeline does of a microbatch: passes, operations, stages."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require, require_quantity
from crosstack.model.optimizer_step import OptimizerStep


class Pass(StrEnum):
    """What a stage does of a microbatch: all of its backward pass, or to inputs and to weights."""

    FORWARD = "forward"
    BACKWARD = "backward"
    INPUTS = "backward to inputs"
    WEIGHTS = "backward to weights"

    @property
    def step(self) -> int:
        """Stages from the one that passes a microbatch on to the one that takes it. [1]"""
        return _STEPS[self]


Item = tuple[int, int, Pass]  # a stage, a microbatch, and what is done of it
_STEPS = {Pass.FORWARD: 1, Pass.BACKWARD: -1, Pass.INPUTS: -1, Pass.WEIGHTS: 0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kernel with what it exchanges: ``forward`` and ``backward`` time of one microbatch. [s]

    ``weights`` is what of ``backward`` gradients of weights take; ``tokens`` what of each pass
    tokens take on their way to experts and back. [s]
    """

    name: str
    forward: float
    backward: float
    weights: float = 0.0
    tokens: tuple[float, float] = (0.0, 0.0)

    def __post_init__(self) -> None:
        """Check every time."""
        for field in ("forward", "backward", "weights"):
            require_quantity(field, getattr(self, field), "s")
        allowed = f"at most the backward pass, {self.backward} s"
        require(self.weights <= self.backward, "weights", self.weights, allowed)

    def time(self, kind: Pass) -> float:
        """Of one microbatch, one pass. [s]"""
        return {
            Pass.FORWARD: self.forward,
            Pass.BACKWARD: self.backward,
            Pass.INPUTS: self.backward - self.weights,
            Pass.WEIGHTS: self.weights,
        }[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Operations in order, and ``send``, the time to pass a microbatch to the next stage. [s]

    ``taken`` is the share of a chip's units that communication takes. [1]
    """

    operations: tuple[Operation, ...]
    send: float = 0.0
    taken: float = 0.0

    @property
    def tokens(self) -> tuple[float, float]:
        """What tokens take on their way, forward and backward, of one microbatch. [s]"""
        both = [one.tokens for one in self.operations]
        return sum(there for there, _ in both), sum(back for _, back in both)

    def time(self, kind: Pass) -> float:
        """Of one microbatch, one pass. [s]"""
        return sum(one.time(kind) for one in self.operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What stages end an iteration with: ``step``, of ``layers`` a stage. [1]

    ``forward`` is what the layers of a piece of a stage take in the first pass, ``lead`` what the
    layer that it begins with takes in the last, ``head`` what the last stage works behind those,
    forward, and in the last pass before them, for one microbatch [s]; ``fewer`` the shares of
    ``layers`` that the first and the last stage do not have, ``taken`` that of a chip's units that
    runs what is sent beside passes [1]. Weights that are sent round are those of the iteration
    before.
    """

    step: OptimizerStep
    layers: int
    forward: float
    lead: float
    head: tuple[float, float] = (0.0, 0.0)
    fewer: tuple[float, float] = (0.0, 0.0)
    taken: float = 0.0

    def held(self, chip: int, chips: int) -> float:
        """Share of ``layers`` that one of so many chips has. [1]"""
        return 1.0 - self.fewer[0] * (chip == 0) - self.fewer[1] * (chip == chips - 1)
