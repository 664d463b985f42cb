"""From one layout of a tensor over a mesh to another: single steps, and the cheapest way.

A step changes one dimension of the mesh: it gathers parts, adds up sums on every chip or on the one
that keeps the part, exchanges parts along one axis for parts along another, or keeps a part of what
is there, which costs nothing. Of dimensions that split the same axis, the last is changed first:
what the others hold are not neighbours otherwise. Source: ``xu2021gspmd``.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from crosstack.errors import InputError, Problem
from crosstack.workload.axes import Axes
from crosstack.workload.kernels import Collective
from crosstack.workload.sharding import PARTIAL, REPLICATED, Layout

__all__ = ["Conversion", "LayoutStep", "conversion", "steps_from"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutStep:
    """A change of layout on one dimension of the mesh.

    Parameters
    ----------
    dimension : int
        Of the mesh. [1]
    before, after : str
        An axis, `REPLICATED` or `PARTIAL`.
    share : float
        Of the tensor: what lies on the chips of that dimension together. [1]
    """

    dimension: int
    before: str
    after: str
    share: float

    @property
    def collective(self) -> Collective | None:
        """What the chips of the dimension do; None: each keeps a part of what it has."""
        if self.before == PARTIAL:
            whole = self.after == REPLICATED
            return Collective.ALL_REDUCE if whole else Collective.REDUCE_SCATTER
        if self.before == REPLICATED:
            return None
        return Collective.ALL_GATHER if self.after == REPLICATED else Collective.ALL_TO_ALL


Cost = Callable[[LayoutStep], float]
Conversion = tuple[LayoutStep, ...]


def _free(layout: Layout, dimension: int, axis: str) -> bool:
    """Whether no later dimension splits the same axis."""
    return axis in (REPLICATED, PARTIAL) or axis not in layout[dimension + 1 :]


def steps_from(
    layout: Layout, axes: Axes, mesh: Sequence[int], sizes: Mapping[str, int]
) -> Iterator[tuple[LayoutStep, Layout]]:
    """Yield every step from a layout, with the layout that it leads to.

    Parameters
    ----------
    layout : Layout
        Where it begins.
    axes : tuple of str
        Of the tensor.
    mesh : sequence of int
        Chips of every dimension. [1]
    sizes : mapping
        Of axes. [1]
    """
    for d, before in enumerate(layout):
        share = 1.0
        for other, (axis, ways) in enumerate(zip(layout, mesh, strict=True)):
            if other != d and axis not in (REPLICATED, PARTIAL):
                share /= ways
        for after in (REPLICATED, *axes):
            way = (*layout[:d], after, *layout[d + 1 :])
            reaches = after != before and _free(layout, d, before) and _free(layout, d, after)
            split = math.prod(w for a, w in zip(way, mesh, strict=True) if a == after)
            fits = after == REPLICATED or split <= max(sizes[after], mesh[d])
            if reaches and fits:
                yield LayoutStep(dimension=d, before=before, after=after, share=share), way


def conversion(
    start: Layout,
    end: Layout,
    axes: Axes,
    mesh: Sequence[int],
    sizes: Mapping[str, int],
    cost: Cost,
) -> Conversion:
    """Return the cheapest steps from one layout to another; of equal ones the fewest.

    Parameters
    ----------
    start, end : Layout
        How the tensor lies, and how it is needed.
    axes, mesh, sizes
        As `steps_from`.
    cost : callable
        What a step costs that needs a collective.

    Raises
    ------
    InputError
        If there is no way: nothing is made partial again.
    """
    number = itertools.count()
    waiting: list[tuple[float, int, int, Layout, Conversion]] = [(0.0, 0, next(number), start, ())]
    done: set[Layout] = set()
    while waiting:
        spent, count, _, here, way = heapq.heappop(waiting)
        if here == end:
            return way
        if here in done:
            continue
        done.add(here)
        for step, there in steps_from(here, axes, mesh, sizes):
            if there not in done:
                more = cost(step) if step.collective else 0.0
                entry = (spent + more, count + 1, next(number), there, (*way, step))
                heapq.heappush(waiting, entry)
    message = f"got {start} to {end}; allowed: what is not partial, or partial already."
    raise InputError(Problem("layout", message))
