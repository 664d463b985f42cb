"""Time of a pipelined step: stages that pass microbatches on, forward, then backward.

A stage works on one microbatch at a time and sends it to the next. Once the last stage has done all
of them forward it turns round (``huang2019gpipe``), or every stage turns round on its own as soon
as a microbatch comes back (``narayanan2021megatron``). *Interleaved*, a chip takes several stages,
spread over the model: the pipeline is filled and emptied in shorter pieces. Where gradients of
weights are computed apart (``qi2024zero``), a backward pass is two: to the inputs, which the stage
before waits for, and to the weights, which nothing waits for but the end of the iteration.

Stage by stage; as tasks: `crosstack.model.schedule.pipeline_graph`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

import numpy as np

from crosstack.errors import require, require_whole
from crosstack.model.schedule.closed import (
    longest,
    pass_time,
    training_ways,
    uneven_time,
    zero_bubble_ways,
)
from crosstack.model.schedule.combined import check_combined, combined_ends
from crosstack.model.schedule.dual import check_dual, dual_ends
from crosstack.model.schedule.interleaved import (
    interleaved_order,
    passes_ahead,
    period_of,
    steady_turns,
    turn_of,
)
from crosstack.model.schedule.levels import NONE, NOWHERE, LevelBuilder, Levels, through_many
from crosstack.model.schedule.passes import Item, Pass, Stage
from crosstack.model.schedule.zero_bubble import (
    check_waiting,
    piece_chip,
    v_order,
    waiting_order,
)
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.transformer_training import Schedule


def pipeline_time(
    stages: Sequence[Stage],
    microbatches: int = 1,
    schedule: Schedule = Schedule.GPIPE,
    *,
    interleave: int = 1,
) -> float:
    """Time of one step without tasks. [s]

    ``interleave`` stages are on every chip, the i-th on chip i modulo the number of chips, but by
    ZB-V (`crosstack.model.schedule.zero_bubble`). GPipe is
    in closed form: stages and the links between them are machines that m equal jobs pass one after
    the other (`crosstack.model.schedule.closed`), there and back. By other schedules: in closed
    form where one holds; otherwise what a chip does next begins once the chip and what it waits for
    are through, in the order of `pass_order`.

    Raises `InputError` if the stages cannot be interleaved so. Source: huang2019gpipe,
    narayanan2021megatron, qi2024zero.
    """
    check_pipeline(len(stages), microbatches, schedule, interleave)
    if schedule.both_ends:
        return max(dual_ends(stages, microbatches))
    if schedule is Schedule.COMBINED:
        return max(combined_ends(stages, microbatches, interleave))
    if schedule is not Schedule.GPIPE:
        known = _known_time(stages, microbatches, schedule, interleave)
        if known is not None:
            return known
        return max(stage_ends(stages, microbatches, schedule, interleave=interleave))
    sends = [stage.send for stage in stages[:-1]]
    turn = pass_time([stage.time(Pass.FORWARD) for stage in stages], sends, microbatches)
    passed = slowest = last = 0.0
    for stage, send in zip(reversed(stages), [0.0, *reversed(sends)], strict=True):
        backward = stage.time(Pass.BACKWARD)
        passed += send + backward
        slowest = max(slowest, send, backward)
        last = max(last, passed + (microbatches - 1) * slowest)
    return turn + last


def _known_time(
    stages: Sequence[Stage], microbatches: int, schedule: Schedule, interleave: int
) -> float | None:
    """Time of a schedule in closed form; None where none holds. [s]"""
    chips = len(stages) // interleave
    forward, backward, weights = (
        [stage.time(kind) for stage in stages]
        for kind in (Pass.FORWARD, Pass.BACKWARD, Pass.WEIGHTS)
    )
    sends = [s.send for s in stages[:-1]] if chips > 1 else []
    alike = all(len(set(times)) <= 1 for times in (forward, backward, sends))
    send = max(sends, default=0.0)
    if schedule.by_events:
        return None
    if schedule.defers_weights:
        work = forward[0] + backward[0]
        if not (alike and len(set(weights)) == 1 and work):
            return None
        share, apart = forward[0] / work, weights[0] / work
        ways = zero_bubble_ways(chips, microbatches, forward=share, weights=apart)
        return float(longest(ways, work, send))
    if alike and (interleave == 1 or send <= min(forward[0], backward[0])):
        work = interleave * (forward[0] + backward[0])
        share = interleave * forward[0] / work if work else 1.0
        ways = training_ways(chips, microbatches, interleave, forward=share)
        return float(longest(ways, work, send))
    if interleave == 1 and not any(sends):
        return uneven_time(forward, backward, microbatches)
    return None


def check_pipeline(stages: int, microbatches: int, schedule: Schedule, interleave: int) -> None:
    """Raise `InputError` where a schedule has no such stages, microbatches and pieces. [1]"""
    require(stages > 0, "stages", stages, "at least one stage")
    require_whole("microbatches", microbatches)
    require_whole("interleave", interleave)
    if schedule.both_ends:
        check_dual(stages, microbatches)
    elif schedule.defers_weights:
        check_waiting(stages // interleave, microbatches, schedule)
    elif schedule is Schedule.COMBINED:
        check_combined(stages // interleave, interleave)
    pieces = schedule.pieces
    taken = pieces in (None, interleave)
    require(taken, "interleave", interleave, f"{pieces} with schedule {schedule}; more with 1f1b")
    require(stages % interleave == 0, "interleave", interleave, f"a divisor of {stages} stages")
    if interleave == 1 or pieces is not None:
        return
    chips = stages // interleave
    whole = microbatches % chips == 0
    require(whole, "microbatches", microbatches, f"a multiple of {chips} chips, to interleave")


KINDS = len(Pass) + 1  # of what a stage takes: each pass, and its send


def pass_order(
    stages: int,
    microbatches: int,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    *,
    interleave: int = 1,
) -> Iterator[Item]:
    """Yield (stage, microbatch, pass), what is waited for first.

    By GPipe, all forward, then all backward. One forward, one backward:
    `crosstack.model.schedule.interleaved`. Zero bubble: `crosstack.model.schedule.zero_bubble`.

    Parameters
    ----------
    stages, microbatches, interleave : int
        Stages, ``interleave`` of them on every chip; microbatches of an iteration. [1]
    """
    if schedule is Schedule.GPIPE:
        for i in range(microbatches):
            yield from ((s, i, Pass.FORWARD) for s in range(stages))
        for i in range(microbatches):
            yield from ((s, i, Pass.BACKWARD) for s in reversed(range(stages)))
        return
    chips = stages // interleave
    if schedule is Schedule.ZB_V:
        orders = [v_order(chip, chips, microbatches) for chip in range(chips)]
    elif schedule.defers_weights:
        orders = [waiting_order(chip, chips, microbatches, schedule) for chip in range(chips)]
    else:
        orders = [interleaved_order(chip, chips, microbatches, interleave) for chip in range(chips)]
    position = [0] * chips
    passed = {kind: [0] * stages for kind in Pass}  # microbatches through every stage
    told = {kind: (kind.step, through) for kind, through in passed.items()}
    while any(position[chip] < len(order) for chip, order in enumerate(orders)):
        for chip, order in enumerate(orders):
            at = position[chip]
            while at < len(order):
                s, i, kind = item = order[at]
                step, through = told[kind]
                before = s - step
                if step and 0 <= before < stages and through[before] <= i:
                    break
                yield item
                through[s] += 1
                at += 1
            position[chip] = at


def turns_ahead(chips: int, schedule: Schedule, pieces: int) -> tuple[list[int], list[int]]:
    """Passes forward of every chip before its first one backward, and to the weights that wait.

    [1]
    """
    if schedule.defers_weights:
        aheads = [schedule.ahead * (chips - 1 - chip) for chip in range(chips)]
        return aheads, [schedule.ahead * chip for chip in range(chips)]
    return [passes_ahead(chip, chips, pieces) for chip in range(chips)], [0] * chips


@lru_cache(maxsize=32)
def _levels(
    stages: int, microbatches: int, schedule: Schedule, interleave: int, *, turns: bool = False
) -> Levels:
    """Return passes and sends in the order of `pass_order`, by levels, and the turns of each.

    Which take what: every stage forward, backward, to inputs and to weights, and its send.
    """
    chips, build = stages // interleave, LevelBuilder()
    on = [piece_chip(s, chips, schedule) for s in range(stages)]
    busy = [NONE] * chips  # the last pass of each chip
    links = {kind: [NONE] * stages for kind in Pass}  # the last send on the link behind a chip
    ready: dict[Pass, list[list[int]]]  # what passes a microbatch on
    ready = {kind: [[] for _ in range(stages)] for kind in Pass}
    turned: list[int] = []  # the last stage's forward
    told = {kind: (kind.step, place, ready[kind]) for place, kind in enumerate(Pass)}
    add, meet, last = build.add, schedule.ends_meet, stages - 1
    aheads, lates = turns_ahead(chips, schedule, interleave)
    own, here, way = (chips, interleave), NOWHERE, NOWHERE
    for s, i, kind in pass_order(stages, microbatches, schedule, interleave=interleave):
        step, number, passed = told[kind]
        before, to, came, chip = s - step, s + step, NONE, on[s]
        if step:
            if 0 <= before <= last:
                came = passed[before][i]
            elif step < 0:
                came = turned[i]
        place = s * KINDS + number
        if turns:
            turn = turn_of((s, i, kind), aheads[chip], lates[chip], chip, *own)
            here, way = (place, turn), (stages * KINDS + place, turn)
        busy[chip] = done = add(place, busy[chip], came, at=here)
        if step and 0 <= to <= last:
            if chip != on[to]:
                link = min(s, to)
                wire = link if meet else link % chips
                done = add(link * KINDS + KINDS - 1, links[kind][wire], done, at=way)
                links[kind][wire] = done
            passed[s].append(done)
        elif step > 0:
            turned.append(done)
    steady = steady_turns(microbatches, aheads, max(lates), interleave) if turns else None
    return build.build(busy, steady)


def stage_ends(
    stages: Sequence[Stage], microbatches: int, schedule: Schedule, *, interleave: int = 1
) -> list[float]:
    """When every chip is through, by a schedule in which the two directions meet. [s]

    Chips take items in the order of the schedule, each when the chip and what it needs are through.

    Parameters
    ----------
    stages, microbatches, schedule, interleave
        As `pipeline_time`.
    """
    if schedule is Schedule.COMBINED:
        return combined_ends(stages, microbatches, interleave)
    times = [[*map(stage.time, Pass), stage.send] for stage in stages]
    found = stage_ends_of_many(
        np.array(times).ravel(), microbatches, schedule, interleave=interleave
    )
    return [float(end) for end in found]


def stage_ends_of_many(
    times: Floats, microbatches: int, schedule: Schedule, *, interleave: int = 1
) -> Floats:
    """When every chip is through, of many pipelines, shape (chips, pipelines). [s]

    As `stage_ends` of each.

    Parameters
    ----------
    times : array, shape (stages x kinds, pipelines)
        What each stage takes: every `Pass`, then its send. [s]
    microbatches, schedule, interleave
        As `pipeline_time`.
    """
    stages = len(times) // KINDS
    chips = stages // interleave

    def levels_of(some: int, *, turns: bool) -> Levels:
        return _levels(stages, some, schedule, interleave, turns=turns)

    if schedule.ends_meet:  # whose turns are not known
        return levels_of(microbatches, turns=False).through(times)
    return through_many(levels_of, times, chips, microbatches, period_of(chips, interleave))
