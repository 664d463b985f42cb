"""What a chip is made of: compute units, on-chip memory, main memory, links, and what carries them.

Source of the fields: ``ardalani2022deepflow``, Table 2.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import require
from crosstack.records import Checked, Count, Positive, Quantity, require_types
from crosstack.technology.voltage import Supply

Floats = NDArray[np.float64]
LARGEST_ARRAY = 1024  # a side; four times the largest that are made
SLACK = 1e-12  # relative; 0.3 mm2 holds three parts of 0.1 mm2, whatever the last bit says


def whole(ratio: ArrayLike) -> Floats:
    """Return how many whole parts fit: the floor, forgiving rounding in the last bits. [1]"""
    found: Floats = np.floor(np.asarray(ratio, dtype=float) * (1.0 + SLACK))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputeUnit:
    """One unit, such as a tensor core: it multiplies rows x depth by depth x rows every cycle.

    ``nominal_frequency`` is None where only a given clock is known.
    """

    work_per_cycle: Annotated[float, Positive("FLOP", "at nominal area")]
    rows: Count
    depth: Count
    area: Annotated[float, Positive("m^2", "with its share of control")]
    power: Annotated[float, Positive("W", "at nominal voltage and frequency")]
    supply: Supply
    nominal_frequency: Annotated[float, Positive("Hz", "clock at nominal voltage")] | None = None
    name: str = "unit"

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        for field, side in (("rows", self.rows), ("depth", self.depth)):
            require(side <= LARGEST_ARRAY, field, side, f"up to {LARGEST_ARRAY:,}")

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


@dataclass(frozen=True, slots=True, kw_only=True)
class SramTechnology:
    """On-chip memory: what a bank behind a crossbar costs."""

    area_per_bit: Annotated[float, Positive("m^2", "of the cells")]
    bank_capacity: Annotated[float, Positive("B", "the smallest memory that can be had")]
    energy_per_bit: Annotated[float, Positive("J", "to read or write, array and crossbar")]
    static_power_per_bit: Annotated[float, Quantity("W", "leakage")] = 0.0
    periphery: Annotated[float, Quantity("1", "share of a level's area without cells")] = 0.0
    crossbar_area: Annotated[float, Quantity("m^2", "of a bank's port to one client")] = 0.0
    latency: Annotated[float, Quantity("s", "from the request to the first byte")] = 0.0
    name: str = "sram"

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        require(self.periphery < 1, "periphery", self.periphery, "0 to below 1")

    @property
    def bank_area(self) -> float:
        """Cells of one bank, without periphery. [m^2]"""
        return 8 * self.area_per_bit * self.bank_capacity

    def area_per_bank(self, n_clients: ArrayLike) -> Floats:
        """Area that one bank takes, with periphery and its ports to ``n_clients``. [m^2]

        ``bank_area / (1 - periphery) + n_clients crossbar_area``.
        """
        ports = np.asarray(n_clients, dtype=float) * self.crossbar_area
        return self.bank_area / (1 - self.periphery) + ports

    def banks(self, area: ArrayLike, n_clients: ArrayLike) -> Floats:
        """Banks that fit in ``area``: ``floor(area / area_per_bank)``. [1]

        The paper iterates until banks and crossbar fit (``ardalani2022deepflow``, 4.4.2); the
        crossbar grows with banks times clients, so one division is the fixed point.
        """
        return whole(np.asarray(area, dtype=float) / self.area_per_bank(n_clients))

    def static_power(self, capacity: ArrayLike) -> Floats:
        """Leakage of ``capacity`` bytes: ``ardalani2022deepflow``, equation 2. [W]"""
        return 8 * self.static_power_per_bit * np.asarray(capacity, dtype=float)

    def bandwidth(self, dynamic_power: ArrayLike) -> Floats:
        """Bandwidth that ``dynamic_power`` pays for: ``ardalani2022deepflow``, equation 3. [B/s]"""
        return np.asarray(dynamic_power, dtype=float) / (8 * self.energy_per_bit)

    @property
    def capacity_density(self) -> float:
        """Bytes per area, with periphery, without crossbar. [B/m^2]"""
        return (1 - self.periphery) / (8 * self.area_per_bit)


@dataclass(frozen=True, slots=True, kw_only=True)
class DramTechnology:
    """What a stack (or a device, or a module) of main memory gives and costs.

    ``nominal_rate`` is None where only a given rate is known.
    """

    stack_capacity: Annotated[float, Positive("B")]
    stack_area: Annotated[float, Quantity("m^2", "beside the chip; 0 for memory on the board")]
    controller_area: Annotated[float, Quantity("m^2", "on the chip, for one stack")]
    wires_per_stack: Count  # of data
    wires_per_length: Annotated[float, Positive("1/m", "that leave the chip's edge")]
    energy_per_bit: Annotated[float, Positive("J", "at nominal voltage, array and interface")]
    supply: Supply
    static_power_per_bit: Annotated[float, Quantity("W", "refresh and leakage")] = 0.0
    nominal_rate: Annotated[float, Positive("bit/s", "of a wire, nominal voltage")] | None = None
    latency: Annotated[float, Quantity("s", "from the request to the first byte")] = 0.0
    name: str = "dram"

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        some = self.stack_area > 0 or self.controller_area > 0
        allowed = "above 0 [m^2], unless the stack takes area beside the chip"
        require(some, "controller_area", self.controller_area, allowed)

    @property
    def stack_bandwidth(self) -> float | None:
        """Of one stack at nominal voltage: wires rate / 8. [B/s]"""
        return None if self.nominal_rate is None else self.wires_per_stack * self.nominal_rate / 8

    @property
    def edge_bandwidth(self) -> float | None:
        """Per length of the chip's edge at nominal voltage. [B/s/m]"""
        return None if self.nominal_rate is None else self.wires_per_length * self.nominal_rate / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkTechnology(Checked):
    """What one wire (or one lane of a wire pair) that leaves a chip gives and costs."""

    energy_per_bit: Annotated[float, Positive("J", "at nominal voltage")]
    area_per_wire: Annotated[float, Positive("m^2", "of driver and receiver, on the chip")]
    wires_per_length: Annotated[float, Positive("1/m", "that leave the chip's edge")]
    nominal_rate: Annotated[float, Positive("bit/s", "of one wire at nominal voltage")]
    supply: Supply
    latency: Annotated[float, Quantity("s", "of one hop")] = 0.0
    name: str = "link"

    @property
    def area_per_bandwidth(self) -> float:
        """Chip area for a bandwidth at nominal voltage. [m^2/(B/s)]"""
        return 8 * self.area_per_wire / self.nominal_rate

    @property
    def edge_bandwidth(self) -> float:
        """Per length of the chip's edge at nominal voltage. [B/s/m]"""
        return self.wires_per_length * self.nominal_rate / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Substrate(Checked):
    """A board, an organic package, an interposer or a wafer: what carries chip and memory."""

    wires_per_length: Annotated[float, Positive("1/m", "across the chip's edge, all layers")]
    maximum_area: Annotated[float, Positive("m^2", "the largest that is made")]
    name: str = "substrate"

    def carry_memory(self, dram: DramTechnology) -> DramTechnology:
        """Return ``dram`` with no more wires per length than the substrate has."""
        return replace(dram, wires_per_length=min(dram.wires_per_length, self.wires_per_length))

    def carry_link(self, link: LinkTechnology) -> LinkTechnology:
        """Return ``link`` with no more wires per length than the substrate has."""
        return replace(link, wires_per_length=min(link.wires_per_length, self.wires_per_length))
