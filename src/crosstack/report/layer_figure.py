"""One layer of one item over time: what compute, memory and network do in every partition."""

from __future__ import annotations

from collections.abc import Mapping

from crosstack.evaluate.answer import Answer
from crosstack.evaluate.evaluation import PartitionTerms
from crosstack.model.schedule.events import simulate
from crosstack.model.schedule.layer import TERMS, PartitionTimes, layer_graph
from crosstack.report.drawing import Canvas, attribute, text_width
from crosstack.report.graph_figure import Figure
from crosstack.report.scales import round_scale
from crosstack.report.wording import common_scale, time_words

__all__ = ["layer_figure", "layer_sentence"]

NAMES, WIDTH, ROW, HEAD = 76.0, 820.0, 30.0, 40.0
NARROWEST = 0.5  # pixels; a thinner bar is not seen


def layer_figure(answer: Answer) -> Figure:
    """Return a row of bars for each term over the time of a layer, a line by partition."""
    partitions, overlap = answer.evaluation.partitions, answer.task.system.chip.overlap
    total = sum(p.time for p in partitions)
    unit, worth, _ = common_scale([total])
    axis = round_scale(total / worth, most=8)
    scale = WIDTH / total
    canvas = Canvas()
    terms = TERMS if any(p.launch_time for p in partitions) else TERMS[:3]
    bottom = HEAD + len(terms) * ROW
    for tick in axis.ticks:
        x = NAMES + tick * worth * scale
        if x <= NAMES + WIDTH * (1 + 1e-9):
            canvas.line(((x, HEAD), (x, bottom + 4)), "xs-line")
            canvas.text(x, bottom + 17, f"{tick:g}", size=9.5, cls="xs-muted", anchor="middle")
    canvas.text(NAMES + WIDTH + 12, bottom + 17, unit, size=9.5, cls="xs-muted")
    for row, term in enumerate(terms):
        canvas.text(0, HEAD + row * ROW + 19, term, width=NAMES - 6)
    times = [
        PartitionTimes(**{term: getattr(p, f"{term}_time") for term in TERMS}) for p in partitions
    ]
    graph = layer_graph(times, overlap)
    ran = simulate(graph)
    begins: list[dict[str, float]] = [{}]
    for task, kind in enumerate(graph.kinds):
        begins[-1][kind] = float(ran.start[task])
        if kind == "end":
            begins.append({})
    at = 0.0
    for p, begin in zip(partitions, begins, strict=False):
        _partition(
            canvas, p, at, {term: begin[term] for term in terms if term in begin}, scale, bottom
        )
        at += p.time
    end = NAMES + WIDTH
    canvas.line(((end, HEAD - 8), (end, bottom)), "xs-wire")
    return Figure(canvas, NAMES + WIDTH + 30, bottom + 24)


def layer_sentence(answer: Answer) -> str:
    """Say how the time of an iteration comes of that of a layer."""
    e, m = answer.evaluation, answer.mapping
    item = answer.task.workload.item
    layer = f"One layer of one {item} takes {time_words(e.layer_time)}"
    if e.stages:
        stage = f"the slowest stage takes {time_words(e.stage_time)} for a microbatch"
    else:
        stage = (
            f"a stage of {e.layers_per_stage:,} layer{'s' * (e.layers_per_stage != 1)} takes "
            f"{time_words(e.stage_time)} for a microbatch of {m.microbatch_size:,}"
        )
    return (
        f"{layer}; {stage}; {e.n_microbatches:,} of them and a bubble factor of "
        f"{e.bubble_factor:.4g} make an iteration of {time_words(e.time)}."
    )


def _partition(
    canvas: Canvas,
    p: PartitionTerms,
    start: float,
    begins: Mapping[str, float],
    scale: float,
    bottom: float,
) -> None:
    left, width = NAMES + start * scale, p.time * scale
    canvas.line(((left, HEAD - 8), (left, bottom)), "xs-wire")
    label = f"partition {p.number}"
    if text_width(label, 10) > width - 6:
        label = str(p.number)
    if text_width(label, 10) <= width - 6:
        canvas.text(left + 4, HEAD - 10, label, size=10)
    for row, (term, begin) in enumerate(begins.items()):
        time = getattr(p, f"{term}_time")
        if time * scale < NARROWEST:
            continue
        tip = f"partition {p.number}, {term}: {time_words(time, 3)} of {time_words(p.time, 3)}"
        canvas.add(f'<g data-lane="{term}" data-of="{p.number}"><title>{attribute(tip)}</title>')
        x = NAMES + (start + begin) * scale
        canvas.box(x, HEAD + row * ROW + 5, time * scale, ROW - 10, f"xs-{term}")
        canvas.add("</g>")
