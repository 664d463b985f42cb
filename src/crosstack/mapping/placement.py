"""Where the shards of a strategy stand on a mesh or torus, and how many edges share a link.

Given: the degrees of four parallel dimensions and a grid of chips in packages. Decided: an order
of the dimensions, innermost first, and the axis on which each begins
(`crosstack.mapping.placement_rules`). Minimised, in this order: the edges on the busiest link
between packages, those on the busiest link inside one, the hops of all edges.

Every order of the dimensions, where none is given, and every first axis is tried, other layouts are
not. The bandwidth of an edge is that of a link over the edges that share it (the *derate*);
``ardalani2022deepflow``, section 5.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.machine.topology import Grid, LinkLoads
from crosstack.mapping.placement_rules import PlacementRules
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy, whole_order
from crosstack.workload.kernel_graph import Ints

MOST_COORDINATES = 2**21  # of candidates that are routed at once
DIMENSIONS = tuple(ParallelDimension)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Edges on the busiest link ``between`` packages and ``inside`` one; 0 where none is used."""

    between: int
    inside: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Shards on a grid.

    ``order`` lists the dimensions, innermost first. ``positions[kp1, kp2, dp, lp]`` are the
    coordinates of a shard. ``sharing`` counts the edges of all dimensions, ``by_dimension`` those
    of one, which is what shares a link when dimensions communicate at different times.
    ``crosses`` are the dimensions with an edge between packages, ``hops`` the links of all edges.
    """

    strategy: Strategy
    grid: Grid
    order: MappingOrder
    positions: Ints
    sharing: Sharing
    by_dimension: Mapping[ParallelDimension, Sharing]
    crosses: frozenset[ParallelDimension]
    loads: LinkLoads
    hops: int

    @property
    def derates(self) -> tuple[int, int, int]:
        """What is minimised: load between packages, load inside them, hops. [1]"""
        return self.sharing.between, self.sharing.inside, self.hops


def place(
    strategy: Strategy,
    grid: Grid,
    rules: PlacementRules | None = None,
    *,
    order: MappingOrder | None = None,
) -> Placement:
    """Return the placement with the least sharing, the first of equals.

    ``rules`` are crosstack's own where left out; ``order`` gives the dimensions, innermost first,
    where not every order is to be tried.

    Raises
    ------
    InputError
        If the strategy needs more chips than the grid has, no order fits, or the order leaves out
        a dimension.
    """
    return min(placements(strategy, grid, rules, order=order), key=lambda p: p.derates)


def placements(
    strategy: Strategy,
    grid: Grid,
    rules: PlacementRules | None = None,
    *,
    order: MappingOrder | None = None,
) -> tuple[Placement, ...]:
    """Return the best placement of every order that fits, or of the one that is given.

    Parameters and errors as `place`.
    """
    chosen = rules or PlacementRules()
    if strategy.n_chips > grid.n_chips:
        shape = " x ".join(str(size) for size in grid.shape)
        message = f"{strategy} needs {strategy.n_chips} chips; the grid of {shape} has"
        raise InputError(Problem("strategy", f"{message} {grid.n_chips}."))
    chosen.check(grid)
    tried = chosen.orders(strategy)
    if order is not None:
        tried = [tuple(d for d in whole_order(strategy, order) if strategy.degree(d) > 1)]
    found = []
    for each in tried:
        layouts = chosen.layouts(tuple(strategy.degree(d) for d in each), grid)
        if layouts:
            found.append(_best(strategy, grid, each, layouts, chosen))
    if not found:
        fits = "fits in no order" if order is None else f"does not fit in order {','.join(order)}"
        raise InputError(Problem("strategy", f"{strategy} {fits} on {grid.n_packages} packages."))
    return tuple(found)


def logical_edges(
    strategy: Strategy, dimension: ParallelDimension, *, both_ways: bool = True
) -> tuple[Ints, Ints]:
    """Return both ends of every logical edge of a dimension, as shard numbers.

    A ring joins the shards of a kernel- or data-parallel dimension, a line those of the pipeline.
    ``both_ways``: a ring of two has an edge each way; otherwise it has one.

    Shards are numbered along ``positions`` of `Placement`, the last axis (lp) fastest.
    """
    axis = DIMENSIONS.index(dimension)
    shape = tuple(strategy.degree(d) for d in DIMENSIONS)
    numbers = np.arange(math.prod(shape)).reshape(shape)
    degree = shape[axis]
    following = np.roll(numbers, -1, axis=axis)
    ring = dimension is not ParallelDimension.LP and degree > (1 if both_ways else 2)
    kept = np.arange(degree if ring else degree - 1)
    return np.take(numbers, kept, axis).ravel(), np.take(following, kept, axis).ravel()


# ---------------------------------------------------------------- routing


def _best(
    strategy: Strategy, grid: Grid, order: MappingOrder, layouts: list[Ints], rules: PlacementRules
) -> Placement:
    """The layout with the least sharing, with everything that is known about it."""
    shape = tuple(strategy.degree(d) for d in DIMENSIONS)
    by_canon = sorted(range(len(order)), key=lambda i: DIMENSIONS.index(order[i]))
    placed = [np.transpose(each, (*by_canon, len(order))) for each in layouts]
    positions = np.stack([each.reshape(*shape, -1) for each in placed])
    flat = positions.reshape(len(positions), strategy.n_chips, -1)
    both = rules.ring_of_two_has_two_edges
    edges = {d: logical_edges(strategy, d, both_ways=both) for d in DIMENSIONS}
    starts, ends = (np.concatenate(column) for column in zip(*edges.values(), strict=True))
    best, least = 0, (np.iinfo(np.int64).max,) * 3
    each_time = max(1, MOST_COORDINATES // max(1, starts.size + grid.n_chips))
    for k in range(0, len(flat), each_time):
        some = flat[k : k + each_time]
        loads = rules.loads(grid, some[:, starts], some[:, ends])
        between, inside = (loads.largest(between=across) for across in (True, False))
        hops = sum(counts.reshape(len(some), -1).sum(axis=1) for counts in loads.counts)
        for i, score in enumerate(zip(between, inside, hops, strict=True)):
            if score < least:
                best, least = k + i, score
    at = flat[best]
    packages = at // np.array(grid.package)

    def loads_of(first: Ints, last: Ints) -> LinkLoads:
        return rules.loads(grid, at[None, first], at[None, last])

    return Placement(
        strategy=strategy,
        grid=grid,
        order=(*order, *(d for d in DIMENSIONS if d not in order)),
        positions=positions[best],
        sharing=_sharing(loads_of(starts, ends)),
        by_dimension={d: _sharing(loads_of(*ends)) for d, ends in edges.items()},
        crosses=frozenset(
            d for d, (first, last) in edges.items() if (packages[first] != packages[last]).any()
        ),
        loads=loads_of(starts, ends),
        hops=int(least[2]),
    )


def _sharing(loads: LinkLoads) -> Sharing:
    between, inside = (int(loads.largest(between=across)[0]) for across in (True, False))
    return Sharing(between=between, inside=inside)
