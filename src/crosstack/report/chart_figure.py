"""Charts: lines and points, bars, and heat maps; alone, or with the claims they are held against.

What is published is drawn hollow and dashed, what is ours filled and solid, in the same colour
where they belong together.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import assert_never

from crosstack.charts import BarChart, Bars, Chart, HeatMap, LineChart, Mark, Measure, Series
from crosstack.report.drawing import N_SERIES, Canvas, Figure, standalone, text_width, wrapped
from crosstack.report.scales import Scale, log_scale, number_words, round_scale

WIDTH, HEIGHT = 400.0, 230.0  # of the plot
LEFT, RIGHT, BELOW = 66.0, 16.0, 46.0
ROW = 18.0  # of the legend
SMALL, RADIUS = 10.0, 3.6
MOST_LABELLED = 24  # bars that carry their value
MARGIN, GAP = 22.0, 26.0  # of a page of charts
EMPTY = 400.0  # wide, where there is no chart
COLUMNS = (0.46, 0.19, 0.21, 0.14)  # of the table of claims, shares of its width
LINE = 17.0
Cells = tuple[str, str, str, str]


def chart_figure(chart: Chart) -> Figure:
    """Return a chart with its title, legend and axes."""
    if isinstance(chart, LineChart):
        return _lines(chart)
    if isinstance(chart, BarChart):
        return _bars(chart)
    return _heat(chart)


def charts_svg(
    title: str,
    subtitle: str,
    charts: Sequence[Chart],
    claims: Sequence[Cells],
    notes: Sequence[str],
) -> str:
    """Return charts in rows of two, with a table of claims and notes in the place left.

    Parameters
    ----------
    claims : sequence of (claim, published, ours, verdict)
        Without their header.
    notes : sequence of str
        Sentences; wrapped to the width.
    """
    page = Canvas()
    figures = [chart_figure(chart) for chart in charts]
    wide = max((figure.width for figure in figures), default=EMPTY)
    inner = 2 * wide + GAP
    page.text(MARGIN, 34, title, size=18, cls="xs-ink xs-strong", width=inner)
    y = page.paragraph((MARGIN, 54), subtitle, inner) + 8
    for start in range(0, len(figures), 2):
        row = figures[start : start + 2]
        for k, figure in enumerate(row):
            page.put(figure.canvas, MARGIN + k * (wide + GAP), y)
        last, y = y, y + max(figure.height for figure in row) + 12
    x, below, width = MARGIN, y, inner
    if len(figures) % 2:  # the claims take the empty place
        x, below, width = MARGIN + wide + GAP, last, wide
    if claims:
        below = _claims(page, claims, x, below + 4, width)
    for note in notes:
        below = page.paragraph((x, below + 4), note, width) + 2
    return standalone(page, inner + 2 * MARGIN, max(y, below) + MARGIN - 8, title, own=True)


def _claims(page: Canvas, claims: Sequence[Cells], x: float, y: float, width: float) -> float:
    """Draw the table; return where the next line stands."""
    starts = [x + width * sum(COLUMNS[:k]) for k in range(len(COLUMNS))]

    def cell(k: int, words: str, cls: str) -> None:
        wide = width * COLUMNS[k]
        if 0 < k < 3:
            page.text(starts[k] + wide - 14, y, words, cls=cls, width=wide - 14, anchor="end")
        else:
            page.text(starts[k], y, words, cls=cls, width=wide - 8)

    page.line(((x, y), (x + width, y)), "xs-line")
    y += LINE
    for k, words in enumerate(("claim", "published", "ours", "verdict")):
        cell(k, words, "xs-ink xs-strong")
    for claim, published, ours, verdict in claims:
        y += LINE
        cell(1, published, "xs-ink")
        cell(2, ours, "xs-ink")
        cell(3, verdict, "xs-ink xs-strong" if verdict == "MISSES" else "xs-ink")
        y = page.paragraph((x, y), claim, width * COLUMNS[0] - 8, step=14, cls="xs-ink") - 14
    return y + LINE + 6


def chart_svg(chart: Chart) -> str:
    """Return one chart as a picture of its own."""
    figure, page = chart_figure(chart), Canvas()
    page.put(figure.canvas, RIGHT, RIGHT)
    width, height = figure.width + 2 * RIGHT, figure.height + 2 * RIGHT
    return standalone(page, width, height, chart.title, own=True)


def _lines(chart: LineChart) -> Figure:
    canvas = Canvas()
    top = _head(canvas, chart.title, chart.series)
    across = _scale(chart.x, [x for s in chart.series for x in s.x], tight=True)
    up = _scale(chart.y, [y for s in chart.series for y in s.y])
    _frame(canvas, top, up, chart.y.title)
    _columns(canvas, top, across, chart.x)
    for s in chart.series:
        xs = (LEFT + across.at(x / chart.x.worth) * WIDTH for x in s.x)
        ys = (top + HEIGHT - up.at(y / chart.y.worth) * HEIGHT for y in s.y)
        points = list(zip(xs, ys, strict=True))
        with canvas.group(data_series=s.colour, data_published=str(s.published).lower()):
            if s.line and len(points) > 1:
                canvas.line(points, _stroke(s))
            for x, y in points:
                _mark(canvas, x, y, s)
    return Figure(canvas, LEFT + WIDTH + RIGHT, top + HEIGHT + BELOW)


def _bars(chart: BarChart) -> Figure:
    canvas = Canvas()
    top = _head(canvas, chart.title, chart.bars)
    worth = chart.y.worth
    shown = [[None if v is None else v / worth for v in bar.values] for bar in chart.bars]
    if chart.stacked:
        heights = [sum(v or 0.0 for v in column) for column in zip(*shown, strict=True)]
    else:
        heights = [v for values in shown for v in values if v is not None]
    if chart.limit is not None:
        heights.append(chart.limit[1] / worth)
    up = round_scale(max(heights, default=1.0))
    _frame(canvas, top, up, chart.y.title)
    slot = WIDTH / len(chart.groups)
    across = 1 if chart.stacked else len(chart.bars)
    bar = min(slot * 0.8 / across, 34.0)
    base = top + HEIGHT
    labelled = sum(len(values) for values in shown) <= MOST_LABELLED and not chart.stacked
    for g, group in enumerate(chart.groups):
        centre = LEFT + (g + 0.5) * slot
        start, piled = centre - bar * across / 2, 0.0
        for b, (item, values) in enumerate(zip(chart.bars, shown, strict=True)):
            value = values[g]
            if value is None:
                continue
            height = up.at(value) * HEIGHT
            x = start + (0 if chart.stacked else b * bar)
            y = base - height - piled
            with canvas.group(data_value=f"{value:.6g}"):
                canvas.rectangle(x + 0.5, y, bar - 1, height, _fill(item))
            piled += height if chart.stacked else 0.0
            words = number_words(value)
            if labelled and text_width(words, 8.5) <= bar + 6:
                canvas.text(x + bar / 2, y - 3, words, size=8.5, cls="xs-muted", anchor="middle")
        for k, line in enumerate(wrapped(group, slot - 2, 9)[:3]):
            y = base + 14 + 11 * k
            canvas.text(centre, y, line, size=9, cls="xs-muted", anchor="middle", width=slot + 4)
    if chart.limit is not None:
        _limit(canvas, base - up.at(chart.limit[1] / worth) * HEIGHT, chart.limit[0])
    return Figure(canvas, LEFT + WIDTH + RIGHT, top + HEIGHT + BELOW)


def _heat(chart: HeatMap) -> Figure:
    canvas = Canvas()
    top = _head(canvas, chart.title, [])
    label = max(text_width(row, SMALL) for row in chart.rows)
    left = max(LEFT, label + 30.0)
    cells = [v / chart.value.worth for row in chart.values for v in row]
    known = [v for v in cells if not math.isnan(v)]
    low, high = min(known, default=0.0), max(known, default=0.0)
    wide, tall = (LEFT + WIDTH - left) / len(chart.columns), min(HEIGHT / len(chart.rows), 34.0)
    canvas.text(left, top + 4, f"{chart.value.title}", size=SMALL, cls="xs-muted")
    top += 14.0
    for r, (name, row) in enumerate(zip(chart.rows, chart.values, strict=True)):
        y = top + r * tall
        base = y + tall / 2 + 3.5
        canvas.text(left - 8, base, name, size=SMALL, cls="xs-muted", anchor="end")
        for c, value in enumerate(row):
            shown, x, words = value / chart.value.worth, left + c * wide, "-"
            if not math.isnan(shown):  # else there is no such point, or no answer
                share = (shown - low) / (high - low) if high > low else 1.0
                canvas.add(
                    f'<rect class="xs-fill-0" fill-opacity="{0.06 + 0.6 * share:.3f}" x="{x:.1f}" '
                    f'y="{y:.1f}" width="{wide - 1:.1f}" height="{tall - 1:.1f}"/>'
                )
                words = number_words(shown)
            canvas.text(x + wide / 2, base, words, size=9.5, anchor="middle")
    bottom = top + tall * len(chart.rows)
    for c, column in enumerate(chart.columns):
        x = left + (c + 0.5) * wide
        canvas.text(x, bottom + 13, column, size=SMALL, cls="xs-muted", anchor="middle")
    middle = left + (LEFT + WIDTH - left) / 2
    canvas.text(middle, bottom + 31, chart.column_title, size=SMALL, anchor="middle")
    _sideways(canvas, 12.0, top + tall * len(chart.rows) / 2, chart.row_title)
    return Figure(canvas, LEFT + WIDTH + RIGHT, bottom + BELOW)


# ---------------------------------------------------------------- pieces


def _head(canvas: Canvas, title: str, entries: Sequence[Series | Bars]) -> float:
    """Draw the title and the legend in rows; return where the plot begins."""
    canvas.text(0, 13, title, size=13, cls="xs-ink xs-strong", width=LEFT + WIDTH)
    x, y = 0.0, 34.0
    for entry in entries:
        wide = 28.0 + text_width(entry.name, SMALL) + 14.0
        if x and x + wide > LEFT + WIDTH + RIGHT:
            x, y = 0.0, y + ROW
        line = isinstance(entry, Series) and entry.line
        if line:
            canvas.line(((x, y - 3.5), (x + 22, y - 3.5)), _stroke(entry))
        if isinstance(entry, Bars) or (entry.mark is Mark.SQUARE and not line):
            canvas.rectangle(x + 6, y - 9, 11, 11, _fill(entry), 2)
        else:
            _mark(canvas, x + 11, y - 3.5, entry)
        canvas.text(x + 28, y, entry.name, size=SMALL, cls="xs-muted", width=LEFT + WIDTH - 28)
        x += wide
    return y + (18.0 if entries else -6.0)


def _scale(measure: Measure, values: Sequence[float], *, tight: bool = False) -> Scale:
    shown = [v / measure.worth for v in values] or [1.0]
    if measure.names:
        steps = tuple(1.0 + i for i in range(len(measure.names)))
        return Scale(0.5, len(steps) + 0.5, steps)
    if measure.ticks:
        low, high = min(*shown, *measure.ticks), max(*shown, *measure.ticks)
        return Scale(low, high, measure.ticks, log=measure.log)
    if measure.log:
        return log_scale(min(shown), max(shown))
    low = min(shown) if tight or min(shown) < 0 else 0.0
    return round_scale(max(shown), low)


def _frame(canvas: Canvas, top: float, up: Scale, title: str) -> None:
    """Draw the plot's horizontal lines, the numbers beside them and the axis's title."""
    for tick in up.ticks:
        y = top + HEIGHT - up.at(tick) * HEIGHT
        canvas.line(((LEFT, y), (LEFT + WIDTH, y)), "xs-line")
        canvas.text(LEFT - 7, y + 3.5, number_words(tick), size=SMALL, cls="xs-muted", anchor="end")
    base = top + HEIGHT
    canvas.line(((LEFT, top), (LEFT, base), (LEFT + WIDTH, base)), "xs-wire")
    _sideways(canvas, 12.0, top + HEIGHT / 2, title)


def _columns(canvas: Canvas, top: float, across: Scale, measure: Measure) -> None:
    base, free = top + HEIGHT, -math.inf
    for i, tick in enumerate(across.ticks):
        x = LEFT + across.at(tick) * WIDTH
        canvas.line(((x, top), (x, base)), "xs-line")
        words = measure.names[i] if measure.names else number_words(tick)
        if x - text_width(words, SMALL) / 2 > free:
            canvas.text(x, base + 14, words, size=SMALL, cls="xs-muted", anchor="middle")
            free = x + text_width(words, SMALL) / 2
    canvas.text(LEFT + WIDTH / 2, base + 33, measure.title, size=SMALL, anchor="middle")


def _limit(canvas: Canvas, y: float, name: str) -> None:
    """Draw a line that no bar should pass, and its name above it."""
    canvas.line(((LEFT, y), (LEFT + WIDTH, y)), "xs-mark xs-dashed")
    cls = "xs-ink xs-halo"
    canvas.text(LEFT + WIDTH, y - 5, name, size=SMALL, cls=cls, anchor="end", width=WIDTH)


def _sideways(canvas: Canvas, x: float, y: float, words: str) -> None:
    with canvas.group(transform=f"translate({x:.1f} {y:.1f}) rotate(-90)"):
        canvas.text(0, 0, words, size=SMALL, anchor="middle")


def _mark(canvas: Canvas, x: float, y: float, series: Series) -> None:
    cls = _fill(series)
    match series.mark:
        case Mark.CIRCLE:
            canvas.add(f'<circle class="{cls}" cx="{x:.1f}" cy="{y:.1f}" r="{RADIUS}"/>')
        case Mark.SQUARE:
            canvas.rectangle(x - RADIUS, y - RADIUS, 2 * RADIUS, 2 * RADIUS, cls)
        case Mark.NONE:
            pass
        case _:
            assert_never(series.mark)


def _fill(item: Series | Bars) -> str:
    return f"xs-{'hollow' if item.published else 'fill'}-{item.colour % N_SERIES}"


def _stroke(item: Series | Bars) -> str:
    return f"xs-stroke-{item.colour % N_SERIES}" + (" xs-dashed" if item.published else "")
