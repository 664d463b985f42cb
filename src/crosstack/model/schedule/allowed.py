"""Which schedules the microbatches of a plan may follow, and the plan with one of them."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from crosstack.machine.chip import Chip, Execution, Overlap
from crosstack.model.dispatch import check_time, host_time
from crosstack.model.memory import computed_again, weight_gradients
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.model.runnable import runs_again, runs_schedule
from crosstack.model.schedule.zero_bubble import least_microbatches
from crosstack.model.tiles import divisors
from crosstack.model.tokens import RECOMPUTED, with_tokens
from crosstack.workload.kernel_graph import Bools, KernelGraph
from crosstack.workload.transformer_training import ZEROS, Recompute, Schedule, Zero

ROUNDING = 1e-12  # relative, of sums of times
EMPTY = 2  # places of layers that may stay empty where stages are cut into pieces


def schedules(plan: MeshPlan, arrays: KernelGraph, rules: Rules) -> tuple[Schedule, ...]:
    """Return the schedules that plans may follow for a graph, one forward, one backward first.

    Gradients of weights wait where there are some, apart from those of inputs; passes are combined
    where tokens are on their way to experts; a framework that drives the chips runs those that it
    has.
    """
    one = Schedule.ONE_F_ONE_B
    if not (rules.iteration.has_schedules and plan.training):
        return (one,)
    sends = bool(arrays.exchanged.any())
    apart = bool(weight_gradients(arrays).any())
    framework = plan.framework
    return tuple(
        order
        for order in (one, *(order for order in Schedule if order is not one))
        if (apart or not order.defers_weights)
        and (sends or order is not Schedule.COMBINED)
        and np.any(runs_schedule(framework, order, 1))
    )


def most_pieces(plan: MeshPlan, rules: Rules) -> Any:
    """Return the most pieces that a stage may be cut into, whatever the microbatches. [1]

    Stages hold as many layers, but for `EMPTY` of all: embedding and head stand in their places,
    as in the training of Llama 3 (``grattafiori2024llama3``, section 3.3.2), and time and memory
    count them as layers. Of a plan, or of arrays of many.
    """
    cut = rules.iteration.has_schedules and plan.training
    if not cut or plan.schedule.pieces == 1:
        return 1
    if plan.schedule.pieces:  # of as many layers each
        whole = plan.graph_repetitions == plan.layers_per_stage * plan.pipeline
        return 1 + ((plan.pipeline > 1) & whole & (plan.layers_per_stage % 2 == 0))
    even = plan.graph_repetitions >= plan.layers_per_stage * plan.pipeline - EMPTY
    return 1 + ((plan.pipeline > 1) & even) * (plan.layers_per_stage - 1)


def may_follow(plan: MeshPlan, rules: Rules) -> Any:
    """Whether microbatches may follow the schedule of a plan; or of arrays of plans.

    Stages have the pieces that it says, see `most_pieces`. Source: narayanan2021megatron, section
    2.2.2: microbatches are a multiple of the stages. They are as many as fill the pipeline where
    gradients of weights wait (qi2024zero, section 2.3), which layers then do not exchange. From
    both ends: stages and microbatches are even in number, and the latter twice as many at least
    (deepseek_dualpipe). Where a chip has both ends of the model, layers compute the same again.
    Where gradients of weights wait, none of what they need is on the host. Combined, of chips that
    share experts: one stage, of microbatches of which two can be combined, or stages in pieces;
    layers do not exchange weights (nvidia_combined_1f1b).
    """
    framework = plan.framework if plan.training else None
    divides = most_pieces(plan, rules) % plan.interleave == 0
    divides = divides & runs_schedule(framework, plan.schedule, plan.pipeline)
    if plan.schedule.defers_weights:
        p, m, often = plan.pipeline, plan.n_microbatches, plan.schedule.at_once
        least = often * p if often > 1 else least_microbatches(p, plan.schedule)
        divides = divides & (m >= least) & (plan.exchanged == 0)
        divides = divides & (m % often == 0) & (p % often == 0)
        divides = divides & (not plan.offloaded.activations)
    if plan.schedule.ends_meet:
        divides = divides & np.equal(plan.again, 1)
    if plan.schedule is Schedule.COMBINED:
        cut = np.where(np.equal(plan.pipeline, 1), plan.n_microbatches > 1, plan.interleave > 1)
        divides = divides & cut & np.greater(plan.expert, 1) & (plan.exchanged == 0)
    if plan.schedule.pieces:
        return divides & np.equal(plan.interleave, plan.schedule.pieces)
    return divides & ((plan.interleave == 1) | (plan.n_microbatches % plan.pipeline == 0))


def may_recompute(plan: MeshPlan) -> Bools:
    """Whether a plan by its schedule may compute so much again, of each kind of `RECOMPUTED`."""
    framework = plan.framework
    return np.array([runs_again(framework, plan.schedule, kind) for kind in RECOMPUTED])


def interleavings(plan: MeshPlan, rules: Rules) -> tuple[int, ...]:
    """Return how many pieces of as many layers the stages of a plan may have, 1 first. [1]"""
    pieces = divisors(most_pieces(plan, rules))
    cut = (replace(plan, interleave=count) for count in pieces)
    return tuple(one.interleave for one in cut if may_follow(one, rules))


@lru_cache(maxsize=256)
def _works(arrays: KernelGraph, recompute: Recompute) -> tuple[float, float, float, float]:
    """Work of a copy, of its forward pass, of gradients of weights, of what runs again. [FLOP]"""
    some = ~arrays.backward, weight_gradients(arrays), computed_again(arrays, recompute)
    forward, weights, again = (float(arrays.work[kernels].sum()) for kernels in some)
    return float(arrays.work.sum()), forward, weights, again


def _shares(arrays: KernelGraph, recompute: Recompute, share: Any) -> tuple[Any, Any, Any]:
    """Shares of a copy's work: forward, gradients of weights, again, by a ``share`` of them. [1]"""
    whole, forward, weights, again = _works(arrays, recompute)
    total = whole + share * again
    if not whole:
        return 1.0, 0.0, 0.0
    return forward / total, weights / total, share * again / total


