"""One layer as tasks: partitions one after the other, their terms on the resources of a chip.

What hides behind what is what resources allow: compute takes the units, memory traffic the memory,
collectives the links. A chip on which everything overlaps has all three apart; where only compute
and memory overlap, collectives wait for both; where nothing does, one resource does everything.
The host launches a partition of a temporal chip, once the one before is through, and then its
kernels begin. The time of a partition is then that of `crosstack.model.partition.combine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from crosstack.errors import require_quantity
from crosstack.machine.chip import Overlap
from crosstack.model.schedule.events import Resource, TaskGraph, TaskGraphBuilder

__all__ = ["TERMS", "PartitionTimes", "layer_graph"]

TERMS = ("compute", "memory", "network", "launch")
_APART = {"compute": Resource.UNITS, "memory": Resource.MEMORY, "network": Resource.LINKS}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTimes:
    """How long a partition takes of each resource. [s]"""

    compute: float
    memory: float
    network: float
    launch: float = 0.0

    def __post_init__(self) -> None:
        """Check every time."""
        for term in TERMS:
            require_quantity(term, getattr(self, term), "s")


def layer_graph(partitions: Sequence[PartitionTimes], overlap: Overlap) -> TaskGraph:
    """Return tasks of every partition, of the kinds `TERMS`, and one that ends it.

    A partition that is not launched has no task on the host.

    Parameters
    ----------
    partitions : sequence of PartitionTimes
        In the order they run.
    overlap : Overlap
        What the chip does at the same time.
    """
    build = TaskGraphBuilder()
    before: list[int] = []
    for number, times in enumerate(partitions):
        ready, tasks = before, dict[str, int]()
        if times.launch:
            name = f"partition {number}, launch"
            host = Resource.HOST
            ready = [build.add(name, times.launch, resource=host, after=before, kind="launch")]
        for term in ("memory", "compute", "network"):
            resource: str = _APART[term]
            match overlap:
                case Overlap.ALL:
                    waits = before if term == "network" else ready
                case Overlap.COMPUTE_MEMORY:
                    waits = list(tasks.values()) if term == "network" else ready
                case Overlap.NONE:
                    resource, waits = "chip", list(tasks.values())[-1:] or ready
                case _:
                    assert_never(overlap)
            tasks[term] = build.add(
                f"partition {number}, {term}",
                getattr(times, term),
                resource=resource,
                after=waits,
                kind=term,
            )
        before = [build.add(f"partition {number}", after=sorted(tasks.values()), kind="end")]
    return build.build()
