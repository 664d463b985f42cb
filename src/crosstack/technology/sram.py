"""On-chip memory: banks behind a crossbar."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import require, require_quantity

__all__ = ["SramTechnology", "whole"]

Floats = NDArray[np.float64]
SLACK = 1e-12  # relative; 0.3 mm2 holds three parts of 0.1 mm2, whatever the last bit says


def whole(ratio: ArrayLike) -> Floats:
    """Return how many whole parts fit: the floor, forgiving rounding in the last bits. [1]"""
    found: Floats = np.floor(np.asarray(ratio, dtype=float) * (1.0 + SLACK))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class SramTechnology:
    """What a bank costs.

    Source of the fields: ``ardalani2022deepflow``, Table 2.

    Parameters
    ----------
    area_per_bit : float
        Of the cells. [m^2]
    bank_capacity : float
        The smallest memory that can be had. [B]
    energy_per_bit : float
        To read or write one bit, array and crossbar. [J]
    static_power_per_bit : float
        Leakage. [W]
    periphery : float
        Share of a level's area that holds no cells. [1]
    crossbar_area : float
        Of a bank's port to one client. [m^2]
    latency : float
        From the request to the first byte. [s]
    name : str
        For people.
    """

    area_per_bit: float
    bank_capacity: float
    energy_per_bit: float
    static_power_per_bit: float = 0.0
    periphery: float = 0.0
    crossbar_area: float = 0.0
    latency: float = 0.0
    name: str = "sram"

    def __post_init__(self) -> None:
        """Check every field."""
        require_quantity("area_per_bit", self.area_per_bit, "m^2", above_zero=True)
        require_quantity("bank_capacity", self.bank_capacity, "B", above_zero=True)
        require_quantity("energy_per_bit", self.energy_per_bit, "J", above_zero=True)
        require_quantity("static_power_per_bit", self.static_power_per_bit, "W")
        require_quantity("crossbar_area", self.crossbar_area, "m^2")
        require_quantity("latency", self.latency, "s")
        require_quantity("periphery", self.periphery, "1")
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

        The paper iterates until banks and crossbar fit; the crossbar grows with banks times
        clients, so one division is the fixed point.

        References
        ----------
        ardalani2022deepflow, 4.4.2
        """
        return whole(np.asarray(area, dtype=float) / self.area_per_bank(n_clients))

    def static_power(self, capacity: ArrayLike) -> Floats:
        """Leakage of ``capacity`` bytes. [W]

        References
        ----------
        ardalani2022deepflow, equation 2
        """
        return 8 * self.static_power_per_bit * np.asarray(capacity, dtype=float)

    def bandwidth(self, dynamic_power: ArrayLike) -> Floats:
        """Bandwidth that ``dynamic_power`` pays for. [B/s]

        References
        ----------
        ardalani2022deepflow, equation 3
        """
        return np.asarray(dynamic_power, dtype=float) / (8 * self.energy_per_bit)

    @property
    def capacity_density(self) -> float:
        """Bytes per area, with periphery, without crossbar. [B/m^2]"""
        return (1 - self.periphery) / (8 * self.area_per_bit)
