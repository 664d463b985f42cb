"""The chip record: cores with a systolic array each, and on-chip memory.

Source of the fields: DFModel's accelerator (``ko2025dfmodel``, Table V; ``dfmodel_code``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from crosstack.errors import InputError, Problem, require, require_quantity, require_whole
from crosstack.records import require_types
from crosstack.workload.dtype import Dtype

__all__ = ["Chip", "Overlap", "relative_rates"]


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
    relative_rates : tuple of (Dtype, float)
        Rate in numbers of each type over the peak of the cells, so that both follow cores and
        clock; empty where one peak holds for every type. [1]
    overlap : Overlap
        What hides behind what.
    price, power : float or None
        Of one chip; None where they are not given. [USD], [W]
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
    relative_rates: tuple[tuple[Dtype, float], ...] = ()
    overlap: Overlap = Overlap.ALL
    price: float | None = None
    power: float | None = None
    idle_power: float | None = None
    name: str = "chip"

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        for name in ("n_cores", "lanes", "stages"):
            require_whole(name, getattr(self, name))
        require_quantity("frequency", self.frequency, "Hz", above_zero=True)
        require_quantity("sram_capacity", self.sram_capacity, "B", above_zero=True)
        for name, unit in (("price", "USD"), ("power", "W"), ("idle_power", "W")):
            if getattr(self, name) is not None:
                require_quantity(name, getattr(self, name), unit)
        for dtype, share in self.relative_rates:
            require_quantity(f"relative_rates.{dtype}", share, "1", above_zero=True)
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
        """Peak rate of the cells: 2 lanes stages cores frequency. [FLOP/s]"""
        return _peak(self.lanes, self.stages, self.n_cores, self.frequency)

    def rate(self, dtype: Dtype) -> float:
        """Return the peak rate in numbers of a type. [FLOP/s]

        Raises
        ------
        InputError
            If the chip has rates, but none for ``dtype``: names those it has.
        """
        shares = dict(self.relative_rates)
        if not shares:
            return self.peak_throughput
        if dtype not in shares:
            known = ", ".join(shares)
            message = (
                f'"{self.name}" has no rate for {dtype}; it has {known}. Give it one as '
                f"system.chip.rates.{dtype}, or another workload.dtype."
            )
            raise InputError(Problem("system.chip.rates", message))
        return shares[dtype] * self.peak_throughput

    @property
    def memory_capacity(self) -> float:
        """On-chip memory: that of all units where there are units. [B]"""
        if self.memory_units is None or self.memory_unit_capacity is None:
            return self.sram_capacity
        return self.memory_units * self.memory_unit_capacity


def relative_rates(
    rates: Mapping[Dtype, float], cells: Mapping[str, Any]
) -> tuple[tuple[Dtype, float], ...]:
    """Return the rates of a data sheet as `Chip` holds them, in the order of `Dtype`.

    Parameters
    ----------
    rates : mapping of Dtype to float
        [FLOP/s]
    cells : mapping
        ``lanes``, ``stages``, ``n_cores`` and ``frequency`` of the chip that reaches them.
    """
    peak = _peak(*(cells[name] for name in ("lanes", "stages", "n_cores", "frequency")))
    return tuple((dtype, rates[dtype] / peak) for dtype in Dtype if dtype in rates)


def _peak(lanes: int, stages: int, n_cores: int, frequency: float) -> float:
    return 2.0 * lanes * stages * n_cores * frequency
