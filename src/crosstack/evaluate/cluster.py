"""Chips in packages, and the link that each parallel dimension of a strategy gets.

A dimension with an edge between packages uses the links between them, another one those inside.
What shares a link divides its bandwidth (the *derate*). Source: ``ardalani2022deepflow``,
section 5.2; ``deepflow_code``.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from math import ceil
from operator import mul

from crosstack.chip.hierarchy import ChipHierarchy
from crosstack.chip.named_chips import SERVERS
from crosstack.errors import InputError, Problem, require, require_quantity, require_whole
from crosstack.evaluate.distributed import RingLink
from crosstack.evaluate.step_rules import StepRules
from crosstack.mapping.placement import Placement
from crosstack.mapping.strategy import ParallelDimension, Strategy
from crosstack.system.system import DimensionKind

__all__ = ["Cluster", "Derate", "named_cluster", "nested_cluster", "placed_cluster", "ring_links"]

KP1, KP2, DP, LP = ParallelDimension
NESTED = (KP2, KP1, DP, LP)  # innermost first

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
    links of a dimension.
    """

    chip: ChipHierarchy
    chips_per_package: int = 1
    packages: int = 1
    crossing: frozenset[ParallelDimension] = frozenset()
    derates: tuple[Derate, Derate, Derate, Derate] = (Derate(), Derate(), Derate(), Derate())

    def __post_init__(self) -> None:
        """Check the numbers of chips."""
        require_whole("chips_per_package", self.chips_per_package, what="chips")
        require_whole("packages", self.packages, what="packages")
        require(len(self.derates) == len(ParallelDimension), "derates", self.derates, "one each")

    @property
    def n_chips(self) -> int:
        """All chips. [1]"""
        return self.chips_per_package * self.packages


def placed_cluster(chip: ChipHierarchy, placement: Placement) -> Cluster:
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
    )


def nested_cluster(
    chip: ChipHierarchy,
    strategy: Strategy,
    *,
    chips_per_package: int = 1,
    packages: int = 1,
    intra_kind: DimensionKind = DimensionKind.RING,
    inter_kind: DimensionKind = DimensionKind.SWITCH,
) -> Cluster:
    """Return the cluster of shards numbered along kp2, kp1, dp, lp, that fill packages in order.

    Parameters
    ----------
    chip : ChipHierarchy
        Every chip.
    strategy : Strategy
        What is numbered.
    chips_per_package, packages : int
        How many. [1]
    intra_kind, inter_kind : DimensionKind
        How the chips of a package are joined, and equal chips of all packages.

    Notes
    -----
    The largest block of whole inner dimensions that fits into a package is not torn: a package
    takes as many blocks as it holds and leaves the rest of its chips idle, unless there are too
    few packages for that. A dimension crosses where one of its groups lies in two packages; as all
    groups wait for the slowest hop, it then has the links between packages, and no more than those
    inside where some of its neighbours share a package.

    Neighbours along a dimension are as many chips apart as the dimensions before it hold. On a
    ring that many edges share a link; a switch or a full connection shares nothing.
    """
    filled = _filled(strategy, chips_per_package, packages)
    stride = 1
    crossing = set()
    derates = {}
    for dimension in NESTED:
        span = stride * strategy.degree(dimension)
        alone = strategy.degree(dimension) == 1
        if not alone and strategy.n_chips > filled and filled % span:
            crossing.add(dimension)
        shared_inside = stride if intra_kind is DimensionKind.RING else 1
        shared_between = ceil(stride / filled)
        derates[dimension] = Derate(
            inside=shared_inside if stride < filled else 0,
            between=shared_between if inter_kind is DimensionKind.RING else 1,
        )
        stride = span
    return Cluster(
        chip=chip,
        chips_per_package=chips_per_package,
        packages=packages,
        crossing=frozenset(crossing),
        derates=(derates[KP1], derates[KP2], derates[DP], derates[LP]),
    )


def _whole_blocks(strategy: Strategy, chips_per_package: int) -> int:
    """Chips of a package that its whole blocks of inner dimensions take. [1]"""
    spans = list(accumulate((strategy.degree(d) for d in NESTED), mul, initial=1))
    block = max(span for span in spans if span <= chips_per_package)
    return chips_per_package // block * block


def _filled(strategy: Strategy, chips_per_package: int, packages: int) -> int:
    """Chips of a package that are used: whole blocks where there are packages enough. [1]"""
    whole = _whole_blocks(strategy, chips_per_package)
    return whole if strategy.n_chips <= whole * packages else chips_per_package


def named_cluster(chip: ChipHierarchy, strategy: Strategy) -> Cluster:
    """Return as many servers of a chip that is known by name as a strategy fills.

    What fits into one server stays in one, see `nested_cluster`; a chip without a server stands
    alone.
    """
    each = SERVERS.get(chip.name, 1)
    if each == 1:
        return Cluster(chip=chip)
    return nested_cluster(
        chip,
        strategy,
        chips_per_package=each,
        packages=ceil(strategy.n_chips / _whole_blocks(strategy, each)),
        intra_kind=DimensionKind.SWITCH,
        inter_kind=DimensionKind.SWITCH,
    )


def ring_links(
    strategy: Strategy, cluster: Cluster, rules: StepRules
) -> dict[ParallelDimension, RingLink]:
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
    if strategy.n_chips > cluster.n_chips:
        message = f"{strategy} needs {strategy.n_chips} chips; there are {cluster.n_chips}."
        raise InputError(Problem("strategy", message))
    links = {}
    for dimension, derate in zip(ParallelDimension, cluster.derates, strict=True):
        crosses = dimension in cluster.crossing
        bandwidth = _bandwidth(cluster, derate, crosses)
        if bandwidth < SLOWEST and not rules.accepts_dead_links:
            bandwidth = 0.0
        degree = strategy.degree(dimension)
        share = 1.0
        if rules.shares_links_by_degree and (degree > 1 or rules.halves_degree_one):
            share = 2.0 if degree <= 4 else 5.0 if degree <= 8 else 4.0
        own = cluster.chip.inter if crosses else cluster.chip.intra
        links[dimension] = RingLink(
            bandwidth=bandwidth / share,
            latency=own.latency if own else 0.0,
            name=f"{dimension.value}: {BETWEEN if crosses else INSIDE}",
        )
    return links


def _bandwidth(cluster: Cluster, derate: Derate, crosses: bool) -> float:
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
