"""A time that no way of sharing out a budget beats: what prunes choices before they are searched.

Every component gets all that is free at once, leaks nothing, and every product runs at the roofline
of main memory, each operand moved once. Nothing that a real share buys is better than what all of
it buys, so no design is faster.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosstack.evaluate.predict import least_step, predict
from crosstack.explore.budget_space import CLASSES
from crosstack.explore.design import DesignProblem
from crosstack.machine.chip import Chip
from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.generated import chip_at
from crosstack.machine.generate.generator import generate_chips
from crosstack.model.kernels.clock import ChipTimes, KernelClock
from crosstack.model.schedule.events import FREE, TaskGraph, simulate
from crosstack.workload.dtype import Dtype

__all__ = ["IdealTimes", "ideal_chip", "shortest_makespan", "time_bound"]


class IdealTimes(ChipTimes):
    """Kernel times that no tiling on a chip beats; see `KernelTimes`."""

    def product(self, m: float, k: float, n: float, batch: float = 1.0) -> float:
        """Time that no tiling beats. [s]"""
        return self.clock.least(self.chip, self.dtype, m, k, n, batch)


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealClock:
    """A kernel clock by which products take what no tiling beats."""

    clock: KernelClock

    def __getattr__(self, name: str) -> Any:
        """Return everything else as the clock has it."""
        return getattr(object.__getattribute__(self, "clock"), name)

    def times(self, chip: Chip, dtype: Dtype = Dtype.BF16) -> IdealTimes:
        """Return the times of a chip."""
        return IdealTimes(chip, self.clock, dtype)


def ideal_chip(problem: DesignProblem) -> Chip:
    """Return a chip each of whose components has all that is free to itself."""
    b, space = problem.free.budget, problem.free
    low = high = float(np.asarray(b.chip_area))
    if space.chip_area is not None:
        low, high = space.chip_area.low, space.chip_area.high
    shares = {}
    for kind in CLASSES:
        own, free = space.shares(kind), space.free(kind)
        left = 1.0 - sum(share for name, share in own.items() if name in space.held)
        shares[kind] = {name: left if name in free else share for name, share in own.items()}
    template = space.template
    tight = replace(
        template,
        srams=tuple(
            replace(part, technology=replace(part.technology, static_power_per_bit=0.0))
            for part in template.srams
        ),
        dram=replace(
            template.dram,
            technology=replace(template.dram.technology, static_power_per_bit=0.0),
        ),
    )
    budget = Budget(
        # As much beside the smallest chip as there is, with the edge and area of the largest.
        package_area=np.asarray(b.package_area) + high - low,
        chip_area=high,
        power=b.power,
        areas={name: share * high for name, share in shares["area"].items()},
        powers={
            name: share * float(np.asarray(b.power)) for name, share in shares["power"].items()
        },
        edges=shares["edge"],
    )
    plain = problem.rules.chips.unchecked()
    return chip_at(generate_chips(tight, budget, plain), ()).chip


def time_bound(problem: DesignProblem, chip: Chip | None = None) -> float:
    """Return a time that no design of a problem beats. [s]

    Parameters
    ----------
    chip : Chip or None
        The `ideal_chip` of the problem, where it is at hand.

    Raises
    ------
    InfeasibleError
        If the step does not fit whatever the chip is.
    InputError
        If the strategy cannot split the workload, or a link is missing.
    """
    chip = chip or ideal_chip(problem)
    system, rules = problem.system(chip), problem.rules
    dtype = problem.free.template.dtype
    if rules.step is predict:
        return least_step(problem.workload, problem.strategy, system, dtype, rules)
    clock: Any = IdealClock(clock=rules.clock.kernels)
    found = problem.step(system, replace(rules, clock=replace(rules.clock, kernels=clock)))
    if not found.scheduled:  # sums and maxima of times, in an order that does not change
        return found.time
    # A list schedule may end later though every task is shorter, so its makespan bounds nothing.
    return sum(shortest_makespan(timeline.graph) for timeline in found.timelines())


def shortest_makespan(graph: TaskGraph) -> float:
    """Return the longer of the busiest resource and the longest path: no schedule is shorter. [s]

    What a resource of several lanes does is spread over them.
    """
    durations = np.asarray(graph.durations, dtype=float)
    resources = np.asarray(graph.resources, dtype=int)
    placed = resources != FREE
    names = len(graph.resource_names)
    load = np.bincount(resources[placed], weights=durations[placed], minlength=names)
    load = load / np.asarray(graph.lanes or [1] * names)
    path = simulate(replace(graph, resources=(FREE,) * len(graph))).makespan
    return float(max(np.max(load, initial=0.0), path))
