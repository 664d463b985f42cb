"""Main memory: stacks or devices beside the chip, controllers and wires on it."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require, require_quantity, require_whole
from crosstack.technology.voltage import Supply

__all__ = ["DramTechnology"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DramTechnology:
    """What a stack (or a device, or a module) of main memory gives and costs.

    Source of the fields: ``ardalani2022deepflow``, Table 2.

    Parameters
    ----------
    stack_capacity : float
        Of one stack. [B]
    stack_area : float
        On the package, beside the chip; 0 for memory on the board. [m^2]
    controller_area : float
        On the chip, for one stack. [m^2]
    wires_per_stack : int
        Data wires. [1]
    wires_per_length : float
        Data wires that leave a length of the chip's edge. [1/m]
    energy_per_bit : float
        At nominal voltage, array and interface. [J]
    static_power_per_bit : float
        Refresh and leakage. [W]
    nominal_rate : float or None
        Of one wire at nominal voltage; None where only a given rate is known. [bit/s]
    latency : float
        From the request to the first byte. [s]
    supply : Supply
        Of the interface.
    name : str
        For people.
    """

    stack_capacity: float
    stack_area: float
    controller_area: float
    wires_per_stack: int
    wires_per_length: float
    energy_per_bit: float
    supply: Supply
    static_power_per_bit: float = 0.0
    nominal_rate: float | None = None
    latency: float = 0.0
    name: str = "dram"

    def __post_init__(self) -> None:
        """Check every field."""
        require_quantity("stack_capacity", self.stack_capacity, "B", above_zero=True)
        require_quantity("stack_area", self.stack_area, "m^2")
        require_quantity("controller_area", self.controller_area, "m^2")
        some = self.stack_area > 0 or self.controller_area > 0
        allowed = "above 0 [m^2], unless the stack takes area beside the chip"
        require(some, "controller_area", self.controller_area, allowed)
        require_whole("wires_per_stack", self.wires_per_stack)
        require_quantity("wires_per_length", self.wires_per_length, "1/m", above_zero=True)
        require_quantity("energy_per_bit", self.energy_per_bit, "J", above_zero=True)
        require_quantity("static_power_per_bit", self.static_power_per_bit, "W")
        if self.nominal_rate is not None:
            require_quantity("nominal_rate", self.nominal_rate, "bit/s", above_zero=True)
        require_quantity("latency", self.latency, "s")

    @property
    def stack_bandwidth(self) -> float | None:
        """Of one stack at nominal voltage: wires rate / 8. [B/s]"""
        return None if self.nominal_rate is None else self.wires_per_stack * self.nominal_rate / 8

    @property
    def edge_bandwidth(self) -> float | None:
        """Per length of the chip's edge at nominal voltage. [B/s/m]"""
        return None if self.nominal_rate is None else self.wires_per_length * self.nominal_rate / 8
