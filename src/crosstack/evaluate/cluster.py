"""Chips in packages, and the link that each parallel dimension of a strategy gets.

A dimension with an edge between packages uses the links between them, another one those inside.
What shares a link divides its bandwidth (the *derate*). Source: ``ardalani2022deepflow``,
section 5.2; ``deepflow_code``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require, require_quantity, require_whole
from crosstack.evaluate.distributed import RingLink
from crosstack.machine.chip import Chip, Link
from crosstack.machine.named_chips import SERVERS
from crosstack.machine.topology import RING, SWITCH, Grid, NetworkLevel, Topology
from crosstack.mapping.placement import Placement, place
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy, whole_order

__all__ = [
    "NESTED",
    "Cluster",
    "Derate",
    "check_chips",
    "link_bandwidth",
    "named_cluster",
    "nested_cluster",
    "placed_cluster",
    "ring_links",
    "stage_links",
]

KP1, KP2, DP, LP = ParallelDimension
NESTED = (KP2, KP1, DP, LP)  # innermost first

MOST_CHIPS = 2**20  # whose packages are told apart stage by stage
SLOWEST = 1.0  # less than that many bytes a second is no link [B/s]
BETWEEN, INSIDE = "link between packages", "link inside a package"


@dataclass(frozen=True, slots=True, kw_only=True)
class Derate:
    """Edges that share a link ``inside`` a package and ``between`` packages; 0: there is none."""

    inside: float = 1.0
    between: float = 1.0

    def __post_init__(self) -> None:
        """Check both."""
        require_quantity("inside", self.inside, "1")
        require_quantity("between", self.between, "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """``packages`` of ``chips_per_package`` equal chips.

    ``crossing`` are the dimensions with edges between packages; ``derates`` say what shares the
    links of a dimension; ``direct`` are those of which every two chips have a link of their own.
    ``leaving`` are the stages that hand over to another package, the last to the first; None: all
    of a pipeline that crosses.
    """

    chip: Chip
    chips_per_package: int = 1
    packages: int = 1
    crossing: frozenset[ParallelDimension] = frozenset()
    derates: tuple[Derate, Derate, Derate, Derate] = (Derate(), Derate(), Derate(), Derate())
    direct: frozenset[ParallelDimension] = frozenset()
    leaving: frozenset[int] | None = None

    def __post_init__(self) -> None:
        """Check the numbers of chips."""
        require_whole("chips_per_package", self.chips_per_package, what="chips")
        require_whole("packages", self.packages, what="packages")
        require(len(self.derates) == len(ParallelDimension), "derates", self.derates, "one each")

    @property
    def n_chips(self) -> int:
        """All chips. [1]"""
        return self.chips_per_package * self.packages


def placed_cluster(chip: Chip, placement: Placement) -> Cluster:
    """Return the cluster of a placement.

    Dimensions communicate at different times, so only the edges of one share a link.
    """
    grid = placement.grid
    derates = [
        Derate(
            inside=max(1, placement.by_dimension[d].inside),
            between=max(1, placement.by_dimension[d].between),
        )
        for d in ParallelDimension
    ]
    return Cluster(
        chip=chip,
        chips_per_package=grid.n_chips // grid.n_packages,
        packages=grid.n_packages,
        crossing=placement.crosses,
        derates=(derates[0], derates[1], derates[2], derates[3]),
        leaving=_leaving(np.moveaxis(placement.positions // np.array(grid.package), 3, 0)),
    )


def _leaving(packages: NDArray[np.int64]) -> frozenset[int]:
    """Return the stages of which a shard hands over to another package.

    ``packages`` says where every shard is, by stage first.
    """
    following = np.roll(packages, -1, axis=0)
    return frozenset(i for i in range(len(packages)) if (packages[i] != following[i]).any())


def nested_cluster(
    chip: Chip,
    strategy: Strategy,
    *,
    chips_per_package: int = 1,
    packages: int = 1,
    inside: NetworkLevel = RING,
    between: NetworkLevel = SWITCH,
    order: MappingOrder = NESTED,
) -> Cluster:
    """Return the cluster of shards that are numbered along an order and fill packages.

    Parameters
    ----------
    chip : Chip
        Every chip.
    strategy : Strategy
        What is numbered.
    chips_per_package, packages : int
        How many. [1]
    inside, between : NetworkLevel
        How the chips of a package are joined, and equal chips of all packages.
    order : tuple of ParallelDimension
        The dimensions, innermost first.

    Raises
    ------
    InputError
        If the order leaves out a dimension, or a level has the shape of another number of chips.

    Notes
    -----
    The largest block of whole inner dimensions that fits into a package is not torn: a package
    takes as many blocks as it holds and leaves the rest of its chips idle, unless there are too
    few packages for that. A dimension crosses where one of its groups lies in two packages; as all
    groups wait for the slowest hop, it then has the links between packages, and no more than those
    inside where some of its neighbours share a package.

    On a ring, a dimension shares a link with as many edges as shards, or packages, lie between two
    neighbours; on a mesh or torus with those of its placement there, in this order
    (`crosstack.mapping.placement.place`), each level on its own, or as on a ring where packages are
    not filled evenly. A switch and a full connection share nothing; where a full connection is all
    that a dimension uses, its chips send to all others at once.
    """
    whole = whole_order(strategy, order)
    filled = _filled(strategy, whole, chips_per_package, packages)
    fill = _Fill(strategy=strategy, order=whole, filled=filled)
    shared_inside = _sharing(inside, chips_per_package, fill, inner=True)
    shared_between = _sharing(between, packages, fill, inner=False)
    crossing = fill.crossing
    derates, direct = {}, set()
    for dimension, stride in fill.strides.items():
        uses_inside = stride < filled
        derates[dimension] = Derate(
            inside=shared_inside[dimension] if uses_inside else 0,
            between=shared_between[dimension],
        )
        crosses = dimension in crossing
        alone = not crosses or stride % filled == 0  # equal chips of packages, or one package
        level = between if crosses else inside
        if level.topology is Topology.FULLY_CONNECTED and alone:
            direct.add(dimension)
    return Cluster(
        chip=chip,
        chips_per_package=chips_per_package,
        packages=packages,
        crossing=crossing,
        derates=(derates[KP1], derates[KP2], derates[DP], derates[LP]),
        direct=frozenset(direct),
        leaving=fill.leaving,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fill:
    """Shards numbered along ``order``, ``filled`` of them in every package."""

    strategy: Strategy
    order: MappingOrder
    filled: int

    @property
    def strides(self) -> dict[ParallelDimension, int]:
        """Shards from one to the next along every dimension. [1]"""
        degrees = [self.strategy.degree(d) for d in self.order]
        return dict(zip(self.order, accumulate(degrees, mul, initial=1), strict=False))

    @property
    def leaving(self) -> frozenset[int] | None:
        """Stages of which a shard hands over to another package; None: not told apart."""
        if self.strategy.n_chips > MOST_CHIPS:
            return None
        degrees = [self.strategy.degree(d) for d in self.order]
        packages = (np.arange(self.strategy.n_chips) // self.filled).reshape(degrees[::-1])
        return _leaving(np.moveaxis(packages, self.order[::-1].index(LP), 0))

    @property
    def crossing(self) -> frozenset[ParallelDimension]:
        """Dimensions of which a group lies in two packages."""
        if self.strategy.n_chips <= self.filled:
            return frozenset()
        return frozenset(
            d
            for d, stride in self.strides.items()
            if self.strategy.degree(d) > 1 and self.filled % (stride * self.strategy.degree(d))
        )

    def part(self, *, inner: bool) -> Strategy | None:
        """Degrees inside packages, or between them; None where packages are not filled evenly."""
        degrees = {d: self.strategy.degree(d) for d in self.order}
        own = {d: min(degrees[d], max(1, self.filled // s)) for d, s in self.strides.items()}
        if math.prod(own.values()) != min(self.filled, self.strategy.n_chips):
            return None
        if any(degrees[d] % own[d] for d in self.order):
            return None
        part = {d: own[d] if inner else degrees[d] // own[d] for d in self.order}
        return Strategy(kp1=part[KP1], kp2=part[KP2], dp=part[DP], lp=part[LP])


def _sharing(
    level: NetworkLevel, size: int, fill: _Fill, *, inner: bool
) -> Mapping[ParallelDimension, int]:
    """Edges of every dimension that share a link of a level. [1]"""
    match level.topology:
        case Topology.SWITCH | Topology.FULLY_CONNECTED:
            return dict.fromkeys(ParallelDimension, 1)
        case Topology.MESH | Topology.TORUS:
            grid = Grid(package=level.axes(size), torus=level.topology is Topology.TORUS)
            part = fill.part(inner=inner)
            if part is not None and part.n_chips <= size:
                return _placed_sharing(part, grid, fill.order)
        case Topology.RING:
            pass
        case _:
            assert_never(level.topology)
    reach = 1 if inner else fill.filled
    return {d: math.ceil(stride / reach) for d, stride in fill.strides.items()}


@lru_cache(maxsize=4096)  # searches ask for the same few again and again
def _placed_sharing(
    part: Strategy, grid: Grid, order: MappingOrder
) -> Mapping[ParallelDimension, int]:
    placement = place(part, grid, order=order)
    return {d: max(1, shared.inside) for d, shared in placement.by_dimension.items()}


def _whole_blocks(strategy: Strategy, order: MappingOrder, chips_per_package: int) -> int:
    """Chips of a package that its whole blocks of inner dimensions take. [1]"""
    spans = accumulate((strategy.degree(d) for d in order), mul, initial=1)
    block = max(span for span in spans if span <= chips_per_package)
    return chips_per_package // block * block


def _filled(strategy: Strategy, order: MappingOrder, chips_per_package: int, packages: int) -> int:
    """Chips of a package that are used: whole blocks where there are packages enough. [1]"""
    whole = _whole_blocks(strategy, order, chips_per_package)
    return whole if strategy.n_chips <= whole * packages else chips_per_package


def named_cluster(
    chip: Chip,
    strategy: Strategy,
    *,
    inside: NetworkLevel = SWITCH,
    between: NetworkLevel = SWITCH,
    order: MappingOrder = NESTED,
) -> Cluster:
    """Return as many servers of a chip that is known by name as a strategy fills.

    What fits into one server stays in one, see `nested_cluster`; a chip without a server stands
    alone. The links that the chip has to a switch are shared out over its neighbours where it is
    joined otherwise.
    """
    whole = whole_order(strategy, order)
    each = SERVERS.get(chip.name, 1)
    if each == 1:
        return Cluster(chip=chip)
    packages = math.ceil(strategy.n_chips / _whole_blocks(strategy, whole, each))
    joined = replace(
        chip,
        intra=_shared_out(chip.intra, inside.neighbours(each)),
        inter=_shared_out(chip.inter, between.neighbours(packages)),
    )
    return nested_cluster(
        joined,
        strategy,
        chips_per_package=each,
        packages=packages,
        inside=inside,
        between=between,
        order=whole,
    )


def _shared_out(link: Link | None, neighbours: int) -> Link | None:
    return link and replace(link, bandwidth=link.bandwidth / neighbours)


def ring_links(strategy: Strategy, cluster: Cluster) -> dict[ParallelDimension, RingLink]:
    """Return the link of every dimension.

    Raises
    ------
    InputError
        If the strategy needs more chips than there are.

    Notes
    -----
    Inside a package: bandwidth over derate. Between packages: the same, and no more than inside,
    where a derate inside says that there is a network: the path to the edge of the package is
    part of the way.
    """
    check_chips(strategy, cluster)
    return {d: _link(cluster, d, crosses=d in cluster.crossing) for d in ParallelDimension}


def check_chips(strategy: Strategy, cluster: Cluster) -> None:
    """Raise `InputError` if the strategy needs more chips than there are."""
    if strategy.n_chips > cluster.n_chips:
        message = f"{strategy} needs {strategy.n_chips} chips; there are {cluster.n_chips}."
        raise InputError(Problem("strategy", message))


def stage_links(strategy: Strategy, cluster: Cluster) -> tuple[RingLink, ...]:
    """Return the link from every stage to the next, of the last to the first; empty: all alike."""
    if cluster.leaving is None or LP not in cluster.crossing:
        return ()
    near, far = (_link(cluster, LP, crosses=crosses) for crosses in (False, True))
    return tuple(far if stage in cluster.leaving else near for stage in range(strategy.lp))


def _link(cluster: Cluster, dimension: ParallelDimension, *, crosses: bool) -> RingLink:
    bandwidth = link_bandwidth(cluster, dimension, crosses=crosses)
    own = cluster.chip.inter if crosses else cluster.chip.intra
    return RingLink(
        bandwidth=bandwidth if bandwidth >= SLOWEST else 0.0,
        latency=own.latency if own else 0.0,
        name=f"{dimension.value}: {BETWEEN if crosses else INSIDE}",
        direct=dimension in cluster.direct,
    )


def link_bandwidth(cluster: Cluster, dimension: ParallelDimension, *, crosses: bool) -> float:
    """Return what a dimension has between neighbours; see `ring_links`. [B/s]"""
    derate = cluster.derates[tuple(ParallelDimension).index(dimension)]
    intra, inter = cluster.chip.intra, cluster.chip.inter
    if cluster.n_chips == 1:
        return 0.0
    inside = intra.bandwidth / derate.inside if intra and derate.inside else 0.0
    if not crosses:
        return inside
    if cluster.packages == 1 or inter is None or not derate.between:
        return 0.0
    between = inter.bandwidth / derate.between
    has_network = cluster.chips_per_package > 1 and derate.inside > 0
    return min(between, inside) if has_network else between
