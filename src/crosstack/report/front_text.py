"""A front of throughput, price and power as tables, as JSON and as a picture."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.explore.codesign import Candidate, Front, FrontProgress
from crosstack.explore.machines import Machine
from crosstack.io import native
from crosstack.report.charts_page import charts_svg
from crosstack.report.text import pairs_table, rows_table
from crosstack.report.wording import Table, many, percent, plural
from crosstack.units import format_quantity
from crosstack.version import __version__

__all__ = ["front_data", "front_line", "front_svg", "front_tables"]

SHOWN = 30  # members in the table, spread over the front
DRAWN = 8  # values of a field that are drawn as circles; others as squares


def front_tables(found: Front) -> Group:
    """Return what was done, and the members of the front."""
    step = max(1, -(-len(found.front) // SHOWN))
    shown = found.front[::step]
    parts: list[Any] = [
        Text(f"{found.problem.workload.name}: throughput, price and power", style="bold"),
        pairs_table(_pairs(found)),
        rows_table(_members(found, shown)),
    ]
    if step > 1:
        parts.append(Text(f"{len(shown)} of {len(found.front)} are shown; --json has all."))
    return Group(*parts)


def _pairs(found: Front) -> tuple[tuple[str, str], ...]:
    mapped = found.mapped
    proved = sum(c.mapped is not None and c.mapped.status == "optimal" for c in mapped)
    n_choices = len(found.problem.choices)
    items = many(found.problem.workload.item)
    impossible = len(found.candidates) - len(mapped) - found.skipped
    pairs = [
        ("candidates", f"{len(found.candidates):,} of {plural(n_choices, 'choice')}"),
        ("mapped", f"{len(mapped):,}, {proved:,} with proof"),
        ("not mapped", f"{found.skipped:,}: a mapped one is proved to be as good in everything"),
        ("no machine", f"{impossible:,}: no such chip, it does not fit, or above a limit"),
        ("on the front", f"{len(found.front):,}"),
        ("columns", f"1/s: {items}; mm2 and yield: one die; TFLOP/s and on: one chip"),
    ]
    prices = found.problem.prices
    free = [item.name for item in fields(prices) if not getattr(prices, item.name)]
    if free:
        pairs.append(("counted as 0", f"{', '.join(free)}: no price is given"))
    if found.reused:
        pairs.append(("from the history", f"{found.reused:,} mappings"))
    return tuple(pairs)


def _made(candidate: Candidate) -> Machine:
    assert candidate.machine is not None  # a member of the front has one
    return candidate.machine


def _members(found: Front, members: tuple[Candidate, ...]) -> Table:
    fields = [name for name, _ in found.problem.choices[0].labels]
    return Table(
        header=("1/s", "USD", "W", *(_short(f) for f in fields), "mm2", "yield", "TFLOP/s",
                "SRAM MB", "GB/s", "TP/PP/DP", "bound by"),
        numeric=(True, True, True, *(False for _ in fields), *(True for _ in range(5)), False,
                 False),
        rows=tuple(_row(found, c) for c in members),
    )  # fmt: skip


def _short(field: str) -> str:
    return field.rpartition(".")[2]


def _row(found: Front, candidate: Candidate) -> tuple[str, ...]:
    machine, mapped = _made(candidate), candidate.mapped
    assert mapped is not None
    chip, memory = machine.system.chip, machine.system.memory
    return (
        f"{found.throughput(candidate):,.4g}",
        f"{machine.price:,.0f}",
        f"{machine.power:,.0f}",
        *(value for _, value in found.problem.choices[candidate.choice].labels),
        f"{machine.chip_area * 1e6:.0f}",
        percent(machine.yield_, 2),
        f"{chip.peak_throughput * (chip.utilization or 1.0) / 1e12:.4g}",
        f"{chip.sram_capacity / 1e6:.4g}",
        f"{memory.bandwidth / 1e9:.4g}",
        f"{mapped.tensor}/{mapped.pipeline}/{mapped.data}",
        mapped.bound_by,
    )


def front_data(found: Front) -> dict[str, Any]:
    """Return the front as plain data in SI units, each member with its machine as a task's text."""
    return {
        "crosstack_version": __version__,
        "workload": found.problem.workload.name,
        "rules": found.problem.rules.name,
        "candidates": len(found.candidates),
        "mapped": len(found.mapped),
        "not_mapped": found.skipped,
        "front": [_member_data(found, c) for c in found.front],
        "dominated": [_numbers(found, c) for c in found.mapped if c not in found.front],
    }


