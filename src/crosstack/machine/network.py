"""How the chips of one level of the network are joined: a row for every kind.

A row says what links a chip has, along which axes, what of them leads out of a pod, and how many
links and switch ports are paid for. All else follows from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from crosstack.errors import (
    InputError,
    Problem,
    require,
    require_quantity,
    require_whole,
    unknown_name,
)

MOST_AXES = 3


class DimensionKind(StrEnum):
    """How the chips of one dimension, or equal chips of what the inner ones join, are joined.

    By links to neighbours or to all: ``ring``, ``mesh``, ``torus``, ``fully_connected``. By a port
    of every chip to switches: ``switch``, one without limits of its own; ``fat_tree``
    (``leiserson1985``) and ``dragonfly`` (``kim2008dragonfly``), see `Dimension.oversubscription`;
    ``rail_only`` (``wang2023railonly``), a switch for the chips of one place in every server,
    and no way from one rail to another but inside the servers; ``rail_optimised``, the same rails
    joined by a second tier.
    """

    RING = "ring"
    SWITCH = "switch"
    FULLY_CONNECTED = "fully_connected"
    MESH = "mesh"
    TORUS = "torus"
    FAT_TREE = "fat_tree"
    DRAGONFLY = "dragonfly"
    RAIL_ONLY = "rail_only"
    RAIL_OPTIMISED = "rail_optimised"


class Joint(StrEnum):
    """What links a chip has.

    ``port``: one, to a switch that reaches all others; ``ring``: one to each of two neighbours;
    ``line``: as a ring, but the ends have one; ``pairs``: one to each other chip.
    """

    PORT = "port"
    RING = "ring"
    LINE = "line"
    PAIRS = "pairs"

    def links(self, chips: int) -> int:
        """Return how many each of so many chips has at most; a ring of two: one each way. [1]"""
        match self:
            case Joint.PORT:
                return 1
            case Joint.RING:
                return 2 if chips > 1 else 0
            case Joint.LINE:
                return min(2, chips - 1)
            case Joint.PAIRS:
                return chips - 1
            case _:
                assert_never(self)


class Medium(StrEnum):
    """What links are, as far as a library of collectives knows them: its protocols' latencies.

    See `crosstack.model.collectives.protocols`.
    """

    NVLINK = "nvlink"
    NETWORK = "network"


# ---------------------------------------------------------------- the table of kinds


@dataclass(frozen=True, slots=True, kw_only=True)
class Pods:
    """Parts of a network with fewer links between them than inside.

    ``hold_all``: whether a pod whose size is not given holds all members; else one, so that every
    message leaves its pod; ``crossings``: how many times a message of neighbours in two pods goes
    from one pod to another [1].
    """

    hold_all: bool = False
    crossings: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class KindRow:
    """What one kind of network is.

    ``joint``: how chips are joined along every axis; ``bill``: links and switch ports that are paid
    for, of dimension ``i`` of dimensions of so many chips, ``(level, sizes, i)`` [1]; ``axis``: the
    kind of one axis by itself, of a kind with a shape of several; None: there is one; ``pods``:
    what has fewer links to the rest.
    """

    joint: Joint
    bill: Callable[[NetworkLevel, tuple[int, ...], int], tuple[float, float]]
    axis: DimensionKind | None = None
    pods: Pods | None = None

    @property
    def by_neighbours(self) -> bool:
        """Whether messages pass other chips."""
        return self.joint in (Joint.RING, Joint.LINE)

    @property
    def even(self) -> bool:
        """Whether every chip is as far from each other, where nothing is oversubscribed."""
        direct = self.axis is None and not self.by_neighbours
        return direct and (self.pods is None or self.pods.crossings == 1)


def _ring_bill(level: NetworkLevel, sizes: tuple[int, ...], i: int) -> tuple[float, float]:
    """A link a chip; two ports a ring, as published (``dfmodel_code``)."""
    chips = math.prod(sizes)
    return chips, 2 * (chips // sizes[i])


def _pairs_bill(level: NetworkLevel, sizes: tuple[int, ...], i: int) -> tuple[float, float]:
    """Both ways of s (s - 1) / 2 links; s^2 ports but of the innermost (``dfmodel_code``).

    Outer dimensions join whole inner groups, so they are counted once a group, not once a chip.
    """
    size, outer = sizes[i], math.prod(sizes[i + 1 :])
    return size * (size - 1) * outer, 0 if i == 0 else size * size * outer


def _switch_bill(level: NetworkLevel, sizes: tuple[int, ...], i: int) -> tuple[float, float]:
    """A link and a port a member; counted once a group as well (``dfmodel_code``)."""
    members = math.prod(sizes[i:])
    return members, members


def _torus_bill(level: NetworkLevel, sizes: tuple[int, ...], i: int) -> tuple[float, float]:
    """A link a chip along each axis."""
    return math.prod(sizes) * sum(axis > 1 for axis in level.axes(sizes[i])), 0


def _mesh_bill(level: NetworkLevel, sizes: tuple[int, ...], i: int) -> tuple[float, float]:
    """As a torus, but at the ends."""
    return math.prod(sizes) * sum((axis - 1) / axis for axis in level.axes(sizes[i])), 0


def _rails_bill(level: NetworkLevel, sizes: tuple[int, ...], i: int) -> tuple[float, float]:
    """A link and a port a chip (``wang2023railonly``)."""
    return math.prod(sizes), math.prod(sizes)


def _tree_bill(level: NetworkLevel, sizes: tuple[int, ...], i: int) -> tuple[float, float]:
    """Above a chip's first port a link for every ``oversubscription`` chips (``leiserson1985``).

    It joins the pods, has a port at both ends, and is not there where there is one pod.
    """
    chips, up = math.prod(sizes), 0.0 if level.one_pod(sizes[i]) else 1 / level.oversubscription
    return chips * (1 + up), chips * (1 + 2 * up)


def _dragonfly_bill(level: NetworkLevel, sizes: tuple[int, ...], i: int) -> tuple[float, float]:
    """Routers of a balanced one (``kim2008dragonfly``, section 3).

    They have twice as many ports to their group, half of a link each, as chips, and one to another
    group for every ``oversubscription`` of them.
    """
    chips, out = math.prod(sizes), 0.0 if level.one_pod(sizes[i]) else 1 / level.oversubscription
    return chips * (1 + (1 + out / 2)), chips * (1 + (2 + out))


_K = DimensionKind
KINDS: dict[DimensionKind, KindRow] = {
    _K.RING: KindRow(joint=Joint.RING, bill=_ring_bill),
    _K.SWITCH: KindRow(joint=Joint.PORT, bill=_switch_bill),
    _K.FULLY_CONNECTED: KindRow(joint=Joint.PAIRS, bill=_pairs_bill),
    _K.MESH: KindRow(joint=Joint.LINE, bill=_mesh_bill, axis=_K.MESH),
    _K.TORUS: KindRow(joint=Joint.RING, bill=_torus_bill, axis=_K.RING),
    _K.FAT_TREE: KindRow(joint=Joint.PORT, bill=_tree_bill, pods=Pods()),
    # A message that keeps off the direct way between two groups goes by way of a third.
    _K.DRAGONFLY: KindRow(joint=Joint.PORT, bill=_dragonfly_bill, pods=Pods(crossings=2.0)),
    _K.RAIL_ONLY: KindRow(joint=Joint.PORT, bill=_rails_bill),
    _K.RAIL_OPTIMISED: KindRow(joint=Joint.PORT, bill=_tree_bill, pods=Pods(hold_all=True)),
}


def _names(chosen: Callable[[KindRow], bool]) -> str:
    *first, last = (kind.value for kind, row in KINDS.items() if chosen(row))
    return f"a {', '.join(first)} or {last}"


_GRIDS = _names(lambda row: row.axis is not None)
_WITH_PODS = _names(lambda row: row.pods is not None)


# ---------------------------------------------------------------- one level


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLevel:
    """How the chips of one level of the network are joined.

    ``kind``: links to neighbours, to all, or to switches; ``shape``: chips along every axis of a
    mesh or torus; empty is two axes, as near to a square as the number of chips allows [1];
    ``oversubscription``: how many times as much the members of a pod can send as its links to other
    pods carry; a dragonfly is plain at 1, tapered above [1]; ``pod_size``: members of a pod: of a
    fat tree below one leaf switch, of a rail-optimised network below one switch of a rail, of a
    dragonfly in one group. Where it is not given, all messages of a fat tree or dragonfly leave
    their pod, none of a rail [1]; ``reduces``: whether the switches add what passes through them,
    and copy it.
    """

    kind: DimensionKind
    shape: tuple[int, ...] = ()
    oversubscription: float = 1.0
    pod_size: int | None = None
    reduces: bool = False

    def __post_init__(self) -> None:
        """Check that nothing is said of other kinds."""
        given, kind, row = "x".join(map(str, self.shape)), self.kind, KINDS[self.kind]
        of_grids = f"that of {_GRIDS}, not of {kind}"
        require(row.axis is not None or not given, "shape", given, of_grids)
        require(len(self.shape) <= MOST_AXES, "shape", given, f"1 to {MOST_AXES} axes")
        for size in self.shape:
            require_whole("shape", size, what="chips")
        over, pods = self.oversubscription, row.pods is not None
        require_quantity("oversubscription", over, "1")
        require(over >= 1, "oversubscription", over, "1 or more")
        of_pods = f"that of {_WITH_PODS}, not of {kind}"
        require(pods or over == 1, "oversubscription", over, of_pods)
        require(pods or self.pod_size is None, "pod_size", self.pod_size, of_pods)
        if self.pod_size is not None:
            require_whole("pod_size", self.pod_size, what="members")
        where = f"false where there is no switch, as of {kind}"
        require(row.joint is Joint.PORT or not self.reduces, "reduces", self.reduces, where)

    def axes(self, size: int) -> tuple[int, ...]:
        """Return the chips along every axis of ``size`` chips: one, but of a mesh or torus. [1]

        Raises `InputError` if the shape is that of another number of chips.
        """
        if KINDS[self.kind].axis is None:
            return (size,)
        if not self.shape:
            side = next(a for a in range(math.isqrt(size), 0, -1) if size % a == 0)
            return size // side, side
        if math.prod(self.shape) != size:
            message = f"got {'x'.join(map(str, self.shape))}; allowed: a shape of {size} chips."
            raise InputError(Problem("shape", message))
        return self.shape

    def links(self, size: int) -> int:
        """Return how many links, or ports, each of ``size`` chips has; at least 1. [1]"""
        joint = KINDS[self.kind].joint
        return max(1, sum(joint.links(extent) for extent in self.axes(size)))

    def one_pod(self, size: int) -> bool:
        """Whether a pod is known to hold ``size`` members."""
        return self.pod_size is not None and size <= self.pod_size


RING = NetworkLevel(kind=DimensionKind.RING)
SWITCH = NetworkLevel(kind=DimensionKind.SWITCH)


def parse_shape(text: str) -> tuple[int, ...]:
    """Read chips along every axis: ``8``, ``4x4`` or ``4x4x2``; `InputError` if it is not that."""
    parts = text.lower().split("x")
    if len(text) > 40 or not all(part.isascii() and part.isdecimal() for part in parts):
        allowed = "whole numbers joined by x, such as 8, 4x4 or 4x4x2"
        raise InputError(Problem("shape", f"got {text[:40]!r}; allowed: {allowed}."))
    return tuple(int(part) for part in parts)


def parse_levels(text: str) -> tuple[NetworkLevel, NetworkLevel | None]:
    """Read how chips of a package are joined, and packages: ``ring`` or ``torus:4x4,fat_tree:2``.

    Behind the kind stands the shape of a mesh or torus, or the oversubscription. Raises
    `InputError` if there is no such topology, a shape is none, or there are more than two levels.
    """
    parts = text[:200].split(",")
    if len(parts) > 2:
        allowed = "one level or two, of a package and between packages"
        raise InputError(Problem("topology", f"got {len(parts)} levels; allowed: {allowed}."))
    found = [_level(part) for part in parts]
    return found[0], found[1] if len(found) == 2 else None


def _level(text: str) -> NetworkLevel:
    name, _, more = text.strip().partition(":")
    if name not in list(DimensionKind):
        raise unknown_name("topology", "topology is", name, list(DimensionKind))
    kind = DimensionKind(name)
    if not more:
        return NetworkLevel(kind=kind)
    if KINDS[kind].pods is None:
        return NetworkLevel(kind=kind, shape=parse_shape(more))
    try:
        times = float(more[:40])
    except ValueError:
        message = f"got {more[:40]!r}; allowed: a number."
        raise InputError(Problem("oversubscription", message)) from None
    return NetworkLevel(kind=kind, oversubscription=times)
