"""Placement as the public tool has it: blocks on square packages in a row (``deepflow_code``)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem
from crosstack.machine.topology import Grid, LinkLoads
from crosstack.mapping.placement_rules import PlacementRules
from crosstack.mapping.strategy import MappingOrder, Strategy
from crosstack.published.deepflow.block_layout import block_positions

__all__ = ["BlockPlacement", "row_exit_loads"]

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlacement(PlacementRules):
    """Blocks of whole dimensions side by side; see `crosstack.published.deepflow.block_layout`."""

    @property
    def ring_of_two_has_two_edges(self) -> bool:
        """Not where both directions of a link count together."""
        return False

    def check(self, grid: Grid) -> None:
        """Raise `InputError` for a grid that these rules do not place on."""
        square = len(grid.package) == 2 and grid.package[0] == grid.package[1]
        if not square or grid.packages[1:] != (1,) or grid.torus:
            message = "these rules place on square packages in a row, without wrap links."
            raise InputError(Problem("grid", message))

    def orders(self, strategy: Strategy) -> list[MappingOrder]:
        """Return one of the orders whose degrees are the same, although the dimensions differ."""
        found: dict[tuple[int, ...], MappingOrder] = {}
        for order in PlacementRules.orders(self, strategy):
            found.setdefault(tuple(strategy.degree(d) for d in order), order)
        return list(found.values())

    def layouts(self, degrees: tuple[int, ...], grid: Grid) -> list[Whole]:
        """Return the layout of blocks, if they fit."""
        blocks = block_positions(degrees, grid.package[0], grid.n_packages)
        if blocks is None:
            return []
        package, x, y = np.moveaxis(blocks, -1, 0)
        laid = np.stack([package * grid.package[0] + x, y], axis=-1)
        return [np.moveaxis(laid, range(len(degrees)), range(len(degrees))[::-1])]

    def loads(self, grid: Grid, starts: Whole, ends: Whole) -> LinkLoads:
        """Count the edges on every link; see `row_exit_loads`."""
        return row_exit_loads(grid, starts, ends)


def row_exit_loads(grid: Grid, starts: Whole, ends: Whole) -> LinkLoads:
    """Count the edges on every link where a route leaves its package by the row of its end.

    Inside a package: along x in the row of the lower x, then along y. Between packages, from the
    first to the later one: to the edge along x, along y, over the link of that row, then along x
    from the other edge. The part along y is charged in the package where the edge starts, though
    the route may pass the other one there; a move from y to y - 1 on the link above y, off by one.
    Packages on the way do not count. Both directions of a link count together.
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
    low, high = low + down, high + down
    column = np.where(apart, home * side + side - 1, leaves)
    lifted = np.swapaxes(along, 2, 3)
    # The link above the last row does not exist; an index past it is never reached, as a move
    # down from row y is charged to link y at most.
    _run(lifted, candidate, np.where(climbs, 0, 1), low, high, column)
    counts = (across.sum(axis=1, keepdims=True), along.sum(axis=1, keepdims=True))
    return LinkLoads(grid=grid, counts=counts)


def _run(
    counts: Whole, candidate: Whole, way: Whole, first: Whole, last: Whole, other: Whole
) -> None:
    """Add one to links ``first`` to ``last`` - 1 of the third axis, in column ``other``."""
    length = counts.shape[2]
    difference = np.zeros((*counts.shape[:2], length + 1, counts.shape[3]), np.int64)
    np.add.at(difference, (candidate, way, first, other), 1)
    np.add.at(difference, (candidate, way, last, other), -1)
    counts += difference.cumsum(axis=2)[:, :, :length]
