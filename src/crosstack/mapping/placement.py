"""Where the shards of a strategy stand on a mesh or torus, and how many edges share a link.

Given: the degrees of four parallel dimensions and a grid of chips in packages. Decided: an order
of the dimensions, innermost first, and the axis on which each begins
(`crosstack.mapping.factor_layout`). Minimised, in this order: the edges on the busiest link between
packages, those on the busiest link inside one, the hops of all edges.

Every order of the dimensions, where none is given, and every first axis is tried; other layouts are
not, so the placement is the best of these and no more. The bandwidth of an edge is that of a link
over the edges that share it (the *derate*).

References: ``ardalani2022deepflow``, section 5.2; ``deepflow_code`` for `Layout.BLOCKS`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem
from crosstack.machine.topology import Grid, LinkLoads, link_loads
from crosstack.mapping.block_layout import block_positions
from crosstack.mapping.factor_layout import factor_positions
from crosstack.mapping.placement_rules import Layout, PlacementRules
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy, whole_order

__all__ = ["Placement", "Sharing", "logical_edges", "place", "placements"]

Whole = NDArray[np.int64]
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
    positions: Whole
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

    Parameters
    ----------
    strategy : Strategy
        What is placed.
    grid : Grid
        Where.
    rules : PlacementRules or None
        How; None: crosstack's own.
    order : tuple of ParallelDimension or None
        The dimensions, innermost first, where not every order is to be tried.

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
    if chosen.layout is Layout.BLOCKS:
        _check_square(grid)
    tried = _orders(strategy, chosen)
    if order is not None:
        tried = [tuple(d for d in whole_order(strategy, order) if strategy.degree(d) > 1)]
    found = []
    for each in tried:
        candidates = _candidates(strategy, grid, each, chosen)
        if candidates is not None:
            found.append(_best(strategy, grid, each, candidates, chosen))
    if not found:
        fits = "fits in no order" if order is None else f"does not fit in order {','.join(order)}"
        raise InputError(Problem("strategy", f"{strategy} {fits} on {grid.n_packages} packages."))
    return tuple(found)


def logical_edges(
    strategy: Strategy, dimension: ParallelDimension, *, both_ways: bool = True
) -> tuple[Whole, Whole]:
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


# ---------------------------------------------------------------- orders and layouts


def _orders(strategy: Strategy, rules: PlacementRules) -> list[MappingOrder]:
    """Every order of the dimensions above 1."""
    used = [d for d in DIMENSIONS if strategy.degree(d) > 1]
    found: dict[tuple[object, ...], MappingOrder] = {}
    for order in permutations(used):
        degrees = tuple(strategy.degree(d) for d in order)
        found.setdefault(degrees if rules.merges_equal_sizes else order, order)
    return list(found.values())


def _candidates(
    strategy: Strategy, grid: Grid, order: MappingOrder, rules: PlacementRules
) -> Whole | None:
    """Positions (candidate, kp1, kp2, dp, lp, axis) of the layouts of an order, or None."""
    degrees = tuple(strategy.degree(d) for d in order)
    if rules.layout is Layout.BLOCKS:
        blocks = block_positions(degrees, grid.package[0], grid.n_packages)
        if blocks is None:
            return None
        package, x, y = np.moveaxis(blocks, -1, 0)
        laid = np.stack([package * grid.package[0] + x, y], axis=-1)
        positions = [np.moveaxis(laid, range(len(degrees)), range(len(degrees))[::-1])]
    else:
        positions = factor_positions(degrees, grid)
    shape = tuple(strategy.degree(d) for d in DIMENSIONS)
    by_canon = sorted(range(len(order)), key=lambda i: DIMENSIONS.index(order[i]))
    return np.stack(
        [np.transpose(p, (*by_canon, len(order))).reshape(*shape, -1) for p in positions]
    )


def _check_square(grid: Grid) -> None:
    square = len(grid.package) == 2 and grid.package[0] == grid.package[1]
    if not square or grid.packages[1:] != (1,) or grid.torus:
        raise InputError(
            Problem("grid", "these rules place on square packages in a row, without wrap links.")
        )


# ---------------------------------------------------------------- routing


def _best(
    strategy: Strategy,
    grid: Grid,
    order: MappingOrder,
    candidates: Whole,
    rules: PlacementRules,
) -> Placement:
    """The candidate with the least sharing, with everything that is known about it."""
    flat = candidates.reshape(len(candidates), strategy.n_chips, -1)
    edges = {
        d: logical_edges(strategy, d, both_ways=not rules.directions_share) for d in DIMENSIONS
    }
    starts = np.concatenate([first for first, _ in edges.values()])
    ends = np.concatenate([last for _, last in edges.values()])
    best, least = 0, (np.iinfo(np.int64).max,) * 3
    each = max(1, MOST_COORDINATES // max(1, starts.size + grid.n_chips))
    for k in range(0, len(flat), each):
        some = flat[k : k + each]
        loads = _loads(grid, some[:, starts], some[:, ends], rules)
        between, inside = _sharing(loads, rules)
        hops = sum(counts.reshape(len(some), -1).sum(axis=1) for counts in loads.counts)
        for i, score in enumerate(zip(between, inside, hops, strict=True)):
            if score < least:
                best, least = k + i, score
    at = flat[best]
    loads = _loads(grid, at[None, starts], at[None, ends], rules)
    by_dimension = {}
    for d, (first, last) in edges.items():
        own = _loads(grid, at[None, first], at[None, last], rules)
        by_dimension[d] = _first_sharing(own, rules)
    unused = [d for d in DIMENSIONS if d not in order]
    return Placement(
        strategy=strategy,
        grid=grid,
        order=(*order, *unused),
        positions=candidates[best],
        sharing=_first_sharing(loads, rules),
        by_dimension=by_dimension,
        crosses=frozenset(d for d, ends in edges.items() if _crosses(grid, at, ends)),
        loads=loads,
        hops=int(least[2]),
    )


def _sharing(loads: LinkLoads, rules: PlacementRules) -> tuple[Whole, Whole]:
    share = rules.directions_share
    return (
        loads.largest(between=True, directions_share=share),
        loads.largest(between=False, directions_share=share),
    )


def _first_sharing(loads: LinkLoads, rules: PlacementRules) -> Sharing:
    between, inside = _sharing(loads, rules)
    return Sharing(between=int(between[0]), inside=int(inside[0]))


def _crosses(grid: Grid, at: Whole, ends: tuple[Whole, Whole]) -> bool:
    packages = at // np.array(grid.package)
    return bool((packages[ends[0]] != packages[ends[1]]).any())


def _loads(grid: Grid, starts: Whole, ends: Whole, rules: PlacementRules) -> LinkLoads:
    if rules.skips_packages_between:
        return _row_exit_loads(grid, starts, ends, rules)
    return link_loads(grid, starts, ends)


def _row_exit_loads(grid: Grid, starts: Whole, ends: Whole, rules: PlacementRules) -> LinkLoads:
    """Loads where a route leaves its package by the row of its end, as the public tool counts.

    Inside a package: along x in the row of the lower x, then along y. Between packages, from the
    first to the later one: to the edge along x, along y, over the link of that row, then along x
    from the other edge. The part along y is charged in the package where the edge starts, though
    the route may pass the other one there. Packages on the way do not count.
    """
    side = grid.package[0]
    shape = (starts.shape[0], 2, *grid.shape)
    across, along = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
    home = starts[..., 0] // side
    apart = home != ends[..., 0] // side
    swap = starts[..., 0] > ends[..., 0]
    climbs = starts[..., 1] < ends[..., 1]
    starts, ends = (
        np.where(swap[..., None], ends, starts),
        np.where(swap[..., None], starts, ends),
    )
    way = swap.astype(np.int64)
    candidate = np.broadcast_to(np.arange(len(starts))[:, None], apart.shape)
    package, other = starts[..., 0] // side, ends[..., 0] // side
    edge = package * side + side - 1
    leaves = np.where(apart, edge, ends[..., 0])
    _run(across, candidate, way, starts[..., 0], leaves, starts[..., 1])
    first = np.where(apart, other * side, ends[..., 0])
    _run(across, candidate, way, first, ends[..., 0], ends[..., 1])
    np.add.at(across, (candidate[apart], way[apart], edge[apart], ends[..., 1][apart]), 1)
    low = np.minimum(starts[..., 1], ends[..., 1])
    high = np.maximum(starts[..., 1], ends[..., 1])
    down = starts[..., 1] > ends[..., 1]
    if rules.charges_next_link_downwards:
        low, high = low + down, high + down
    column = np.where(apart, home * side + side - 1, leaves)
    lifted = np.swapaxes(along, 2, 3)
    # The link above the last row does not exist; an index past it is never reached, as a move
    # down from row y is charged to link y at most.
    _run(lifted, candidate, np.where(climbs, 0, 1), low, high, column)
    return LinkLoads(grid=grid, counts=(across, along))


def _run(
    counts: Whole, candidate: Whole, way: Whole, first: Whole, last: Whole, other: Whole
) -> None:
    """Add one to links ``first`` to ``last`` - 1 of the third axis, in column ``other``."""
    length = counts.shape[2]
    difference = np.zeros((*counts.shape[:2], length + 1, counts.shape[3]), np.int64)
    np.add.at(difference, (candidate, way, first, other), 1)
    np.add.at(difference, (candidate, way, last, other), -1)
    counts += difference.cumsum(axis=2)[:, :, :length]
