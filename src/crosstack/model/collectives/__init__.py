"""What collective communication takes, on any level of a network and over several."""

from crosstack.machine.network import Joint
from crosstack.model.collectives.compose import collective_lines, is_legal
from crosstack.model.collectives.group import Extent, Group, group_of, neighbour_link
from crosstack.model.collectives.layouts import Layout, LayoutChange, layout_change
from crosstack.model.collectives.part import (
    NO_CONTEXT_TIMES,
    NO_REPLICAS,
    NO_SHARES,
    Changes,
    ContextTimes,
    LeastTime,
    NearShards,
    NetworkUse,
    Replicas,
    Row,
    TokenRoute,
)
from crosstack.model.collectives.times import NONE, NOTHING, AffineTime, Arrival, ConcaveTime, least

__all__ = [
    "NONE",
    "NOTHING",
    "NO_CONTEXT_TIMES",
    "NO_REPLICAS",
    "NO_SHARES",
    "AffineTime",
    "Arrival",
    "Changes",
    "ConcaveTime",
    "ContextTimes",
    "Extent",
    "Group",
    "Joint",
    "Layout",
    "LayoutChange",
    "LeastTime",
    "NearShards",
    "NetworkUse",
    "Replicas",
    "Row",
    "TokenRoute",
    "collective_lines",
    "group_of",
    "is_legal",
    "layout_change",
    "least",
    "neighbour_link",
]
