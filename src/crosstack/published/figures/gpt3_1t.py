"""GPT-3 1T: how many mappings it has, and Figures 7 and 8."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any

from crosstack.evaluate.plan import Plan
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.mapping_space import MappingSpace, mapping_space
from crosstack.published.case import Progress
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import (
    TEXTS,
    Figure,
    figure,
    mapped,
    published_points,
    status,
)
from crosstack.workload.kernels import Direction

DECISIONS = ("network", "tiles", "sharding", "partitions", "cores")
Degrees = tuple[int, int, int]
# Work of an iteration [FLOP] and peak of all chips [FLOP/s]: a time follows from a utilization.
WORK, PEAK = 3.85072240461978e19, 4096 * 311869.4326171875e9


# ---------------------------------------------------------------- how many mappings there are


def _of(space: MappingSpace, decision: str) -> float:
    return next(f.digits for f in space.factors if f.decision == decision)


def mapping_spaces(progress: Progress) -> Figure:
    """Return the size of the space of GPT-3 1T on 1,024 SN30, decision by decision."""
    progress("counting")
    given = published_task("sn30")
    # Every decision open, cores among them.
    network = tuple(replace(d, size=None, parallelism=None) for d in given.system.network)
    chip = given.system.chip.with_compute(utilization=None)
    system = replace(given.system, chip=chip, network=network)
    free = replace(given, system=system, constraints=Constraints())
    cases = {
        "everything free": free,
        "six partitions": replace(free, constraints=Constraints(max_partitions=6)),
        "kernel by kernel": replace(free, constraints=Constraints(kernel_by_kernel=True)),
        "as published": given,
    }
    spaces = {name: mapping_space(task, "dfmodel-readme") for name, task in cases.items()}
    largest = spaces["everything free"]
    # The published formulation declares any lanes and any stages up to all cores for every kernel;
    # a product above the number of cores fits no chip.
    cores = len(free.workload.graph.kernels) * 2 * math.log10(chip.compute.n_units)
    return figure(
        "mapping-space",
        rows=[
            (name, *(_of(space, d) for d in DECISIONS), space.digits, space.ordered_digits)
            for name, space in spaces.items()
        ],
        claims={"exponent": largest.digits},
        as_written=largest.digits - _of(largest, "cores") + cores,
    )


# ---------------------------------------------------------------- Figure 7


def domain_sweep(progress: Progress) -> Figure:
    """Return Figure 7: GPT-3 1T on 16,384 H100, domains of 1 to 256."""
    rows, points, logs = [], [], TEXTS["figures"]["rail-only"]["logs"]
    for size, log in logs:
        progress(f"domains of {size}")
        answer = mapped(published_task("rail_only", domain_size=size), "dfmodel-e4")
        time, use = answer.evaluation.time, answer.evaluation.utilization
        rows.append((float(size), time * use / log, time, log, use))
        source = f"LLM/Compare_w_existing/rail_only/16384/{size}"
        points.append((f"domains of {size}", log, use, status(answer), source))
    falling = [b < a for (_, a), (_, b) in itertools.pairwise(logs)]
    return figure(
        "rail-only",
        rows=rows,
        claims={"never slower": [b[2] <= a[2] * (1 + 1e-9) for a, b in itertools.pairwise(rows)]},
        points=published_points("rail-only", points),
        slower=sum(falling),
        steps=len(falling),
    )


# ---------------------------------------------------------------- Figure 8


def _name(degrees: Degrees) -> str:
    return "TP{} PP{} DP{}".format(*degrees)


def _task(degrees: Degrees) -> Task:
    links = zip(degrees, (150.0, 25.0, 25.0), ("tensor", "pipeline", "data"), strict=True)
    network = [("switch", size, speed, use) for size, speed, use in links if size > 1]
    return published_task("a100", network=network, sharding="logged")


def _periodic(answer: Plan) -> set[str]:
    """Return the kernels whose communication is that of gradients, once an iteration."""
    kernels = answer.task.workload.graph.kernels
    return {k.name for k in kernels if any(c.periodic for c in k.communications)}


def _parts(answer: Plan) -> tuple[float, ...]:
    """Return what an iteration is made of, in the order of the figure's columns. [s]

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
    """Return Figure 8: tensor, pipeline and data parallelism on 4,096 A100, each held once."""
    answers: dict[Degrees, Plan] = {}
    rows, points, sweeps = [], [], TEXTS["figures"]["parallelism-sweep"]["logs"]
    for folder, logs in sweeps.items():
        for *given, log in logs:
            degrees: Degrees = given[0], given[1], given[2]
            if degrees in answers:
                continue
            progress(_name(degrees))
            answer = answers[degrees] = mapped(_task(degrees), "dfmodel-e4+separate")
            logged = log["time"] if "time" in log else WORK / (log["utilization"] * PEAK)
            time = answer.evaluation.time
            rows.append((_name(degrees), logged, time, *_parts(answer)))
            place = f"LLM/Compare_w_existing/Calculon/{folder}/" + "_".join(map(str, degrees))
            points.append((_name(degrees), logged, time, status(answer), place))
    middle = answers[8, 16, 32]
    gradients = _periodic(middle)
    reduces = sum(k.network_time > 0 and k.name not in gradients for k in middle.evaluation.kernels)
    held: Any = {f: [_name((a, b, c)) for a, b, c, _ in logs] for f, logs in sweeps.items()}
    return figure(
        "parallelism-sweep",
        rows=rows,
        claims={"all-reduces": float(reduces)},
        points=published_points("parallelism-sweep", points),
        **held,
    )
