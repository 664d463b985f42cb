"""The step in pictures: memory of a chip of every stage, and what the stages do when."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from crosstack.charts import BarChart, Bars, Measure
from crosstack.evaluate.plan import Plan
from crosstack.evaluate.timeline import stages_of, timeline_of
from crosstack.model.schedule.passes import Operation, Stage
from crosstack.quantities import UNITS
from crosstack.report.chart_figure import chart_figure
from crosstack.report.drawing import Figure
from crosstack.report.timeline_figure import rows_figure
from crosstack.units import format_quantity

MOST_NAMED = 16  # bars that carry their number
MOST_ROWS = 8  # stages that have a row
MOST_TASKS = 60_000  # that are run for a picture; about a second


def memory_chart(answer: Plan) -> BarChart:
    """Return what a chip of every stage holds, on top of each other, under its capacity."""
    account, capacity = answer.evaluation.memory, answer.evaluation.memory_capacity
    most = capacity if math.isfinite(capacity) else account.peak
    unit = format_quantity(most, "B").rpartition(" ")[2]
    rows = [(name, sizes) for name, sizes in account.rows() if name != "total" and any(sizes)]
    every = -(-len(account.stages) // MOST_NAMED)
    called = "stage {}" if len(account.stages) <= MOST_ROWS else "{}"
    names = [called.format(k) if k % every == 0 else "" for k in range(len(account.stages))]
    limit = (f"capacity {format_quantity(capacity, 'B')}", capacity)
    return BarChart(
        title="Memory of a chip, by stage",
        y=Measure(label="main memory", unit=unit, worth=float(UNITS["B"][unit])),
        groups=tuple(names) if len(names) > 1 else ("every chip",),
        bars=tuple(
            Bars(name=name.replace("_", " "), values=sizes, colour=k)
            for k, (name, sizes) in enumerate(rows)
        ),
        stacked=True,
        limit=limit if math.isfinite(capacity) else None,
    )


def memory_stack(answer: Plan) -> Figure | None:
    """Return `memory_chart` drawn; nothing where nothing is held."""
    return chart_figure(memory_chart(answer)) if answer.evaluation.memory.peak > 0 else None


def stage_timeline(answer: Plan) -> Figure | None:
    """Return when stages run each microbatch; of many, the first, the busiest and the last.

    Nothing where a step has more tasks than `MOST_TASKS`, or one alone.
    """
    stages = [_whole(stage) for stage in stages_of(answer)]
    found = answer.evaluation
    if 4 * len(stages) * found.n_microbatches > MOST_TASKS:
        return None
    busiest = answer.step_account().stage
    chips = len(stages) // answer.mapping.interleave
    shown: Sequence[int] = range(chips)
    if chips > MOST_ROWS:
        shown = sorted({0, busiest, chips - 1})
    rows = {f"stage {stage}": f"stage {stage}" for stage in shown}
    if chips > 1:
        rows[f"stage {busiest}"] += ", busiest"
    rows |= {f"{kind} {busiest}": words for kind, words in _BESIDE.items()}
    return rows_figure(timeline_of(answer, stages), rows)


# Resources of a stage beside its chips.
_BESIDE = {
    "weights": "weights sent round",
    "sums": "gradient sums",
    "memory": "update of weights",
}


def _whole(stage: Stage) -> Stage:
    """Return a stage with all that it does of a microbatch as one operation."""
    parts = stage.operations
    whole = Operation(
        name="",
        forward=sum(one.forward for one in parts),
        backward=sum(one.backward for one in parts),
        weights=sum(one.weights for one in parts),
        tokens=stage.tokens,
    )
    return replace(stage, operations=(whole,))
