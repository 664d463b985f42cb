"""From one layout of a tensor over a group of chips to others: sequences of collectives.

A tensor is whole on every chip, split by its rows or columns, or partial: every chip has sums that
are still to be added up. Readers may need it in several layouts. What a chip has whole it cuts for
nothing; all else takes collectives, one after the other, and there are several ways.

References: ``xu2021gspmd`` (layouts of a tensor, and what lies between them).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache, reduce

import numpy as np
from numpy.typing import ArrayLike

from crosstack.errors import InputError, Problem
from crosstack.model.collectives.times import NOTHING, ConcaveTime, least
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.kernels import Collective

Way = tuple[Collective, ...]


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


@dataclass(frozen=True, slots=True)
class LeastWay:
    """The least of some ways, each of collectives one after the other, of many machines.

    The time of a way is the sum of the least of each: their lines are not added up in pairs.
    """

    ways: tuple[tuple[ConcaveTime, ...], ...]

    def time(self, size: ArrayLike, *, together: ArrayLike = 1) -> Floats:
        """Time that ``size`` bytes take, as `ConcaveTime.time`. [s]"""
        each = [[one.time(size, together=together) for one in way] for way in self.ways]
        return np.asarray(reduce(np.minimum, (sum(times, np.zeros(())) for times in each)))


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChange:
    """Ways of collectives, each with the time of all of them; ``lines`` is the least of all."""

    ways: tuple[tuple[Way, ConcaveTime], ...] = (((), NOTHING),)
    lines: ConcaveTime | LeastWay = NOTHING

    def fastest(self, size: float, *, together: float = 1.0) -> Way:
        """Return the collectives of the fastest way for so many bytes; the fewest of equals.

        ``size``: of the whole tensor [B]; ``together``: tensors that are sent as one. [1]
        """
        taken = [
            (float(lines.time(size, together=together)), len(way), place)
            for place, (way, lines) in enumerate(self.ways)
        ]
        return self.ways[min(taken)[2]][0]


@lru_cache(maxsize=128)
def ways(start: Layout, ends: frozenset[Layout]) -> tuple[Way, ...]:
    """Return the ways to have a tensor in all of some layouts.

    None does all that another one does, and more. A tensor that is partial and needed in no
    layout is to be added up, however it then lies.

    Raises `InputError` if there is none: nothing is made partial again.
    """
    if Layout.PARTIAL in ends and start is not Layout.PARTIAL:
        raise InputError(Problem("layout", f"got {start} to partial; allowed: any but partial."))
    found: list[Way] = []
    for way in sorted(_grown((start,), ends), key=len):
        if not any(Counter(known) <= Counter(way) for known in found):
            found.append(way)
    return tuple(found)


def _grown(held: tuple[Layout, ...], ends: frozenset[Layout]) -> Iterator[Way]:
    """Yield the collectives that are left to do, in every order."""
    if ends <= set(held) and (ends or held != (Layout.PARTIAL,)):
        yield ()
        return
    for (source, target), collective in _STEPS.items():
        if source in held and target not in held:
            first = () if collective is None else (collective,)
            for rest in _grown((*held, target), ends):
                yield (*first, *rest)


def layout_change(
    start: Layout,
    ends: frozenset[Layout],
    collectives: Mapping[Collective, ConcaveTime],
    *,
    whole_sums: bool = False,
) -> LayoutChange:
    """Return how a tensor gets from one layout into others, in the least time for its size.

    The least over all ways of the sum of their collectives (``xu2021gspmd``). Raises as `ways`.

    Parameters
    ----------
    start, ends : Layout, frozenset of Layout
        How the tensor lies, and how its readers need it.
    collectives : mapping
        What each collective takes over the bytes of the whole tensor.
    whole_sums : bool
        Whether an all-reduce is not to be replaced by a reduce-scatter and an all-gather, as one
        algorithm is asked for.
    """
    halves = {Collective.REDUCE_SCATTER, Collective.ALL_GATHER}
    left = [way for way in ways(start, ends) if not (whole_sums and halves <= set(way))]
    if any(line.many for one in collectives.values() for line in one.members):
        each = tuple(tuple(collectives[c] for c in way) for way in left)
        return LayoutChange(ways=tuple((way, NOTHING) for way in left), lines=LeastWay(each))
    found = [(way, sum((collectives[c] for c in way), NOTHING)) for way in left]
    fastest = found[0][1]
    if len(found) > 1:
        fastest = least(line for _, lines in found for line in lines.members)
    return LayoutChange(ways=tuple(found), lines=fastest)
