"""Links as files, placements and the paper of DeepFlow state them: rings whose edges share links.

Instead of an order of ranks on a network, they say which parallel dimensions leave a package, and
how many logical edges share a link there and inside (``ardalani2022deepflow``, section 5.2).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from crosstack.errors import require_quantity
from crosstack.io.deepflow.hardware import DeepflowHardware
from crosstack.io.deepflow.steps import crossing_of
from crosstack.machine.packages import ABSENT
from crosstack.machine.system import AllReduceAlgorithm, DimensionKind, System
from crosstack.mapping.placement import Placement
from crosstack.mapping.strategy import NESTED, ParallelDimension, Strategy
from crosstack.model.collectives import Extent, Group
from crosstack.published.deepflow.distributed import Peers
from crosstack.published.deepflow.ranks import WHERE, check_chips, peers_of


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
    """Which edges leave a package and which share a link.

    ``crossing`` are the dimensions with edges between packages; ``derates`` say, dimension by
    dimension, what shares a link.
    """

    crossing: frozenset[ParallelDimension] = frozenset()
    derates: tuple[Derate, ...] = (Derate(),) * 4

    def __call__(self, strategy: Strategy, system: System) -> EdgeSharing:
        """Return the same whatever the strategy."""
        return self


Edges = Callable[[Strategy, System], EdgeSharing]


def edges_of_file(hardware: DeepflowHardware) -> EdgeSharing:
    """Return what a hardware file states: derates and crossings, not those of a placement."""
    system = hardware.system
    derate = Derate(inside=system.intra_derate, between=system.inter_derate)
    return EdgeSharing(crossing=crossing_of(hardware), derates=(derate,) * 4)


def edges_of_placement(placement: Placement) -> EdgeSharing:
    """Return the edges of a placement.

    Dimensions communicate at different times, so only the edges of one share a link.
    """
    shared = [placement.by_dimension[d] for d in ParallelDimension]
    derates = (Derate(inside=max(1, s.inside), between=max(1, s.between)) for s in shared)
    return EdgeSharing(crossing=placement.crosses, derates=tuple(derates))


def edges_of_paper(strategy: Strategy, system: System) -> EdgeSharing:
    """Return what section 5.2 says: one ring a dimension, which leaves a package by one link."""
    crossing, derates, peers = set(), [], peers_of(strategy, system, NESTED)
    for dimension in ParallelDimension:
        extents = peers[dimension].group.extents
        inside = [e.stride for e in extents if e.dimension is system.network[0]]
        if len(extents) > len(inside):
            crossing.add(dimension)
        derates.append(Derate(inside=inside[0] if inside else 0))
    return EdgeSharing(crossing=frozenset(crossing), derates=tuple(derates))


def stated_peers(
    strategy: Strategy, system: System, edges: EdgeSharing
) -> dict[ParallelDimension, Peers]:
    """Return whom every dimension communicates with: on a ring with its part of shared links.

    Inside a package: bandwidth over derate. Between packages: the same, and no more than inside,
    where a derate inside says that there is a network: the path to the edge of the package is
    part of the way.

    Raises
    ------
    InputError
        If the strategy needs more chips than there are.
    """
    check_chips(strategy, system)
    inner, outer = system.network[0], system.network[-1]
    found = {}
    for dimension, derate in zip(ParallelDimension, edges.derates, strict=True):
        crosses, degree = dimension in edges.crossing, strategy.degree(dimension)
        there = derate.inside and system.n_chips > 1
        inside = inner.bandwidth / derate.inside if there else ABSENT
        bandwidth, level = inside, inner
        if crosses:
            there = derate.between and outer.size != 1
            bandwidth, level = (outer.bandwidth / derate.between if there else ABSENT), outer
            if derate.inside and inner.size != 1:
                bandwidth = min(bandwidth, inside)
        joined = replace(
            level.plain, kind=DimensionKind.SWITCH, shape=(), size=degree, bandwidth=bandwidth
        )
        found[dimension] = Peers(
            name=f"{dimension.value}: {WHERE[crosses]}",
            group=Group(extents=(Extent(dimension=joined, size=degree, members=degree),)),
            all_reduce=AllReduceAlgorithm.RING,
        )
    return found
