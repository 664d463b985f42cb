"""Kernels as they were measured, beside what is said of them: how far off, and which way.

An error is the logarithm of what is said over what was measured, so that twice and half are as far.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from crosstack.errors import require
from crosstack.evaluate.product_tiles import KnownTile, ProductProgram, known_tile
from crosstack.machine.chip import Chip
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.model.kernels.tilings import tile_time
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats

# Borders of the classes of durations. [s]
DURATIONS = (1e-5, 1e-4, 1e-3)
GRAPH_LAUNCH = (
    2e-6  # of a kernel in a graph, 1.5 us on an A100, 2.2 on an H200 (``gpu_benches``) [s]
)
CALLS = (
    45  # of a product that is timed in a graph: of 3 graphs to warm up and 6 timed, of 5 each [1]
)
# Threads of the kernel that takes the largest number of a matrix, each with one number on its way:
# 1024 blocks of 256, computeFP8QuantizeScale (``tensorrt_llm_quantize``) [1]
SCALING_THREADS = 1024 * 256
STEADY = 50e-3  # of work until a chip lowers its clock (``flashinfer_2899``, a B200) [s]
RESULT = 2  # of a number of a result of such layers [B]
ONE_EFFICIENCY = 0.8  # of the plain roofline, of compute and of main memory [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How many products with weights of their own calls take in turn: ``most``. [1]

    ``filling``: no more of them than are larger than the last cache of the chip.
    """

    most: int
    filling: bool = False

    def stays(self, chip: Chip, weights: Floats, others: Floats | float) -> Bools:
        """Whether all that calls read and write stays in that cache. [B], [B]"""
        room = chip.last_cache.room if chip.last_cache else 0.0
        count = np.full_like(weights, self.most)
        if self.filling:
            count = np.clip(np.ceil(room / weights), 1, self.most)
        return np.asarray(count * weights + others <= room)