def _numbers(found: Front, candidate: Candidate) -> dict[str, Any]:
    machine, mapped = _made(candidate), candidate.mapped
    assert mapped is not None
    return {
        "choice": dict(found.problem.choices[candidate.choice].labels),
        "throughput_per_s": found.throughput(candidate),
        "price_usd": machine.price,
        "power_w": machine.power,
        "time_s": mapped.time,
        "bound_s": mapped.bound,
        "status": mapped.status,
    }


def _member_data(found: Front, candidate: Candidate) -> dict[str, Any]:
    machine, mapped = _made(candidate), candidate.mapped
    assert mapped is not None
    space = found.problem.choices[candidate.choice].space.space
    return _numbers(found, candidate) | {
        "parallelism": {"tp": mapped.tensor, "pp": mapped.pipeline, "dp": mapped.data},
        "bound_by": mapped.bound_by,
        "chip_area_m2": machine.chip_area,
        "die_price_usd": machine.die_price,
        "die_yield": machine.yield_,
        "shares": dict(zip(space.names, candidate.point, strict=True)),
        "system": native.write_system(machine.system),
    }


def front_svg(found: Front) -> str:
    """Return throughput against price and power: the front coloured by the first choice."""
    labels = [dict(choice.labels) for choice in found.problem.choices]
    field = next((name for name in labels[0] if len({own[name] for own in labels}) > 1), "")
    values = list(dict.fromkeys(own.get(field, "") for own in labels))
    charts = []
    for name, unit, worth in (("price", "thousand USD", 1e3), ("power", "kW", 1e3)):
        series = [_stairs(found, name, len(values))]
        for colour, value in enumerate(values):
            own = [c for c in found.front if labels[c.choice].get(field, "") == value]
            if own:
                x = tuple(float(getattr(_made(c), name)) for c in own)
                series.append(
                    Series(
                        name=f"{_short(field)} {value}".strip() or "front",
                        x=x,
                        y=tuple(found.throughput(c) for c in own),
                        colour=colour,
                        line=False,
                        mark=Mark.CIRCLE if colour < DRAWN else Mark.SQUARE,
                    )
                )
        charts.append(
            LineChart(
                title=f"Throughput over {name}",
                x=Measure(label=f"{name} of the machine", unit=unit, worth=worth, log=True),
                y=Measure(label=many(found.problem.workload.item), unit="1/s", log=True),
                series=tuple(series),
            )
        )
    fastest, cheapest = found.front[0], min(found.front, key=lambda c: _made(c).price)
    subtitle = (
        f"{plural(len(found.front), 'machine')} that no other of {len(found.candidates):,} beats "
        f"in throughput, price and power at once; fastest {_words(found, fastest)}; cheapest "
        f"{_words(found, cheapest)}."
    )
    title = f"{found.problem.workload.name}: what a machine can be"
    return charts_svg(title, subtitle, charts, [], [])


def _stairs(found: Front, name: str, colour: int) -> Series:
    """Return the most throughput for a price or a power."""
    xs: list[float] = []
    ys: list[float] = []
    for c in sorted(found.front, key=lambda c: (float(getattr(_made(c), name)), c.number)):
        x, y = float(getattr(_made(c), name)), found.throughput(c)
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


def _words(found: Front, candidate: Candidate) -> str:
    machine = _made(candidate)
    price = format_quantity(machine.price, "USD")
    return f"{found.throughput(candidate):,.4g} /s for {price}, {machine.power:,.0f} W"


def front_line(progress: FrontProgress) -> str:
    """Return where it stands, on one line."""
    return (
        f"{progress.done:,} of {progress.allowed:,} candidates, {progress.mapped:,} mapped, "
        f"{progress.front:,} on the front"
    )
