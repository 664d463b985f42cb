"""What collective communication takes, on any level of a network and over several."""

from crosstack.model.collectives.algorithms import Joint
from crosstack.model.collectives.compose import FREE, Adding, collective_lines, is_legal
from crosstack.model.collectives.dimension_times import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    broadcast_time,
    point_to_point_time,
    reduce_scatter_time,
    slowest_cut,
    steps,
    unknown_kind,
)
from crosstack.model.collectives.group import Extent, Group, group_of
from crosstack.model.collectives.lines import NOTHING, Lines, least

__all__ = [
    "FREE",
    "NOTHING",
    "Adding",
    "Extent",
    "Group",
    "Joint",
    "Lines",
    "all_gather_time",
    "all_reduce_time",
    "all_to_all_time",
    "broadcast_time",
    "collective_lines",
    "group_of",
    "is_legal",
    "least",
    "point_to_point_time",
    "reduce_scatter_time",
    "slowest_cut",
    "steps",
    "unknown_kind",
]
