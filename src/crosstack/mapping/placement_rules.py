"""What a rule set says of placements: which orders and layouts are tried, and how edges are routed.

The default is here: every parallel dimension takes a factor of each axis, the free ones first, all
orders are told apart, links are full duplex (``thakur2005``, section 2) and every route passes
every link on its way (``dally2004``, chapter 8).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from crosstack.machine.topology import Grid, LinkLoads, link_loads
from crosstack.mapping.factor_layout import factor_positions
from crosstack.mapping.strategy import MappingOrder, ParallelDimension, Strategy

__all__ = ["PlacementRules"]

Whole = NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """The default part; a published tool's has other methods."""

    @property
    def ring_of_two_has_two_edges(self) -> bool:
        """Whether both chips of a ring of two send to each other, or one edge stands for both."""
        return True

    def check(self, grid: Grid) -> None:
        """Raise `InputError` for a grid that these rules do not place on."""

    def orders(self, strategy: Strategy) -> list[MappingOrder]:
        """Return the orders to try of the dimensions above 1, innermost first."""
        return list(permutations(d for d in ParallelDimension if strategy.degree(d) > 1))

    def layouts(self, degrees: tuple[int, ...], grid: Grid) -> list[Whole]:
        """Return positions of shards with ``degrees``, the innermost first; empty: none fits.

        Returns
        -------
        list of int array, shape (degree of the innermost, ..., of the outermost, axis)
        """
        return factor_positions(degrees, grid)

    def loads(self, grid: Grid, starts: Whole, ends: Whole) -> LinkLoads:
        """Count the edges on every link; see `crosstack.machine.topology.link_loads`."""
        return link_loads(grid, starts, ends)
