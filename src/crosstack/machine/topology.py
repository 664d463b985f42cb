"""A mesh or torus of one to three axes, cut into packages, and the load of its links.

Chips stand on a grid; ``package`` by ``package`` of them share a package. A link that joins two
packages is slower and dearer than one inside, so the loads of both are told apart. Routes go
along the first axis, then the second, then the third (X-Y routing, ``dally2004``, chapter 8); on
a torus the shorter way round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import (
    InputError,
    Problem,
    require,
    require_quantity,
    require_whole,
    unknown_name,
)

__all__ = [
    "GRIDS",
    "RING",
    "SWITCH",
    "DimensionKind",
    "Grid",
    "LinkLoads",
    "NetworkLevel",
    "link_loads",
    "parse_levels",
    "parse_shape",
]

Whole = NDArray[np.int64]
MOST_AXES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Chips on a mesh or torus, in packages.

    Parameters
    ----------
    package : tuple of int
        Chips of one package along every axis. [1]
    packages : tuple of int
        Packages along every axis; empty is one package. [1]
    torus : bool
        Whether the last chip of every axis is joined to the first.
    """

    package: tuple[int, ...]
    packages: tuple[int, ...] = ()
    torus: bool = False

    def __post_init__(self) -> None:
        """Check every axis."""
        axes = len(self.package)
        require(1 <= axes <= MOST_AXES, "package", self.package, f"1 to {MOST_AXES} axes")
        if not self.packages:
            object.__setattr__(self, "packages", (1,) * axes)
        require(
            len(self.packages) == axes, "packages", self.packages, f"{axes}, as many as package has"
        )
        for axis in range(axes):
            require_whole(f"package[{axis}]", self.package[axis], what="chips")
            require_whole(f"packages[{axis}]", self.packages[axis], what="packages")
        require(self.n_chips <= 2**20, "package", self.shape, "at most 2^20 chips in all")

    @property
    def shape(self) -> tuple[int, ...]:
        """Chips along every axis, over all packages. [1]"""
        return tuple(a * b for a, b in zip(self.package, self.packages, strict=True))

    @property
    def n_chips(self) -> int:
        """All chips. [1]"""
        return math.prod(self.shape)

    @property
    def n_packages(self) -> int:
        """All packages. [1]"""
        return math.prod(self.packages)

    def is_between(self, axis: int) -> NDArray[np.bool_]:
        """Whether link k of an axis, from chip k to k + 1, joins two packages.

        The last link is the one that closes a torus.
        """
        after = np.arange(1, self.shape[axis] + 1)
        return np.asarray((after % self.package[axis] == 0) & (self.packages[axis] > 1))


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


GRIDS = (DimensionKind.MESH, DimensionKind.TORUS)
WITH_PODS = (DimensionKind.FAT_TREE, DimensionKind.DRAGONFLY, DimensionKind.RAIL_OPTIMISED)
SWITCHED = (DimensionKind.SWITCH, DimensionKind.RAIL_ONLY, *WITH_PODS)


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLevel:
    """How the chips of one level of the network are joined.

    Parameters
    ----------
    kind : DimensionKind
        Links to neighbours, to all, or to switches.
    shape : tuple of int
        Chips along every axis of a mesh or torus; empty is two axes, as near to a square as the
        number of chips allows. [1]
    oversubscription : float
        How many times as much the members of a pod can send as its links to other pods carry; a
        dragonfly is plain at 1, tapered above. [1]
    pod_size : int or None
        Members of a pod: of a fat tree below one leaf switch, of a rail-optimised network below
        one switch of a rail, of a dragonfly in one group. Where it is not given, all messages of a
        fat tree or dragonfly leave their pod, none of a rail. [1]
    reduces : bool
        Whether the switches add what passes through them, and copy it.
    """

    kind: DimensionKind
    shape: tuple[int, ...] = ()
    oversubscription: float = 1.0
    pod_size: int | None = None
    reduces: bool = False

    def __post_init__(self) -> None:
        """Check that nothing is said of other kinds."""
        given, kind = "x".join(map(str, self.shape)), self.kind
        of_grids = f"that of a mesh or torus, not of {kind}"
        require(kind in GRIDS or not given, "shape", given, of_grids)
        require(len(self.shape) <= MOST_AXES, "shape", given, f"1 to {MOST_AXES} axes")
        for size in self.shape:
            require_whole("shape", size, what="chips")
        over, pods = self.oversubscription, kind in WITH_PODS
        require_quantity("oversubscription", over, "1")
        require(over >= 1, "oversubscription", over, "1 or more")
        of_pods = f"that of a fat tree, dragonfly or rail-optimised network, not of {kind}"
        require(pods or over == 1, "oversubscription", over, of_pods)
        require(pods or self.pod_size is None, "pod_size", self.pod_size, of_pods)
        if self.pod_size is not None:
            require_whole("pod_size", self.pod_size, what="members")
        where = f"false where there is no switch, as of {kind}"
        require(kind in SWITCHED or not self.reduces, "reduces", self.reduces, where)

    def axes(self, size: int) -> tuple[int, ...]:
        """Return the chips along every axis of ``size`` chips: one, but of a mesh or torus. [1]

        Raises
        ------
        InputError
            If the shape is that of another number of chips.
        """
        if self.kind not in GRIDS:
            return (size,)
        if not self.shape:
            side = next(a for a in range(math.isqrt(size), 0, -1) if size % a == 0)
            return size // side, side
        if math.prod(self.shape) != size:
            message = f"got {'x'.join(map(str, self.shape))}; allowed: a shape of {size} chips."
            raise InputError(Problem("shape", message))
        return self.shape

    def links(self, size: int) -> int:
        """Return how many links, or ports, each of ``size`` chips has; at least 1. [1]

        A ring of two has a link each way round.
        """
        match self.kind:
            case DimensionKind.RING | DimensionKind.TORUS:
                found = sum(2 for extent in self.axes(size) if extent > 1)
            case DimensionKind.MESH:
                found = sum(min(2, extent - 1) for extent in self.axes(size))
            case DimensionKind.FULLY_CONNECTED:
                found = size - 1
            case (
                DimensionKind.SWITCH
                | DimensionKind.FAT_TREE
                | DimensionKind.DRAGONFLY
                | DimensionKind.RAIL_ONLY
                | DimensionKind.RAIL_OPTIMISED
            ):
                found = 1
            case _:
                assert_never(self.kind)
        return max(1, found)


