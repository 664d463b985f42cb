"""A mesh or torus of one to three axes, cut into packages, and the load of its links.

Chips stand on a grid; ``package`` by ``package`` of them share a package. A link that joins two
packages is slower and dearer than one inside, so the loads of both are told apart. Routes go
along the first axis, then the second, then the third (X-Y routing, ``dally2004``, chapter 8); on
a torus the shorter way round.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import require, require_whole
from crosstack.machine.network import MOST_AXES

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Chips on a mesh or torus, in packages.

    ``package``: chips of one package along every axis [1]; ``packages``: packages along every axis;
    empty is one package [1]; ``torus``: whether the last chip of every axis is joined to the first.
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
        every = f"{axes}, as many as package has"
        require(len(self.packages) == axes, "packages", self.packages, every)
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

    An edge adds one to each link it passes: a difference of +1 where it enters and -1 where it
    leaves, summed along the axis. On a torus a path that closes the ring is two pieces
    (``dally2004``, chapter 8).

    Parameters
    ----------
    starts, ends : int array, shape (candidate, edge, axis)
        Coordinates of both ends of every edge, for any number of candidate placements. [1]
    """
    at, counts = starts.copy(), []
    for axis in range(len(grid.shape)):
        counts.append(_axis_loads(grid, at, ends[..., axis], axis))
        at[..., axis] = ends[..., axis]
    return LinkLoads(grid=grid, counts=tuple(counts))


def _axis_loads(grid: Grid, at: Whole, to: Whole, axis: int) -> Whole:
    """Loads of the links of one axis, as in `LinkLoads.counts`."""
    shape, size = list(grid.shape), grid.shape[axis]
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
    for direction, (ways, first, last) in enumerate(((up, start, to), (down, to, start))):
        around = ways & (last < first)
        add(ways & ~around, first, last, direction)
        add(around, first, whole, direction)
        add(around, none, last, direction)
    summed = difference.reshape(extents).cumsum(axis=axis + 2)
    return np.compress(np.arange(size + 1) < size, summed, axis=axis + 2)
