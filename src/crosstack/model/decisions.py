"""What a search decides, and in which order: the part of a rule set that says so.

The default decides everything together and leaves nothing out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from crosstack.model.tiles import tile_counts
from crosstack.workload.kernel_graph import Floats, Ints

if TYPE_CHECKING:
    from crosstack.model.choices import Choices


@dataclass(frozen=True, slots=True, kw_only=True)
class Decisions:
    """Everything together: any number of tiles, any partition, time alone."""

    # ------------------------------------------------------------ tiles

    def tile_counts(self, length: int, extents: Iterable[int] = ()) -> Ints:
        """Numbers of tiles to try for a sequence of ``length``, ascending. [1]

        ``extents`` are tiled, too: the fewest tiles of each of their lengths count besides.
        """
        counts = tile_counts(length)
        for extent in sorted({*extents} - {length}):
            counts = np.union1d(counts, tile_counts(extent, most=length))
        return counts

    def counts_of_size(self, counts: Ints, fewest: int) -> Ints:
        """Return the numbers of tiles that make none longer than ``fewest`` of them. [1]"""
        return np.asarray(counts[counts >= fewest])

    def tile_sizes(self, length: int, size: int) -> str:
        """Say what tile size would be allowed; empty where ``size`` is."""
        return ""

    # ------------------------------------------------------------ partitions

    def parts_directions(self, backward: Sequence[bool], count: int | None) -> bool:
        """Whether forward and backward kernels stay apart though nobody asked, in ``count``."""
        return False

    def most_partitions(self, backward: Sequence[bool], count: int) -> int:
        """Return a limit that says the same as ``count``: one a kernel serves nobody. [1]"""
        return min(count, len(backward))

    def partitions(self, backward: Sequence[bool], count: int) -> list[tuple[int, int]] | None:
        """First and last of ``count`` partitions that each kernel may have; None: any."""
        return None

    def one_by_one(self, n_kernels: int, count: int | None) -> bool:
        """Whether a limit of ``count`` partitions means that every kernel has its own."""
        return False

    # ------------------------------------------------------------ order

    @property
    def before_time(self) -> str:
        """What shardings are chosen by before time, as "moves the fewest bytes"; empty: nothing."""
        return ""

    def first_costs(self, choices: Choices) -> tuple[Floats, Floats]:
        """Costs of choices and of entries of edges whose sum comes before time."""
        return np.zeros(len(choices.work)), np.zeros(len(choices.edge_bytes))
