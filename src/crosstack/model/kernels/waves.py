"""A matrix product in waves: the tile of every multiprocessor, and what moves between levels.

A multiprocessor makes one tile of C at a time over all of K, or a part of K where it is split. Its
units share the tile; the tile's partial sums stay in the registers, its operands pass through the
levels of the multiprocessor. All multiprocessors work on a *wave* of tiles at a time. Every power
of two that fits is tried, for all shapes at once: arrays run over pairs of a shape and a candidate.

A matrix times a vector has no use for a wide tile: its own are one array wide, and whoever is last
adds the sums of a split K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from crosstack.machine.chip import Chip
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.model.kernels.strips import Candidates, Tiled, share_of_a, shared_blocks
from crosstack.model.kernels.systolic import fill_and_drain_cycles, register_accesses, reuse_of
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats

if TYPE_CHECKING:
    from crosstack.model.kernels.roofline import Roofline


LARGEST_TILE = 2**14
MOST_SPLITS = 64
WIDEST = 256  # columns of an instruction that reads operands from shared memory (nvidia_ptx)
Record = TypeVar("Record", "Candidates", "Schedules")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedules:
    """One schedule for every shape; the fields of `crosstack.model.kernels.clock.KernelTime`.

    Arrays are (shapes,); ``traffic``, ``passing``, ``bandwidths`` and ``tiles`` are one array a
    level, those of ``tiles`` (shapes, 3). ``operands`` are those of main memory: of A, of B and of
    C. ``order`` is that of `crosstack.model.kernels.strips`.
    """

    time: Floats
    busiest_time: Floats
    compute_time: Floats
    waiting_time: Floats
    reduction_time: Floats
    split: Floats
    n_tiles: Floats
    reuse_shape: tuple[Floats, Floats, Floats]
    traffic: tuple[Floats, ...]
    passing: tuple[Floats, ...]
    bandwidths: tuple[Floats, ...]
    tiles: tuple[Floats, ...]
    operands: tuple[Floats, ...]
    order: NDArray[np.intp]


@lru_cache(maxsize=64)
def _candidates(chip: Chip, dtype: Dtype, clock: Roofline) -> Candidates:
    """Return every tile whose partial sums and operands fit, with every split of K.

    Partial sums take ``tile_m tile_n accumulator_word`` of the registers' share; two steps of the
    operands, one in use and one on its way, ``2 (tile_m + tile_n) k_step word`` of the levels of
    the multiprocessor. Where there is neither, only the arrays hold anything: a tile of their size.
    """
    compute = chip.compute
    units = max(compute.n_units // compute.n_multiprocessors, 1)
    small = [i for i in range(1, math.isqrt(units) + 1) if units % i == 0]
    shares = sorted({pair for i in small for pair in ((i, units // i), (units // i, i))})
    smallest = np.ceil(np.log2(compute.rows))
    powers = 2.0 ** np.arange(smallest, max(np.log2(LARGEST_TILE), smallest) + 1)
    m, n = (axis.ravel() for axis in np.meshgrid(powers, powers, indexing="ij"))
    # Units share a tile so that together they read the fewest rows and columns.
    best = np.stack([m * j + n * i for i, j in shares]).argmin(axis=0)
    units_m, units_n = np.array(shares, float)[best].T

    registers = _of_multiprocessor(chip, Scope.UNIT)
    room = _of_multiprocessor(chip, Scope.MULTIPROCESSOR)
    sums = (registers or room) * clock.accumulator_share
    resident = np.floor(sums / (m * n * clock.accumulator_word))
    if room:
        resident = np.minimum(resident, np.floor(room / (2 * (m + n) * clock.k_step * dtype.size)))
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
    splits = 2.0 ** np.arange(np.log2(MOST_SPLITS) + 1)
    order = np.argsort(-(m * n)[keep], kind="stable")
    columns = {
        "tile_m": m, "tile_n": n, "units_m": units_m, "units_n": units_n,
        "resident": np.maximum(resident, 1), "one_wide": one_wide, "for_all": for_all,
    }  # fmt: skip
    repeated = {name: np.tile(x[keep][order], len(splits)) for name, x in columns.items()}
    return Candidates(split=np.repeat(splits, len(order)), **repeated)


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

    Source: ardalani2022deepflow, 6.1 and 6.2; thakkar2023cutlass; osama2023streamk.

    Parameters
    ----------
    m, k, n : ndarray, shape (shapes,)
        Products of M x K by K x N. [1]
    """
    cand = _candidates(chip, dtype, clock)
    turned = n > m
    m, n = np.maximum(m, n), np.minimum(m, n)
    whole = np.ceil(m[:, None] / cand.tile_m) * np.ceil(n[:, None] / cand.tile_n)
    idle = (whole < chip.compute.n_multiprocessors) & (k[:, None] >= cand.split * clock.k_step)
    useful = cand.for_all | (n[:, None] <= 1)
    shape, which = np.nonzero(((cand.split == 1) | idle) & useful)
    tiled = Tiled(
        chip=chip, dtype=dtype, clock=clock, pairs=_picked(cand, which),
        m=m[shape], k=k[shape], n=n[shape], turned=turned[shape],
    )  # fmt: skip
    found = _timed(tiled)
    starts = np.searchsorted(shape, np.arange(len(m)))
    least = np.minimum.reduceat(found.time, starts)
    equal = np.nonzero(found.time <= least[shape] * (1 + 1e-12))[0]
    first = equal[np.searchsorted(shape[equal], np.arange(len(m)))]
    picked = _picked(found, first)
    best = _picked(cand, which[first])
    chosen = replace(tiled, pairs=best, m=m, k=k, n=n, turned=turned)
    reads, out = picked.operands
    read = reads * share_of_a(chosen, picked.order, picked.tiles)
    operands = (read, reads - read, out)
    return _turned_back(replace(picked, operands=operands), turned)


