"""A matrix product in waves: the tile of every multiprocessor, and what moves between levels.

A multiprocessor makes one tile of C at a time over all of K, or a part of K where it is split. Its
units share the tile; the tile's partial sums stay in the registers, its operands pass through the
levels of the multiprocessor. All multiprocessors work on a *wave* of tiles at a time. Arrays run
over pairs of a shape and a candidate; `crosstack.model.kernels.tilings` finds the best of them.

A matrix times a vector has no use for a wide tile: its own are one array wide, and whoever is last
adds the sums of a split K.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.model.kernels.lanes import array_rate
from crosstack.model.kernels.strips import Tiled, share_of_a, shared_blocks
from crosstack.model.kernels.systolic import fill_and_drain_cycles, register_accesses, reuse_of
from crosstack.workload.kernel_graph import Bools, Floats

WIDEST = 256  # columns of an instruction that reads operands from shared memory (nvidia_ptx)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Schedules:
    """One schedule for every shape; the fields of `crosstack.model.kernels.clock.KernelTime`.

    Arrays are (shapes,); ``traffic``, ``passing``, ``bandwidths`` and ``tiles`` are one array a
    level, those of ``tiles`` (shapes, 3). ``operands`` are those of main memory: of A, of B and of
    C.
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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Work:
    """What products with their tiles have to do; arrays are (pairs,).

    ``most`` tiles are made by the busiest multiprocessor. A tile has ``real_m`` rows of A and
    ``real_n`` columns of B, ``row`` bytes each, ``first`` of which it waits for, and writes
    ``result``; all tiles make ``out``, by way of ``sums`` where K is split. Past the edge of the
    matrices nothing is moved, but multiplied all the same. [1], [B]
    """

    depth: Floats
    n_tiles: Floats
    most: Floats
    split: Bools
    real_m: Floats
    real_n: Floats
    row: Floats
    first: Floats
    result: Floats
    out: Floats
    sums: Floats

    @property
    def busy(self) -> Floats:
        """Multiprocessors that work, on average. [1]"""
        return self.n_tiles / self.most


def _work(tiled: Tiled) -> _Work:
    compute, size, clock = tiled.chip.compute, tiled.dtype.size, tiled.clock
    pairs, m, k, n = tiled.pairs, tiled.m, tiled.k, tiled.n
    deep = compute.elements_deep(tiled.dtype)
    depth = np.ceil(k / pairs.split / deep) * deep
    n_tiles = np.ceil(m / pairs.tile_m) * np.ceil(n / pairs.tile_n) * pairs.split
    most = np.ceil(n_tiles / compute.n_multiprocessors)
    split = pairs.split > 1
    real_m, real_n = np.minimum(pairs.tile_m, m), np.minimum(pairs.tile_n, n)
    return _Work(
        depth=depth,
        n_tiles=n_tiles,
        most=most,
        split=split,
        real_m=real_m,
        real_n=real_n,
        row=depth * size,
        first=(real_m + real_n) * (np.minimum(depth, clock.k_step) * size),
        result=real_m * real_n * np.where(split, clock.accumulator_word, size),
        out=m * n * size,
        sums=np.where(split, m * n * clock.accumulator_word * pairs.split, 0.0),
    )


