"""A co-optimised design as tables, as JSON and as the picture of its search."""

from __future__ import annotations

import math
from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.evaluate.predict import Step
from crosstack.explore.cooptimise import ChoiceProgress, ChoiceStatus, CoResult, Looked
from crosstack.explore.design import Metric
from crosstack.report.charts_page import charts_svg
from crosstack.report.chip_text import chip_data, chip_tables
from crosstack.report.text import pairs_table, rows_table
from crosstack.report.wording import Table, percent, plural
from crosstack.units import format_quantity
from crosstack.version import __version__

__all__ = ["optimum_data", "optimum_line", "optimum_svg", "optimum_tables"]

SHOWN = 12  # choices, the best ones
DRAWN = 6  # searches in the picture


def optimum_tables(found: CoResult, workload: Step, objective: Metric) -> Group:
    """Return what was found, the best choices, and the chip with what binds it."""
    best = found.best
    parts: list[Any] = [
        Text(f"{workload.name}: least {objective.value}, {best.choice.name}", style="bold"),
        pairs_table(_pairs(found, objective)),
    ]
    if len(found.looked) > 1:
        parts.append(rows_table(_choices(found, objective)))
    parts += [Text("How the budget is shared out", style="bold"), rows_table(_shares(found))]
    parts.append(chip_tables(found.design.chip))
    return Group(*parts)


def _written(value: float | None, objective: Metric) -> str:
    return "-" if value is None else format_quantity(value, objective.unit)


def _pairs(found: CoResult, objective: Metric) -> tuple[tuple[str, str], ...]:
    best, metrics = found.best, found.design.metrics
    assert best.best is not None
    pairs = [(objective.value, _written(best.best, objective))]
    if best.first is not None and best.best < best.first:
        gain = best.first / best.best
        pairs.append(("before its search", f"{_written(best.first, objective)}, {gain:.3g} times"))
    if found.proved > 0:
        pairs.append(("no design beats", _written(found.proved, objective)))
    others = [m for m in (Metric.TIME, Metric.POWER, Metric.ENERGY) if m is not objective]
    pairs += [(m.value, format_quantity(metrics.value(m), m.unit)) for m in others]
    pairs.append(("chip area", f"{metrics.area * 1e6:,.4g} mm^2"))
    counts = [
        f"{sum(o.status is status for o in found.looked):,} {status.value}"
        for status in ChoiceStatus
        if any(o.status is status for o in found.looked)
    ]
    pairs.append(("choices", ", ".join(counts)))
    pairs.append(("evaluations", f"{found.evaluations:,}"))
    return tuple(pairs)


def _order(found: CoResult) -> list[Looked]:
    return sorted(found.looked, key=lambda o: math.inf if o.best is None else o.best)


def _choices(found: CoResult, objective: Metric) -> Table:
    return Table(
        header=("choice", "best", "before its search", "no design beats", "what became of it"),
        numeric=(False, True, True, True, False),
        rows=tuple(
            (
                o.choice.name,
                _written(o.best, objective),
                _written(o.first, objective),
                _written(o.bound or None, objective),
                o.status.value,
            )
            for o in _order(found)[:SHOWN]
        ),
    )


def _shares(found: CoResult) -> Table:
    problem = found.best.choice.problem
    before = problem.start.tolist()
    return Table(
        header=("share", "given", "found"),
        numeric=(False, True, True),
        rows=tuple(
            (name, percent(a), percent(b))
            for name, a, b in zip(problem.space.names, before, found.point, strict=True)
        ),
    )


def optimum_data(found: CoResult, workload: Step, objective: Metric) -> dict[str, Any]:
    """Return everything as plain data; units are in the names, SI."""
    metrics = found.design.metrics
    problem = found.best.choice.problem
    return {
        "crosstack_version": __version__,
        "workload": workload.name,
        "objective": objective.value,
        "unit": objective.unit,
        "best": found.best.best,
        "bound": found.proved or None,
        "choice": dict(found.best.choice.labels),
        "metrics": {m.value: metrics.value(m) for m in Metric},
        "shares": dict(zip(problem.space.names, found.point, strict=True)),
        "chip": chip_data(found.design.chip),
        "evaluations": found.evaluations,
        "choices": [
            {
                "choice": dict(o.choice.labels),
                "status": o.status.value,
                "best": o.best,
                "first": o.first,
                "bound": o.bound or None,
                "reason": o.reason or None,
                "history": _finite(o),
            }
            for o in found.looked
        ],
    }


def _finite(looked: Looked) -> list[float | None] | None:
    """Return the best value after every evaluation; None before the first design."""
    if looked.result is None:
        return None
    return [v if math.isfinite(v) else None for v in looked.result.history.best_values]


def optimum_svg(found: CoResult, workload: Step, objective: Metric) -> str:
    """Return the best value after every evaluation, for the best searches."""
    searched = [o for o in _order(found) if o.result is not None][:DRAWN]
    series = []
    for number, o in enumerate(searched):
        assert o.result is not None
        points = [
            (float(i), value)
            for i, value in enumerate(o.result.history.best_values, 1)
            if math.isfinite(value)
        ]
        series.append(
            Series(
                name=o.choice.name,
                x=tuple(x for x, _ in points),
                y=tuple(y for _, y in points),
                colour=number,
                mark=Mark.NONE,
            )
        )
    chart = LineChart(
        title="Best design after every evaluation",
        x=Measure(label="evaluations"),
        y=Measure(label=objective.value, unit=objective.unit, log=True),
        series=tuple(series),
    )
    subtitle = (
        f"{found.best.choice.name}: {_written(found.best.best, objective)} after "
        f"{plural(found.evaluations, 'evaluation')} of {plural(len(found.looked), 'choice')}."
    )
    title = f"{workload.name}: least {objective.value}"
    return charts_svg(title, subtitle, [chart] if series else [], [], [])


def optimum_line(progress: ChoiceProgress) -> str:
    """Return where it stands, on one line."""
    best = "" if progress.best is None else f", best {progress.best:.6g}"
    if progress.search is None:
        return f"looking at {progress.name} ({progress.choices:,} choices){best}"
    s = progress.search
    return f"searching {progress.name}: {s.done:,} of {s.allowed:,} evaluations{best}"
