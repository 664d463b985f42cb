"""Charts of what a sweep found, as data: a term over an axis, two terms, or a heat map."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crosstack.charts import HeatMap, LineChart, Mark, Measure, Series
from crosstack.errors import InputError, Problem, did_you_mean
from crosstack.explore.question import StudyQuestion
from crosstack.explore.tables import number_column, pareto, within
from crosstack.io.study_file import Goal
from crosstack.report.pages.study_table import quantity_words, unit_of
from crosstack.units import UNITS, format_quantity

if TYPE_CHECKING:
    import pyarrow

Floats = NDArray[np.float64]
Names = NDArray[np.object_]
Rows = NDArray[np.int64]
MOST_SERIES, MOST_POINTS, MOST_CELLS = 8, 5_000, 40
LOG_SPAN = 50.0  # a scale is logarithmic where the largest value is so many times the smallest


def line_chart(
    table: pyarrow.Table,
    asked: StudyQuestion,
    *,
    x: str,
    y: str,
    by: str | None,
    front: bool = False,
) -> LineChart:
    """Return ``y`` over ``x``, a series for each value of ``by``; rows that meet constraints alone.

    Points are joined where a series has one for each x. ``front`` draws the Pareto front of two
    objectives, in steps: between two points of it nothing better is known. Of too many points an
    even share is drawn beside it.

    Raises
    ------
    InputError
        For columns that there are not, or too much to be seen.
    """
    xs, ys = number_column(table, x), number_column(table, y)
    rows = np.flatnonzero(within(table, asked.bounds) & ~np.isnan(xs) & ~np.isnan(ys))
    if not len(rows):
        lacking = x if np.isnan(xs).all() else y
        raise InputError(Problem(lacking, "no point has it within the constraints."))
    best = _front_rows(table, asked, (x, y), rows) if front else rows[:0]
    drawn, name = rows, "Pareto front"
    if front and len(rows) > MOST_POINTS:  # the front is that of all; others are its background
        drawn = np.union1d(best, rows[np.linspace(0, len(rows) - 1, MOST_POINTS, dtype=int)])
        name = f"front of {len(rows):,} points, {len(drawn):,} drawn"
    elif len(rows) > MOST_POINTS:
        message = f"{len(rows):,} points; a chart shows up to {MOST_POINTS:,}. See study export."
        raise InputError(Problem(y, message))
    labels = np.full(table.num_rows, y, dtype=object) if by is None else _labels(table, by)
    kinds = list(dict.fromkeys(labels[drawn].tolist()))
    if len(kinds) > MOST_SERIES:
        message = f"has {len(kinds)} values; a chart shows up to {MOST_SERIES} series."
        raise InputError(Problem(str(by), message))
    series = []
    for colour, kind in enumerate(kinds):
        own = drawn[labels[drawn] == kind]
        own = own[np.lexsort((ys[own], xs[own]))]
        joined = not front and x in asked.axes and len(np.unique(xs[own])) == len(own)
        across, up = (tuple(values[own].tolist()) for values in (xs, ys))
        series.append(Series(name=kind, x=across, y=up, colour=colour, line=joined))
    if front:
        maximum = dict(asked.objectives)[x] is Goal.MAXIMUM
        across, up = _steps(xs[best], ys[best], maximum=maximum)
        mark = Mark.NONE if len(best) > 1 else Mark.CIRCLE
        series.append(Series(name=name, x=across, y=up, colour=len(series), mark=mark))
    return LineChart(
        title=f"{y} over {x}",
        x=_measure(table, x, xs[rows]),
        y=_measure(table, y, ys[rows]),
        series=tuple(series),
    )


def heat_map(table: pyarrow.Table, asked: StudyQuestion, *, x: str, y: str, value: str) -> HeatMap:
    """Return the best ``value`` for each pair of values of two axes.

    The best is the largest, or the smallest where the study's objectives say so; over all else
    that is varied, among rows that meet the constraints.

    Raises
    ------
    InputError
        For columns that there are not, or too many cells to be read.
    """
    numbers = number_column(table, value)
    across, down = _labels(table, x), _labels(table, y)
    columns, rows = _places(table, x, across), _places(table, y, down)
    good = within(table, asked.bounds) & ~np.isnan(numbers)
    smallest = dict(asked.objectives).get(value) is Goal.MINIMUM
    cells = np.full((len(rows), len(columns)), np.nan)
    for row in np.flatnonzero(good).tolist():
        at = rows[down[row]], columns[across[row]]
        if np.isnan(cells[at]) or (numbers[row] < cells[at]) == smallest:
            cells[at] = numbers[row]
    return HeatMap(
        title=f"{'least' if smallest else 'largest'} {value}",
        value=_measure(table, value, numbers[good]),
        columns=tuple(columns),
        rows=tuple(rows),
        column_title=x,
        row_title=y,
        values=tuple(tuple(line) for line in cells.tolist()),
    )


def _front_rows(
    table: pyarrow.Table, asked: StudyQuestion, names: tuple[str, str], rows: Rows
) -> Rows:
    """Return which of some rows are the front of two objectives."""
    goals = dict(asked.objectives)
    for name in names:
        if name not in goals:
            allowed = ", ".join(goals)
            message = f"is no objective of the study, so that it has no front; allowed: {allowed}."
            raise InputError(Problem(name, message))
    among = np.zeros(table.num_rows, dtype=bool)
    among[rows] = True
    return pareto(table, [(name, goals[name]) for name in names], among)


def _steps(xs: Floats, ys: Floats, *, maximum: bool) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return a front as steps from left to right; ``maximum`` says that more of x is better."""
    order = np.argsort(xs, kind="stable")
    xs, ys = xs[order], ys[order]
    # Each corner has the worse of two neighbours in both.
    corners = (xs[:-1], ys[1:]) if maximum else (xs[1:], ys[:-1])
    across, up = (
        np.insert(own, range(1, len(own)), c) for own, c in zip((xs, ys), corners, strict=True)
    )
    return tuple(across.tolist()), tuple(up.tolist())


