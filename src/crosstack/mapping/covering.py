"""Partitions of a chip that runs kernels one by one, without order ideals.

Few sets of kernels have a program there, so that all are listed, and one takes the same in every
sequence. A sequence covers each kernel once: the least that a cover of all kernels by such sets
takes is a bound on every sequence, and what the best one takes where the sets of that cover can
follow one another. Kernels that no set joins are covered apart, so a cover is found in no time for
graphs with more order ideals than can be listed.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from crosstack.mapping.ideals import Order
from crosstack.model.legality import Legality, possible_partitions
from crosstack.model.partition import ChipLoad, live_sizes, partition_cost
from crosstack.workload.kernel_graph import bits

MOST_SETS = 4096  # kernels that may run as one
MOST_COVERED = 20_000  # parts of one group of kernels that are covered on the way


class Cover(NamedTuple):
    """``bound`` on any sequence [s], and one that takes as much; empty where there may be none."""

    bound: float
    partitions: tuple[int, ...]


def least_cover(load: ChipLoad, order: Order) -> Cover | None:
    """Return the least that a cover takes, and its sequence; None where that is not known.

    Raises nothing: a chip that runs kernels side by side, too many sets and groups of too many
    kernels are not known.
    """
    if load.temporal is None or (groups := _groups(load.temporal.legality, order)) is None:
        return None
    total, chosen = 0.0, list[int]()
    for group in groups:
        costs = {s: cost for s in group if (cost := _cost(load, s)) < math.inf}
        found = _least(costs)
        if found is None:
            return None
        total += found[0]
        chosen += found[1]
    sequence = in_sequence(chosen, order)
    room = load.memory_limit * (1 + 1e-12)
    if sequence is None or max(live_sizes(load, sequence)) > room:
        return Cover(total, ())
    return Cover(total, sequence)


def in_sequence(partitions: Iterable[int], order: Order) -> tuple[int, ...] | None:
    """Return partitions in an order that precedence allows; None where there is none."""
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
    return tuple(found) if len(found) == len(sets) else None


def _cost(load: ChipLoad, inside: int) -> float:
    """Return what a partition takes in any sequence; infinite where it is none. [s]"""
    if any(inside & apart not in (0, inside) for apart in load.unmixed):
        return math.inf
    cost = partition_cost(load, inside)
    return cost.cost if cost.fits else math.inf


@lru_cache(maxsize=64)
def _groups(legality: Legality, order: Order) -> tuple[tuple[int, ...], ...] | None:
    """Return the sets that may be partitions, those with kernels in common together; None: many.

    Sets are left out that a kernel has to run in the middle of.
    """
    sets = possible_partitions(legality, MOST_SETS)
    if sets is None:
        return None
    behind, ahead = _closed(order.preds), _closed(order.succs)
    groups = dict[int, list[int]]()
    for s in sets:
        held = bits(s)
        between = _union(behind, held) & _union(ahead, held) & ~s
        if between:
            continue
        mask, members = s, [s]
        for other in [other for other in groups if other & s]:
            mask |= other
            members += groups.pop(other)
        groups[mask] = members
    return tuple(tuple(members) for members in groups.values())


def _closed(direct: Sequence[int]) -> list[int]:
    """Return by kernel all that it follows, at first hand or not, of those it directly does."""
    found = list(direct)
    changed = True
    while changed:
        changed = False
        for i, mask in enumerate(found):
            more = mask | _union(found, bits(mask))
            changed |= more != mask
            found[i] = more
    return found


def _union(masks: Sequence[int], numbers: Iterable[int]) -> int:
    """Return what is in any of some masks."""
    found = 0
    for i in numbers:
        found |= masks[i]
    return found


def _least(costs: dict[int, float]) -> tuple[float, tuple[int, ...]] | None:
    """Return the least cover of the kernels of all sets, and what it takes; None: not known. [s]

    The lowest kernel that is left is covered next, so each rest is looked at once.
    """
    by_lowest: dict[int, list[tuple[int, float]]] = {}
    for s, cost in costs.items():
        by_lowest.setdefault(s & -s, []).append((s, cost))
    known: dict[int, tuple[float, tuple[int, ...]]] = {0: (0.0, ())}
    waiting = [_union(list(costs), range(len(costs)))]
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
    whole = max(known)
    return known[whole] if math.isfinite(known[whole][0]) else None
