"""What DFModel counts otherwise than this package: parts of its rule sets, a field a difference.

With every field at its value in `ENGINE` a part counts what the default does; the releases set
them. Source: ``dfmodel_code``; E1 to E5 are its releases.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.model.arrays import Floats, Ints
from crosstack.model.decisions import Decisions
from crosstack.model.parts import check_fields
from crosstack.model.tiles import divisors

if TYPE_CHECKING:
    from crosstack.model.choices import Choices

__all__ = ["ENGINE", "DFModelDecisions"]

ENGINE: dict[str, Any] = {
    "tiles_divide": False,
    "bytes_first": False,
    "halves_of_slots": False,
    "full_count_unfused": False,
}
"""What each field is where a part counts as the default does."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DFModelDecisions(Decisions):
    """Sharding first, by bytes; then tiles and partitions.

    Parameters
    ----------
    tiles_divide : bool
        Whether the number of tiles must divide the sequence (E4 on) or the last tile may be ragged
        (up to E3b).
    bytes_first : bool
        Whether sharding minimises bytes moved before anything else is decided.
    halves_of_slots : bool
        Whether a limit of C partitions gives forward kernels the first C/2 and backward kernels
        the last C/2, the middle one shared when C is odd; otherwise directions are separate only
        where asked.
    full_count_unfused : bool
        Whether a limit equal to the number of kernels means kernel by kernel.
    """

    tiles_divide: bool = False
    bytes_first: bool = True
    halves_of_slots: bool = True
    full_count_unfused: bool = True

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)

    def tile_counts(self, length: int, extents: Iterable[int] = ()) -> Ints:
        """Divisors of the sequence, where tiles divide it. [1]"""
        if self.tiles_divide:
            return np.array(divisors(length), dtype=np.int64)
        return Decisions.tile_counts(self, length, extents)

    def counts_of_size(self, counts: Ints, fewest: int) -> Ints:
        """The one number of tiles of a length, where tiles divide the sequence. [1]"""
        if self.tiles_divide:
            return np.asarray(counts[counts == fewest])
        return Decisions.counts_of_size(self, counts, fewest)

    def tile_sizes(self, length: int, size: int) -> str:
        """Divisors of the sequence, where tiles divide it."""
        if not self.tiles_divide or length % size == 0:
            return ""
        return f"a divisor of sequence_length = {length}, as tiles divide it"

    def _halves(self, backward: Sequence[bool]) -> bool:
        return self.halves_of_slots and any(backward)

    def parts_directions(self, backward: Sequence[bool], count: int | None) -> bool:
        """Halves share no partition where their number is even, or not limited."""
        return self._halves(backward) and (count is None or count % 2 == 0)

    def most_partitions(self, backward: Sequence[bool], count: int) -> int:
        """Halves move with the limit: twice as many serve, odd ones share. [1]"""
        if self._halves(backward):
            return min(count, 2 * len(backward) + count % 2)
        return Decisions.most_partitions(self, backward, count)

    def partitions(self, backward: Sequence[bool], count: int) -> list[tuple[int, int]] | None:
        """The first half of the partitions forward, the last half backward."""
        if not self._halves(backward):
            return None
        forward = 0, (count - 1) // 2
        return [(count // 2, count - 1) if later else forward for later in backward]

    def one_by_one(self, n_kernels: int, count: int | None) -> bool:
        """As many partitions as kernels."""
        return self.full_count_unfused and count == n_kernels

    @property
    def before_time(self) -> str:
        """Bytes, where they come first."""
        return "moves the fewest bytes" if self.bytes_first else ""

    def first_costs(self, choices: Choices) -> tuple[Floats, Floats]:
        """Bytes of whole tensors that kernels and conversions move. [B]"""
        return choices.bytes_moved, choices.edge_bytes
