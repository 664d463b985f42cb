"""Links, rings and split products of the releases (``deepflow_code``).

A network without power still carries less than a byte a second, as its wires keep a frequency by
rounding. The part of an extent that each chip of a split has is rounded down, so that a remainder
is nobody's work; the gradients of RC have fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crosstack.errors import require_quantity
from crosstack.mapping.strategy import ParallelDimension, Strategy
from crosstack.model.collectives import Joint
from crosstack.model.collectives.group import axes_of
from crosstack.model.schedule.events import TaskGraph, Timeline
from crosstack.published.deepflow.distributed import LP, Distributed, Peers, no_link
from crosstack.published.deepflow.events import simulate
from crosstack.published.deepflow.release import Release
from crosstack.workload.kernels import Collective

NOTHING = 1e-200  # fewer bytes a second stand for no link at all [B/s]
HOST_BANDWIDTH = 12.4 * 2.0**30  # B/s


@dataclass(frozen=True, slots=True, kw_only=True)
class RingLink:
    """What a parallel dimension has between neighbours: ``bandwidth`` [B/s], ``latency`` [s].

    A bandwidth of 0 says that there is no link; sending anything is an error. ``direct``: every two
    chips have such a link, so that a chip sends to all others at once.
    """

    bandwidth: float
    latency: float = 0.0
    name: str = "link"
    direct: bool = False

    def __post_init__(self) -> None:
        """Check both."""
        require_quantity("bandwidth", self.bandwidth, "B/s")
        require_quantity("latency", self.latency, "s")

    def time(self, size: float) -> float:
        """Time of ``size`` bytes without the latency; an `InputError` without a link. [s]"""
        if self.bandwidth <= 0:
            raise no_link(self.name, size)
        return size / self.bandwidth


def links_of(
    strategy: Strategy, joined: Mapping[ParallelDimension, Peers], release: Release
) -> dict[ParallelDimension, RingLink]:
    """Return the link of every dimension, from whom it communicates with."""
    found = {}
    for dimension in ParallelDimension:
        peers, degree, shared = joined[dimension], strategy.degree(dimension), 1.0
        if release.shares_links_by_degree:
            shared = 2.0 if degree <= 4 else 5.0 if degree <= 8 else 4.0
        levels = [extent.dimension for extent in peers.group.extents]
        axes = [axis for extent in peers.group.extents for axis in axes_of(extent)]
        bandwidth = min((link.bandwidth for link in axes or levels), default=0.0)
        found[dimension] = RingLink(
            bandwidth=bandwidth / shared if bandwidth > NOTHING else 0.0,
            latency=levels[-1].hop_latency if levels else 0.0,
            name=peers.name,
            direct=peers.group.torn is None and [a.joint for a in axes] == [Joint.PAIRS],
        )
    return found


class Chips(Distributed):
    """Times on one chip of a strategy as a release has them; ``links`` are `RingLink`."""

    __slots__ = ()

    def part(self, extent: float, degree: int) -> float:
        """Rounded down. [1]"""
        return extent // degree

    def part_backward(self, extent: float, degree: int) -> float:
        """With its fraction. [1]"""
        return extent / degree

    def collective(
        self, collective: Collective, rows: float, columns: float, dimension: ParallelDimension
    ) -> float:
        """Once or twice round the ring; the additions once, or a copy of all that arrived. [s]"""
        link, times, degree = self.links[dimension], self.times, self.strategy.degree(dimension)
        size = times.element_size * rows * columns
        share, others = size / degree, degree - 1
        sent = (1 if link.direct else others) * (link.time(share) + link.latency)
        halves = 2 if collective is Collective.ALL_REDUCE else 1
        total = halves * (sent + others * times.elementwise(0, 2 * share))
        if collective is Collective.ALL_GATHER:
            return float(total + times.elementwise(0, 3 * size) + times.launch_overhead)
        added = times.elementwise(rows * columns / degree, 3 * share) + times.launch_overhead
        return float(total + others * added)

    def send(self, size: float, dimension: ParallelDimension) -> float:
        """Send ``size`` bytes to a neighbour: read, sent, written; without the latency. [s]"""
        return self.times.elementwise(0, 2 * size) + float(self.links[dimension].time(size))

    def hand_on(self, size: float) -> float:
        """Send ``size`` bytes to the next stage, with the latency. [s]"""
        return self.send(size, LP) + float(self.links[LP].latency)

    def from_host(self, size: float) -> float:
        """Copy ``size`` bytes of embedding vectors from the host. [s]"""
        return size / HOST_BANDWIDTH

    def run(self, graph: TaskGraph) -> Timeline:
        """Run the tasks of a pass; the last link is that of the gradients of the last stage."""
        return simulate(graph, f"link {2 * self.strategy.lp - 2}")
