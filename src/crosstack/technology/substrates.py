"""Substrates: what carries the chip and its memory, and how many wires fit in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from crosstack.errors import require_quantity
from crosstack.technology.dram import DramTechnology
from crosstack.technology.links import LinkTechnology

__all__ = ["Substrate"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Substrate:
    """A board, an organic package, an interposer or a wafer.

    Parameters
    ----------
    wires_per_length : float
        That cross a length of the chip's edge, all layers. [1/m]
    maximum_area : float
        The largest that is made. [m^2]
    name : str
        For people.
    """

    wires_per_length: float
    maximum_area: float
    name: str = "substrate"

    def __post_init__(self) -> None:
        """Check every field."""
        require_quantity("wires_per_length", self.wires_per_length, "1/m", above_zero=True)
        require_quantity("maximum_area", self.maximum_area, "m^2", above_zero=True)

    def carry_memory(self, dram: DramTechnology) -> DramTechnology:
        """Return ``dram`` with no more wires per length than the substrate has."""
        return replace(dram, wires_per_length=min(dram.wires_per_length, self.wires_per_length))

    def carry_link(self, link: LinkTechnology) -> LinkTechnology:
        """Return ``link`` with no more wires per length than the substrate has."""
        return replace(link, wires_per_length=min(link.wires_per_length, self.wires_per_length))
