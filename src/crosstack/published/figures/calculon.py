"""Figure 8: tensor, pipeline and data parallelism of GPT-3 1T on 4,096 A100."""

from __future__ import annotations

import math

from crosstack.charts import BarChart, Bars, Measure
from crosstack.evaluate.plan import Plan
from crosstack.mapping.mapping import Task
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    Progress,
    figure,
    mapped,
    published_points,
    status,
)
from crosstack.workload.kernels import Direction

RULES = "dfmodel-e4+separate"
Degrees = tuple[int, int, int]
# Work of an iteration [FLOP] and peak of all chips [FLOP/s]: a time follows from a utilization.
WORK, PEAK = 3.85072240461978e19, 4096 * 311869.4326171875e9
SWEEPS: tuple[tuple[str, tuple[tuple[Degrees, float], ...]], ...] = tuple(
    (
        folder,
        tuple(
            ((tp, pp, dp), log["time"] if "time" in log else WORK / (log["utilization"] * PEAK))
            for tp, pp, dp, log in logs
        ),
    )
    for folder, logs in TEXTS["figures"]["parallelism-sweep"]["logs"].items()
)
TITLES = {
    "fix_DP": "32 data-parallel groups",
    "fix_PP": "32 pipeline stages",
    "fix_TP": "8 tensor-parallel chips",
}
PARTS = ("forward", "backward", "tensor comm.", "gradients", "bubble", "between stages")


def _task(degrees: Degrees) -> Task:
    links = zip(degrees, (150.0, 25.0, 25.0), ("tensor", "pipeline", "data"), strict=True)
    network = [("switch", size, speed, use) for size, speed, use in links if size > 1]
    return published_task("a100", network=network, sharding="logged")


def _periodic(answer: Plan) -> set[str]:
    """Return the kernels whose communication is that of gradients, once an iteration."""
    kernels = answer.task.workload.graph.kernels
    return {k.name for k in kernels if any(c.periodic for c in k.communications)}


def _parts(answer: Plan) -> tuple[float, ...]:
    """Return what an iteration is made of, in the order of `PARTS`. [s]

    Partitions are single kernels and nothing overlaps, so their terms add up.
    """
    e, graph = answer.evaluation, answer.task.workload.graph
    backward = {k.name for k in graph.kernels if k.direction is Direction.BACKWARD}
    periodic = _periodic(answer)
    busy = [0.0, 0.0, 0.0, 0.0]
    for p in e.partitions:
        (name,) = p.kernels
        busy[name in backward] += p.compute_time + p.memory_time
        busy[3 if name in periodic else 2] += p.network_time
    scale = e.layers_per_stage * e.n_microbatches
    bubble = math.fsum(busy) * scale * (e.bubble_factor - 1)
    return (*(part * scale for part in busy), bubble, e.stage_transfer_time)


def parallelism_sweep(progress: Progress) -> Figure:
    """Return Figure 8: three sweeps, each with one of the degrees held."""
    answers: dict[Degrees, Plan] = {}
    logs: dict[Degrees, float] = {}
    folders: dict[Degrees, str] = {}
    for folder, sweep in SWEEPS:
        for degrees, seconds in sweep:
            if degrees in answers:
                continue
            tensor, pipeline, data = degrees
            progress(f"TP{tensor} PP{pipeline} DP{data}")
            answers[degrees] = mapped(_task(degrees), RULES)
            logs[degrees], folders[degrees] = seconds, folder
    parts = {degrees: _parts(answer) for degrees, answer in answers.items()}
    names = {degrees: "TP{} PP{} DP{}".format(*degrees) for degrees in answers}
    middle = answers[8, 16, 32]
    gradients = _periodic(middle)
    reduces = sum(k.network_time > 0 and k.name not in gradients for k in middle.evaluation.kernels)
    place = "LLM/Compare_w_existing/Calculon"
    points = published_points(
        "parallelism-sweep",
        (
            (names[degrees], logs[degrees], answer.evaluation.time, status(answer),
             f"{place}/{folders[degrees]}/" + "_".join(map(str, degrees)))
            for degrees, answer in answers.items()
        ),
    )  # fmt: skip
    charts = tuple(
        BarChart(
            title=TITLES[folder],
            y=Measure(label="iteration", unit="s"),
            groups=tuple(names[degrees] for degrees, _ in sweep),
            bars=tuple(
                Bars(name=part, values=tuple(parts[degrees][k] for degrees, _ in sweep), colour=k)
                for k, part in enumerate(PARTS)
            ),
            stacked=True,
        )
        for folder, sweep in SWEEPS
    )
    return figure(
        "parallelism-sweep",
        rows=tuple(
            (names[degrees], logs[degrees], answer.evaluation.time, *parts[degrees])
            for degrees, answer in answers.items()
        ),
        claims={"all-reduces": float(reduces)},
        points=points,
        charts=charts,
    )
