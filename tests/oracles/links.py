"""Links that are alike wherever chips are, for steps whose machine does not matter."""

from __future__ import annotations

from crosstack.machine.packages import ABSENT
from crosstack.machine.system import AllReduceAlgorithm, Dimension, DimensionKind
from crosstack.mapping.strategy import ParallelDimension, Strategy
from crosstack.model.collectives import Extent, Group
from crosstack.published.deepflow.distributed import Peers

__all__ = ["alike", "ring"]


def ring(
    members: int,
    bandwidth: float,
    latency: float = 0.0,
    *,
    name: str = "link",
    kind: DimensionKind = DimensionKind.SWITCH,
) -> Peers:
    """Return chips that send from port to port, round after round; no bandwidth is no link."""
    level = Dimension(kind=kind, size=members, bandwidth=max(bandwidth, ABSENT), latency=latency)
    extent = Extent(dimension=level, size=members, members=members)
    return Peers(name=name, group=Group(extents=(extent,)), all_reduce=AllReduceAlgorithm.RING)


def alike(
    strategy: Strategy, bandwidth: float, latency: float = 0.0
) -> dict[ParallelDimension, Peers]:
    """Return a `ring` for every dimension of a strategy."""
    return {
        d: ring(strategy.degree(d), bandwidth, latency, name=d.value) for d in ParallelDimension
    }
