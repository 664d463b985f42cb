"""Event-driven time: tasks with durations on resources that do one thing at a time, or a few.

A *task* is a kernel, which takes a chip, or a transfer, which takes a link; one that takes neither
is free. A resource runs as many tasks at once as it has *lanes*; a task takes as long beside others
as alone. It starts as soon as all it waits for has finished and its resource is free; those that
wait for one resource are served in the order in which they became ready, ties in the order in
which they were listed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require, require_quantity, require_whole
from crosstack.workload.kernel_graph import Floats


class Resource(StrEnum):
    """What tasks of a chip take, each one task at a time: they run beside one another.

    ``UNITS`` compute, ``MEMORY`` is what reads and writes main memory, ``LINKS`` the network; where
    a chip has several links each is a resource of its own name. ``COPY_ENGINE`` moves data between
    memories beside kernels, ``HOST`` starts kernels, in their order.
    """

    UNITS = "units"
    MEMORY = "memory"
    LINKS = "links"
    COPY_ENGINE = "copy engine"
    HOST = "host"


FREE = -1
PAIR = "pair"  # the kind of a pass forward and one backward that run together
MOST_TASKS = 4_000_000  # a few seconds, a few gigabytes


def check_tasks(count: int) -> None:
    """Raise `InputError` where a step has more tasks than can be run one by one."""
    if count > MOST_TASKS:
        message = (
            f"about {count:,} tasks would have to be run one by one; allowed: {MOST_TASKS:,}. Take "
            "fewer microbatches, layers or tokens."
        )
        raise InputError(Problem("tasks", message))


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskGraph:
    """Tasks and what follows them.

    ``names`` and ``kinds`` of every task are for people, and for the colours of a picture;
    ``durations`` in [s]; ``resources`` the number of the one that a task takes, or `FREE`;
    ``children`` tasks that wait for a task, in the order in which they are looked at; ``lanes``:
    tasks that each resource runs at a time; empty: one each. [1]
    """

    names: tuple[str, ...]
    kinds: tuple[str, ...]
    durations: tuple[float, ...]
    resources: tuple[int, ...]
    children: tuple[tuple[int, ...], ...]
    resource_names: tuple[str, ...]
    lanes: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """Check that everything that is named exists."""
        columns = self.names, self.kinds, self.durations, self.resources, self.children
        lengths = {len(column) for column in columns}
        require(len(lengths) == 1, "durations", len(self.durations), f"{len(self.names)}, one each")
        for i, (duration, resource) in enumerate(zip(self.durations, self.resources, strict=True)):
            require_quantity(f"durations[{i}]", duration, "s")
            known = FREE <= resource < len(self.resource_names)
            require(known, f"resources[{i}]", resource, "the number of a resource, or FREE")
        names = len(self.resource_names)
        require(len(self.lanes) in (0, names), "lanes", len(self.lanes), f"0 or {names}")
        for i, count in enumerate(self.lanes):
            require_whole(f"lanes[{i}]", count)

    def __len__(self) -> int:
        """Return the number of tasks."""
        return len(self.names)


class TaskGraphBuilder:
    """Collects tasks by name; a resource is made where it is first named.

    ``resources`` run ``lanes`` tasks at a time, others one.
    """

    def __init__(self, resources: Iterable[str] = (), lanes: int = 1) -> None:
        self._resources = {name: i for i, name in enumerate(resources)}
        self._lanes = [lanes] * len(self._resources)
        self._tasks: list[tuple[str, str, float, int]] = []
        self._children: list[list[int]] = []

    def resources(self, names: Iterable[str]) -> None:
        """Make resources that run one task at a time, before any task takes them."""
        for name in names:
            self._resources.setdefault(name, len(self._resources))

    def add(
        self,
        name: str,
        duration: float = 0.0,
        *,
        resource: str | None = None,
        after: Sequence[int] = (),
        kind: str = "",
    ) -> int:
        """Add a task that waits for those of ``after``; return its number."""
        number = FREE
        if resource is not None:
            number = self._resources.setdefault(resource, len(self._resources))
        self._tasks.append((name, kind, float(duration), number))
        self._children.append([])
        for task in after:
            self.join(task, len(self._tasks) - 1)
        return len(self._tasks) - 1

    def join(self, task: int, child: int) -> None:
        """Let ``child`` wait for ``task``, after the children ``task`` has already."""
        self._children[task].append(child)

    def build(self) -> TaskGraph:
        """Return the graph."""
        columns = [tuple(task[i] for task in self._tasks) for i in range(4)]
        tasks: dict[str, Any] = dict(
            zip(("names", "kinds", "durations", "resources"), columns, strict=True)
        )
        return TaskGraph(
            **tasks,
            children=tuple(tuple(c) for c in self._children),
            resource_names=tuple(self._resources),
            lanes=(*self._lanes, *[1] * (len(self._resources) - len(self._lanes))),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeline:
    """When every task of ``graph`` starts and finishes [s], and the lane it takes."""

    graph: TaskGraph
    start: Floats
    finish: Floats
    lane: NDArray[np.intp]

    @property
    def makespan(self) -> float:
        """When the last task finishes. [s]"""
        return float(self.finish.max()) if len(self.finish) else 0.0

    def end_without(self, kind: str) -> float:
        """When the last task of another kind finishes. [s]"""
        return float(self.finish[[own != kind for own in self.graph.kinds]].max(initial=0.0))

    def busy(self) -> dict[str, float]:
        """Return how long every resource works; what runs at once counts once. [s]"""
        taken = np.array(self.graph.resources, int)
        order = np.lexsort((self.start, taken))
        ends = np.searchsorted(taken[order], np.arange(len(self.graph.resource_names) + 1))
        found = {}
        for i, name in enumerate(self.graph.resource_names):
            own = order[ends[i] : ends[i + 1]]
            start, finish = self.start[own], self.finish[own]
            before = np.concatenate(([0.0], np.maximum.accumulate(finish)[:-1]))[: len(own)]
            found[name] = float(np.maximum(finish - np.maximum(start, before), 0.0).sum())
        return found


def simulate(graph: TaskGraph) -> Timeline:
    """Run a task graph; tasks that wait for nothing start first, in their order.

    Raises `InputError` if tasks wait for each other in a circle. Source: ardalani2022deepflow,
    section 5.3.
    """
    count, resources, children = len(graph), graph.resources, graph.children
    waits = [0] * count
    for following in children:
        for child in following:
            waits[child] += 1
    start, finish, lane = np.zeros(count), np.zeros(count), np.zeros(count, np.intp)
    lanes = graph.lanes or (1,) * len(graph.resource_names)
    free = [list(range(min(number, count))) for number in lanes]  # heaps
    queues: list[deque[int]] = [deque() for _ in graph.resource_names]
    events: list[tuple[float, int, int]] = []
    started = done = 0

    def begin(task: int, now: float) -> None:
        nonlocal started
        start[task] = now
        heappush(events, (now + graph.durations[task], started, task))
        started += 1

    def arrive(task: int, now: float) -> None:
        """Start a task that has become ready, or let it wait."""
        resource = resources[task]
        if resource != FREE:
            if not free[resource]:
                queues[resource].append(task)
                return
            lane[task] = heappop(free[resource])
        begin(task, now)

    for task in range(count):
        if not waits[task]:
            arrive(task, 0.0)
    while events:
        now, _, task = heappop(events)
        finish[task] = now
        done += 1
        freed = resources[task]
        if freed != FREE:
            heappush(free[freed], int(lane[task]))
            if queues[freed]:
                waiting = queues[freed].popleft()
                lane[waiting] = heappop(free[freed])
                begin(waiting, now)
        for child in children[task]:
            waits[child] -= 1
            if not waits[child]:
                arrive(child, now)
    if done < count:
        stuck = next(graph.names[i] for i in range(count) if waits[i] > 0)
        raise InputError(Problem("tasks", f"{stuck} is never ready: tasks wait in a circle."))
    return Timeline(graph=graph, start=start, finish=finish, lane=lane)
