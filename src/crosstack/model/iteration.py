"""From the time of one layer to the time of one iteration: stages, bubble, transfers.

The part of a rule set that says how stages and microbatches follow one another gives the *paths*
through an iteration: each passes the work of a stage so many times, and takes some time beside it.
An iteration takes as long as its longest path. The default has the paths of the closed forms of
`crosstack.model.schedule.closed`, which are what events take.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import reduce
from typing import TYPE_CHECKING, Any, assert_never

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.model.end_paths import combined_paths, dual_paths, end_paths, waiting_paths
from crosstack.model.optimizer_step import Path
from crosstack.model.pairs import dual_work, from_both_ends, token_times
from crosstack.model.schedule.closed import (
    forward_ways,
    gpipe_ways,
    training_ways,
    zero_bubble_ways,
)
from crosstack.model.schedule.uneven import (
    NO_TOKENS,
    UnevenStages,
    uneven_ends,
    uneven_ends_of_many,
)
from crosstack.model.stage_paths import stage_paths
from crosstack.model.stages import Pipeline, longest_of
from crosstack.model.step_paths import optimizer_step, step_paths, step_times
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.transformer_training import Schedule

if TYPE_CHECKING:
    from crosstack.model.mesh_plan import MeshPlan
    from crosstack.model.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True)
class Iteration:
    """``stage_time``: one stage, one microbatch [s]; ``transfer`` as the rules count it [s].

    Numbers, or arrays of one plan on many machines.

    ``sums``, ``update`` and ``gather`` are what of `OptimizerStep` nothing hides, part of ``time``.
    [s]
    """

    stage_time: Any
    bubble_factor: Any
    transfer: Any
    time: Any
    sums: Any = 0.0
    update: Any = 0.0
    gather: Any = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipelining:
    """How stages and microbatches follow one another: the part of a rule set that says so.

    The default: every microbatch crosses every border between stages, behind the stage's work
    where everything overlaps (``ko2025dfmodel`` eq. 7), in the order of its schedule; gradients
    are summed, and weights updated, once an iteration (`crosstack.model.optimizer_step`).
    """

    @property
    def sums_in_layers(self) -> bool:
        """Whether the sum of gradients is work of the layers, a part for every sequence."""
        return False

    @property
    def has_schedules(self) -> bool:
        """Whether an iteration depends on the schedule."""
        return True

    @property
    def has_ends(self) -> bool:
        """Whether what runs before the first layer and behind the last one is counted."""
        return True

    def crosses(self, n_stages: int, n_dimensions: int) -> bool:
        """Whether anything is sent on, by ``n_stages`` over so many network dimensions."""
        return n_stages > 1

    def directions(self, training: bool) -> int:
        """Return how often a microbatch crosses a border: gradients come back. [1]"""
        return 2 if training else 1

    def transfer(self, plan: MeshPlan) -> float:
        """Time that sending activations on takes: one microbatch, to the next stage. [s]"""
        return _sending(plan)

    def stage(self, work: Floats, transfer: Floats, overlap: Overlap) -> Floats:
        """Time of a stage, of one microbatch. [s]"""
        return stage_time(work, transfer, overlap)

    def paths(self, pipeline: Pipeline) -> tuple[Path, ...]:
        """Return the paths through an iteration, the one through most work first.

        Of stages that differ at the ends, with one forward, one backward, they are some of the
        paths: no iteration takes less.
        """
        found = [*self._passes(pipeline)]
        for group in step_paths(pipeline):
            found = [(a + c, b + d) for a, b in found for c, d in group]
        return tuple((a * c, b + a * d) for a, b in found for c, d in pipeline.exchanged)

    def longest(self, pipeline: Pipeline, work: Floats | float) -> Floats:
        """Return the time of the longest of `paths`, of stages that work so long. [s]

        The longest through the passes, then of each of `step_paths`, of the longest that a stage
        works with what its layers exchange: paths are not put together to be compared.
        """
        work = pipeline.stage_work(work)
        through = longest_of(self._passes(pipeline), work)
        whole = sum(step_times(pipeline, work), through)
        return np.where(np.isfinite(work), whole, np.inf)

    def _passes(self, pipeline: Pipeline) -> tuple[Path, ...]:
        """Return the paths through the passes of all microbatches."""
        if pipeline.has_ends and not pipeline.from_both_ends:
            return end_paths(pipeline)
        size, beside = (pipeline.stages, pipeline.microbatches), pipeline.overlap is Overlap.ALL
        share, send = pipeline.forward, pipeline.transfer
        if not pipeline.training:
            ways = forward_ways(*size, beside=beside)
            return tuple((work, sends * send) for work, sends in ways)
        match pipeline.schedule:
            case Schedule.GPIPE:
                ways = gpipe_ways(*size, beside=beside, forward=share)
            case Schedule.ONE_F_ONE_B:
                ways = training_ways(*size, pipeline.interleave, beside=beside, forward=share)
            case Schedule.ZB_H1:
                weights = pipeline.weight_gradients
                ways = zero_bubble_ways(*size, beside=beside, forward=share, weights=weights)
            case Schedule.DUALPIPE:
                return dual_paths(pipeline)
            case Schedule.COMBINED:
                return combined_paths(pipeline)
            case Schedule.ZB_H2 | Schedule.ZB_V:
                return waiting_paths(pipeline)
            case _:
                assert_never(pipeline.schedule)
        send = send / self.directions(training=True)
        return tuple((work, sends * send) for work, sends in ways)

    def bubble_factor(self, pipeline: Pipeline) -> Floats:
        """1 + the share of time that stages idle, but for sends that are waited for. [1]"""
        idle = (pipeline.stages - 1) / pipeline.microbatches / pipeline.interleave
        if pipeline.schedule.both_ends:  # table 2 of deepseek2024v3, of passes one by one
            half, back = pipeline.stages / 2 - 1, 1 - np.asarray(pipeline.forward)
            idle = half * (1 + back - 3 * pipeline.weight_gradients) / pipeline.microbatches
        elif pipeline.schedule.defers_weights:
            share, weights = np.asarray(pipeline.forward), pipeline.weight_gradients
            inputs = 1 - share - weights
            idle = idle * (share + inputs - np.minimum(np.minimum(share, inputs), weights))
        return np.asarray(1.0 + idle)

    def split(self, plan: MeshPlan, n_stages: int) -> tuple[int, int]:
        """Return how often an iteration of ``n_stages`` a copy waits for the slowest, and for all.

        All are passed by the first microbatch, once each copy.
        """
        return plan.n_microbatches - 1, plan.graph_repetitions

    def shares_of_gradients(self, plan: MeshPlan) -> int:
        """Return the sequences that one sum of gradients is spread over, in the layers. [1]"""
        return plan.n_microbatches * plan.microbatch_size


def pipeline_of(plan: MeshPlan, overlap: Overlap, rules: Rules) -> Pipeline:
    """Return the pipeline of a plan whose stages hold whole copies of the graph."""
    first, last = (
        (end.forward * plan.microbatch_size, end.time * plan.microbatch_size) for end in plan.ends
    )
    # Where network and work overlap in each kernel, nothing is left to hide.
    sent = plan.microbatch_size * (overlap is not Overlap.ALL)
    tokens = [time * plan.layers_per_stage * sent for time in plan.tokens]
    ends = [(end.expert_forward * sent, end.expert * sent) for end in plan.ends]
    return Pipeline(
        stages=plan.pipeline,
        microbatches=plan.n_microbatches,
        layers=plan.layers_per_stage,
        transfer=rules.iteration.transfer(plan),
        overlap=plan.sending(overlap),
        training=plan.training,
        schedule=plan.schedule,
        interleave=plan.interleave,
        forward=plan.forward,
        weight_gradients=plan.weight_gradients,
        rerun=plan.rerun * np.less(plan.again, 1),
        first=first,
        last=last,
        fewer=_shares_of(plan.spared, plan.layers_per_stage),
        tokens=(tokens[0], tokens[1]),
        tokens_forward=plan.tokens_forward,
        first_tokens=ends[0],
        last_tokens=ends[1],
        taken=plan.taken,
        step=optimizer_step(plan),
        exchanged=stage_paths(plan),
        host=plan.host * plan.layers_per_stage,
    )


def _shares_of(layers: tuple[Any, Any], whole: Any) -> tuple[Any, Any]:
    """Return numbers of layers as shares of those of a stage. [1]"""
    return layers[0] / np.asarray(whole), layers[1] / np.asarray(whole)


def exact_time(pipeline: Pipeline, work: float, rules: Rules) -> float:
    """Time of an iteration whose stages work so long on a microbatch, of one pipeline. [s]"""
    return float(exact_times(pipeline, work, rules))


def exact_times(pipeline: Pipeline, work: Any, rules: Rules) -> Floats:
    """Times of iterations whose stages work so long on a microbatch. [s]

    Of one pipeline, or of one on many machines: times are arrays, counts are not. Not of many where
    microbatches enter at both ends, or by GPipe where each stage sums gradients behind its passes.

    The longest of all paths, where those are known; otherwise when the events of
    `crosstack.model.schedule.pipeline` end, or later where pieces wait for a link to be free. Where
    stages send by themselves, that is work of theirs.
    """
    paths = iteration_time(pipeline, work, rules)
    if pipeline.from_both_ends:
        return np.maximum(from_both_ends(pipeline, float(pipeline.stage_work(work))), paths)
    apart = not pipeline.step.overlapped or pipeline.schedule.defers_weights or pipeline.uneven
    several = pipeline.training and int(pipeline.stages) > 1
    ends = several and (pipeline.has_ends or pipeline.schedule.by_events)
    if not ends or (pipeline.schedule is Schedule.GPIPE and not apart):
        return paths
    work = pipeline.stage_work(work)
    times = list(step_times(pipeline, work))
    through = _stages_through(pipeline, work, rules, apart=apart)
    if apart and times:
        summed = zip(through, _sums_behind(pipeline, work), strict=True)
        through = [ended + behind for ended, behind in summed]
        times = times[1:]
    return np.maximum(reduce(np.maximum, through) + sum(times), paths)


def _stages_through(
    pipeline: Pipeline, work: Any, rules: Rules, *, apart: bool
) -> Sequence[Floats | float]:
    """Return when all stages are through with their passes, or each ``apart``. [s]

    ``work`` is what a stage takes for one microbatch, with what its layers exchange. [s]
    """
    share, weights = float(pipeline.forward), float(pipeline.weight_gradients)
    send = pipeline.transfer / rules.iteration.directions(training=True)
    (first, begun), (last, ended) = pipeline.first, pipeline.last
    one = all(np.ndim(time) == 0 for time in (work, send, first, begun, last, ended))
    ends: Any = (first, begun), (last, ended)
    if one:
        work, send = float(work), float(send)
        ends = (float(first), float(begun)), (float(last), float(ended))
    stages = UnevenStages(
        stages=int(pipeline.stages),
        microbatches=int(pipeline.microbatches),
        pieces=int(pipeline.interleave),
        work=(work * share, work * (1 - share), work * weights),
        ends=ends,
        fewer=(float(pipeline.fewer[0]), float(pipeline.fewer[1])),
        send=send,
        schedule=pipeline.schedule,
        beside=pipeline.overlap is Overlap.ALL,
        tokens=token_times(pipeline) if one and pipeline.schedule.pairs else NO_TOKENS,
        taken=pipeline.taken,
    )
    return uneven_ends(stages, apart=apart) if one else list(uneven_ends_of_many(stages))


def _sums_behind(pipeline: Pipeline, work: Any) -> list[Any]:
    """How long behind its last pass each stage sums gradients. [s]

    Those of the first stage's end go last, of the last stage's with those of its layers. Which
    stages sum beside their last pass, and what that takes: `summing_paths`; where gradients of
    weights wait, no other stage does for them, and all do.
    """
    step, count = pipeline.step, int(pipeline.stages)
    least = float(pipeline.fewer[0]), float(pipeline.fewer[1])
    held = [1 - least[0], *[1.0] * (count - 2), 1 - least[1]]  # shares of the fullest's layers
    besides: list[Any] = [0.0] * count
    if not step.overlapped:
        besides[0], besides[-1] = step.first, step.last
        return [step.sums * share + more for share, more in zip(held, besides, strict=True)]
    besides[-1] = step.last
    found = [step.sums * share + more for share, more in zip(held, besides, strict=True)]
    bucket = step.sums / pipeline.layers
    for s in range(count if pipeline.schedule.defers_weights else 1):
        hidden = work * (float(pipeline.last_pass) * held[s] - float(pipeline.lead))
        slowed = bucket + pipeline.taken * (found[s] - bucket)
        found[s] = np.maximum(slowed, found[s] - hidden)
    found[0] = found[0] + step.first
    return found


def iteration_time(pipeline: Pipeline, work: Floats | float, rules: Rules) -> Floats:
    """Time of an iteration whose stages work so long on a microbatch: its longest path. [s]"""
    return rules.iteration.longest(pipeline, work)


def steepest(plan: MeshPlan, overlap: Overlap, rules: Rules) -> Any:
    """Seconds that an iteration takes longer at most for each second of a layer. [1]"""
    pipeline = pipeline_of(plan, overlap, rules)
    paths = rules.iteration.paths(pipeline)
    times = np.maximum.reduce(np.broadcast_arrays(*(times for times, _ in paths)))
    return times * plan.microbatch_size * plan.layers_per_stage / plan.copies


def iteration(plan: MeshPlan, layer_time: float, overlap: Overlap, rules: Rules) -> Iteration:
    """Return the time of one iteration of one plan, as `iterations`, in numbers."""
    found = iterations(plan, layer_time, overlap, rules)
    return Iteration(
        **{column.name: float(getattr(found, column.name)) for column in fields(found)}
    )


def iterations(plan: MeshPlan, layer_time: Any, overlap: Overlap, rules: Rules) -> Iteration:
    """Return the time of one iteration when one layer of one sequence takes ``layer_time``. [s]

    A microbatch keeps a stage busy for ``layer_time x microbatch x layers``; how long all take is
    what `Pipelining.paths` says. Copies of the system run as many iterations at the same time.
    """
    work = layer_time * plan.microbatch_size * plan.layers_per_stage
    pipeline = pipeline_of(plan, overlap, rules)
    transfer = np.asarray(pipeline.transfer)
    taken, work = exact_times(pipeline, work, rules), pipeline.stage_work(work)
    ended = step_times(pipeline, work) or (np.zeros(()),) * 3
    bubble = rules.iteration.bubble_factor(pipeline)
    besides = [both for _, both in (pipeline.first, pipeline.last)]
    own = [
        work * (1 - float(share)) + both
        for share, both in zip(pipeline.fewer, besides, strict=True)
    ]
    inner = work if plan.pipeline > 2 else 0.0
    alone = plan.pipeline == 1 or pipeline.schedule.ends_meet
    slowest = work + sum(besides) if alone else reduce(np.maximum, (*own, inner))
    if pipeline.from_both_ends:
        slowest = dual_work(pipeline, work).pair
    by_events = pipeline.training and pipeline.schedule.by_events
    if pipeline.has_ends or by_events:  # all that the slowest stage waits for
        bubble = (taken - sum(ended)) / plan.n_microbatches / slowest
    return Iteration(
        stage_time=rules.iteration.stage(np.asarray(slowest), transfer, plan.sending(overlap)),
        bubble_factor=bubble,
        transfer=transfer,
        time=taken / plan.copies,
        **dict(zip(("sums", "update", "gather"), ended, strict=True)),
    )


def latency(plan: MeshPlan, layer_time: Any) -> Any:
    """Time of one microbatch from the first layer to the last, nothing else in its way. [s]

    All stages one after the other, and between two of them the activations sent on: ``microbatch
    (stages x layers a stage x layer time + (stages x pieces - 1) x hop)``. Source: dfmodel_code,
    release E5.
    """
    stages = plan.pipeline
    copies = plan.graph_repetitions if plan.graph_stages > 1 else stages * plan.layers_per_stage
    if plan.driven is not None:
        layer_time = np.maximum(layer_time, plan.host / plan.microbatch_size)
    ends = sum(end.time for end in plan.ends)
    return plan.microbatch_size * (copies * layer_time + ends + plan.borders * plan.hop)


def layer_time_below(plan: MeshPlan, time: float, overlap: Overlap, rules: Rules) -> float:
    """Return the layer time below which an iteration takes less than ``time``; may be <= 0. [s]

    The inverse of `least_time`.
    """
    if math.isinf(time):
        return math.inf
    if plan.graph_stages > 1:
        return float(time / _even(plan, rules)) / plan.microbatch_size
    time *= plan.copies
    per_layer = plan.microbatch_size * plan.layers_per_stage
    least = math.inf
    for times, beside in rules.iteration.paths(pipeline_of(plan, overlap, rules)):
        left = time - float(beside)
        if times > 0:
            least = min(least, left / float(times) / per_layer)
        elif times == 0 and left <= 0:
            return 0.0
    return least


# ---------------------------------------------------------------- stages that split the graph


def border_time(plan: MeshPlan, size: Floats) -> Floats:
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


def last_transfer(plan: MeshPlan) -> float:
    """Time that one microbatch takes from one copy of the graph to the next. [s]"""
    return 0.0 if plan.graph_repetitions == 1 else _sending(plan)


def _sending(plan: MeshPlan) -> float:
    return plan.stage_transfer.fixed + plan.stage_transfer.per_byte * plan.microbatch_size


def split_iteration(
    plan: MeshPlan, work: Floats, sent: Floats, overlap: Overlap, rules: Rules
) -> Iteration:
    """Return the time of one iteration of stages that split every copy of the graph.

    By the default part a pass of all microbatches through stages and links
    (`crosstack.model.schedule.closed.pass_time`): the slowest of them, ``n_microbatches - 1``
    times, and the sum of all.

    Parameters
    ----------
    work, sent : array, shape (stages,)
        Of the stages of a copy, for one microbatch; the last sends to the next copy. [s]
    """
    slots, repeats = rules.iteration.split(plan, len(work))
    slowest = float(stage_time(work, sent, overlap).max())
    through = repeats * float(work.sum() + sent.sum()) - (last_transfer(plan) if repeats else 0.0)
    time = slots * slowest + through
    return Iteration(
        stage_time=slowest,
        bubble_factor=time / plan.n_microbatches / slowest if slowest else 1.0,
        transfer=float(sent.max()),
        time=time,
    )


def least_time(plan: MeshPlan, layer_time: float, overlap: Overlap, rules: Rules) -> float:
    """Least time of an iteration when the graph takes ``layer_time`` on one chip. [s]

    Exact where stages hold whole copies and are alike; where they split them, of stages that are
    all as fast.
    """
    return float(least_times(plan, layer_time, overlap, rules))


def least_times(plan: MeshPlan, layer_time: Any, overlap: Overlap, rules: Rules) -> Floats:
    """`least_time` of arrays of plans that all hold whole copies of the graph, or all split it."""
    if np.all(np.equal(plan.graph_stages, 1)):
        work = layer_time * plan.microbatch_size * plan.layers_per_stage
        return iteration_time(pipeline_of(plan, overlap, rules), work, rules) / plan.copies
    return np.asarray(layer_time * plan.microbatch_size * _even(plan, rules))


def _even(plan: MeshPlan, rules: Rules) -> Any:
    """Times that an iteration takes the work of a copy, of the most stages all as fast. [1]"""
    slots: Any
    slots, repeats = rules.iteration.split(plan, plan.graph_stages)
    return slots / plan.graph_stages + repeats
