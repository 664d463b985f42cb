"""From the time of one layer to the time of one iteration: stages, bubble, transfers.

Sources: ``dfmodel_code`` for the published form; the bubble is that of an interleaved 1F1B
schedule with one layer a virtual stage (``narayanan2021megatron``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crosstack.chip.chip import Overlap
from crosstack.model.plan import Plan
from crosstack.model.rules import ModelRules, StageTransfers

__all__ = ["Iteration", "iteration", "layer_time_below"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """``stage_time``: one stage, one microbatch [s]; ``transfer`` as the rules count it [s]."""

    stage_time: float
    bubble_factor: float
    transfer: float
    time: float


def bubble_factor(plan: Plan) -> float:
    """1 + (stages - 1) / microbatches / (virtual stages), at least one virtual stage. [1]"""
    virtual = max(plan.layers_per_stage - 1, 1)
    return 1.0 + (plan.pipeline - 1) / plan.n_microbatches / virtual


def iteration(plan: Plan, layer_time: float, overlap: Overlap, rules: ModelRules) -> Iteration:
    """Return the time of one iteration when one layer of one sequence takes ``layer_time``. [s]

    Notes
    -----
    A microbatch keeps a stage busy for ``layer_time x microbatch x layers``; under rules that pay
    transfers every microbatch, for the maximum of that and the transfer where everything
    overlaps, their sum otherwise. Iterations take ``microbatches x bubble factor`` such slots.
    """
    factor = bubble_factor(plan)
    work = layer_time * plan.microbatch_size * plan.layers_per_stage
    if rules.stage_transfers is StageTransfers.ONCE:
        transfer = plan.stage_transfer.per_byte * plan.transfers_per_iteration
        time = work * factor * plan.n_microbatches + transfer
        return Iteration(stage_time=work, bubble_factor=factor, transfer=transfer, time=time)
    line = plan.stage_transfer
    transfer = line.fixed + line.per_byte * plan.microbatch_size
    stage = max(work, transfer) if overlap is Overlap.ALL else work + transfer
    time = stage * factor * plan.n_microbatches
    return Iteration(stage_time=stage, bubble_factor=factor, transfer=transfer, time=time)


def layer_time_below(plan: Plan, time: float, overlap: Overlap, rules: ModelRules) -> float:
    """Return the layer time below which an iteration takes less than ``time``; may be <= 0. [s]"""
    if math.isinf(time):
        return math.inf
    slots = bubble_factor(plan) * plan.n_microbatches
    per_layer = plan.microbatch_size * plan.layers_per_stage
    empty = iteration(plan, 0.0, overlap, rules)
    if rules.stage_transfers is StageTransfers.ONCE:
        return (time - empty.transfer) / slots / per_layer
    if overlap is Overlap.ALL:
        return time / slots / per_layer if empty.time < time else 0.0
    return (time / slots - empty.transfer) / per_layer
