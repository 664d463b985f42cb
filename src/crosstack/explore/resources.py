"""The numbers of a machine that a time or a price may depend on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from crosstack.machine.chip import flat_fields
from crosstack.machine.system import System

__all__ = ["ROOM", "Resource", "resources_of"]

Place = tuple[str | int, ...]
ROOM = "memory capacity"


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A number of the machine: its ``place`` in a `System`, and its ``path`` in the task.

    ``name`` is what it is called, ``value`` is in ``unit``.
    """

    place: Place
    path: str
    name: str
    value: float
    unit: str

    @property
    def cost(self) -> bool:
        """Whether less is better: a latency or a price."""
        return self.unit == "s" or self.priced

    @property
    def priced(self) -> bool:
        """Whether it is a price, which changes no mapping."""
        return "USD" in self.unit

    @property
    def of_links(self) -> bool:
        """Whether it is a number of the network's links."""
        return self.place[0] == "network" and not self.priced

    def scaled(self, system: System, value: float) -> System:
        """Return the machine with another value."""
        changed: System = _with(system, self.place, value)
        return changed


def _at(record: Any, place: Place) -> Any:
    """Return what stands at a place in nested records."""
    for step in place:
        record = record[step] if isinstance(step, int) else getattr(record, step)
    return record


def _with(record: Any, place: Place, value: float) -> Any:
    """Return nested records with another value at a place."""
    if not place:
        return value
    step, *rest = place
    changed = _with(_at(record, (step,)), tuple(rest), value)
    if isinstance(step, int):
        return (*record[:step], changed, *record[step + 1 :])
    return replace(record, **{step: changed})


def resources_of(system: System) -> tuple[Resource, ...]:
    """Return every number of a machine that a time or a price may depend on."""
    found = []
    for name, unit, place, path in _numbers(system):
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        found.append(
            Resource(
                place=place,
                path=f"system{''.join(steps)}" if path is None else f"system.{path}",
                name=name,
                value=_at(system, place) or 0.0,
                unit=unit,
            )
        )
    return tuple(found)


def _numbers(system: System) -> Iterator[tuple[str, str, Place, str | None]]:
    """Yield name, unit and place of every number; its path where a file calls it otherwise."""
    chip = system.chip
    flat = flat_fields(chip) is not None
    clock: Place = ("chip", "compute", "frequency")
    yield "clock", "Hz", clock, "chip.frequency" if flat else None
    for i, level in enumerate(chip.levels):
        field = "capacity" if level.bank_capacity is None else "bank_capacity"
        known = {"capacity": "sram_capacity", "bank_capacity": "memory_unit_capacity"}[field]
        yield level.name, "B", ("chip", "levels", i, field), f"chip.{known}" if flat else None
    for i, memory in enumerate(chip.memories):
        for field, unit in (("bandwidth", "B/s"), ("capacity", "B")):
            if getattr(memory, field) is not None:
                name = f"second memory's {field}" if i else f"memory {field}"
                path = f"memory.{'second_' if i else ''}{field}"
                yield name, unit, ("chip", "memories", i, field), path
    for i, dimension in enumerate(system.network):
        if dimension.size == 1:
            continue
        yield f"bandwidth of dimension {i}", "B/s", ("network", i, "bandwidth"), None
        yield f"latency of dimension {i}", "s", ("network", i, "latency"), None
        for field, name in (("link_price", "links"), ("switch_price", "switches")):
            if getattr(dimension, field):  # else the system's
                yield f"price of {name}", "USD/(B/s)", ("network", i, field), None
    yield "price of a chip", "USD", ("chip", "price"), None
    for field, name in (("link", "links"), ("switch", "switches"), ("memory", "memory")):
        yield f"price of {name}", "USD/(B/s)", ("prices", field), None
