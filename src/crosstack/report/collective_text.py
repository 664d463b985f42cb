"""What is said of collectives beside what was measured, by machine, as a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crosstack.evaluate.collective_scores import SIZES, CollectiveScore
from crosstack.report.score_text import class_words, size_words
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import Table, table_of

if TYPE_CHECKING:
    from rich.console import Group

Scored = Mapping[tuple[str, str, str], CollectiveScore]  # by machine, library and collective
CLASSES = ("below 64 KiB", "to 1 MiB", "to 16 MiB", "above")
ABOUT = (
    "Mean size of ln(said / measured) and, behind it, its mean, in %; by bytes of a rank, rows "
    "before. The line: a launch, and bytes over 0.8 of the bandwidth."
)


def collective_table(scored: Scored) -> Table:
    """Return a row for each machine, library and collective."""
    return table_of(
        scored.items(),
        ("machine", "<", lambda one: one[0][0]),
        ("run by", "<", lambda one: one[0][1]),
        ("collective", "<", lambda one: one[0][2].replace("_", " ")),
        ("rows", ">", lambda one: f"{one[1].ours.rows}"),
        ("median", ">", lambda one: f"{100 * one[1].ours.median:.1f}"),
        ("mean", ">", lambda one: size_words(one[1].ours)),
        *(
            (heading, ">", lambda one, number=number: class_words(one[1].by_size[number]))
            for number, heading in enumerate(CLASSES)
        ),
        ("line", ">", lambda one: size_words(one[1].line)),
    )


def collectives_shown(scored: Scored, left_out: Mapping[str, int]) -> Group:
    """Return the table for a terminal, with what is left out below."""
    left = [f"left out: {name}, {n} rows" for name, n in left_out.items()]
    table = rows_table(collective_table(scored), wraps=1)
    return titled("Said and measured", table, "\n".join([ABOUT, *left]))


def collectives_data(scored: Scored, left_out: Mapping[str, int]) -> dict[str, Any]:
    """Return the scores as data."""
    sets = [
        {"machine": machine, "library": library, "collective": what, **asdict(found)}
        for (machine, library, what), found in scored.items()
    ]
    return {"sizes_bytes": list(SIZES), "sets": sets, "left_out": dict(left_out)}
