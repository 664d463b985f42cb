"""Stages of a pipeline that are alike, and what passes through them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.model.optimizer_step import NO_STEP, OptimizerStep, Path
from crosstack.model.stage_paths import ALONE
from crosstack.workload.kernel_graph import Floats, Ints
from crosstack.workload.transformer_training import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """Stages that are alike, and what passes through them; numbers, or arrays of many pipelines.

    ``layers`` are copies of the graph a stage holds [1]; ``transfer`` is that of `Pipelining` [s];
    ``training``: whether gradients come back, by a ``schedule`` with ``interleave`` pieces a stage
    [1]; ``forward`` is the share of the forward pass in the work, ``weight_gradients`` that of
    gradients of weights, ``rerun`` that of what the first layers of every piece alone compute
    again. [1] ``first`` and ``last`` are what the first and the last stage work
    besides on a microbatch: forward, and in all [s], where gradients of weights are never apart;
    ``fewer``: shares of the work of the fullest stage that the first and the last one do not have,
    as they hold fewer layers [1]; ``tokens`` is what their exchange takes of a stage at least, and
    what it is of the work at most, ``last_tokens`` and ``first_tokens`` what of ``last`` and
    ``first`` it does, forward and in all [s], ``tokens_forward`` the share of the former in the
    forward pass, ``taken`` that of a chip's units that communicates, where it runs beside other
    work [1];
    ``step`` is what is done once an iteration; ``exchanged`` is what a stage takes for its work
    where layers exchange weights or gradients whenever they run (`stage_paths`); ``host``: of that,
    what the launches of a stage take for a microbatch [s].
    """

    stages: Ints | int
    microbatches: Ints | int
    layers: Ints | int
    transfer: Floats | float
    overlap: Overlap
    training: bool
    schedule: Schedule = Schedule.ONE_F_ONE_B
    interleave: Ints | int = 1
    forward: Floats | float = 1 / 3
    weight_gradients: Floats | float = 1 / 3
    rerun: Any = 0.0
    first: tuple[float, float] = (0.0, 0.0)
    last: tuple[float, float] = (0.0, 0.0)
    fewer: tuple[Any, Any] = (0.0, 0.0)
    tokens: tuple[Any, Any] = (0.0, 0.0)
    tokens_forward: Any = 0.5
    first_tokens: tuple[Any, Any] = (0.0, 0.0)
    last_tokens: tuple[Any, Any] = (0.0, 0.0)
    taken: float = 0.0
    step: OptimizerStep = NO_STEP
    exchanged: tuple[Path, ...] = ALONE
    host: Any = 0.0

    def stage_work(self, work: Any) -> Any:
        """Time of a stage that works so long on a microbatch, with what its layers exchange. [s]"""
        return work if self.exchanged is ALONE else longest_of(self.exchanged, work)

    @property
    def last_pass(self) -> Any:
        """Share of the work that the last pass of a microbatch through a stage is. [1]"""
        return self.weight_gradients if self.schedule.defers_weights else 1 - self.forward

    @property
    def lead(self) -> Any:
        """Share of the work that is the last pass through the layer of a piece that it begins with.

        That is the last layer, which computes nothing again if any of the piece does not. [1]
        """
        whole = self.last_pass - self.rerun * (not self.schedule.defers_weights)
        return whole / self.layers

    @property
    def has_ends(self) -> bool:
        """Whether the first or the last stage differs from others: by its layers, or an end."""
        return self.uneven or bool(np.any(np.asarray(self.first[1]) + self.last[1] > 0))

    @property
    def from_both_ends(self) -> bool:
        """Whether microbatches enter at both ends."""
        return self.training and self.schedule.both_ends

    @property
    def together(self) -> bool:
        """Whether a forward pass runs together with a backward pass of another microbatch."""
        return self.training and self.schedule.pairs

    @property
    def uneven(self) -> bool:
        """Whether the first or the last stage holds fewer layers than others."""
        return bool(np.any(np.asarray(self.fewer[0]) + self.fewer[1] > 0))


def longest_of(paths: Iterable[Path], work: Floats | float) -> Floats:
    """Return the longest of some paths. [s]"""
    with np.errstate(invalid="ignore"):  # of work without end, that some path does not pass
        return np.asarray(reduce(np.maximum, (times * work + beside for times, beside in paths)))
