"""The dataflow graph: kernels in layers, partitions as frames around them.

A graph too large to follow edge by edge becomes a grid of small squares, one a kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from crosstack.evaluate.evaluation import KernelTerms, PartitionTerms
from crosstack.evaluate.plan import Plan
from crosstack.report.drawing import Canvas, attribute, fit, text_width
from crosstack.report.layout import Rectangle, Wire, layered
from crosstack.report.wording import plural, sharding_words, time_words
from crosstack.units import format_quantity
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Axis, ComputeUnit, Direction, Kernel

MOST_KERNELS = 300  # beyond, edges are a carpet and nobody reads the names
NAME, DETAIL, PILL, HEADING = 11.0, 9.5, 8.5, 12.0
NODE_HEIGHT, NARROWEST, WIDEST = 36.0, 76.0, 250.0
GUTTER = 136.0  # at the left of a frame, for what is said of the partition
SQUARE, SQUARES = 14.0, 40


@dataclass(frozen=True, slots=True)
class Figure:
    """A drawn piece and its size."""

    canvas: Canvas
    width: float
    height: float


@dataclass(frozen=True, slots=True)
class _Card:
    """What a kernel shows."""

    name: str
    detail: str
    pill: str
    cls: str
    tip: str

    @property
    def width(self) -> float:
        """Wide enough for its lines, within reason."""
        second = text_width(self.detail, DETAIL)
        if self.pill:
            second += _pill_width(self.pill) + 12
        need = max(text_width(self.name, NAME, strong=True), second) + 16
        return min(WIDEST, max(NARROWEST, need))

    @property
    def opening(self) -> str:
        """Of the group of its elements."""
        return f'<g data-kernel="{attribute(self.name)}"><title>{attribute(self.tip)}</title>'


def _pill_width(pill: str) -> float:
    return text_width(pill, PILL) + 10


def _kernel_class(kernel: Kernel) -> str:
    direction = "b" if kernel.direction is Direction.BACKWARD else "f"
    return f"xs-{direction}{'s' if kernel.unit is ComputeUnit.SYSTOLIC else 'v'}"


def answer_graph(answer: Plan) -> Figure:
    """Return the graph with every partition framed, in the order they run."""
    graph, e = answer.task.workload.graph, answer.evaluation
    sharded = any(k.sharding != Axis.NONE for k in e.kernels)
    cards = [
        _answer_card(kernel, terms, sharded)
        for kernel, terms in zip(graph.kernels, e.kernels, strict=True)
    ]
    numbers = [terms.partition for terms in e.kernels]
    if len(cards) > MOST_KERNELS:
        return _grid(cards, numbers, [_heading(p) for p in e.partitions])
    return _layers(graph, cards, numbers, e.partitions)


def _heading(p: PartitionTerms) -> str:
    stage = "" if p.stage is None else f" · stage {p.stage}"
    return f"partition {p.number} · {time_words(p.time, 3)} · bound by {p.bound_by}{stage}"


def task_graph(graph: KernelGraph) -> Figure:
    """Return the graph alone."""
    cards = []
    for kernel in graph.kernels:
        work = format_quantity(kernel.work, "FLOP", 3)
        tip = f"{kernel.name}: {_extents(kernel)}, {work}"
        if kernel.weight_size:
            tip += f", weight {format_quantity(kernel.weight_size, 'B', 3)}"
        cls = _kernel_class(kernel)
        cards.append(_Card(name=kernel.name, detail=work, pill="", cls=cls, tip=tip))
    numbers = [0] * len(cards)
    if len(cards) > MOST_KERNELS:
        return _grid(cards, numbers, [plural(len(cards), "kernel")])
    return _layers(graph, cards, numbers, ())


def _layers(
    graph: KernelGraph,
    cards: Sequence[_Card],
    numbers: Sequence[int],
    partitions: Sequence[PartitionTerms],
) -> Figure:
    """Draw kernels and the tensors between them; partitions, if there are any, are framed."""
    pairs = {
        (graph.index[tensor.producer], graph.index[consumer.kernel]): None
        for tensor in graph.tensors
        for consumer in tensor.consumers
    }
    gutter = GUTTER if partitions else 0.0
    widths = [card.width for card in cards]
    layout = layered(widths, list(pairs), numbers, node_height=NODE_HEIGHT, gutter=gutter)
    canvas = Canvas()
    framed = list(zip(partitions, layout.clusters, strict=False))
    for p, box in framed:
        canvas.add(f'<g data-partition="{p.number}">')
        canvas.rectangle(box.x + 1, box.y, box.width - 2, box.height, "xs-frame", 10)
        canvas.add("</g>")
    for wire in sorted(layout.wires, key=lambda w: not w.lane):
        path = _rounded(wire) if wire.lane else _curved(wire)
        canvas.path(path, "xs-lane" if wire.lane else "xs-wire")
    for x, y in sorted({wire.points[-1] for wire in layout.wires}):
        canvas.path(f"M{x:.1f} {y:.1f} l-3.5 -6.5 h7 z", "xs-head")
    for p, box in framed:
        _title(canvas, box, p)
    for card, box in zip(cards, layout.nodes, strict=True):
        _node(canvas, card, box)
    return Figure(canvas, layout.width, layout.height)


def _answer_card(kernel: Kernel, terms: KernelTerms, sharded: bool) -> _Card:
    words = sharding_words(terms.sharding)
    split = words if terms.sharding in (Axis.NONE, Axis.PARTIAL) else f"split {words}"
    time = time_words(terms.compute_time, 3)
    collective = terms.collective.replace("_", "-")
    tip = [f"{kernel.name}: {_extents(kernel)}", f"partition {terms.partition}, {split}"]
    tip.append(f"on a chip {terms.m} x {terms.k} x {terms.n}, compute {time}")
    if collective:
        tip.append(f"{collective}, network {time_words(terms.network_time, 3)}")
    if terms.lanes is not None:
        tip.append(f"cores {terms.lanes} x {terms.stages}")
    return _Card(
        name=kernel.name,
        detail=f"{split} · {time}" if sharded else time,
        pill=collective,
        cls=_kernel_class(kernel),
        tip="\n".join(tip),
    )


def _extents(kernel: Kernel) -> str:
    sides = (kernel.m, kernel.k, kernel.n) if kernel.kind.is_gemm else (kernel.m, kernel.n)
    inner = " x ".join(map(str, sides))
    outer = f"{kernel.outer} x ({inner})" if kernel.outer > 1 else inner
    return f"{kernel.kind.value.replace('_', ' ')}, {outer}"


def _title(canvas: Canvas, box: Rectangle, p: PartitionTerms) -> None:
    room = GUTTER - 20
    x, y = box.x + 14, box.y
    canvas.rectangle(x, y + 12, 10, 10, f"xs-{p.bound_by}", 2)
    number = f"partition {p.number}"
    canvas.text(x + 16, y + 21, number, size=HEADING, cls="xs-ink xs-strong", width=room - 16)
    canvas.text(x, y + 38, time_words(p.time, 3), size=NAME, width=room)
    below = f"bound by {p.bound_by}" if p.stage is None else f"{p.bound_by}, stage {p.stage}"
    canvas.text(x, y + 53, below, size=NAME, cls="xs-muted", width=room)


def _node(canvas: Canvas, card: _Card, box: Rectangle) -> None:
    canvas.add(card.opening)
    canvas.rectangle(box.x, box.y, box.width, box.height, card.cls, 5)
    name = fit(card.name, box.width - 14, NAME, strong=True)
    canvas.text(box.x + 8, box.y + 15, name, size=NAME, cls="xs-ink xs-strong")
    room = box.width - 16
    if card.pill:
        detail = text_width(card.detail, DETAIL)
        pill = fit(card.pill, max(room - detail - 18, 40), PILL)
        width = _pill_width(pill)
        right = box.x + box.width - 6
        canvas.rectangle(right - width, box.y + 20, width, 13, "xs-network", 6.5)
        canvas.text(
            right - width / 2, box.y + 29.5, pill, size=PILL, cls="xs-on-network", anchor="middle"
        )
        room -= width + 4
    detail_text = fit(card.detail, room, DETAIL)
    canvas.text(box.x + 8, box.y + 29, detail_text, size=DETAIL, cls="xs-muted")
    canvas.add("</g>")


def _curved(wire: Wire) -> str:
    points = wire.points
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for k, ((x0, y0), (x1, y1)) in enumerate(itertools.pairwise(points)):
        if k % 2:  # past a layer, straight down
            path += f" L{x1:.1f} {y1:.1f}"
            continue
        bend = max((y1 - y0) / 2, 8)
        path += f" C{x0:.1f} {y0 + bend:.1f} {x1:.1f} {y1 - bend:.1f} {x1:.1f} {y1:.1f}"
    return path


def _rounded(wire: Wire, radius: float = 5.0) -> str:
    points = wire.points
    path = f"M{points[0][0]:.1f} {points[0][1]:.1f}"
    for (x0, y0), (x1, y1), (x2, y2) in zip(points, points[1:], points[2:], strict=False):
        before = _towards((x1, y1), (x0, y0), radius)
        after = _towards((x1, y1), (x2, y2), radius)
        path += (
            f" L{before[0]:.1f} {before[1]:.1f} Q{x1:.1f} {y1:.1f} {after[0]:.1f} {after[1]:.1f}"
        )
    return path + f" L{points[-1][0]:.1f} {points[-1][1]:.1f}"


def _towards(
    a: tuple[float, float], b: tuple[float, float], distance: float
) -> tuple[float, float]:
    length = abs(b[0] - a[0]) + abs(b[1] - a[1])  # along an axis
    share = min(distance, length / 2) / length if length else 0.0
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share


def _grid(cards: list[_Card], numbers: list[int], headings: list[str]) -> Figure:
    """Squares in the order of the graph, partition by partition; small partitions share a row."""
    canvas = Canvas()
    members: dict[int, list[_Card]] = {}
    for card, number in zip(cards, numbers, strict=True):
        members.setdefault(number, []).append(card)
    most = SQUARES * SQUARE + 20
    all_of_them = plural(len(cards), "kernel")
    said = f"{all_of_them}, too many to draw the tensors between them: each square is one."
    canvas.text(0, 12, said, cls="xs-muted", width=most)
    x, y, tallest = 0.0, 24.0, 0.0
    for number in sorted(members):
        count = len(members[number])
        heading = headings[number]
        full = text_width(heading, HEADING, strong=True) + 20
        # A crowd of small partitions shows numbers only; the tooltip has the rest.
        short = len(members) > SQUARES
        width = max(min(count, SQUARES) * SQUARE + 18, 42.0 if short else min(full, most))
        height = -(-count // SQUARES) * SQUARE + 34
        if x and x + width > most:
            x, y, tallest = 0.0, y + tallest + 8, 0.0
        canvas.add(f'<g data-partition="{number}"><title>{attribute(heading)}</title>')
        canvas.rectangle(x, y, width, height, "xs-frame", 8)
        words = str(number) if short else heading
        canvas.text(x + 9, y + 16, words, size=HEADING, cls="xs-ink xs-strong", width=width - 12)
        canvas.add("</g>")
        for k, card in enumerate(members[number]):
            left, top = x + 9 + k % SQUARES * SQUARE, y + 24 + k // SQUARES * SQUARE
            canvas.add(card.opening)
            canvas.rectangle(left, top, SQUARE - 3, SQUARE - 3, card.cls, 2)
            canvas.add("</g>")
        x, tallest = x + width + 8, max(tallest, height)
    return Figure(canvas, most, y + tallest + 2)


def kernel_legend(graph: KernelGraph, *, collectives: bool) -> Figure:
    """Return what the colours of the kernels mean, those that occur."""
    names = {
        "xs-fs": "forward, matrix units",
        "xs-fv": "forward, vector units",
        "xs-bs": "backward, matrix units",
        "xs-bv": "backward, vector units",
        "xs-network": "collective that the kernel causes",
    }
    used = {_kernel_class(kernel) for kernel in graph.kernels}
    canvas = Canvas()
    y = 0.0
    for cls, words in names.items():
        if cls in used or (cls == "xs-network" and collectives):
            canvas.rectangle(1, y + 1, 18, 12, cls, 6 if cls == "xs-network" else 3)
            canvas.text(26, y + 11, words)
            y += 19
    return Figure(canvas, 230, y)
