"""Figure 19: SRAM against memory bandwidth, fused against kernel by kernel."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from crosstack.mapping.mapping import Task
from crosstack.published.case import Progress
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    MappedPoint,
    Ours,
    figure,
    found,
    geometric_mean,
    mapped,
    published_points,
)

RULES = "dfmodel-e3b"  # the logs print one half of an all-reduce: 0.015 ns a byte over 50 GB/s
MIB = 2.0**20
SRAM, MEMORY = (150, 300, 500), (100, 300, 600)  # MiB, GB/s of the setups
MODES = ("fused", "kernel by kernel")
LOGS: dict[str, list[list[float]]] = TEXTS["figures"]["memory-sweep"]["logs"]


def memory_sweep_task(sram: int, memory: int, mode: str) -> Task:
    """Return one problem: SRAM of a chip [MiB], bandwidth of main memory [GB/s], one of `MODES`."""
    name = "sn10_torus_small" if mode == "fused" else "sn10_torus_small_unfused"
    chip = {"name": "SN10", "sram": sram * MIB}
    return published_task(name, chip=chip, memory=[memory, 1099511600000.0], sharding="forward")


def memory_sweep(progress: Progress) -> Figure:
    """Return Figure 19: nine memory systems, each mapped both ways."""
    known = {}
    for sram, memory, mode in itertools.product(SRAM, MEMORY, MODES):
        progress(f"{sram} MiB of SRAM, {memory} GB/s of memory, {mode}")
        known[sram, memory, mode] = found(mapped(memory_sweep_task(sram, memory, mode), RULES))
    return memory_sweep_figure(known)


def memory_sweep_figure(known: Mapping[tuple[int, int, str], MappedPoint]) -> Figure:
    """Return Figure 19 from what came of every point: SRAM [MiB], memory [GB/s], mode."""
    systems = list(itertools.product(SRAM, MEMORY))
    names = {system: "{} MiB, {} GB/s".format(*system) for system in systems}
    logs = {mode: dict(zip(systems, itertools.chain(*LOGS[mode]), strict=True)) for mode in MODES}
    ours = {mode: {each: known[*each, mode].utilization for each in systems} for mode in MODES}
    logged, gains = (
        [both["fused"][each] / both["kernel by kernel"][each] for each in systems]
        for both in (logs, ours)
    )
    fused, alone = (ours[mode] for mode in MODES)
    claims: dict[str, Ours] = {
        "never slower": [gain >= 1 for gain in gains],
        "sram": [
            fused[more, memory] >= fused[less, memory] * (1 - 1e-9)
            for less, more in itertools.pairwise(SRAM) for memory in MEMORY
        ],
        "bandwidth": [
            alone[sram, more] > alone[sram, less]
            for sram in SRAM for less, more in itertools.pairwise(MEMORY)
        ],
        "published": geometric_mean(logged),
        "ours": geometric_mean(gains),
    }  # fmt: skip
    places = [f"{sram}_sram_{memory}_dram" for sram, memory in itertools.product("sml", "sml")]
    points = [
        (f"{names[each]}, {mode}", logs[mode][each], ours[mode][each],
         known[*each, mode].status, f"LLM/sram_dram/{folder}/{place}")
        for mode, folder in zip(MODES, ("DF", "KBK"), strict=True)
        for each, place in zip(systems, places, strict=True)
    ]  # fmt: skip
    return figure(
        "memory-sweep",
        rows=[
            (names[each], *(of[mode][each] for mode in MODES for of in (logs, ours)), log, gain)
            for each, log, gain in zip(systems, logged, gains, strict=True)
        ],
        claims=claims,
        points=published_points("memory-sweep", points),
    )
