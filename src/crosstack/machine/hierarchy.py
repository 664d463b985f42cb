"""A chip as a hierarchy: compute units in bundles, memory levels around them, links at the edge.

What a kernel's time is computed from. `crosstack.machine.generate.generator` makes one from a
technology and budgets; one can also be written down from data sheets. Levels are innermost first.

Source of the fields: DeepFlow's micro-architecture generator (``ardalani2022deepflow``, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require, require_quantity, require_whole, unknown_name

__all__ = ["ChipHierarchy", "Compute", "Dataflow", "Link", "MemoryLevel", "Scope"]


class Scope(StrEnum):
    """Who shares one instance of a memory level: a compute unit, a bundle or the whole chip."""

    UNIT = "unit"
    BUNDLE = "bundle"
    CHIP = "chip"


class Dataflow(StrEnum):
    """Which operand stays in the registers of the systolic array; ``none`` keeps nothing there.

    ``best`` is the one of weight, activation and output that needs the fewest register accesses.
    """

    BEST = "best"
    WEIGHT = "weight"
    ACTIVATION = "activation"
    OUTPUT = "output"
    NONE = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One level of memory, summed over the chip.

    Parameters
    ----------
    name : str
        E.g. ``"L2"``.
    scope : Scope
        Who shares one instance.
    capacity : float
        Of all instances; 0 where the level got nothing. [B]
    bandwidth : float
        Of all instances, after utilization. [B/s]
    latency : float
        From the request to the first byte. [s]
    energy_per_bit : float
        To move one bit. [J]
    static_power : float
        Of all instances. [W]
    line_size : float
        Bytes that move together; 1 where traffic is not rounded up. [B]
    partitions : int
        Parts that each keep what the bundles near them read: data that all bundles read lies in
        every part, and passes through two on its way to the far ones. [1]
    """

    name: str
    scope: Scope
    capacity: float
    bandwidth: float
    latency: float = 0.0
    energy_per_bit: float = 0.0
    static_power: float = 0.0
    line_size: float = 1.0
    partitions: int = 1

    def __post_init__(self) -> None:
        """Check every field."""
        require(isinstance(self.scope, Scope), "scope", self.scope, ", ".join(Scope))
        units = {"capacity": "B", "bandwidth": "B/s", "latency": "s", "static_power": "W"}
        for name, unit in units.items():
            require_quantity(name, getattr(self, name), unit)
        require_quantity("energy_per_bit", self.energy_per_bit, "J")
        require_quantity("line_size", self.line_size, "B", above_zero=True)
        require_whole("partitions", self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute:
    """Compute units, in bundles; a unit multiplies one small matrix by another every cycle.

    Parameters
    ----------
    n_units : int
        Compute units on the chip. [1]
    n_bundles : int
        Bundles (streaming multiprocessors); units that fill no bundle compute all the same. [1]
    work_per_cycle : float
        Of one unit. [FLOP]
    frequency : float
        Clock. [Hz]
    voltage : float
        At that clock; 0 where the clock was given and the voltage is not known. [V]
    utilization : float
        Share of the peak that compute reaches. [1]
    rows, depth : int
        A unit's array multiplies rows x depth by depth x rows. [1]
    dataflow : Dataflow
        What stays in its registers.
    power : float
        Of all units at that clock. [W]
    """

    n_units: int
    n_bundles: int
    work_per_cycle: float
    frequency: float
    voltage: float = 0.0
    utilization: float = 1.0
    rows: int = 1
    depth: int = 1
    dataflow: Dataflow = Dataflow.BEST
    power: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        require_whole("n_units", self.n_units, minimum=0)
        require_whole("n_bundles", self.n_bundles, minimum=0)
        require_whole("rows", self.rows)
        require_whole("depth", self.depth)
        units = {"work_per_cycle": "FLOP", "frequency": "Hz", "voltage": "V", "power": "W"}
        for name, unit in units.items():
            require_quantity(name, getattr(self, name), unit)
        require_quantity("utilization", self.utilization, "1", above_zero=True)
        require(self.utilization <= 1, "utilization", self.utilization, "above 0, at most 1")
        require(isinstance(self.dataflow, Dataflow), "dataflow", self.dataflow, ", ".join(Dataflow))

    @property
    def peak_throughput(self) -> float:
        """Peak rate: n_units work_per_cycle frequency. [FLOP/s]"""
        return self.n_units * self.work_per_cycle * self.frequency

    @property
    def throughput(self) -> float:
        """Rate that is reached: peak times utilization. [FLOP/s]"""
        return self.peak_throughput * self.utilization


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The links of a chip to one level of the network.

    Parameters
    ----------
    n_links : int
        Wires at the chip's edge. [1]
    bandwidth : float
        Towards one neighbour, one direction, after utilization. [B/s]
    latency : float
        Of one hop. [s]
    frequency : float
        Bits a second on one wire. [1/s]
    voltage : float
        Of the drivers. [V]
    power : float
        Of all wires. [W]
    """

    n_links: int
    bandwidth: float
    latency: float
    frequency: float = 0.0
    voltage: float = 0.0
    power: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        require_whole("n_links", self.n_links, minimum=0)
        units = {"bandwidth": "B/s", "latency": "s", "frequency": "1/s", "voltage": "V"}
        for name, unit in units.items():
            require_quantity(name, getattr(self, name), unit)
        require_quantity("power", self.power, "W")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipHierarchy:
    """Compute, the memory levels around it, and links to two levels of the network.

    Parameters
    ----------
    compute : Compute
        The units.
    levels : tuple of MemoryLevel
        Innermost (registers) first, main memory last; any number from 1.
    intra, inter : Link or None
        Links to chips of the same package or node, and to those outside.
    launch_overhead : float
        Before a kernel starts. [s]
    word : float
        Bytes of one element. [B]
    name : str
        For people.
    """

    compute: Compute
    levels: tuple[MemoryLevel, ...]
    intra: Link | None = None
    inter: Link | None = None
    launch_overhead: float = 0.0
    word: float = 2.0
    name: str = "chip"

    def __post_init__(self) -> None:
        """Check every field."""
        require(len(self.levels) >= 1, "levels", self.levels, "one memory level or more")
        names = [level.name for level in self.levels]
        require(len(set(names)) == len(names), "levels", names, "a name of its own for each level")
        require_quantity("launch_overhead", self.launch_overhead, "s")
        require_quantity("word", self.word, "B", above_zero=True)

    @property
    def main_memory(self) -> MemoryLevel:
        """The outermost level."""
        return self.levels[-1]

    def level(self, name: str) -> MemoryLevel:
        """Return the level called ``name``.

        Raises
        ------
        InputError
            If there is none; names the nearest.
        """
        for level in self.levels:
            if level.name == name:
                return level
        names = (level.name for level in self.levels)
        raise unknown_name("levels", "level is", name, names, "Levels")

    def n_instances(self, level: MemoryLevel) -> int:
        """Return how many instances of ``level`` the chip has, by its scope. [1]"""
        counts = {
            Scope.UNIT: self.compute.n_units,
            Scope.BUNDLE: self.compute.n_bundles,
            Scope.CHIP: 1,
        }
        return counts[level.scope]

    def capacity_of_instance(self, level: MemoryLevel) -> float:
        """Return the capacity of one instance of ``level``: what a tile has to fit in. [B]"""
        instances = self.n_instances(level)
        return level.capacity / instances if instances else 0.0
