"""One layer of one item over time: what compute, memory and network do in every partition.

Of a chip that runs kernels one after the other every kernel has its own bars, and one above them
that says what it is bound by.
"""

from __future__ import annotations

from collections.abc import Iterator

from crosstack.evaluate.plan import Plan
from crosstack.model.schedule.events import Timeline, simulate
from crosstack.model.schedule.layer import TERMS, PartitionTimes, layer_graph
from crosstack.report.drawing import Canvas, Figure, text_width
from crosstack.report.scales import round_scale
from crosstack.report.wording import common_scale, plural, time_words

NAMES, WIDTH, ROW, HEAD = 76.0, 820.0, 30.0, 40.0
NARROWEST = 0.5  # pixels; a thinner bar is not seen
GAP = 0.8  # pixels between the bars of two kernels


def layer_figure(answer: Plan) -> Figure:
    """Return a row of bars for each term over the time of a layer, a line by partition."""
    partitions = answer.evaluation.partitions
    times = [PartitionTimes(**dict(p.terms), kernels=p.kernel_runs) for p in partitions]
    ran = simulate(layer_graph(times, answer.task.system.chip.overlap))
    scale = WIDTH / ran.makespan
    launched = any(p.launch_time * scale >= NARROWEST for p in partitions)
    terms = TERMS if launched else TERMS[:3]
    rows = ("kernel", *terms) if any(p.kernel_runs for p in partitions) else terms
    bottom = HEAD + len(rows) * ROW
    canvas = Canvas()
    _axis(canvas, rows, ran.makespan, bottom)

    def bar(row: str, start: float, time: float, cls: str, tip: str) -> None:
        if row in rows and time * scale >= NARROWEST:
            x, width = NAMES + start * scale, time * scale
            top = HEAD + rows.index(row) * ROW + 5
            with canvas.group(tip, data_lane=row, data_of=p.number):
                shown = width - GAP if width > 4 * GAP else width
                canvas.rectangle(x, top, shown, ROW - 10, cls)

    for p, tasks in zip(partitions, _tasks(ran), strict=True):
        left, width = NAMES + float(ran.start[tasks].min()) * scale, p.time * scale
        canvas.line(((left, HEAD - 8), (left, bottom)), "xs-wire")
        label = f"partition {p.number}"
        if text_width(label, 10) > width - 6:
            label = str(p.number)
        if text_width(label, 10) <= width - 6:
            canvas.text(left + 4, HEAD - 10, label, size=10)
        for task in tasks:
            term, time = ran.graph.kinds[task], ran.graph.durations[task]
            tip = f"{ran.graph.names[task]}: {time_words(time, 3)} of {time_words(p.time, 3)}"
            bar(term, float(ran.start[task]), time, f"xs-{term}", tip)
        own = iter([task for task in tasks if ran.graph.kinds[task] in ("memory", "compute")])
        for kernel in p.kernel_runs:  # how long each takes, and what bounds it
            mine = [next(own) for _ in range(3 if kernel.reduction else 2)]
            start = float(ran.start[mine].min())
            time = float(ran.finish[mine].max()) - start
            again = ", computed again" if kernel.again else ""
            tip = f"{kernel.name}{again}: {time_words(time, 3)}, bound by {kernel.bound_by}"
            bar("kernel", start, time, f"xs-{kernel.bound_by}", tip)
            if text_width(kernel.name, 9) <= time * scale - 6:
                x, y, cls = NAMES + (start + time / 2) * scale, HEAD + 18.5, "xs-on-network"
                canvas.text(x, y, kernel.name, size=9, cls=cls, anchor="middle")
    canvas.line(((NAMES + WIDTH, HEAD - 8), (NAMES + WIDTH, bottom)), "xs-wire")
    return Figure(canvas, NAMES + WIDTH + 30, bottom + 24)


def _axis(canvas: Canvas, rows: tuple[str, ...], total: float, bottom: float) -> None:
    """Draw times and the names of rows."""
    unit, worth, _ = common_scale([total])
    for tick in round_scale(total / worth, most=8).ticks:
        x = NAMES + tick * worth / total * WIDTH
        if x <= NAMES + WIDTH * (1 + 1e-9):
            canvas.line(((x, HEAD), (x, bottom + 4)), "xs-line")
            canvas.text(x, bottom + 17, f"{tick:g}", size=9.5, cls="xs-muted", anchor="middle")
    canvas.text(NAMES + WIDTH + 12, bottom + 17, unit, size=9.5, cls="xs-muted")
    for row, name in enumerate(rows):
        canvas.text(0, HEAD + row * ROW + 19, name, width=NAMES - 6)


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
    workload = answer.task.workload
    layer = f"One {workload.graph_words[0]} of one {workload.item} takes {time_words(e.layer_time)}"
    if e.stages:
        stage = f"the slowest stage takes {time_words(e.stage_time)} for a microbatch"
    else:
        layers = plural(e.layers_per_stage * workload.layers_in_graph, "layer")
        takes = f"takes {time_words(e.stage_time)} for a microbatch of {m.microbatch_size:,}"
        stage = f"a stage of {layers} {takes}"
    return (
        f"{layer}; {stage}; {e.n_microbatches:,} of them and a bubble factor of "
        f"{e.bubble_factor:.4g} make an iteration of {time_words(e.time)}."
    )
