"""Time of a pipelined step: stages that pass microbatches on, forward, then backward.

A stage works on one microbatch at a time and sends it to the next. Once the last stage has done all
of them forward it turns round (``huang2019gpipe``), or every stage turns round on its own as soon
as a microbatch comes back (``narayanan2021megatron``). *Interleaved*, a chip takes several stages,
spread over the model: the pipeline is filled and emptied in shorter pieces.

Twice the same thing: `pipeline_time` stage by stage, `pipeline_graph` as tasks for `simulate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from crosstack.errors import require, require_quantity, require_whole
from crosstack.model.optimizer_step import OptimizerStep
from crosstack.model.schedule.closed import longest, pass_time, training_ways, uneven_time
from crosstack.model.schedule.events import TaskGraph, TaskGraphBuilder, check_tasks
from crosstack.workload.transformer_training import Schedule


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """A kernel with what it exchanges: ``forward`` and ``backward`` time of one microbatch. [s]"""

    name: str
    forward: float
    backward: float

    def __post_init__(self) -> None:
        """Check every time."""
        for field in ("forward", "backward"):
            require_quantity(field, getattr(self, field), "s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Operations in order, and ``send``, the time to pass a microbatch to the next stage. [s]"""

    operations: tuple[Operation, ...]
    send: float = 0.0

    def time(self, *, forward: bool) -> float:
        """Of one microbatch, one way. [s]"""
        return sum(one.forward if forward else one.backward for one in self.operations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """What stages end an iteration with: ``step``, of ``layers`` a stage. [1]

    ``forward`` and ``backward`` are what the layers of a piece of a stage take, ``head`` what the
    last stage works behind those, forward and backward, for one microbatch. [s] Weights that are
    sent round are those of the iteration before.
    """

    step: OptimizerStep
    layers: int
    forward: float
    backward: float
    head: tuple[float, float] = (0.0, 0.0)


def pipeline_time(
    stages: Sequence[Stage],
    microbatches: int = 1,
    schedule: Schedule = Schedule.GPIPE,
    *,
    interleave: int = 1,
) -> float:
    """Time of one step without tasks. [s]

    ``interleave`` stages are on every chip, the i-th on chip i modulo the number of chips. GPipe is
    in closed form: stages and the links between them are machines that m equal jobs pass one after
    the other (`crosstack.model.schedule.closed`), there and back. One forward, one backward: in
    closed form where one holds; otherwise what a chip does next begins once the chip and what it
    waits for are through, in the order of `pass_order`.

    Raises `InputError` if the stages cannot be interleaved so. Source: huang2019gpipe,
    narayanan2021megatron.
    """
    _check_pipeline(len(stages), microbatches, schedule, interleave)
    if schedule is Schedule.ONE_F_ONE_B:
        known = _known_time(stages, microbatches, interleave)
        return _dispatched(stages, microbatches, interleave) if known is None else known
    sends = [stage.send for stage in stages[:-1]]
    turn = pass_time([stage.time(forward=True) for stage in stages], sends, microbatches)
    passed = slowest = last = 0.0
    for stage, send in zip(reversed(stages), [0.0, *reversed(sends)], strict=True):
        backward = stage.time(forward=False)
        passed += send + backward
        slowest = max(slowest, send, backward)
        last = max(last, passed + (microbatches - 1) * slowest)
    return turn + last


def _known_time(stages: Sequence[Stage], microbatches: int, interleave: int) -> float | None:
    """Time of one forward, one backward in closed form; None where none holds. [s]"""
    chips = len(stages) // interleave
    forward, backward = ([s.time(forward=there) for s in stages] for there in (True, False))
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


Item = tuple[int, int, bool]  # a stage, a microbatch, and whether it goes forward


def pass_order(stages: int, microbatches: int, interleave: int = 1) -> Iterator[Item]:
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


def _order_of(chip: int, chips: int, microbatches: int, interleave: int) -> list[Item]:
    """Return what a chip does, in order."""
    total = microbatches * interleave
    lead = chips - 1 - chip
    ahead = min(lead if interleave == 1 else 2 * lead + (interleave - 1) * chips, total)

    def piece(k: int, *, forward: bool) -> Item:
        """The k-th that goes forward, or backward."""
        round_, within = divmod(k, chips * interleave)
        turn, i = divmod(within, chips)
        own = turn if forward else interleave - 1 - turn
        return own * chips + chip, round_ * chips + i, forward

    order = [piece(k, forward=True) for k in range(ahead)]
    for k in range(total - ahead):
        order += [piece(ahead + k, forward=True), piece(k, forward=False)]
    return order + [piece(k, forward=False) for k in range(total - ahead, total)]


def _dispatched(stages: Sequence[Stage], microbatches: int, interleave: int) -> float:
    """When the last stage is through backward, one forward, one backward. [s]

    Chips take items in the order of the schedule, each when the chip and what it needs are through.
    """
    count = len(stages)
    chips = count // interleave
    takes = [[stage.time(forward=there) for stage in stages] for there in (False, True)]
    sends = [stage.send for stage in stages]
    busy = [0.0] * chips  # until when
    links = [[0.0] * chips, [0.0] * chips]  # the same of the link behind a chip, each direction
    ready: list[list[list[float]]] = [[[] for _ in stages] for _ in range(2)]  # when passed on
    turned: list[float] = []  # when the last stage is through forward
    last = 0.0
    for s, i, forward in pass_order(count, microbatches, interleave):
        before = s - 1 if forward else s + 1
        chip = s % chips
        begin = busy[chip]
        if 0 <= before < count:
            begin = max(begin, ready[forward][before][i])
        elif not forward:
            begin = max(begin, turned[i])
        end = busy[chip] = begin + takes[forward][s]
        link = s if forward else s - 1
        if 0 <= link < count - 1:
            wire = link % chips
            send = sends[link] if chips > 1 else 0.0
            links[forward][wire] = max(links[forward][wire], end) + send
            ready[forward][s].append(links[forward][wire])
        elif forward:
            turned.append(end)
        last = max(last, end)
    return last


def pipeline_graph(
    stages: Sequence[Stage],
    microbatches: int = 1,
    schedule: Schedule = Schedule.GPIPE,
    *,
    interleave: int = 1,
    training: bool = True,
    ending: Ending | None = None,
) -> TaskGraph:
    """Return the tasks of the same step: operations on stages, transfers on links.

    Without ``training`` nothing comes back. Operations that take no time one way have no task.
    ``ending`` is what follows once, if anything does.
    """
    _check_pipeline(len(stages), microbatches, schedule, interleave)
    chips = len(stages) // interleave
    # An operation and its hand-over or transfer, forward and backward.
    check_tasks(4 * microbatches * sum(len(stage.operations) + 1 for stage in stages))
    build, last = TaskGraphBuilder(f"stage {chip}" for chip in range(chips)), len(stages) - 1
    before: list[int | None] = [None] * chips  # the last task of each chip

    def run(s: int, i: int, after: int | None, *, forward: bool) -> int:
        """Add the operations of a stage for one microbatch; return the last of them."""
        waits = {task for task in (after, before[s % chips]) if task is not None}
        tag, task = f"microbatch {i}", None
        for operation in stages[s].operations if forward else reversed(stages[s].operations):
            takes = operation.forward if forward else operation.backward
            if not takes and (operation.backward if forward else operation.forward):
                continue
            task = build.add(
                f"{operation.name}, {tag}",
                takes,
                resource=f"stage {s % chips}",
                after=sorted(waits) if task is None else [task],
                kind="forward" if forward else "backward",
            )
        if task is None:  # a stage without operations hands on
            task = build.add(f"stage {s}, {tag}", after=sorted(waits), kind="hand over")
        before[s % chips] = task
        return task

    def gathered_first(s: int, came: int | None) -> int:
        """Run the first microbatch, whose layers wait for weights that are sent round."""
        begun, pending = rounds[s]
        waits = [task for task in (came, before[s % chips], begun) if task is not None]
        start = build.add(f"weights of stage {s}", after=waits, kind="hand over")
        ends = [run(s, 0, start, forward=True)]
        for task, takes in pending:
            ends.append(build.add(f"rest of stage {s}", takes, after=[task], kind="hand over"))
        task = build.add(f"stage {s} is through", after=ends, kind="hand over")
        before[s % chips] = task
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

    rounds = {} if ending is None else _add_gathers(build, ending, len(stages), chips)
    passed: dict[Item, int] = {}  # the task that passes a microbatch on
    final: dict[int, tuple[list[int], int]] = {}  # what the last pass waits for, and its end
    for s, i, forward in _order(schedule, len(stages), microbatches, interleave):
        if not (forward or training):
            continue
        came = passed.get((s - 1 if forward else s + 1, i, forward))
        waits = [task for task in (came, before[s % chips]) if task is not None]
        if forward and s in rounds and not i:
            done = gathered_first(s, came)
        else:
            done = run(s, i, came, forward=forward)
        final[s] = waits, done
        passed[s, i, forward] = send(s, i, done, forward=forward)
    if ending is not None:
        _add_ending(build, ending, final, chips)
    return build.build()


def _add_gathers(
    build: TaskGraphBuilder, ending: Ending, count: int, chips: int
) -> dict[int, tuple[int, list[tuple[int, float]]]]:
    """Add sending round the weights that the iteration before updated, of ``count`` pieces.

    Return of each piece what its first microbatch begins behind, and which tasks it ends at least
    so many seconds behind. [s]
    """
    step = ending.step
    if not step.gather:
        return {}
    each = ending.layers * chips / count  # layers of a piece
    bucket = step.gather / ending.layers
    found: dict[int, tuple[int, list[tuple[int, float]]]] = {}
    for chip in range(chips):
        own = partial(build.add, resource=f"weights {chip}", kind="transfer")
        besides = step.before * (chip == 0), step.behind * (chip == chips - 1)
        if not step.overlapped:
            whole = own("weights sent round", step.gather + sum(besides))
            found.update({s: (whole, []) for s in range(chip, count, chips)})
            continue
        after: list[int] = []  # pieces in their order, which a link does not know
        for s in range(chip, count, chips):
            one = bucket + besides[0] * (s == 0)
            begun = own(f"weights of the first layer, stage {s}", one, after=after)
            rest = own(f"weights of stage {s}", (each - 1) * bucket, after=[begun])
            head = ending.head[0] * (s == count - 1)
            pending = [(rest, ending.forward / each + head)]
            if s == count - 1:
                last = own("weights of the head", besides[1], after=[rest])
                pending.append((last, head))
            found[s], after = (begun, pending), [rest]
    return found


def _add_ending(
    build: TaskGraphBuilder, ending: Ending, final: dict[int, tuple[list[int], int]], chips: int
) -> None:
    """Add the sums of gradients, by layers where they are overlapped, and the updates.

    ``final`` is what the last backward pass of every stage waits for, and its last task.
    """
    step, count = ending.step, len(final)
    last = step.last - (step.first if chips == 1 else 0.0)
    each = ending.layers * chips / count  # layers of a piece
    bucket, summed = step.sums / ending.layers, []
    for chip in range(chips):
        own = {"resource": f"sums {chip}", "kind": "transfer"}
        besides = step.first * (chip == 0), last * (chip == chips - 1)
        if not step.overlapped:
            whole = step.sums + sum(besides)
            summed.append(build.add("sum of gradients", whole, after=[final[chip][1]], **own))
            continue
        for s in reversed(range(chip, count, chips)):
            waits, done = final[s]
            one = ending.backward / each + ending.head[1] * (s == count - 1)
            begun = build.add(f"first layer back, stage {s}", one, after=waits, kind="hand over")
            most = (each - 1) * bucket + besides[1] * (s == count - 1)
            task = build.add(f"sums of stage {s}", most, after=[begun], **own)
            rest = bucket + besides[0] * (s == 0)
            task = build.add(f"last sum of stage {s}", rest, after=[task, done], **own)
        summed.append(task)
    known = build.add("norm of all gradients", after=summed, kind="hand over")
    for chip in range(chips):
        resource = f"memory {chip}"
        build.add("update of weights", step.update, resource=resource, after=[known], kind="update")


def _order(schedule: Schedule, stages: int, microbatches: int, interleave: int) -> Iterator[Item]:
    """Yield (stage, microbatch, forward), what is waited for first."""
    if schedule is Schedule.ONE_F_ONE_B:
        yield from pass_order(stages, microbatches, interleave)
        return
    for forward in (True, False):
        for i in range(microbatches):
            for s in range(stages) if forward else reversed(range(stages)):
                yield s, i, forward
