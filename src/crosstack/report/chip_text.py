"""A generated chip as tables and as JSON: what it is, and what became of its budget."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import Group

from crosstack.machine.generate.generated import GeneratedChip
from crosstack.machine.memory import Scope
from crosstack.report.text import pairs_table, rows_table, titled
from crosstack.report.wording import Table, percent, plural, table_of
from crosstack.units import format_quantity

MM2 = 1e6
SHARED = {Scope.UNIT: "a unit", Scope.MULTIPROCESSOR: "a multiprocessor", Scope.CHIP: "the chip"}


def chip_tables(data: dict[str, Any]) -> Group:
    """Return compute, memory levels, links, and the budget component by component.

    ``data`` is what `chip_data` returns, perhaps saved and read again.
    """
    return titled(
        f"{data['hierarchy']['name']}, by the rules {data['rules']}",
        pairs_table(chip_pairs(data)),
        rows_table(level_rows(data)),
        titled("What each component takes, and what binds it", rows_table(budget_rows(data))),
        pairs_table(left_pairs(data)),
        *(f"Warning: {words}" for words in data["warnings"]),
    )


def chip_pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return compute, links and memory in words."""
    hierarchy = data["hierarchy"]
    compute = hierarchy["compute"]
    groups = plural(compute["n_multiprocessors"], "multiprocessor")
    units = f"{plural(compute['n_units'], 'unit')} in {groups}"
    at = f" at {compute['voltage']:.4g} V" if compute["voltage"] else ""
    clock = f"{format_quantity(compute['frequency'], 'Hz')}{at}"
    peak = format_quantity(hierarchy["peak_throughput"], "FLOP/s")
    reached = format_quantity(hierarchy["throughput"], "FLOP/s")
    share = percent(compute["utilization"])
    pairs = [("compute", f"{units}, {clock}"), ("peak", f"{peak}; {reached} at {share}")]
    for name in ("intra", "inter"):
        link = hierarchy[name]
        if link is not None and link["n_links"]:
            rate = f"{link['n_links']:,} wires of {format_quantity(link['frequency'], 'bit/s')}"
            towards = f"{format_quantity(link['bandwidth'], 'B/s')} towards a neighbour"
            pairs.append((f"{name} links", f"{towards}; {rate} at {link['voltage']:.4g} V"))
    stacks = f"{hierarchy['n_stacks']:,} of {hierarchy['levels'][-1]['name']}"
    pairs.append(("main memory", stacks))
    return tuple(pairs)


def level_rows(data: dict[str, Any]) -> Table:
    """Return the memory levels."""
    return table_of(
        data["hierarchy"]["levels"],
        ("memory", "<", lambda level: level["name"]),
        ("capacity", ">", lambda level: format_quantity(level["capacity"], "B")),
        ("each", ">", lambda level: format_quantity(level["capacity_of_instance"], "B")),
        ("shared by", "<", lambda level: SHARED[level["scope"]]),
        ("bandwidth", ">", lambda level: format_quantity(level["bandwidth"], "B/s")),
        ("pJ/bit", ">", lambda level: f"{level['energy_per_bit'] * 1e12:.3g}"),
    )


def budget_rows(data: dict[str, Any]) -> Table:
    """Return what each component takes of area and power, and what binds it."""
    return table_of(
        data["components"],
        ("component", "<", lambda part: part["name"]),
        ("mm2", ">", lambda part: f"{part['area'] * MM2:.4g}"),
        ("of", ">", lambda part: f"{part['area_budget'] * MM2:.4g}"),
        ("W", ">", lambda part: f"{part['power']:.4g}"),
        ("of", ">", lambda part: f"{part['power_budget']:.4g}"),
        ("size bound by", "<", lambda part: part["size_bound"]),
        ("rate bound by", "<", lambda part: part["rate_bound"]),
    )


def left_pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return what is left of area and power."""
    return (
        ("area left", f"{data['unused_area'] * MM2:.4g} of {data['area'] * MM2:.4g} mm2"),
        ("power left", f"{data['unused_power']:.4g} of {data['power']:.4g} W"),
    )


def chip_data(chip: GeneratedChip, rules: str) -> dict[str, Any]:
    """Return a generated chip as JSON holds it, in SI units: hierarchy, components, what is left.

    ``rules`` is the name of those it was made by. Fields are those of `Chip` and `Component`; the
    main memory is the last of the levels.
    """
    parts = []
    for part in chip.components:
        bounds = {"size_bound": part.size_bound.words, "rate_bound": part.rate_bound.words}
        unused = {"unused_area": part.unused_area, "unused_power": part.unused_power}
        parts.append(asdict(part) | bounds | unused)
    made = chip.chip
    levels = [
        asdict(level) | {"capacity_of_instance": made.capacity_of_instance(level)}
        for level in made.storage
    ]
    hierarchy = asdict(made) | {
        "levels": levels,
        "peak_throughput": made.compute.peak_throughput,
        "throughput": made.compute.throughput,
        "n_stacks": chip.n_stacks,
    }
    del hierarchy["memories"]
    return {
        "rules": rules,
        "hierarchy": hierarchy,
        "components": parts,
        "area": chip.area,
        "power": chip.power,
        "unused_area": chip.unused_area,
        "unused_power": chip.unused_power,
        "warnings": list(chip.warnings),
    }
