"""From the time of one layer to the time of one iteration: stages, bubble, transfers.

Sources: ``dfmodel_code`` for the published form; the bubble is that of an interleaved 1F1B
schedule with one layer a virtual stage (``narayanan2021megatron``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crosstack.machine.chip import Overlap

if TYPE_CHECKING:
    from crosstack.model.plan import Plan
    from crosstack.model.rules import Rules

__all__ = [
    "Iteration",
    "Pipelining",
    "border_time",
    "iteration",
    "latency",
    "layer_time_below",
    "least_time",
    "split_iteration",
    "split_slots",
    "stage_time",
]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """``stage_time``: one stage, one microbatch [s]; ``transfer`` as the rules count it [s]."""

    stage_time: float
    bubble_factor: float
    transfer: float
    time: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """How stages and microbatches follow one another: the part of a rule set that says so.

    The default: every microbatch crosses every border between stages, behind the stage's work
    where everything overlaps (``ko2025dfmodel`` eq. 7); gradients are summed once an iteration.
    """

    def crosses(self, n_stages: int, n_dimensions: int) -> bool:
        """Whether anything is sent on, by ``n_stages`` over so many network dimensions."""
        return n_stages > 1

    def directions(self, training: bool) -> int:
        """Return how often a microbatch crosses a border: gradients come back. [1]"""
        return 2 if training else 1

    def transfer(self, plan: Plan) -> float:
        """Time that sending activations on takes: one microbatch, to the next stage. [s]"""
        line = plan.stage_transfer
        return line.fixed + line.per_byte * plan.microbatch_size

    def stage(self, work: Floats, transfer: Floats, overlap: Overlap) -> Floats:
        """Time of a stage, of one microbatch. [s]"""
        return stage_time(work, transfer, overlap)

    def stage_below(self, time: float, transfer: float, overlap: Overlap) -> float:
        """Return the work with which a stage takes ``time``; 0 or less: none. [s]"""
        if overlap is Overlap.ALL:
            return time if transfer < time else 0.0
        return time - transfer

    def beside(self, transfer: Floats) -> Floats:
        """Time of transfers that an iteration pays once, beside its stages. [s]"""
        return np.zeros_like(transfer)

    def shares_of_gradients(self, plan: Plan) -> int:
        """Return the sequences that one summation of gradients is spread over. [1]"""
        return plan.n_microbatches * plan.microbatch_size


def bubble_factor(plan: Plan) -> float:
    """1 + (stages - 1) / microbatches / (virtual stages), at least one virtual stage. [1]"""
    virtual = max(plan.layers_per_stage - 1, 1)
    return 1.0 + (plan.pipeline - 1) / plan.n_microbatches / virtual


def iteration(plan: Plan, layer_time: float, overlap: Overlap, rules: Rules) -> Iteration:
    """Return the time of one iteration when one layer of one sequence takes ``layer_time``. [s]

    Notes
    -----
    A microbatch keeps a stage busy for ``layer_time x microbatch x layers``, with the transfer as
    `Pipelining` says: the maximum where everything overlaps, their sum otherwise. Iterations take
    ``microbatches x bubble factor`` such slots; copies of the system run as many at the same time.
    """
    factor = bubble_factor(plan)
    work = layer_time * plan.microbatch_size * plan.layers_per_stage
    transfer = rules.iteration.transfer(plan)
    stage = float(rules.iteration.stage(np.asarray(work), np.asarray(transfer), overlap))
    once = float(rules.iteration.beside(np.asarray(transfer)))
    time = (stage * factor * plan.n_microbatches + once) / plan.copies
    return Iteration(stage_time=stage, bubble_factor=factor, transfer=transfer, time=time)


def latency(plan: Plan, layer_time: float) -> float:
    """Time of one microbatch from the first layer to the last, nothing else in its way. [s]

    Notes
    -----
    All stages one after the other, and between two of them the activations sent on:
    ``microbatch (stages x layers a stage x layer time + (stages - 1) x hop)``.

    References
    ----------
    dfmodel_code, release E5
    """
    stages = plan.pipeline
    copies = plan.graph_repetitions if plan.graph_stages > 1 else stages * plan.layers_per_stage
    return plan.microbatch_size * (copies * layer_time + (stages - 1) * plan.hop)


def layer_time_below(plan: Plan, time: float, overlap: Overlap, rules: Rules) -> float:
    """Return the layer time below which an iteration takes less than ``time``; may be <= 0. [s]

    The inverse of `least_time`.
    """
    if math.isinf(time):
        return math.inf
    if plan.graph_stages > 1:
        even = time / split_slots(plan, plan.graph_stages)
        return even * plan.graph_stages / plan.microbatch_size
    time *= plan.copies
    slots = bubble_factor(plan) * plan.n_microbatches
    per_layer = plan.microbatch_size * plan.layers_per_stage
    transfer = rules.iteration.transfer(plan)
    stage = (time - float(rules.iteration.beside(np.asarray(transfer)))) / slots
    return rules.iteration.stage_below(stage, transfer, overlap) / per_layer


# ---------------------------------------------------------------- stages that split the graph


def border_time(plan: Plan, size: Floats) -> Floats:
    """Time that one microbatch takes over the border between two stages. [s]

    ``size`` are the bytes that one chip sends on for one sequence [B]; nothing takes no time.
    """
    taken = plan.border.fixed + plan.border.per_byte * plan.microbatch_size * size
    return np.where(size > 0, taken, 0.0)


def stage_time(work: Floats, transfer: Floats, overlap: Overlap) -> Floats:
    """Time of a stage: the transfer hides behind its work where everything overlaps. [s]

    ``ko2025dfmodel`` eq. 7.
    """
    return np.maximum(work, transfer) if overlap is Overlap.ALL else work + transfer


def split_slots(plan: Plan, n_stages: int) -> int:
    """Slots of the slowest stage in an iteration where ``n_stages`` stages hold each copy. [1]

    Microbatches, and all stages that hold kernels but one (1F1B, ``narayanan2021megatron``).
    """
    return plan.n_microbatches + plan.graph_repetitions * n_stages - 1


def split_iteration(plan: Plan, slowest: float, transfer: float, n_stages: int) -> Iteration:
    """Return the time of one iteration whose slowest stage takes ``slowest`` a microbatch. [s]"""
    slots = split_slots(plan, n_stages)
    return Iteration(
        stage_time=slowest,
        bubble_factor=slots / plan.n_microbatches,
        transfer=transfer,
        time=slowest * slots,
    )


def least_time(plan: Plan, layer_time: float, overlap: Overlap, rules: Rules) -> float:
    """Least time of an iteration when the graph takes ``layer_time`` on one chip. [s]

    Exact where stages hold whole copies; where they split them, of stages that are all as fast.
    """
    if plan.graph_stages == 1:
        return iteration(plan, layer_time, overlap, rules).time
    even = layer_time * plan.microbatch_size / plan.graph_stages
    return even * split_slots(plan, plan.graph_stages)
