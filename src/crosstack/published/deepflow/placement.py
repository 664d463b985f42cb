"""Placement as the public tool has it: blocks on square packages in a row (``deepflow_code``).

The dimensions of an order are placed outermost first. With y the degree of the innermost
dimension and x the product of those between, a block of the outermost dimension is

1. x wide and y high where that fits into the region,
2. as wide as the region and ``y (x // width)`` high where x is too wide,
3. as high as the region and ``(y // height) x`` wide where y is too high,
4. else a share of the packages.

Blocks run along x, row after row, every other row backwards, package after package; within each
the rest of the order is placed the same way. A dimension that is left alone stands in one column,
or runs up one column and down the next where it is longer than the region is high. Blocks that
leave a rest of the region fit nowhere: the source writes over their neighbours and stops.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.machine.topology import Grid, LinkLoads
from crosstack.mapping.placement_rules import PlacementRules
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy
from crosstack.workload.kernel_graph import Ints


class _Region(NamedTuple):
    """``width`` x ``height`` chips from (x, y) on each of some packages, from ``package``."""

    package: int
    packages: int
    x: int
    y: int
    width: int
    height: int


def _placed(degrees: tuple[int, ...], region: _Region) -> Ints | None:
    """Return package, x and y of every shard, the innermost degree first; None without room."""
    if not degrees:
        return np.array([region.package, region.x, region.y])
    parts = []
    for block in _blocks(degrees[:-1], degrees[-1], region):
        part = _placed(degrees[:-1], block)
        if part is None:
            return None
        parts.append(part)
    return np.stack(parts) if parts else None


def _blocks(inner: tuple[int, ...], count: int, region: _Region) -> list[_Region]:
    """Regions of the ``count`` blocks of a dimension, none where there is no room."""
    high, wide = (inner[0], math.prod(inner[1:])) if inner else (1, 1)
    if high <= region.height and wide <= region.width:
        width, height = wide, high
    elif wide > region.width and high * (wide // region.width) <= region.height:
        width, height = region.width, high * (wide // region.width)
    elif high > region.height and (high // region.height) * wide <= region.width:
        width, height = (high // region.height) * wide, region.height
    else:
        each = region.packages // count
        first = region.package
        return [
            region._replace(package=first + i * each, packages=each) for i in range(count) if each
        ]
    columns, rows = region.width // width, region.height // height
    if region.width % width or region.height % height or columns * rows * region.packages < count:
        return []
    found = []
    for i in range(count):
        package, place = divmod(i, columns * rows)
        if inner:
            row, column = divmod(place, columns)
            column = column if row % 2 == 0 else columns - 1 - column
        else:
            column, row = divmod(place, rows)
            row = row if column % 2 == 0 else rows - 1 - row
        corner = region.x + column * width, region.y + row * height
        found.append(_Region(region.package + package, 1, *corner, width, height))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockPlacement(PlacementRules):
    """Blocks of whole dimensions side by side."""

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

    def layouts(self, degrees: tuple[int, ...], grid: Grid) -> list[Ints]:
        """Return the layout of blocks, if they fit."""
        side = grid.package[0]
        # The source places the dimensions of one shard as well, outermost: they tighten the region.
        whole = (*degrees, *[1] * (len(ParallelDimension) - len(degrees)))
        blocks = _placed(whole, _Region(0, grid.n_packages, 0, 0, side, side))
        if blocks is None:
            return []
        package, x, y = np.moveaxis(blocks.reshape(*degrees[::-1], 3), -1, 0)
        laid = np.stack([package * side + x, y], axis=-1)
        return [np.moveaxis(laid, range(len(degrees)), range(len(degrees))[::-1])]

    def loads(self, grid: Grid, starts: Ints, ends: Ints) -> LinkLoads:
        """Count the edges on every link where a route leaves its package by the row of its end.

        Inside a package: along x in the row of the lower x, then along y. Between packages, from
        the first to the later one: to the edge along x, along y, over the link of that row, then
        along x from the other edge. The part along y is charged in the package where the edge
        starts, though the route may pass the other one there; a move from y to y - 1 on the link
        above y, off by one. Packages on the way do not count. Both directions of a link count
        together.
        """
        side = grid.package[0]
        across = np.zeros((len(starts), *grid.shape), np.int64)
        along = np.zeros_like(across)
        home = starts[..., 0] // side
        swap = (starts[..., 0] > ends[..., 0])[..., None]
        (x, y), (end_x, end_y) = (
            np.moveaxis(np.where(swap, a, b), -1, 0) for a, b in ((ends, starts), (starts, ends))
        )
        apart = x // side != end_x // side
        candidate = np.broadcast_to(np.arange(len(starts))[:, None], apart.shape)
        edge = x // side * side + side - 1
        leaves = np.where(apart, edge, end_x)
        _run(across, candidate, x, leaves, y)
        _run(across, candidate, np.where(apart, end_x // side * side, end_x), end_x, end_y)
        np.add.at(across, (candidate[apart], edge[apart], end_y[apart]), 1)
        down = y > end_y
        column = np.where(apart, home * side + side - 1, leaves)
        # The link above the last row does not exist; an index past it is never reached, as a move
        # down from row y is charged to link y at most.
        low, high = np.minimum(y, end_y) + down, np.maximum(y, end_y) + down
        _run(np.swapaxes(along, 1, 2), candidate, low, high, column)
        return LinkLoads(grid=grid, counts=(across[:, None], along[:, None]))


def _run(counts: Ints, candidate: Ints, first: Ints, last: Ints, other: Ints) -> None:
    """Add one to links ``first`` to ``last`` - 1 of the second axis, in column ``other``."""
    length = counts.shape[1]
    difference = np.zeros((len(counts), length + 1, counts.shape[2]), np.int64)
    np.add.at(difference, (candidate, first, other), 1)
    np.add.at(difference, (candidate, last, other), -1)
    counts += difference.cumsum(axis=1)[:, :length]
