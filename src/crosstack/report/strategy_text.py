"""The fastest strategies of a task as a table."""

from __future__ import annotations

from rich.console import Group
from rich.text import Text

from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.ranking import RankedStrategies
from crosstack.machine.system import Parallelism
from crosstack.mapping.mapping import Mapping
from crosstack.report.text import rows_table
from crosstack.report.wording import Table, percent, plural, time_words
from crosstack.units import format_quantity

__all__ = ["strategy_rows", "strategy_table"]

HEADER = ("tensor", "pipeline", "data", "on levels", "microbatch", "again", "schedule", "time",
          "of peak", "memory")  # fmt: skip


def strategy_rows(ranked: RankedStrategies) -> Table:
    """Return what each strategy decides, and what it takes."""
    rows = tuple(_row(mapping, found) for mapping, found in ranked.found)
    numeric = (True, True, True, False, True, False, False, True, True, True)
    return Table(header=HEADER, numeric=numeric, rows=rows)


def _row(mapping: Mapping, found: Evaluation) -> tuple[str, ...]:
    degrees = (f"{mapping.degree(use):,}" for use in Parallelism)
    places = mapping.dimensions or range(len(mapping.sizes))
    levels: dict[int, list[str]] = {}
    for place, size, use in zip(places, mapping.sizes, mapping.parallelism, strict=True):
        levels.setdefault(place, []).append(f"{use.value} {size}")
    pieces = "" if mapping.interleave == 1 else f" in {mapping.interleave} pieces"
    return (
        *degrees,
        "; ".join(f"{place}: {' x '.join(uses)}" for place, uses in levels.items()),
        f"{mapping.microbatch_size:,}",
        mapping.recompute.value,
        mapping.schedule.value + pieces,
        time_words(found.time),
        percent(found.utilization),
        format_quantity(found.memory_used, "B"),
    )


def strategy_table(ranked: RankedStrategies) -> Group:
    """Return the table, with what it is of."""
    said = (
        f"Fastest {plural(len(ranked.found), 'strategy')} of {ranked.total:,}, each "
        f"with the kernels of its block as first mapped ({plural(ranked.blocks, 'block')})"
    )
    return Group(Text(said, style="bold"), rows_table(strategy_rows(ranked), wraps=3))
