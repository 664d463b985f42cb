"""Answers and tasks as standalone SVG figures."""

from __future__ import annotations

from collections.abc import Callable

from crosstack.evaluate.plan import Plan
from crosstack.mapping.mapping import Task
from crosstack.report import graph_figure
from crosstack.report.bars_figure import answer_bars, memory_figure
from crosstack.report.certificate_words import certificate_sentence, closing_sentence, is_open
from crosstack.report.drawing import Canvas, Figure, standalone, text_width
from crosstack.report.layer_figure import layer_figure
from crosstack.report.machine_figure import machine_figure
from crosstack.report.roofline_figure import roofline_figure
from crosstack.report.wording import headline, key_numbers

MARGIN = 20.0
SIDE = 410.0


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
