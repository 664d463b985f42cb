"""Bars: the time of every partition term by term, and what is full.

Full are the main memory of a chip, and its SRAM in every partition that has tiles there. Kernels
that run one after the other have all of it to themselves, so nothing is counted there.
"""

from __future__ import annotations

import math

from crosstack.evaluate.plan import Plan
from crosstack.report.drawing import Canvas, Figure, text_width
from crosstack.report.scales import round_scale
from crosstack.report.wording import common_scale, percent, scaled, shown_terms
from crosstack.units import format_quantity

LABEL, CHART, VALUE = 88.0, 250.0, 62.0
BAR, GAP, SPACE = 10.0, 1.5, 9.5  # of a bar, between bars, between partitions
MOST_LABELLED = 60
NAME, WHOLE, SAID, LINE = 130.0, 240.0, 210.0, 22.0  # of a memory
MOST_MEMORIES = 40


def answer_bars(answer: Plan) -> Figure:
    """Return a bar for every term of a partition on one axis of time, with its legend."""
    partitions = answer.evaluation.partitions
    shown = shown_terms(partitions)
    times = [t for p in partitions for t in (*(p.terms[term] for term in shown), p.time)]
    unit, worth, decimals = common_scale(times)
    axis = round_scale(max(times) / worth)
    scale = CHART / (axis.high * worth)
    roomy = len(partitions) <= MOST_LABELLED
    bar, gap, space = (BAR, GAP, SPACE) if roomy else (2.0, 0.0, 2.0)
    row = len(shown) * (bar + gap) + space
    canvas = Canvas()
    x = canvas.legend(0, 12, {term: f"xs-{term}" for term in shown})
    canvas.line(((x + 4, 1), (x + 4, 15)), "xs-mark")
    canvas.text(x + 12, 12, "partition", cls="xs-muted")
    top = 44.0
    bottom = top + row * len(partitions)
    for tick in axis.ticks:
        x = LABEL + tick * worth * scale
        canvas.line(((x, top - 4), (x, bottom + 4)), "xs-line")
        for y in (top - 9, bottom + 16):
            canvas.text(x, y, f"{tick:g}", size=9.5, cls="xs-muted", anchor="middle")
    canvas.text(LABEL + CHART + 14, bottom + 16, unit, size=9.5, cls="xs-muted")
    for k, p in enumerate(partitions):
        y, mark = top + k * row + (5 if roomy else 1), LABEL + p.time * scale
        for i, term in enumerate(shown):
            above, length = y + i * (bar + gap), p.terms[term] * scale
            with canvas.group(data_bar=term, data_of=p.number):
                canvas.rectangle(LABEL, above, length, bar, f"xs-{term}")
            if roomy:
                value, at = scaled(p.terms[term], worth, decimals), LABEL + length + 4
                if at - 4.5 < mark < at + text_width(value, 9):  # beside the mark, not on it
                    at = mark + 5
                canvas.text(at, above + 8.5, value, size=9, cls="xs-muted")
        height = len(shown) * (bar + gap) - gap
        canvas.line(((mark, y - 2), (mark, y + height + 2)), "xs-mark")
        if roomy or p.number % 5 == 0:
            name, size = (f"partition {p.number}", 10) if roomy else (str(p.number), 8)
            at = y + height / 2 + (4 if roomy else 3)
            canvas.text(LABEL - 8, at, name, size=size, width=LABEL - 8, anchor="end")
    return Figure(canvas, LABEL + CHART + VALUE, bottom + 24)


def memory_figure(answer: Plan) -> Figure:
    """Return a bar for each memory, as a share of its capacity; the fullest partitions alone."""
    e = answer.evaluation
    canvas = Canvas()
    rows = [("main memory", e.memory_used, e.memory_capacity)]
    held = [p for p in e.partitions if p.sram_used]
    fullest = sorted(held, key=lambda p: -p.sram_used / p.sram_capacity)[:MOST_MEMORIES]
    for p in sorted(fullest, key=lambda p: p.number):
        rows.append((f"SRAM, partition {p.number}", p.sram_used, p.sram_capacity))
    for k, (label, used, capacity) in enumerate(rows):
        y = k * LINE + (8 if k else 0)
        canvas.text(0, y + 14, label, width=NAME - 8)
        canvas.rectangle(NAME, y + 4, WHOLE, 13, "xs-frame", 2)
        share = used / capacity if math.isfinite(capacity) else 0.0
        canvas.rectangle(NAME, y + 4, WHOLE * min(share, 1.0), 13, "xs-memory", 2)
        words = format_quantity(used, "B", 4)
        if math.isfinite(capacity):
            words = f"{percent(share)}: {words} of {format_quantity(capacity, 'B', 4)}"
        canvas.text(NAME + WHOLE + 10, y + 14, words, size=10, cls="xs-muted", width=SAID)
    height = len(rows) * LINE + 10
    if len(held) > MOST_MEMORIES:
        words = f"The {MOST_MEMORIES} fullest of {len(held):,} partitions."
        canvas.text(0, height + 10, words, cls="xs-muted")
        height += 18
    return Figure(canvas, NAME + WHOLE + SAID, height)
