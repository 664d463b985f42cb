"""Points that are chips: filled from a technology and a budget, many budgets at once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crosstack.errors import InfeasibleError
from crosstack.explore.axes import Assignment
from crosstack.explore.evaluators import (
    Arrays,
    BaseProblem,
    Column,
    PointAnswer,
    PointAnswers,
    answered_many,
)
from crosstack.explore.options import FileEvaluator, rules_of, split_options
from crosstack.io.chip_file import ChipDescription, read_chip
from crosstack.io.study_file import Goal
from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.checks import checks_of
from crosstack.machine.generate.generator import GeneratedChips, generate_chips
from crosstack.model.rules import rules_named

__all__ = ["Chips"]

PARTS = ("chips",)
_SHARE = re.compile(r"shares\.(area|power|edge)\.(.+)")


@dataclass(frozen=True, slots=True)
class Chips(FileEvaluator):
    """``chip``: the chip that every technology and budget make; no search."""

    name: str = "chip"
    allowed: tuple[str, ...] = ("rules",)
    parts: tuple[str, ...] = PARTS
    units: Mapping[str, str | None] = field(default_factory=dict)  # those of a chip's levels
    objectives: tuple[tuple[str, Goal], ...] = (("peak_throughput", Goal.MAXIMUM),)

    def columns(self, base: BaseProblem) -> tuple[Column, ...]:
        """Return totals, and what becomes of each component of the base."""
        described = read_chip(base.content, base.source)
        found = {
            "peak_throughput": "FLOP/s",
            "n_units": "1",
            "frequency": "Hz",
            "area": "m^2",
            "power": "W",
            "power_efficiency": "FLOP/J",
        }
        for level in described.template.srams:
            found |= {f"{level.name}.capacity": "B", f"{level.name}.bandwidth": "B/s"}
        found |= {"memory.capacity": "B", "memory.bandwidth": "B/s", "memory.stacks": "1"}
        for link in ("intra", "inter"):
            if getattr(described.template, link) is not None:
                found[f"{link}.bandwidth"] = "B/s"
        return tuple(Column(name=name, unit=unit) for name, unit in found.items())

    def check_fields(
        self, base: BaseProblem, fields: Sequence[Assignment], options: dict[str, Any]
    ) -> None:
        """Raise `InputError` if a path leads nowhere in the chip file."""
        read_chip(base.content, base.source, fields)

    def run(
        self, base: BaseProblem, assignments: Sequence[Assignment], keep: Sequence[str]
    ) -> PointAnswer:
        """Make one chip."""
        found = self.run_many(base, assignments, {})
        if found.status[0] == "infeasible":
            return PointAnswer(status="infeasible", reason=found.reason[0])
        terms = {name: float(values[0]) for name, values in found.terms.items()}
        return PointAnswer(status=str(found.status[0]), terms={**terms})

    def array_fields(self, base: BaseProblem, fields: Sequence[str]) -> dict[str, str]:
        """Return the budget's numbers: the generator takes them as arrays."""
        totals = {"chip_area": "m^2", "power": "W"}
        shares = {field: "1" for field in fields if _SHARE.fullmatch(field)}
        return shares | {field: totals[field] for field in fields if field in totals}

    def run_many(
        self, base: BaseProblem, assignments: Sequence[Assignment], arrays: Arrays
    ) -> PointAnswers:
        """Make many chips from one technology."""
        good = np.ones(max((len(numbers) for numbers in arrays.values()), default=1), dtype=bool)
        for numbers in arrays.values():
            good &= np.isfinite(numbers) & (numbers > 0)
        if not good.all():
            return answered_many(self, base, assignments, arrays, good)
        fields, options = split_options(base, assignments)
        count = max((len(numbers) for numbers in arrays.values()), default=1)
        # One budget of them stands in the file while it is read.
        first = [(path, float(numbers[0])) for path, numbers in arrays.items()]
        described = read_chip(base.content, base.source, [*fields, *first])
        rules = (rules_of(options, PARTS) or rules_named("crosstack")).chips
        chips = generate_chips(described.template, _budgets(described, arrays, count), rules)
        fits, reason = _reasons(chips, count)
        terms = {
            name: np.where(fits, np.broadcast_to(np.asarray(values, dtype=float), count), np.nan)
            for name, values in _terms(chips).items()
        }
        status = np.where(fits, "feasible", "infeasible")
        return PointAnswers(status=status, reason=reason, terms=terms)


def _budgets(described: ChipDescription, arrays: Arrays, count: int) -> Budget:
    """Return the budget with arrays in it; parts keep their share of the whole."""
    one = described.budget
    ones = np.ones(count)
    area = np.asarray(arrays.get("chip_area", np.asarray(one.chip_area, float) * ones))
    power = np.asarray(arrays.get("power", np.asarray(one.power, float) * ones))
    areas = {name: np.asarray(part) / one.chip_area * area for name, part in one.areas.items()}
    powers = {name: np.asarray(part) / one.power * power for name, part in one.powers.items()}
    edges = dict(one.edges)
    for path, numbers in arrays.items():
        share = _SHARE.fullmatch(path)
        if share is not None and share[1] == "edge":
            edges[share[2]] = numbers
        elif share is not None:
            parts, whole = (areas, area) if share[1] == "area" else (powers, power)
            parts[share[2]] = numbers * whole
    return replace(
        one,
        package_area=np.asarray(one.package_area, float) * ones,
        chip_area=area,
        power=power,
        areas=areas,
        powers=powers,
        edges=edges,
    )


def _reasons(chips: GeneratedChips, count: int) -> tuple[Any, Any]:
    fits = np.ones(count, dtype=bool)
    reason = np.full(count, None, dtype=object)
    for check in checks_of(chips):
        breaks = fits & ~np.broadcast_to(check.holds, count)
        demand, limit = np.broadcast_to(check.demand, count), np.broadcast_to(check.limit, count)
        for i in np.nonzero(breaks)[0].tolist():
            reason[i] = str(
                InfeasibleError(
                    resource=check.resource,
                    demand=float(demand[i]),
                    limit=float(limit[i]),
                    unit=check.unit,
                    where=check.where,
                    levers=check.levers,
                )
            )
        fits &= ~breaks
    return fits, reason


def _terms(chips: GeneratedChips) -> dict[str, Any]:
    power = sum(use.power for use in chips.uses.values())
    peak = chips.peak_throughput
    found: dict[str, Any] = {
        "peak_throughput": peak,
        "n_units": chips.compute.n_units,
        "frequency": chips.compute.frequency,
        "area": sum(use.area for use in chips.uses.values()),
        "power": power,
        "power_efficiency": peak / power,
    }
    for part, level in zip(chips.template.srams, chips.srams, strict=True):
        found |= {
            f"{part.name}.capacity": level.capacity,
            f"{part.name}.bandwidth": level.bandwidth,
        }
    found |= {
        "memory.capacity": chips.dram.capacity,
        "memory.bandwidth": chips.dram.bandwidth,
        "memory.stacks": chips.dram.n_stacks,
    }
    for name, link in (("intra", chips.intra), ("inter", chips.inter)):
        if link is not None:
            found[f"{name}.bandwidth"] = link.bandwidth
    return found
