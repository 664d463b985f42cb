"""Time of a pipelined step: stages that pass microbatches on, forward, then backward.

A stage works on one microbatch at a time and sends it to the next; once the last stage has done
all of them forward it turns round (``huang2019gpipe``). The gradient of a weight is summed over the
replicas as soon as its operation is through with the last microbatch, one after the other on the
ring of the stage, while the operations before it go on.

Twice the same thing: `pipeline_time` in closed form, `pipeline_graph` as tasks for `simulate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosstack.errors import require, require_quantity, require_whole
from crosstack.evaluate.timeline import TaskGraph, TaskGraphBuilder, check_tasks

__all__ = ["Operation", "Stage", "pipeline_graph", "pipeline_time"]


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


def pipeline_time(stages: Sequence[Stage], microbatches: int = 1) -> float:
    """Time of one step in closed form. [s]

    Notes
    -----
    Stages and the links between them are machines that m equal jobs pass one after the other, so
    a pass takes ``sum p_k + (m - 1) max p_k``. Stage s is through with the backward pass after the
    same sum and maximum over the machines from the last to its own. Its gradients are ready at
    times R_j before that, so the last of them is summed at ``max_j (R_j + sum_(i >= j) r_i)``.

    References
    ----------
    huang2019gpipe
    """
    require(len(stages) > 0, "stages", len(stages), "at least one stage")
    require_whole("microbatches", microbatches)
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


def _reduced(stage: Stage, through: float) -> float:
    """When the last gradient of a stage is summed; ``through`` ends its backward pass. [s]"""
    backward = np.array([operation.backward for operation in stage.operations])
    reduce = np.array([operation.reduce for operation in stage.operations])
    left = np.cumsum(backward) - backward  # what still runs when an operation is through
    waits = np.cumsum(reduce)  # its own sum and those behind it in the queue
    ends = np.where(reduce > 0, through - left + waits, through)
    return float(ends.max(initial=through))


def pipeline_graph(
    stages: Sequence[Stage], microbatches: int = 1, *, hand_overs: bool = False
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

    for i in range(microbatches):
        task = None
        for s in range(len(stages)):
            task = run(s, i, task, forward=True)
            if s < last:
                task = _send(build, stages[s].send, s, f"{s} to {s + 1}", i, task)
    for i in range(microbatches):
        task = None
        for s in range(last, -1, -1):
            task = run(s, i, task, forward=False)
            if s:
                task = _send(build, stages[s - 1].send, s - 1, f"{s} to {s - 1}", i, task)
    for s, task, name, reduce in sums:  # last, so that what follows on the chip comes first
        build.add(
            f"sum gradient of {name}",
            reduce,
            resource=f"ring {s}",
            after=[task],
            kind="reduction",
        )
    return build.build()


def _send(build: TaskGraphBuilder, time: float, link: int, way: str, i: int, task: int) -> int:
    return build.add(
        f"send {way}, microbatch {i}", time, resource=f"link {link}", after=[task], kind="transfer"
    )
