"""Points of a serving sweep as tables: on the terminal, and as comma-separated values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group

from crosstack.evaluate.serving_sweep import Phase
from crosstack.explore.served import UNITS as SERVED
from crosstack.explore.served import ServedPoints
from crosstack.io.csv_text import csv_text
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import Table, plural, table_of, time_words
from crosstack.units import format_quantity

UNITS = {name: unit for name, unit in SERVED.items() if unit not in (None, "1")}
UNITS["throughput"] = "token/s"

# What a point that does not fit exceeds.
LIMITS = {
    "network": "have more chips than the network",
    "SRAM": "exceed the SRAM",
    "main memory": "exceed the main memory",
}


def sweep_data(sweep: ServedPoints) -> dict[str, object]:
    """Return a sweep as JSON holds it."""
    columns, served = _plain(sweep), sweep.served
    rows = zip(*columns.values(), strict=True)
    return {
        "model": served.model.name,
        "phase": str(served.phase),
        "system": served.system.name,
        "rules": served.rules.name,
        "points": [dict(zip(columns, row, strict=True)) for row in rows],
    }


def _plain(sweep: ServedPoints) -> dict[str, list[object]]:
    return {name: values.tolist() for name, values in sweep.columns.items()}


def sweep_csv(sweep: ServedPoints) -> str:
    """Return every point as a line of comma-separated values, units in the header."""
    columns = _plain(sweep)
    header = [f"{name} [{UNITS[name]}]" if name in UNITS else name for name in columns]
    return csv_text(header, zip(*columns.values(), strict=True))


def sweep_tables(sweep: ServedPoints, most: int) -> Group:
    """Return the ``most`` points of the highest throughput that fit, and what does not."""
    columns, served = sweep.columns, sweep.served
    fits = np.nonzero(columns["limit"] == "")[0]
    best = fits[np.argsort(-columns["throughput"][fits], kind="stable")][:most]
    lines = [
        f"{served.model.name} {served.phase} on {served.system.name}, kernel by kernel, "
        f"rules {served.rules.name}: {plural(len(columns['time']), 'point')}, {len(fits):,} fit"
    ]
    limits = [limit for limit in columns["limit"].tolist() if limit]
    lines += [f"{limits.count(what):,} {LIMITS[what]}" for what in LIMITS if what in limits]
    return titled("; ".join(lines), rows_table(_table(sweep, best.tolist())))


def _table(sweep: ServedPoints, points: Sequence[int]) -> Table:
    first = "to first token" if sweep.served.phase == Phase.PREFILL else "a token"
    c = sweep.columns
    chips = c["tensor"] * c["pipeline"]
    return table_of(
        points,
        ("TP", ">", lambda i: f"{c['tensor'][i]}"),
        ("PP", ">", lambda i: f"{c['pipeline'][i]}"),
        ("batch", ">", lambda i: f"{c['batch'][i]:,}"),
        ("context", ">", lambda i: f"{c['context'][i]:,}"),
        ("microbatch", ">", lambda i: f"{c['microbatch'][i]:,}"),
        (first, ">", lambda i: time_words(float(c["latency"][i]))),
        ("tokens/s", ">", lambda i: f"{c['throughput'][i]:,.5g}"),
        ("per chip", ">", lambda i: f"{c['throughput'][i] / chips[i]:,.4g}"),
        ("memory a chip", ">", lambda i: format_quantity(float(c["memory_used"][i]), "B")),
        ("bound by", "<", lambda i: str(c["bound_by"][i])),
    )
