"""Time of a pipelined step: stages that pass microbatches on, forward, then backward.

A stage works on one microbatch at a time and sends it to the next. Once the last stage has done all
of them forward it turns round (``huang2019gpipe``), or every stage turns round on its own as soon
as a microbatch comes back (``narayanan2021megatron``). The gradient of a weight is summed over the
replicas as soon as its operation is through with the last microbatch, one after the other on the
ring of the stage, while the operations before it go on.

Twice the same thing: `pipeline_time` stage by stage, `pipeline_graph` as tasks for `simulate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crosstack.errors import require, require_quantity, require_whole
from crosstack.evaluate.timeline import TaskGraph, TaskGraphBuilder, check_tasks
from crosstack.workload.transformer_training import Schedule

__all__ = ["Operation", "Stage", "pipeline_graph", "pipeline_time", "turns"]


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


def pipeline_time(
    stages: Sequence[Stage], microbatches: int = 1, schedule: Schedule = Schedule.GPIPE
) -> float:
    """Time of one step without tasks. [s]

    Notes
    -----
    GPipe, in closed form: stages and the links between them are machines that m equal jobs pass one
    after the other, so a pass takes ``sum p_k + (m - 1) max p_k``. Stage s is through with the
    backward pass after the same sum and maximum over the machines from the last to its own. Its
    gradients are ready at times R_j before that, so the last of them is summed at
    ``max_j (R_j + sum_(i >= j) r_i)``. One forward, one backward: what a stage does next begins
    once the stage and what it waits for are through, in the order of `turns`.

    References
    ----------
    huang2019gpipe, narayanan2021megatron
    """
    require(len(stages) > 0, "stages", len(stages), "at least one stage")
    require_whole("microbatches", microbatches)
    if schedule is Schedule.ONE_F_ONE_B:
        ends = _last_backward(stages, microbatches)
        return max(_reduced(stage, end) for stage, end in zip(stages, ends, strict=True))
    sends = [stage.send for stage in stages[:-1]]
    machines = [stage.forward for stage in stages] + sends
    turn = sum(machines) + (microbatches - 1) * max(machines)
    passed = slowest = end = 0.0
    for stage, send in zip(reversed(stages), [0.0, *reversed(sends)], strict=True):
        backward = stage.backward
        passed += send + backward
        slowest = max(slowest, send, backward)
        end = max(end, _reduced(stage, passed + (microbatches - 1) * slowest))
    return turn + end


def turns(stages: int, microbatches: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (stage, microbatch, forward) under one forward, one backward, what is waited for first.

    Stage s of p takes ``p - 1 - s`` microbatches forward, then one forward and one backward in
    turn, then what is left backward (``narayanan2021megatron``).
    """
    orders = []
    for s in range(stages):
        ahead = min(stages - 1 - s, microbatches)
        order = [(i, True) for i in range(ahead)]
        for i in range(microbatches - ahead):
            order += [(ahead + i, True), (i, False)]
        orders.append(order + [(i, False) for i in range(microbatches - ahead, microbatches)])
    position = [0] * stages
    passed = [[0] * stages, [0] * stages]  # microbatches through every stage, backward and forward
    while any(position[s] < 2 * microbatches for s in range(stages)):
        for s, order in enumerate(orders):
            while position[s] < len(order):
                i, forward = order[position[s]]
                before = s - 1 if forward else s + 1
                if 0 <= before < stages and passed[forward][before] <= i:
                    break
                yield s, i, forward
                passed[forward][s] += 1
                position[s] += 1


def _last_backward(stages: Sequence[Stage], microbatches: int) -> list[float]:
    """Return when every stage is through with the last microbatch backward. [s]"""
    count = len(stages)
    takes = [[stage.backward for stage in stages], [stage.forward for stage in stages]]
    sends = [stage.send for stage in stages]
    busy = [0.0] * count  # until when
    links = [[0.0] * count, [0.0] * count]  # the same of the link behind a stage, each direction
    ready: list[list[list[float]]] = [[[] for _ in stages] for _ in range(2)]  # when passed on
    for s, i, forward in turns(count, microbatches):
        before = s - 1 if forward else s + 1
        begin = busy[s]
        if 0 <= before < count:
            begin = max(begin, ready[forward][before][i])
        busy[s] = begin + takes[forward][s]
        link = s if forward else s - 1
        if 0 <= link < count - 1:
            links[forward][link] = max(links[forward][link], busy[s]) + sends[link]
            ready[forward][s].append(links[forward][link])
    return busy


