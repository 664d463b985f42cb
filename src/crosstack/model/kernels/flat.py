"""Clocks of chips that say no more than how fast they compute and what main memory gives.

`ConstantShare` takes a given share of the peak, `SystolicCells` the cycles of the arrays of all
cores. Neither knows tiles: main memory moves each operand once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.model.cores import staircase
from crosstack.model.kernels.clock import COMPUTE, KernelClock, KernelTime
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantShare(KernelClock):
    """A share of the peak, whatever the shape; see `crosstack.model.kernels.clock.KernelClock`.

    Source: ko2025dfmodel; williams2009roofline.
    """

    @property
    def shapes_at_once(self) -> int:
        """As many as there may be. [1]"""
        return 2**20

    def products(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> KernelTime:
        """Return ``launch + max(2 M K N / throughput, every operand / bandwidth + latency)``."""
        work_time = self.device_time(chip, dtype, m, k, n, batch)
        memory, launch, zero = chip.main_memory, chip.launch_overhead, np.zeros_like(m)
        operands = np.stack([m * k, k * n, m * n], axis=-1) * (batch * dtype.size)[:, None]
        traffic = operands.sum(axis=1)
        moving = traffic / memory.speed
        time = np.maximum(work_time, moving + memory.latency) + launch
        return KernelTime(
            time=time,
            work_time=work_time,
            bound=np.where(moving > work_time, memory.name, COMPUTE),
            launch_time=launch,
            delay_time=memory.latency,
            compute_time=work_time,
            waiting_time=zero,
            reduction_time=zero,
            operands=operands,
            traffic={memory.name: traffic},
            bandwidths={memory.name: np.full_like(m, memory.speed)},
            level_times={memory.name: moving},
            passing={memory.name: zero},
            tiles={memory.name: np.stack([m, k, n], axis=-1)},
            split=np.ones_like(m),
            n_tiles=np.ones_like(m),
            dataflow=np.full(m.shape, chip.compute.dataflow.value, object),
            utilization=2 * batch * m * k * n / (chip.throughput(dtype) * time),
        )

    def device_time(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> Floats:
        """Time of products without main memory. [s]"""
        return 2 * batch * m * k * n / chip.throughput(dtype)

    def least(
        self, chip: Chip, dtype: Dtype, m: float, k: float, n: float, batch: float = 1.0
    ) -> float:
        """Time of a product, its launch included. [s]"""
        sides = (np.array([float(side)]) for side in (m, k, n, batch))
        return float(self.products(chip, dtype, *sides).time[0])

    def check_fit(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> None:
        """Refuse nothing: what main memory holds is not a question of one kernel."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SystolicCells(ConstantShare):
    """The cycles of the arrays of all cores; see `crosstack.model.cores.staircase`.

    Source: dfmodel_code.
    """

    def device_time(
        self, chip: Chip, dtype: Dtype, m: Floats, k: Floats, n: Floats, batch: Floats
    ) -> Floats:
        """Time of products without main memory. [s]

        ``ceil(M / lanes) ceil(N / stages) K`` steps on the best share of all cores; a batch stands
        one behind the other along M. The array takes peak over rate cycles a step.
        """
        compute = chip.compute
        cells = (compute.rows, compute.columns, compute.n_units)
        sides = np.ceil(np.stack([batch * m, k, n], axis=-1)).astype(np.int64)
        steps = [float(staircase(*shape, True, *cells).cycles[-1]) for shape in sides.tolist()]
        cycle = chip.peak_throughput / chip.rate(dtype) / compute.frequency
        return np.array(steps) * cycle
