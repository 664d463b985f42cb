"""Partitions of a chip that runs kernels one by one, without order ideals.

Few sets of kernels have a program there, so that all are listed, and one takes the same in every
sequence. A sequence covers each kernel once: the least that a cover of all kernels by such sets
takes is a bound on every sequence, and what the best one takes where the sets of that cover can
follow one another. Kernels that no set joins are covered apart, so a cover is found in no time for
graphs with more order ideals than can be listed.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from crosstack.mapping.ideals import Order
from crosstack.model.alive import live_sizes
from crosstack.model.legality import Legality, possible_partitions
from crosstack.model.partition import ChipLoad, partition_cost
from crosstack.workload.kernel_graph import bits

MOST_SETS = 4096  # kernels that may run as one
MOST_COVERED = 20_000  # parts of one group of kernels that are covered on the way
MOST_TRIED = 200  # covers without some sets

_Part = tuple[float, tuple[int, ...]]  # what a cover takes [s], and its sets


class Cover(NamedTuple):
    """``bound`` on any sequence [s], and one that takes as much; empty where there may be none."""

    bound: float
    partitions: tuple[int, ...]


def least_cover(load: ChipLoad, order: Order) -> Cover | None:
    """Return the least that a cover takes, and its sequence; None where that is not known.

    Where sets of the least cover wait for one another in a circle, one of them is in no sequence
    with the others: covers without each are looked at, the least first. Not known are chips that
    run kernels side by side, too many sets, and groups of too many kernels.
    """
    if load.temporal is None or (groups := groups_of_sets(load.temporal.legality, order)) is None:
        return None
    costs = [{s: c for s in group if (c := _cost(load, s)) < math.inf} for group in groups]
    known: dict[tuple[int, frozenset[int]], _Part | None] = {}

    def covered(without: frozenset[int]) -> _Part | None:
        total, chosen = 0.0, list[int]()
        for number, of in enumerate(costs):
            apart = frozenset(s for s in without if s in of)
            if (number, apart) not in known:
                left = {s: c for s, c in of.items() if s not in apart}
                known[number, apart] = _least(left, union(list(of), range(len(of))))
            if (part := known[number, apart]) is None:
                return None
            total, chosen = total + part[0], chosen + list(part[1])
        return total, tuple(chosen)

    first = covered(frozenset())
    if first is None or math.isinf(first[0]):
        return None
    heap, seen = [(first[0], 0, frozenset[int](), first[1])], {frozenset[int]()}
    room, tries = load.memory_limit * (1 + 1e-12), itertools.count(1)
    while heap:
        total, number, without, chosen = heapq.heappop(heap)
        sequence, circle = in_sequence(chosen, order)
        if not circle:
            held = max(live_sizes(load, sequence)) <= room
            return Cover(total, sequence if held else ())
        if number > MOST_TRIED:
            return Cover(total, ())
        for s in circle:
            other = without | {s}
            if other in seen:
                continue
            seen.add(other)
            if (found := covered(other)) is None:
                return Cover(total, ())
            if math.isfinite(found[0]):
                heapq.heappush(heap, (found[0], next(tries), other, found[1]))
    return Cover(first[0], ())


def in_sequence(partitions: Iterable[int], order: Order) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return partitions in an order that precedence allows, or some that wait in a circle.

    The one whose kernels come first in the graph goes first.
    """
    sets = sorted(partitions, key=lambda s: s & -s)
    place = {i: number for number, s in enumerate(sets) for i in bits(s)}
    needs = [{place[j] for i in bits(s) for j in bits(order.preds[i] & ~s)} for s in sets]
    readers: list[list[int]] = [[] for _ in sets]
    for number, before in enumerate(needs):
        for other in before:
            readers[other].append(number)
    left = [len(before) for before in needs]
    ready = [number for number, count in enumerate(left) if not count]
    found = list[int]()
    while ready:
        number = heapq.heappop(ready)
        found.append(sets[number])
        for reader in readers[number]:
            left[reader] -= 1
            if not left[reader]:
                heapq.heappush(ready, reader)
    if len(found) == len(sets):
        return tuple(found), ()
    waiting = {number for number, count in enumerate(left) if count}
    return (), tuple(sets[number] for number in _circle(needs, waiting))


