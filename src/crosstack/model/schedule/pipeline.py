"""Time of a pipelined step: stages that pass microbatches on, forward, then backward.

A stage works on one microbatch at a time and sends it to the next. Once the last stage has done all
of them forward it turns round (``huang2019gpipe``), or every stage turns round on its own as soon
as a microbatch comes back (``narayanan2021megatron``). The gradient of a weight is summed over the
replicas as soon as its operation is through with the last microbatch, one after the other on the
ring of the stage, while the operations before it go on.

*Interleaved*, a chip takes several stages, spread over the model (``narayanan2021megatron``,
section 2.2.2): the pipeline is filled and emptied in shorter pieces.

Twice the same thing: `pipeline_ends` stage by stage, `pipeline_graph` as tasks for `simulate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from heapq import heappop, heappush

import numpy as np

from crosstack.errors import require, require_quantity, require_whole
from crosstack.model.schedule.closed import longest, pass_time, training_ways, uneven_time
from crosstack.model.schedule.events import TaskGraph, TaskGraphBuilder, check_tasks
from crosstack.workload.transformer_training import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kernel with what it exchanges: ``forward`` and ``backward`` time of one microbatch. [s]

    ``reduce`` sums the gradient of its weight over the replicas and updates it, once a step. [s]
    """

    name: str
    forward: float
    backward: float
    reduce: float = 0.0

    def __post_init__(self) -> None:
        """Check every time."""
        for field in ("forward", "backward", "reduce"):
            require_quantity(field, getattr(self, field), "s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Operations in order, and ``send``, the time to pass a microbatch to the next stage. [s]

    ``names`` tells equal operations of different layers apart; empty: every operation's own.
    """

    operations: tuple[Operation, ...]
    send: float = 0.0
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Check that every operation has a name, or none."""
        count = len(self.operations)
        require(len(self.names) in (0, count), "names", len(self.names), f"0 or {count}")

    @property
    def forward(self) -> float:
        """Of one microbatch. [s]"""
        return sum(operation.forward for operation in self.operations)

    @property
    def backward(self) -> float:
        """Of one microbatch. [s]"""
        return sum(operation.backward for operation in self.operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineEnds:
    """When all stages are ``through`` backward, and when the last gradient is ``summed``. [s]"""

    through: float
    summed: float


def pipeline_time(
    stages: Sequence[Stage],
    microbatches: int = 1,
    schedule: Schedule = Schedule.GPIPE,
    *,
    interleave: int = 1,
) -> float:
    """Time of one step without tasks, to the last sum; see `pipeline_ends`. [s]"""
    return pipeline_ends(stages, microbatches, schedule, interleave=interleave).summed


def pipeline_ends(
    stages: Sequence[Stage],
    microbatches: int = 1,
    schedule: Schedule = Schedule.GPIPE,
    *,
    interleave: int = 1,
) -> PipelineEnds:
    """Return when one step is through, without tasks.

    ``interleave`` stages are on every chip, the i-th on chip i modulo the number of chips.

    Notes
    -----
    GPipe, in closed form: stages and the links between them are machines that m equal jobs pass one
    after the other (`crosstack.model.schedule.closed`). Stage s is through with the
    backward pass after the same sum and maximum over the machines from the last to its own. Its
    gradients are ready at times R_j before that, so the last of them is summed at
    ``max_j (R_j + sum_(i >= j) r_i)``. One forward, one backward: in closed form where one holds;
    otherwise what a chip does next begins once the chip and what it waits for are through, in the
    order of `pass_order`.

    Raises
    ------
    InputError
        If the stages cannot be interleaved so.

    References
    ----------
    huang2019gpipe, narayanan2021megatron
    """
    _check_pipeline(len(stages), microbatches, schedule, interleave)
    if schedule is Schedule.ONE_F_ONE_B:
        known = _known_time(stages, microbatches, interleave)
        if known is not None:
            return PipelineEnds(through=known, summed=known)
        ends, _ = _dispatched(stages, microbatches, schedule, interleave, 1)
        chips = len(stages) // interleave
        summed = [_reduced(stages[chip::chips], ends[chip::chips]) for chip in range(chips)]
        return PipelineEnds(through=max(ends), summed=max(summed))
    sends = [stage.send for stage in stages[:-1]]
    turn = pass_time([stage.forward for stage in stages], sends, microbatches)
    passed = slowest = last = end = 0.0
    for stage, send in zip(reversed(stages), [0.0, *reversed(sends)], strict=True):
        backward = stage.backward
        passed += send + backward
        slowest = max(slowest, send, backward)
        through = passed + (microbatches - 1) * slowest
        last, end = max(last, through), max(end, _reduced([stage], [through]))
    return PipelineEnds(through=turn + last, summed=turn + end)


def _known_time(stages: Sequence[Stage], microbatches: int, interleave: int) -> float | None:
    """Time of one forward, one backward in closed form; None where none holds. [s]"""
    if any(operation.reduce for stage in stages for operation in stage.operations):
        return None  # sums begin as every stage is through
    chips = len(stages) // interleave
    forward, backward = [s.forward for s in stages], [s.backward for s in stages]
    sends = [s.send for s in stages[:-1]] if chips > 1 else []
    alike = all(len(set(times)) <= 1 for times in (forward, backward, sends))
    send = max(sends, default=0.0)
    if alike and (interleave == 1 or send <= min(forward[0], backward[0])):
        work = interleave * (forward[0] + backward[0])
        share = interleave * forward[0] / work if work else 1.0
        ways = training_ways(chips, microbatches, interleave, forward=share)
        return float(longest(ways, work, send))
    if interleave == 1 and not any(sends):
        return uneven_time(forward, backward, microbatches)
    return None


def _check_pipeline(stages: int, microbatches: int, schedule: Schedule, interleave: int) -> None:
    require(stages > 0, "stages", stages, "at least one stage")
    require_whole("microbatches", microbatches)
    require_whole("interleave", interleave)
    if interleave == 1:
        return
    taken = schedule is Schedule.ONE_F_ONE_B
    require(taken, "interleave", interleave, f"1 with schedule {schedule}; more with 1f1b")
    require(stages % interleave == 0, "interleave", interleave, f"a divisor of {stages} stages")
    chips = stages // interleave
    whole = microbatches % chips == 0
    require(whole, "microbatches", microbatches, f"a multiple of {chips} chips, to interleave")


def pass_order(
    stages: int, microbatches: int, interleave: int = 1
) -> Iterator[tuple[int, int, bool]]:
    """Yield (stage, microbatch, forward) under one forward, one backward, what is waited for first.

    Chip c of p takes ``p - 1 - c`` microbatches forward, then one forward and one backward in turn,
    then what is left backward. Interleaved, v stages a chip: ``2 (p - 1 - c) + (v - 1) p`` of them
    first, p microbatches through one of its stages, then p through the next
    (``narayanan2021megatron``, sections 2.2.1 and 2.2.2).
    """
    chips, total = stages // interleave, microbatches * interleave
    orders = [_order_of(chip, chips, microbatches, interleave) for chip in range(chips)]
    position = [0] * chips
    passed = [[0] * stages, [0] * stages]  # microbatches through every stage, backward and forward
    while any(position[chip] < 2 * total for chip in range(chips)):
        for chip, order in enumerate(orders):
            while position[chip] < 2 * total:
                s, i, forward = order[position[chip]]
                before = s - 1 if forward else s + 1
                if 0 <= before < stages and passed[forward][before] <= i:
                    break
                yield s, i, forward
                passed[forward][s] += 1
                position[chip] += 1


def _order_of(
    chip: int, chips: int, microbatches: int, interleave: int
) -> list[tuple[int, int, bool]]:
    """Return what a chip does, in order."""
    total = microbatches * interleave
    lead = chips - 1 - chip
    ahead = min(lead if interleave == 1 else 2 * lead + (interleave - 1) * chips, total)

    def piece(k: int, *, forward: bool) -> tuple[int, int, bool]:
        """The k-th that goes forward, or backward."""
        round_, within = divmod(k, chips * interleave)
        turn, i = divmod(within, chips)
        own = turn if forward else interleave - 1 - turn
        return own * chips + chip, round_ * chips + i, forward

    order = [piece(k, forward=True) for k in range(ahead)]
    for k in range(total - ahead):
        order += [piece(ahead + k, forward=True), piece(k, forward=False)]
    return order + [piece(k, forward=False) for k in range(total - ahead, total)]


Item = tuple[int, int, bool]  # a stage, a microbatch, and whether it goes forward


def _dispatched(
    stages: Sequence[Stage],
    microbatches: int,
    schedule: Schedule,
    interleave: int,
    kernels_at_once: int,
) -> tuple[list[float], dict[Item, Item | None]]:
    """Return when every stage is through backward [s], and what every item follows on its chip.

    Items are taken in the order of the schedule, each on the lane of its chip that is free first,
    where it may still wait for what it needs. So one more lane is never slower.
    """
    count = len(stages)
    chips = count // interleave
    takes = [[stage.backward for stage in stages], [stage.forward for stage in stages]]
    sends = [stage.send for stage in stages]
    # Until when every lane is busy, and with what; the second number decides ties.
    lanes: list[list[tuple[float, int, Item | None]]] = [
        [(0.0, lane, None) for lane in range(min(kernels_at_once, 2 * microbatches * interleave))]
        for _ in range(chips)
    ]
    links = [[0.0] * chips, [0.0] * chips]  # the same of the link behind a chip, each direction
    ready: list[list[list[float]]] = [[[] for _ in stages] for _ in range(2)]  # when passed on
    through = [0.0] * count
    turned: list[float] = []  # when the last stage is through forward
    follows: dict[Item, Item | None] = {}
    for number, item in enumerate(_order(schedule, count, microbatches, interleave)):
        s, i, forward = item
        before = s - 1 if forward else s + 1
        chip = s % chips
        begin, _, follows[item] = heappop(lanes[chip])
        if 0 <= before < count:
            begin = max(begin, ready[forward][before][i])
        elif not forward:
            begin = max(begin, turned[-1 if schedule is Schedule.GPIPE else i])
        end = begin + takes[forward][s]
        heappush(lanes[chip], (end, len(lanes[chip]) + 1 + number, item))
        link = s if forward else s - 1
        if 0 <= link < count - 1:
            wire = link % chips
            send = sends[link] if chips > 1 else 0.0
            links[forward][wire] = max(links[forward][wire], end) + send
            ready[forward][s].append(links[forward][wire])
        elif forward:
            turned.append(end)
        if not forward:
            through[s] = end
    return through, follows


def _reduced(stages: Sequence[Stage], through: Sequence[float]) -> float:
    """When the last gradient of a chip is summed; its stages end backward at ``through``. [s]"""
    ready, sums = [], []
    for stage, end in zip(stages, through, strict=True):
        backward = np.array([operation.backward for operation in stage.operations])
        ready.append(end - (np.cumsum(backward) - backward))  # without what still runs then
        sums.append(np.array([operation.reduce for operation in stage.operations]))
    when, reduce = np.concatenate(ready), np.concatenate(sums)
    order = np.argsort(when, kind="stable")  # the queue
    when, reduce = when[order], reduce[order]
    waits = np.cumsum(reduce[::-1])[::-1]  # its own sum and those behind it in the queue
    ends = np.where(reduce > 0, when + waits, when)
    return float(ends.max(initial=max(through)))


def pipeline_graph(
    stages: Sequence[Stage],
    microbatches: int = 1,
    schedule: Schedule = Schedule.GPIPE,
    *,
    interleave: int = 1,
    kernels_at_once: int = 1,
    training: bool = True,
) -> TaskGraph:
    """Return the tasks of the same step: operations on stages, transfers and sums on links.

    With ``kernels_at_once`` k a chip works on k microbatches at a time, forward or backward.
    Without ``training`` nothing comes back. Operations that take no time one way have no task.
    """
    _check_pipeline(len(stages), microbatches, schedule, interleave)
    chips = len(stages) // interleave
    # An operation and its hand-over or transfer, forward and backward.
    check_tasks(4 * microbatches * sum(len(stage.operations) + 1 for stage in stages))
    build = TaskGraphBuilder((f"stage {chip}" for chip in range(chips)), kernels_at_once)
    last = len(stages) - 1
    _, follows = _dispatched(stages, microbatches, schedule, interleave, kernels_at_once)
    done: dict[Item | None, int] = {}  # the last task of an item
    sums: list[tuple[int, int, str, float]] = []

    @cache
    def turn() -> int:
        """Return the task that is through when the last stage has done all forward."""
        forward = [done[last, i, True] for i in range(microbatches)]
        return build.add("turn", after=forward, kind="hand over")

    def run(s: int, i: int, after: int | None, *, forward: bool) -> int:
        """Add the operations of a stage for one microbatch; return the last of them."""
        previous = done.get(follows[s, i, forward])
        waits = {task for task in (after, previous) if task is not None}
        if kernels_at_once > 1 and s == last and not forward:  # what one at a time implies
            waits.add(turn() if schedule is Schedule.GPIPE else done[last, i, True])
        operations = stages[s].operations
        names = stages[s].names or tuple(operation.name for operation in operations)
        named = list(zip(operations, names, strict=True))
        tag = f"microbatch {i}"
        task = None
        for operation, name in named if forward else reversed(named):
            takes = operation.forward if forward else operation.backward
            other = operation.backward if forward else operation.forward
            if not takes and other and not operation.reduce:
                continue
            task = build.add(
                f"{name}, {tag}",
                takes,
                resource=f"stage {s % chips}",
                after=sorted(waits) if task is None else [task],
                kind="forward" if forward else "backward",
            )
            if operation.reduce and not forward and i == microbatches - 1:
                sums.append((s, task, name, operation.reduce))
        if task is None:  # a stage without operations hands on
            task = build.add(f"stage {s}, {tag}", after=sorted(waits), kind="hand over")
        done[s, i, forward] = task
        return task

    def send(s: int, i: int, after: int, *, forward: bool) -> int:
        """Pass a microbatch on; only under GPipe the two directions never meet."""
        if not 0 <= (s if forward else s - 1) < last or chips == 1:
            return after
        link = s if forward else s - 1
        back = "" if forward or schedule is Schedule.GPIPE else " back"
        return build.add(
            f"send {s} to {s + 1 if forward else s - 1}, microbatch {i}",
            stages[link].send,
            resource=f"link {link % chips}{back}",
            after=[after],
            kind="transfer",
        )

    passed: dict[tuple[int, int, bool], int] = {}  # the task that passes a microbatch on
    for s, i, forward in _order(schedule, len(stages), microbatches, interleave):
        if not (forward or training):
            continue
        before = passed.get((s - 1 if forward else s + 1, i, forward))
        passed[s, i, forward] = send(s, i, run(s, i, before, forward=forward), forward=forward)
    for s, task, name, reduce in sums:  # last, so that what follows on the chip comes first
        build.add(
            f"sum gradient of {name}",
            reduce,
            resource=f"ring {s % chips}",
            after=[task],
            kind="reduction",
        )
    return build.build()


def _order(
    schedule: Schedule, stages: int, microbatches: int, interleave: int
) -> Iterator[tuple[int, int, bool]]:
    """Yield (stage, microbatch, forward), what is waited for first."""
    if schedule is Schedule.ONE_F_ONE_B:
        yield from pass_order(stages, microbatches, interleave)
        return
    for forward in (True, False):
        for i in range(microbatches):
            for s in range(stages) if forward else reversed(range(stages)):
                yield s, i, forward
