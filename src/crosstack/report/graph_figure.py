"""The dataflow graph: kernels in layers, partitions as frames around them.

A graph too large to follow edge by edge becomes a grid of small squares, one a kernel.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from crosstack.evaluate.evaluation import KernelTerms, PartitionTerms
from crosstack.evaluate.plan import Plan
from crosstack.report.drawing import Canvas, Figure, fit, text_width
from crosstack.report.layout import Point, Rectangle, Wire, layered
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

    def draw(self, canvas: Canvas, box: Rectangle) -> None:
        """Draw the kernel with its name, what it says of itself and its collective."""
        x, y = box.x, box.y
        with canvas.group(self.tip, data_kernel=self.name):
            canvas.rectangle(x, y, box.width, box.height, self.cls, 5)
            name = fit(self.name, box.width - 14, NAME, strong=True)
            canvas.text(x + 8, y + 15, name, size=NAME, cls="xs-ink xs-strong")
            room = box.width - 16
            if self.pill:
                pill = fit(self.pill, max(room - text_width(self.detail, DETAIL) - 18, 40), PILL)
                width = _pill_width(pill)
                left = x + box.width - 6 - width
                canvas.rectangle(left, y + 20, width, 13, "xs-network", 6.5)
                at, cls = left + width / 2, "xs-on-network"
                canvas.text(at, y + 29.5, pill, size=PILL, cls=cls, anchor="middle")
                room -= width + 4
            detail = fit(self.detail, room, DETAIL)
            canvas.text(x + 8, y + 29, detail, size=DETAIL, cls="xs-muted")


def _pill_width(pill: str) -> float:
    return text_width(pill, PILL) + 10


def _kernel_class(kernel: Kernel) -> str:
    direction = "b" if kernel.direction is Direction.BACKWARD else "f"
    return f"xs-{direction}{'s' if kernel.unit is ComputeUnit.SYSTOLIC else 'v'}"


def answer_graph(answer: Plan) -> Figure:
    """Return the graph with every partition framed, in the order they run."""
    kernels, e = answer.task.workload.graph.kernels, answer.evaluation
    sharded = any(k.sharding != Axis.NONE for k in e.kernels)
    cards = [_answer_card(*each, sharded) for each in zip(kernels, e.kernels, strict=True)]
    numbers = [terms.partition for terms in e.kernels]
    return _drawn(answer.task.workload.graph, cards, numbers, e.partitions)


def task_graph(graph: KernelGraph) -> Figure:
    """Return the graph alone."""
    cards = []
    for kernel in graph.kernels:
        work = format_quantity(kernel.work, "FLOP", 3)
        tip = f"{kernel.name}: {_extents(kernel)}, {work}"
        if kernel.weight_size:
            tip += f", weight {format_quantity(kernel.weight_size, 'B', 3)}"
        card = _Card(kernel.name, detail=work, pill="", cls=_kernel_class(kernel), tip=tip)
        cards.append(card)
    return _drawn(graph, cards, [0] * len(cards), ())


def _drawn(
    graph: KernelGraph,
    cards: Sequence[_Card],
    numbers: Sequence[int],
    partitions: Sequence[PartitionTerms],
) -> Figure:
    if len(cards) <= MOST_KERNELS:
        return _layers(graph, cards, numbers, partitions)
    return _grid(cards, numbers, [_heading(p) for p in partitions])


def _heading(p: PartitionTerms) -> str:
    stage = "" if p.stage is None else f" · stage {p.stage}"
    return f"partition {p.number} · {time_words(p.time, 3)} · bound by {p.bound_by}{stage}"


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
        with canvas.group(data_partition=p.number):
            canvas.rectangle(box.x + 1, box.y, box.width - 2, box.height, "xs-frame", 10)
    for wire in sorted(layout.wires, key=lambda w: not w.lane):
        path = _rounded(wire) if wire.lane else _curved(wire)
        canvas.path(path, "xs-lane" if wire.lane else "xs-wire")
    for x, y in sorted({wire.points[-1] for wire in layout.wires}):
        canvas.path(f"M{x:.1f} {y:.1f} l-3.5 -6.5 h7 z", "xs-head")
    for p, box in framed:
        _title(canvas, box, p)
    for card, box in zip(cards, layout.nodes, strict=True):
        card.draw(canvas, box)
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
    detail = f"{split} · {time}" if sharded else time
    return _Card(kernel.name, detail, collective, _kernel_class(kernel), "\n".join(tip))


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


def _curved(wire: Wire) -> str:
    points = wire.points
    path = f"M{_at(points[0])}"
    for k, ((x0, y0), end) in enumerate(itertools.pairwise(points)):
        bend = max((end[1] - y0) / 2, 8)
        curve = f" C{_at((x0, y0 + bend))} {_at((end[0], end[1] - bend))} {_at(end)}"
        path += f" L{_at(end)}" if k % 2 else curve  # past a layer, straight down
    return path


def _rounded(wire: Wire, radius: float = 5.0) -> str:
    points = wire.points
    path = f"M{_at(points[0])}"
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        start, end = _towards(corner, before, radius), _towards(corner, after, radius)
        path += f" L{_at(start)} Q{_at(corner)} {_at(end)}"
    return f"{path} L{_at(points[-1])}"


def _at(point: Point) -> str:
    return f"{point[0]:.1f} {point[1]:.1f}"


def _towards(a: Point, b: Point, distance: float) -> Point:
    length = abs(b[0] - a[0]) + abs(b[1] - a[1])  # along an axis
    share = min(distance, length / 2) / length if length else 0.0
    return a[0] + (b[0] - a[0]) * share, a[1] + (b[1] - a[1]) * share


def _grid(cards: Sequence[_Card], numbers: Sequence[int], headings: Sequence[str]) -> Figure:
    """Squares in the order of the graph, partition by partition; small partitions share a row."""
    canvas = Canvas()
    members: dict[int, list[_Card]] = {}
    for card, number in zip(cards, numbers, strict=True):
        members.setdefault(number, []).append(card)
    most = SQUARES * SQUARE + 20
    all_of_them = plural(len(cards), "kernel")
    headings = headings or [all_of_them]
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
        with canvas.group(heading, data_partition=number):
            canvas.rectangle(x, y, width, height, "xs-frame", 8)
            said, bold = str(number) if short else heading, "xs-ink xs-strong"
            canvas.text(x + 9, y + 16, said, size=HEADING, cls=bold, width=width - 12)
        for k, card in enumerate(members[number]):
            left, top = x + 9 + k % SQUARES * SQUARE, y + 24 + k // SQUARES * SQUARE
            with canvas.group(card.tip, data_kernel=card.name):
                canvas.rectangle(left, top, SQUARE - 3, SQUARE - 3, card.cls, 2)
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
