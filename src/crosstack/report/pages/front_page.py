"""A front of machines as a study: its page, and its rows for other tools."""

from __future__ import annotations

from typing import Any

from crosstack.io.study_file import Goal
from crosstack.report.front_text import front_sentence, front_title
from crosstack.report.pages.study_page import study_html
from crosstack.report.pages.study_table import Cell, StudyTable
from crosstack.report.wording import many

__all__ = ["front_html", "front_study"]

UNITS = {
    "throughput": "1/s",
    "price": "USD",
    "power": "W",
    "time": "s",
    "bound": "s",
    "tensor": "1",
    "pipeline": "1",
    "data": "1",
    "die_area": "m^2",
    "die_price": "USD",
    "die_yield": "1",
    "chip_throughput": "FLOP/s",
    "sram_capacity": "B",
    "memory_bandwidth": "B/s",
}


def front_html(data: dict[str, Any]) -> str:
    """Return a page; ``data`` is what ``crosstack codesign`` saves with ``--json``."""
    return study_html(front_study(data))


def front_study(data: dict[str, Any]) -> StudyTable:
    """Return every machine that was mapped, those on the front first."""
    machines = [*data["front"], *data["dominated"]]
    n_front = len(data["front"])
    rows = [_row(machine) for machine in machines]
    found: dict[str, list[Cell]] = {
        "front": ["on the front" if i < n_front else "beaten" for i in range(len(machines))]
    }
    found |= {name: [row[name] for row in rows] for name in rows[0]}
    # A choice is a field of the chip file, which may be called as what comes out is.
    axes = {name: f"chip.{name}" if name in found else name for name in data["choices"]}
    columns = {axes[name]: _values([m["choice"][name] for m in machines]) for name in axes}
    return StudyTable(
        title=front_title(data),
        columns=columns | found,
        axes=tuple(columns),
        objectives=(
            ("throughput", Goal.MAXIMUM),
            ("price", Goal.MINIMUM),
            ("power", Goal.MINIMUM),
        ),
        units=UNITS,
        details=(("Degrees of parallelism", ("tensor", "pipeline", "data")),),
        notes=(
            front_sentence(data),
            f"{data['mapped']:,} of {data['candidates']:,} candidates were mapped, under the rules "
            f"{data['rules']}; throughput counts {many(data['item'])} a second.",
            *_free(data["without_price"]),
        ),
    )


def _free(names: list[str]) -> list[str]:
    return [f"Counted as 0, as no price is given: {', '.join(names)}."] if names else []


def _values(words: list[str]) -> list[Cell]:
    """Return the values of a choice, as numbers where all of them are."""
    try:
        return [float(word) for word in words]
    except ValueError:
        return list(words)


def _row(machine: dict[str, Any]) -> dict[str, Cell]:
    degrees, chip = machine["parallelism"], machine["chip"]
    return {
        "status": machine["status"],
        "throughput": machine["throughput_per_s"],
        "price": machine["price_usd"],
        "power": machine["power_w"],
        "time": machine["time_s"],
        "bound": machine["bound_s"],
        "bound_by": machine["bound_by"],
        "tensor": degrees["tp"],
        "pipeline": degrees["pp"],
        "data": degrees["dp"],
        "die_area": machine["chip_area_m2"],
        "die_price": machine["die_price_usd"],
        "die_yield": machine["die_yield"],
        "chip_throughput": chip["throughput"],
        "sram_capacity": chip["sram_capacity"],
        "memory_bandwidth": chip["memory_bandwidth"],
    }
