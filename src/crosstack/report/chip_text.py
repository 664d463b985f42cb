"""A generated chip as tables and as JSON: what it is, and what became of its budget."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.chip.generated import Component, GeneratedChip
from crosstack.chip.hierarchy import Link, Scope
from crosstack.report.text import pairs_table, rows_table
from crosstack.report.wording import Table, percent, plural
from crosstack.units import format_quantity

__all__ = ["chip_data", "chip_tables"]

MM2 = 1e6


def chip_tables(chip: GeneratedChip) -> Group:
    """Return compute, memory levels, links, and the budget component by component."""
    hierarchy = chip.hierarchy
    return Group(
        Text(f"{hierarchy.name}, by the rules {chip.rules}", style="bold"),
        pairs_table(_compute(chip)),
        rows_table(_levels(chip)),
        Text("What each component takes, and what binds it", style="bold"),
        rows_table(_budget(chip)),
        pairs_table(_left(chip)),
        *(Text(f"Warning: {words}") for words in chip.warnings),
    )


def _compute(chip: GeneratedChip) -> tuple[tuple[str, str], ...]:
    compute = chip.hierarchy.compute
    units = f"{plural(compute.n_units, 'unit')} in {plural(compute.n_bundles, 'bundle')}"
    at = f" at {compute.voltage:.4g} V" if compute.voltage else ""
    clock = f"{format_quantity(compute.frequency, 'Hz')}{at}"
    peak = format_quantity(compute.peak_throughput, "FLOP/s")
    reached = format_quantity(compute.throughput, "FLOP/s")
    share = percent(compute.utilization)
    pairs = [("compute", f"{units}, {clock}"), ("peak", f"{peak}; {reached} at {share}")]
    for name in ("intra", "inter"):
        link: Link | None = getattr(chip.hierarchy, name)
        if link is not None and link.n_links:
            rate = f"{link.n_links:,} wires of {format_quantity(link.frequency, 'bit/s')}"
            towards = f"{format_quantity(link.bandwidth, 'B/s')} towards a neighbour"
            pairs.append((f"{name} links", f"{towards}; {rate} at {link.voltage:.4g} V"))
    stacks = f"{chip.n_stacks:,} of {chip.hierarchy.main_memory.name}"
    pairs.append(("main memory", stacks))
    return tuple(pairs)


def _levels(chip: GeneratedChip) -> Table:
    shared = {Scope.UNIT: "a unit", Scope.BUNDLE: "a bundle", Scope.CHIP: "the chip"}
    hierarchy = chip.hierarchy
    return Table(
        header=("memory", "capacity", "each", "shared by", "bandwidth", "pJ/bit"),
        numeric=(False, True, True, False, True, True),
        rows=tuple(
            (
                level.name,
                format_quantity(level.capacity, "B"),
                format_quantity(hierarchy.capacity_of_instance(level), "B"),
                shared[level.scope],
                format_quantity(level.bandwidth, "B/s"),
                f"{level.energy_per_bit * 1e12:.3g}",
            )
            for level in hierarchy.levels
        ),
    )


def _budget(chip: GeneratedChip) -> Table:
    return Table(
        header=("component", "mm2", "of", "W", "of", "size bound by", "rate bound by"),
        numeric=(False, True, True, True, True, False, False),
        rows=tuple(_row(part) for part in chip.components),
    )


def _row(part: Component) -> tuple[str, ...]:
    return (
        part.name,
        f"{part.area * MM2:.4g}",
        f"{part.area_budget * MM2:.4g}",
        f"{part.power:.4g}",
        f"{part.power_budget:.4g}",
        part.size_bound.words,
        part.rate_bound.words,
    )


def _left(chip: GeneratedChip) -> tuple[tuple[str, str], ...]:
    return (
        ("area left", f"{chip.unused_area * MM2:.4g} of {chip.area * MM2:.4g} mm2"),
        ("power left", f"{chip.unused_power:.4g} of {chip.power:.4g} W"),
    )


def chip_data(chip: GeneratedChip) -> dict[str, Any]:
    """Return a generated chip as JSON holds it, in SI units: hierarchy, components, what is left.

    Fields are those of `ChipHierarchy` and `Component`.
    """
    parts = []
    for part in chip.components:
        bounds = {"size_bound": part.size_bound.words, "rate_bound": part.rate_bound.words}
        unused = {"unused_area": part.unused_area, "unused_power": part.unused_power}
        parts.append(asdict(part) | bounds | unused)
    return {
        "rules": chip.rules,
        "hierarchy": asdict(chip.hierarchy)
        | {"throughput": chip.hierarchy.compute.throughput, "n_stacks": chip.n_stacks},
        "components": parts,
        "area": chip.area,
        "power": chip.power,
        "unused_area": chip.unused_area,
        "unused_power": chip.unused_power,
        "warnings": list(chip.warnings),
    }
