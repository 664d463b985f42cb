"""Kernels and collectives of one chip among many, and products split RC or CR.

What a chip can do comes in as kernel times, whom it communicates with as `Peers`, so that this
module is arithmetic only. A collective is one kernel, launched once
(`crosstack.model.collectives.times`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.machine.packages import SLOWEST
from crosstack.machine.system import AllReduceAlgorithm
from crosstack.mapping.strategy import KernelSplit, ParallelDimension, Strategy, share_of
from crosstack.model.collectives import NONE, Arrival, Group, collective_lines
from crosstack.model.kernels.clock import ChipTimes
from crosstack.model.schedule.events import TaskGraph, Timeline, simulate
from crosstack.units import format_quantity
from crosstack.workload.kernels import Collective

KP1, KP2, DP, LP = ParallelDimension


class _RecordedProducts:
    """Kernel times of nothing, that remember which products were asked for."""

    def __init__(self, times: ChipTimes) -> None:
        self.element_size, self.launch_overhead = times.element_size, times.launch_overhead
        self.arrival = times.arrival
        self.shapes: dict[tuple[float, float, float, float], None] = {}

    def product(self, m: float, k: float, n: float, batch: float = 1.0) -> float:
        self.shapes[m, k, n, batch] = None
        return 0.0

    def elementwise(self, work: float, traffic: float) -> float:
        return 0.0


def prepare(times: ChipTimes, run: Callable[[ChipTimes], object]) -> None:
    """Time all products that ``run`` will ask ``times`` for at once, where they can do that.

    One search over the tilings of many products takes a fraction of as many searches.
    """
    at_once = getattr(times, "prepare", None)
    if at_once is not None:
        asked: Any = _RecordedProducts(times)
        run(asked)
        at_once(list(asked.shapes))


@dataclass(frozen=True, slots=True, kw_only=True)
class Peers:
    """Chips of one parallel dimension that communicate, and the links between them.

    ``name`` is for messages; ``all_reduce`` how sums are made, None as is fastest.
    """

    name: str
    group: Group
    all_reduce: AllReduceAlgorithm | None = None

    def time(self, collective: Collective, size: float, arrival: Arrival = NONE) -> float:
        """Time of a collective over a tensor of ``size`` bytes, with what arrives. [s]

        Raises
        ------
        InputError
            If there is no link.
        """
        if any(extent.dimension.bandwidth < SLOWEST for extent in self.group.extents):
            raise no_link(self.name, size)
        lines = collective_lines(
            collective, self.group, arrival=arrival, all_reduce=self.all_reduce
        )
        return float(lines.time(size))


def no_link(name: str, size: float) -> InputError:
    """Return the error of sending ``size`` bytes over a link that is not there."""
    message = (
        f"{format_quantity(size, 'B')} have to be sent over a link that has no bandwidth; give the "
        "network area, power and links, or use a strategy without this dimension."
    )
    return InputError(Problem(name, message))


@dataclass(frozen=True, slots=True, kw_only=True)
class Distributed:
    """Times on one chip of a strategy; forward and backward products with what they exchange.

    An extent that a degree does not divide leaves the fullest chip one more than its share.
    ``links`` are `Peers`, those of a release what it has in their place.
    """

    strategy: Strategy
    times: ChipTimes
    links: Mapping[ParallelDimension, Any]

    # ------------------------------------------------------------ what a release does otherwise

    def part(self, extent: float, degree: int) -> float:
        """Of an extent, what a chip has of a product forward, and of CR backward. [1]"""
        return share_of(int(extent), degree)

    def part_backward(self, extent: float, degree: int) -> float:
        """Of an extent, what a chip has of a product of RC backward. [1]"""
        return self.part(extent, degree)

    def collective(
        self, collective: Collective, rows: float, columns: float, dimension: ParallelDimension
    ) -> float:
        """Time of a collective over ``rows`` x ``columns`` elements, of several chips. [s]"""
        size = self.times.element_size * rows * columns
        return float(self.links[dimension].time(collective, size, self.times.arrival))

    def send(self, size: float, dimension: ParallelDimension) -> float:
        """Send ``size`` bytes to a neighbour. [s]"""
        link = self.links[dimension]
        return float(link.time(Collective.POINT_TO_POINT, size, self.times.arrival))

    def hand_on(self, size: float) -> float:
        """Send ``size`` bytes to the next stage. [s]"""
        return self.send(size, LP)

    def from_host(self, size: float) -> float:
        """Copy ``size`` bytes of embedding vectors from the host: they are on the chip. [s]"""
        return 0.0

    def run(self, graph: TaskGraph) -> Timeline:
        """Run the tasks of a pass."""
        return simulate(graph)

    # ------------------------------------------------------------ collectives

    def all_gather(self, rows: float, columns: float, dimension: ParallelDimension) -> float:
        """Gather ``rows`` x ``columns`` elements of which each chip has a share. [s]"""
        return self._among(Collective.ALL_GATHER, rows, columns, dimension)

    def reduce_scatter(self, rows: float, columns: float, dimension: ParallelDimension) -> float:
        """Add ``rows`` x ``columns`` partial sums, a share for each chip. [s]"""
        return self._among(Collective.REDUCE_SCATTER, rows, columns, dimension)

    def all_reduce(self, rows: float, columns: float, dimension: ParallelDimension) -> float:
        """Add ``rows`` x ``columns`` partial sums, all for every chip. [s]"""
        return self._among(Collective.ALL_REDUCE, rows, columns, dimension)

    def _among(
        self, collective: Collective, rows: float, columns: float, dimension: ParallelDimension
    ) -> float:
        if self.strategy.degree(dimension) == 1:
            return 0.0
        return self.collective(collective, rows, columns, dimension)

    # ------------------------------------------------------------ products

    def share(self, m: int, k: int, n: int) -> tuple[int, int, int]:
        """Return M, K and N of what one chip has of a product split forward. [1]"""
        s = self.strategy
        if s.split is KernelSplit.CR:
            return m, int(self.part(k, s.kp1)), n
        return int(self.part(m, s.kp1)), k, int(self.part(n, s.kp2))

    def own_product(self, m: int, k: int, n: int) -> float:
        """What one chip computes of a product split forward. [s]"""
        return self.times.product(*self.share(m, k, n))

    def forward(self, m: int, k: int, n: int) -> float:
        """An M x K by K x N product, its output ready for the next one. [s]

        CR: ``k / kp1`` on each chip, then a reduce-scatter of the partial sums along kp1. RC:
        ``m / kp1`` rows by ``n / kp2`` columns, then an all-gather of the columns along kp2.
        """
        s, own = self.strategy, self.own_product(m, k, n)
        if s.split is KernelSplit.CR:
            return own + self.reduce_scatter(m, n, KP1)
        return own + self.all_gather(self.part(m, s.kp1), n, KP2)

    def backward(self, m: int, k: int, n: int) -> float:
        """Gradients of both factors of `forward`. [s]

        CR: the gradient of the output is gathered along kp1. RC: rows are gathered along kp1 and
        columns along kp2 for each of the two products; of the first factor and of the second
        only half is sent.
        """
        s, product, part = self.strategy, self.times.product, self.part_backward
        a, b = s.kp1, s.kp2
        if s.split is KernelSplit.CR:
            own = product(k, self.part(m, a), n) + product(m, self.part(n, a), k)
            return own + self.all_gather(m, n, KP1)
        if a == b == 1:
            return product(m, n, k) + product(k, m, n)
        own = product(part(k, a), m, part(n, b)) + product(part(m, a), n, part(k, b))
        rows = self.all_gather(k, m, KP1) / 2 + self.all_gather(m, n / b, KP1)
        columns = self.all_gather(m / a, n, KP2) + self.all_gather(k, n, KP2) / 2
        return own + rows + columns

    def reduce_gradient(self, rows: float, columns: float) -> float:
        """Sum a weight's gradient over the replicas; clip it and apply it, without a launch. [s]

        CR holds ``rows / kp1``; RC holds 1 / kp1 of the rows and 1 / kp2 of the columns while it
        sums, and gathers the rows along kp1 afterwards.
        """
        s, times = self.strategy, self.times
        if s.split is KernelSplit.CR:
            rows = rows / s.kp1
            total = self.all_reduce(rows, columns, DP)
        else:
            columns = columns / s.kp2
            total = self.all_reduce(rows / s.kp1, columns, DP)
            total += self.all_gather(rows, columns, KP1)
        elements, word = rows * columns, times.element_size
        clipped = times.elementwise(3 * elements, 4 * elements * word)
        return total + (clipped + times.elementwise(4 * elements, 3 * elements * word))
