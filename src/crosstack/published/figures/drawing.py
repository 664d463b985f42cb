"""Charts of a figure from its points, as ``figures.yaml`` describes them.

A chart has a ``title``, a measure ``y``, and one of

- ``bars``: the column of each bar by its name; ``groups`` is the column of the groups' names,
  ``without`` what is left out of them, ``stacked`` puts bars on top of each other;
- ``lines``: the column of each line by its name. ``x`` is a measure with the ``column`` of x, or
  the name of ``values`` that are handed in, or of ``named`` ones. With ``by`` there are such lines
  for each value of some columns, called by its name in place of braces or as in ``called``;
- ``heat``: the columns of ``rows``, ``columns`` and ``value``, with the titles of both.

A bar or a line is a column, or a column with what else it has (``colour``, ``published``). Of the
points those in the slice ``part``, those with the values of ``where``, those where the column
``known`` has a number, or those that ``pick`` names are drawn. ``also`` are charts that differ in
what they say.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crosstack.charts import BarChart, Bars, Chart, HeatMap, LineChart, Measure, Series

Rows = Sequence[tuple[Any, ...]]


def charts_of(told: Any, rows: Rows, numbers: dict[str, Any]) -> tuple[Chart, ...]:
    """Return the charts that are told of, drawn from rows and what is handed in by name."""
    return tuple(
        _chart(chart | other, rows, numbers)
        for chart in told
        for other in ({}, *chart.get("also", ()))
    )


def _chart(told: Any, rows: Rows, numbers: dict[str, Any]) -> Chart:
    rows, title = _drawn(told, rows, numbers), told["title"].format(**numbers)
    if "heat" in told:
        return _heat(told["heat"], title, Measure(**told["y"]), rows)
    if "lines" in told:
        return _lines(told, title, rows, numbers)
    return BarChart(
        title=title,
        y=Measure(**told["y"]),
        groups=tuple(row[told["groups"]].replace(told.get("without", "\0"), "") for row in rows),
        bars=tuple(
            Bars(name=name, values=tuple(row[column] for row in rows), **look)
            for name, column, look in _columns(told["bars"])
        ),
        stacked=told.get("stacked", False),
    )


def _drawn(told: Any, rows: Rows, numbers: dict[str, Any]) -> Rows:
    """Return the points of a chart."""
    if "part" in told:
        rows = rows[slice(*told["part"])]
    if "known" in told:
        rows = [row for row in rows if row[told["known"]] is not None]
    if "pick" in told:
        of_name = {row[0]: row for row in rows}
        rows = [of_name[name] for name in numbers[told["pick"]]]
    for column, value in told.get("where", {}).items():
        rows = [row for row in rows if row[int(column)] == value]
    return rows


def _columns(told: Any) -> list[tuple[str, int, dict[str, Any]]]:
    """Return name, column and look of each bar or line; colours differ unless they are told."""
    found = []
    for colour, (name, given) in enumerate(told.items()):
        look = dict(given) if isinstance(given, dict) else {"column": given}
        found.append((name, look.pop("column"), {"colour": colour} | look))
    return found


def _lines(told: Any, title: str, rows: Rows, numbers: dict[str, Any]) -> LineChart:
    measure, by = dict(told["x"]), told.get("by", ())
    xs = {id(row): float(i) for i, row in enumerate(rows, start=1)}
    if "named" in measure:
        measure["names"] = tuple(numbers[measure.pop("named")])
    elif "names" in measure:
        names = list(dict.fromkeys(row[measure["names"]] for row in rows))
        xs = {id(row): 1.0 + names.index(row[measure["names"]]) for row in rows}
        measure["names"] = tuple(map(_text, names))
    elif "values" in measure:
        values = numbers[measure.pop("values")]
        xs = {id(row): float(value) for row, value in zip(rows, values, strict=True)}
    else:
        column = measure.pop("column")
        xs = {id(row): row[column] for row in rows}
    if measure.pop("ticked", False):
        measure["ticks"] = tuple(dict.fromkeys(xs.values()))
    series, groups = list[Series](), dict[str, list[tuple[Any, ...]]]()
    for row in rows:
        groups.setdefault(", ".join(row[column] for column in by), []).append(row)
    for number, (value, mine) in enumerate(groups.items()):
        called = told.get("called", {}).get(value, value)
        for name, column, look in _columns(told["lines"]):
            known = [row for row in mine if row[column] is not None]
            series.append(
                Series(
                    name=name.format(called),
                    x=tuple(xs[id(row)] for row in known),
                    y=tuple(row[column] for row in known),
                    **(look | {"colour": number} if by else look),
                )
            )
    series += [Series(**given) for given in numbers.get("beside", {}).get(title, ())]
    return LineChart(
        title=title, x=Measure(**measure), y=Measure(**told["y"]), series=tuple(series)
    )


def _heat(told: Any, title: str, measure: Measure, rows: Rows) -> HeatMap:
    cells = {(row[told["rows"]], row[told["columns"]]): row[told["value"]] for row in rows}
    down, across = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    return HeatMap(
        title=title,
        value=measure,
        columns=tuple(map(_text, across)),
        rows=tuple(map(_text, down)),
        column_title=told["column_title"],
        row_title=told["row_title"],
        values=tuple(tuple(cells[a, b] for b in across) for a in down),
    )


def _text(cell: str | float) -> str:
    return cell if isinstance(cell, str) else f"{cell:g}"
