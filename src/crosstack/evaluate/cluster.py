"""Chips in packages, and whom every parallel dimension of a strategy communicates with.

Ranks are numbered along an order of the dimensions and fill packages
(`crosstack.model.collectives.group`); or a placement, or a file, says which dimensions leave a
package and how many of their edges share a link (`EdgeSharing`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require, require_quantity
from crosstack.evaluate.distributed import Peers
from crosstack.machine.chip import Chip, Link
from crosstack.machine.node import Fabric, NetworkPort, Node, system_of_nodes
from crosstack.machine.system import AllReduceAlgorithm, Dimension, DimensionKind
from crosstack.machine.topology import RING, SWITCH, NetworkLevel
from crosstack.mapping.placement import Placement
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy, whole_order
from crosstack.model.collectives import Extent, Group, group_of
from crosstack.model.collectives.group import filled

__all__ = [
    "MISSING",
    "NESTED",
    "Cluster",
    "Derate",
    "EdgeSharing",
    "check_chips",
    "nested_cluster",
    "node_cluster",
    "peers_of",
    "placed_cluster",
    "stage_peers",
    "two_levels",
]

KP1, KP2, DP, LP = ParallelDimension
NESTED = (KP2, KP1, DP, LP)  # innermost first

MOST_CHIPS = 2**20  # whose packages are told apart stage by stage
MISSING = 1e-300  # stands for a link that is not there [B/s]
WHERE = ("link inside a package", "link between packages")


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
class EdgeSharing:
    """Which edges leave a package and which share a link, where no order says it.

    ``crossing`` are the dimensions with edges between packages; ``derates`` say, dimension by
    dimension, what shares a link. ``leaving`` are the stages that hand over to another package,
    the last to the first; None: all of a pipeline that crosses.
    """

    crossing: frozenset[ParallelDimension] = frozenset()
    derates: tuple[Derate, Derate, Derate, Derate] = (Derate(), Derate(), Derate(), Derate())
    leaving: frozenset[int] | None = None

    def __post_init__(self) -> None:
        """Check that every dimension has a derate."""
        require(len(self.derates) == len(ParallelDimension), "derates", self.derates, "one each")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Equal chips, joined inside packages by the first level of ``network``, then by the others.

    Every level has its size. Ranks are numbered along ``order``, the innermost dimension first, or
    lie as ``sharing`` says.
    """

    chip: Chip
    network: tuple[Dimension, ...]
    order: MappingOrder = NESTED
    sharing: EdgeSharing | None = None

    @property
    def sizes(self) -> tuple[int, ...]:
        """Chips, or blocks of the level below, that each level joins. [1]"""
        return tuple(level.size or 1 for level in self.network)

    @property
    def n_chips(self) -> int:
        """All chips. [1]"""
        return math.prod(self.sizes)


def two_levels(
    chip: Chip,
    *,
    chips_per_package: int = 1,
    packages: int = 1,
    inside: NetworkLevel = RING,
    between: NetworkLevel = SWITCH,
) -> tuple[Dimension, ...]:
    """Return the network of chips in packages, joined by the links that the chip has.

    Parameters
    ----------
    chip : Chip
        Every chip.
    chips_per_package, packages : int
        How many. [1]
    inside, between : NetworkLevel
        How the chips of a package are joined, and equal chips of all packages.

    Raises
    ------
    InputError
        If a level has the shape of another number of chips.
    """
    return (
        _level(chip.intra, inside, "chips_per_package", chips_per_package),
        _level(chip.inter, between, "packages", packages),
    )


