"""The machine: chips, memory, network, prices; and how a chip is generated from a technology."""

from __future__ import annotations

from crosstack.machine.chip import Chip, Execution, Link, Overlap, flat_chip
from crosstack.machine.compute import Compute, Dataflow
from crosstack.machine.framework import Framework, Fusion
from crosstack.machine.memory import MemoryLevel, Scope, main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, Prices, System

__all__ = [
    "Chip",
    "Compute",
    "Dataflow",
    "Dimension",
    "DimensionKind",
    "Execution",
    "Framework",
    "Fusion",
    "Link",
    "MemoryLevel",
    "Overlap",
    "Parallelism",
    "Prices",
    "Scope",
    "System",
    "flat_chip",
    "main_memory",
]