def zero_stages(plan: MeshPlan, rules: Rules) -> tuple[Zero, ...]:
    """Return what data-parallel chips of a plan may have shares of."""
    found = _allowed_zeros(plan, rules)
    framework = plan.framework
    if framework is None or not framework.sharing or len(found) == 1:
        return found
    return tuple(each for each in found if each in framework.sharing)


def _allowed_zeros(plan: MeshPlan, rules: Rules) -> tuple[Zero, ...]:
    """Return what data-parallel chips may have shares of, whatever drives them."""
    alone = plan.alike == 1 or not plan.training or rules.iteration.sums_in_layers
    # Gradients of weights that layers share are known once all layers are through; those that
    # wait are not exchanged when a layer runs backward, nor are those of passes that are combined.
    exchanged = plan.overlapped and not plan.schedule.keeps_weights
    if alone or not exchanged:
        return ZEROS[: 1 if alone else 2]
    return ZEROS if plan.near.chips > 1 else ZEROS[: Zero.HYBRID.number]


def useful_zero_stages(plan: MeshPlan, rules: Rules, given: Zero | None = None) -> tuple[Zero, ...]:
    """Return of what is allowed, and given, that of which no other is as fast and keeps less.

    Shares take less memory and time to update. Sums that leave shares and are sent round take
    longer than sums for all only where switches add. What follows takes longer, and less memory.
    """
    stages = zero_stages(plan, rules)
    if given is not None:
        return (given,) if given in stages else ()
    if Zero.NONE not in stages or len(stages) == 1:
        return stages
    size = plan.summed, plan.expert_summed
    each, shared = replace(plan, zero=stages[0].number), replace(plan, zero=stages[1].number)
    sent = float(shared.summing_time(*size) + shared.gathering_time(*size))
    faster = sent <= float(each.summing_time(*size)) * (1 + ROUNDING)
    return stages[1:] if faster else stages


def with_recompute(
    plan: MeshPlan, arrays: KernelGraph, recompute: Recompute, again: Any = 1.0
) -> MeshPlan:
    """Return a plan that computes something again, in a share ``again`` of its layers. [1]"""
    forward, weights, rerun = _shares(arrays, recompute, again)
    host: Any = 0.0
    if plan.driven is not None:
        none, all_ = (
            host_time(arrays, plan.driven, kind, plan.expert_parts)
            for kind in (Recompute.NONE, recompute)
        )
        host = none + again * (all_ - none) + check_time(plan.driven, plan.tensor)
    return with_tokens(
        plan,
        arrays,
        RECOMPUTED.index(recompute),
        recompute=recompute,
        again=again,
        forward=forward,
        weight_gradients=weights,
        rerun=rerun,
        host=host,
    )


def some_layers_again(chip: Chip, rules: Rules) -> bool:
    """Whether some layers of a stage may compute again what others keep.

    A layer then takes, on average, a sum of what both kinds take: so it is where kernels follow one
    another and nothing hides the network. Elsewhere a partition takes the longest of several.
    """
    apart = chip.execution is Execution.TEMPORAL and chip.overlap is not Overlap.ALL
    return apart and rules.iteration.has_schedules and rules.memory.keeps_activations


def share_again(plan: MeshPlan, layers: int | None) -> float:
    """Share of the layers of a stage that compute again, so many of each piece; None: all. [1]"""
    return 1.0 if layers is None else layers * plan.interleave / plan.layers_per_stage


def layers_again(plan: MeshPlan) -> int | None:
    """Layers of each piece of a stage that compute again; None: all, or nothing is. [1]"""
    if plan.again == 1:
        return None
    return round(float(plan.again) * plan.layers_per_stage / plan.interleave)
