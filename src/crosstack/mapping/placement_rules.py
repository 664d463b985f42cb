"""Which published way of placing and routing is followed, one field for each choice.

The defaults are what crosstack holds right; `PlacementRules.deepflow` reproduces the public tool,
whose placement has not changed from 2020 to 2025.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

__all__ = ["Layout", "PlacementRules"]


class Layout(StrEnum):
    """How shards are laid out.

    ``factors``: every parallel dimension takes a factor of each axis, the free ones first.
    ``blocks``: blocks of whole dimensions are put side by side on a square, outermost dimension
    first; what does not fit is dealt out to packages.
    """

    FACTORS = "factors"
    BLOCKS = "blocks"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementRules:
    """How shards are placed and their edges routed.

    Parameters
    ----------
    layout : Layout
        Source of ``blocks``: ``deepflow_code``, device mapping.
    merges_equal_sizes : bool
        Try only one of the orders whose degrees are the same numbers, although the dimensions
        differ. ``deepflow_code``.
    directions_share : bool
        Count both directions of a link together; a ring of two then has one edge.
        ``deepflow_code``; links are full duplex (``thakur2005``, section 2).
    charges_next_link_downwards : bool
        Count a move from y to y - 1 on the link above y: off by one. ``deepflow_code``.
    skips_packages_between : bool
        Between packages count one link out of the row where the route leaves, none on the way
        through others. ``deepflow_code``.
    """

    layout: Layout = Layout.FACTORS
    merges_equal_sizes: bool = False
    directions_share: bool = False
    charges_next_link_downwards: bool = False
    skips_packages_between: bool = False

    @classmethod
    def deepflow(cls) -> PlacementRules:
        """Return the rules of the public tool: square packages in a row, mesh links."""
        return cls(
            layout=Layout.BLOCKS,
            merges_equal_sizes=True,
            directions_share=True,
            charges_next_link_downwards=True,
            skips_packages_between=True,
        )
