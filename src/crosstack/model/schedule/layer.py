"""One layer as tasks: partitions one after the other, their terms on the resources of a chip.

What hides behind what is what resources allow: compute takes the units, memory traffic the memory,
collectives the links. A chip on which everything overlaps has all three apart; where only compute
and memory overlap, collectives wait for both; where nothing does, one resource does everything.
The host launches a partition of a temporal chip, once the one before is through, and then its
kernels begin, one after the other, each beside what it moves of main memory. The time of a
partition is then that of `crosstack.model.partition.partition_cost`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from crosstack.errors import require_quantity
from crosstack.machine.chip import Overlap
from crosstack.model.schedule.events import Resource, TaskGraph, TaskGraphBuilder

TERMS = ("compute", "memory", "network", "launch")
_APART = {"compute": Resource.UNITS, "memory": Resource.MEMORY, "network": Resource.LINKS}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelRun:
    """What a kernel takes of a chip that runs one at a time. [s]

    ``reduction`` adds up a split K once the product is through; ``memory`` has its latency.
    ``again``: whether the backward pass computes it another time.
    """

    name: str
    compute: float
    memory: float
    reduction: float = 0.0
    again: bool = False

    @property
    def bound_by(self) -> str:
        """The longer of ``compute`` and ``memory``."""
        return "memory" if self.memory > self.compute + self.reduction else "compute"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTimes:
    """How long a partition takes of each resource. [s]

    ``kernels`` are those of a chip that runs them one after the other, each time that they run;
    ``compute`` and ``memory`` are then their sums.
    """

    compute: float
    memory: float
    network: float
    launch: float = 0.0
    kernels: tuple[KernelRun, ...] = ()

    def __post_init__(self) -> None:
        """Check every time."""
        for term in TERMS:
            require_quantity(term, getattr(self, term), "s")


def layer_graph(partitions: Sequence[PartitionTimes], overlap: Overlap) -> TaskGraph:
    """Return tasks of every partition in order, of the kinds `TERMS`, and one that ends it.

    A partition that is not launched has no task on the host. Tasks of a kernel have its name.
    """
    build = TaskGraphBuilder()
    before: list[int] = []
    for number, times in enumerate(partitions):
        add = _Adder(build, f"partition {number}", overlap)
        tasks = add.kernels(times, before) if times.kernels else add.whole(times, before)
        tasks = [*tasks, add.network(times, before, tasks)]
        before = [build.add(f"partition {number}", after=sorted(tasks), kind="end")]
    return build.build()


@dataclass(frozen=True, slots=True)
class _Adder:
    """Adds the tasks of one partition."""

    build: TaskGraphBuilder
    name: str
    overlap: Overlap

    def task(self, term: str, time: float, after: Sequence[int], kernel: str = "") -> int:
        """Add what one term takes of its resource."""
        resource: str = "chip" if self.overlap is Overlap.NONE else _APART[term]
        name = ", ".join(filter(None, (self.name, kernel, term)))
        return self.build.add(name, time, resource=resource, after=after, kind=term)

    def network(self, times: PartitionTimes, before: list[int], tasks: list[int]) -> int:
        """Add collectives, beside the ``tasks`` of the chip or after them."""
        match self.overlap:
            case Overlap.ALL:
                waits = before
            case Overlap.COMPUTE_MEMORY | Overlap.NONE:
                waits = tasks
            case _:
                assert_never(self.overlap)
        return self.task("network", times.network, waits)

    def launched(self, time: float, before: list[int]) -> list[int]:
        """Return what a partition, or what runs again of it, waits for."""
        if not time:
            return before
        name = f"{self.name}, launch"
        return [self.build.add(name, time, resource=Resource.HOST, after=before, kind="launch")]

    def whole(self, times: PartitionTimes, before: list[int]) -> list[int]:
        """Add all of the kernels' work and all of their memory traffic."""
        ready = self.launched(times.launch, before)
        memory = self.task("memory", times.memory, ready)
        after = [memory] if self.overlap is Overlap.NONE else ready
        return [memory, self.task("compute", times.compute, after)]

    def kernels(self, times: PartitionTimes, before: list[int]) -> list[int]:
        """Add kernel after kernel; those that run again are launched again."""
        runs = [[k for k in times.kernels if k.again is again] for again in (False, True)]
        runs, ready = [run for run in runs if run], before
        for run in runs:
            ready = self.launched(times.launch / len(runs), ready)
            for kernel in run:
                memory = self.task("memory", kernel.memory, ready, kernel.name)
                after = [memory] if self.overlap is Overlap.NONE else ready
                ready = [memory, self.task("compute", kernel.compute, after, kernel.name)]
                if kernel.reduction:
                    ready = [self.task("compute", kernel.reduction, ready, kernel.name)]
        return ready
