"""A front of throughput, price and power as tables, as JSON, as a picture and as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from rich.console import Group

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.explore.codesign import BEATEN, Candidate, Front
from crosstack.io import native
from crosstack.io.study_file import Goal
from crosstack.report.chart_figure import charts_svg
from crosstack.report.pages.study_page import study_html
from crosstack.report.pages.study_table import Cell, StudyTable
from crosstack.report.text import pairs_table, reason_lines, rows_table, titled
from crosstack.report.wording import Table, many, percent, plural, table_of
from crosstack.units import format_quantity
from crosstack.version import __version__

AS_GOOD = "a mapped one is proved to be as good in everything"
SHOWN = 30  # members in the table, spread over the front
DRAWN = 8  # values of a field that are drawn as circles; others as squares

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
OBJECTIVES = (("throughput", Goal.MAXIMUM), ("price", Goal.MINIMUM), ("power", Goal.MINIMUM))


def front_tables(data: dict[str, Any], *, reused: int = 0) -> Group:
    """Return what was done, and the members of the front.

    ``data`` is what `front_data` returns, perhaps saved and read again; ``reused`` mappings came
    from a store.
    """
    step = max(1, -(-len(data["front"]) // SHOWN))
    shown = data["front"][::step]
    pairs = (*_pairs(data), ("from the store", f"{reused:,} mappings")) if reused else _pairs(data)
    left_out = [f"{len(shown)} of {len(data['front'])} are shown; --json has all."]
    return titled(
        f"{data['workload']}: throughput, price and power",
        pairs_table(pairs),
        *reason_lines(Counter(data["no_machine"]).elements()),
        rows_table(_members(data, shown)),
        *(left_out if step > 1 else []),
    )


def _pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    proved = sum(m["status"] == "optimal" for m in (*data["front"], *data["dominated"]))
    impossible = sum(data["no_machine"].values())
    items = many(data["item"])
    free = ", ".join(data["without_price"])
    return (
        ("candidates", f"{data['candidates']:,} of {plural(data['n_choices'], 'choice')}"),
        ("mapped", f"{data['mapped']:,}, {proved:,} with proof"),
        ("not mapped", f"{data['not_mapped']:,}: {AS_GOOD}"),
        ("no machine", f"{impossible:,}: no such chip, it does not fit, or above a limit"),
        ("on the front", f"{len(data['front']):,}"),
        ("columns", f"1/s: {items}; mm2 and yield: one die; TFLOP/s and on: one chip"),
        *([("counted as 0", f"{free}: no price is given")] if free else []),
    )


def _members(data: dict[str, Any], members: list[dict[str, Any]]) -> Table:
    def choice(name: str) -> tuple[str, str, Callable[[dict[str, Any]], str]]:
        return _short(name), "<", lambda m: m["choice"][name]

    return table_of(
        members,
        ("1/s", ">", lambda m: format_quantity(m["throughput_per_s"], "1")),
        ("USD", ">", lambda m: f"{m['price_usd']:,.0f}"),
        ("W", ">", lambda m: f"{m['power_w']:,.0f}"),
        *map(choice, data["choices"]),
        ("mm2", ">", lambda m: f"{m['chip_area_m2'] * 1e6:.0f}"),
        ("yield", ">", lambda m: percent(m["die_yield"], 2)),
        ("TFLOP/s", ">", lambda m: f"{m['chip']['throughput'] / 1e12:.4g}"),
        ("SRAM MB", ">", lambda m: f"{m['chip']['sram_capacity'] / 1e6:.4g}"),
        ("GB/s", ">", lambda m: f"{m['chip']['memory_bandwidth'] / 1e9:.4g}"),
        ("TP/PP/DP", "<", lambda m: "/".join(str(m["parallelism"][d]) for d in ("tp", "pp", "dp"))),
        ("bound by", "<", lambda m: m["bound_by"]),
    )


def _short(field: str) -> str:
    return field.rpartition(".")[2]


def front_data(found: Front) -> dict[str, Any]:
    """Return the front as plain data in SI units, each member with its machine as a task's text.

    ``no_machine`` counts candidates by the reason why they are none.
    """
    problem = found.problem
    labels = [dict(choice.labels) for choice in problem.choices]
    without = [c.reason for c in found.candidates if c.mapped is None and c.reason != BEATEN]
    return {
        "crosstack_version": __version__,
        "workload": problem.workload.name,
        "item": problem.workload.item,
        "rules": problem.rules.name,
        "without_price": [
            item.name for item in fields(problem.prices) if not getattr(problem.prices, item.name)
        ],
        "choices": {name: list(dict.fromkeys(own[name] for own in labels)) for name in labels[0]},
        "n_choices": len(labels),
        "candidates": len(found.candidates),
        "mapped": len(found.mapped),
        "not_mapped": found.skipped,
        "no_machine": dict(Counter(without)),
        "front": [_member_data(found, c) for c in found.front],
        "dominated": [_numbers(found, c) for c in found.mapped if c not in found.front],
    }


def _numbers(found: Front, candidate: Candidate) -> dict[str, Any]:
    machine, mapped = candidate.machine, candidate.mapped
    assert machine is not None  # what was mapped is a machine
    assert mapped is not None
    chip = machine.system.chip
    return {
        "choice": dict(found.problem.choices[candidate.choice].labels),
        "throughput_per_s": found.throughput(candidate),
        "price_usd": machine.price,
        "power_w": machine.power,
        "time_s": mapped.time,
        "bound_s": mapped.bound,
        "status": mapped.status,
        "parallelism": {"tp": mapped.tensor, "pp": mapped.pipeline, "dp": mapped.data},
        "bound_by": mapped.bound_by,
        "chip": {
            "throughput": chip.peak_throughput * (chip.compute.utilization or 1.0),
            "sram_capacity": chip.on_chip_capacity,
            "memory_bandwidth": machine.system.chip.main_memory.speed,
        },
        "chip_area_m2": machine.chip_area,
        "die_price_usd": machine.die_price,
        "die_yield": machine.yield_,
    }


def _member_data(found: Front, candidate: Candidate) -> dict[str, Any]:
    space, machine = found.problem.choices[candidate.choice].space.space, candidate.machine
    assert machine is not None
    return _numbers(found, candidate) | {
        "shares": dict(zip(space.names, candidate.point, strict=True)),
        "system": native.write_system(machine.system),
    }


def _title(data: dict[str, Any]) -> str:
    return f"{data['workload']}: what a machine can be"


def front_sentence(data: dict[str, Any]) -> str:
    """Return how many machines make the front, and its two ends."""
    fastest, cheapest = data["front"][0], min(data["front"], key=lambda m: m["price_usd"])
    return (
        f"{plural(len(data['front']), 'machine')} that no other of {data['candidates']:,} beats "
        f"in throughput, price and power at once; fastest {_words(fastest)}; cheapest "
        f"{_words(cheapest)}."
    )


def front_charts(data: dict[str, Any]) -> list[LineChart]:
    """Return throughput over price and power, the front coloured by the first choice."""
    choices = data["choices"]
    field = next((name for name, values in choices.items() if len(values) > 1), "")
    values = choices.get(field, [""])
    charts = []
    for name, column, unit in (("price", "price_usd", "thousand USD"), ("power", "power_w", "kW")):
        series = [_stairs(data["front"], name, column, len(values))]
        for colour, value in enumerate(values):
            own = [m for m in data["front"] if m["choice"].get(field, "") == value]
            if own:
                said = f"{_short(field)} {value}".strip() or "front"
                mark = Mark.CIRCLE if colour < DRAWN else Mark.SQUARE
                xs, ys = (tuple(m[of] for m in own) for of in (column, "throughput_per_s"))
                series.append(Series(name=said, x=xs, y=ys, colour=colour, line=False, mark=mark))
        x = Measure(label=f"{name} of the machine", unit=unit, worth=1e3, log=True)
        y = Measure(label=many(data["item"]), unit="1/s", log=True)
        charts.append(LineChart(title=f"Throughput over {name}", x=x, y=y, series=tuple(series)))
    return charts


def front_svg(data: dict[str, Any]) -> str:
    """Return throughput against price and power as a picture."""
    return charts_svg(
        _title(data),
        front_sentence(data),
        front_charts(data),
        [],
        [],
    )


def _stairs(front: list[dict[str, Any]], name: str, column: str, colour: int) -> Series:
    """Return the most throughput for a price or a power."""
    xs: list[float] = []
    ys: list[float] = []
    for member in sorted(front, key=lambda m: float(m[column])):
        x, y = member[column], member["throughput_per_s"]
        if not ys or y > ys[-1]:
            xs += [x, x] if ys else [x]
            ys += [ys[-1], y] if ys else [y]
    title, across, up = f"most for the {name}", tuple(xs), tuple(ys)
    return Series(name=title, x=across, y=up, colour=colour, mark=Mark.NONE)


def _words(member: dict[str, Any]) -> str:
    price = format_quantity(member["price_usd"], "USD")
    rate = format_quantity(member["throughput_per_s"], "1")
    return f"{rate} /s for {price}, {member['power_w']:,.0f} W"


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
        title=_title(data),
        columns=columns | found,
        axes=tuple(columns),
        objectives=OBJECTIVES,
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


def _field(machine: dict[str, Any], path: str) -> Any:
    first, _, rest = path.partition(".")
    return _field(machine[first], rest) if rest else machine[first]