def _level(link: Link | None, level: NetworkLevel, name: str, size: int) -> Dimension:
    require(isinstance(size, int) and size >= 1, name, size, "a whole number, at least 1")
    return Dimension(
        kind=level.kind,
        size=size,
        bandwidth=max(MISSING, link.bandwidth if link else 0.0),
        latency=link.latency if link else None,
        shape=level.shape,
        oversubscription=level.oversubscription,
        pod_size=level.pod_size,
        reduces=level.reduces,
    )


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
    packages = grid.n_packages
    return Cluster(
        chip=chip,
        network=two_levels(chip, chips_per_package=grid.n_chips // packages, packages=packages),
        sharing=EdgeSharing(
            crossing=placement.crosses,
            derates=(derates[0], derates[1], derates[2], derates[3]),
            leaving=_leaving(np.moveaxis(placement.positions // np.array(grid.package), 3, 0)),
        ),
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
    """
    return Cluster(
        chip=chip,
        network=two_levels(
            chip,
            chips_per_package=chips_per_package,
            packages=packages,
            inside=inside,
            between=between,
        ),
        order=whole_order(strategy, order),
    )


def node_cluster(
    node: Node,
    strategy: Strategy,
    *,
    n_chips: int | None = None,
    fabric: Fabric | None = None,
    port: NetworkPort | None = None,
    inside: NetworkLevel | None = None,
    between: NetworkLevel | None = None,
    order: MappingOrder = NESTED,
) -> Cluster:
    """Return nodes that a strategy runs on; what fits into one node stays in one.

    Parameters
    ----------
    node : Node
        Every node.
    strategy : Strategy
        What is numbered.
    n_chips : int, optional
        Of all nodes; left out, as many nodes as the strategy fills. [1]
    fabric, port
        What joins nodes, as of `crosstack.machine.node.system_of_nodes`.
    inside, between : NetworkLevel, optional
        How chips and nodes are joined instead: the links that a chip has are shared out over its
        neighbours.
    order : tuple of ParallelDimension
        The dimensions, innermost first.

    Raises
    ------
    InputError
        If ``n_chips`` are no whole nodes, or nodes have to be joined that have no ports.
    """
    whole = whole_order(strategy, order)
    if n_chips is None:
        each = filled(_degrees(strategy, whole), (node.n_chips, strategy.n_chips))[0]
        n_chips = math.ceil(strategy.n_chips / each) * node.n_chips
    network = system_of_nodes(node, n_chips, fabric=fabric, port=port).network
    joined = n_chips // node.n_chips
    outer = network[-1] if joined > 1 else None
    if inside is not None:
        network = (_joined_inside(node, inside), *([outer] if outer else []))
    if between is not None and outer is not None:
        ends = Link(
            n_links=node.n_ports,
            bandwidth=node.bandwidth_out / between.links(joined),
            latency=outer.hop_latency,
        )
        network = (*network[:-1], _level(ends, between, "n_chips", joined))
    return Cluster(chip=node.chip, network=network, order=whole)


def _joined_inside(node: Node, inside: NetworkLevel) -> Dimension:
    own = node.chip.intra or Link(n_links=0, bandwidth=0.0, latency=0.0)
    neighbours = inside.links(node.n_chips)
    latency = node.network[0].hop_latency if node.network else 0.0
    shared = replace(own, bandwidth=own.bandwidth / neighbours, latency=latency)
    return _level(shared, inside, "n_chips", node.n_chips)


# ---------------------------------------------------------------- whom a dimension talks to


def _degrees(strategy: Strategy, order: MappingOrder) -> tuple[int, ...]:
    return tuple(strategy.degree(d) for d in order)


def check_chips(strategy: Strategy, cluster: Cluster) -> None:
    """Raise `InputError` if the strategy needs more chips than there are."""
    if strategy.n_chips > cluster.n_chips:
        message = f"{strategy} needs {strategy.n_chips} chips; there are {cluster.n_chips}."
        raise InputError(Problem("strategy", message))


def peers_of(strategy: Strategy, cluster: Cluster) -> dict[ParallelDimension, Peers]:
    """Return whom every dimension communicates with.

    Raises
    ------
    InputError
        If the strategy needs more chips than there are.
    """
    check_chips(strategy, cluster)
    if cluster.sharing is not None:
        edges = cluster.sharing
        return {
            d: _stated(strategy, cluster, d, crosses=d in edges.crossing) for d in ParallelDimension
        }
    degrees = _degrees(strategy, cluster.order)
    return {
        d: _named(d, cluster, group_of(cluster.network, cluster.sizes, degrees, number))
        for number, d in enumerate(cluster.order)
    }


def _named(dimension: ParallelDimension, cluster: Cluster, group: Group) -> Peers:
    leaves = any(e.dimension is not cluster.network[0] for e in group.extents)
    return Peers(name=f"{dimension.value}: {WHERE[leaves]}", group=group)


def _stated(
    strategy: Strategy, cluster: Cluster, dimension: ParallelDimension, *, crosses: bool
) -> Peers:
    """Return peers on a ring of which each edge has its part of the links that it shares.

    Inside a package: bandwidth over derate. Between packages: the same, and no more than inside,
    where a derate inside says that there is a network: the path to the edge of the package is
    part of the way.
    """
    inner, outer = cluster.network[0], cluster.network[-1]
    edges = cluster.sharing or EdgeSharing()
    derate = edges.derates[tuple(ParallelDimension).index(dimension)]
    there = derate.inside and cluster.n_chips > 1
    inside = inner.bandwidth / derate.inside if there else MISSING
    bandwidth, level = inside, inner
    if crosses:
        there = derate.between and outer.size != 1
        bandwidth, level = (outer.bandwidth / derate.between if there else MISSING), outer
        if derate.inside and inner.size != 1:
            bandwidth = min(bandwidth, inside)
    degree = strategy.degree(dimension)
    joined = replace(level, kind=DimensionKind.SWITCH, shape=(), size=degree, bandwidth=bandwidth)
    return Peers(
        name=f"{dimension.value}: {WHERE[crosses]}",
        group=Group(extents=(Extent(dimension=joined, size=degree, members=degree),)),
        all_reduce=AllReduceAlgorithm.RING,
    )


def stage_peers(strategy: Strategy, cluster: Cluster) -> tuple[Peers, ...]:
    """Return whom every stage hands over to, the last to the first; empty: all alike."""
    near: Peers
    far: Peers
    if cluster.sharing is not None:
        leaving = cluster.sharing.leaving if LP in cluster.sharing.crossing else None
        if leaving is None:
            return ()
        near, far = (_stated(strategy, cluster, LP, crosses=crosses) for crosses in (False, True))
    else:
        degrees, number = _degrees(strategy, cluster.order), cluster.order.index(LP)
        if strategy.n_chips > MOST_CHIPS:
            return ()
        each = filled(degrees, cluster.sizes)[0]
        packages = (np.arange(strategy.n_chips) // each).reshape(degrees[::-1])
        leaving = _leaving(np.moveaxis(packages, len(degrees) - 1 - number, 0))
        group = group_of(cluster.network, cluster.sizes, degrees, number)
        near, far = (
            _named(LP, cluster, Group(extents=extents))
            for extents in (group.extents[:1], group.extents[1:] or group.extents)
        )
    return tuple(far if stage in leaving else near for stage in range(strategy.lp))
