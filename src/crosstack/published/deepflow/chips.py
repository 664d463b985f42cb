"""Links, rings and split products of the releases (``deepflow_code``).

A network without power still carries less than a byte a second, as its wires keep a frequency by
rounding. The part of an extent that each chip of a split has is rounded down, so that a remainder
is nobody's work; the gradients of RC have fractions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from crosstack.errors import require_quantity
from crosstack.mapping.strategy import KernelSplit, ParallelDimension, Strategy
from crosstack.model.collectives import Joint
from crosstack.model.collectives.group import axes_of
from crosstack.published.deepflow.distributed import KernelTimes, Peers, no_link
from crosstack.published.deepflow.release import Release

__all__ = ["DP", "KP1", "KP2", "LP", "Chips", "RingLink", "links_of"]

KP1, KP2, DP, LP = ParallelDimension
NOTHING = 1e-200  # fewer bytes a second stand for no link at all [B/s]


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
        """Time of ``size`` bytes without the latency. [s]

        Raises
        ------
        InputError
            If there is no link.
        """
        if self.bandwidth <= 0:
            raise no_link(self.name, size)
        return size / self.bandwidth


def links_of(
    strategy: Strategy, joined: Mapping[ParallelDimension, Peers], release: Release
) -> dict[ParallelDimension, RingLink]:
    """Return the link of every dimension, from whom it communicates with."""
    found = {}
    for dimension, peers in joined.items():
        degree, shared = strategy.degree(dimension), 1.0
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
    return {dimension: found[dimension] for dimension in ParallelDimension}


@dataclass(frozen=True, slots=True, kw_only=True)
class Chips:
    """Times on one chip of a strategy, with what it exchanges."""

    strategy: Strategy
    times: KernelTimes
    links: Mapping[ParallelDimension, RingLink]

    def _ring(
        self, rows: float, columns: float, dimension: ParallelDimension, *, adds: bool, halves: int
    ) -> float:
        """``halves`` times round the ring; the additions once, or a copy of all that arrived."""
        degree = self.strategy.degree(dimension)
        if degree == 1:
            return 0.0
        link, times = self.links[dimension], self.times
        size = times.element_size * rows * columns
        share, others = size / degree, degree - 1
        rounds = 1 if link.direct else others
        sent = rounds * (link.time(share) + link.latency)
        total = halves * (sent + others * times.elementwise(0, 2 * share))
        if not adds:
            return total + times.elementwise(0, 3 * size) + times.launch_overhead
        added = times.elementwise(rows * columns / degree, 3 * share) + times.launch_overhead
        return total + others * added

    def all_gather(self, rows: float, columns: float, dimension: ParallelDimension) -> float:
        """Gather ``rows`` x ``columns`` elements of which each chip has a share. [s]"""
        return self._ring(rows, columns, dimension, adds=False, halves=1)

    def reduce_scatter(self, rows: float, columns: float, dimension: ParallelDimension) -> float:
        """Add ``rows`` x ``columns`` partial sums, a share for each chip. [s]"""
        return self._ring(rows, columns, dimension, adds=True, halves=1)

    def all_reduce(self, rows: float, columns: float, dimension: ParallelDimension) -> float:
        """Add ``rows`` x ``columns`` partial sums, all for every chip. [s]"""
        return self._ring(rows, columns, dimension, adds=True, halves=2)

    def send(self, size: float, dimension: ParallelDimension) -> float:
        """Send ``size`` bytes to a neighbour: read, sent, written; without the latency. [s]"""
        return self.times.elementwise(0, 2 * size) + self.links[dimension].time(size)

    def share(self, m: int, k: int, n: int) -> tuple[int, int, int]:
        """Return the extents of a product split forward that each chip has. [1]"""
        s = self.strategy
        if s.split is KernelSplit.CR:
            return m, k // s.kp1, n
        return m // s.kp1, k, n // s.kp2

    def own_product(self, m: int, k: int, n: int) -> float:
        """What one chip computes of a product split forward. [s]"""
        return self.times.product(*self.share(m, k, n))

    def forward(self, m: int, k: int, n: int) -> float:
        """An M x K by K x N product, its output ready for the next one. [s]"""
        s, own = self.strategy, self.own_product(m, k, n)
        if s.split is KernelSplit.CR:
            return own + self.reduce_scatter(m, n, KP1)
        return own + self.all_gather(m // s.kp1, n, KP2)

    def backward(self, m: int, k: int, n: int) -> float:
        """Gradients of both factors; of what RC gathers for one of them only half is sent. [s]"""
        s, product = self.strategy, self.times.product
        a, b = s.kp1, s.kp2
        if s.split is KernelSplit.CR:
            return product(k, m // a, n) + product(m, n // a, k) + self.all_gather(m, n, KP1)
        if a == b == 1:
            return product(m, n, k) + product(k, m, n)
        own = product(k / a, m, n / b) + product(m / a, n, k / b)
        rows = self.all_gather(k, m, KP1) / 2 + self.all_gather(m, n / b, KP1)
        columns = self.all_gather(m / a, n, KP2) + self.all_gather(k, n, KP2) / 2
        return own + rows + columns

    def reduce_gradient(self, rows: float, columns: float) -> float:
        """Sum a weight's gradient over the replicas; clip it and apply it. [s]"""
        s, times = self.strategy, self.times
        total, held = 0.0, (rows / s.kp1, columns)
        if s.split is KernelSplit.RC:
            total = self.all_reduce(rows / s.kp1, columns / s.kp2, DP)
            total += self.all_gather(rows, columns / s.kp2, KP1)
            held = rows, columns / s.kp2
        else:
            total = self.all_reduce(*held, DP)
        elements = held[0] * held[1]
        clipped = times.elementwise(3 * elements, 4 * elements * times.element_size)
        return total + clipped + times.elementwise(4 * elements, 3 * elements * times.element_size)