def _turned_back(found: Schedules, turned: Bools) -> Schedules:
    """Name the sides as the caller does where M and N were exchanged."""
    tiles = tuple(np.where(turned[:, None], tile[:, ::-1], tile) for tile in found.tiles)
    m, k, n = found.reuse_shape
    shape = np.where(turned, n, m), k, np.where(turned, m, n)
    a, b, c = found.operands
    operands = np.where(turned, b, a), np.where(turned, a, b), c
    return replace(found, tiles=tiles, reuse_shape=shape, operands=operands)


def _picked(found: Record, rows: NDArray[np.intp]) -> Record:
    """Return some rows of every column of a record."""
    picked: dict[str, Any] = {
        name: tuple(v[rows] for v in value) if isinstance(value, tuple) else value[rows]
        for name, value in ((name, getattr(found, name)) for name in type(found).__slots__)
    }
    return type(found)(**picked)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """What products with their tiles have to do; arrays are (pairs,).

    ``most`` tiles are made by the busiest multiprocessor, ``busy`` multiprocessors work on average.
    A tile reads ``loaded``, of which it holds ``held`` and ``alone`` would be its part of what a
    cluster reads together, and writes ``result``; all tiles make ``out``, by way of ``sums`` where
    K is split. Past the edge of the matrices nothing is moved, but multiplied all the same.
    [1], [B]
    """

    depth: Floats
    n_tiles: Floats
    most: Floats
    busy: Floats
    split: Bools
    loaded: Floats
    held: Floats
    alone: Floats
    first: Floats
    result: Floats
    out: Floats
    sums: Floats


def _work(tiled: Tiled) -> _Work:
    compute, size, clock = tiled.chip.compute, tiled.dtype.size, tiled.clock
    pairs, m, k, n = tiled.pairs, tiled.m, tiled.k, tiled.n
    deep = compute.elements_deep(tiled.dtype)
    depth = np.ceil(k / pairs.split / deep) * deep
    n_tiles = np.ceil(m / pairs.tile_m) * np.ceil(n / pairs.tile_n) * pairs.split
    most = np.ceil(n_tiles / compute.n_multiprocessors)
    split = pairs.split > 1
    real_m, real_n = np.minimum(pairs.tile_m, m), np.minimum(pairs.tile_n, n)
    row = depth * size
    return _Work(
        held=_shared_out(real_m, real_n, compute.paired) * row,
        alone=_shared_out(real_m, real_n, compute.cluster) * row,
        depth=depth,
        n_tiles=n_tiles,
        most=most,
        busy=n_tiles / most,
        split=split,
        loaded=(real_m + real_n) * row,
        first=(real_m + real_n) * np.minimum(depth, clock.k_step) * size,
        result=real_m * real_n * np.where(split, clock.accumulator_word, size),
        out=m * n * size,
        sums=np.where(split, m * n * clock.accumulator_word * pairs.split, 0.0),
    )


