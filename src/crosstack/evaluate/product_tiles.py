"""Tiles of products whose kernels do not search for the best: which one runs is in their source.

TensorRT-LLM has one tile for products in four bits where none was searched
(``tensorrt_llm_fp4``), and for eight bits with a scale for each block, on Hopper, DeepGEMM's choice
(``deepgemm_tiles``): of 64 or 128 rows and 16 to 128 columns those that take the fewest rounds over
multiprocessors, and of these those that fill the last round most. Neither splits K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from crosstack.machine.chip import Chip

LINE = 128  # bytes of a row in a step of K of these kernels [B]
FP4 = 128, 256  # rows and columns [1]
# Numbers of four bits in a step, of which the memory of a multiprocessor holds four with their
# scales, or half as many twice as long. [1]
FP4_STEP, FP4_STAGES = 256, 4
ROWS, COLUMNS = (64, 128), range(16, 129, 8)  # of DeepGEMM [1]
FEW = 32  # rows, from where rows and columns are not exchanged [1]
SHARED_FROM = 1024  # rows, from where pairs of tiles read columns together [1]
STAGES = range(8, 3, -1)  # that are tried; six at most of columns that are no part of 128 [1]
ROOM = 232448  # of the memory of a multiprocessor that a kernel may have [B]


class ProductProgram(StrEnum):
    """What multiplies: a library that is searched for its best tile, or a kernel that is known."""

    LIBRARY = "library"
    FP4 = "fp4"
    DEEPGEMM = "deepgemm"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTile:
    """A tile of C that a kernel takes for all: its ``rows`` and ``columns``. [1]

    ``cluster`` multiprocessors read what they have in common once; ``k_step`` of K are asked for at
    a time, ``stages`` of which are held. [1]
    """

    rows: int
    columns: int
    cluster: int
    k_step: int
    stages: int


def known_tile(program: ProductProgram, chip: Chip, m: int, n: int) -> KnownTile | None:
    """Return the tile of a product of M x K by K x N, None where the best is searched. [1]

    In four bits one multiprocessor has a tile, but reads of neighbours that want the same are one
    before they reach the cache (``nvidia_nsight``).
    """
    if program is ProductProgram.FP4:
        rows, columns = FP4
        return KnownTile(
            rows=rows, columns=columns, cluster=chip.compute.cluster, k_step=FP4_STEP,
            stages=FP4_STAGES,
        )  # fmt: skip
    hopper = chip.compute.operand_rows > 0 and chip.compute.paired == 1
    if program is not ProductProgram.DEEPGEMM or not hopper or m < FEW:
        return None
    rows, columns = deepgemm_tile(chip.compute.n_multiprocessors, m, n)
    together = m >= SHARED_FROM and math.ceil(n / columns) % 2 == 0
    most = STAGES.start if LINE % columns == 0 else 6
    held = (s for s in STAGES if s <= most and _held(rows, columns, s) <= ROOM)
    return KnownTile(
        rows=rows, columns=columns, cluster=1 + together, k_step=LINE,
        stages=next(held, STAGES[-1]),
    )  # fmt: skip


def deepgemm_tile(multiprocessors: int, m: int, n: int, groups: int = 1) -> tuple[int, int]:
    """Return rows and columns of DeepGEMM's tile. [1]

    Of as few rounds and as full a last one, the one with more rows, then with fewer columns.

    Parameters
    ----------
    multiprocessors : int
        Of the chip. [1]
    m, n : int
        Rows and columns of each of as many ``groups``. [1]
    """
    tall = ROWS[:1] if m <= ROWS[0] else ROWS

    def worth(tile: tuple[int, int]) -> tuple[int, int, int, int]:
        tiles = groups * math.ceil(m / tile[0]) * math.ceil(n / tile[1])
        last = (tiles - 1) % multiprocessors + 1
        return -math.ceil(tiles / multiprocessors), last, tile[0], -tile[1]

    return max(((rows, columns) for rows in tall for columns in COLUMNS), key=worth)


def _held(rows: int, columns: int, stages: int) -> int:
    """Bytes of the result in 16 bits, and of steps of both operands with their scales. [B]"""
    return rows * columns * 2 + stages * ((rows + columns) * LINE + 4 * rows)
