"""Figure 22: how much of a chip should be compute, by its memory."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace

from crosstack.mapping.mapping import Task
from crosstack.model.rules import rules_named
from crosstack.published.case import Progress
from crosstack.published.dfmodel.machines import GB
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    MappedPoint,
    Ours,
    figure,
    found,
    mapped,
    published_points,
)

# The logs cut sequences into 11, 13, 23, 90 and 342 tiles, which do not divide 2,048.
RULES = rules_named("dfmodel-e5").changed(name="dfmodel-e5, any tiles", tiles_divide=False)
UNITS, UNIT_SRAM = 2080, 2.0**19  # compute or memory units of a chip; bytes of a memory unit
SHARES = (0.2, 0.35, 0.5, 0.65, 0.8)
# name: bandwidth [GB/s]
MEMORIES = {"2-D DDR, 100 GB/s": 100.0, "2.5-D HBM, 1 TB/s": 1024.0, "3-D, 100 TB/s": 1e5}
MODES = ("kernel by kernel", "fused")
LOGS: dict[str, list[float | None]] = TEXTS["figures"]["stacked-memory"]["logs"]
TERA = 1e12


def stacked_memory_task(memory: str, compute: float, mode: str) -> Task:
    """Return one problem: of `MEMORIES`, the share of units that compute [1], one of `MODES`.

    The other units are SRAM.
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
    rates, fused = (
        {each: known[*each, mode].utilization * peaks[each] for each in chips} for mode in MODES
    )
    folders = dict(zip(MEMORIES, LOGS, strict=True))
    points = [
        (f"{memory}, {100 * share:.0f} % compute", log, alone[memory, share].utilization,
         alone[memory, share].status, f"LLM/3d_memory/{folders[memory]}/{share:g}")
        for (memory, share), log in logs.items() if log is not None
    ]  # fmt: skip
    best, best_fused = (
        [max(SHARES, key=lambda share: of[memory, share]) for memory in MEMORIES]
        for of in (rates, fused)
    )
    claims: dict[str, Ours] = {
        "2-D": best[0] in (0.2, 0.35),
        "2.5-D": best[1] in (0.35, 0.5, 0.65),
        "3-D": best[2] in (0.65, 0.8),
        "fused": [a == b for a, b in zip(best, best_fused, strict=True)],
        "faster": [
            rates[fast, share] >= rates[slow, share]
            for slow, fast in itertools.pairwise(MEMORIES) for share in SHARES
        ],
    }  # fmt: skip
    return figure(
        "stacked-memory",
        rows=[
            (memory, 100 * share, None if log is None else log * peaks[memory, share] / TERA,
             rates[memory, share] / TERA, fused[memory, share] / TERA, log,
             alone[memory, share].utilization)
            for (memory, share), log in logs.items()
        ],
        claims=claims,
        points=published_points("stacked-memory", points),
        best=[100 * share for share in best],
    )  # fmt: skip
