"""A co-optimised design as tables, as JSON and as the picture of its search."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

from rich.console import Group
from rich.text import Text

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.evaluate.predict import Step
from crosstack.explore.cooptimise import ChoiceResult, ChoiceStatus, CoResult
from crosstack.explore.design import Metric
from crosstack.report.chart_figure import charts_svg
from crosstack.report.chip_text import chip_data, chip_tables
from crosstack.report.text import pairs_table, reason_lines, rows_table
from crosstack.report.wording import Table, percent, plural
from crosstack.units import format_quantity
from crosstack.version import __version__

__all__ = [
    "choice_rows",
    "choice_words",
    "optimum_chart",
    "optimum_data",
    "optimum_pairs",
    "optimum_reasons",
    "optimum_svg",
    "optimum_tables",
    "optimum_title",
    "share_rows",
]

SHOWN = 12  # choices, the best ones
DRAWN = 6  # searches in the picture
OTHERS = (Metric.TIME, Metric.POWER, Metric.ENERGY)


def optimum_title(data: dict[str, Any]) -> str:
    """Return what was looked for and what was chosen, on one line."""
    return f"{data['workload']}: least {data['objective']}, {choice_words(data['choice'])}"


def choice_words(choice: dict[str, str]) -> str:
    """Return a choice as ``field=value, ...``."""
    return ", ".join(f"{field}={value}" for field, value in choice.items())


def optimum_tables(data: dict[str, Any]) -> Group:
    """Return what was found, the best choices, and the chip with what binds it.

    ``data`` is what `optimum_data` returns, perhaps saved and read again.
    """
    parts: list[Any] = [
        Text(optimum_title(data), style="bold"),
        pairs_table(optimum_pairs(data)),
    ]
    if len(data["choices"]) > 1:
        parts.append(rows_table(choice_rows(data, SHOWN)))
        reasons = reason_lines(optimum_reasons(data))
        parts += [Text("Why choices have no design", style="bold"), *reasons] if reasons else []
    parts += [Text("How the budget is shared out", style="bold"), rows_table(share_rows(data))]
    parts.append(chip_tables(data["chip"]))
    return Group(*parts)


def _written(value: float | None, data: dict[str, Any]) -> str:
    return "-" if value is None else format_quantity(value, data["unit"])


def optimum_pairs(data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the numbers of the best design, and how it was found."""
    objective, best = data["objective"], data["best"]
    first = next(c["first"] for c in data["choices"] if c["choice"] == data["choice"])
    pairs = [(objective, _written(best, data))]
    if first is not None and best < first:
        before = f"{_written(first, data)}, {first / best:.3g} times"
        pairs.append(("before its search", before))
    if data["bound"]:
        pairs.append(("no design beats", _written(data["bound"], data)))
    metrics = data["metrics"]
    pairs += [(m, format_quantity(metrics[m], m.unit)) for m in OTHERS if m != objective]
    pairs.append(("energy is", data["energy_basis"]))
    pairs.append(("chip area", f"{metrics['area'] * 1e6:,.4g} mm^2"))
    counts = Counter(c["status"] for c in data["choices"])
    words = [f"{counts[status]:,} {status}" for status in ChoiceStatus if counts[status]]
    pairs.append(("choices", ", ".join(words)))
    pairs.append(("evaluations", f"{data['evaluations']:,}"))
    return tuple(pairs)


def optimum_reasons(data: dict[str, Any]) -> list[str]:
    """Return why choices have no design."""
    return [c["reason"] for c in data["choices"] if c["best"] is None and c["reason"]]


def _ordered(data: dict[str, Any]) -> list[dict[str, Any]]:
    return sorted(data["choices"], key=lambda c: math.inf if c["best"] is None else c["best"])


def choice_rows(data: dict[str, Any], most: int) -> Table:
    """Return the best choices, at most so many."""
    return Table(
        header=("choice", "best", "before its search", "no design beats", "what became of it"),
        numeric=(False, True, True, True, False),
        rows=tuple(
            (
                choice_words(c["choice"]),
                _written(c["best"], data),
                _written(c["first"], data),
                _written(c["bound"], data),
                c["status"],
            )
            for c in _ordered(data)[:most]
        ),
    )


def share_rows(data: dict[str, Any]) -> Table:
    """Return the shares of the budget, as given and as found."""
    return Table(
        header=("share", "given", "found"),
        numeric=(False, True, True),
        rows=tuple(
            (name, percent(data["given_shares"][name]), percent(found))
            for name, found in data["shares"].items()
        ),
    )


def optimum_data(found: CoResult, workload: Step, objective: Metric) -> dict[str, Any]:
    """Return everything as plain data; units are in the names, SI."""
    metrics = found.design.metrics
    problem = found.best.choice.problem
    names = problem.free.space.names
    return {
        "crosstack_version": __version__,
        "workload": workload.name,
        "objective": objective.value,
        "unit": objective.unit,
        "best": found.best.best,
        "bound": found.proved or None,
        "choice": dict(found.best.choice.labels),
        "metrics": {m.value: metrics.value(m) for m in Metric},
        "energy_basis": metrics.energy.basis.value,
        "given_shares": dict(zip(names, problem.free.start.tolist(), strict=True)),
        "shares": dict(zip(names, found.point, strict=True)),
        "chip": chip_data(found.design.chip, problem.rules.name),
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
            for o in found.results
        ],
    }


def _finite(one: ChoiceResult) -> list[float | None] | None:
    """Return the best value after every evaluation; None before the first design."""
    if one.result is None:
        return None
    return [v if math.isfinite(v) else None for v in one.result.best_values]


def optimum_chart(data: dict[str, Any]) -> LineChart | None:
    """Return the best value after every evaluation, for the best searches; None without any."""
    searched = [c for c in _ordered(data) if c["history"]][:DRAWN]
    series = []
    for number, c in enumerate(searched):
        points = [(float(i), v) for i, v in enumerate(c["history"], 1) if v is not None]
        series.append(
            Series(
                name=choice_words(c["choice"]),
                x=tuple(x for x, _ in points),
                y=tuple(y for _, y in points),
                colour=number,
                mark=Mark.NONE,
            )
        )
    if not series:
        return None
    return LineChart(
        title="Best design after every evaluation",
        x=Measure(label="evaluations"),
        y=Measure(label=data["objective"], unit=data["unit"], log=True),
        series=tuple(series),
    )


def optimum_svg(data: dict[str, Any]) -> str:
    """Return the best value after every evaluation as a picture."""
    chart = optimum_chart(data)
    subtitle = (
        f"{choice_words(data['choice'])}: {_written(data['best'], data)} after "
        f"{plural(data['evaluations'], 'evaluation')} of {plural(len(data['choices']), 'choice')}."
    )
    title = f"{data['workload']}: least {data['objective']}"
    return charts_svg(title, subtitle, [] if chart is None else [chart], [], [])
