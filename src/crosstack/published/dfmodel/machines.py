"""Machines of DFModel's runs, re-entered: chips, shardings and what is given of a system.

Sources: as ``setups.yaml``, which holds the numbers.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files
from typing import Any

from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.chip import Chip, Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import (
    Dimension,
    DimensionKind,
    Parallelism,
    Prices,
    System,
)
from crosstack.mapping.mapping import Task
from crosstack.workload.kernel_graph import AXES
from crosstack.workload.kernels import Axis

RING, SWITCH = DimensionKind.RING, DimensionKind.SWITCH
TENSOR, PIPELINE, DATA = Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA
GB = 1e9
SETUPS: Any = parse_yaml(files(__package__).joinpath("setups.yaml").read_text(encoding="utf-8"))


def single(value: float) -> float:
    """Return the value rounded to single precision, as protobuf's ``float`` holds it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def chip(
    name: str,
    *,
    utilization: float | None = None,
    overlap: Overlap | str = Overlap.ALL,
    price: float = 16522.25023,
    power: float = 444.7061955,
    sram: float | None = None,
) -> Chip:
    """Return a chip of the published setups."""
    cores, lanes, stages, gigahertz, capacity = SETUPS["chips"][name]
    return flat_chip(
        name=name,
        n_cores=cores,
        lanes=lanes,
        stages=stages,
        frequency=single(gigahertz) * 1e9,
        sram_capacity=single(sram or capacity),
        utilization=None if utilization is None else single(utilization),
        overlap=Overlap(overlap),
        price=single(price),
        power=single(power),
    )


def system(
    the_chip: Chip,
    memory: tuple[float, float | None],
    dimensions: Sequence[Sequence[Any]],
    *,
    link_power: float | Sequence[float] = 0.052,
    switch_power: float = 0.052,
    memory_power: float = 0.16248,
    latency: float = 0.0,
) -> System:
    """Return a system from (GB/s, bytes) of memory and (kind, size, GB/s, use) of dimensions.

    Without a use, or with None, a dimension is free. ``link_power`` is that of every dimension, or
    one each; powers are in W/(GB/s), ``latency`` in seconds.
    """
    n_chips = math.prod(size for _, size, *_ in dimensions)
    bandwidth, capacity = memory
    powers = (link_power,) * len(dimensions) if isinstance(link_power, float) else link_power
    memories = main_memory(
        bandwidth=single(bandwidth) * GB, capacity=None if capacity is None else single(capacity)
    )
    return System(
        name=f"{n_chips} {the_chip.name}",
        chip=replace(the_chip, memories=memories),
        network=tuple(
            Dimension(
                kind=DimensionKind(kind),
                size=size,
                bandwidth=single(speed) * GB,
                parallelism=None if use in ([], [None]) else Parallelism(*use),
                link_power=single(power) / GB,
                latency=latency,
            )
            for (kind, size, speed, *use), power in zip(dimensions, powers, strict=True)
        ),
        n_chips=n_chips,
        prices=Prices(
            link=2.0 / GB,
            switch=24.0 / GB,
            memory=1.0 / GB,
            switch_power=single(switch_power) / GB,
            memory_power=single(memory_power) / GB,
        ),
    )


def axes(sharding: str) -> tuple[Axis, ...]:
    """Return the axes of a sharding of ``setups.yaml``, a kernel each."""
    return tuple(AXES[code] for code in SETUPS["shardings"][sharding])


def given(task: Task, sharding: str) -> Task:
    """Return the task with a sharding of ``setups.yaml``."""
    names = [kernel.name for kernel in task.workload.graph.kernels]
    pairs = tuple(zip(names, axes(sharding), strict=True))
    return replace(task, constraints=replace(task.constraints, sharding=pairs))
