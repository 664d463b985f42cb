"""Time of a kernel on a chip: the hierarchical roofline, over any number of memory levels.

`Roofline` is the clock; `crosstack.model.kernels.clock.product_time` asks it for numbers or arrays.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crosstack.errors import InfeasibleError, require, require_quantity, require_whole
from crosstack.machine.chip import Chip
from crosstack.model.kernels.clock import COMPUTE, KernelClock, KernelTime
from crosstack.model.kernels.systolic import chosen_dataflow
from crosstack.model.kernels.throttle import clock_share, reached_share
from crosstack.model.kernels.tilings import best_schedules
from crosstack.units import format_quantity
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats

WAITING = "waiting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Roofline(KernelClock):
    """The default clock: what is physically right, for kernels as vendor libraries write them.

    A product takes the longer of its busiest multiprocessor and main memory under its fastest
    tiling. See `crosstack.model.kernels.waves` and `KernelClock`.

    Parameters
    ----------
    k_step : int
        Columns of A and rows of B that a multiprocessor loads at a time; 32 in CUTLASS's kernels
        for 16-bit words (``thakkar2023cutlass``). [1]
    stages : int
        Steps of K that a multiprocessor holds of each tile, in use and on their way; 2, the fewest
        with which one hides the other. [1]
    line : float
        Bytes of a row or a column that the first level of the chip hands over in the time of as
        many; a step of K that has fewer takes as long. 0 where a step has whole lines. [B]
    smallest_unit_tile : int
        Rows and columns of C that one unit works on, at least, where they fit; 32 in CUTLASS's
        smallest kernels for tensor cores, 64 x 64 for four units (``thakkar2023cutlass``). A
        matrix times a vector has narrower ones besides. [1]
    longest_strip : int
        Tiles across which the order of tiles turns back, at most; 1, 2, 4 and up to 8 in CUTLASS
        (``thakkar2023cutlass``). [1]
    accumulator_word : float
        Bytes of a partial sum; 4, single precision (``choquette2020a100``). [B]
    accumulator_share : float
        Share of the registers that holds partial sums; the rest holds operands, addresses and
        counters. Assumed: a half is what the largest tile of CUTLASS on an A100, 256 x 128, takes
        of its 256 KiB. [1]
    sustained : bool
        Whether kernels follow one another for so long that the chip lowers its clock where they
        take more power than it may; else they run at the one that work starts with
        (`crosstack.model.kernels.throttle`).
    """

    k_step: int = 32
    stages: int = 2
    line: float = 0.0
    smallest_unit_tile: int = 32
    longest_strip: int = 8
    accumulator_word: float = 4.0
    accumulator_share: float = 0.5
    sustained: bool = True

    def __post_init__(self) -> None:
        """Check every field."""
        for name in ("k_step", "stages", "smallest_unit_tile", "longest_strip"):
            require_whole(name, getattr(self, name))
        require_quantity("line", self.line, "B")
        require_quantity("accumulator_word", self.accumulator_word, "B", above_zero=True)
        share = self.accumulator_share
        require_quantity("accumulator_share", share, "1", above_zero=True)
        require(share <= 1, "accumulator_share", share, "above 0, at most 1")

    @property
    def shapes_at_once(self) -> int:
        """So many that what a search costs besides is little; it takes them in parts. [1]"""
        return 4096

    def products(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> KernelTime:
        """Return the times of products, arrays of one dimension.

        ``t = launch + max(busiest multiprocessor, traffic of main memory / bandwidth + latency) +
        reduction``, where the busiest multiprocessor takes ``waiting + tiles x max over compute and
        levels``; the formulas are those of `crosstack.model.kernels.waves`. Products of a batch
        stand one behind the other along the longer of their sides, so that no tile holds parts of
        two as long as a tile's side divides that side. Each has factors of its own: main memory
        moves those of all at least once. Source: ardalani2022deepflow, 6; williams2009roofline.
        """
        tall = m >= n
        rows, columns = np.where(tall, batch * m, m), np.where(tall, n, batch * n)
        found = best_schedules(chip, dtype, rows, k, columns, self)
        names = [level.name for level in chip.storage]
        shared = (batch - 1) * k * np.where(tall, n, m) * dtype.size
        whole = (rows * k + k * columns + rows * columns) * dtype.size + shared
        more = np.maximum(whole - found.traffic[-1], 0.0) * (batch > 1)
        operands = np.stack(found.operands, axis=-1)
        operands[:, 0] += np.where(tall, 0.0, more)
        operands[:, 1] += np.where(tall, more, 0.0)
        traffic = (*found.traffic[:-1], found.traffic[-1] + more)
        memory, launch = chip.main_memory, chip.launch_overhead
        moved = traffic[-1] / memory.speed + memory.delay
        time = np.maximum(found.busiest_time, moved) + found.reduction_time + launch
        moving = [size / rate for size, rate in zip(traffic, found.bandwidths, strict=True)]
        terms = np.stack([found.compute_time, *moving, found.waiting_time + launch])
        labels = np.array([COMPUTE, *names, WAITING], object)
        return KernelTime(
            time=time,
            work_time=found.busiest_time,
            bound=labels[terms.argmax(axis=0)],
            launch_time=launch,
            delay_time=memory.delay,
            compute_time=found.compute_time,
            waiting_time=found.waiting_time,
            reduction_time=found.reduction_time,
            operands=operands,
            traffic=dict(zip(names, traffic, strict=True)),
            bandwidths=dict(zip(names, found.bandwidths, strict=True)),
            level_times=dict(zip(names, moving, strict=True)),
            passing=dict(zip(names, found.passing, strict=True)),
            tiles=dict(zip(names, found.tiles, strict=True)),
            split=found.split,
            n_tiles=found.n_tiles,
            dataflow=chosen_dataflow(
                chip.compute, dtype, chip.compute.dataflow, *found.reuse_shape
            ),
            utilization=2 * batch * m * k * n / (chip.throughput(dtype) * time),
        )

    def result_time(self, chip: Chip, dtype: Dtype, numbers: Floats, moved: Floats) -> Floats:
        """Time of a result beyond that of numbers of ``dtype``, as tiles are put down. [s]

        Nothing hides the bytes of results on their way to the level that all multiprocessors share
        (`crosstack.model.kernels.waves`), those that are read to be added to no more.
        """
        if (near := chip.shared_level) is None:
            return KernelClock.result_time(self, chip, dtype, numbers, moved)
        return np.asarray(np.maximum(moved - dtype.size, 0.0) * numbers / near.speed)

    def clock_share(self, chip: Chip, work: Floats, inside: Floats, memory: Floats) -> Floats:
        """Return the clock over that of the chip's rates; see `throttle.clock_share`. [1]"""
        if self.sustained:
            return clock_share(chip.compute, work, inside, memory)
        return np.full_like(work, self.reached_share(chip))

    def reached_share(self, chip: Chip) -> float:
        """Share of the peak of a chip that no product passes. [1]"""
        return reached_share(chip.compute, sustained=self.sustained)

    def least(
        self, chip: Chip, dtype: Dtype, m: float, k: float, n: float, batch: float = 1.0
    ) -> float:
        """Launch, then the longer of compute and moving every operand once. [s]"""
        moved = batch * (m * k + k * n + m * n) * dtype.size
        computing = 2 * batch * m * k * n / (chip.throughput(dtype) * self.reached_share(chip))
        memory = chip.main_memory
        return chip.launch_overhead + max(computing, moved / memory.speed + memory.delay)

    def check_fit(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> None:
        """Refuse products whose operands and output are larger than main memory.

        Raises `InfeasibleError`, which names the product and its largest matrix.
        """
        matrices = np.stack([m * k, k * n, m * n]) * (batch * dtype.size)
        held = matrices.sum(axis=0)
        worst = int(held.argmax())
        memory = chip.main_memory
        largest = int(matrices[:, worst].argmax())
        alone = float(matrices[largest, worst])
        size = format_quantity(alone, "B", like=memory.room)
        shape = " x ".join(f"{extent[worst]:,.0f}" for extent in (m, k, n))
        if held[worst] > memory.room:
            raise InfeasibleError(
                resource=memory.name,
                demand=float(held[worst]),
                limit=memory.room,
                unit="B",
                where=f"the product {shape}, {'ABC'[largest]} alone {size},",
                levers=("more main memory", "split the product over more chips", "a smaller dtype"),
            )
