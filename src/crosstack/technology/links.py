"""Links that leave a chip: to its neighbours on the package, and off it."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require_quantity
from crosstack.technology.voltage import Supply

__all__ = ["LinkTechnology"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTechnology:
    """What one wire (or one lane of a wire pair) gives and costs.

    Source of the fields: ``ardalani2022deepflow``, Table 2.

    Parameters
    ----------
    energy_per_bit : float
        At nominal voltage. [J]
    area_per_wire : float
        Of driver and receiver, on the chip. [m^2]
    wires_per_length : float
        That leave a length of the chip's edge. [1/m]
    nominal_rate : float
        Of one wire at nominal voltage. [bit/s]
    latency : float
        Of one hop. [s]
    supply : Supply
        Of the driver.
    name : str
        For people.
    """

    energy_per_bit: float
    area_per_wire: float
    wires_per_length: float
    nominal_rate: float
    supply: Supply
    latency: float = 0.0
    name: str = "link"

    def __post_init__(self) -> None:
        """Check every field."""
        require_quantity("energy_per_bit", self.energy_per_bit, "J", above_zero=True)
        require_quantity("area_per_wire", self.area_per_wire, "m^2", above_zero=True)
        require_quantity("wires_per_length", self.wires_per_length, "1/m", above_zero=True)
        require_quantity("nominal_rate", self.nominal_rate, "bit/s", above_zero=True)
        require_quantity("latency", self.latency, "s")

    @property
    def area_per_bandwidth(self) -> float:
        """Chip area for a bandwidth at nominal voltage. [m^2/(B/s)]"""
        return 8 * self.area_per_wire / self.nominal_rate

    @property
    def edge_bandwidth(self) -> float:
        """Per length of the chip's edge at nominal voltage. [B/s/m]"""
        return self.wires_per_length * self.nominal_rate / 8