def _shared_out(work: _Work, ways: int) -> Floats:
    """Return the least that each of ``ways`` neighbours with a rectangle of tiles reads of A and B.

    Those beside one another share rows, those below one another columns. [B]
    """
    rows, columns = work.real_m, work.real_n
    found = rows + columns
    for across in range(1, ways + 1):
        if ways % across == 0:
            found = np.minimum(found, rows / across + columns / (ways // across))
    return np.asarray(found * work.row)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Parts:
    """What the order of tiles changes nothing of; arrays are (pairs,).

    A tile takes ``each`` of the arrays, all of the busiest multiprocessor ``computing``, at the
    clock of the rates; ``waiting`` is hidden by nothing. Main memory moves ``made`` besides A and
    B; ``reduction`` adds up the sums of a split K. [s], [B]
    """

    work: _Work
    each: Floats
    computing: Floats
    waiting: Floats
    made: Floats
    reduction: Floats


def _parts(tiled: Tiled) -> _Parts:
    """Return what the order of tiles changes nothing of. [1], [B], [s]"""
    chip, pairs = tiled.chip, tiled.pairs
    memory, work, shared = chip.main_memory, _work(tiled), tiled.shared
    feed = shared[0] if shared else memory
    rate = array_rate(chip, tiled.dtype) / chip.compute.n_multiprocessors
    each = 2 * pairs.tile_m * pairs.tile_n / rate * work.depth
    # Partial sums that the outermost level on the chip cannot keep go to main memory and back.
    spills = work.sums > (shared[-1].room if shared else 0.0)
    adding = np.where(spills, memory.speed, feed.speed)
    second = chip.launch_overhead + (work.sums + work.out) / adding
    at_once = pairs.one_wide & (tiled.n <= 1)
    last = np.where(spills, memory.latency, feed.latency)  # its bytes are in the traffic
    return _Parts(
        work=work,
        each=each,
        computing=work.most * each,
        waiting=_waiting(tiled, feed, work),
        made=work.out + np.where(spills, 2 * work.sums, 0.0),
        reduction=np.where(at_once, work.split * last, work.split * second),
    )


def no_less(tiled: Tiled) -> Floats:
    """Time that pairs do not beat in any order of tiles, at any clock. [s]

    What multiplying takes at the highest clock, or main memory that moves every operand once.
    """
    parts, chip = _parts(tiled), tiled.chip
    outside = (_once(tiled) + parts.made) / chip.main_memory.speed + chip.main_memory.delay
    busiest = parts.waiting + parts.computing / chip.compute.boost
    return np.asarray(np.maximum(busiest, outside) + parts.reduction)


def least_time(tiled: Tiled) -> Floats:
    """Time that pairs do not beat in any order of tiles: each level reads operands once. [s]

    What main memory moves more makes the clock rise where that is the longer; the busiest
    multiprocessor is then shorter by what waits at the higher clock, at most.
    """
    parts = _parts(tiled)
    found = _clocked(tiled, parts, _reads(tiled, parts, [_once(tiled)] * len(tiled.shared)))
    return np.asarray(found.time - parts.waiting * max(1 - 1 / tiled.chip.compute.boost, 0.0))


def time_of(tiled: Tiled) -> Floats:
    """Time of every pair of a shape and a candidate, without a launch. [s]"""
    parts = _parts(tiled)
    return _clocked(tiled, parts, _reads(tiled, parts, shared_blocks(tiled)[1])).time


def _once(tiled: Tiled) -> Floats:
    """Return A and B. [B]"""
    return (tiled.m + tiled.n) * tiled.k * tiled.dtype.size


def _reads(tiled: Tiled, parts: _Parts, outer: list[Floats]) -> list[Floats]:
    """Return A and B out of each shared level and of main memory. [B]"""
    alone = _shared_out(parts.work, tiled.chip.compute.cluster)
    alone = alone * max(tiled.clock.line / (tiled.clock.k_step * tiled.dtype.size), 1.0)
    return [alone * parts.work.n_tiles, *outer]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Clocked:
    """Pairs at the clock that they run at; ``traffic`` and ``bandwidths`` by level. [s], [B]"""

    time: Floats
    busiest: Floats
    share: Floats
    traffic: list[Floats]
    bandwidths: list[Floats]


def _clocked(tiled: Tiled, parts: _Parts, reads: list[Floats]) -> _Clocked:
    """Time pairs whose levels read so much of A and B; see `best_schedules`."""
    chip, work, memory = tiled.chip, parts.work, tiled.chip.main_memory
    traffic, bandwidths = _on_chip(tiled, work, reads)
    paired, busy = zip(traffic, bandwidths, strict=True), work.busy
    of_tile = [moved / work.n_tiles * busy / rate for moved, rate in paired]
    traffic.append(reads[-1] + parts.made)
    outside = traffic[-1] / memory.speed + memory.delay
    inside = work.most * np.maximum.reduce([parts.each, *of_tile])
    of_all = parts.computing * busy / chip.compute.n_multiprocessors
    share = tiled.clock.clock_share(chip, of_all, inside + parts.waiting, outside)
    busiest = parts.waiting + inside / share
    return _Clocked(
        time=np.maximum(busiest, outside) + parts.reduction,
        busiest=busiest,
        share=share,
        traffic=traffic,
        bandwidths=bandwidths,
    )


def schedules(tiled: Tiled) -> Schedules:
    """Return all there is to say of products, each with the candidate that was chosen."""
    chip, pairs, parts = tiled.chip, tiled.pairs, _parts(tiled)
    work = parts.work
    blocks, outer, order = shared_blocks(tiled)
    reads = _reads(tiled, parts, outer)
    found = _clocked(tiled, parts, reads)
    tiles = _served(tiled, work, blocks)
    of_a = reads[-1] * share_of_a(tiled, order, tiles)
    speed = np.full_like(tiled.m, chip.main_memory.speed)
    return Schedules(
        time=found.time,
        busiest_time=found.busiest,
        compute_time=parts.computing / found.share,
        waiting_time=parts.waiting,
        reduction_time=parts.reduction,
        split=pairs.split,
        n_tiles=work.n_tiles,
        reuse_shape=(pairs.tile_m / pairs.units_m, work.depth, pairs.tile_n / pairs.units_n),
        traffic=tuple(found.traffic),
        passing=_passing(tiled, work, reads),
        bandwidths=(*(rate * found.share for rate in found.bandwidths), speed),
        tiles=tiles,
        operands=(of_a, reads[-1] - of_a, parts.made),
    )


def _on_chip(tiled: Tiled, work: _Work, reads: list[Floats]) -> tuple[list[Floats], list[Floats]]:
    """Return what the levels on the chip move, and give to the multiprocessors that work. [B]"""
    dtype, shared, compute = tiled.dtype, tiled.shared, tiled.chip.compute
    pairs, depth, busy = tiled.pairs, work.depth, work.busy
    traffic, bandwidths = list[Floats](), list[Floats]()
    for place, level in enumerate(tiled.chip.levels):
        if level.scope is Scope.CHIP:
            i = shared.index(level)
            moved = reads[i] + work.out
            if i == 0:  # and what a second kernel adds up
                moved = reads[i] + (work.result * work.n_tiles + work.sums + work.out * work.split)
            traffic.append(moved)
            bandwidths.append(np.full_like(moved, level.speed))
            continue
        if place == 0 and level.scope is Scope.UNIT:
            reuse = _reuse(tiled, work)
            multiplied = 2 * pairs.tile_m * pairs.tile_n * depth
            moved = register_accesses(multiplied, reuse, compute, dtype) * dtype.size
        else:  # units read what they need; what comes in from outside and the results are written
            held = _shared_out(work, compute.paired)
            moved = _operands(tiled) * depth * dtype.size + held + work.result
        traffic.append(moved * work.n_tiles)
        bandwidths.append(level.speed * busy / compute.n_multiprocessors)
    return traffic, bandwidths


def _passing(tiled: Tiled, work: _Work, reads: list[Floats]) -> tuple[Floats, ...]:
    """Return what passes between the parts of every level. [B]"""
    shared, found = tiled.shared, list[Floats]()
    for level in tiled.chip.storage:
        here = level.scope is Scope.CHIP and level in shared
        far = 1 - 1 / level.partitions if here else 0.0
        read = reads[shared.index(level) + 1] if here else np.zeros_like(tiled.m)
        found.append(far * (read + work.result * work.n_tiles))
    return tuple(found)


def _served(tiled: Tiled, work: _Work, blocks: list[tuple[Floats, Floats]]) -> tuple[Floats, ...]:
    """Return M, K and N of what every level serves at a time, (shapes, 3) each. [1]"""
    pairs, depth, shared = tiled.pairs, work.depth, tiled.shared
    unit_m, unit_n = pairs.tile_m / pairs.units_m, pairs.tile_n / pairs.units_n
    deep = np.full_like(unit_m, tiled.chip.compute.elements_deep(tiled.dtype))
    found = []
    for place, level in enumerate(tiled.chip.levels):
        if level.scope is Scope.CHIP:
            block_m, block_n = blocks[shared.index(level)]
            found.append((block_m, depth, block_n))
        elif place == 0 and level.scope is Scope.UNIT:
            found.append((unit_m, deep, unit_n))
        else:
            found.append((pairs.tile_m, np.minimum(depth, tiled.clock.k_step), pairs.tile_n))
    found.append((tiled.m, tiled.k, tiled.n))
    return tuple(np.stack(sides, axis=-1) for sides in found)


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


def _reuse(tiled: Tiled, work: _Work) -> Floats:
    """Return the reuse of what stays; of a turned product the other operand is the weight."""
    compute, turned, pairs = tiled.chip.compute, tiled.turned, tiled.pairs
    unit_m, unit_n = pairs.tile_m / pairs.units_m, pairs.tile_n / pairs.units_n
    rows, columns = np.where(turned, unit_n, unit_m), np.where(turned, unit_m, unit_n)
    return reuse_of(compute, tiled.dtype, compute.dataflow, rows, work.depth, columns)


def _waiting(tiled: Tiled, feed: MemoryLevel, work: _Work) -> Floats:
    """Time of the busiest multiprocessor that nothing hides; operands come from ``feed``. [s]"""
    chip, resident = tiled.chip, tiled.pairs.resident
    compute = chip.compute
    array = fill_and_drain_cycles(compute, tiled.dtype) / compute.frequency
    once = chip.main_memory.latency + array + feed.latency
    moved = (work.first + work.result) * work.n_tiles / feed.speed
    waiting = np.ceil(work.most / resident) * once + moved
    local = [level for level in chip.levels if level.scope is not Scope.CHIP]
    stall = np.ceil(work.depth / tiled.clock.k_step) * (local[-1].latency if local else 0.0)
    alone = (resident == 1) | (work.most == 1)
    return np.asarray(waiting + alone * (work.most * stall))