def _shared_out(rows: Floats, columns: Floats, ways: int) -> Floats:
    """Return the fewest rows and columns for each of ``ways`` neighbours with a rectangle of tiles.

    Those beside one another share rows, those below one another columns. [1]
    """
    found = rows + columns
    for across in range(1, ways + 1):
        if ways % across == 0:
            found = np.minimum(found, rows / across + columns / (ways // across))
    return np.asarray(found)


def _timed(tiled: Tiled) -> Schedules:
    """Time every pair of a shape and a candidate; see `best_schedules`."""
    chip, pairs, m, k, n = tiled.chip, tiled.pairs, tiled.m, tiled.k, tiled.n
    compute, memory, shared = chip.compute, chip.main_memory, tiled.shared
    work = _work(tiled)
    blocks, reads, order = shared_blocks(tiled)
    reads = [work.alone * work.n_tiles, *reads]  # A and B out of each shared level, main memory
    traffic, passing, bandwidths, tiles = _on_chip(tiled, work, blocks, reads)
    paired = zip(traffic, bandwidths, strict=True)
    of_tile = [moved / work.n_tiles * work.busy / rate for moved, rate in paired]

    # Partial sums that the outermost level on the chip cannot keep go to main memory and back.
    spills = work.sums > (shared[-1].room if shared else 0.0)
    spilled = np.where(spills, 2 * work.sums, 0.0)
    traffic.append(reads[-1] + work.out + spilled)
    passing.append(np.zeros_like(m))
    bandwidths.append(np.full_like(m, memory.speed))
    tiles.append(np.stack([m, k, n], axis=-1))

    feed = shared[0] if shared else memory
    multiplied = 2 * pairs.tile_m * pairs.tile_n * work.depth
    each = multiplied / (chip.throughput(tiled.dtype) / compute.n_multiprocessors)
    waiting = _waiting(tiled, feed, work)
    adding = np.where(spills, memory.speed, feed.speed)
    second = chip.launch_overhead + (work.sums + work.out) / adding
    at_once = pairs.one_wide & (n <= 1)
    last = np.where(spills, memory.latency, feed.latency)  # its bytes are in the traffic
    reduction = np.where(work.split, np.where(at_once, last, second), 0.0)
    computing, inside = work.most * each, work.most * np.maximum.reduce([each, *of_tile])
    outside = traffic[-1] / memory.speed + memory.latency
    share = tiled.clock.clock_share(
        chip, computing * work.busy / compute.n_multiprocessors, inside + waiting, outside
    )
    busiest = waiting + inside / share
    return Schedules(
        time=np.maximum(busiest, outside) + reduction,
        busiest_time=busiest,
        compute_time=computing / share,
        waiting_time=waiting,
        reduction_time=reduction,
        split=pairs.split,
        n_tiles=work.n_tiles,
        reuse_shape=(pairs.tile_m / pairs.units_m, work.depth, pairs.tile_n / pairs.units_n),
        traffic=tuple(traffic),
        passing=tuple(passing),
        bandwidths=(*(rate * share for rate in bandwidths[:-1]), bandwidths[-1]),
        tiles=tuple(tiles),
        operands=(reads[-1], work.out + spilled),
        order=order,
    )


def _on_chip(
    tiled: Tiled, work: _Work, blocks: list[tuple[Floats, Floats]], reads: list[Floats]
) -> tuple[list[Floats], list[Floats], list[Floats], list[Floats]]:
    """Return what the levels on the chip move, pass on, give, and the tile each serves.

    They pass on between their parts, and give to the multiprocessors that work. [B], [B], [B/s],
    [1]
    """
    chip, dtype, shared = tiled.chip, tiled.dtype, tiled.shared
    compute, pairs, depth = chip.compute, tiled.pairs, work.depth
    unit_m, unit_n = pairs.tile_m / pairs.units_m, pairs.tile_n / pairs.units_n
    traffic, passing, bandwidths, tiles = (list[Floats]() for _ in range(4))
    for place, level in enumerate(chip.levels):
        if level.scope is Scope.CHIP:
            i = shared.index(level)
            moved = reads[i] + work.out
            if i == 0:  # and what a second kernel adds up
                moved = reads[i] + (work.result * work.n_tiles + work.sums + work.out * work.split)
            traffic.append(moved)
            far = 1 - 1 / level.partitions
            passing.append(far * (reads[i + 1] + work.result * work.n_tiles))
            bandwidths.append(np.full_like(moved, level.speed))
            tiles.append(np.stack([blocks[i][0], depth, blocks[i][1]], axis=-1))
            continue
        if place == 0 and level.scope is Scope.UNIT:
            reuse = _reuse(tiled, work, unit_m, unit_n)
            multiplied = 2 * pairs.tile_m * pairs.tile_n * depth
            moved = register_accesses(multiplied, reuse, compute, dtype) * dtype.size
            tile = [unit_m, np.full_like(unit_m, compute.elements_deep(dtype)), unit_n]
        else:  # units read what they need; what comes in from outside and the results are written
            moved = _operands(tiled) * depth * dtype.size + work.held + work.result
            tile = [pairs.tile_m, np.minimum(depth, tiled.clock.k_step), pairs.tile_n]
        traffic.append(moved * work.n_tiles)
        passing.append(np.zeros_like(moved))
        bandwidths.append(level.speed * work.busy / compute.n_multiprocessors)
        tiles.append(np.stack(tile, axis=-1))
    return traffic, passing, bandwidths, tiles


def _operands(tiled: Tiled) -> Floats:
    """Return the rows of A and columns of B that units read of a tile, for each step of K. [1]

    Into registers each unit reads what its part of the tile needs. An instruction that reads both
    from the memory of the multiprocessor has ``operand_rows`` of the one, reads the other for
    each of them, and that of both halves of a pair once; either side of the tile may be the rows.
    """
    compute, pairs = tiled.chip.compute, tiled.pairs
    if not compute.operand_rows:
        return np.asarray(pairs.tile_m * pairs.units_n + pairs.tile_n * pairs.units_m)
    m, n, rows = pairs.tile_m, pairs.tile_n, compute.operand_rows
    ways = [
        one * np.ceil(other / WIDEST) + other / compute.paired * np.ceil(one / rows)
        for one, other in ((m, n), (n, m))
    ]
    return np.minimum(*ways)


def _reuse(tiled: Tiled, work: _Work, unit_m: Floats, unit_n: Floats) -> Floats:
    """Return the reuse of what stays; of a turned product the other operand is the weight."""
    compute, turned = tiled.chip.compute, tiled.turned
    rows, columns = np.where(turned, unit_n, unit_m), np.where(turned, unit_m, unit_n)
    return reuse_of(compute, tiled.dtype, compute.dataflow, rows, work.depth, columns)


def _waiting(tiled: Tiled, feed: MemoryLevel, work: _Work) -> Floats:
    """Time of the busiest multiprocessor that nothing hides; operands come from ``feed``. [s]"""
    chip, resident = tiled.chip, tiled.pairs.resident
    compute = chip.compute
    array = fill_and_drain_cycles(compute, tiled.dtype) / compute.frequency
    once = chip.main_memory.latency + array + feed.latency
    moved = (work.first + work.result) / (feed.speed / work.busy)
    waiting = np.ceil(work.most / resident) * once + work.most * moved
    local = [level for level in chip.levels if level.scope is not Scope.CHIP]
    stall = np.ceil(work.depth / tiled.clock.k_step) * (local[-1].latency if local else 0.0)
    alone = np.minimum(resident, work.most) == 1
    return waiting + np.where(alone, work.most * stall, 0.0)
