"""How long do a placement, a predicted step and its timeline take?

Every run searches the tilings of its products anew; equal products of one run are searched once.

Usage: python benchmarks/steps.py
"""

from __future__ import annotations

from timing import measure, print_machine

from crosstack.published.deepflow.distributed import Distributed
from crosstack.published.deepflow.paper_lstm import lstm_step
from crosstack.published.deepflow.ranks import peers_of
from crosstack.evaluate.transformer_step import transformer_step
from crosstack.io.steps import step_named
from crosstack.machine.chip import Chip, Link
from crosstack.machine.compute import Compute
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.machine.packages import system_of_packages
from crosstack.machine.topology import Grid
from crosstack.mapping.placement import place
from crosstack.mapping.strategy import NESTED, parse_strategy
from crosstack.model.kernels.roofline import Roofline
from crosstack.model.schedule.events import TaskGraph, TaskGraphBuilder, simulate

CHIP = Chip(
    compute=Compute(n_units=432, n_multiprocessors=108, work_per_cycle=512, frequency=1.41e9),
    levels=(
        MemoryLevel(name="registers", scope=Scope.MULTIPROCESSOR, capacity=28e6, bandwidth=1.3e14),
        MemoryLevel(name="L1", scope=Scope.MULTIPROCESSOR, capacity=21e6, bandwidth=1.9e13),
        MemoryLevel(name="L2", scope=Scope.CHIP, capacity=4e7, bandwidth=7e12),
    ),
    memories=(MemoryLevel(name="DRAM", scope=Scope.CHIP, capacity=80e9, bandwidth=2e12),),
    intra=Link(n_links=12, bandwidth=3e11, latency=1e-6),
    launch_overhead=5e-6,
)


def chips(text: str) -> Distributed:
    """Return the chips of a strategy, in one package."""
    strategy = parse_strategy(text)
    system = system_of_packages(CHIP, chips_per_package=strategy.n_chips)
    links = peers_of(strategy, system, NESTED)
    return Distributed(strategy=strategy, times=Roofline().times(CHIP), links=links)


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
    lstm, gpt = step_named("lstm-lm-40k"), step_named("gpt3-175b")
    measure("LSTM step, RC-2-2-d2-p4", lambda: lstm_step(lstm, chips("RC-2-2-d2-p4")))
    measure("transformer step, GPT-3 175B, RC-1-8-d1-p8",
           lambda: transformer_step(gpt, chips("RC-1-8-d1-p8")))  # fmt: skip
    step = transformer_step(gpt, chips("RC-1-8-d1-p8"))
    measure("its timeline, every operation", step.timeline)
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
