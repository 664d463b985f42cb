"""One layer as tasks: partitions one after the other, their terms on the resources of a chip.

What hides behind what is what resources allow: compute takes the units, memory traffic the memory,
collectives the links. A chip on which everything overlaps has all three apart; where only compute
and memory overlap, collectives wait for both; where nothing does, one resource does everything.
The time of a partition is then that of `crosstack.model.partition.combine`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from crosstack.errors import require_quantity
from crosstack.machine.chip import Overlap
from crosstack.model.schedule.events import TaskGraph, TaskGraphBuilder

__all__ = ["TERMS", "PartitionTimes", "layer_graph"]

TERMS = ("compute", "memory", "network")
_APART = {"compute": "units", "memory": "memory", "network": "links"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTimes:
    """How long a partition takes of each resource. [s]"""

    compute: float
    memory: float
    network: float

    def __post_init__(self) -> None:
        """Check every time."""
        for term in TERMS:
            require_quantity(term, getattr(self, term), "s")


def layer_graph(partitions: Sequence[PartitionTimes], overlap: Overlap) -> TaskGraph:
    """Return three tasks a partition, of the kinds `TERMS`, and one that ends it.

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
        tasks: dict[str, int] = {}
        for term in ("memory", "compute", "network"):
            match overlap:
                case Overlap.ALL:
                    resource, waits = _APART[term], before
                case Overlap.COMPUTE_MEMORY:
                    resource = _APART[term]
                    waits = list(tasks.values()) if term == "network" else before
                case Overlap.NONE:
                    resource, waits = "chip", list(tasks.values())[-1:] or before
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
