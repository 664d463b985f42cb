"""A study and what came of it, as tables."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Group, RenderableType

from crosstack.explore.points import Points
from crosstack.explore.progress import Progress
from crosstack.explore.question import StudyQuestion
from crosstack.explore.study import Study
from crosstack.explore.tables import best, pareto, within
from crosstack.report.pages.study_table import quantity_words, unit_of
from crosstack.report.text import pairs_table, reason_lines, rows_table, titled
from crosstack.report.wording import Table, plural, time_words
from crosstack.units import UNITS, format_quantity

if TYPE_CHECKING:
    import pyarrow

WIDTH, FEWEST_AXES = 98, 2  # letters of a table that fits, axes whether it does or not
SHORT = 60  # letters of a value


def progress_words(progress: Progress) -> str:
    """Return where a study stands, on one line."""
    p = progress
    share = p.done / p.total if p.total else 1.0
    line = (
        f"{p.done:,} of {p.total:,} points ({share:.0%}), {p.rate:,.3g} a "
        f"second, {time_words(p.left, 2)} left"
    )
    counts = ", ".join(f"{count:,} {status}" for status, count in sorted(p.counts.items()))
    words = (f"({counts})" if counts else "", f"best {p.best:.6g}" if p.best is not None else "")
    return " ".join(filter(None, (f"{p.at}:" if p.at else "", line, *words)))


def study_tables(study: Study, points: Points) -> Group:
    """Return what a study asks: axes, number of points, what is done with them."""
    rows = []
    for i, axis in enumerate(study.axes):
        values = points.values[i]
        unit = axis.unit or "1"
        shown = [format_quantity(float(v), unit) if axis.is_number else str(v) for v in values]
        shown = shown if len(shown) <= 5 else [*shown[:2], "...", *shown[-2:]]
        rows.append((axis.name, f"{len(values):,}", ", ".join(shown)[: 2 * SHORT]))
    pairs = [
        ("points", f"{len(points):,}"),
        ("base", study.base.source),
        ("each is", study.evaluator.name),
        ("objectives", ", ".join(f"{name} ({goal.value})" for name, goal in study.objectives)),
    ]
    if study.bounds:
        pairs.append(("constraints", ", ".join(bound.words for bound in study.bounds)))
    header, numeric = ("axis", "values", "which"), (False, True, False)
    table = Table(header=header, numeric=numeric, rows=tuple(rows))
    return titled(study.name, pairs_table(tuple(pairs)), rows_table(table, wraps=2))


def results_tables(table: pyarrow.Table, asked: StudyQuestion, top: int) -> Group:
    """Return how many points came out how, the best by each objective, and the Pareto front."""
    counts = Counter(table.column("status").to_pylist())
    good = within(table, asked.bounds)
    shown = [f"{count:,} {status}" for status, count in sorted(counts.items())]
    pairs = [("points", f"{table.num_rows:,}: {', '.join(shown) or 'none'}")]
    if asked.bounds:
        words = ", ".join(bound.words for bound in asked.bounds)
        pairs.append(("constraints", f"{words}: {int(good.sum()):,} points meet them"))
    parts: list[RenderableType] = [pairs_table(tuple(pairs))]
    parts += reason_lines(filter(None, table.column("reason").to_pylist()))
    had = []
    for objective in asked.objectives:
        rows = best(table, objective, good)[:top]
        if len(rows):
            had.append(objective)
            side = "least" if objective[1].value == "min" else "most"
            shown_rows = _rows(table, asked, rows, [objective[0]])
            parts.append(titled(f"{side} {objective[0]}", shown_rows))
    lacking = [name for name, goal in asked.objectives if (name, goal) not in had]
    if lacking and good.any():
        parts.append(f"No point has {', '.join(lacking)}: not an objective here.")
    if len(had) > 1:
        front = pareto(table, had, good)
        title = f"Pareto front: {plural(len(front), 'point')}, no other better in every objective"
        names = [name for name, _ in had]
        parts.append(titled(title, _rows(table, asked, front[:top], names)))
    return titled(asked.name, *parts)


def _rows(
    table: pyarrow.Table,
    asked: StudyQuestion,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
    needed: list[str],
) -> RenderableType:
    """Return axes and objectives of some rows: those ``needed``, others while there is room.

    Axes that do not differ are left out.
    """
    several = [name for name in asked.axes if len(table.column(name).unique()) > 1]
    picked = table.take(rows)
    if len(set(picked.column("status").to_pylist())) > 1:
        needed = [*needed, "status"]
    columns = {name: _column(picked, name) for name in (*asked.axes, *needed)}
    left = WIDTH - sum(_letters(columns[name]) for name in needed)
    axes: list[str] = []
    for name in several or asked.axes:
        left -= _letters(columns[name])
        if left < 0 and len(axes) >= FEWEST_AXES:
            break
        axes.append(name)
    others: list[str] = []
    for name, _ in asked.objectives:
        column = _column(picked, name)
        if name not in needed and left >= _letters(column):
            left -= _letters(column)
            columns[name] = column
            others.append(name)
    names = [*axes, *needed, *others]
    header = tuple(columns[name][0] for name in names)
    numeric = tuple(str(table.schema.field(name).type) == "double" for name in names)
    cells = tuple(zip(*(columns[name][1:] for name in names), strict=True))
    return rows_table(Table(header=header, numeric=numeric, rows=cells))


def _letters(column: list[str]) -> int:
    """Return the letters that a column takes, with the space beside it."""
    return max(len(line) for cell in column for line in cell.split("\n")) + 2


def _column(table: pyarrow.Table, name: str) -> list[str]:
    """Return a column with its head, which has the unit where that has no prefixes."""
    unit = unit_of(table, name)
    head = name if unit in UNITS or not unit else f"{name}\n[{unit}]"
    values = table.column(name).to_pylist()
    return [
        head,
        *(v[:SHORT] if isinstance(v, str) else quantity_words(v, unit, 4) for v in values),
    ]
