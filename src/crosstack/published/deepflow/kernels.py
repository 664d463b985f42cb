"""The kernel clocks of the public releases: tiles drawn at random for every level.

What is wrong in them stays wrong here: see `crosstack.model.kernels.roofline` for the default.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from crosstack.machine.chip import Chip
from crosstack.machine.compute import Dataflow
from crosstack.model.kernels.clock import COMPUTE, ChipTimes, KernelTime, product_time
from crosstack.published.deepflow import drawn_tiles
from crosstack.records import Checked, Count
from crosstack.workload.dtype import Dtype

Floats = NDArray[np.float64]


class TileSearch(StrEnum):
    """Which tiles are tried, and what moves between levels.

    ``paired``: tiles drawn for two levels, three innermost loops (release of 2025).
    ``nested``: tiles drawn for three levels, each a problem for the next (2020, 2021).
    """

    PAIRED = "paired"
    NESTED = "nested"


# So many that the arrays of shapes and tiles stay in the processor's cache.
SHAPES_AT_ONCE = {TileSearch.PAIRED: 32, TileSearch.NESTED: 16}


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnTiles(Checked):
    """The clock of a release (``deepflow_code``); see `crosstack.model.kernels.clock.KernelClock`.

    A product takes its launch and the maximum over levels of ``traffic / bandwidth + latency``
    where memory binds, ``work / throughput`` elsewhere; an elementwise kernel is bound by the
    registers, with whole bytes. A batch of products is one with so many rows.

    Parameters
    ----------
    search : TileSearch
        Which tiles are tried.
    n_drawn : int
        Tiles drawn for each level; 20 (2021, 2025) or 30 (2020). [1]
    tiles_refill : bool
        Whether a tile that is larger than the matrix grows along another axis (2021) or not.
    first_shape_sets_dataflow : bool
        Whether the best dataflow is chosen for the first product of a step and kept (2020, 2021),
        or chosen for each.
    """

    search: TileSearch
    n_drawn: Count = 20
    tiles_refill: bool = False
    first_shape_sets_dataflow: bool = False

    @property
    def shapes_at_once(self) -> int:
        """As many shapes, with their tiles, as stay in the processor's cache. [1]"""
        return SHAPES_AT_ONCE[self.search]

    def products(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> KernelTime:
        """Return the times of products, arrays of one dimension."""
        m = batch * m
        if self.search is TileSearch.PAIRED:
            found = drawn_tiles.paired_schedules(chip, dtype, m, k, n, self.n_drawn)
        else:
            found = drawn_tiles.nested_schedules(
                chip, dtype, m, k, n, count=self.n_drawn, refills=self.tiles_refill
            )
        work = m * n * (2 * k - 1)
        names = [level.name for level in chip.storage]
        times = [
            drawn_tiles.roofline_time(chip, dtype, i, work, moved)
            for i, moved in enumerate(found.traffic)
        ]
        computing = work / chip.throughput(dtype)
        labels = np.array([COMPUTE, *names], object)
        time = found.time + chip.launch_overhead
        rates = [np.full_like(m, level.speed) for level in chip.storage]
        moving = [moved / rate for moved, rate in zip(found.traffic, rates, strict=True)]
        return KernelTime(
            time=time,
            work_time=np.maximum.reduce([computing, *times[:-1]]),
            bound=labels[np.stack([computing, *times]).argmax(axis=0)],
            launch_time=chip.launch_overhead,
            delay_time=0.0,
            compute_time=computing,
            # The latency, where memory binds.
            waiting_time=np.maximum(found.time - np.maximum.reduce([computing, *moving]), 0.0),
            reduction_time=np.zeros_like(m),
            operands=found.operands,
            traffic=dict(zip(names, found.traffic, strict=True)),
            bandwidths=dict(zip(names, rates, strict=True)),
            level_times=dict(zip(names, moving, strict=True)),
            passing=dict(zip(names, map(np.zeros_like, found.traffic), strict=True)),
            tiles=dict(zip(names, found.tiles, strict=True)),
            split=np.ones_like(m),
            n_tiles=np.ones_like(m),
            dataflow=found.dataflow,
            utilization=2 * m * k * n / (chip.throughput(dtype) * time),
        )

    def elementwise(self, chip: Chip, dtype: Dtype, work: Floats, traffic: Floats) -> Floats:
        """Time of ``work`` [FLOP] on ``traffic`` bytes of the registers. [s]"""
        return drawn_tiles.roofline_time(chip, dtype, 0, work, np.trunc(traffic))

    def least(
        self, chip: Chip, dtype: Dtype, m: float, k: float, n: float, batch: float = 1.0
    ) -> float:
        """Launch, then the longer of compute and moving both factors once. [s]

        The releases count ``2 k - 1`` operations an element and need not write the output.
        """
        m = batch * m
        moved = (m * k + k * n) * dtype.size
        computing = m * n * (2 * k - 1) / chip.throughput(dtype)
        return chip.launch_overhead + max(computing, moved / chip.main_memory.speed)

    def reached_share(self, chip: Chip) -> float:
        """Share of the peak of a chip that no product passes: all of it. [1]"""
        return 1.0

    def clock_share(self, chip: Chip, work: Floats, inside: Floats, memory: Floats) -> Floats:
        """Clock over that of the rates of a chip: always that. [1]"""
        return np.ones_like(work)

    def result_time(self, chip: Chip, dtype: Dtype, numbers: Floats, moved: Floats) -> Floats:
        """Nothing: a result is as wide as operands, and added to by nobody. [s]"""
        return np.zeros_like(numbers)

    def check_fit(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> None:
        """Refuse nothing: the releases time products that main memory does not hold."""

    def times(self, chip: Chip, dtype: Dtype = Dtype.BF16) -> ChipTimes:
        """Return the kernel times of one chip for whole steps."""
        kind = _StepTimes if self.first_shape_sets_dataflow else ChipTimes
        return kind(chip, self, dtype)


class _StepTimes(ChipTimes):
    """Kernel times whose dataflow the first product decides."""

    _dataflow: Dataflow | None = None

    def _timed(self, m: Floats, k: Floats, n: Floats, batch: Floats) -> KernelTime:
        if self._dataflow is None and self.chip.compute.dataflow is Dataflow.BEST:
            first = float(batch[0] * m[0]), float(k[0]), float(n[0])
            self._dataflow = drawn_tiles.largest_axis(*first)
        return product_time(
            self.clock,
            self.chip,
            *(m, k, n),
            batch=batch,
            dtype=self.dtype,
            dataflow=self._dataflow,
        )


def tiles_of_2025() -> DrawnTiles:
    """Return the clock of ``deepflow_code`` at commit e8fc755 (2025-09-15)."""
    return DrawnTiles(search=TileSearch.PAIRED)


def tiles_of_2021() -> DrawnTiles:
    """Return the clock of ``deepflow_code`` at commit 566c192 (2021-09-11)."""
    return DrawnTiles(search=TileSearch.NESTED, tiles_refill=True, first_shape_sets_dataflow=True)


def tiles_of_2020() -> DrawnTiles:
    """Return the clock of ``deepflow_code`` at commit e4e5d38 (2020-10-30)."""
    return DrawnTiles(search=TileSearch.NESTED, n_drawn=30, first_shape_sets_dataflow=True)
