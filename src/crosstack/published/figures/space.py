"""How many mappings a large model has on a thousand accelerators."""

from __future__ import annotations

import math
from dataclasses import replace

from crosstack.charts import BarChart, Bars, Measure
from crosstack.mapping.mapping import Constraints, Task
from crosstack.mapping.mapping_space import MappingSpace, mapping_space
from crosstack.published.dfmodel.runs import published_task
from crosstack.published.figures.figure import Figure, Progress, figure

RULES = "dfmodel-readme"
DECISIONS = ("network", "tiles", "sharding", "partitions", "cores")


def _free() -> Task:
    """Return the README's example with every decision open, cores among them."""
    task = published_task("sn30")
    network = tuple(replace(d, size=None, parallelism=None) for d in task.system.network)
    chip = task.system.chip.with_compute(utilization=None)
    system = replace(task.system, chip=chip, network=network)
    return replace(task, system=system, constraints=Constraints())


def _as_written(task: Task) -> float:
    """Return the exponent where every kernel may have any lanes and any stages up to all cores.

    So the published formulation declares them; a product above the number of cores fits no chip.
    """
    space = mapping_space(task, RULES)
    kernels = task.workload.graph.kernels
    cores = len(kernels) * 2 * math.log10(task.system.chip.compute.n_units)
    return space.digits - _of(space, "cores") + cores


def _of(space: MappingSpace, decision: str) -> float:
    return next(f.digits for f in space.factors if f.decision == decision)


def mapping_spaces(progress: Progress) -> Figure:
    """Return the size of the space of GPT-3 1T on 1,024 SN30, decision by decision."""
    progress("counting")
    free = _free()
    cases = (
        ("everything free", free),
        ("six partitions", replace(free, constraints=Constraints(max_partitions=6))),
        ("kernel by kernel", replace(free, constraints=Constraints(kernel_by_kernel=True))),
        ("as published", published_task("sn30")),
    )
    spaces = [(name, mapping_space(task, RULES)) for name, task in cases]
    largest = spaces[0][1]
    return figure(
        "mapping-space",
        rows=tuple(
            (name, *(_of(space, d) for d in DECISIONS), space.digits, space.ordered_digits)
            for name, space in spaces
        ),
        claims={"exponent": largest.digits},
        charts=(
            BarChart(
                title="Decisions of a mapping",
                y=Measure(label="choices, exponent of 10"),
                groups=tuple(name for name, _ in spaces),
                bars=tuple(
                    Bars(name=d, values=tuple(_of(space, d) for _, space in spaces), colour=k)
                    for k, d in enumerate(DECISIONS)
                ),
                stacked=True,
            ),
        ),
        as_written=_as_written(free),
    )  # fmt: skip
