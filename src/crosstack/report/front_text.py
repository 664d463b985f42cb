"""A front of throughput, price and power as tables, as JSON and as a picture."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.explore.codesign import BEATEN, Candidate, Front
from crosstack.explore.machines import Machine
from crosstack.io import native
from crosstack.report.charts_page import charts_svg
from crosstack.report.text import pairs_table, reason_lines, rows_table
from crosstack.report.wording import Table, many, percent, plural
from crosstack.units import format_quantity
from crosstack.version import __version__

__all__ = [
    "front_charts", "front_data", "front_sentence", "front_svg", "front_tables", "front_title",
]  # fmt: skip

SHOWN = 30  # members in the table, spread over the front
DRAWN = 8  # values of a field that are drawn as circles; others as squares


def front_tables(data: dict[str, Any], *, reused: int = 0) -> Group:
    """Return what was done, and the members of the front.

    ``data`` is what `front_data` returns, perhaps saved and read again; ``reused`` mappings came
    from a store.
    """
    step = max(1, -(-len(data["front"]) // SHOWN))
    shown = data["front"][::step]
    pairs = _pairs(data)
    if reused:
        pairs.append(("from the store", f"{reused:,} mappings"))
    parts: list[Any] = [
        Text(f"{data['workload']}: throughput, price and power", style="bold"),
        pairs_table(tuple(pairs)),
        *reason_lines(Counter(data["no_machine"]).elements()),
        rows_table(_members(data, shown)),
    ]
    if step > 1:
        parts.append(Text(f"{len(shown)} of {len(data['front'])} are shown; --json has all."))
    return Group(*parts)


def _pairs(data: dict[str, Any]) -> list[tuple[str, str]]:
    proved = sum(m["status"] == "optimal" for m in (*data["front"], *data["dominated"]))
    impossible = sum(data["no_machine"].values())
    items = many(data["item"])
    pairs = [
        ("candidates", f"{data['candidates']:,} of {plural(data['n_choices'], 'choice')}"),
        ("mapped", f"{data['mapped']:,}, {proved:,} with proof"),
        (
            "not mapped",
            f"{data['not_mapped']:,}: a mapped one is proved to be as good in everything",
        ),
        ("no machine", f"{impossible:,}: no such chip, it does not fit, or above a limit"),
        ("on the front", f"{len(data['front']):,}"),
        ("columns", f"1/s: {items}; mm2 and yield: one die; TFLOP/s and on: one chip"),
    ]
    if data["without_price"]:
        pairs.append(("counted as 0", f"{', '.join(data['without_price'])}: no price is given"))
    return pairs


def _members(data: dict[str, Any], members: list[dict[str, Any]]) -> Table:
    names = list(data["choices"])
    return Table(
        header=("1/s", "USD", "W", *map(_short, names), "mm2", "yield", "TFLOP/s",
                "SRAM MB", "GB/s", "TP/PP/DP", "bound by"),
        numeric=(True, True, True, *(False for _ in names), *(True for _ in range(5)), False,
                 False),
        rows=tuple(_row(member) for member in members),
    )  # fmt: skip


def _short(field: str) -> str:
    return field.rpartition(".")[2]


def _row(member: dict[str, Any]) -> tuple[str, ...]:
    chip, degrees = member["chip"], member["parallelism"]
    return (
        format_quantity(member["throughput_per_s"], "1"),
        f"{member['price_usd']:,.0f}",
        f"{member['power_w']:,.0f}",
        *member["choice"].values(),
        f"{member['chip_area_m2'] * 1e6:.0f}",
        percent(member["die_yield"], 2),
        f"{chip['throughput'] / 1e12:.4g}",
        f"{chip['sram_capacity'] / 1e6:.4g}",
        f"{chip['memory_bandwidth'] / 1e9:.4g}",
        f"{degrees['tp']}/{degrees['pp']}/{degrees['dp']}",
        member["bound_by"],
    )


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


def _machine_of(candidate: Candidate) -> Machine:
    assert candidate.machine is not None  # a member of the front has one
    return candidate.machine


def _numbers(found: Front, candidate: Candidate) -> dict[str, Any]:
    machine, mapped = _machine_of(candidate), candidate.mapped
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
    space = found.problem.choices[candidate.choice].space.space
    return _numbers(found, candidate) | {
        "shares": dict(zip(space.names, candidate.point, strict=True)),
        "system": native.write_system(_machine_of(candidate).system),
    }


def front_title(data: dict[str, Any]) -> str:
    """Return what it is, on one line."""
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
    for name, column, unit, worth in (
        ("price", "price_usd", "thousand USD", 1e3),
        ("power", "power_w", "kW", 1e3),
    ):
        series = [_stairs(data["front"], name, column, len(values))]
        for colour, value in enumerate(values):
            own = [m for m in data["front"] if m["choice"].get(field, "") == value]
            if own:
                series.append(
                    Series(
                        name=f"{_short(field)} {value}".strip() or "front",
                        x=tuple(m[column] for m in own),
                        y=tuple(m["throughput_per_s"] for m in own),
                        colour=colour,
                        line=False,
                        mark=Mark.CIRCLE if colour < DRAWN else Mark.SQUARE,
                    )
                )
        charts.append(
            LineChart(
                title=f"Throughput over {name}",
                x=Measure(label=f"{name} of the machine", unit=unit, worth=worth, log=True),
                y=Measure(label=many(data["item"]), unit="1/s", log=True),
                series=tuple(series),
            )
        )
    return charts


def front_svg(data: dict[str, Any]) -> str:
    """Return throughput against price and power as a picture."""
    return charts_svg(front_title(data), front_sentence(data), front_charts(data), [], [])


def _stairs(front: list[dict[str, Any]], name: str, column: str, colour: int) -> Series:
    """Return the most throughput for a price or a power."""
    xs: list[float] = []
    ys: list[float] = []
    for member in sorted(front, key=lambda m: float(m[column])):
        x, y = member[column], member["throughput_per_s"]
        if not ys or y > ys[-1]:
            xs += [x, x] if ys else [x]
            ys += [ys[-1], y] if ys else [y]
    return Series(
        name=f"most for the {name}",
        x=tuple(xs),
        y=tuple(ys),
        colour=colour,
        mark=Mark.NONE,
    )


def _words(member: dict[str, Any]) -> str:
    price = format_quantity(member["price_usd"], "USD")
    rate = format_quantity(member["throughput_per_s"], "1")
    return f"{rate} /s for {price}, {member['power_w']:,.0f} W"
