"""What a rule set says of placements: which orders and layouts are tried, and how edges are routed.

The default is here. Every parallel dimension takes a factor of each axis of the grid. It starts on
an axis of its own choice, takes what is free there inside the package, goes on to the other axes,
then to the packages along them, and runs back and forth (boustrophedon), so that neighbours along
it are one stride apart, or forth only, so that its ring closes by one jump.
``ardalani2022deepflow``, section 5.2, wraps around to the next axis the same way, all dimensions
beginning with the first. All orders are told apart, links are full duplex (``thakur2005``,
section 2) and every route passes every link on its way (``dally2004``, chapter 8).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import permutations, product

import numpy as np

from crosstack.machine.topology import Grid, LinkLoads, link_loads
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy
from crosstack.workload.kernel_graph import Ints

AxisOrder = tuple[int, ...]
Factor = tuple[int, int, int]  # axis, factor, stride
MOST_CHIPS = 1024  # more of them begin all dimensions on the same axis


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """The default part; a published tool's has other methods."""

    @property
    def ring_of_two_has_two_edges(self) -> bool:
        """Whether both chips of a ring of two send to each other, or one edge stands for both."""
        return True

    def check(self, grid: Grid) -> None:
        """Raise `InputError` for a grid that these rules do not place on."""

    def orders(self, strategy: Strategy) -> list[MappingOrder]:
        """Return the orders to try of the dimensions above 1, innermost first."""
        return list(permutations(d for d in ParallelDimension if strategy.degree(d) > 1))

    def layouts(self, degrees: tuple[int, ...], grid: Grid) -> list[Ints]:
        """Return the distinct positions of shards with ``degrees``, the innermost first.

        Each of shape (degree of the innermost, ..., of the outermost, axis); none where none fits.
        By the default, the walk over the whole grid as one line fits any degrees.
        """
        axes = len(grid.shape)
        orders = list(permutations(range(axes)))
        rotated = [tuple((first + k) % axes for k in range(axes)) for first in range(axes)]
        axis_orders = [(order,) * len(degrees) for order in orders]
        if math.prod(degrees) <= MOST_CHIPS:
            axis_orders += product(rotated, repeat=len(degrees))
        tried = (
            _plan(degrees, grid, axis_order, exact=exact)
            for axis_order in axis_orders
            for exact in (True, False)
        )
        plans = dict.fromkeys(plan for plan in tried if plan is not None)
        found = [_laid(degrees, plan, axes, back=True) for plan in plans]
        # Back and forth is the same as forth where no dimension takes two factors.
        bent = [plan for plan in plans if any(len(factors) > 1 for factors in plan)]
        found += [_laid(degrees, plan, axes, back=False) for plan in bent]
        count = math.prod(degrees)
        for order in orders:
            line = _plan((grid.n_chips,), grid, (order,), exact=True)
            if line is not None:
                walk = _laid((grid.n_chips,), line, axes, back=True)[:count]
                places = range(len(degrees))
                found.append(np.moveaxis(walk.reshape(*degrees[::-1], axes), places, places[::-1]))
        return found

    def loads(self, grid: Grid, starts: Ints, ends: Ints) -> LinkLoads:
        """Count the edges on every link; see `crosstack.machine.topology.link_loads`."""
        return link_loads(grid, starts, ends)


def _plan(
    degrees: tuple[int, ...], grid: Grid, axis_orders: tuple[AxisOrder, ...], *, exact: bool
) -> tuple[tuple[Factor, ...], ...] | None:
    """Factors of every dimension, or None where they do not fit.

    ``exact`` takes factors that divide the degree; otherwise a last row may stay incomplete.
    """
    axes = len(grid.shape)
    free = [*grid.package, *grid.packages]  # inside packages, then packages along each axis
    strides = [1] * axes + list(grid.package)
    plan = []
    for degree, axis_order in zip(degrees, axis_orders, strict=True):
        left = degree
        factors: list[Factor] = []
        for slot in (*axis_order, *(axis + axes for axis in axis_order)):
            factor = min(left, free[slot])
            if exact:
                while left % factor:
                    factor -= 1
            if factor > 1:
                factors.append((slot % axes, factor, strides[slot]))
                strides[slot] *= factor
                free[slot] //= factor
                left = -(-left // factor)
        if left > 1:
            return None
        plan.append(tuple(factors))
    return tuple(plan)


def _laid(
    degrees: tuple[int, ...], plan: tuple[tuple[Factor, ...], ...], axes: int, *, back: bool
) -> Ints:
    """Coordinates of every shard of a plan; ``back`` runs every other pass backwards."""
    laid = np.zeros((*degrees, axes), np.int64)
    for i, (degree, factors) in enumerate(zip(degrees, plan, strict=True)):
        numbers, below = np.arange(degree), 1
        shape = [1] * len(degrees)
        shape[i] = degree
        for axis, factor, stride in factors:
            digit = numbers // below % factor
            if back:
                odd = numbers // (below * factor) % 2 == 1
                digit = np.where(odd, factor - 1 - digit, digit)
            laid[..., axis] += (digit * stride).reshape(shape)
            below *= factor
    return laid
