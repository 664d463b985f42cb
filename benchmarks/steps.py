"""How long do a placement, a predicted step and its timeline take?

What a step shares with the one before it, such as its graph, is made once.

Usage: python benchmarks/steps.py
"""

from __future__ import annotations

from timing import measure, print_machine

import crosstack
from crosstack.io import library
from crosstack.io.steps import job_named
from crosstack.machine.topology import Grid
from crosstack.mapping.placement import place
from crosstack.mapping.strategy import parse_strategy
from crosstack.model.schedule.events import TaskGraph, TaskGraphBuilder, simulate

STEPS = (
    ("gpt3-175b", "a100-dgx-80gb", 64, "tp=8,pp=8"),
    ("llama3-70b", "h100-dgx", 512, "tp=8,pp=4,dp=16"),
)


def chain(tasks: int) -> TaskGraph:
    """Return tasks on ten resources, each waiting for two before it."""
    build = TaskGraphBuilder()
    for i in range(tasks):
        after = [j for j in (i - 7, i - 13) if j >= 0]
        build.add("task", 1.0 + i % 3, resource=f"chip {i % 10}", after=after)
    return build.build()


def main() -> None:
    """Measure and print."""
    print_machine()
    for model, node, chips, parallel in STEPS:
        job, system = job_named(model), library.system_on(node, chips=chips)
        name = f"{job.model.name} under {parallel} on {chips} chips"
        measure(
            f"step of {name}", lambda j=job, s=system, p=parallel: crosstack.predict(j, s, p), 5
        )  # type: ignore[misc]
        found = crosstack.predict(job, system, parallel)
        measure(f"timeline of {name}", found.timelines, 3)
    graph = chain(100_000)
    measure("timeline of 100,000 tasks", lambda: simulate(graph), 5)
    for text, grid in (
        ("RC-4-2-d8-p1", Grid(package=(8, 8))),
        ("RC-8-4-d8-p2", Grid(package=(8, 8, 8), torus=True)),
        ("RC-8-8-d16-p4", Grid(package=(4, 4, 4), packages=(4, 4, 4), torus=True)),
    ):
        strategy = parse_strategy(text)
        name = f"placement of {text} on {'x'.join(str(s) for s in grid.shape)}, all orders"
        measure(name, lambda s=strategy, g=grid: place(s, g), 5)  # type: ignore[misc]


if __name__ == "__main__":
    main()
