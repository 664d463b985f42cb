"""Tiles of products whose kernels do not search for the best: which one runs is in their source.

TensorRT-LLM has one tile for products in four bits where none was searched
(``tensorrt_llm_fp4``), and for eight bits with a scale for each block, on Hopper, DeepGEMM's choice
(``deepgemm_tiles``): 128 rows, or 64 where there are no more, and of 16 to 128 columns those that
take the fewest rounds over multiprocessors, and of these those that fill the last round most. Of
few rows it multiplies the transposes. Neither splits K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.machine.memory import Scope
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats

LINE = 128  # bytes of a row in a step of K of these kernels [B]
FP4 = 128, 256  # rows and columns [1]
# Numbers of four bits in a step, of which the memory of a multiprocessor holds four with their
# scales, or half as many twice as long. [1]
FP4_STEP, FP4_STAGES = 256, 4
ROWS, COLUMNS = (64, 128), range(16, 129, 8)  # of DeepGEMM [1]
FEW = 32  # rows, from where rows and columns are not exchanged [1]
SHARED_FROM = 1024  # rows, from where pairs of tiles read rows together [1]
STAGES = range(8, 3, -1)  # that are tried; six at most of columns that are no part of 128 [1]
ROOM = 232448  # of the memory of a multiprocessor that a kernel may have [B]
SCALE, BARRIER = 4, 8  # [B]


class ProductProgram(StrEnum):
    """What multiplies: a library that is searched for its best tile, or a kernel that is known."""

    LIBRARY = "library"
    FP4 = "fp4"
    DEEPGEMM = "deepgemm"


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTile:
    """A tile of C that a kernel takes for all: its ``rows`` and ``columns``. [1]

    ``cluster`` multiprocessors read what they have in common once; ``k_step`` of K are asked for at
    a time, ``stages`` of which are held. [1] ``ending``: what a tile takes when all is multiplied,
    beside the way of its result to the chip's first level, ``beginning``: what each but the first
    takes before. [s]
    """

    rows: int
    columns: int
    cluster: int
    k_step: int
    stages: int
    ending: float = 0.0
    beginning: float = 0.0

    def between(self, chip: Chip, m: Floats, n: Floats) -> Floats:
        """Time of the busiest multiprocessor in which nothing is multiplied, for it or a tile. [s]

        Parameters
        ----------
        m, n : ndarray, shape (...)
            Rows and columns of results. [1]
        """
        tiles = np.ceil(m / self.rows) * np.ceil(n / self.columns)
        most = np.ceil(tiles / chip.compute.n_multiprocessors)
        return np.asarray(most * self.ending + (most - 1) * self.beginning)


def known_tile(program: ProductProgram, chip: Chip, m: int, n: int, k: int) -> KnownTile | None:
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
    return _scaled(chip, m, n, k) if program is ProductProgram.DEEPGEMM and hopper else None


def _scaled(chip: Chip, m: int, n: int, k: int) -> KnownTile:
    """Return DeepGEMM's tile of a product of M x K by K x N with a scale for each block. [1]

    Two tiles side by side read their rows together where pairs of them fill N. Warps that multiply
    put a result into the memory of the multiprocessor, wait until it is read from there, and only
    then ask the cache for the scales of the next tile's weights; what is multiplied comes
    meanwhile.
    """
    turned = m < FEW
    sides = (n, m) if turned else (m, n)
    rows, columns = deepgemm_tile(chip.compute.n_multiprocessors, *sides)
    together = m >= SHARED_FROM and n % (2 * columns) == 0
    most = STAGES.start if LINE % columns == 0 else 6
    held = (s for s in STAGES if s <= most and _held(rows, columns, s, k) <= ROOM)
    near = [level for level in chip.levels if level.scope is Scope.MULTIPROCESSOR]
    staged = rows * columns * Dtype.BF16.size * chip.compute.n_multiprocessors
    return KnownTile(
        rows=columns if turned else rows,
        columns=rows if turned else columns,
        cluster=1 + together,
        k_step=LINE,
        stages=next(held, STAGES[-1]),
        ending=staged / near[-1].speed if near else 0.0,
        beginning=chip.shared_level.latency if chip.shared_level else 0.0,
    )


def deepgemm_tile(multiprocessors: int, m: int, n: int, groups: int = 1) -> tuple[int, int]:
    """Return rows and columns of DeepGEMM's tile. [1]

    Of as few rounds and as full a last one, the one with fewer columns.

    Parameters
    ----------
    multiprocessors : int
        Of the chip. [1]
    m, n : int
        Rows and columns of each of as many ``groups``. [1]
    """
    rows = ROWS[0] if m <= ROWS[0] else ROWS[1]

    def worth(columns: int) -> tuple[int, int, int]:
        tiles = groups * math.ceil(m / rows) * math.ceil(n / columns)
        last = (tiles - 1) % multiprocessors + 1
        return -math.ceil(tiles / multiprocessors), last, -columns

    return rows, max(COLUMNS, key=worth)


def _held(rows: int, columns: int, stages: int, depth: int) -> float:
    """Bytes of the result in 16 bits, and of steps of both operands with their scales. [B]

    A step has two barriers. Scales of weights are there for all of K, twice where tiles may lie
    over two blocks.
    """
    of_weights = math.ceil(depth / LINE) * SCALE * (1 if LINE % columns == 0 else 2)
    step = (rows + columns) * LINE + rows * SCALE + 2 * BARRIER
    return rows * columns * Dtype.BF16.size + stages * step + of_weights
