"""Charts and the claims they are held against, as one picture."""

from __future__ import annotations

from collections.abc import Sequence

from crosstack.charts import Chart
from crosstack.report.chart_figure import chart_figure
from crosstack.report.drawing import Canvas, standalone, wrapped

MARGIN, GAP = 22.0, 26.0
EMPTY = 400.0  # wide, where there is no chart
COLUMNS = (0.46, 0.19, 0.21, 0.14)  # of the table of claims, shares of its width
LINE = 17.0
Cells = tuple[str, str, str, str]


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
    y = _paragraph(page, subtitle, MARGIN, 54, inner) + 6
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
        below = _paragraph(page, note, x, below + 4, width)
    return standalone(page, inner + 2 * MARGIN, max(y, below) + MARGIN - 8, title, own=True)


def _claims(page: Canvas, claims: Sequence[Cells], x: float, y: float, width: float) -> float:
    """Draw the table; return where the next line stands."""
    starts = [x + width * sum(COLUMNS[:k]) for k in range(len(COLUMNS))]
    page.line(((x, y), (x + width, y)), "xs-line")
    y += LINE
    header = ("claim", "published", "ours", "verdict")
    for k, (start, words) in enumerate(zip(starts, header, strict=True)):
        _cell(page, start, y, words, width * COLUMNS[k], cls="xs-ink xs-strong", right=0 < k < 3)
    for claim, published, ours, verdict in claims:
        y += LINE
        strong = "xs-ink xs-strong" if verdict == "MISSES" else "xs-ink"
        for k, words in ((1, published), (2, ours), (3, verdict)):
            cls = strong if k == 3 else "xs-ink"
            _cell(page, starts[k], y, words, width * COLUMNS[k], cls=cls, right=k < 3)
        for k, line in enumerate(wrapped(claim, width * COLUMNS[0] - 8, 11)):
            y += (LINE - 3) if k else 0
            page.text(x, y, line)
    return y + LINE + 6


def _cell(
    page: Canvas, x: float, y: float, words: str, width: float, *, cls: str, right: bool
) -> None:
    if right:
        page.text(x + width - 14, y, words, cls=cls, width=width - 14, anchor="end")
    else:
        page.text(x, y, words, cls=cls, width=width - 8)


def _paragraph(page: Canvas, words: str, x: float, y: float, width: float) -> float:
    """Draw a sentence in lines; return where the next one stands."""
    lines = wrapped(words, width, 11)
    for k, line in enumerate(lines):
        page.text(x, y + k * (LINE - 2), line, cls="xs-muted")
    return y + (len(lines) - 1) * (LINE - 2) + LINE