RING = NetworkLevel(kind=DimensionKind.RING)
SWITCH = NetworkLevel(kind=DimensionKind.SWITCH)


def parse_shape(text: str) -> tuple[int, ...]:
    """Read chips along every axis: ``8``, ``4x4`` or ``4x4x2``.

    Raises
    ------
    InputError
        If the text is not that.
    """
    parts = text.lower().split("x")
    if len(text) > 40 or not all(part.isascii() and part.isdecimal() for part in parts):
        allowed = "whole numbers joined by x, such as 8, 4x4 or 4x4x2"
        raise InputError(Problem("shape", f"got {text[:40]!r}; allowed: {allowed}."))
    return tuple(int(part) for part in parts)


def parse_levels(text: str) -> tuple[NetworkLevel, NetworkLevel | None]:
    """Read how chips of a package are joined, and packages: ``ring`` or ``torus:4x4,fat_tree:2``.

    Behind the kind stands the shape of a mesh or torus, or the oversubscription.

    Raises
    ------
    InputError
        If there is no such topology, a shape is none, or there are more than two levels.
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
    if kind in WITH_PODS:
        return NetworkLevel(kind=kind, oversubscription=parse_number("oversubscription", more))
    return NetworkLevel(kind=kind, shape=parse_shape(more))


def parse_number(field: str, text: str) -> float:
    """Read a plain number.

    Raises
    ------
    InputError
        If the text is not that.
    """
    try:
        return float(text[:40])
    except ValueError:
        raise InputError(Problem(field, f"got {text[:40]!r}; allowed: a number.")) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkLoads:
    """How many logical edges go over every link.

    ``counts[axis]`` has shape (candidate, direction, chips of the grid); entry k along the axis is
    the link from chip k to chip k + 1, direction 0 upwards and 1 downwards, or both as one. [1]
    """

    grid: Grid
    counts: tuple[Whole, ...]

    def largest(self, *, between: bool) -> Whole:
        """Largest load inside (or ``between``) packages, for every candidate. [1]"""
        worst = np.zeros(self.counts[0].shape[0], np.int64)
        for axis, counts in enumerate(self.counts):
            kept = self.grid.is_between(axis)
            kept = kept if between else ~kept
            picked = np.compress(kept, counts, axis=axis + 2)
            if picked.size:
                worst = np.maximum(worst, picked.reshape(len(worst), -1).max(axis=1))
        return worst


def link_loads(grid: Grid, starts: Whole, ends: Whole) -> LinkLoads:
    """Count the logical edges on every link.

    Parameters
    ----------
    grid : Grid
        The chips and how they are joined.
    starts, ends : int array, shape (candidate, edge, axis)
        Coordinates of both ends of every edge, for any number of candidate placements. [1]

    Notes
    -----
    An edge adds one to each link it passes: a difference of +1 where it enters and -1 where it
    leaves, summed along the axis. On a torus a path that closes the ring is two pieces.

    References
    ----------
    dally2004, chapter 8
    """
    at = starts.copy()
    counts = []
    for axis, size in enumerate(grid.shape):
        counts.append(_axis_loads(grid, at, ends[..., axis], axis, size))
        at[..., axis] = ends[..., axis]
    return LinkLoads(grid=grid, counts=tuple(counts))


def _axis_loads(grid: Grid, at: Whole, to: Whole, axis: int, size: int) -> Whole:
    """Loads of the links of one axis, as in `LinkLoads.counts`."""
    shape = list(grid.shape)
    shape[axis] = size + 1  # the difference behind the last link
    extents = (at.shape[0], 2, *shape)
    difference = np.zeros(math.prod(extents), np.int64)
    start = at[..., axis]
    step = to - start
    up = step > 0
    if grid.torus:
        forward = step % size  # half way round, the way that closes no ring is taken
        up = (forward > 0) & ((2 * forward < size) | ((2 * forward == size) & (step > 0)))
    down = (step != 0) & ~up
    candidate = np.broadcast_to(np.arange(at.shape[0])[:, None], start.shape)

    def add(chosen: NDArray[np.bool_], first: Whole, last: Whole, direction: int) -> None:
        """Add one to the links ``first`` to ``last`` - 1 of every chosen edge."""
        others = [at[..., other][chosen] for other in range(len(grid.shape))]
        for sign, end in ((1, first), (-1, last)):
            others[axis] = end[chosen]
            ways = np.full(len(others[axis]), direction)
            place = np.ravel_multi_index((candidate[chosen], ways, *others), extents)
            difference[:] += sign * np.bincount(place, minlength=len(difference))

    none, whole = np.zeros_like(start), np.full_like(start, size)
    around = up & (to < start)
    add(up & ~around, start, to, 0)
    add(around, start, whole, 0)
    add(around, none, to, 0)
    around = down & (to > start)
    add(down & ~around, to, start, 1)
    add(around, none, start, 1)
    add(around, to, whole, 1)
    summed = difference.reshape(extents).cumsum(axis=axis + 2)
    return np.compress(np.arange(size + 1) < size, summed, axis=axis + 2)
