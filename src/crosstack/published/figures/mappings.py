"""Table VI and Figure 18: four mappings of GPT-3 175B on eight SN10, and their roofline."""

from __future__ import annotations

import itertools
import math

from crosstack.charts import BarChart, Bars, LineChart, Mark, Measure, Series
from crosstack.evaluate.plan import Plan
from crosstack.mapping.mapping import Task
from crosstack.published.dfmodel.runs import published_mapping, published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    Progress,
    claim,
    figure,
    mapped,
    published_points,
    statement,
    status,
)

RULES = "dfmodel-e4"
ONE_TB = 1099511600000.0  # of memory, as the logs have it [B]
NAMES = ("kernel by kernel", "vendor's partitions", "DFModel's partitions", "4 x 2 torus")
LOGS = [(log, time) for log, time in TEXTS["figures"]["table6"]["logs"]]
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
    as_said = [answer.evaluation.time for answer in _published_mappings(progress, 200.0)]
    said = [as_said[0] / time for time in as_said]
    times = [answer.evaluation.time for answer in published]
    least = [answer.evaluation.time for answer in best]
    gains = [times[0] / time for time in times]
    most = [least[0] / time for time in least]
    logs = [LOGS[0][1] / time for _, time in LOGS]
    steps = ((1, 0, 4.05), (2, 1, 1.19), (3, 2, 1.28))
    claims = [
        claim("Table VI", f"speedup of {NAMES[k]}", SPEEDUPS[k], gains[k], rules=RULES,
              tolerance=0.03)
        for k in (1, 2, 3)
    ]  # fmt: skip
    claims += [
        claim("Table VI", f"{NAMES[a]} over {NAMES[b]}", paper, times[b] / times[a], rules=RULES,
              tolerance=0.03)
        for a, b, paper in (*steps[1:], (3, 1, 1.52))
    ]  # fmt: skip
    points = published_points(
        "table6",
        (
            (NAMES[k], seconds, times[k], status(published[k], given=k in (1, 2)),
             f"LLM/dataflow_mapping/{log}")
            for k, (log, seconds) in enumerate(LOGS)
        ),
    )  # fmt: skip
    rows = tuple(
        (NAMES[k], LOGS[k][1], times[k], SPEEDUPS[k], logs[k], gains[k], least[k], most[k], said[k])
        for k in range(4)
    )
    chart = BarChart(
        title="Speedup over kernel by kernel",
        y=Measure(label="speedup"),
        groups=NAMES,
        bars=(
            Bars(name="paper, Table VI", values=SPEEDUPS, colour=0, published=True),
            Bars(name="ours, the published mapping", values=tuple(gains), colour=0),
            Bars(name="ours, the best mapping", values=tuple(most), colour=2),
        ),
    )
    return figure(
        "table6",
        rows=rows,
        claims=tuple(claims),
        points=points,
        charts=(chart,),
        said=said,
        logs=logs,
        most=most,
    )  # fmt: skip


def _intensities(answer: Plan) -> tuple[float, float, float]:
    """FLOP of a chip per byte of its memory and of its links [FLOP/B], and per second. [FLOP/s]"""
    e, system = answer.evaluation, answer.task.system
    achieved = e.utilization * system.chip.peak_throughput
    work = achieved * e.layer_time
    memory = math.fsum(p.memory_time for p in e.partitions) * system.chip.main_memory.speed
    network = math.fsum(p.network_time for p in e.partitions) * system.network[0].bandwidth
    return work / memory, work / network, achieved


def _bound(answer: Plan) -> str:
    parts = answer.evaluation.partitions
    sums = {
        term: math.fsum(getattr(p, f"{term}_time") for p in parts)
        for term in ("compute", "memory", "network")
    }
    return max(sums, key=lambda term: sums[term])


def roofline(progress: Progress) -> Figure:
    """Return Figure 18: the mappings under the roofs of compute, memory and network."""
    answers = _published_mappings(progress)
    chip, system = answers[0].task.system.chip, answers[0].task.system
    measured = [_intensities(answer) for answer in answers]
    bounds = [_bound(answer) for answer in answers]
    low, high = 100.0, 100000.0
    roofs = []
    for name, bandwidth, colour in (
        ("memory, 100 GB/s", system.chip.main_memory.speed, 4),
        ("links, 25 GB/s", system.network[0].bandwidth, 5),
    ):
        ridge = chip.peak_throughput / bandwidth
        x = (low, ridge, high) if ridge < high else (low, high)
        y = tuple(min(chip.peak_throughput, intensity * bandwidth) for intensity in x)
        roofs.append(Series(name=f"roof of {name}", x=x, y=y, colour=colour, mark=Mark.NONE))
    dots = [
        Series(name=f"{name}, {of}", x=(values[i],), y=(values[2],), colour=k, line=False,
               mark=mark)
        for k, (name, values) in enumerate(zip(NAMES, measured, strict=True))
        for i, of, mark in ((0, "memory", Mark.CIRCLE), (1, "network", Mark.SQUARE))
    ]  # fmt: skip
    said = ("memory", None, "network", "compute")
    claims = [
        statement("Fig. 18", f"{NAMES[k]} is {word}-bound", bounds[k] == word, rules=RULES)
        for k, word in enumerate(said) if word
    ]  # fmt: skip
    rising = [a[2] < b[2] for a, b in itertools.pairwise(measured)]
    claims.append(
        statement("Fig. 18", "each mapping is faster than the one before",
                  rising, rules=RULES)
    )  # fmt: skip
    claims.append(
        statement("Fig. 18", "the torus has more FLOP per byte of its links than the ring",
                  measured[3][1] > measured[2][1], rules=RULES)
    )  # fmt: skip
    return figure(
        "roofline",
        rows=tuple(
            (name, m, n, achieved / 1e12, bound)
            for name, (m, n, achieved), bound in zip(NAMES, measured, bounds, strict=True)
        ),
        claims=tuple(claims),
        charts=(
            LineChart(
                title="Throughput of a chip under its roofs",
                x=Measure(label="operational intensity", unit="FLOP/B", log=True),
                y=Measure(label="throughput", unit="TFLOP/s", worth=1e12, log=True),
                series=(*roofs, *dots),
            ),
        ),
    )
