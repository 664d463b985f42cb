"""Which budgets are impossible: what is asked, what there is, and what would help."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.machine.generate.generator import GeneratedChips
from crosstack.machine.generate.template import DramPart, SramPart
from crosstack.technology.voltage import relative_power

Floats = NDArray[np.float64]
UNCHECKED = "rules that take the parts as they are (checks_budgets: false)"
ROUNDING = 1e-3  # relative: published breakdowns are rounded and may exceed the whole by so much


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Check:
    """A demand that must not exceed a limit, for every budget; ``slack`` is relative. [1]"""

    resource: str
    where: str
    unit: str
    demand: Floats
    limit: Floats
    levers: tuple[str, ...]
    slack: float = 1e-12

    @property
    def holds(self) -> NDArray[np.bool_]:
        """Whether it does."""
        return np.asarray(self.demand <= self.limit * (1 + self.slack))


def feasible(chips: GeneratedChips) -> NDArray[np.bool_]:
    """Return, for every budget, whether a chip can be made from it."""
    found = np.ones(chips.budget.shape, dtype=bool)
    for check in checks_of(chips):
        found &= check.holds
    return found


def checks_of(chips: GeneratedChips) -> list[Check]:
    """Return what has to hold under the chips' rules, the totals first."""
    found: list[Check] = []
    if chips.rules.checks_budgets:
        found += [*_totals(chips), *_compute(chips)]
        for part in chips.template.srams:
            found += _sram(chips, part)
        found += _dram(chips, chips.template.dram)
    return found + chips.rules.own_checks(chips)


def _check(
    resource: str, where: str, unit: str, demand: ArrayLike, limit: ArrayLike,
    chips: GeneratedChips, *levers: str, slack: float = 1e-12,
) -> Check:  # fmt: skip
    asked, there = (
        np.broadcast_to(np.asarray(amount, dtype=float), chips.budget.shape)
        for amount in (demand, limit)
    )
    return Check(
        resource=resource, where=where, unit=unit, demand=asked, limit=there, levers=levers,
        slack=slack,
    )  # fmt: skip


def _sum(parts: Mapping[str, ArrayLike]) -> Floats:
    return np.asarray(sum(np.asarray(value, dtype=float) for value in parts.values()), dtype=float)


def _totals(chips: GeneratedChips) -> list[Check]:
    budget = chips.budget
    mm2 = 1e6
    return [
        _check(
            "area", "the sum of the components", "mm2", _sum(budget.areas) * mm2,
            np.asarray(budget.chip_area) * mm2, chips,
            "less area for a component", "a larger chip", UNCHECKED, slack=ROUNDING,
        ),
        _check(
            "area", "the chip", "mm2", np.asarray(budget.chip_area) * mm2,
            np.asarray(budget.package_area) * mm2, chips, "a smaller chip", "a larger package",
        ),
        _check(
            "power", "the sum of the components", "W", _sum(budget.powers), budget.power, chips,
            "less power for a component", "more power in all", UNCHECKED, slack=ROUNDING,
        ),
        _check(
            "edge", "the sum of the components", "of the perimeter", _sum(budget.edges), 1.0, chips,
            "a smaller share of the edge for a component", UNCHECKED, slack=ROUNDING,
        ),
    ]  # fmt: skip


def _compute(chips: GeneratedChips) -> list[Check]:
    part, budget = chips.template.compute, chips.budget
    unit = part.unit
    found = []
    if part.n_multiprocessors is None:
        multiprocessor = part.units_per_multiprocessor * unit.area
        found.append(
            _check(
                "area", "one multiprocessor of compute", "mm2", multiprocessor * 1e6,
                budget.area("compute") * 1e6, chips,
                "more area for compute", "fewer units in a multiprocessor", "a denser node",
            )
        )  # fmt: skip
    lowest = unit.power * relative_power(unit.supply.minimum, unit.supply)
    found.append(
        _check(
            "power", "one compute unit at its minimum voltage", "W", lowest,
            budget.power_of("compute"), chips, "more power for compute",
        )
    )  # fmt: skip
    return found


def _sram(chips: GeneratedChips, part: SramPart) -> list[Check]:
    budget, technology = chips.budget, part.technology
    index = chips.template.srams.index(part)
    found = []
    if part.capacity is None:
        each = chips.template.compute.units_per_multiprocessor
        ports = chips.rules.clients(part.scope, chips.compute.n_multiprocessors, each)
        found.append(
            _check(
                "area", f"one bank of {part.name} with its crossbar", "mm2",
                technology.area_per_bank(ports) * 1e6, budget.area(part.name) * 1e6, chips,
                f"more area for {part.name}", "smaller banks", "fewer multiprocessors",
            )
        )  # fmt: skip
    if part.bandwidth is None:
        # At the very limit leakage takes all and nothing is left to move data.
        found.append(
            _check(
                "power", f"the leakage of {part.name}, before any access,", "W",
                np.nextafter(chips.srams[index].static_power, np.inf),
                budget.power_of(part.name), chips,
                f"more power for {part.name}", f"less area for {part.name}", slack=0.0,
            )
        )  # fmt: skip
    return found


def _dram(chips: GeneratedChips, part: DramPart) -> list[Check]:
    budget, technology = chips.budget, part.technology
    found = []
    if part.capacity is None and part.n_stacks is None:
        beside = np.asarray(budget.package_area, float) - np.asarray(budget.chip_area, float)
        stack = f"one stack of {part.name}"
        found += [
            _check(
                "area", f"{stack} beside the chip", "mm2", technology.stack_area * 1e6,
                beside * 1e6, chips, "a larger package", "a smaller chip",
            ),
            _check(
                "area", f"the controller of {stack}", "mm2", technology.controller_area * 1e6,
                budget.area(part.name) * 1e6, chips, f"more area for {part.name}",
            ),
        ]  # fmt: skip
        per_stack = float(technology.wires_per_stack)
        if np.isfinite(chips.rules.stacks_at_edge(chips.dram.edge_wires, per_stack)).all():
            found.append(
                _check(
                    "edge", stack, "wires", per_stack,
                    chips.dram.edge_wires, chips,
                    f"a larger share of the edge for {part.name}", "a finer substrate",
                )
            )  # fmt: skip
    if part.bandwidth is None and part.rate is None:
        found.append(
            _check(
                "power", f"what {part.name} takes at rest", "W",
                np.nextafter(chips.dram.static_power, np.inf), budget.power_of(part.name), chips,
                f"more power for {part.name}", slack=0.0,
            )
        )  # fmt: skip
    return found
