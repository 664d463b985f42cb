"""Points of a serving sweep as tables: on the terminal, and as comma-separated values."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.console import Group
from rich.text import Text

from crosstack.evaluate.serving_sweep import Phase, ServingSweep
from crosstack.io.csv_text import csv_text
from crosstack.report.text import rows_table
from crosstack.report.wording import Table, plural, time_words
from crosstack.units import format_quantity

__all__ = ["sweep_csv", "sweep_rows", "sweep_tables"]

# Units of the columns that have one; the others count.
UNITS = {
    "latency": "s",
    "time": "s",
    "throughput": "token/s",
    "memory_used": "B",
    "memory_capacity": "B",
}

# What a point that does not fit exceeds.
LIMITS = {
    "network": "have more chips than the network",
    "SRAM": "exceed the SRAM",
    "main memory": "exceed the main memory",
}


def sweep_rows(sweep: ServingSweep) -> list[dict[str, object]]:
    """Return a record for each point."""
    columns = sweep.columns
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def sweep_csv(sweep: ServingSweep) -> str:
    """Return every point as a line of comma-separated values, units in the header."""
    columns = sweep.columns
    header = [f"{name} [{UNITS[name]}]" if name in UNITS else name for name in columns]
    return csv_text(header, zip(*columns.values(), strict=True))


def sweep_tables(sweep: ServingSweep, most: int) -> Group:
    """Return the ``most`` points of the highest throughput that fit, and what does not."""
    fits = np.nonzero(sweep.fits)[0]
    best = fits[np.argsort(-sweep.throughput[fits], kind="stable")][:most]
    lines = [
        f"{sweep.model.name} {sweep.phase.value} on {sweep.system.name}, kernel by kernel, "
        f"rules {sweep.rules.name}: {plural(len(sweep.time), 'point')}, {len(fits):,} fit"
    ]
    limits = [limit for limit in sweep.limit if limit]
    lines += [f"{limits.count(what):,} {LIMITS[what]}" for what in LIMITS if what in limits]
    title = Text("; ".join(lines), style="bold")
    return Group(title, rows_table(_table(sweep, best.tolist())))


def _table(sweep: ServingSweep, points: Sequence[int]) -> Table:
    first = "to first token" if sweep.phase is Phase.PREFILL else "a token"
    rows = [
        (
            f"{sweep.tensor[i]}",
            f"{sweep.pipeline[i]}",
            f"{sweep.batch[i]:,}",
            f"{sweep.context[i]:,}",
            f"{sweep.microbatch[i]:,}",
            time_words(float(sweep.latency[i])),
            f"{sweep.throughput[i]:,.5g}",
            f"{sweep.throughput[i] / (sweep.tensor[i] * sweep.pipeline[i]):,.4g}",
            format_quantity(float(sweep.memory_used[i]), "B"),
            sweep.bound_by[i],
        )
        for i in points
    ]
    header = (
        "TP", "PP", "batch", "context", "microbatch", first, "tokens/s", "per chip",
        "memory a chip", "bound by",
    )  # fmt: skip
    return Table(header=header, numeric=(*[True] * 9, False), rows=tuple(rows))
