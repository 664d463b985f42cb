"""Answers and tasks as standalone SVG figures."""

from __future__ import annotations

import math
from collections.abc import Callable

from crosstack.evaluate.plan import Plan
from crosstack.mapping.mapping import Task
from crosstack.report import graph_figure
from crosstack.report.certificate_words import certificate_sentence, closing_sentence, is_open
from crosstack.report.drawing import Canvas, Figure, standalone, text_width
from crosstack.report.layer_figure import layer_figure
from crosstack.report.machine_figure import machine_figure
from crosstack.report.memory_front_words import front_figure
from crosstack.report.plan_rows import headline, key_numbers, shown_terms
from crosstack.report.roofline_figure import roofline_figure
from crosstack.report.scales import round_scale
from crosstack.report.step_figures import memory_stack, stage_timeline
from crosstack.report.wording import common_scale, percent, scaled
from crosstack.units import format_quantity

MARGIN = 20.0
SIDE = 410.0
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


def answer_svg(answer: Plan) -> str:
    """Return an answer as one figure: the graph in partitions, their times, the key numbers."""
    numbers, y = Canvas(), 0.0
    for label, value in key_numbers(answer):
        room = SIDE - 20 - min(text_width(label, 11), 225)  # what its own label leaves
        numbers.text(0, y + 10, label, cls="xs-muted", width=225)
        numbers.text(SIDE - 8, y + 10, value, anchor="end", width=room)
        y += 17
    side = {
        "Key numbers": Figure(numbers, SIDE, y),
        "Time of every partition": answer_bars(answer),
        "Kernels": _legend(answer),
        "Machine": machine_figure(answer.task, answer.mapping, answer.rules),
    }
    said = f"{certificate_sentence(answer)} {closing_sentence(answer)}".rstrip()
    return _page(
        headline(answer), said, graph_figure.answer_graph(answer), side, warns=is_open(answer)
    )


def task_svg(task: Task) -> str:
    """Return a task as one figure: the graph in layers, and the machine."""
    graph = task.workload.graph
    title = f"{task.workload.name} on {task.system.name}"
    said = f"One {task.workload.item}, unsharded; work in floating-point operations."
    kernels = graph_figure.kernel_legend(graph, collectives=False)
    side = {"Machine": machine_figure(task), "Kernels": kernels}
    return _page(title, said, graph_figure.task_graph(graph), side)


def _legend(answer: Plan) -> Figure:
    kernels = answer.evaluation.kernels
    shown = len(kernels) <= graph_figure.MOST_KERNELS and any(k.collective for k in kernels)
    return graph_figure.kernel_legend(answer.task.workload.graph, collectives=shown)


PIECES: dict[str, tuple[str, Callable[[Plan], Figure | None]]] = {
    "graph": ("graph in partitions", graph_figure.answer_graph),
    "bars": ("time by partition", answer_bars),
    "machine": ("machine", lambda a: machine_figure(a.task, a.mapping, a.rules)),
    "legend": ("legend", _legend),
    "layer": ("time of one layer", layer_figure),
    "memory": ("memory used", memory_figure),
    "stages": ("what stages do when", stage_timeline),
    "held": ("memory of a chip by stage", memory_stack),
    "front": ("front of what a step takes and memory", front_figure),
    "roofline": ("partitions under the roofs of the chip", roofline_figure),
}
"""What a page shows of an answer: what it is called for those who cannot see it, and how drawn."""


def piece_svg(answer: Plan, name: str) -> str:
    """Return one of `PIECES` alone, to be put into a page that brings the colours.

    Empty where there is nothing to draw, as on a roofline where nothing leaves the chip.
    """
    label, drawn = PIECES[name]
    figure = drawn(answer)
    if figure is None:
        return ""
    return standalone(figure.canvas, figure.width, figure.height, label, own=False)


def _page(
    title: str, sentence: str, graph: Figure, side: dict[str, Figure], *, warns: bool = False
) -> str:
    """Title and sentence over two columns, the graph left; what ``warns`` stands out."""
    width = MARGIN * 3 + graph.width + SIDE
    page = Canvas()
    page.text(MARGIN, 34, title, size=18, cls="xs-ink xs-strong", width=width - 2 * MARGIN)
    cls = "xs-network xs-strong" if warns else "xs-muted"
    y = page.paragraph((MARGIN, 56), sentence, width - 2 * MARGIN, size=12, step=17, cls=cls) + 8
    page.put(graph.canvas, MARGIN, y)
    end, x = y, MARGIN * 2 + graph.width
    for heading, figure in side.items():
        page.text(x, end + 13, heading, size=13, cls="xs-ink xs-strong")
        page.put(figure.canvas, x, end + 24)
        end += figure.height + 40
    height = max(y + graph.height, end - 16) + MARGIN
    return standalone(page, width, height, title, own=True)
