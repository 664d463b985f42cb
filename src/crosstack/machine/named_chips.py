"""Chips that are known by a name, described from data sheets instead of generated."""

from __future__ import annotations

from collections.abc import Callable

from crosstack.machine.a100 import a100_pcie_80gb, a100_sxm_80gb
from crosstack.machine.chip import Chip

__all__ = ["NAMED_CHIPS", "SERVERS"]

# Each takes ``frequency`` [Hz] and ``launch_overhead`` [s].
NAMED_CHIPS: dict[str, Callable[..., Chip]] = {
    "a100": a100_pcie_80gb,
    "a100-sxm": a100_sxm_80gb,
}

# Chips of a server, joined by a switch; those not listed stand alone. [1]
SERVERS = {"A100 SXM 80 GB": 8}
