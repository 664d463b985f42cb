"""Charts for papers, through matplotlib: one column wide, as PNG, SVG or PDF.

Series differ in colour (Okabe and Ito's, seen by the colour-blind too) and in their marks, bars in
their hatching; heat maps run along cividis and carry their numbers, so that none needs colour to
be read. Where matplotlib is not installed, all of it raises `InputError`.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from crosstack.charts import BarChart, Chart, HeatMap, LineChart, Mark, Measure
from crosstack.errors import InputError, Problem
from crosstack.io.files import writing
from crosstack.report.scales import number_words

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
HATCHES = ("", "///", "...", "xxx", "\\\\\\", "+++", "ooo", "---")
COLUMN = 3.5  # of a page in two columns [inch]
LETTERS = 52  # of a title that are as wide as a column
MANY = 5  # series that still have room for their names inside a chart
LEGEND_LINE = 0.15  # [inch]
LETTER = 0.06  # [inch]
STYLE = files("crosstack.report").joinpath("paper.mplstyle")


def save_plot(chart: Chart, path: Path) -> None:
    """Write a chart as a picture, by the suffix; never half of one."""
    _save(paper_figure(chart), path)


def save_page(title: str, charts: Sequence[Chart], path: Path) -> None:
    """Write charts under one title as one picture, by the suffix; never half of one."""
    _save(paper_page(title, charts), path)


def _save(figure: Any, path: Path) -> None:
    kind = path.suffix[1:].lower()
    dated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}  # the same file each time
    with _styled(), writing(path) as temporary:
        figure.savefig(temporary, format=kind, metadata=dated.get(kind))


def paper_figure(chart: Chart) -> Any:
    """Return a ``matplotlib.figure.Figure``, to be changed before it is saved."""
    with _styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(COLUMN, _height(chart)), layout="constrained")
        _draw(figure.add_subplot(), chart)
        return figure


def paper_page(title: str, charts: Sequence[Chart]) -> Any:
    """Return a ``matplotlib.figure.Figure`` of charts, two in a row, each under its title."""
    wide = min(2, len(charts))
    rows = [charts[k : k + wide] for k in range(0, len(charts), wide)]
    tall = [max(map(_height, row)) + 0.2 for row in rows]
    with _styled():
        from matplotlib.figure import Figure

        words = textwrap.wrap(title, LETTERS * wide)
        above = 0.15 + LEGEND_LINE * len(words)
        figure = Figure(figsize=(COLUMN * wide, sum(tall) + above), layout="constrained")
        figure.suptitle("\n".join(words), fontsize=9)
        places = figure.subfigures(len(tall), wide, height_ratios=tall, squeeze=False).flat
        for place, chart in zip(places, charts, strict=False):
            axes = place.add_subplot()
            axes.set_title(textwrap.fill(chart.title, LETTERS - 8))
            _draw(axes, chart)
        return figure


def _styled() -> Any:
    needs_matplotlib()
    from matplotlib import style

    return style.context(str(STYLE))


def _height(chart: Chart) -> float:
    """Return how tall a chart is drawn. [inch]"""
    if isinstance(chart, HeatMap):
        return max(0.9 + 0.24 * len(chart.rows), 1.4)
    if isinstance(chart, BarChart):
        upright = max(len(line) for name in chart.groups for line in _folded(name).splitlines())
        return 0.72 * COLUMN + (LETTER * upright if _turn(chart.groups) else 0.0)
    if len(chart.series) <= MANY:
        return 0.72 * COLUMN
    return 0.72 * COLUMN + LEGEND_LINE * math.ceil(len(chart.series) / _legend_columns(chart))


def _draw(axes: Any, chart: Chart) -> None:
    if isinstance(chart, LineChart):
        _lines(axes, chart)
    elif isinstance(chart, BarChart):
        _bars(axes, chart)
    else:
        _heat(axes, chart)


def _lines(axes: Any, chart: LineChart) -> None:
    many = sum(len(s.x) for s in chart.series) > 200
    for series in chart.series:
        colour = COLOURS[series.colour % len(COLOURS)]
        mark = MARKS[(series.colour + 4 * (series.mark is Mark.SQUARE)) % len(MARKS)]
        axes.plot(
            _shown(series.x, chart.x),
            _shown(series.y, chart.y),
            color=colour,
            label=series.name,
            linestyle=("--" if series.published else "-") if series.line else "none",
            linewidth=1.1,
            marker="" if series.mark is Mark.NONE else mark,
            markersize=2.2 if many else 4,
            markerfacecolor="none" if series.published else colour,
        )
    _axis(axes.xaxis, chart.x)
    _axis(axes.yaxis, chart.y)
    if len(chart.series) > MANY:  # below the chart, not over its points
        columns, under = _legend_columns(chart), (0.5, -0.22)
        axes.legend(frameon=False, ncols=columns, loc="upper center", bbox_to_anchor=under)
    elif len(chart.series) > 1:
        axes.legend(frameon=False)


def _legend_columns(chart: LineChart) -> int:
    """Return how many names fit beside one another under a chart."""
    return 2 if max(len(series.name) for series in chart.series) <= 20 else 1


def _bars(axes: Any, chart: BarChart) -> None:
    count = 1 if chart.stacked else len(chart.bars)
    foot = [0.0] * len(chart.groups)
    for k, bars in enumerate(chart.bars):
        colour = COLOURS[bars.colour % len(COLOURS)]
        values = [0.0 if value is None else value / chart.y.worth for value in bars.values]
        shift = 0.0 if chart.stacked else (k - (count - 1) / 2) * 0.8 / count
        axes.bar(
            [group + shift for group in range(len(foot))],
            values,
            0.8 / count,
            bottom=foot if chart.stacked else None,
            label=bars.name,
            facecolor="none" if bars.published else colour,
            edgecolor=colour if bars.published else "black",
            linewidth=0.6,
            hatch=HATCHES[k % len(HATCHES)],
        )
        if chart.stacked:
            foot = [below + value for below, value in zip(foot, values, strict=True)]
    if chart.limit is not None:
        axes.axhline(chart.limit[1] / chart.y.worth, color="black", linestyle="--", linewidth=0.8)
    names, turn = chart.groups, _turn(chart.groups)
    axes.set_xticks(range(len(foot)), [_folded(n) if turn else n for n in names], rotation=turn)
    axes.grid(visible=False, axis="x")
    _axis(axes.yaxis, chart.y)
    if len(chart.bars) > 1:  # in room of its own above the bars
        top = max(bar.get_y() + bar.get_height() for bar in axes.patches)
        axes.set_ylim(top=top * (1.05 + 0.11 * math.ceil(len(chart.bars) / 2)))
        axes.legend(frameon=False, ncols=2, loc="upper center")


def _axis(axis: Any, measure: Measure) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_label_text(measure.title)
    if measure.log:
        name = f"set_{axis.axis_name}scale"
        getattr(axis.axes, name)("log")
        axis.set_minor_formatter(NullFormatter())
    if measure.names:
        axis.set_ticks(range(1, len(measure.names) + 1), labels=measure.names)
        return
    if measure.ticks:
        axis.set_ticks(list(measure.ticks))
    axis.set_major_formatter(FuncFormatter(lambda value, _: number_words(value)))


def _heat(axes: Any, chart: HeatMap) -> None:
    from matplotlib.colors import LogNorm, Normalize

    cells = [_shown(row, chart.value) for row in chart.values]
    known = [v for row in cells for v in row if not math.isnan(v)]
    low, high = min(known, default=0.0), max(known, default=1.0)
    norm = (LogNorm if chart.value.log else Normalize)(low, high)
    image = axes.imshow(cells, cmap="cividis", norm=norm, aspect="auto")
    axes.set_xticks(range(len(chart.columns)), chart.columns, rotation=_turn(chart.columns))
    axes.set_yticks(range(len(chart.rows)), chart.rows)
    axes.set_xlabel(chart.column_title)
    axes.set_ylabel(chart.row_title)
    axes.grid(visible=False)
    axes.tick_params(length=0)
    words = [["-" if math.isnan(value) else number_words(value) for value in row] for row in cells]
    longest = max((len(word) for row in words for word in row), default=0)
    size = 6 if longest * len(chart.columns) <= 30 else 4.5  # of letters: cells stay apart
    for r, row in enumerate(cells):
        for c, value in enumerate(row):
            dark = not math.isnan(value) and norm(value) < 0.5  # cividis ends bright
            colour = "white" if dark else "black"
            axes.text(c, r, words[r][c], ha="center", va="center", size=size, color=colour)
    unit = f" [{chart.value.unit}]" if chart.value.unit else ""
    axes.figure.colorbar(image, ax=axes, label=chart.title + unit)


def _folded(name: str) -> str:
    """Return a long name in lines."""
    return textwrap.fill(name, 24)


def _turn(names: Sequence[str]) -> float:
    """Return by how much names along the foot are turned, so that they do not meet."""
    return 0.0 if max(map(len, names), default=0) * len(names) <= 44 else 90.0


def _shown(values: Sequence[float], measure: Measure) -> list[float]:
    return [value / measure.worth for value in values]


def needs_matplotlib() -> None:
    """Raise `InputError` where matplotlib is not installed."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        message = "needs matplotlib; pip install 'crosstack[plot]', or draw an .svg without it."
        raise InputError(Problem("plot", message)) from None
