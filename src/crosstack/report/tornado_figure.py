"""Tornado chart: what a little less and a little more of each resource do to the time."""

from __future__ import annotations

from collections.abc import Sequence

from crosstack.report.drawing import Canvas, standalone, text_width, wrapped

__all__ = ["tornado_svg"]

MARGIN, ROW, BAR = 22.0, 24.0, 13.0
HALF = 170.0  # of the bars, each way
SMALL = 10.0
LESS, MORE = "xs-hollow-0", "xs-fill-0"
Row = tuple[str, float | None, float | None]  # name, change with less, with more; None: no fit


def tornado_svg(title: str, subtitle: str, rows: Sequence[Row], step: float) -> str:
    """Return bars to the left where the task gets faster, to the right where slower.

    Parameters
    ----------
    rows : sequence of (name, less, more)
        Relative changes of time, the largest first. [1]
    step : float
        How much more or less. [1]
    """
    canvas = Canvas()
    label = max((text_width(name, SMALL) for name, _, _ in rows), default=60.0)
    middle = MARGIN + label + 60.0 + HALF
    width = middle + HALF + 60.0 + MARGIN
    canvas.text(MARGIN, 34, title, size=18, cls="xs-ink xs-strong", width=width - 2 * MARGIN)
    y = 54.0
    for line in wrapped(subtitle, width - 2 * MARGIN, 11):
        canvas.text(MARGIN, y, line, cls="xs-muted")
        y += 15
    y += 6
    x = MARGIN
    for cls, words in ((LESS, f"{100 * step:g} % less"), (MORE, f"{100 * step:g} % more")):
        canvas.rectangle(x, y - 9, 11, 11, cls, 2)
        canvas.text(x + 17, y, words, size=SMALL, cls="xs-muted")
        x += 30 + text_width(words, SMALL)
    canvas.text(middle - 6, y, "faster", size=SMALL, cls="xs-muted", anchor="end")
    canvas.text(middle + 6, y, "slower", size=SMALL, cls="xs-muted")
    y += 10
    largest = max((abs(c) for _, *both in rows for c in both if c is not None), default=0.0)
    scale = HALF / largest if largest > 0 else 0.0
    top = y
    for name, less, more in rows:
        base = y + ROW / 2 + 3.5
        canvas.text(MARGIN, base, name, size=SMALL)
        canvas.add(f'<g data-less="{_data(less)}" data-more="{_data(more)}">')
        for change, cls, shift in ((less, LESS, -BAR / 2), (more, MORE, 0.0)):
            if change is None:
                canvas.text(middle + 6, base, "does not fit", size=8.5, cls="xs-muted")
                continue
            length = abs(change) * scale
            start = middle if change > 0 else middle - length
            canvas.rectangle(start, y + ROW / 2 + shift, max(length, 0.5), BAR / 2, cls)
        canvas.add("</g>")
        ends = [c for c in (less, more) if c]
        for change in {min(ends, default=0.0), max(ends, default=0.0)} - {0.0}:
            at = middle + change * scale + (5 if change > 0 else -5)
            canvas.text(
                at, base, f"{change:+.1%}", size=8.5, cls="xs-muted",
                anchor="start" if change > 0 else "end",
            )  # fmt: skip
        y += ROW
    canvas.line(((middle, top), (middle, y)), "xs-wire")
    return standalone(canvas, width, y + MARGIN, title, own=True)


def _data(change: float | None) -> str:
    return "none" if change is None else f"{change:.6g}"
