"""Figure 22: how much of a chip should be compute, by its memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

from crosstack.charts import LineChart, Measure, Series
from crosstack.mapping.mapping import Task
from crosstack.model.rules import rules_named
from crosstack.published.case import Row
from crosstack.published.dfmodel.machines import GB
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    MappedPoint,
    Progress,
    figure,
    found,
    mapped,
    published_points,
    statement,
)

# The logs cut sequences into 11, 13, 23, 90 and 342 tiles, which do not divide 2,048.
RULES = rules_named("dfmodel-e5").changed(name="dfmodel-e5, any tiles", tiles_divide=False)
UNITS, UNIT_SRAM = 2080, 2.0**19  # compute or memory units of a chip; bytes of a memory unit
SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)
# name: bandwidth [GB/s]
MEMORIES = {"2-D DDR, 100 GB/s": 100.0, "2.5-D HBM, 1 TB/s": 1024.0, "3-D, 100 TB/s": 1e5}
MODES = ("kernel by kernel", "fused")
LOGS: dict[str, list[float | None]] = TEXTS["figures"]["stacked-memory"]["logs"]
# The compute share that the paper prefers: low, middle, high.
PREFERRED = ((0.2, 0.35), (0.35, 0.5, 0.65), (0.65, 0.8))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Point:
    """A chip under a memory: kernel by kernel, fused, and the logged utilization."""

    memory: str
    source: str
    compute: float
    peak: float
    alone: MappedPoint
    fused: MappedPoint
    log: float | None

    @property
    def rate(self) -> float:
        """Throughput of a chip, kernel by kernel. [FLOP/s]"""
        return self.alone.utilization * self.peak

    @property
    def fused_rate(self) -> float:
        """The same, fused. [FLOP/s]"""
        return self.fused.utilization * self.peak

    @property
    def logged_rate(self) -> float | None:
        """The same, in the log. [FLOP/s]"""
        return None if self.log is None else self.log * self.peak


def stacked_memory_task(memory: str, compute: float, mode: str) -> Task:
    """Return one problem of the figure.

    Parameters
    ----------
    memory : str
        Of `MEMORIES`.
    compute : float
        Share of the chip's units that compute; the others are SRAM. [1]
    mode : str
        Of `MODES`.
    """
    base = published_task("gpt_100t")
    cores = round(UNITS * compute)
    chip = base.system.chip.with_compute(n_units=cores, n_multiprocessors=cores)
    chip = chip.with_level(0, capacity=(UNITS - cores) * UNIT_SRAM)
    chip = chip.with_memory(bandwidth=MEMORIES[memory] * GB)
    task = replace(base, system=replace(base.system, chip=chip))
    if mode == "kernel by kernel":
        return task
    return replace(task, constraints=replace(task.constraints, kernel_by_kernel=False))


def _points(known: Mapping[tuple[str, float, str], MappedPoint]) -> list[list[_Point]]:
    """Return the points, memory by memory."""
    return [
        [
            _Point(
                memory=memory,
                source=f"LLM/3d_memory/{folder}/{compute:g}",
                compute=compute,
                peak=stacked_memory_task(memory, compute, MODES[0]).system.chip.peak_throughput,
                alone=known[memory, compute, "kernel by kernel"],
                fused=known[memory, compute, "fused"],
                log=log,
            )
            for compute, log in zip(SHARES, logs, strict=True)
        ]
        for memory, (folder, logs) in zip(MEMORIES, LOGS.items(), strict=True)
    ]


def stacked_memory(progress: Progress) -> Figure:
    """Return Figure 22: throughput over the share of compute units, for three memories."""
    known = {}
    for memory, compute, mode in itertools.product(MEMORIES, SHARES, MODES):
        progress(f"{memory}, {compute:.0%} compute, {mode}")
        known[memory, compute, mode] = found(
            mapped(stacked_memory_task(memory, compute, mode), RULES)
        )
    return stacked_memory_figure(known)


def _claims(sweeps: list[list[_Point]]) -> tuple[Row, ...]:
    best = [max(sweep, key=lambda point: point.rate).compute for sweep in sweeps]
    fused = [max(sweep, key=lambda point: point.fused_rate).compute for sweep in sweeps]
    words = ("2-D: little compute is best", "2.5-D: a balance is best", "3-D: much compute is best")
    claims = [
        statement("Fig. 22", f"{text}: ours at {100 * at:.0f} %", at in wanted, rules=RULES.name)
        for text, at, wanted in zip(words, best, PREFERRED, strict=True)
    ]
    claims += [
        statement("Fig. 22", "fused, the same shares are best",
                  [a == b for a, b in zip(best, fused, strict=True)], rules=RULES.name),
        statement("Fig. 22", "faster memory is never slower",
                  [fast.rate >= slow.rate for slower, faster in itertools.pairwise(sweeps)
                   for slow, fast in zip(slower, faster, strict=True)], rules=RULES.name),
    ]  # fmt: skip
    return tuple(claims)


def _series(sweeps: list[list[_Point]]) -> tuple[Series, ...]:
    series = []
    for colour, sweep in enumerate(sweeps):
        logged = [point for point in sweep if point.logged_rate is not None]
        series += [
            Series(name=sweep[0].memory, x=SHARES, y=tuple(p.rate for p in sweep), colour=colour),
            Series(name=f"{sweep[0].memory}, log", x=tuple(p.compute for p in logged),
                   y=tuple(p.logged_rate or 0.0 for p in logged), colour=colour, published=True),
        ]  # fmt: skip
    return tuple(series)


def stacked_memory_figure(known: Mapping[tuple[str, float, str], MappedPoint]) -> Figure:
    """Return Figure 22 from what came of every point: memory, share of compute, mode."""
    sweeps = _points(known)
    points = [point for sweep in sweeps for point in sweep]
    return figure(
        "stacked-memory",
        rows=tuple(
            (p.memory, 100 * p.compute, None if p.logged_rate is None else p.logged_rate / 1e12,
             p.rate / 1e12, p.fused_rate / 1e12, p.log, p.alone.utilization)
            for p in points
        ),
        claims=_claims(sweeps),
        points=published_points(
            "stacked-memory",
            (
                (f"{p.memory}, {100 * p.compute:.0f} % compute", p.log, p.alone.utilization,
                 p.alone.status, p.source)
                for p in points if p.log is not None
            ),
        ),
        charts=(
            LineChart(
                title="Throughput of a chip, kernel by kernel",
                x=Measure(label="units that compute", unit="%", worth=0.01,
                          ticks=tuple(100 * share for share in SHARES)),
                y=Measure(label="throughput", unit="TFLOP/s", worth=1e12),
                series=_series(sweeps),
            ),
        ),
    )  # fmt: skip
