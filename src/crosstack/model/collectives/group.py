"""Chips that communicate with each other, level by level of the network.

Ranks are numbered along an order of parallelisms, the innermost first, and fill the innermost
level first. The chips of one parallelism then lie on the levels with so many members each, so far
apart; those in between belong to other groups, which communicate at the same time and share what
links they cross.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul

from crosstack.errors import InputError, Problem, require, require_whole
from crosstack.machine.network import KINDS, Joint, Medium, Pods
from crosstack.machine.system import Dimension, DimensionArrays
from crosstack.model.collectives.protocols import LL, SIMPLE
from crosstack.model.collectives.times import NONE, Arrival


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a group has of one level: ``members``, ``stride`` apart, of ``size``. [1]"""

    dimension: Dimension
    size: int
    members: int
    stride: int = 1

    def __post_init__(self) -> None:
        """Check that the level holds them."""
        for name in ("size", "members", "stride"):
            require_whole(name, getattr(self, name), what="chips")
        held = self.members == 1 or (self.members - 1) * self.stride < self.size
        require(held, "members", self.members, f"so many that {self.size} chips hold them")


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Chips that communicate, by level, innermost first.

    ``torn`` is how many there are where blocks of a level hold different numbers of them, which
    then send through the slowest level one by one; None where all blocks hold the same.
    """

    extents: tuple[Extent, ...] = ()
    torn: int | None = None

    @property
    def many(self) -> bool:
        """Whether links are arrays, of many machines."""
        return any(isinstance(extent.dimension, DimensionArrays) for extent in self.extents)

    @property
    def members(self) -> int:
        """All chips of the group. [1]"""
        return self.torn or math.prod(extent.members for extent in self.extents)


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """Members of a group that are joined one way, by links of one ``bandwidth`` [B/s].

    ``near_share`` and ``far_share`` are how many times as much as a message of its own a link, or
    port, carries: where messages go to a neighbour in the order, and where they go anywhere.
    ``reduces``: whether a switch adds them. ``latency`` is that of a message [s], and both are for
    members ``stride`` apart on a grid. [1] They are arrays where the dimension's links are.
    ``medium``, ``pace``, ``achieved`` and ``adding`` are those of
    `crosstack.machine.system.Dimension`; ``bandwidth`` is before them.
    """

    joint: Joint
    members: int
    bandwidth: float
    stride: int = 1
    latency: float = 0.0
    near_share: float = 1.0
    far_share: float = 1.0
    reduces: bool = False
    medium: Medium | None = None
    pace: float = 1.0
    achieved: float = 1.0
    adding: float = 1.0

    @property
    def slowness(self) -> float:
        """What steps of a library take over those of its table, which has links' latencies. [1]"""
        assert self.medium is not None
        return self.pace * self.latency / LL.steps[self.medium].ring


# ---------------------------------------------------------------- one level as axes


def axes_of(extent: Extent) -> tuple[Axis, ...]:
    """Return how the members of one level are joined: one axis, or those of a mesh or torus.

    A group whose members are s apart on a ring, or on an axis, is one of s that lie side by side:
    each link carries the messages of all. Members that close no ring are a line.

    A pod of a fat tree, or rail-optimised network, of g members has 1 / oversubscription of their
    bandwidth to other pods; where its size is not known, all messages of a fat tree leave their
    pod. Of a ring one message leaves a pod for each of the min(s, g) groups in it; of an all-to-all
    among e, of which m share a pod, the share (e - m) / (e - 1). The groups of a dragonfly are such
    pods. Messages of all to all spread over its links by themselves; those of neighbours all go
    from one group to the next, so they are sent by way of a third group, and cross twice.

    Source: leiserson1985 (fat trees), kim2008dragonfly (section 4), wang2023railonly, dally2004
    (chapter 8).
    """
    if extent.members == 1:
        return ()
    row = KINDS[extent.dimension.kind]
    if row.by_neighbours:
        return _grid(extent, closed=row.joint is Joint.RING)
    return (_axis(extent, row.joint) if row.pods is None else _thinned(extent, row.pods),)


def _axis(extent: Extent, joint: Joint, near: float = 1.0, far: float = 1.0) -> Axis:
    dimension = extent.dimension
    return Axis(
        joint=joint,
        members=extent.members,
        bandwidth=dimension.bandwidth,
        latency=dimension.hop_latency,
        near_share=near,
        far_share=far,
        reduces=dimension.reduces,
        medium=dimension.medium,
        pace=dimension.pace,
        achieved=dimension.achieved,
        adding=dimension.adding,
    )


