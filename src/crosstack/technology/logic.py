"""Compute units: the smallest piece of logic that a chip is filled with."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require, require_quantity, require_whole
from crosstack.technology.voltage import Supply

__all__ = ["ComputeUnit"]

LARGEST_ARRAY = 1024  # a side; four times the largest that are made


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeUnit:
    """One unit, such as a tensor core: it multiplies rows x depth by depth x rows every cycle.

    Source of the fields: ``ardalani2022deepflow``, Table 2.

    Parameters
    ----------
    work_per_cycle : float
        At nominal area. [FLOP]
    rows, depth : int
        Of its array. [1]
    area : float
        With its share of control. [m^2]
    power : float
        At nominal voltage and frequency. [W]
    nominal_frequency : float or None
        Clock at nominal voltage; None where only a given clock is known. [Hz]
    supply : Supply
        Its voltages.
    name : str
        For people.
    """

    work_per_cycle: float
    rows: int
    depth: int
    area: float
    power: float
    supply: Supply
    nominal_frequency: float | None = None
    name: str = "unit"

    def __post_init__(self) -> None:
        """Check every field."""
        require_quantity("work_per_cycle", self.work_per_cycle, "FLOP", above_zero=True)
        for field in ("rows", "depth"):
            side = getattr(self, field)
            require_whole(field, side)
            require(side <= LARGEST_ARRAY, field, side, f"up to {LARGEST_ARRAY:,}")
        require_quantity("area", self.area, "m^2", above_zero=True)
        require_quantity("power", self.power, "W", above_zero=True)
        if self.nominal_frequency is not None:
            require_quantity("nominal_frequency", self.nominal_frequency, "Hz", above_zero=True)

    @property
    def energy_per_flop(self) -> float | None:
        """At nominal voltage: power / (work_per_cycle nominal_frequency). [J]"""
        if self.nominal_frequency is None:
            return None
        return self.power / (self.work_per_cycle * self.nominal_frequency)

    @property
    def throughput_density(self) -> float | None:
        """Peak rate over area at nominal voltage. [FLOP/s/m^2]"""
        if self.nominal_frequency is None:
            return None
        return self.work_per_cycle * self.nominal_frequency / self.area