def _circle(needs: Sequence[set[int]], waiting: set[int]) -> list[int]:
    """Return a shortest circle among partitions that wait for one another."""
    shortest = list[int]()
    for start in sorted(waiting):
        before = {start: start}
        border = [start]
        while border and start not in needs[border[0]]:
            number = border.pop(0)
            for other in needs[number] & waiting - before.keys():
                before[other] = number
                border.append(other)
        if border:
            path = [border[0]]
            while path[-1] != start:
                path.append(before[path[-1]])
            shortest = path if not shortest or len(path) < len(shortest) else shortest
    return shortest


def _cost(load: ChipLoad, inside: int) -> float:
    """Return what a partition takes in any sequence; infinite where it is none. [s]"""
    if any(inside & apart not in (0, inside) for apart in load.unmixed):
        return math.inf
    cost = partition_cost(load, inside)
    return cost.cost if cost.fits else math.inf


@lru_cache(maxsize=1024)  # halved choices differ in what is exchanged
def groups_of_sets(legality: Legality, order: Order) -> tuple[tuple[int, ...], ...] | None:
    """Return the sets that may be partitions, those with kernels in common together; None: many.

    Sets are left out that a kernel has to run in the middle of.
    """
    behind, ahead = closed(order.preds), closed(order.succs)

    def between(kernels: Sequence[int]) -> int:
        return union(behind, kernels) & union(ahead, kernels) & ~sum(1 << i for i in kernels)

    # Two kernels are never one where what has to run between them cannot be with them.
    cut = list(legality.cut)
    for i, joined in enumerate(legality.joined):
        for j in bits(joined):
            if (middle := between((i, j))) and not legality.may_grow(middle | 1 << i | 1 << j):
                cut[i] |= 1 << j
    sets = possible_partitions(replace(legality, cut=tuple(cut)), MOST_SETS)
    if sets is None:
        return None
    groups = dict[int, list[int]]()
    for s in sets:
        if between(bits(s)):
            continue
        mask, members = s, [s]
        for other in [other for other in groups if other & s]:
            mask |= other
            members += groups.pop(other)
        groups[mask] = members
    return tuple(tuple(members) for members in groups.values())


def closed(direct: Sequence[int]) -> list[int]:
    """Return by kernel all that it follows, at first hand or not, of those it directly does."""
    found = list(direct)
    changed = True
    while changed:
        changed = False
        for i, mask in enumerate(found):
            more = mask | union(found, bits(mask))
            changed |= more != mask
            found[i] = more
    return found


def union(masks: Sequence[int], numbers: Iterable[int]) -> int:
    """Return what is in any of some masks."""
    found = 0
    for i in numbers:
        found |= masks[i]
    return found


def _least(costs: dict[int, float], whole: int) -> _Part | None:
    """Return the least cover of the kernels of a mask, and what it takes; None: not known. [s]

    That is infinite where there is none. The lowest kernel that is left is covered next, so each
    rest is looked at once.
    """
    by_lowest: dict[int, list[tuple[int, float]]] = {}
    for s, cost in costs.items():
        by_lowest.setdefault(s & -s, []).append((s, cost))
    known: dict[int, _Part] = {0: (0.0, ())}
    waiting = [whole]
    while waiting:
        rest = waiting[-1]
        # A set that covers the lowest kernel left begins with it, as those below are covered.
        ways = [(s, cost) for s, cost in by_lowest.get(rest & -rest, ()) if not s & ~rest]
        open_ = [rest ^ s for s, _ in ways if rest ^ s not in known]
        if open_:
            waiting += open_
            if len(waiting) + len(known) > MOST_COVERED:
                return None
            continue
        waiting.pop()
        if rest not in known:
            pairs = [(cost + known[rest ^ s][0], (s, *known[rest ^ s][1])) for s, cost in ways]
            known[rest] = min(pairs, default=(math.inf, ()))
    return known[whole]
