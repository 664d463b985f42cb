"""Price and power of a system: chips, memory, links and switches.

The amounts of links and switch ports of a dimension are those of its kind
(`crosstack.machine.network.KINDS`); of rings, which pay for switch ports too, switches and fully
connected groups they follow ``dfmodel_code``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import ClassVar

import numpy as np

from crosstack.errors import Problem
from crosstack.machine.network import KINDS
from crosstack.machine.system import System

# Below this many chips the published accounting charges no switch.
FEWEST_CHIPS_WITH_SWITCHES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """A total and its parts; price in USD or power in W, None where it is not given."""

    chips: float | None
    memory: float | None
    links: float | None
    switches: float | None
    DERIVED: ClassVar[tuple[str, ...]] = ("total",)

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the parts that are not given."""
        return tuple(item.name for item in fields(self) if getattr(self, item.name) is None)

    @property
    def total(self) -> float | None:
        """Sum of the parts; None where one of them is not given."""
        return _sum(getattr(self, item.name) for item in fields(self))


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What a link and a switch port of one dimension cost for each byte a second they carry.

    In USD/(B/s) or W/(B/s); None where it is not given, at the paths ``fields`` of a system.
    """

    link: float | None
    switch: float | None
    fields: tuple[str, str]


def unit_prices(system: System) -> tuple[UnitCosts, ...]:
    """Return the prices of links and ports of every dimension: its own, or the system's."""
    fields = ("system.prices.link", "system.prices.switch")
    link, switch = system.prices.link, system.prices.switch
    return tuple(
        UnitCosts(_first(d.link_price, link), _first(d.switch_price, switch), fields)
        for d in system.network
    )


def unit_powers(system: System) -> tuple[UnitCosts, ...]:
    """Return the powers of links and ports of every dimension: its own, or the system's."""
    switch, field = system.prices.switch_power, "system.prices.switch_power"
    return tuple(
        UnitCosts(
            d.link_power, _first(d.switch_power, switch), (f"system.network[{i}].link_power", field)
        )
        for i, d in enumerate(system.network)
    )


def not_given(field: str, what: str) -> Problem:
    """Return what to say of a field that ``what`` needs and that is not given, with its unit."""
    last = field.rsplit(".", maxsplit=1)[-1]
    unit = {"price": "USD", "power": "W"}.get(last)
    if unit is None:
        unit = "W/(GB/s)" if last.endswith("power") else "USD/(GB/s)"
    message = f"not given, but {what} needs it; give it in {unit}, in the file or with --set."
    return Problem(field, message)


def _first(own: float | None, others: float | None) -> float | None:
    return others if own is None else own


def missing_costs(
    system: System, sizes: tuple[int, ...], units: tuple[UnitCosts, ...]
) -> tuple[str, ...]:
    """Return the fields of links and ports that are needed and not given; of several chips."""
    missing: list[str] = []
    for amounts, unit in zip(_amounts(system, sizes), units, strict=True):
        needed = zip(unit.fields, amounts, (unit.link, unit.switch), strict=True)
        missing += [f for f, amount, given in needed if given is None and np.any(amount)]
    return tuple(dict.fromkeys(missing))


def link_amounts(system: System, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """Bandwidth of all links of each dimension of so many chips. [B/s]

    Source: that of the bills of `crosstack.machine.network.KINDS`.
    """
    return tuple(links for links, _ in _amounts(system, sizes))


def switch_amounts(system: System, sizes: tuple[int, ...]) -> tuple[float, ...]:
    """Bandwidth of all switch ports of each dimension; parameters as `link_amounts`. [B/s]"""
    return tuple(ports for _, ports in _amounts(system, sizes))


def _amounts(system: System, sizes: tuple[int, ...]) -> Iterator[tuple[float, float]]:
    for i, dimension in zip(range(len(sizes)), system.network, strict=True):
        links, ports = KINDS[dimension.kind].bill(dimension.level, sizes, i)
        yield links * dimension.bandwidth, ports * dimension.bandwidth


def _bill(
    system: System,
    sizes: tuple[int, ...],
    units: tuple[UnitCosts, ...],
    *,
    chip: float | None,
    memory: float | None,
) -> Bill:
    """Return what a system costs in all, from what a chip and units of memory and links do."""
    amounts = list(zip(_amounts(system, sizes), units, strict=True))
    links = _sum(cost(amount, unit.link) for (amount, _), unit in amounts)
    switches = _sum(cost(amount, unit.switch) for (_, amount), unit in amounts)
    joined, n_chips = math.prod(sizes), system.copies * system.n_chips
    return Bill(
        chips=cost(n_chips, chip),
        memory=cost(n_chips * system.chip.main_memory.speed, memory),
        links=cost(system.copies, links) if joined > 1 else 0.0,
        switches=cost(system.copies, switches) if joined >= FEWEST_CHIPS_WITH_SWITCHES else 0.0,
    )


def cost(amount: float, unit: float | None) -> float | None:
    """Cost of an amount at a unit cost: None where that is not given, unless there is nothing."""
    if unit is None:
        return None if np.any(amount) else 0.0
    return amount * unit


def _sum(parts: Iterable[float | None]) -> float | None:
    """Sum in order, or None where a part is None."""
    total = 0.0
    for part in parts:
        if part is None:
            return None
        total += part
    return total


def system_price(system: System, sizes: tuple[int, ...]) -> Bill:
    """Price of the system with the given dimension sizes. [USD]

    Source: dfmodel_code; unit prices are those of ``system.prices`` and ``system.chip``.
    """
    prices, chip = system.prices, system.chip.price
    return _bill(system, sizes, unit_prices(system), chip=chip, memory=prices.memory)


def system_power(system: System, sizes: tuple[int, ...]) -> Bill:
    """Power of the system with the given dimension sizes, everything running. [W]

    Source: dfmodel_code.
    """
    prices, chip = system.prices, system.chip.power
    return _bill(system, sizes, unit_powers(system), chip=chip, memory=prices.memory_power)