class Timed(StrEnum):
    """How a kernel was timed: repeated in a graph a few times, or by a loop of calls."""

    GRAPH = "graph"
    LOOP = "loop"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredProduct:
    """A product of M x K by K x N as it was measured on a chip. [1], [s]

    ``cast`` says whether it includes making numbers of ``dtype`` of A, which comes in 16 bits;
    ``result`` is what moves of each number of C as it is put down, if more than it has itself. [B]
    ``program``: what multiplies. ``turns``: of calls that are repeated, None where not known.
    """

    m: int
    k: int
    n: int
    dtype: Dtype
    time: float
    timed: Timed = Timed.LOOP
    cast: bool = False
    result: float = 0.0
    program: ProductProgram = ProductProgram.LIBRARY
    turns: Turns | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """Errors of some rows: how many, median and mean of their sizes, and their mean. [1]"""

    rows: int
    median: float
    mean: float
    bias: float

    @classmethod
    def of(cls, said: Floats, measured: Floats) -> Score:
        """Return the score of times; of no rows there is none. [s]"""
        require(len(said) > 0, "rows", 0, "one or more")
        errors = np.log(said / measured)
        sizes = np.abs(errors)
        return cls(
            rows=len(errors),
            median=float(np.median(sizes)),
            mean=float(sizes.mean()),
            bias=float(errors.mean()),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelScore:
    """Scores of kernels of one chip: ours, by duration (None: no rows), of a plain roofline."""

    ours: Score
    by_duration: tuple[Score | None, ...]
    roofline: Score


def products_said(rows: Sequence[MeasuredProduct], chip: Chip) -> Floats:
    """Return what is said of products on a chip. [s]

    In a graph a launch is short, and the clock falls only where calls take long enough. A cast
    reads A and writes it; a scale that all of A share takes its largest number first. What stays in
    the last cache from call to call comes from there.
    """
    times = np.zeros(len(rows))
    tiles = [known_tile(row.program, chip, row.m, row.n, row.k) for row in rows]
    kinds = [
        (row.dtype, row.timed, tile, _stays(row, chip))
        for row, tile in zip(rows, tiles, strict=True)
    ]
    for kind in dict.fromkeys(kinds):
        here = [i for i, each in enumerate(kinds) if each == kind]
        _, _, tile, stays = kind
        times[here] = _said([rows[i] for i in here], _near(chip) if stays else chip, tile)
    return times


def _stays(row: MeasuredProduct, chip: Chip) -> bool:
    """Whether all that calls of a product read and write stays in the last cache of the chip."""
    if row.turns is None:
        return False
    weights, size = np.array([float(row.k * row.n * row.dtype.size)]), row.dtype.size
    return bool(row.turns.stays(chip, weights, (row.k * size + row.n * RESULT) * row.m)[0])


def _near(chip: Chip) -> Chip:
    """Return a chip whose main memory is as fast and as near as the last cache on it."""
    last = chip.last_cache
    if last is None:
        return chip
    return chip.with_memory(bandwidth=last.bandwidth, latency=last.latency, ramp=0.0)


def _said(rows: Sequence[MeasuredProduct], chip: Chip, tile: KnownTile | None) -> Floats:
    """Return what is said of products of one type, timed in one way. [s]"""
    dtype, timed = rows[0].dtype, rows[0].timed
    m, k, n = (np.array([getattr(row, side) for row in rows], float) for side in "mkn")
    if timed is Timed.GRAPH:
        chip = replace(chip, launch_overhead=min(chip.launch_overhead, GRAPH_LAUNCH))
    steady = _multiplied(rows, chip, tile, sustained=True)
    if timed is Timed.GRAPH:
        short = _multiplied(rows, chip, tile, sustained=False)
        steady = np.where(CALLS * short > STEADY, steady, short)
    moved = np.array([row.result for row in rows])
    steady = steady + Roofline().result_time(chip, dtype, m * n, moved)
    cast = np.array([row.cast for row in rows])
    if cast.any():
        steady = steady + cast * _casting_time(chip, dtype, m * k)
    return steady


def _multiplied(
    rows: Sequence[MeasuredProduct], chip: Chip, tile: KnownTile | None, *, sustained: bool
) -> Floats:
    """Time of products of one type, with their launch, at the clock under load or the highest. [s]

    A kernel with a known tile has one multiprocessor for each, and does not split K.
    """
    dtype = rows[0].dtype
    m, k, n = (np.array([getattr(row, side) for row in rows], float) for side in "mkn")
    if tile is None:
        clock = Roofline(sustained=sustained)
        return np.asarray(product_time(clock, chip, m, k, n, dtype=dtype).time)
    alone, memory = chip.with_compute(paired=1, cluster=tile.cluster), chip.main_memory
    clock = Roofline(sustained=sustained, k_step=tile.k_step, stages=tile.stages)
    inside = tile_time(alone, dtype, clock, (tile.rows, tile.columns), (m, k, n))
    inside = inside + tile.between(chip, m, n)
    moved = (m * k + k * n + m * n) * dtype.size
    outside = moved / memory.speed + memory.delay
    return np.asarray(chip.launch_overhead + np.maximum(inside, outside))


def _casting_time(chip: Chip, dtype: Dtype, elements: Floats) -> Floats:
    """Time of making numbers of a type from those of 16 bits, by kernels of their own. [s]

    One reads and writes all; where one scale is of all, another takes the largest first. In 8 bits
    that has no more bytes on their way than its threads, each for a latency (Little's law).
    """
    memory, size = chip.main_memory, Dtype.BF16.size
    once = chip.launch_overhead + memory.latency
    made = once + elements * (size + dtype.size) / memory.speed
    if dtype in (Dtype.FP8_BLOCKS, Dtype.MXFP8):
        return made
    fed = memory.speed
    if dtype is Dtype.FP8 and memory.latency:
        fed = min(fed, SCALING_THREADS * size / memory.latency)
    return made + once + elements * size / fed


def roofline_said(rows: Sequence[MeasuredProduct], chip: Chip) -> Floats:
    """Return what a plain roofline with one efficiency says of products on a chip. [s]"""
    found = []
    for row in rows:
        moved = (row.m * row.k + row.k * row.n + row.m * row.n) * row.dtype.size
        work = 2 * row.m * row.k * row.n
        found.append(GRAPH_LAUNCH + plain_time(chip, row.dtype, work, moved))
    return np.array(found)


def plain_time(chip: Chip, dtype: Dtype, work: float, moved: float) -> float:
    """Time of a plain roofline with one efficiency, without a launch. [FLOP], [B], [s]"""
    bandwidth = chip.main_memory.bandwidth or math.inf
    return max(work / chip.rate(dtype), moved / bandwidth) / ONE_EFFICIENCY


def kernel_score(measured: Floats, said: Floats, roofline: Floats) -> KernelScore:
    """Score what is said of kernels that were measured on one chip. [s]"""
    classes = np.searchsorted(DURATIONS, measured, side="right")
    parts = [np.flatnonzero(classes == number) for number in range(len(DURATIONS) + 1)]
    return KernelScore(
        ours=Score.of(said, measured),
        by_duration=tuple(Score.of(said[i], measured[i]) if i.size else None for i in parts),
        roofline=Score.of(roofline, measured),
    )


def beyond_shortest(
    measured: Floats, said: Floats, plain: Floats, tell: int = 1
) -> tuple[Floats, ...]:
    """Return times of all kernels but some, and what is said of them with what those take more. [s]

    Those are ``tell`` that are said to be shortest: of what is as short the first. What the middle
    one of them takes beyond what is said is what every one takes besides; for a plain roofline in
    the same way.
    """
    require(len(measured) > tell, "rows", len(measured), "two or more, as one tells what all take")
    first = np.argsort(said, kind="stable")[:tell]
    others = ~np.isin(np.arange(len(measured)), first)
    more = [max(float(np.median(measured[first] - each[first])), 0.0) for each in (said, plain)]
    return measured[others], said[others] + more[0], plain[others] + more[1]
