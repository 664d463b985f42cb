"""The partitions of an answer under the roofs of their chip: work per byte against work per second.

References
----------
williams2009roofline
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from crosstack.evaluate.plan import Plan
from crosstack.report.drawing import Canvas, Figure, text_width
from crosstack.report.plan_rows import shown_terms
from crosstack.report.scales import Scale, log_scale
from crosstack.units import format_quantity

LEFT, TOP, WIDTH, HEIGHT = 84.0, 16.0, 500.0, 290.0
RADIUS = 5.0
MOST_NAMED = 40
# A shape for each resource, so that colour is not all there is.
SHAPES = {
    "compute": "M-5 -5 h10 v10 h-10 z",
    "memory": "M-5 0 a5 5 0 1 0 10 0 a5 5 0 1 0 -10 0 z",
    "network": "M0 -6.5 l6 11 h-12 z",
    "launch": "M0 -7 l7 7 l-7 7 l-7 -7 z",
}


def roofline_figure(answer: Plan) -> Figure | None:
    """Return the partitions of one chip as numbered points; None where none moves anything.

    A point is FLOP per byte of main memory, and FLOP per second.
    """
    work: dict[int, float] = defaultdict(float)
    for k in answer.evaluation.kernels:
        work[k.partition] += k.work
    partitions = answer.evaluation.partitions
    shown = [p for p in partitions if p.memory_traffic and p.time and work[p.number]]
    if not shown:
        return None
    chip = answer.task.system.chip
    peak = answer.rules.clock.peak_rate(chip, answer.task.workload.graph.dtype)
    # What the evaluation read at; the memory behind the main one may have been used too.
    bandwidth = max(p.memory_traffic / p.memory_time for p in partitions if p.memory_time)
    ridge = peak / bandwidth
    intensities = [work[p.number] / p.memory_traffic for p in shown]
    rates = [work[p.number] / p.time for p in shown]
    across = log_scale(min(*intensities, ridge / 3), max(*intensities, ridge * 3))
    up = log_scale(min(*rates, peak / 8), peak)
    canvas = Canvas()
    _axes(canvas, across, up)
    _roofs(canvas, across, up, peak, bandwidth, chip.compute.utilization)
    places = []
    for p, intensity, rate in zip(shown, intensities, rates, strict=True):
        speed = format_quantity(rate, "FLOP/s")
        tip = f"partition {p.number}: {intensity:.4g} FLOP/B, {speed}, bound by {p.bound_by}"
        places.append(_at(across, up, intensity, rate))
        with canvas.group(tip, data_spot=p.number):
            _mark(canvas, *places[-1], p.bound_by)
    if len(shown) <= MOST_NAMED:
        _names(canvas, [str(p.number) for p in shown], places)
    x, bounds = LEFT, {p.bound_by for p in shown}
    for term in filter(bounds.__contains__, shown_terms(partitions)):
        _mark(canvas, x + 6, TOP + HEIGHT + 56, term)
        canvas.text(x + 17, TOP + HEIGHT + 60, f"by {term}", cls="xs-muted")
        x += 92
    return Figure(canvas, LEFT + WIDTH + 20, TOP + HEIGHT + 70)


def _at(across: Scale, up: Scale, x: float, y: float) -> tuple[float, float]:
    return LEFT + across.at(x) * WIDTH, TOP + HEIGHT - up.at(y) * HEIGHT


def _axes(canvas: Canvas, across: Scale, up: Scale) -> None:
    base = TOP + HEIGHT
    for tick in across.ticks:
        x = LEFT + across.at(tick) * WIDTH
        canvas.line(((x, TOP), (x, base)), "xs-line")
        canvas.text(x, base + 16, f"{tick:,.6g}", size=9.5, cls="xs-muted", anchor="middle")
    for tick in up.ticks:
        y = base - up.at(tick) * HEIGHT
        canvas.line(((LEFT, y), (LEFT + WIDTH, y)), "xs-line")
        words = format_quantity(tick, "FLOP/s", 3)
        canvas.text(LEFT - 6, y + 3.5, words, size=9.5, cls="xs-muted", anchor="end")
    words = "FLOP per byte of main memory, one chip"
    canvas.text(LEFT + WIDTH, base + 34, words, anchor="end")


def _roofs(
    canvas: Canvas, across: Scale, up: Scale, peak: float, bandwidth: float, share: float | None
) -> None:
    low = max(across.low, up.low / bandwidth)
    ridge = min(max(peak / bandwidth, low), across.high)
    points: Sequence[tuple[float, float]] = (
        _at(across, up, low, low * bandwidth),
        _at(across, up, ridge, min(peak, ridge * bandwidth)),
        _at(across, up, across.high, peak),
    )
    canvas.line(points, "xs-mark")
    x, y = points[2]
    words = f"peak {format_quantity(peak, 'FLOP/s')}"
    canvas.text(x, max(y - 6, 11.0), words, size=10, cls="xs-ink xs-halo", anchor="end")
    words = f"memory {format_quantity(bandwidth, 'B/s')}"
    x, y = ((a + b) / 2 for a, b in zip(points[0], points[1], strict=True))
    canvas.text(x + 12, y + 14, words, size=10, cls="xs-ink xs-halo")  # below the slope
    if share is not None and share < 1:
        start, y = _at(across, up, min(peak * share / bandwidth, across.high), peak * share)
        canvas.line(((start, y), (LEFT + WIDTH, y)), "xs-wire xs-dashed")
        words = f"kernels reach {100 * share:.3g} % of it"
        canvas.text(LEFT + WIDTH, y + 13, words, size=10, cls="xs-muted xs-halo", anchor="end")


def _names(canvas: Canvas, names: Sequence[str], places: Sequence[tuple[float, float]]) -> None:
    """Name points on the first side where neither another point nor a name is in the way."""
    taken = list(places)  # centres
    for name, (x, y) in zip(names, places, strict=True):
        half = text_width(name, 10) / 2
        reach = RADIUS + 4 + half
        sides = ((x + reach, y), (x - reach, y), (x, y - 12), (x, y + 12))
        others = [at for at in taken if at != (x, y)]
        at = next((s for s in sides if not any(_meet(s, o, half) for o in others)), sides[0])
        taken.append(at)
        canvas.text(at[0], at[1] + 4, name, size=10, cls="xs-ink xs-halo", anchor="middle")


def _meet(name: tuple[float, float], other: tuple[float, float], half: float) -> bool:
    (x, y), (a, b) = name, other
    return abs(x - a) <= half + RADIUS + 1 and abs(y - b) <= RADIUS + 5


def _mark(canvas: Canvas, x: float, y: float, term: str) -> None:
    with canvas.group(transform=f"translate({x:.1f} {y:.1f})"):
        canvas.path(SHAPES[term], f"xs-{term}")
