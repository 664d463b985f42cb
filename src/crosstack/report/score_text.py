"""What is said of kernels beside what was measured, set by set, as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from crosstack.evaluate.scores import DURATIONS, ProductScore, Score
from crosstack.report.text import rows_table, titled
from crosstack.report.wording import Table, table_of

if TYPE_CHECKING:
    from rich.console import Group

Scored = tuple[str, str, ProductScore]  # the chip with a type, the source, and the scores
CLASSES = ("below 10 us", "to 100 us", "to 1 ms", "above")
ABOUT = (
    "Mean size of ln(said / measured) and, behind it, its mean, in %; by duration, rows before. "
    "The roofline: 0.8 of the peak and of the bandwidth, and 2 us."
)


def score_table(scored: Sequence[Scored]) -> Table:
    """Return a row for each set."""
    return table_of(
        scored,
        ("chip, type", "<", lambda one: one[0]),
        ("source", "<", lambda one: one[1]),
        ("rows", ">", lambda one: f"{one[2].ours.rows}"),
        ("median", ">", lambda one: f"{100 * one[2].ours.median:.1f}"),
        ("mean", ">", lambda one: _size(one[2].ours)),
        *(
            (heading, ">", lambda one, number=number: _class(one[2].by_duration[number]))
            for number, heading in enumerate(CLASSES)
        ),
        ("roofline", ">", lambda one: _size(one[2].roofline)),
    )


def _size(score: Score) -> str:
    return f"{100 * score.mean:.1f} ({100 * score.bias:+.1f})"


def _class(score: Score | None) -> str:
    return "-" if score is None else f"{score.rows}: {_size(score)}"


def scores_shown(scored: Sequence[Scored], left_out: Mapping[str, int]) -> Group:
    """Return the table for a terminal, with what is left out below."""
    left = [
        f"left out, as the library has no rate of it: {name}, {n} rows"
        for name, n in left_out.items()
    ]
    table = rows_table(score_table(scored), wraps=1)
    return titled("Said and measured", table, "\n".join([ABOUT, *left]))


def scores_data(scored: Sequence[Scored], left_out: Mapping[str, int]) -> dict[str, Any]:
    """Return the scores as data."""
    sets = [{"chip": chip, "source": source, **asdict(found)} for chip, source, found in scored]
    return {"durations_s": list(DURATIONS), "sets": sets, "left_out": dict(left_out)}
