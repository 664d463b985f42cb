"""The best tile and split of K for a matrix product: every one that fits is a candidate.

Every power of two that fits is tried, for all shapes at once, but for those that cannot be the
fastest; see `crosstack.model.kernels.waves` for what a candidate takes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.machine.compute import Compute
from crosstack.machine.memory import Scope
from crosstack.model.kernels.strips import Candidates, Tiled
from crosstack.model.kernels.waves import Schedules, least_time, no_less, schedules, time_of
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats, Ints

if TYPE_CHECKING:
    from crosstack.model.kernels.roofline import Roofline


LARGEST_TILE = 2**14
MOST_SPLITS = 64
FEW_SHAPES = 8  # of which all candidates are timed sooner than they are told apart [1]
# As many as stay in the processor's cache, with all candidates of a shape, or orders of a pair. [1]
SHAPES_AT_ONCE = 256
PAIRS_AT_ONCE = 4096
NEAR = 1 + 1e-9  # what bounds and times may be off by rounding [1]


@lru_cache(maxsize=64)
def _candidates(chip: Chip, dtype: Dtype, clock: Roofline) -> Candidates:
    """Return every tile whose partial sums and operands fit, and every split of K, apart.

    Partial sums take ``tile_m tile_n accumulator_word`` of the registers' share; ``stages`` steps
    of the operands, in use and on their way, ``(tile_m + tile_n) k_step word`` each of the levels
    of the multiprocessor. Where there is neither, only the arrays hold anything: a tile of their
    size.
    """
    compute = chip.compute
    shares = _unit_shares(compute)
    smallest = np.ceil(np.log2(compute.rows))
    powers = 2.0 ** np.arange(smallest, max(np.log2(LARGEST_TILE), smallest) + 1)
    m, n = (axis.ravel() for axis in np.meshgrid(powers, powers, indexing="ij"))
    units_m, units_n = _shared_by_units(shares, m, n)
    resident = _resident(chip, dtype, clock, m, n)
    fits = resident >= 1
    least = np.minimum(m / units_m, n / units_n)
    for_all = fits & (least >= clock.smallest_unit_tile)
    if not for_all.any():
        for_all = fits & (least >= np.max(least[fits], initial=0.0))
    one_wide = fits & (n == powers[0]) & (units_n == 1)
    keep = for_all | one_wide
    if not keep.any():  # nothing is held: a tile as large as the arrays of a multiprocessor
        units_m, units_n = np.array(shares, float).T
        m, n = compute.rows * units_m, compute.rows * units_n
        keep = for_all = np.ones(len(m), bool)
        resident, one_wide = np.ones(len(m)), units_n == 1
    columns = {
        "tile_m": m, "tile_n": n, "units_m": units_m, "units_n": units_n,
        "resident": np.maximum(resident, 1), "one_wide": one_wide, "for_all": for_all,
    }  # fmt: skip
    order = np.argsort(-(m * n)[keep], kind="stable")
    splits = 2.0 ** np.arange(np.log2(MOST_SPLITS) + 1)
    kept = {name: column[keep][order] for name, column in columns.items()}
    return Candidates(split=splits[:, None], **kept)


def _unit_shares(compute: Compute) -> list[tuple[int, int]]:
    """Return how the units of a multiprocessor may share the rows and columns of a tile. [1]"""
    units = max(compute.n_units // compute.n_multiprocessors, 1)
    small = [i for i in range(1, math.isqrt(units) + 1) if units % i == 0]
    return sorted({pair for i in small for pair in ((i, units // i), (units // i, i))})


def _shared_by_units(shares: list[tuple[int, int]], m: Floats, n: Floats) -> tuple[Floats, Floats]:
    """Return the shares with which units together read the fewest rows and columns. [1]"""
    best = np.stack([m * j + n * i for i, j in shares]).argmin(axis=0)
    units_m, units_n = np.array(shares, float)[best].T
    return units_m, units_n


def _resident(chip: Chip, dtype: Dtype, clock: Roofline, m: Floats, n: Floats) -> Floats:
    """Return how many tiles fit on a multiprocessor at a time, 0 where not one does. [1]"""
    registers = _of_multiprocessor(chip, Scope.UNIT)
    room = _of_multiprocessor(chip, Scope.MULTIPROCESSOR)
    sums = (registers or room) * clock.accumulator_share
    resident = np.floor(sums / (m * n * clock.accumulator_word))
    if room:
        held = clock.stages * (m + n) * clock.k_step * dtype.size
        resident = np.minimum(resident, np.floor(room / held))
    return np.asarray(resident)


def tile_time(
    chip: Chip,
    dtype: Dtype,
    clock: Roofline,
    tile: tuple[int, int],
    shape: tuple[Floats, Floats, Floats],
) -> Floats:
    """Time of products whose kernel takes one tile of C for all, as it lies, without a launch. [s]

    Of what passes main memory nothing counts. Steps of K come one after the other: a tile has
    ``stages - 1`` of them on their way, each for a latency of main memory (Little's law).

    Parameters
    ----------
    tile : tuple of int
        Its rows and columns; at least one has to fit on a multiprocessor. [1]
    shape : tuple of ndarray, each of shape (shapes,)
        M, K and N. [1]
    """
    m, k, n = shape
    tile_m, tile_n = np.full_like(m, tile[0]), np.full_like(n, tile[1])
    units_m, units_n = _shared_by_units(_unit_shares(chip.compute), tile_m, tile_n)
    resident = np.maximum(_resident(chip, dtype, clock, tile_m, tile_n), 1)
    no, yes = np.zeros(len(m), np.bool_), np.ones(len(m), np.bool_)
    pairs = Candidates(
        tile_m=tile_m, tile_n=tile_n, split=np.ones_like(m), units_m=units_m, units_n=units_n,
        resident=resident, one_wide=no, for_all=yes,
    )  # fmt: skip
    found = schedules(
        Tiled(chip=chip, dtype=dtype, clock=clock, pairs=pairs, m=m, k=k, n=n, turned=no)
    )
    most = np.ceil(found.n_tiles / chip.compute.n_multiprocessors)
    steps = np.ceil(k / clock.k_step) / max(clock.stages - 1, 1)
    fed = np.ceil(most / resident) * steps * chip.main_memory.latency
    return np.maximum(found.busiest_time, fed)


def _of_multiprocessor(chip: Chip, scope: Scope) -> float:
    """Return what one multiprocessor has of the smallest level of ``scope``; 0 without one. [B]"""
    found = [level.room for level in chip.levels if level.scope is scope]
    return min(found) / chip.compute.n_multiprocessors if found else 0.0


def best_schedules(
    chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, clock: Roofline
) -> Schedules:
    """Return the fastest candidate for every shape, without a launch; of equal the largest tile.

    The busiest multiprocessor makes ``ceil(tiles / multiprocessors)`` tiles. Each takes the slowest
    of compute and of the levels it moves data through; the multiprocessors share the bandwidth of
    the chip's levels. Nothing hides a tile's way in and out: the latency of main memory and the
    array's fill and drain, which tiles that share a multiprocessor wait for together, and the bytes
    of its first ``k_step`` of operands and of its results. A tile alone on its multiprocessor also
    waits for the multiprocessor's memory at every ``k_step``. The kernel takes the longer of the
    busiest multiprocessor and main memory. K is split where whole tiles would leave multiprocessors
    idle; the sums are then added up by a second kernel. A product with a vector may also be cut
    into tiles one array wide, whose sums the last multiprocessor adds (``osama2023streamk``): it
    reads the matrix once, and little else takes time. What is stored by rows is its transpose
    stored by columns, so that a product and its transpose are the same work: the one with N > M is
    timed as the other.

    Candidates that another one of the same shape beats for certain are left out before all orders
    of their tiles are tried; see `_Search`.

    Source: ardalani2022deepflow, 6.1 and 6.2; thakkar2023cutlass; osama2023streamk.

    Parameters
    ----------
    m, k, n : ndarray, shape (shapes,)
        Products of M x K by K x N. [1]
    """
    turned = n > m
    search = _Search(
        chip=chip,
        dtype=dtype,
        clock=clock,
        m=np.maximum(m, n),
        k=k,
        n=np.minimum(m, n),
        turned=turned,
    )
    return _turned_back(schedules(search.best()), turned)


def _turned_back(found: Schedules, turned: Bools) -> Schedules:
    """Name the sides as the caller does where M and N were exchanged."""
    tiles = tuple(np.where(turned[:, None], tile[:, ::-1], tile) for tile in found.tiles)
    m, k, n = found.reuse_shape
    shape = np.where(turned, n, m), k, np.where(turned, m, n)
    a, b, c = found.operands
    operands = np.where(turned, b, a), np.where(turned, a, b), c
    return replace(found, tiles=tiles, reuse_shape=shape, operands=operands)


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Numbers of shapes, of splits and of tiles, (pairs,) each; by shape, then as candidates."""

    shape: Ints
    split: Ints
    tile: Ints

    @classmethod
    def where(cls, good: Bools) -> _Pairs:
        """Return the pairs that are good; the array is (shapes, splits, tiles)."""
        shape, candidate = np.divmod(np.flatnonzero(good), good[0].size)
        return cls(shape, *np.divmod(candidate, good.shape[-1]))

    def at(self, rows: Ints | Bools | slice) -> _Pairs:
        """Return some of them."""
        return _Pairs(self.shape[rows], self.split[rows], self.tile[rows])

    def first(self, good: Bools) -> _Pairs:
        """Return the first good one of every shape; each has one."""
        rows = np.flatnonzero(good)
        return self.at(rows[np.searchsorted(self.shape[rows], np.arange(self.shape[-1] + 1))])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Search:
    """The search of the best candidate for every shape; arrays are (shapes,). [1]

    A bound of every pair, then a sharper one of what is left, is a time that it cannot beat. The
    pair with the least bound of each shape is timed in all orders of its tiles, and pairs whose
    bound is longer than that are left out. What is left is timed, and the fastest chosen.
    """

    chip: Chip
    dtype: Dtype
    clock: Roofline
    m: Floats
    k: Floats
    n: Floats
    turned: Bools

    def best(self) -> Tiled:
        """Return every shape with its fastest candidate; of equal the largest tile."""
        if len(self.m) < FEW_SHAPES:
            pairs = _Pairs.where(_allowed(self._grid(slice(None))))
        else:
            pairs, upper = self._not_beaten()
            bound = self._of(least_time, pairs)
            first = pairs.first(bound <= _least(bound, pairs)[pairs.shape])
            upper = np.minimum(upper, self._of(time_of, first))
            pairs = pairs.at(bound <= upper[pairs.shape] * NEAR)
        time = self._of(time_of, pairs)
        best = _least(time, pairs)[pairs.shape]
        return self._tiled(pairs.first(time <= best * (1 + 1e-12)))

    def _not_beaten(self) -> tuple[_Pairs, Floats]:
        """Return pairs that multiplying and main memory alone do not rule out, and a time. [s]

        That of a good candidate of every shape.
        """
        blocks = []
        for start in range(0, len(self.m), SHAPES_AT_ONCE):
            tiled = self._grid(slice(start, start + SHAPES_AT_ONCE))
            blocks.append(np.where(_allowed(tiled), no_less(tiled), np.inf))
        bounds = np.concatenate(blocks)
        least = bounds.reshape(len(bounds), -1).argmin(axis=1)
        split, tile = np.divmod(least, bounds.shape[-1])
        upper = self._of(time_of, _Pairs(np.arange(len(bounds)), split, tile))
        return _Pairs.where(bounds <= (upper * NEAR)[:, None, None]), upper

    def _of(self, time: Callable[[Tiled], Floats], pairs: _Pairs) -> Floats:
        """Return what ``time`` says of pairs, some at a time. [s]"""
        steps = range(0, len(pairs.shape), PAIRS_AT_ONCE)
        some = (pairs.at(slice(start, start + PAIRS_AT_ONCE)) for start in steps)
        return np.concatenate([time(self._tiled(each)) for each in some])

    def _grid(self, some: slice) -> Tiled:
        """Return some shapes with all candidates; arrays broadcast to (shapes, splits, tiles)."""
        return self._with(self._candidates, (some, None, None))

    def _tiled(self, pairs: _Pairs) -> Tiled:
        """Return pairs with what they are of."""
        return self._with(self._candidates.at(pairs.split, pairs.tile), pairs.shape)

    @property
    def _candidates(self) -> Candidates:
        return _candidates(self.chip, self.dtype, self.clock)

    def _with(self, pairs: Candidates, shape: Any) -> Tiled:
        """Return candidates with the sides of their shapes, which an index picks."""
        return Tiled(
            chip=self.chip,
            dtype=self.dtype,
            clock=self.clock,
            pairs=pairs,
            m=self.m[shape],
            k=self.k[shape],
            n=self.n[shape],
            turned=self.turned[shape],
        )


def _allowed(tiled: Tiled) -> Bools:
    """Whether a candidate is one of a shape, (shapes, splits, tiles).

    K is split where multiprocessors are idle and every part is a step long.
    """
    cand, clock = tiled.pairs, tiled.clock
    whole = np.ceil(tiled.m / cand.tile_m) * np.ceil(tiled.n / cand.tile_n)
    idle = whole < tiled.chip.compute.n_multiprocessors
    useful = cand.for_all | (tiled.n <= 1)
    long = tiled.k >= cand.split * clock.k_step
    return np.asarray((idle & useful & long) | (useful & (cand.split == 1)))


def _least(times: Floats, pairs: _Pairs) -> Floats:
    """Return the least time of the pairs of every shape. [s]"""
    starts = np.searchsorted(pairs.shape, np.arange(pairs.shape[-1] + 1))
    return np.asarray(np.minimum.reduceat(times, starts))