def _column(table: pyarrow.Table, name: str) -> Any:
    if name not in table.column_names:
        hint = did_you_mean(name, table.column_names)
        allowed = ", ".join(table.column_names)
        raise InputError(Problem(name, f"no such column.{hint} Allowed: {allowed}."))
    return table.column(name)


def _labels(table: pyarrow.Table, name: str) -> Names:
    """Return a column as text for people."""
    values = _column(table, name).to_pylist()
    unit = unit_of(table, name)
    words = [
        v or "" if v is None or isinstance(v, str) else quantity_words(v, unit) for v in values
    ]
    return np.array(words, dtype=object)


def _places(table: pyarrow.Table, name: str, labels: Names) -> dict[str, int]:
    """Return where the values of a column stand: numbers ascending, text as it comes."""
    values = dict(zip(labels.tolist(), _column(table, name).to_pylist(), strict=True))
    if len(values) > MOST_CELLS:
        message = f"has {len(values):,} values; a heat map shows up to {MOST_CELLS}."
        raise InputError(Problem(name, message))
    text = any(isinstance(value, str) or value is None for value in values.values())
    ordered = values if text else sorted(values, key=lambda label: float(values[label]))
    return {label: i for i, label in enumerate(ordered)}


def _measure(table: pyarrow.Table, name: str, values: Floats) -> Measure:
    unit = unit_of(table, name)
    largest, smallest = float(np.max(values)), float(np.min(values))
    log = smallest > 0 and largest > LOG_SPAN * smallest
    prefixed, worth = unit, 1.0
    if unit == "1":
        prefixed = ""
    elif unit in UNITS:
        prefixed = format_quantity(largest, unit).partition(" ")[2] or unit
        worth = float(UNITS[unit].get(prefixed, 1))
    elif unit[:1].isalpha():  # the SI prefix that a large value is shown with
        power = sum(max(abs(largest), abs(smallest)) >= 1000.0**step for step in range(1, 7))
        prefixed, worth = ("", "k", "M", "G", "T", "P", "E")[power] + unit, 1000.0**power
    return Measure(label=name, unit=prefixed, worth=worth, log=log)
