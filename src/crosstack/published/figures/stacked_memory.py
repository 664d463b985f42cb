"""Figure 22: how much of a chip should be compute, by its memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

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
Rates = dict[tuple[str, float], float]  # by memory and share
# The compute share that the paper prefers: low, middle, high.
PREFERRED = ((0.2, 0.35), (0.35, 0.5, 0.65), (0.65, 0.8))


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


def stacked_memory(progress: Progress) -> Figure:
    """Return Figure 22: throughput over the share of compute units, for three memories."""
    known = {}
    for memory, compute, mode in itertools.product(MEMORIES, SHARES, MODES):
        progress(f"{memory}, {compute:.0%} compute, {mode}")
        known[memory, compute, mode] = found(
            mapped(stacked_memory_task(memory, compute, mode), RULES)
        )
    return stacked_memory_figure(known)


def stacked_memory_figure(known: Mapping[tuple[str, float, str], MappedPoint]) -> Figure:
    """Return Figure 22 from what came of every point: memory, share of compute, mode."""
    chips = list(itertools.product(MEMORIES, SHARES))
    peaks = {
        each: stacked_memory_task(*each, MODES[0]).system.chip.peak_throughput for each in chips
    }
    alone = {each: known[*each, MODES[0]] for each in chips}
    logs = dict(zip(chips, itertools.chain(*LOGS.values()), strict=True))
    logged = {each: log * peaks[each] for each, log in logs.items() if log is not None}
    rates, fused = (
        {each: known[*each, mode].utilization * peaks[each] for each in chips} for mode in MODES
    )
    series = []
    for colour, memory in enumerate(MEMORIES):
        found = [share for share in SHARES if (memory, share) in logged]
        series += [
            Series(name=memory, x=SHARES, y=tuple(rates[memory, x] for x in SHARES), colour=colour),
            Series(name=f"{memory}, log", x=tuple(found),
                   y=tuple(logged[memory, x] for x in found), colour=colour, published=True),
        ]  # fmt: skip
    folders = dict(zip(MEMORIES, LOGS, strict=True))
    tera = 1e12
    logged_tera = {each: rate / tera for each, rate in logged.items()}
    return figure(
        "stacked-memory",
        rows=tuple(
            (memory, 100 * share, logged_tera.get((memory, share)), rates[memory, share] / tera,
             fused[memory, share] / tera, logs[memory, share], alone[memory, share].utilization)
            for memory, share in chips
        ),
        claims=_claims(rates, fused),
        points=published_points(
            "stacked-memory",
            (
                (f"{memory}, {100 * share:.0f} % compute", log,
                 alone[memory, share].utilization, alone[memory, share].status,
                 f"LLM/3d_memory/{folders[memory]}/{share:g}")
                for (memory, share), log in logs.items() if log is not None
            ),
        ),
        charts=(
            LineChart(
                title="Throughput of a chip, kernel by kernel",
                x=Measure(label="units that compute", unit="%", worth=0.01,
                          ticks=tuple(100 * share for share in SHARES)),
                y=Measure(label="throughput", unit="TFLOP/s", worth=tera),
                series=tuple(series),
            ),
        ),
    )  # fmt: skip


def _claims(rates: Rates, fused: Rates) -> tuple[Row, ...]:
    """Return what the paper says without a number, of throughputs by memory and share. [FLOP/s]"""
    best, best_fused = _best(rates), _best(fused)
    words = ("2-D: little compute is best", "2.5-D: a balance is best", "3-D: much compute is best")
    claims = [
        statement("Fig. 22", f"{text}: ours at {100 * at:.0f} %", at in wanted, rules=RULES.name)
        for text, at, wanted in zip(words, best, PREFERRED, strict=True)
    ]
    claims += [
        statement("Fig. 22", "fused, the same shares are best",
                  [a == b for a, b in zip(best, best_fused, strict=True)], rules=RULES.name),
        statement("Fig. 22", "faster memory is never slower",
                  [rates[fast, share] >= rates[slow, share]
                   for slow, fast in itertools.pairwise(MEMORIES) for share in SHARES],
                  rules=RULES.name),
    ]  # fmt: skip
    return tuple(claims)


def _best(rates: Rates) -> list[float]:
    """Return the share of the greatest throughput, by memory. [1]"""
    return [max(SHARES, key=lambda share: rates[memory, share]) for memory in MEMORIES]
