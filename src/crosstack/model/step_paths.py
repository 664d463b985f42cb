"""What stages do once an iteration: sums of gradients, the update, sending weights round.

The paths through it follow on those through the passes of all microbatches
(`crosstack.model.iteration`); what a stage has of it is told by a plan.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.model.optimizer_step import (
    NO_STEP,
    OptimizerStep,
    Path,
    gathering_paths,
    summing_paths,
)
from crosstack.model.stages import Pipeline, longest_of
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.transformer_training import Hidden

if TYPE_CHECKING:
    from crosstack.model.mesh_plan import MeshPlan

NOTHING: tuple[Path, ...] = ((0.0, 0.0),)


def step_paths(pipeline: Pipeline) -> tuple[tuple[Path, ...], ...]:
    """Return what is done once an iteration: paths of sums, of the update, of sending round."""
    step, share = pipeline.step, pipeline.forward
    if step is NO_STEP:
        return ()
    apart = pipeline.schedule.defers_weights or pipeline.uneven
    if apart:  # which stage is through last depends, see `crosstack.model.iteration.exact_times`
        alone = np.asarray(pipeline.stages) == 1
        step = replace(step, first=step.first * alone, last=step.last * alone)
    elif pipeline.has_ends and not step.overlapped:  # the first stage has one behind all others
        step = replace(step, last=step.last * (np.asarray(pipeline.stages) == 1))
    held = 1 - np.asarray(pipeline.fewer[0])  # of the stage that is through last
    if pipeline.schedule.defers_weights:  # which may be any
        held = np.minimum(held, 1 - np.asarray(pipeline.fewer[1]))
    counts: dict[str, Any] = {
        "stages": pipeline.stages,
        "layers": pipeline.layers,
        "pieces": pipeline.interleave,
        "held": held,
        "taken": pipeline.taken,
    }
    sent = pipeline.transfer / 2
    # A stage that sends by itself is through when it has sent.
    hops = np.maximum(pipeline.stages - 1 - (pipeline.overlap is not Overlap.ALL), 0)
    summing = NOTHING
    if np.any(step.summed):
        apart = pipeline.schedule.defers_weights  # those of an end are never
        ended = (pipeline.first[1] - pipeline.first[0]) * (not apart)
        passes = {"backward": pipeline.last_pass, "lead": pipeline.lead, "ended": ended}
        summing = summing_paths(step, **counts, **passes, sent=hops * sent)
    return (
        summing,
        ((0.0, step.update),),
        gathering_paths(step, **counts, forward=share, begun=pipeline.first[0], sent=sent)
        if np.any(step.gather)
        else NOTHING,
    )


def step_times(pipeline: Pipeline, work: Floats | float) -> tuple[Floats, ...]:
    """Times that an iteration ends with: sums, the update, sending round; none: there are none. [s]

    ``work`` is what a stage takes for one microbatch. [s]
    """
    return tuple(longest_of(group, work) for group in step_paths(pipeline))


def optimizer_step(plan: MeshPlan) -> OptimizerStep:
    """Return what stages of a plan do once an iteration."""
    sizes = [(end.summed, end.expert_summed) for end in plan.ends]
    if not np.any(plan.summed + sum(size for size, _ in sizes)):
        return NO_STEP
    layers, dual, meet = plan.layers_per_stage, plan.schedule.both_ends, plan.schedule.ends_meet
    if dual:  # a chip has two stages
        layers = 2 * layers

    def whole(time: Callable[[Any, Any], Floats], what: Hidden) -> Floats:
        """Of all layers of a stage, layer by layer or at once."""
        size, experts = plan.summed, plan.expert_summed
        if plan.hides(what):
            return time(size, experts) * layers
        return time(size * layers, experts * layers)

    first: Any
    last: Any
    first, last = (plan.summing_time(*size) for size in sizes)
    alone = (np.asarray(plan.pipeline) == 1) | meet  # a chip has both ends
    before: Any
    behind: Any
    before, behind = (plan.gathering_time(*size) for size in sizes)
    sums = whole(plan.summing_time, Hidden.GRADIENTS)
    if dual:  # with the chip that has the same stages
        mirrored = [plan.mirrored_time(*size) for size in sizes]
        sums = sums + plan.mirrored_time(plan.summed * layers, plan.expert_summed * layers)
        first = first + sum(mirrored)
    if meet:
        first, last, before, behind = first + last, 0.0, before + behind, 0.0
    ended = [plan.updated(*size) for size in sizes]
    most = np.where(alone, sum(ended), np.maximum(ended[0], ended[1]))
    return OptimizerStep(
        sums=sums,
        first=first,
        last=last + alone * first * (not meet),
        update=plan.offloaded.update(plan.update, layers)
        * (plan.updated(plan.summed, plan.expert_summed) * layers + most)
        / plan.sharers(1)
        + plan.casting * plan.summed * layers,
        gather=whole(plan.gathering_time, Hidden.WEIGHTS),
        before=before,
        behind=behind,
        overlapped=plan.hides(Hidden.GRADIENTS),
        ahead=plan.hides(Hidden.WEIGHTS),
    )
