"""Chips that are known by a name, described from data sheets instead of generated."""

from __future__ import annotations

from collections.abc import Callable

from crosstack.chip.a100 import a100_pcie_80gb
from crosstack.chip.hierarchy import ChipHierarchy

__all__ = ["NAMED_CHIPS"]

# Each takes ``frequency`` [Hz], ``launch_overhead`` [s] and ``word`` [B].
NAMED_CHIPS: dict[str, Callable[..., ChipHierarchy]] = {"a100": a100_pcie_80gb}
