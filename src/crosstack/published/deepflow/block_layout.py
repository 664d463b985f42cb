"""Placement of blocks on square packages in a row, as the public DeepFlow lays them out.

The dimensions of an order are placed outermost first. With y the degree of the innermost
dimension and x the product of those between, a block of the outermost dimension is

1. x wide and y high where that fits into the region,
2. as wide as the region and ``y (x // width)`` high where x is too wide,
3. as high as the region and ``(y // height) x`` wide where y is too high,
4. else a share of the packages.

Blocks run along x, row after row, every other row backwards, package after package; within each
the rest of the order is placed the same way. A dimension that is left alone stands in one column,
or runs up one column and down the next where it is longer than the region is high. Blocks that
leave a rest of the region fit nowhere: the source writes over their neighbours and stops. Source:
``deepflow_code``, device mapping.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.mapping.strategy import ParallelDimension

__all__ = ["block_positions"]

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class _Region:
    """``width`` x ``height`` chips from (x, y) on each of ``count`` packages from ``package``."""

    package: int
    count: int
    x: int
    y: int
    width: int
    height: int


def block_positions(degrees: tuple[int, ...], side: int, n_packages: int) -> Whole | None:
    """Return package, x and y of every shard; None where the blocks do not fit.

    Parameters
    ----------
    degrees : tuple of int
        Of the dimensions, innermost first, each above 1. [1]
    side : int
        Chips along each side of a package. [1]
    n_packages : int
        Packages in the row. [1]

    Returns
    -------
    int array, shape (degree of the outermost, ..., degree of the innermost, 3)
    """
    # The source places the dimensions of one shard as well, outermost: they tighten the region.
    whole = (*degrees, *[1] * (len(ParallelDimension) - len(degrees)))
    placed = _placed(whole, _Region(0, n_packages, 0, 0, side, side))
    return None if placed is None else placed.reshape(*degrees[::-1], 3)


def _placed(degrees: tuple[int, ...], region: _Region) -> Whole | None:
    if not degrees:
        return np.array([region.package, region.x, region.y])
    inner, outermost = degrees[:-1], degrees[-1]
    blocks = _blocks(inner, outermost, region) if inner else _columns(outermost, region)
    if blocks is None:
        return None
    parts = [_placed(inner, block) for block in blocks]
    return None if any(p is None for p in parts) else np.stack([p for p in parts if p is not None])


def _columns(count: int, region: _Region) -> list[_Region] | None:
    """Single chips, up one column and down the next."""
    if count > region.width * region.height * region.count:
        return None
    found = []
    for i in range(count):
        package, place = divmod(i, region.width * region.height)
        column, row = divmod(place, region.height)
        y = row if column % 2 == 0 else region.height - 1 - row
        found.append(_Region(region.package + package, 1, region.x + column, region.y + y, 1, 1))
    return found


def _blocks(inner: tuple[int, ...], count: int, region: _Region) -> list[_Region] | None:
    """Regions of the ``count`` blocks, or None where there is no room."""
    high = inner[0]
    wide = math.prod(inner[1:])
    if high <= region.height and wide <= region.width:
        width, height = wide, high
    elif wide > region.width and high * (wide // region.width) <= region.height:
        width, height = region.width, high * (wide // region.width)
    elif high > region.height and (high // region.height) * wide <= region.width:
        width, height = (high // region.height) * wide, region.height
    else:
        each = region.count // count
        if each == 0:
            return None
        starts = range(region.package, region.package + each * count, each)
        return [
            _Region(start, each, region.x, region.y, region.width, region.height)
            for start in starts
        ]
    columns, rows = region.width // width, region.height // height
    if region.width % width or region.height % height or columns * rows * region.count < count:
        return None
    found = []
    for i in range(count):
        package, place = divmod(i, columns * rows)
        row, column = divmod(place, columns)
        column = column if row % 2 == 0 else columns - 1 - column
        found.append(
            _Region(
                region.package + package,
                1,
                region.x + column * width,
                region.y + row * height,
                width,
                height,
            )
        )
    return found
