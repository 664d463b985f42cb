"""The space of a search: groups of shares, each group sharing out one whole.

Area, power and edge of a chip are such groups; so is a range, shared between its two ends. A point
is all shares in a row; many points are an array, a point a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require, require_quantity

__all__ = ["Group", "SimplexSpace"]

Floats = NDArray[np.float64]
SMALLEST = 1e-6  # share of a part in its group that a start is lifted to: its logarithm is needed


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """``parts`` that share out ``total``. [1]"""

    name: str
    parts: tuple[str, ...]
    total: float = 1.0

    def __post_init__(self) -> None:
        """Check that there is something to share out."""
        require(len(self.parts) >= 2, "parts", self.parts, "two or more, or nothing is free")
        require(len(set(self.parts)) == len(self.parts), "parts", self.parts, "each once")
        require_quantity("total", self.total, "1", above_zero=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimplexSpace:
    """A product of simplices: every share 0 or above, those of a group adding up to its total."""

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        """Check the names of the groups."""
        names = [group.name for group in self.groups]
        require(len(set(names)) == len(names), "groups", names, "each name once")

    @property
    def n_shares(self) -> int:
        """Length of a point. [1]"""
        return sum(len(group.parts) for group in self.groups)

    @property
    def slices(self) -> tuple[slice, ...]:
        """Where each group stands in a point."""
        ends = np.cumsum([0, *(len(group.parts) for group in self.groups)]).tolist()
        return tuple(slice(start, end) for start, end in pairwise(ends))

    @property
    def names(self) -> tuple[str, ...]:
        """``group.part`` of every share."""
        return tuple(f"{group.name}.{part}" for group in self.groups for part in group.parts)

    def project(self, points: Floats) -> Floats:
        """Scale the shares of every group so that they add up to its total.

        This is the projection of ``ardalani2022deepflow``, equation 6, and of its code.
        """
        scaled = np.array(points, dtype=float)
        for group, part in zip(self.groups, self.slices, strict=True):
            scaled[..., part] *= group.total / scaled[..., part].sum(axis=-1, keepdims=True)
        return scaled

    def from_logarithms(self, logarithms: Floats) -> Floats:
        """Return the points whose shares are in the ratio of ``exp(logarithms)``."""
        weights = np.array(logarithms, dtype=float)
        for part in self.slices:
            weights[..., part] -= weights[..., part].max(axis=-1, keepdims=True)
        return self.project(np.exp(weights))

    def logarithms(self, points: Floats) -> Floats:
        """Undo `from_logarithms`; the logarithms of each group have mean 0."""
        found = np.array(points, dtype=float)
        for group, part in zip(self.groups, self.slices, strict=True):
            found[..., part] = np.log(np.maximum(found[..., part], SMALLEST * group.total))
            found[..., part] -= found[..., part].mean(axis=-1, keepdims=True)
        return found

    def draw(self, random: np.random.Generator, count: int) -> Floats:
        """Draw points evenly over the space."""
        return self.project(random.standard_exponential((count, self.n_shares)))

    def check(self, point: Floats, field: str) -> Floats:
        """Return a point as an array, scaled to the totals.

        Raises
        ------
        InputError
            If it has the wrong length, a share below 0, or a group of nothing.
        """
        array = np.asarray(point, dtype=float)
        if array.shape != (self.n_shares,):
            message = f"got {array.shape}; allowed: one share for each of {', '.join(self.names)}."
            raise InputError(Problem(field, message))
        for group, part in zip(self.groups, self.slices, strict=True):
            good = bool(np.all(array[part] >= 0) and 0 < array[part].sum() < np.inf)
            require(good, f"{field}.{group.name}", array[part].tolist(), "0 or above, some above 0")
        return self.project(array)
