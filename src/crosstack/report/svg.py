"""Answers and tasks as standalone SVG figures."""

from __future__ import annotations

from collections.abc import Callable

from crosstack.evaluate.answer import Answer
from crosstack.mapping.mapping import Task
from crosstack.report.bars_figure import answer_bars
from crosstack.report.certificate_words import certificate_sentence, closing_sentence, is_open
from crosstack.report.drawing import Canvas, standalone, text_width, wrapped
from crosstack.report.graph_figure import (
    MOST_KERNELS,
    Figure,
    answer_graph,
    kernel_legend,
    task_graph,
)
from crosstack.report.layer_figure import layer_figure
from crosstack.report.machine_figure import machine_figure
from crosstack.report.memory_figure import memory_figure
from crosstack.report.roofline_figure import roofline_figure
from crosstack.report.wording import headline, key_numbers

__all__ = ["PIECES", "answer_svg", "piece_svg", "task_svg"]

MARGIN = 20.0
SIDE = 410.0


def answer_svg(answer: Answer) -> str:
    """Return an answer as one figure: the graph in partitions, their times, the key numbers."""
    graph, bars = answer_graph(answer), answer_bars(answer)
    side = Canvas()
    legend = _legend(answer)
    y = _heading(side, "Key numbers", 0)
    for label, value in key_numbers(answer):
        room = SIDE - 20 - min(text_width(label, 11), 225)  # what its own label leaves
        side.text(0, y + 10, label, cls="xs-muted", width=225)
        side.text(SIDE - 8, y + 10, value, anchor="end", width=room)
        y += 17
    y = _heading(side, "Time of every partition", y + 16)
    side.put(bars.canvas, 0, y)
    y = _heading(side, "Kernels", y + bars.height + 16)
    side.put(legend.canvas, 0, y)
    y = _heading(side, "Machine", y + legend.height + 16)
    machine = machine_figure(answer.task, answer.mapping, answer.rules)
    side.put(machine.canvas, 0, y)
    return _page(
        headline(answer),
        f"{certificate_sentence(answer)} {closing_sentence(answer)}".rstrip(),
        graph,
        Figure(side, SIDE, y + machine.height),
        warns=is_open(answer),
    )


def task_svg(task: Task) -> str:
    """Return a task as one figure: the graph in layers, and the machine."""
    graph = task_graph(task.workload.graph)
    side = Canvas()
    legend = kernel_legend(task.workload.graph, collectives=False)
    machine = machine_figure(task)
    y = _heading(side, "Machine", 0)
    side.put(machine.canvas, 0, y)
    y = _heading(side, "Kernels", y + machine.height + 16)
    side.put(legend.canvas, 0, y)
    return _page(
        f"{task.workload.name} on {task.system.name}",
        f"One {task.workload.item}, unsharded; work in floating-point operations.",
        graph,
        Figure(side, SIDE, y + legend.height),
    )


def _legend(answer: Answer) -> Figure:
    kernels = answer.evaluation.kernels
    shown = len(kernels) <= MOST_KERNELS and any(k.collective for k in kernels)
    return kernel_legend(answer.task.workload.graph, collectives=shown)


PIECES: dict[str, tuple[str, Callable[[Answer], Figure | None]]] = {
    "graph": ("graph in partitions", answer_graph),
    "bars": ("time by partition", answer_bars),
    "machine": ("machine", lambda a: machine_figure(a.task, a.mapping, a.rules)),
    "legend": ("legend", _legend),
    "layer": ("time of one layer", layer_figure),
    "memory": ("memory used", memory_figure),
    "roofline": ("partitions under the roofs of the chip", roofline_figure),
}
"""What a page shows of an answer: what it is called for those who cannot see it, and how drawn."""


def piece_svg(answer: Answer, name: str) -> str:
    """Return one of `PIECES` alone, to be put into a page that brings the colours.

    Empty where there is nothing to draw, as on a roofline where nothing leaves the chip.
    """
    label, drawn = PIECES[name]
    figure = drawn(answer)
    if figure is None:
        return ""
    return standalone(figure.canvas, figure.width, figure.height, label, own=False)


def _heading(canvas: Canvas, words: str, y: float) -> float:
    canvas.text(0, y + 13, words, size=13, cls="xs-ink xs-strong")
    return y + 24


def _page(title: str, sentence: str, graph: Figure, side: Figure, *, warns: bool = False) -> str:
    """Title and sentence over two columns, the graph left; what ``warns`` stands out."""
    width = MARGIN * 3 + graph.width + side.width
    page = Canvas()
    page.text(MARGIN, 34, title, size=18, cls="xs-ink xs-strong", width=width - 2 * MARGIN)
    y = 56.0
    for line in wrapped(sentence, width - 2 * MARGIN, 12):
        cls = "xs-network xs-strong" if warns else "xs-muted"
        page.text(MARGIN, y, line, size=12, cls=cls)
        y += 17
    y += 8
    page.put(graph.canvas, MARGIN, y)
    page.put(side.canvas, MARGIN * 2 + graph.width, y)
    height = y + max(graph.height, side.height) + MARGIN
    return standalone(page, width, height, title, own=True)
