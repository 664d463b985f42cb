"""The machine: chips, memory, network, prices; and how a chip is generated from a technology."""

from __future__ import annotations

from crosstack.machine.chip import Chip, Overlap
from crosstack.machine.system import (
    Dimension,
    DimensionKind,
    Memory,
    Parallelism,
    Prices,
    System,
)

__all__ = [
    "Chip",
    "Dimension",
    "DimensionKind",
    "Memory",
    "Overlap",
    "Parallelism",
    "Prices",
    "System",
]
