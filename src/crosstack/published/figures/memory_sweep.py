"""Figure 19: SRAM against memory bandwidth, fused against kernel by kernel."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass

from crosstack.charts import BarChart, Bars, Measure
from crosstack.mapping.mapping import Task
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    MappedPoint,
    Ours,
    Progress,
    figure,
    found,
    mapped,
    published_points,
)

RULES = "dfmodel-e3b"  # the logs print one half of an all-reduce: 0.015 ns a byte over 50 GB/s
MIB = 2.0**20
SRAM, MEMORY = (150, 300, 500), (100, 300, 600)  # MiB, GB/s of the setups
MODES = ("fused", "kernel by kernel")
LOGS: dict[str, list[list[float]]] = TEXTS["figures"]["memory-sweep"]["logs"]


def _mean(ratios: list[float]) -> float:
    return math.exp(math.fsum(map(math.log, ratios)) / len(ratios))


def memory_sweep_task(sram: int, memory: int, mode: str) -> Task:
    """Return one problem of the figure.

    Parameters
    ----------
    sram : int
        Of a chip. [MiB]
    memory : int
        Bandwidth of main memory. [GB/s]
    mode : str
        Of `MODES`.
    """
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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Cell:
    """A memory system mapped both ways; a row of each is (how, folder, log [1], ours)."""

    sram: int
    memory: int
    place: str
    modes: tuple[tuple[str, str, float, MappedPoint], ...]

    @property
    def name(self) -> str:
        """What it is called."""
        return f"{self.sram} MiB, {self.memory} GB/s"

    @property
    def logged(self) -> tuple[float, ...]:
        """Utilization in the logs, fused and kernel by kernel. [1]"""
        return tuple(log for _, _, log, _ in self.modes)

    @property
    def ours(self) -> tuple[float, ...]:
        """Utilization of ours, fused and kernel by kernel. [1]"""
        return tuple(point.utilization for _, _, _, point in self.modes)


def _cells(known: Mapping[tuple[int, int, str], MappedPoint]) -> list[_Cell]:
    return [
        _Cell(
            sram=sram,
            memory=memory,
            place=f"{'sml'[i]}_sram_{'sml'[j]}_dram",
            modes=tuple(
                (mode, folder, LOGS[mode][i][j], known[sram, memory, mode])
                for mode, folder in zip(MODES, ("DF", "KBK"), strict=True)
            ),
        )
        for i, sram in enumerate(SRAM)
        for j, memory in enumerate(MEMORY)
    ]


def _gain(utilizations: tuple[float, ...]) -> float:
    fused, alone = utilizations
    return fused / alone


def _claims(cells: list[_Cell]) -> dict[str, Ours]:
    ours = {(cell.sram, cell.memory): cell.ours for cell in cells}
    more_sram = [
        ours[more, memory][0] >= ours[less, memory][0] * (1 - 1e-9)
        for less, more in itertools.pairwise(SRAM)
        for memory in MEMORY
    ]
    more_bandwidth = [
        ours[sram, more][1] > ours[sram, less][1]
        for sram in SRAM
        for less, more in itertools.pairwise(MEMORY)
    ]
    gains = [_gain(cell.ours) for cell in cells]
    logged = [_gain(cell.logged) for cell in cells]
    return {
        "never slower": [gain >= 1 for gain in gains],
        "sram": more_sram,
        "bandwidth": more_bandwidth,
        "published": _mean(logged),
        "ours": _mean(gains),
    }


def _chart(cells: list[_Cell], title: str, mode: int) -> BarChart:
    return BarChart(
        title=title,
        y=Measure(label="utilization", unit="%", worth=0.01),
        groups=tuple(f"{cell.sram} MiB {cell.memory} GB/s" for cell in cells),
        bars=(
            Bars(name="published log", values=tuple(cell.logged[mode] for cell in cells),
                 colour=mode, published=True),
            Bars(name="ours, proved best", values=tuple(cell.ours[mode] for cell in cells),
                 colour=mode),
        ),
    )  # fmt: skip


def memory_sweep_figure(known: Mapping[tuple[int, int, str], MappedPoint]) -> Figure:
    """Return Figure 19 from what came of every point: SRAM [MiB], memory [GB/s], mode."""
    cells = _cells(known)
    runs = [(cell, *cell.modes[mode]) for mode in range(len(MODES)) for cell in cells]
    return figure(
        "memory-sweep",
        rows=tuple(
            (cell.name, cell.logged[0], cell.ours[0], cell.logged[1], cell.ours[1],
             _gain(cell.logged), _gain(cell.ours))
            for cell in cells
        ),
        claims=_claims(cells),
        points=published_points(
            "memory-sweep",
            (
                (f"{cell.name}, {how}", log, point.utilization, point.status,
                 f"LLM/sram_dram/{folder}/{cell.place}")
                for cell, how, folder, log, point in runs
            ),
        ),
        charts=(
            _chart(cells, "Fused: as many partitions as serve", 0),
            _chart(cells, "Kernel by kernel", 1),
        ),
    )  # fmt: skip
