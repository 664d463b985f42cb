"""Table VI and Figure 18: four mappings of GPT-3 175B on eight SN10, and their roofline."""

from __future__ import annotations

import itertools
import math

from crosstack.charts import LineChart, Mark, Measure, Series
from crosstack.evaluate.plan import Plan
from crosstack.mapping.mapping import Task
from crosstack.published.case import Progress
from crosstack.published.dfmodel.runs import published_mapping, published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    Ours,
    figure,
    mapped,
    published_points,
    status,
)

RULES = "dfmodel-e4"
ONE_TB = 1099511600000.0  # of memory, as the logs have it [B]
NAMES = ("kernel by kernel", "vendor's partitions", "DFModel's partitions", "4 x 2 torus")
SPEEDUPS = (1.0, 4.05, 4.8, 6.13)  # Table VI, accumulated


def _published_mappings(progress: Progress, memory: float = 100.0) -> list[Plan]:
    """Return the four mappings as published; the first and last are found, and are the same.

    ``memory`` is the bandwidth of a chip's. [GB/s]
    """
    progress(f"four mappings, {memory:.0f} GB/s of memory")

    def at(name: str) -> Task:
        return published_task(name, memory=(memory, ONE_TB))

    vendor, own = at("sn10_vendor"), at("sn10_own")
    return [
        mapped(at("sn10_unfused"), RULES),
        mapped(vendor, RULES, published_mapping("vendor", vendor)),
        mapped(own, RULES, published_mapping("own", own)),
        mapped(at("sn10_torus"), RULES),
    ]


def table_6(progress: Progress) -> Figure:
    """Return Table VI: speedups over kernel by kernel."""
    published = _published_mappings(progress)
    progress("best mappings")
    best = [
        published[0],
        mapped(published_task("sn10_vendor"), RULES),
        mapped(published_task("sn10"), RULES),
        published[3],
    ]
    at_200 = _published_mappings(progress, 200.0)
    runs = TEXTS["figures"]["table6"]["logs"]
    logged, times, least, other = (
        [time for _, time in runs],
        *([a.evaluation.time for a in answers] for answers in (published, best, at_200)),
    )
    logs, gains, most, said = ([t[0] / time for time in t] for t in (logged, times, least, other))
    points = [
        (NAMES[k], seconds, times[k], status(published[k], given=k in (1, 2)),
         f"LLM/dataflow_mapping/{log}")
        for k, (log, seconds) in enumerate(runs)
    ]  # fmt: skip
    claims: dict[str, Ours] = {
        "vendor": gains[1],
        "own": gains[2],
        "torus": gains[3],
        "own over vendor": times[1] / times[2],
        "torus over own": times[2] / times[3],
        "torus over vendor": times[1] / times[3],
    }
    return figure(
        "table6",
        rows=list(zip(NAMES, logged, times, SPEEDUPS, logs, gains, least, most, said, strict=True)),
        claims=claims,
        points=published_points("table6", points),
        said=said,
        logs=logs,
        most=most,
    )


def _intensities(answer: Plan) -> tuple[float, float, float]:
    """FLOP of a chip per byte of its memory and of its links [FLOP/B], and per second. [FLOP/s]"""
    e, system = answer.evaluation, answer.task.system
    achieved = e.utilization * system.chip.peak_throughput
    work = achieved * e.layer_time
    memory = math.fsum(p.memory_time for p in e.partitions) * system.chip.main_memory.speed
    network = math.fsum(p.network_time for p in e.partitions) * system.network[0].bandwidth
    return work / memory, work / network, achieved


def _bound(answer: Plan) -> str:
    """Return what the partitions are busy with longest."""
    parts = answer.evaluation.partitions
    terms = ("compute", "memory", "network")
    return max(terms, key=lambda term: math.fsum(getattr(p, f"{term}_time") for p in parts))


def roofline(progress: Progress) -> Figure:
    """Return Figure 18: the mappings under the roofs of compute, memory and network."""
    answers = _published_mappings(progress)
    system = answers[0].task.system
    peak = system.chip.peak_throughput
    measured = [_intensities(answer) for answer in answers]
    bounds = [_bound(answer) for answer in answers]
    low, high = 100.0, 100000.0
    series = []
    for name, bandwidth, colour in (
        ("memory, 100 GB/s", system.chip.main_memory.speed, 4),
        ("links, 25 GB/s", system.network[0].bandwidth, 5),
    ):
        ridge = peak / bandwidth
        x = (low, ridge, high) if ridge < high else (low, high)
        y = tuple(min(peak, intensity * bandwidth) for intensity in x)
        series.append(Series(name=f"roof of {name}", x=x, y=y, colour=colour, mark=Mark.NONE))
    series += [
        Series(name=f"{name}, {of}", x=(values[i],), y=(values[2],), colour=k, line=False,
               mark=mark)
        for k, (name, values) in enumerate(zip(NAMES, measured, strict=True))
        for i, of, mark in ((0, "memory", Mark.CIRCLE), (1, "network", Mark.SQUARE))
    ]  # fmt: skip
    chart = LineChart(
        title="Throughput of a chip under its roofs",
        x=Measure(label="operational intensity", unit="FLOP/B", log=True),
        y=Measure(label="throughput", unit="TFLOP/s", worth=1e12, log=True),
        series=tuple(series),
    )
    claims: dict[str, Ours] = {
        "memory": bounds[0] == "memory",
        "network": bounds[2] == "network",
        "compute": bounds[3] == "compute",
        "faster": [a[2] < b[2] for a, b in itertools.pairwise(measured)],
        "torus": measured[3][1] > measured[2][1],
    }
    return figure(
        "roofline",
        rows=[
            (name, m, n, achieved / 1e12, bound)
            for name, (m, n, achieved), bound in zip(NAMES, measured, bounds, strict=True)
        ],
        claims=claims,
        charts=(chart,),
    )
