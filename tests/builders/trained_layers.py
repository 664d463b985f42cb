"""A layer of two kernels as it is trained, on machines of a few small chips in rings."""

from __future__ import annotations

from builders.graphs import product_and_function
from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Prices, System
from crosstack.workload.kernels import Axis, Saved

LAYER = product_and_function(
    {
        "product": [("function", 0)],
        "function": [("update", 1)],
        "function_back": [("product_back", 0), ("update", 0)],
    },
    saved=Saved.INPUT,
    tiling=Axis.NONE,
)


def rings(
    overlap: Overlap, capacity: float | None = None, levels: int = 2, bandwidth: float = 1e4
) -> System:
    """Return two chips a level, each with so much memory [B] and links so fast [B/s]."""
    return System(
        chip=flat_chip(
            n_cores=4, lanes=2, stages=2, frequency=1e3, sram_capacity=1e4, utilization=0.5,
            overlap=overlap, memories=main_memory(bandwidth=1e5, capacity=capacity),
            power=30.0, idle_power=2.0,
        ),
        network=tuple(
            Dimension(kind=DimensionKind.RING, bandwidth=bandwidth, size=2, link_power=3e-5)
            for _ in range(levels)
        ),
        n_chips=2**levels,
        prices=Prices(memory_power=1e-4, switch_power=1e-5),
    )  # fmt: skip
