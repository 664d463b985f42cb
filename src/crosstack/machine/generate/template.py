"""What a chip is to be made of, before areas and powers decide how much of each.

Source of the fields: the architecture template of ``ardalani2022deepflow``, section 4.2. What a
template gives as a number (clock, capacity, bandwidth) is taken as it is, as from a data sheet;
what it leaves out is generated.
"""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.errors import require, require_quantity, require_whole
from crosstack.machine.compute import Dataflow
from crosstack.machine.memory import Scope
from crosstack.technology.parts import ComputeUnit, DramTechnology, LinkTechnology, SramTechnology
from crosstack.workload.dtype import Dtype

MOST_UNITS = 65_536  # in a multiprocessor; hundreds are made


def _share(name: str, value: float) -> None:
    require_quantity(name, value, "1", above_zero=True)
    require(value <= 1, name, value, "above 0, at most 1")


def _optional(record: object, names: dict[str, str]) -> None:
    for name, unit in names.items():
        value = getattr(record, name)
        if value is not None:
            require_quantity(name, value, unit, above_zero=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputePart:
    """The compute of a chip.

    ``units_per_multiprocessor`` units form a multiprocessor. ``utilization`` is the share of the
    peak that is reached. [1] ``n_multiprocessors`` [1] and ``frequency`` [Hz] are generated where
    they are None.
    """

    unit: ComputeUnit
    units_per_multiprocessor: int
    dataflow: Dataflow = Dataflow.BEST
    utilization: float = 1.0
    n_multiprocessors: int | None = None
    frequency: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        require_whole("units_per_multiprocessor", self.units_per_multiprocessor)
        few = self.units_per_multiprocessor <= MOST_UNITS
        require(
            few, "units_per_multiprocessor", self.units_per_multiprocessor, f"up to {MOST_UNITS:,}"
        )
        _share("utilization", self.utilization)
        if self.n_multiprocessors is not None:
            require_whole("n_multiprocessors", self.n_multiprocessors)
        _optional(self, {"frequency": "Hz"})
        known = self.frequency is not None or self.unit.nominal_frequency is not None
        allowed = "the clock, or a unit with a nominal_frequency"
        require(known, "frequency", self.frequency, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class SramPart:
    """A level of on-chip memory; ``capacity`` [B] and ``bandwidth`` [B/s] are None to generate."""

    name: str
    technology: SramTechnology
    scope: Scope
    utilization: float = 1.0
    capacity: float | None = None
    bandwidth: float | None = None
    line_size: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        _share("utilization", self.utilization)
        _optional(self, {"capacity": "B", "bandwidth": "B/s", "line_size": "B"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DramPart:
    """Main memory; ``capacity`` [B], ``bandwidth`` [B/s], ``n_stacks`` [1] and ``rate`` [bit/s].

    Each of them is generated where it is None; ``rate`` is that of one wire.
    """

    name: str
    technology: DramTechnology
    utilization: float = 1.0
    capacity: float | None = None
    bandwidth: float | None = None
    n_stacks: int | None = None
    rate: float | None = None
    line_size: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        _share("utilization", self.utilization)
        _optional(self, {"capacity": "B", "bandwidth": "B/s", "rate": "bit/s", "line_size": "B"})
        if self.n_stacks is not None:
            require_whole("n_stacks", self.n_stacks)
        known = self.rate is not None or self.technology.nominal_rate is not None
        allowed = "the rate of a wire, or a technology with a nominal_rate"
        require(known, "rate", self.rate, allowed)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPart:
    """Links to one level of the network, shared out evenly over ``n_neighbours``. [1]"""

    technology: LinkTechnology
    n_neighbours: int = 1
    utilization: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        require_whole("n_neighbours", self.n_neighbours)
        _share("utilization", self.utilization)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipTemplate:
    """A chip without its sizes.

    ``compute``: the units; ``srams``: on-chip memory, innermost first; ``dram``: main memory;
    ``intra``, ``inter``: links to the chips of the same package, and out of it;
    ``launch_overhead``: before a kernel starts [s]; ``dtype``: what work and depth of the units are
    given for; ``name``: for people.
    """

    compute: ComputePart
    srams: tuple[SramPart, ...]
    dram: DramPart
    intra: LinkPart | None = None
    inter: LinkPart | None = None
    launch_overhead: float = 0.0
    dtype: Dtype = Dtype.BF16
    name: str = "chip"

    def __post_init__(self) -> None:
        """Check that the levels can be told apart."""
        names = [*(level.name for level in self.srams), self.dram.name]
        apart = len(set(names)) == len(names) and not set(names) & {"compute", "intra", "inter"}
        allowed = "a name of its own for each level; compute, intra and inter are taken"
        require(apart, "levels", names, allowed)
        require_quantity("launch_overhead", self.launch_overhead, "s")

    @property
    def components(self) -> tuple[str, ...]:
        """Names of everything that a budget is shared out over."""
        names = ["compute", *(level.name for level in self.srams), self.dram.name]
        names += [name for name in ("intra", "inter") if getattr(self, name) is not None]
        return tuple(names)
