"""Figures 10 to 17: 80 systems of 1,024 chips, each with four workloads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import product

from crosstack.charts import BarChart, Bars, HeatMap, Measure
from crosstack.published.case import Progress, Row
from crosstack.published.dfmodel.system_space import (
    AXES,
    CLAIMS,
    RULES,
    SPACE,
    PointResult,
    RatioClaim,
    SpacePoint,
    design_space,
    result_of,
)
from crosstack.published.figures.figure import Figure, claim, statement

LABELS: dict[str, str] = SPACE["labels"]
SIMPLE = "simple topologies"
TERMS = ("compute", "memory", "network")
LEAST_LOGGED = 0.7325745065429148  # of a factorisation; the other seventy logs have 0.9
SHORT = {**LABELS, "2d_torus": "2-D", "3d_torus": "3-D", "dragonfly": "fly"}


def _words(ratio: RatioClaim) -> str:
    """Say what a ratio compares."""
    choices = " and ".join(LABELS[name] for name in ratio.choices)
    others = " and ".join(LABELS[name] for name in ratio.others)
    if ratio.axis == "topology":
        others = SIMPLE
    among = [LABELS[name] for names in ratio.among.values() for name in names]
    given = f" ({', '.join(among)})" if among else ""
    return f"{choices} over {others}{given}, {LABELS[ratio.quantity]}"


def _line(point: SpacePoint) -> tuple[str, str]:
    """Return the row and the column of a point in a heat map."""
    row = f"{LABELS[point.chip]}, {LABELS[point.memory]}, {LABELS[point.link]}"
    return row, LABELS[point.topology]


def _heat_map(results: list[PointResult], quantity: str, worth: float, unit: str) -> HeatMap:
    cells = {_line(r.point): getattr(r, quantity) for r in results}
    rows = tuple(dict.fromkeys(row for row, _ in cells))
    columns, label = tuple(LABELS[name] for name in AXES["topology"]), quantity.replace("_", " ")
    return HeatMap(
        title=label.capitalize(),
        value=Measure(label=label, unit=unit, worth=worth),
        columns=columns,
        rows=rows,
        column_title="topology",
        row_title="chip, memory, link",
        values=tuple(tuple(cells[row, column] for column in columns) for row in rows),
    )


def _breakdown(results: list[PointResult], chip: str, memory: str) -> BarChart:
    """Return the shares of compute, memory and network on the systems of a chip and a memory."""
    mine = [r for r in results if (r.point.chip, r.point.memory) == (chip, memory)]
    shares = [
        tuple(
            getattr(r, f"{term}_time") / (r.compute_time + r.memory_time + r.network_time)
            for r in mine
        )
        for term in TERMS
    ]
    return BarChart(
        title=f"Where the time goes: {LABELS[chip]} with {LABELS[memory]}",
        y=Measure(label="share of the three", unit="%", worth=0.01),
        groups=tuple(f"{SHORT[r.point.topology]} {LABELS[r.point.link]}" for r in mine),
        bars=tuple(
            Bars(name=name, values=values, colour=colour)
            for colour, (name, values) in enumerate(zip(TERMS, shares, strict=True))
        ),
        stacked=True,
    )


def _high(workload: str, results: list[PointResult]) -> tuple[Row, ...]:
    """Return that every factorisation uses its chips well, as the text says without a number."""
    if workload != "hpl":
        return ()
    place, uses = SPACE["workloads"][workload][1], [r.utilization for r in results]
    source = "ko2025dfmodel, VI.C"
    words = f"all setups reach high utilization, at least {LEAST_LOGGED:.2f} as in the logs"
    return (
        statement(place, words, [use >= LEAST_LOGGED * (1 - 1e-6) for use in uses], rules=RULES,
                  source=source),
        claim(place, "lowest utilization of the 80 setups", LEAST_LOGGED, min(uses),
              quantity="utilization", tolerance=1e-6, rules=RULES, state=_weakest(results),
              source="HPL/DSE/system, ten logs of WSE-2 with PCIe"),
    )  # fmt: skip


def _systems(workload: str, progress: Progress) -> Figure:
    title, _ = SPACE["workloads"][workload]
    results = []
    points = design_space((workload,))
    for k, point in enumerate(points):
        progress(f"{title}: system {k + 1} of {len(points)}")
        results.append(result_of(point, time_limit=60.0))
    return systems_figure(workload, results)


def systems_figure(workload: str, results: list[PointResult]) -> Figure:
    """Return the figures of a workload from what came of its 80 points."""
    title, place = SPACE["workloads"][workload]
    claims = [
        claim(
            place,
            _words(ratio),
            ratio.published,
            ratio.ratio(results),
            tolerance=ratio.digit * (1 + 1e-9) / ratio.published,
            source="ko2025dfmodel, VI.C",
            rules=RULES,
            state=_weakest(results),
            reason=ratio.reason,
        )
        for ratio in CLAIMS
        if ratio.workload == workload
    ]
    giga = 1e9
    return Figure(
        name=f"systems-{workload}",
        title=f"{place.replace('Fig.', 'Figures')}: {title} on 80 systems of 1,024 chips",
        source=f"ko2025dfmodel, {place}",
        header=tuple(SPACE["header"]),
        rows=tuple(
            (
                ", ".join(_line(r.point)), r.time, r.utilization, r.price, r.power,
                r.cost_efficiency / giga, r.power_efficiency / giga,
                r.compute_time, r.memory_time, r.network_time, r.status,
            )
            for r in results
        ),
        claims=(*claims, *_high(workload, results)),
        charts=(
            _heat_map(results, "utilization", 0.01, "%"),
            _heat_map(results, "power_efficiency", giga, "GFLOP/s/W"),
            _heat_map(results, "cost_efficiency", giga, "GFLOP/s/USD"),
            *(_breakdown(results, *both) for both in product(AXES["chip"], AXES["memory"])),
        ),
        notes=(*SPACE["notes"], *SPACE["settings"]),
    )  # fmt: skip


def _weakest(results: list[PointResult]) -> str:
    """Return the status that all points have, or that one lacks."""
    states = {r.status for r in results}
    return states.pop() if len(states) == 1 else "feasible"


SYSTEM_FIGURES: dict[str, Callable[[Progress], Figure]] = {
    workload: partial(_systems, workload) for workload in AXES["workload"]
}
