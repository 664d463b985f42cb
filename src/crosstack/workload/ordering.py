"""The order in which things run that need one another, and why there is none."""

from __future__ import annotations

from collections.abc import Sequence

Edges = Sequence[tuple[int, int]]


def topological_order(n: int, edges: Edges) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return an order of 0 to n - 1 in which edges lead forward, and the level of each. [1]

    Of an edge, the first is needed by the second. What is part of a cycle, or needs it, is left out
    of the order. A level is the longest way from something that needs nothing.
    """
    successors: list[list[int]] = [[] for _ in range(n)]
    waiting = [0] * n
    for source, target in edges:
        successors[source].append(target)
        waiting[target] += 1
    levels = [0] * n
    order = [i for i in range(n) if waiting[i] == 0]
    for i in order:  # grows while it runs: Kahn's algorithm
        for j in successors[i]:
            levels[j] = max(levels[j], levels[i] + 1)
            waiting[j] -= 1
            if waiting[j] == 0:
                order.append(j)
    return tuple(order), tuple(levels)


def cycle_of(n: int, edges: Edges, order: Sequence[int]) -> list[int]:
    """Return one cycle, first and last the same, given an order that something is left out of."""
    left = {*range(n)} - {*order}
    needed = {j: i for i, j in reversed(edges) if i in left and j in left}
    node, seen = min(left), list[int]()
    while node not in seen:
        seen.append(node)
        node = needed[node]
    return [node, *reversed(seen[seen.index(node) :])]
