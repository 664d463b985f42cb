"""One layer of one item over time: what compute, memory and network do in every partition.

Of a chip that runs kernels one after the other every kernel has its own bars, and one above them
that says what it is bound by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crosstack.evaluate.evaluation import PartitionTerms
from crosstack.evaluate.plan import Plan
from crosstack.model.schedule.events import Timeline, simulate
from crosstack.model.schedule.layer import TERMS, PartitionTimes, layer_graph
from crosstack.report.drawing import Canvas, attribute, text_width
from crosstack.report.graph_figure import Figure
from crosstack.report.scales import round_scale
from crosstack.report.wording import common_scale, plural, time_words

NAMES, WIDTH, ROW, HEAD = 76.0, 820.0, 30.0, 40.0
NARROWEST = 0.5  # pixels; a thinner bar is not seen
GAP = 0.8  # pixels between the bars of two kernels


def layer_figure(answer: Plan) -> Figure:
    """Return a row of bars for each term over the time of a layer, a line by partition."""
    partitions = answer.evaluation.partitions
    ran = _run(answer)
    scale = WIDTH / ran.makespan
    launched = any(p.launch_time * scale >= NARROWEST for p in partitions)
    terms = TERMS if launched else TERMS[:3]
    rows = ("kernel", *terms) if any(p.kernel_runs for p in partitions) else terms
    draw = _Drawing(canvas=Canvas(), rows=rows, scale=scale)
    draw.axis(ran.makespan)
    for p, tasks in zip(partitions, _tasks(ran), strict=True):
        draw.border(float(ran.start[tasks].min()), p)
        for task in tasks:
            draw.bar(ran, task, p)
        _draw_kernels(draw, ran, tasks, p)
    draw.canvas.line(((NAMES + WIDTH, HEAD - 8), (NAMES + WIDTH, draw.bottom)), "xs-wire")
    return Figure(draw.canvas, NAMES + WIDTH + 30, draw.bottom + 24)


def _run(answer: Plan) -> Timeline:
    """Return the layer, run task by task."""
    times = [
        PartitionTimes(**dict(p.terms), kernels=p.kernel_runs) for p in answer.evaluation.partitions
    ]
    return simulate(layer_graph(times, answer.task.system.chip.overlap))


def _tasks(ran: Timeline) -> Iterator[list[int]]:
    """Yield the tasks of every partition, which end with one that says so."""
    found: list[int] = []
    for task, kind in enumerate(ran.graph.kinds):
        if kind == "end":
            yield found
            found = []
        else:
            found.append(task)


def layer_sentence(answer: Plan) -> str:
    """Say how the time of an iteration comes of that of a layer."""
    e, m = answer.evaluation, answer.mapping
    item = answer.task.workload.item
    layer = f"One layer of one {item} takes {time_words(e.layer_time)}"
    if e.stages:
        stage = f"the slowest stage takes {time_words(e.stage_time)} for a microbatch"
    else:
        layers = plural(e.layers_per_stage, "layer")
        takes = f"takes {time_words(e.stage_time)} for a microbatch of {m.microbatch_size:,}"
        stage = f"a stage of {layers} {takes}"
    return (
        f"{layer}; {stage}; {e.n_microbatches:,} of them and a bubble factor of "
        f"{e.bubble_factor:.4g} make an iteration of {time_words(e.time)}."
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Drawing:
    """Bars in rows over time, ``scale`` pixels a second."""

    canvas: Canvas
    rows: tuple[str, ...]
    scale: float

    @property
    def bottom(self) -> float:
        """Below the last row."""
        return HEAD + len(self.rows) * ROW

    def axis(self, total: float) -> None:
        """Draw times and the names of rows."""
        unit, worth, _ = common_scale([total])
        for tick in round_scale(total / worth, most=8).ticks:
            x = NAMES + tick * worth * self.scale
            if x <= NAMES + WIDTH * (1 + 1e-9):
                at = self.bottom
                self.canvas.line(((x, HEAD), (x, at + 4)), "xs-line")
                self.canvas.text(x, at + 17, f"{tick:g}", size=9.5, cls="xs-muted", anchor="middle")
        self.canvas.text(NAMES + WIDTH + 12, self.bottom + 17, unit, size=9.5, cls="xs-muted")
        for row, name in enumerate(self.rows):
            self.canvas.text(0, HEAD + row * ROW + 19, name, width=NAMES - 6)

    def border(self, start: float, p: PartitionTerms) -> None:
        """Draw where a partition begins, and its number if there is room."""
        left, width = NAMES + start * self.scale, p.time * self.scale
        self.canvas.line(((left, HEAD - 8), (left, self.bottom)), "xs-wire")
        label = f"partition {p.number}"
        if text_width(label, 10) > width - 6:
            label = str(p.number)
        if text_width(label, 10) <= width - 6:
            self.canvas.text(left + 4, HEAD - 10, label, size=10)

    def bar(self, ran: Timeline, task: int, p: PartitionTerms) -> None:
        """Draw one task in the row of its term."""
        term, time = ran.graph.kinds[task], ran.graph.durations[task]
        if term in self.rows and time * self.scale >= NARROWEST:
            tip = f"{ran.graph.names[task]}: {time_words(time, 3)} of {time_words(p.time, 3)}"
            self.rectangle(term, float(ran.start[task]), time, f"xs-{term}", tip, p.number)

    def rectangle(
        self, row: str, start: float, time: float, cls: str, tip: str, number: int
    ) -> None:
        """Draw a bar of partition ``number`` from ``start`` for ``time`` [s] that says ``tip``."""
        self.canvas.add(f'<g data-lane="{row}" data-of="{number}"><title>{attribute(tip)}</title>')
        x, width = NAMES + start * self.scale, time * self.scale
        top = HEAD + self.rows.index(row) * ROW + 5
        self.canvas.rectangle(x, top, width - GAP if width > 4 * GAP else width, ROW - 10, cls)
        self.canvas.add("</g>")


def _draw_kernels(draw: _Drawing, ran: Timeline, tasks: list[int], p: PartitionTerms) -> None:
    """Draw how long each kernel of a partition takes, with its name, and what bounds it."""
    own = iter([task for task in tasks if ran.graph.kinds[task] in ("memory", "compute")])
    for kernel in p.kernel_runs:
        mine = [next(own) for _ in range(3 if kernel.reduction else 2)]
        start = float(ran.start[mine].min())
        time = float(ran.finish[mine].max()) - start
        if time * draw.scale < NARROWEST:
            continue
        again = ", computed again" if kernel.again else ""
        tip = f"{kernel.name}{again}: {time_words(time, 3)}, bound by {kernel.bound_by}"
        draw.rectangle("kernel", start, time, f"xs-{kernel.bound_by}", tip, p.number)
        if text_width(kernel.name, 9) <= time * draw.scale - 6:
            x, y = NAMES + (start + time / 2) * draw.scale, HEAD + 18.5
            draw.canvas.text(x, y, kernel.name, size=9, cls="xs-on-network", anchor="middle")
