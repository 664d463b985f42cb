"""The machine: chips, memory, network, prices."""

from __future__ import annotations

from crosstack.system.system import Dimension, DimensionKind, Memory, Parallelism, Prices, System

__all__ = ["Dimension", "DimensionKind", "Memory", "Parallelism", "Prices", "System"]
