"""Where the shards of a strategy stand on a mesh or torus, and how many edges share a link.

Given: the degrees of four parallel dimensions and a grid of chips in packages. Decided: an order
of the dimensions, innermost first, and the axis on which each begins
(`crosstack.mapping.placement_rules`). Minimised, in this order: the edges on the busiest link
between packages, those on the busiest link inside one, the hops of all edges.

Every order of the dimensions, where none is given, and every first axis is tried; other layouts are
not, so the placement is the best of these and no more. The bandwidth of an edge is that of a link
over the edges that share it (the *derate*).

References: ``ardalani2022deepflow``, section 5.2.
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
    chosen.check(grid)
    tried = chosen.orders(strategy)
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


# ---------------------------------------------------------------- orders and layouts


def _candidates(
    strategy: Strategy, grid: Grid, order: MappingOrder, rules: PlacementRules
) -> Ints | None:
    """Positions (candidate, kp1, kp2, dp, lp, axis) of the layouts of an order, or None."""
    degrees = tuple(strategy.degree(d) for d in order)
    positions = rules.layouts(degrees, grid)
    if not positions:
        return None
    shape = tuple(strategy.degree(d) for d in DIMENSIONS)
    by_canon = sorted(range(len(order)), key=lambda i: DIMENSIONS.index(order[i]))
    return np.stack(
        [np.transpose(p, (*by_canon, len(order))).reshape(*shape, -1) for p in positions]
    )


# ---------------------------------------------------------------- routing


def _best(
    strategy: Strategy,
    grid: Grid,
    order: MappingOrder,
    candidates: Ints,
    rules: PlacementRules,
) -> Placement:
    """The candidate with the least sharing, with everything that is known about it."""
    flat = candidates.reshape(len(candidates), strategy.n_chips, -1)
    both = rules.ring_of_two_has_two_edges
    edges = {d: logical_edges(strategy, d, both_ways=both) for d in DIMENSIONS}
    starts = np.concatenate([first for first, _ in edges.values()])
    ends = np.concatenate([last for _, last in edges.values()])
    best, least = 0, (np.iinfo(np.int64).max,) * 3
    each = max(1, MOST_COORDINATES // max(1, starts.size + grid.n_chips))
    for k in range(0, len(flat), each):
        some = flat[k : k + each]
        loads = rules.loads(grid, some[:, starts], some[:, ends])
        between, inside = (loads.largest(between=across) for across in (True, False))
        hops = sum(counts.reshape(len(some), -1).sum(axis=1) for counts in loads.counts)
        for i, score in enumerate(zip(between, inside, hops, strict=True)):
            if score < least:
                best, least = k + i, score
    at = flat[best]
    loads = rules.loads(grid, at[None, starts], at[None, ends])
    by_dimension = {}
    for d, (first, last) in edges.items():
        by_dimension[d] = _sharing(rules.loads(grid, at[None, first], at[None, last]))
    unused = [d for d in DIMENSIONS if d not in order]
    return Placement(
        strategy=strategy,
        grid=grid,
        order=(*order, *unused),
        positions=candidates[best],
        sharing=_sharing(loads),
        by_dimension=by_dimension,
        crosses=frozenset(d for d, ends in edges.items() if _crosses(grid, at, ends)),
        loads=loads,
        hops=int(least[2]),
    )


def _sharing(loads: LinkLoads) -> Sharing:
    between, inside = (loads.largest(between=across) for across in (True, False))
    return Sharing(between=int(between[0]), inside=int(inside[0]))


def _crosses(grid: Grid, at: Ints, ends: tuple[Ints, Ints]) -> bool:
    packages = at // np.array(grid.package)
    return bool((packages[ends[0]] != packages[ends[1]]).any())
