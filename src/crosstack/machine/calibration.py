"""A machine as it was measured: what it reaches of its data sheet, as a few factors.

Each is over what the machine has without it, so that 1 changes nothing: how fast products are (the
share of the clock that they run at; what is used of the peak stays a share of the data sheet's),
how much of main memory's bandwidth is reached, what links in a node and ports out of it carry, and
how long launches take the chip and its host. One is not of the machine but of the jobs that it ran:
how many tokens the fullest expert has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from crosstack.errors import require, require_quantity, require_whole
from crosstack.machine.chip import Chip, Execution
from crosstack.machine.framework import Framework
from crosstack.machine.system import System
from crosstack.records import require_types

_CALIBRATED = ", calibrated on "  # behind the name of a machine


class Range(NamedTuple):
    """The least and the most that a factor may be, and what it is of. [1]"""

    least: float
    most: float
    of: str


FACTORS: Mapping[str, Range] = {
    "products": Range(0.4, 1.3, "rate of matrix products"),
    "memory": Range(0.3, 1.2, "bandwidth of main memory"),
    "links": Range(0.1, 1.3, "bandwidth of the links in a node"),
    "ports": Range(0.05, 1.3, "bandwidth between nodes"),
    "launch": Range(0.2, 5.0, "time that a launch takes the chip"),
    "dispatch": Range(0.2, 5.0, "time that a launch takes the host"),
    "imbalance": Range(1.0, 4.0, "tokens of the fullest expert"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Factors of a machine, and what they were found on: a table, so many rows, their digest. [1]

    ``imbalance`` is that of the jobs in the table (`crosstack.workload.job.Job`): a machine does
    not have it, and `applied` leaves it out.
    """

    products: float = 1.0
    memory: float = 1.0
    links: float = 1.0
    ports: float = 1.0
    launch: float = 1.0
    dispatch: float = 1.0
    imbalance: float = 1.0
    table: str = ""
    rows: int = 0
    digest: str = ""

    def __post_init__(self) -> None:
        """Check that every factor is in its range."""
        require_types(self)
        for name, (least, most, _) in FACTORS.items():
            value = getattr(self, name)
            require_quantity(name, value, "1", above_zero=True)
            require(least <= value <= most, name, value, f"{least:g} to {most:g}")
        require_whole("rows", self.rows, minimum=0)

    @property
    def said(self) -> dict[str, Any]:
        """What is not as where nothing was measured, by name."""
        return {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if getattr(self, item.name) != item.default
        }

    def chip(self, chip: Chip) -> Chip:
        """Return a chip as it was measured."""
        made = chip.with_compute(**self._clock(chip))
        if made.memories and (bandwidth := made.main_memory.bandwidth) is not None:
            made = made.with_memory(bandwidth=bandwidth * self.memory)
        made = replace(made, launch_overhead=made.launch_overhead * self.launch)
        driven = None if made.framework is None else self.host(made.framework)
        return replace(made, framework=driven)

    def _clock(self, chip: Chip) -> dict[str, float]:
        """Return fields of `Compute`: the share of the clock at which products run, not the peak.

        What lays kernels out in space has no such share; its clock is another.
        """
        compute, clock = chip.compute, self.products
        if clock == 1.0:
            return {}
        if chip.execution is Execution.SPATIAL:
            return {"frequency": compute.frequency * clock}
        if compute.sustained is None:
            return {"boost": clock, "sustained": clock}
        clocks = {"boost": compute.boost, "sustained": compute.sustained}
        if compute.starting is not None:
            clocks["starting"] = compute.starting
        return {name: share * clock for name, share in clocks.items()}

    def host(self, framework: Framework) -> Framework:
        """Return a framework whose host was measured."""
        if framework.dispatch is None:
            return framework
        return replace(framework, dispatch=framework.dispatch * self.dispatch)

    def applied(self, system: System) -> System:
        """Return a system as it was measured, which its name says."""
        inner, *outer = system.network
        network = (
            replace(inner, bandwidth=inner.bandwidth * self.links),
            *(replace(level, bandwidth=level.bandwidth * self.ports) for level in outer),
        )
        return replace(
            system, chip=self.chip(system.chip), network=network, name=self.named(system.name)
        )

    def named(self, name: str) -> str:
        """Return the name of a machine, with that it is calibrated where it is."""
        return f"{name}{_CALIBRATED}{self.rows:,} rows" if self.rows else name


def is_calibrated(system: System) -> bool:
    """Whether a system is as it was measured, which its name says."""
    return _CALIBRATED in system.name


AS_SAID = Calibration()  # of what the library has: nothing was measured
