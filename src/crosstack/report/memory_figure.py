"""What is full: the main memory of a chip, and its SRAM in every partition that has tiles there.

Kernels that run one after the other have all of it to themselves, so nothing is counted there.
"""

from __future__ import annotations

import math

from crosstack.evaluate.answer import Answer
from crosstack.report.drawing import Canvas
from crosstack.report.graph_figure import Figure
from crosstack.report.wording import percent
from crosstack.units import format_quantity

__all__ = ["memory_figure"]

LABEL, CHART, VALUE, ROW = 130.0, 240.0, 210.0, 22.0
MOST_ROWS = 40


def memory_figure(answer: Answer) -> Figure:
    """Return a bar for each memory, as a share of its capacity; the fullest partitions alone."""
    e = answer.evaluation
    canvas = Canvas()
    rows = [("main memory", e.memory_used, e.memory_capacity)]
    held = [p for p in e.partitions if p.sram_used]
    fullest = sorted(held, key=lambda p: -p.sram_used / p.sram_capacity)[:MOST_ROWS]
    kept = {p.number for p in fullest}
    rows += [
        (f"SRAM, partition {p.number}", p.sram_used, p.sram_capacity)
        for p in held
        if p.number in kept
    ]
    for k, (label, used, capacity) in enumerate(rows):
        y = k * ROW + (8 if k else 0)
        canvas.text(0, y + 14, label, width=LABEL - 8)
        canvas.rectangle(LABEL, y + 4, CHART, 13, "xs-frame", 2)
        share = used / capacity if math.isfinite(capacity) else 0.0
        canvas.rectangle(LABEL, y + 4, CHART * min(share, 1.0), 13, "xs-memory", 2)
        words = format_quantity(used, "B", 4)
        if math.isfinite(capacity):
            words = f"{percent(share)}: {words} of {format_quantity(capacity, 'B', 4)}"
        canvas.text(LABEL + CHART + 10, y + 14, words, size=10, cls="xs-muted", width=VALUE)
    height = len(rows) * ROW + 10
    if len(held) > MOST_ROWS:
        words = f"The {MOST_ROWS} fullest of {len(held):,} partitions."
        canvas.text(0, height + 10, words, cls="xs-muted")
        height += 18
    return Figure(canvas, LABEL + CHART + VALUE, height)
