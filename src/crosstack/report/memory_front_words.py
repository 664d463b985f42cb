"""A front of what a step takes and the memory of a chip: its title, its rows, its picture."""

from __future__ import annotations

import math
from typing import Any

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.evaluate.memory_front import FrontPoint, MemoryFront
from crosstack.evaluate.next_plans import PROVED
from crosstack.evaluate.plan import Plan, value_under
from crosstack.model.objective import Objective
from crosstack.report.chart_figure import chart_figure
from crosstack.report.drawing import Figure
from crosstack.report.step_words import differences_words
from crosstack.report.wording import HOUR, Table, percent, plural, table_of, time_words
from crosstack.units import format_quantity

GB = 1e9


def front_title(answer: Plan, front: MemoryFront) -> str:
    """Return of what a front is, and how sure it is."""
    said = f"{plural(len(front.points), 'plan')} on the front of {', '.join(front.metrics)}"
    if front.moves_with_time:
        rate = format_quantity(_rate(answer) * HOUR, "USD", 4)
        said += f"; the price is the time at {rate} an hour, so the two move together"
    if front.exact:
        return f"{said}: proved, there are no others among all plans that are searched"
    sure = sum(point.proved for point in front.points)
    least = "the last" if front.ends else format_quantity(front.least_memory, "B", 4)
    known = front.ends or front.least_memory > 0
    ends = f"none takes less memory than {least}" if known else "some may take less than the last"
    return (
        f"{said}, of {plural(front.searches, 'limit')} of memory searched: {sure} proved, no plan "
        f"with as little memory is better; one between two is better by the gap at most, and {ends}"
    )


def front_rows(answer: Plan, front: MemoryFront) -> Table:
    """Return what each plan of a front decides, takes and leaves, most memory first."""
    own, capacity = answer.evaluation, answer.evaluation.memory_capacity
    energy = front.metric is Objective.ENERGY

    def gap(point: FrontPoint) -> str:
        return "none" if point.gap <= PROVED else percent(point.gap)

    def free(point: FrontPoint) -> str:
        left = capacity - point.memory
        return format_quantity(max(left, 0.0), "B", 3) if math.isfinite(left) else ""

    return table_of(
        front.points[::-1],
        ("memory", ">", lambda one: format_quantity(one.memory, "B", 4)),
        ("free", ">", free),
        ("time", ">", lambda one: time_words(one.evaluation.time)),
        ("slower", ">", lambda one: f"{100 * (one.evaluation.time / own.time - 1):+.2f} %"),
        *([("energy", ">", lambda one: format_quantity(one.value, "J", 4))] if energy else []),
        ("proved", "<", lambda one: "yes" if one.proved else "no"),
        ("gap", ">", gap),
        ("decides otherwise", "<", lambda one: differences_words(answer.mapping, one.mapping)),
    )


def _rate(answer: Plan) -> float:
    """Price of a second of the machine. [USD/s]"""
    price = value_under(Objective.PRICE, answer.task.system, answer.mapping, answer.evaluation)
    return price / answer.evaluation.time


def front_figure(answer: Plan) -> Figure | None:
    """Return what a step takes over the memory of a chip, with what no plan can be below."""
    front = answer.front
    if front is None or len(front.points) == 1:
        return None
    points = front.points
    memory, energy = tuple(one.memory for one in points), front.metric is Objective.ENERGY
    tops = (*memory[1:], points[-1].memory)
    bounds = [(x, one.bound) for one, *pair in zip(points, memory, tops, strict=True) for x in pair]
    values = [(x, one.value) for one, *pair in zip(points, memory, tops, strict=True) for x in pair]
    chart = LineChart(
        title=f"{'Energy' if energy else 'Time'} of a step over the memory of a chip",
        x=Measure(label="memory of the fullest chip", unit="GB", worth=GB),
        y=Measure(
            label=front.metric.value, unit="kJ" if energy else "s", worth=1e3 if energy else 1.0
        ),
        series=(
            Series(name="no plan is below", **_xy(bounds), colour=1, mark=Mark.NONE),
            Series(name="fastest known", **_xy(values), mark=Mark.NONE),
            Series(name="plans", x=memory, y=tuple(one.value for one in points), line=False),
        ),
    )
    return chart_figure(chart)


def _xy(points: list[tuple[float, float]]) -> dict[str, Any]:
    xs, ys = zip(*points, strict=True)
    return {"x": xs, "y": ys}
