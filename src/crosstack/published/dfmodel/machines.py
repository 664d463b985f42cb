"""The published setups, re-entered: machines, models and mappings of DFModel's runs.

Source of every number: the inputs and logs of the public tool (``dfmodel_code``), which hold reals
in single precision, and ``ko2025dfmodel``, Table V.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import replace

from crosstack.machine.chip import Chip, Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import (
    Dimension,
    DimensionKind,
    Parallelism,
    Prices,
    System,
)
from crosstack.mapping.mapping import Constraints, Mapping, Task
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.kernel_graph import AXES
from crosstack.workload.kernels import Axis
from crosstack.workload.workload import Workload

__all__ = [
    "TRAINING_SHARDING",
    "axes",
    "chip",
    "given",
    "gpt3_1t",
    "gpt3_175b",
    "mapping",
    "prices",
    "system",
]

RING, SWITCH = DimensionKind.RING, DimensionKind.SWITCH
TENSOR, PIPELINE, DATA = Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA
GB = 1e9

# cores, lanes, stages, GHz, SRAM bytes (paper_numbers: Table V and the setups)
_CHIPS = {
    "SN10": (640, 32, 6, 1.25, 335544320.0),
    "SN30": (1280, 32, 6, 1.25, 671088640.0),
    "A100": (432, 16, 16, 1.41, 88080384.0),
    "H100": (1056, 16, 16, 1.837, 118489090.0),
    "WSE-2": (853776, 4, 1, 1.1, 41964010000.0),
    "TPU v4": (8, 128, 128, 1.05, 167772160.0),
    "SN40L": (1040, 32, 6, 1.6, 545259520.0),
    # As single cores that count one multiply and add a cycle, in double and single precision.
    "A100 FP64": (3456, 1, 1, 1.41, 230686720.0),
    "A100 FP32": (6912, 1, 1, 1.41, 105119744.0),
    "V100 FP64": (2560, 1, 1, 1.38, 230686720.0),
    "H100 FP64": (7296, 1, 1, 1.755, 230686720.0),
    # Its tensor cores do as many in double precision (nvidia_a100: 19.5 TFLOP/s both).
    "A100 FP64 tensor": (6912, 1, 1, 1.41, 230686720.0),
}
# Columns of `AXES`: 0 outer, 1 M, 2 K, 4 none. The sharding most training logs print.
TRAINING_SHARDING = (
    4, 4, 0, 0, 0, 0, 0, 0, 0, 2, 4, 4, 4, 1, 1, 2, 4, 4, 4, 4, 1, 1, 2, 4, 4, 1, 0, 0, 2, 0, 0,
    0, 0, 0, 0, 1, 1, 1, 1, 1, 1,
)  # fmt: skip
FORWARD_SHARDING = TRAINING_SHARDING[:18]


def single(value: float) -> float:
    """Return the value rounded to single precision, as protobuf's ``float`` holds it."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def chip(
    name: str,
    *,
    utilization: float | None = None,
    overlap: Overlap = Overlap.ALL,
    price: float = 16522.25023,
    power: float = 444.7061955,
    sram: float | None = None,
) -> Chip:
    """Return a chip of the published setups."""
    cores, lanes, stages, gigahertz, capacity = _CHIPS[name]
    return flat_chip(
        name=name,
        n_cores=cores,
        lanes=lanes,
        stages=stages,
        frequency=single(gigahertz) * 1e9,
        sram_capacity=single(sram or capacity),
        utilization=None if utilization is None else single(utilization),
        overlap=overlap,
        price=single(price),
        power=single(power),
    )


def prices(memory_power: float = 0.16248, switch_power: float = 0.052) -> Prices:
    """Return the unit prices and powers of the published setups; per GB/s there."""
    return Prices(
        link=2.0 / GB,
        switch=24.0 / GB,
        memory=1.0 / GB,
        switch_power=single(switch_power) / GB,
        memory_power=single(memory_power) / GB,
    )


def system(
    the_chip: Chip,
    memory: tuple[float, float | None],
    dimensions: Sequence[tuple[DimensionKind, int, float, Parallelism | None]],
    *,
    link_power: float | tuple[float, ...] = 0.052,
    switch_power: float = 0.052,
    memory_power: float = 0.16248,
    latency: float = 0.0,
) -> System:
    """Return a system from (GB/s, bytes) of memory and (kind, size, GB/s, use) of dimensions.

    ``link_power`` is that of every dimension, or one each; ``latency`` is in seconds.
    """
    n_chips = 1
    for _, size, _, _ in dimensions:
        n_chips *= size
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
                kind=kind,
                size=size,
                bandwidth=single(speed) * GB,
                parallelism=use,
                link_power=single(power) / GB,
                latency=latency,
            )
            for (kind, size, speed, use), power in zip(dimensions, powers, strict=True)
        ),
        n_chips=n_chips,
        prices=prices(memory_power, switch_power),
    )


def gpt3_1t(*, n_layers: int = 128, training: bool = True) -> Workload:
    """GPT-3 1T, batch 3072."""
    return llm(
        hidden=25600,
        sequence_length=2048,
        n_heads=160,
        head_size=160,
        n_layers=n_layers,
        global_batch_size=3072,
        training=training,
        name="GPT-3 1T training" if training else "GPT-3 1T forward",
    )


def gpt3_175b() -> Workload:
    """GPT-3 175B forward, batch 2304."""
    return llm(
        hidden=12288,
        sequence_length=2048,
        n_heads=96,
        head_size=128,
        n_layers=96,
        global_batch_size=2304,
        training=False,
        name="GPT-3 175B forward",
    )


def axes(codes: tuple[int, ...], changes: dict[int, int] | None = None) -> tuple[Axis, ...]:
    """Return axes from columns of `AXES`; ``changes`` are kernel ids (from 1) to columns."""
    changed = list(codes)
    for kernel, code in (changes or {}).items():
        changed[kernel - 1] = code
    return tuple(AXES[code] for code in changed)


def mapping(
    task: Task,
    partitions: tuple[int, ...],
    n_tiles: int,
    sharding: tuple[Axis, ...],
    cores: tuple[tuple[int, int], ...] | None = None,
) -> Mapping:
    """Return a published mapping of a task whose network is given."""
    network = task.system.network
    return Mapping(
        sizes=tuple(d.size or 1 for d in network),
        parallelism=tuple(d.parallelism or DATA for d in network),
        microbatch_size=1,
        n_tiles=n_tiles,
        sharding=sharding,
        partitions=partitions,
        cores=cores,
    )


def given(task: Task, sharding: tuple[Axis, ...]) -> Task:
    """Return the task with its sharding given."""
    names = [kernel.name for kernel in task.workload.graph.kernels]
    fixed: Constraints = replace(
        task.constraints, sharding=tuple(zip(names, sharding, strict=True))
    )
    return replace(task, constraints=fixed)
