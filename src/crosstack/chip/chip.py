"""The chip record: cores with a systolic array each, and on-chip memory.

Source of the fields: DFModel's accelerator (``ko2025dfmodel``, Table V; ``dfmodel_code``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require, require_quantity, require_whole
from crosstack.records import require_types

__all__ = ["Chip", "Overlap"]


class Overlap(StrEnum):
    """Which of compute, memory and network time hide behind each other in a partition."""

    ALL = "all"
    NONE = "none"
    COMPUTE_MEMORY = "compute_memory"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One accelerator chip.

    Parameters
    ----------
    n_cores : int
        Cores that can be given to kernels one by one. [1]
    lanes, stages : int
        Cells of a core's systolic array: ``lanes`` split M, ``stages`` split N. [1]
    frequency : float
        Clock; every cell does one multiply and one add a cycle. [Hz]
    sram_capacity : float
        On-chip memory. [B]
    utilization : float or None
        Share of the peak that compute reaches, where it is given; None computes the cycles of
        every kernel from its shape and the cores it gets. [1]
    memory_units : int or None
        On-chip memory units; where they are given a tensor takes whole units, enough for its
        bytes and for the cores that write it, instead of bytes of ``sram_capacity``. [1]
    memory_unit_capacity : float or None
        Bytes of one unit; given with ``memory_units``. [B]
    overlap : Overlap
        What hides behind what.
    price, power : float
        Of one chip. [USD], [W]
    name : str
        For people.
    """

    n_cores: int
    lanes: int
    stages: int
    frequency: float
    sram_capacity: float
    utilization: float | None = None
    memory_units: int | None = None
    memory_unit_capacity: float | None = None
    overlap: Overlap = Overlap.ALL
    price: float = 0.0
    power: float = 0.0
    name: str = "chip"

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        for name in ("n_cores", "lanes", "stages"):
            require_whole(name, getattr(self, name))
        require_quantity("frequency", self.frequency, "Hz", above_zero=True)
        require_quantity("sram_capacity", self.sram_capacity, "B", above_zero=True)
        require_quantity("price", self.price, "USD")
        require_quantity("power", self.power, "W")
        units = self.memory_units, self.memory_unit_capacity
        if units != (None, None):
            both = "given with memory_units and memory_unit_capacity, or neither"
            require(None not in units, "memory_unit_capacity", units[1], both)
            require_whole("memory_units", units[0])
            require_quantity("memory_unit_capacity", units[1], "B", above_zero=True)
        if self.utilization is not None:
            require_quantity("utilization", self.utilization, "1", above_zero=True)
            require(self.utilization <= 1, "utilization", self.utilization, "above 0, at most 1")

    @property
    def peak_throughput(self) -> float:
        """Peak rate: 2 lanes stages cores frequency. [FLOP/s]"""
        return 2.0 * self.lanes * self.stages * self.n_cores * self.frequency

    @property
    def memory_capacity(self) -> float:
        """On-chip memory: that of all units where there are units. [B]"""
        if self.memory_units is None or self.memory_unit_capacity is None:
            return self.sram_capacity
        return self.memory_units * self.memory_unit_capacity
