"""The shortest path over order ideals, which is the best sequence of partitions.

f(J + S) = min over J of f(J) + cost(S), for ideals J in the order of their sizes; a step is left
out where what the kernels outside J + S still need at least does not beat what is known
(`crosstack.mapping.fusion`).
"""

from __future__ import annotations

import itertools
import math

import numpy as np

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import IdealTables
from crosstack.mapping.slots import Slots
from crosstack.mapping.steps import Steps
from crosstack.mapping.temporal_steps import TemporalSteps
from crosstack.workload.kernel_graph import Bools, Floats, Ints

__all__ = ["Chain", "shortest_chain", "valid_ideals"]

IDEALS_A_UNIT = 8  # whose steps are all priced at once

Chain = tuple[float, tuple[int, ...]] | None  # time [s] and partitions


def shortest_chain(
    slots: Slots | None, steps: Steps, incumbent: float, budget: Budget
) -> tuple[Chain, bool]:
    """Shortest path from the empty ideal to the full one below ``incumbent``, or None. [s]

    Also returns whether the search ended before its budget. With slots the number of partitions is
    a second label; without there is one label, which no step changes.
    """
    tables = steps.tables
    if slots is None and isinstance(steps, TemporalSteps) and steps.whole is not None:
        return _shortest_listed(steps, incumbent, budget)
    rest, last = steps.rest.tolist(), len(tables.masks) - 1
    up, valid = (0, None) if slots is None else (1, valid_ideals(slots, tables))
    best = np.full((1 if valid is None else len(valid), last + 1), math.inf)
    parent = np.full(best.shape, -1, dtype=np.int64)
    best[0, 0] = 0.0
    limit, sizes = incumbent, tables.count.tolist()
    for j in range(last):
        if j == 0 or sizes[j] > sizes[j - 1]:  # no step leads from one to another of a size
            end = int(np.searchsorted(tables.count, sizes[j], side="right"))
            near = best[:, j:end].min(axis=0) + steps.rest[j:end] < limit
            steps.expect((j + np.flatnonzero(near)).tolist())
        if valid is not None:
            _empty_partitions(best, parent, valid, j)
        least = float(best[:, j].min())
        if not least + rest[j] < limit:
            continue
        to, taken = steps.leave(j, limit - least)
        if budget.spend(steps.work_of(len(to))):
            return None, False
        for p in range(len(best) - up) if len(to) else ():
            if not best[p, j] + rest[j] < limit:
                continue
            reached = best[p, j] + taken
            better = reached < best[p + up, to]
            if valid is not None:
                better &= valid[p + 1, to]
            best[p + up, to[better]], parent[p + up, to[better]] = reached[better], j
            if best[p + up, last] < limit and (valid is None or valid[p + 1 :, last].all()):
                limit = float(best[p + up, last])
    if valid is not None:
        _empty_partitions(best, parent, valid, last)
    found = float(best[-1, last])
    if not found < incumbent:
        return None, True
    masks, q, j = list[int](), len(best) - 1, last
    while j != 0 or q > 0:
        i = int(parent[q, j])
        masks.append(tables.masks[j] ^ tables.masks[i])
        q, j = q - up, i
    return (found, tuple(reversed(masks))), True


def _shortest_listed(steps: TemporalSteps, incumbent: float, budget: Budget) -> tuple[Chain, bool]:
    """`shortest_chain` where all steps are priced already."""
    masks = steps.tables.masks
    if budget.spend(CALL + len(masks) // IDEALS_A_UNIT):
        return None, False
    found = steps.shortest(incumbent)
    if found is None:
        return None, True
    time, path = found
    return (time, tuple(masks[b] ^ masks[a] for a, b in itertools.pairwise(path))), True


def _empty_partitions(best: Floats, parent: Ints, valid: Bools, j: int) -> None:
    """Let an ideal stand after one partition more, which is empty."""
    for p in range(1, len(best)):
        if valid[p, j] and best[p - 1, j] < best[p, j]:
            best[p, j], parent[p, j] = best[p - 1, j], j


def valid_ideals(slots: Slots, tables: IdealTables) -> Bools:
    """Whether an ideal may stand after p partitions, shape (count + 1, N)."""
    valid = np.zeros((slots.count + 1, len(tables.masks)), dtype=np.bool_)
    first, last = np.array(slots.first), np.array(slots.last)
    for p in range(slots.count + 1):
        held = tables.member[:, last < p].all(axis=1)
        valid[p] = held & ~tables.member[:, first >= p].any(axis=1)
    return valid
