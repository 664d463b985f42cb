"""Figures 10 to 17: 80 systems of 1,024 chips, each with four workloads."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

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
from crosstack.published.figures.drawing import charts_of
from crosstack.published.figures.figure import Figure, claim, statement

LABELS: dict[str, str] = SPACE["labels"]
SIMPLE = "simple topologies"
TERMS = ("compute", "memory", "network")
LEAST_LOGGED = 0.7325745065429148  # of a factorisation; the other seventy logs have 0.9
GIGA = 1e9


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


def _drawn(r: PointResult) -> tuple[str | float, ...]:
    """Return what charts are drawn from, see ``space.yaml``."""
    p, times = r.point, [getattr(r, f"{term}_time") for term in TERMS]
    short = f"{SPACE['short'][p.topology]} {LABELS[p.link]}"
    efficiencies = r.power_efficiency / GIGA, r.cost_efficiency / GIGA
    shares = (time / sum(times) for time in times)
    names = LABELS[p.chip], LABELS[p.memory], short
    return (*_line(p), r.utilization, *efficiencies, *names, *shares)


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
    return Figure(
        name=f"systems-{workload}",
        title=f"{place.replace('Fig.', 'Figures')}: {title} on 80 systems of 1,024 chips",
        source=f"ko2025dfmodel, {place}",
        header=tuple(SPACE["header"]),
        rows=tuple(
            (
                ", ".join(_line(r.point)), r.time, r.utilization, r.price, r.power,
                r.cost_efficiency / GIGA, r.power_efficiency / GIGA,
                r.compute_time, r.memory_time, r.network_time, r.status,
            )
            for r in results
        ),
        claims=(*claims, *_high(workload, results)),
        charts=charts_of(SPACE["charts"], [_drawn(r) for r in results], {}),
        notes=(*SPACE["notes"], *SPACE["settings"]),
    )  # fmt: skip


def _weakest(results: list[PointResult]) -> str:
    """Return the status that all points have, or that one lacks."""
    states = {r.status for r in results}
    return states.pop() if len(states) == 1 else "feasible"


SYSTEM_FIGURES: dict[str, Callable[[Progress], Figure]] = {
    workload: partial(_systems, workload) for workload in AXES["workload"]
}