def _thinned(extent: Extent, pods: Pods) -> Axis:
    """Return members that reach other pods over fewer links."""
    members, stride = extent.members, extent.stride
    pod = extent.dimension.pod_size or (extent.size if pods.hold_all else 1)
    if pod % (members * stride) == 0:
        return _axis(extent, Joint.PORT)
    thin = extent.dimension.oversubscription
    together = min(members, max(1, pod // stride))
    leaving = (members - together) / (members - 1)
    beside = min(stride, pod) / pod
    near, far = pods.crossings * thin * beside, thin * leaving
    return _axis(extent, Joint.PORT, near=max(1.0, near), far=max(1.0, far))


def _grid(extent: Extent, *, closed: bool) -> tuple[Axis, ...]:
    """Return the members on every axis of a ring, mesh or torus."""
    shape = extent.dimension.axes(extent.size)
    found: list[Axis] = []
    first, last = extent.stride, extent.stride * extent.members
    below = 1
    for size in shape:
        low, high = max(first, below), min(last, below * size)
        if high > low:
            if low % below or high % low or (below * size) % high:
                return (_beside(extent, extent.members, extent.stride, closed=False),)
            members, stride = high // low, low // below
            found.append(_beside(extent, members, stride, closed=closed and high == below * size))
        below *= size
    return tuple(found)


def _beside(extent: Extent, members: int, stride: int, *, closed: bool) -> Axis:
    """Return members ``stride`` apart on one axis, whose links all groups in between cross."""
    dimension = extent.dimension
    return Axis(
        joint=Joint.RING if closed else Joint.LINE,
        members=members,
        bandwidth=dimension.bandwidth / stride,
        stride=stride,
        latency=dimension.hop_latency * stride,
        achieved=dimension.achieved,
    )


def neighbour_link(extent: Extent, arrival: Arrival = NONE) -> tuple[float, float]:
    """Return bandwidth [B/s] and latency [s] from a member of a group to the next on one level.

    Members that are some hops apart send over all links in between, as do those between them.
    By a library of collectives a message is a kernel, which takes it in while it arrives.
    """
    axes, dimension = axes_of(extent), extent.dimension
    share = max((axis.near_share * axis.stride for axis in axes), default=1.0)
    bandwidth = dimension.achieved * dimension.bandwidth / share
    if dimension.medium is not None:
        step = axes[0].slowness * SIMPLE.steps[dimension.medium].ring if axes else 0.0
        return bandwidth, dimension.pace * SIMPLE.start + step
    hops = max((axis.stride for axis in axes), default=1)
    if arrival.many or arrival != NONE:
        bandwidth = 1 / (1 / bandwidth + arrival.per_byte(1.0))
    return bandwidth, hops * dimension.hop_latency + arrival.latency


# ---------------------------------------------------------------- groups of an order of ranks


def filled(degrees: Sequence[int], sizes: Sequence[int]) -> tuple[int, ...]:
    """Return the ranks that one block of every level holds, of ``degrees`` on ``sizes``. [1]

    The largest block of whole inner parallelisms that a level holds is not torn: the level takes as
    many as fit and leaves the rest of its chips idle, unless there are too few chips for that. Both
    are innermost first. Raises `InputError` if there are more ranks than chips.
    """
    ranks = math.prod(degrees)
    if ranks > math.prod(sizes):
        message = f"got {ranks} ranks; allowed: at most {math.prod(sizes)}, one a chip."
        raise InputError(Problem("degrees", message))
    blocks, held = [], 1
    for level, size in enumerate(sizes):
        whole = size * held
        block = max(s for s in accumulate(degrees, mul, initial=1) if s <= whole)
        kept = whole // block * block
        held = kept if ranks <= kept * math.prod(sizes[level + 1 :]) else whole
        blocks.append(held)
    return tuple(blocks)


def group_of(
    network: Sequence[Dimension], sizes: Sequence[int], degrees: Sequence[int], number: int
) -> Group:
    """Return the group of parallelism ``number`` of an order of ranks.

    Raises `InputError` if there are more ranks than chips.

    Parameters
    ----------
    network : sequence of Dimension
        The levels, innermost first.
    sizes : sequence of int
        Chips, or blocks of the level below, that each level joins. [1]
    degrees : sequence of int
        Of every parallelism, innermost first. [1]
    """
    stride = math.prod(degrees[:number])
    last = stride * degrees[number]
    extents, below, even = [], 1, True
    for dimension, size, held in zip(network, sizes, filled(degrees, sizes), strict=True):
        low, high = max(stride, below), min(last, held)
        even = even and all(_nest(held, length) for length in (stride, last))
        if last < below and below % last and size > 1:  # some group has chips in two blocks
            extents.append(Extent(dimension=dimension, size=size, members=2))
        elif high > low:
            members = -(-high // low)
            apart = min(-(-low // below), max(1, (size - 1) // max(1, members - 1)))
            extents.append(Extent(dimension=dimension, size=size, members=members, stride=apart))
        below = held
    return Group(extents=tuple(extents), torn=None if even else degrees[number])


def domain_group(
    network: Sequence[Dimension], domain_size: int, inside: int, members: int, *, last: int
) -> Group:
    """Return the group of one parallelism where a domain reaches over the innermost links.

    Chips of one domain reach each other over level 0, others over the level that the parallelism
    ends on, or the next where that is level 0. A domain holds its chips once: what inner
    parallelisms leave of it is shared. Source: wang2023railonly.

    Parameters
    ----------
    domain_size, inside : int
        Chips of a high-bandwidth domain, and ranks of all inner parallelisms. [1]
    members, last : int
        Of the group; the outermost level that the parallelism lies on. [1]
    """
    shared = min(max(domain_size // inside, 1), members)
    slow = network[min(max(last, 1), len(network) - 1)]
    reached = (network[0], shared), (slow, -(-members // shared))
    return Group(
        extents=tuple(Extent(dimension=d, size=count, members=count) for d, count in reached)
    )


def _nest(a: int, b: int) -> bool:
    """Whether one length divides the other, so that blocks of both have common borders."""
    return a % b == 0 or b % a == 0
