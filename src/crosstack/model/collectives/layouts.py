"""From one layout of a tensor over a group of chips to another: a sequence of collectives.

A tensor is whole on every chip, split by its rows or columns, or partial: every chip has sums that
are still to be added up. Between two layouts lies the shortest path over single collectives, for
the bytes that are moved.

References: ``xu2021gspmd`` (layouts of a tensor, and what lies between them).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from itertools import count

from crosstack.errors import InputError, Problem, require_quantity
from crosstack.machine.system import AllReduceAlgorithm
from crosstack.model.collectives.compose import FREE, Adding, collective_lines
from crosstack.model.collectives.group import Group
from crosstack.model.collectives.lines import NOTHING, Lines
from crosstack.workload.graph import Collective

__all__ = ["Layout", "LayoutChange", "layout_change"]


class Layout(StrEnum):
    """How a tensor lies on the chips of a group."""

    REPLICATED = "replicated"
    ROWS = "rows"
    COLUMNS = "columns"
    PARTIAL = "partial"


# One step from layout to layout; None: each chip keeps a part of what it has.
_STEPS: dict[tuple[Layout, Layout], Collective | None] = {
    (Layout.REPLICATED, Layout.ROWS): None,
    (Layout.REPLICATED, Layout.COLUMNS): None,
    (Layout.ROWS, Layout.REPLICATED): Collective.ALL_GATHER,
    (Layout.COLUMNS, Layout.REPLICATED): Collective.ALL_GATHER,
    (Layout.ROWS, Layout.COLUMNS): Collective.ALL_TO_ALL,
    (Layout.COLUMNS, Layout.ROWS): Collective.ALL_TO_ALL,
    (Layout.PARTIAL, Layout.REPLICATED): Collective.ALL_REDUCE,
    (Layout.PARTIAL, Layout.ROWS): Collective.REDUCE_SCATTER,
    (Layout.PARTIAL, Layout.COLUMNS): Collective.REDUCE_SCATTER,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    """Collectives one after the other, and the time of all of them over the tensor's bytes."""

    collectives: tuple[Collective, ...] = ()
    lines: Lines = NOTHING


@lru_cache(maxsize=4096)
def layout_change(
    start: Layout,
    end: Layout,
    size: float,
    group: Group,
    *,
    adding: Adding = FREE,
    all_reduce: AllReduceAlgorithm | None = None,
) -> LayoutChange:
    """Return the fastest way from one layout of a tensor to another.

    Parameters
    ----------
    start, end : Layout
        How the tensor lies, and how it is needed.
    size : float
        Bytes of the whole tensor. [B]
    group : Group
        The chips that it lies on.
    adding : Adding
        What additions on a chip take; nothing unless given.
    all_reduce : AllReduceAlgorithm or None
        As in `crosstack.model.collectives.compose.collective_lines`.

    Raises
    ------
    InputError
        If there is none: nothing is made partial again.

    Notes
    -----
    Shortest path over the layouts, each step with its least time for ``size``; of two that take
    the same, the one of fewer collectives. To keep a part of what a chip has takes no time.

    References
    ----------
    xu2021gspmd
    """
    require_quantity("size", size, "B")
    waiting: list[tuple[float, int, int, Layout, LayoutChange]] = [
        (0.0, 0, 0, start, LayoutChange())
    ]
    done: set[Layout] = set()
    number = count(1)
    while waiting:
        time, steps, _, here, way = heapq.heappop(waiting)
        if here is end:
            return way
        if here in done:
            continue
        done.add(here)
        for (source, target), collective in _STEPS.items():
            if source is not here or target in done:
                continue
            step = way
            if collective is not None:
                lines = collective_lines(collective, group, adding=adding, all_reduce=all_reduce)
                step = LayoutChange(
                    collectives=(*way.collectives, collective), lines=way.lines + lines
                )
                entry = time + float(lines.time(size)), steps + 1
            else:
                entry = time, steps
            heapq.heappush(waiting, (*entry, next(number), target, step))
    raise InputError(Problem("layout", f"got {start} to {end}; allowed: any that is not partial."))
