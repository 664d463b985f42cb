"""Charts for papers, through matplotlib: one column wide, as PNG, SVG or PDF.

Series differ in colour (Okabe and Ito's, seen by the colour-blind too) and in their marks; heat
maps run along cividis and carry their numbers, so that neither needs colour to be read.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crosstack.charts import HeatMap, LineChart, Mark, Measure
from crosstack.errors import InputError, Problem
from crosstack.report.scales import number_words

__all__ = ["SUFFIXES", "paper_figure", "save_plot"]

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000", "#7f7f7f")
MARKS = ("o", "s", "^", "D", "v", "P", "X", "*")
COLUMN = 3.5  # of a page in two columns [inch]
STYLE = {
    "font.size": 8,
    "axes.titlesize": 8,
    "legend.fontsize": 7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.5,
    "figure.dpi": 300,
    "savefig.dpi": 300,
    "svg.fonttype": "none",  # words stay words
    "svg.hashsalt": "crosstack",  # the same chart is the same file
    "pdf.fonttype": 42,
}


def save_plot(chart: LineChart | HeatMap, path: Path) -> None:
    """Write a chart as a picture, by the suffix; never half of one.

    Raises
    ------
    InputError
        If matplotlib is not installed, or the file cannot be written.
    """
    matplotlib = _matplotlib()
    dated = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}  # the same file each time
    temporary = path.with_name(f".{path.name}.{os.getpid()}{path.suffix}")
    with matplotlib.rc_context(STYLE):
        figure = paper_figure(chart)
        try:
            figure.savefig(temporary, metadata=dated.get(path.suffix.lower()))
            os.replace(temporary, path)
        except OSError as error:
            raise InputError(Problem(str(path), f"cannot be written: {error}.")) from None
        finally:
            temporary.unlink(missing_ok=True)


def paper_figure(chart: LineChart | HeatMap) -> Any:
    """Return a ``matplotlib.figure.Figure``, to be changed before it is saved.

    Raises
    ------
    InputError
        If matplotlib is not installed.
    """
    matplotlib = _matplotlib()
    from matplotlib.figure import Figure

    with matplotlib.rc_context(STYLE):
        if isinstance(chart, LineChart):
            figure = Figure(figsize=(COLUMN, 0.72 * COLUMN), layout="constrained")
            _lines(figure.add_subplot(), chart)
        else:
            tall = max(0.9 + 0.24 * len(chart.rows), 1.4)
            figure = Figure(figsize=(COLUMN, tall), layout="constrained")
            _heat(figure.add_subplot(), chart)
        return figure


def _lines(axes: Any, chart: LineChart) -> None:
    many = sum(len(s.x) for s in chart.series) > 200
    for series in chart.series:
        colour = COLOURS[series.colour % len(COLOURS)]
        axes.plot(
            _shown(series.x, chart.x),
            _shown(series.y, chart.y),
            color=colour,
            label=series.name,
            linestyle=("--" if series.published else "-") if series.line else "none",
            linewidth=1.1,
            marker="" if series.mark is Mark.NONE else MARKS[series.colour % len(MARKS)],
            markersize=2.2 if many else 4,
            markerfacecolor="none" if series.published else colour,
        )
    _axis(axes.xaxis, chart.x)
    _axis(axes.yaxis, chart.y)
    if len(chart.series) > 1:
        axes.legend(frameon=False)


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
    for r, row in enumerate(cells):
        for c, value in enumerate(row):
            words = "-" if math.isnan(value) else number_words(value)
            dark = not math.isnan(value) and norm(value) < 0.5  # cividis ends bright
            axes.text(
                c, r, words, ha="center", va="center", size=6, color="white" if dark else "black"
            )
    unit = f" [{chart.value.unit}]" if chart.value.unit else ""
    axes.figure.colorbar(image, ax=axes, label=chart.title + unit)


def _turn(names: Sequence[str]) -> float:
    """Return by how much names along the foot are turned, so that they do not meet."""
    return 0.0 if max(map(len, names), default=0) * len(names) <= 44 else 90.0


def _shown(values: Sequence[float], measure: Measure) -> list[float]:
    return [value / measure.worth for value in values]


def _matplotlib() -> Any:
    try:
        import matplotlib
    except ImportError:
        message = "needs matplotlib; pip install 'crosstack[plot]', or draw an .svg without it."
        raise InputError(Problem("plot", message)) from None
    return matplotlib
