"""All covers of every group of kernels that have sets they may run in in common.

Kernels that are together in no set, at first hand or not, are covered apart
(`crosstack.mapping.covering`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.mapping.covering import closed, groups_of_sets, union
from crosstack.mapping.ideals import Order
from crosstack.model.legality import Legality
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

MOST_COVERS = 2048  # of one group of kernels


@dataclass(frozen=True, slots=True, eq=False)
class GroupCovers:
    """All covers of a group of kernels: its ``sets``, and which of them holds each in each cover.

    ``held`` has shape (covers, kernels). [1]
    """

    kernels: tuple[int, ...]
    sets: tuple[int, ...]
    held: Ints


@lru_cache(maxsize=1024)
def covers_of_groups(
    legality: Legality, order: Order, unmixed: tuple[int, ...]
) -> tuple[tuple[GroupCovers, ...], dict[tuple[int, int], Floats]] | None:
    """Return the covers of every group of kernels; None where some has too many.

    And of groups, by number, what pairs of covers cost of which a set waits for one of the other's
    that waits for it: infinity, or nothing.
    """
    if (groups := groups_of_sets(legality, order)) is None:
        return None
    behind, found = tuple(closed(order.preds)), list[GroupCovers]()
    for group in groups:
        if (covers := _covers_of_group(group, behind, unmixed)) is None:
            return None
        found.append(covers)
    waiting = dict[tuple[int, int], Floats]()
    for a, b in itertools.combinations(range(len(found)), 2):
        if (both := _apart(found[a], found[b], behind)) is not None:
            waiting[a, b] = both
    return tuple(found), waiting


# Of one graph legalities differ in what is exchanged, and so in few groups.
@lru_cache(maxsize=4096)
def _covers_of_group(
    group: tuple[int, ...], behind: tuple[int, ...], unmixed: tuple[int, ...]
) -> GroupCovers | None:
    """Return the covers of a group of sets no two of which wait for each other; None: too many."""
    sets = [s for s in group if not any(s & apart not in (0, s) for apart in unmixed)]
    if (covers := _covers(sets)) is None:
        return None
    kernels = tuple(bits(sum(covers[0])))
    number = {s: k for k, s in enumerate(sets)}
    holder = [{i: number[s] for s in cover for i in bits(s)} for cover in covers]
    held = np.array([[own[i] for i in kernels] for own in holder], dtype=np.int64)
    each = _waits(sets, sets, behind)
    good = [not each[np.ix_(own, own)].any() for own in held]
    return GroupCovers(kernels, tuple(sets), held[good])


@lru_cache(maxsize=16384)
def _apart(one: GroupCovers, other: GroupCovers, behind: tuple[int, ...]) -> Floats | None:
    """Return what pairs of covers of two groups cost, infinity or nothing; None: all nothing."""
    each = _waits(one.sets, other.sets, behind)
    if not each.any():
        return None
    both = [each[own][:, other.held].any(axis=(0, 2)) for own in one.held]
    return np.where(np.array(both), np.inf, 0.0)


def partitions_of(groups: Sequence[GroupCovers], covers: Sequence[int]) -> tuple[int, ...]:
    """Return the sets of one cover of every group, in no order."""
    return tuple(
        group.sets[number]
        for group, cover in zip(groups, covers, strict=True)
        for number in np.unique(group.held[cover]).tolist()
    )


def _waits(ones: Sequence[int], others: Sequence[int], behind: Sequence[int]) -> Bools:
    """Return of which pairs of sets each has to wait for the other, shape (ones, others)."""
    before = [union(behind, bits(s)) & ~s for s in (*ones, *others)]
    own, its = before[: len(ones)], before[len(ones) :]
    found = [
        [bool(own[i] & t and its[j] & s and not s & t) for j, t in enumerate(others)]
        for i, s in enumerate(ones)
    ]
    return np.array(found, dtype=np.bool_).reshape(len(ones), len(others))


def _covers(sets: Sequence[int]) -> list[tuple[int, ...]] | None:
    """Return all ways to cover the kernels of some sets once each; None where they are many."""
    whole, by_lowest = 0, dict[int, list[int]]()
    for s in sets:
        whole |= s
        by_lowest.setdefault(s & -s, []).append(s)
    found = list[tuple[int, ...]]()
    waiting: list[tuple[int, tuple[int, ...]]] = [(whole, ())]
    while waiting:
        rest, chosen = waiting.pop()
        if not rest:
            found.append(chosen)
            if len(found) > MOST_COVERS:
                return None
            continue
        ways = [s for s in by_lowest.get(rest & -rest, ()) if not s & ~rest]
        waiting += [(rest ^ s, (*chosen, s)) for s in ways]
    return found