def _reduced(stage: Stage, through: float) -> float:
    """When the last gradient of a stage is summed; ``through`` ends its backward pass. [s]"""
    backward = np.array([operation.backward for operation in stage.operations])
    reduce = np.array([operation.reduce for operation in stage.operations])
    left = np.cumsum(backward) - backward  # what still runs when an operation is through
    waits = np.cumsum(reduce)  # its own sum and those behind it in the queue
    ends = np.where(reduce > 0, through - left + waits, through)
    return float(ends.max(initial=through))


def pipeline_graph(
    stages: Sequence[Stage],
    microbatches: int = 1,
    schedule: Schedule = Schedule.GPIPE,
    *,
    hand_overs: bool = False,
) -> TaskGraph:
    """Return the tasks of the same step: operations on stages, transfers and sums on links.

    ``hand_overs`` puts a free task between operations of one chip, as the public tool does.
    """
    require(len(stages) > 0, "stages", len(stages), "at least one stage")
    require_whole("microbatches", microbatches)
    # An operation and its hand-over or transfer, forward and backward.
    check_tasks(4 * microbatches * sum(len(stage.operations) + 1 for stage in stages))
    build = TaskGraphBuilder(f"stage {s}" for s in range(len(stages)))
    last = len(stages) - 1
    latest: list[int | None] = [None] * len(stages)  # the task each stage has done last
    sums: list[tuple[int, int, str, float]] = []

    def run(s: int, i: int, after: int | None, *, forward: bool) -> int:
        """Add the operations of a stage for one microbatch; return the last of them."""
        waits = {task for task in (after, latest[s]) if task is not None}
        operations = stages[s].operations
        names = stages[s].names or tuple(operation.name for operation in operations)
        named = list(zip(operations, names, strict=True))
        tag = f"microbatch {i}"
        task = None
        for operation, name in named if forward else reversed(named):
            if task is not None and hand_overs:
                task = build.add("hand over", after=[task], kind="hand over")
            task = build.add(
                f"{name}, {tag}",
                operation.forward if forward else operation.backward,
                resource=f"stage {s}",
                after=sorted(waits) if task is None else [task],
                kind="forward" if forward else "backward",
            )
            if operation.reduce and not forward and i == microbatches - 1:
                sums.append((s, task, name, operation.reduce))
        if task is None:  # a stage without operations hands on
            task = build.add(f"stage {s}, {tag}", after=sorted(waits), kind="hand over")
        latest[s] = task
        return task

    def send(s: int, i: int, after: int, *, forward: bool) -> int:
        """Pass a microbatch on; only under GPipe the two directions never meet."""
        if not 0 <= (s if forward else s - 1) < last:
            return after
        link = s if forward else s - 1
        back = "" if forward or schedule is Schedule.GPIPE else " back"
        return build.add(
            f"send {s} to {s + 1 if forward else s - 1}, microbatch {i}",
            stages[link].send,
            resource=f"link {link}{back}",
            after=[after],
            kind="transfer",
        )

    passed: dict[tuple[int, int, bool], int] = {}  # the task that passes a microbatch on
    for s, i, forward in _order(schedule, len(stages), microbatches):
        before = passed.get((s - 1 if forward else s + 1, i, forward))
        passed[s, i, forward] = send(s, i, run(s, i, before, forward=forward), forward=forward)
    for s, task, name, reduce in sums:  # last, so that what follows on the chip comes first
        build.add(
            f"sum gradient of {name}",
            reduce,
            resource=f"ring {s}",
            after=[task],
            kind="reduction",
        )
    return build.build()


def _order(schedule: Schedule, stages: int, microbatches: int) -> Iterator[tuple[int, int, bool]]:
    """Yield (stage, microbatch, forward), what is waited for first."""
    if schedule is Schedule.ONE_F_ONE_B:
        yield from turns(stages, microbatches)
        return
    for forward in (True, False):
        for i in range(microbatches):
            for s in range(stages) if forward else reversed(range(stages)):
                yield s, i, forward
