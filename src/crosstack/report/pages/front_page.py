"""A front of machines as a study: its page, and its rows for other tools."""

from __future__ import annotations

from typing import Any

from crosstack.io.study_file import Goal
from crosstack.report.front_text import front_sentence, front_title
from crosstack.report.pages.study_page import study_html
from crosstack.report.pages.study_table import Cell, StudyTable
from crosstack.report.wording import many

# Column of a study: the field of a machine's data that it holds, and its unit; None: text.
COLUMNS: dict[str, tuple[str, str | None]] = {
    "status": ("status", None),
    "throughput": ("throughput_per_s", "1/s"),
    "price": ("price_usd", "USD"),
    "power": ("power_w", "W"),
    "time": ("time_s", "s"),
    "bound": ("bound_s", "s"),
    "bound_by": ("bound_by", None),
    "tensor": ("parallelism.tp", "1"),
    "pipeline": ("parallelism.pp", "1"),
    "data": ("parallelism.dp", "1"),
    "die_area": ("chip_area_m2", "m^2"),
    "die_price": ("die_price_usd", "USD"),
    "die_yield": ("die_yield", "1"),
    "chip_throughput": ("chip.throughput", "FLOP/s"),
    "sram_capacity": ("chip.sram_capacity", "B"),
    "memory_bandwidth": ("chip.memory_bandwidth", "B/s"),
}


def front_html(data: dict[str, Any]) -> str:
    """Return a page; ``data`` is what ``crosstack codesign`` saves with ``--json``."""
    return study_html(front_study(data))


def front_study(data: dict[str, Any]) -> StudyTable:
    """Return every machine that was mapped, those on the front first."""
    machines = [*data["front"], *data["dominated"]]
    n_front, free = len(data["front"]), data["without_price"]
    found: dict[str, list[Cell]] = {
        "front": ["on the front" if i < n_front else "beaten" for i in range(len(machines))]
    }
    found |= {name: [_field(m, path) for m in machines] for name, (path, _) in COLUMNS.items()}
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
        units={name: unit for name, (_, unit) in COLUMNS.items() if unit is not None},
        details=(("Degrees of parallelism", ("tensor", "pipeline", "data")),),
        notes=(
            front_sentence(data),
            f"{data['mapped']:,} of {data['candidates']:,} candidates were mapped, under the rules "
            f"{data['rules']}; throughput counts {many(data['item'])} a second.",
            *([f"Counted as 0, as no price is given: {', '.join(free)}."] if free else []),
        ),
    )


def _values(words: list[str]) -> list[Cell]:
    """Return the values of a choice, as numbers where all of them are."""
    try:
        return [float(word) for word in words]
    except ValueError:
        return list(words)


def _field(machine: dict[str, Any], path: str) -> Cell:
    found: Any = machine
    for name in path.split("."):
        found = found[name]
    value: Cell = found
    return value
