"""The order in which the tiles of a product run, and what the shared levels then read.

Tiles run in waves, in strips that turn back; see `crosstack.model.kernels.waves`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.machine.chip import Chip
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats, Ints

if TYPE_CHECKING:
    from crosstack.model.kernels.roofline import Roofline


MOST_DOUBLINGS = 12


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidates:
    """Tiles of C and splits of K, whole K first; arrays are (pairs,).

    Of all candidates tiles are (tiles,), the largest first, and splits (splits, 1). ``units_m x
    units_n`` is how the units of a multiprocessor share a tile; ``resident`` tiles fit on a
    multiprocessor at a time. In ``one_wide`` tiles every unit has rows of its own, one array wide;
    only a vector takes those that are not ``for_all``.
    """

    tile_m: Floats
    tile_n: Floats
    split: Floats
    units_m: Floats
    units_n: Floats
    resident: Floats
    one_wide: Bools
    for_all: Bools

    def at(self, split: Ints, tile: Ints) -> Candidates:
        """Return pairs of a split and a tile, by their numbers among all."""
        tiles = {
            name: getattr(self, name)[tile] for name in type(self).__slots__ if name != "split"
        }
        return Candidates(split=self.split[split, 0], **tiles)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tiled:
    """Products of M x K by K x N and the candidate of each; arrays are (pairs,). [1]

    ``turned`` are products whose transpose was asked for.
    """

    chip: Chip
    dtype: Dtype
    clock: Roofline
    pairs: Candidates
    m: Floats
    k: Floats
    n: Floats
    turned: Bools

    @property
    def shared(self) -> list[MemoryLevel]:
        """Levels that all multiprocessors share, innermost first."""
        return [level for level in self.chip.levels if level.scope is Scope.CHIP]


def shared_blocks(
    tiled: Tiled,
) -> tuple[list[tuple[Floats, Floats]], list[Floats], NDArray[np.intp]]:
    """Return the block of C that each shared level serves, what it reads of A and B, the order.

    The innermost serves a wave (`_waves`), in one of the `_orders`. A level outside it serves the
    largest block whose rows of A and columns of B fit in one of its parts. [1], [B], [1]
    """
    shared, size = tiled.shared, tiled.dtype.size
    m, k, n = tiled.m, tiled.k, tiled.n
    if not shared:
        return [], [], np.zeros(len(m), np.intp)
    a, b = m * k * size, n * k * size
    block_m, block_n, moved, order = _waves(shared[0], tiled)
    found, reads = [(block_m, block_n)], [moved]
    for level in shared[1:]:
        part = _part(level)
        for doubling in range(MOST_DOUBLINGS):
            side_m = np.minimum(found[0][0] * 2.0**doubling, m)
            side_n = np.minimum(part / (k * size) - side_m, n)
            again = a * np.ceil(n / np.maximum(side_n, 1)) + b * np.ceil(m / side_m)
            again = np.where(side_n >= found[0][1], again, np.inf)
            less = again < moved
            moved = np.where(less, again, moved)
            block_m = np.where(less, side_m, block_m)
            block_n = np.where(less, side_n, block_n)
        moved = np.where(a + b <= part, a + b, moved)
        found.append((block_m, block_n))
        reads.append(moved)
    return found, reads, order


@lru_cache(maxsize=8)
def _orders(longest: int) -> tuple[Bools, Bools, Floats]:
    """Return every order of tiles, arrays that broadcast to (2, 2, widths, 1).

    Whether all that fit on a multiprocessor at a time make a wave, whether strips lie along N, and
    how many tiles they are wide. [1]
    """
    ways = np.array([True, False])
    widths = 2.0 ** np.arange(np.log2(longest) + 1)
    return ways[:, None, None, None], ways[:, None, None], widths[:, None]


def _waves(level: MemoryLevel, tiled: Tiled) -> tuple[Floats, Floats, Floats, NDArray[np.intp]]:
    """Return the sides of a wave, what ``level`` reads of A and B from outside, and the order.

    Tiles are taken in strips, up to `Roofline.longest_strip` across, along either axis. A wave is
    then a rectangle and reads its rows of A and columns of B once. Tiles that share a
    multiprocessor keep in step only while what the wave reads fits in the level; where it does not,
    one tile of each multiprocessor at a time makes a wave. Where a wave reads no more than one part
    of the level holds, the strip's own operand stays until the next wave; where A and B are no
    more, each is read once. [1], [1], [B], [1]
    """
    resident, along_n, width = _orders(tiled.clock.longest_strip)
    wave = _strip(_sides(tiled, along_n), _part(level), _at_once(tiled, resident), width)
    fits = (wave.read <= level.room) | (tiled.pairs.resident <= 1)
    moved = np.where(fits | ~resident, wave.moved, np.inf)
    sides = np.where(along_n, wave.side, wave.end), np.where(along_n, wave.end, wave.side)
    n_pairs = len(tiled.m)
    order = moved.reshape(-1, n_pairs).argmin(axis=0)
    found = (x.reshape(-1, n_pairs)[order, np.arange(n_pairs)] for x in (*sides, moved))
    return *found, order


def _part(level: MemoryLevel) -> float:
    """Return what one of the parts of a level holds. [B]"""
    return level.room / level.partitions


def _at_once(tiled: Tiled, resident: Bools) -> Floats:
    """Return the tiles of a wave, those that fit on every multiprocessor where ``resident``. [1]"""
    pairs, most = tiled.pairs, tiled.chip.compute.n_multiprocessors
    return np.maximum(most * np.where(resident, pairs.resident, 1.0) / pairs.split, 1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Sides:
    """C as strips of tiles see it: extent and tiles across a strip and along it.

    ``deep`` is what a row of A or a column of B has, ``whole`` A and B. [1], [B]
    """

    across: Floats
    along: Floats
    tile_across: Floats
    tile_along: Floats
    tiles_across: Floats
    tiles_along: Floats
    n_tiles: Floats
    deep: Floats
    whole: Floats


def _sides(tiled: Tiled, along_n: Bools) -> _Sides:
    """Return the sides of strips along N, or along M."""
    rows = tiled.m, tiled.pairs.tile_m, np.ceil(tiled.m / tiled.pairs.tile_m)
    columns = tiled.n, tiled.pairs.tile_n, np.ceil(tiled.n / tiled.pairs.tile_n)
    pairs = list(zip(rows, columns, strict=True))
    across = [np.where(along_n, a, b) for a, b in pairs]
    along = [np.where(along_n, b, a) for a, b in pairs]
    deep = tiled.k * tiled.dtype.size
    return _Sides(
        across=across[0],
        along=along[0],
        tile_across=across[1],
        tile_along=along[1],
        tiles_across=across[2],
        tiles_along=along[2],
        n_tiles=rows[2] * columns[2],
        deep=deep,
        whole=(tiled.m + tiled.n) * deep,
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Wave:
    """A wave: its ``side`` across a strip and its ``end`` along it, what it has ``read``.

    All waves ``moved``; of that ``once`` does what lies across strips, if that stays from wave to
    wave. [1], [B]
    """

    side: Floats
    end: Floats
    read: Floats
    moved: Floats
    once: Floats
    n_waves: Floats


def _strip(s: _Sides, part: float, at_once: Floats, width: ArrayLike) -> _Wave:
    """Return the waves of ``at_once`` tiles of strips ``width`` tiles across; see `_waves`."""
    # A strip that is shorter than a wave is widened until the wave is full.
    wide = np.minimum(np.maximum(width, at_once / s.tiles_along), s.tiles_across)
    long = np.clip(at_once / wide, 1, s.tiles_along)
    side = np.minimum(wide * s.tile_across, s.across)
    end = np.minimum(long * s.tile_along, s.along)
    read = (side + end) * s.deep
    n_waves = np.maximum(s.n_tiles / (wide * long), 1)
    once = (s.across + s.along * s.tiles_across / wide) * s.deep
    moved = np.where(read <= part, np.minimum(n_waves * read, once), n_waves * read)
    moved = np.where(s.whole <= part, s.whole, np.maximum(moved, s.whole))
    return _Wave(side, end, read, moved, once, n_waves)


def share_of_a(tiled: Tiled, order: NDArray[np.intp], tiles: tuple[Floats, ...]) -> Floats:
    """Return the share of A in what chosen schedules read of A and B from main memory. [1]

    Of what passes a level in waves each side of a wave has the share of its length; where one
    operand stays from wave to wave, it is read once.

    Parameters
    ----------
    tiled : Tiled
        Every product with the candidate that was chosen.
    order : ndarray, shape (shapes,)
        As `shared_blocks` returns it.
    tiles : tuple of ndarray, shape (shapes, 3)
        What each level serves.
    """
    chip, pairs, shared = tiled.chip, tiled.pairs, tiled.shared
    m, n = tiled.m, tiled.n
    if not shared:
        side_m, side_n = np.minimum(pairs.tile_m, m), np.minimum(pairs.tile_n, n)
        return np.asarray(side_m / (side_m + side_n))
    orders = np.broadcast_arrays(*_orders(tiled.clock.longest_strip))
    resident, along_n, width = (x.ravel()[order] for x in orders)
    part, s = _part(shared[0]), _sides(tiled, along_n)
    wave = _strip(s, part, _at_once(tiled, resident), width)
    stays = (wave.read <= part) & (wave.once < wave.n_waves * wave.read)
    share = np.where(stays, s.across * s.deep / wave.once, wave.side / (wave.side + wave.end))
    share = np.where(along_n, share, 1 - share)
    share = np.where(s.whole <= part, m / (m + n), share)
    of_all = zip(chip.storage, tiles, strict=True)
    served = [tile for level, tile in of_all if any(level is each for each in shared)]
    for level, before, block in zip(shared[1:], served, served[1:], strict=False):
        a = m * np.ceil(n / np.maximum(block[:, 2], 1))
        b = n * np.ceil(m / block[:, 0])
        share = np.where((block != before).any(axis=1), a / (a + b), share)
        share = np.where(s.whole <= _part(level), m / (m + n), share)
    return np.asarray(share)
