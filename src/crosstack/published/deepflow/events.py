"""The event queue of the releases, with a link that is set free too early (``deepflow_code``)."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from heapq import heappop, heappush

import numpy as np

from crosstack.model.schedule.events import FREE, TaskGraph, Timeline


def simulate(graph: TaskGraph, link: str) -> Timeline:
    """Run a task graph, a resource for one task at a time.

    A transfer inside a chip takes no resource, but names the last ``link``: when it ends it sets
    that free, whatever still uses it, so that gradient reductions overlap there. The graph that
    comes back says so, with as many lanes for the link as there are tasks.
    """
    count, resources = len(graph), graph.resources
    leaked = graph.resource_names.index(link) if link in graph.resource_names else FREE
    waits = [0] * count
    for following in graph.children:
        for child in following:
            waits[child] += 1
    start, finish = np.zeros(count), np.zeros(count)
    busy = [False] * len(graph.resource_names)
    queues: list[deque[int]] = [deque() for _ in graph.resource_names]
    events: list[tuple[float, int, int]] = []
    started = 0

    def begin(task: int, now: float) -> None:
        nonlocal started
        if resources[task] != FREE:
            busy[resources[task]] = True
        start[task] = now
        heappush(events, (now + graph.durations[task], started, task))
        started += 1

    def arrive(task: int, now: float) -> None:
        """Start a task that has become ready, or let it wait."""
        if resources[task] != FREE and busy[resources[task]]:
            queues[resources[task]].append(task)
        else:
            begin(task, now)

    for task in range(count):
        if not waits[task]:
            arrive(task, 0.0)
    while events:
        now, _, task = heappop(events)
        finish[task] = now
        freed = resources[task] if resources[task] != FREE else leaked
        if freed != FREE:
            busy[freed] = False
            if queues[freed]:
                begin(queues[freed].popleft(), now)
        for child in graph.children[task]:
            waits[child] -= 1
            if not waits[child]:
                arrive(child, now)
    lanes = tuple(count if i == leaked else 1 for i in range(len(busy)))
    ran = replace(graph, lanes=lanes)
    return Timeline(graph=ran, start=start, finish=finish, lane=np.zeros(count, np.intp))
