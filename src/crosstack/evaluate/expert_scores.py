"""Expert layers and grouped products as they were measured, beside what is said of them.

See `crosstack.evaluate.scores` of errors, and `crosstack.evaluate.attention_scores` of what a
framework does beside: routing of tokens, their order, launches. A layer is two grouped products (of
gated activations the first twice as wide), each of which reads the weights of the experts that have
tokens once, and what puts tokens in order before, the activation, and the sum behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np

from crosstack.evaluate.scores import GRAPH_LAUNCH, plain_time
from crosstack.machine.chip import Chip
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.lanes import Instructions, element_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.model.kernels.tilings import tile_time
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats

ELEMENT = 2.0  # bytes of a number that tokens come and go in [B]
# Tiles of vLLM's and SGLang's kernel in Triton where no others were tuned, of more tokens than
# there are experts, and of no more (``vllm_fused_moe``); three steps of K at a time, as Triton has
# it. A step of K should have lines of the cache (``triton_kernels``); that half of one takes as
# long as all of it is assumed.
LINE = 128.0  # of the caches (``nvidia_cuda_guide``) [B]
TRITON = (64, 64), Roofline(sustained=False, k_step=32, stages=3, line=LINE)
TRITON_FEW = (16, 32), Roofline(sustained=False, k_step=64, stages=3, line=LINE)
# Triton's own kernel for weights in MXFP4: a power of two of rows, 16 to 128, by the mean of the
# tokens of an expert (``triton_kernels``).
MXFP4_ROWS, MXFP4_COLUMNS = (16, 128), 128  # [1]
MXFP4 = Roofline(sustained=False, k_step=128, stages=3, line=LINE)
# Marlin: the fewest rows that the mean fills to less than 0.9, else the most (``vllm_fused_moe``).
MARLIN_ROWS, MARLIN_FILL, MARLIN_COLUMNS = np.array([8, 16, 32, 48, 64]), 0.9, 256  # [1]
MARLIN = Roofline(sustained=False, k_step=64, stages=4, line=LINE)
# Tokens of a tile of TensorRT-LLM's generated kernels on Blackwell, at most (``flashinfer_1494``);
# those multiply four by eight bits as they are (``nvidia_ptx``).
GENERATED_TOKENS = 64  # [1]
LIBRARY = Roofline(sustained=False)
# A weight of four bits in numbers of 16: taken out of a word, multiplied with its scale; assumed.
WIDENED = Instructions(2)


class ExpertsProgram(StrEnum):
    """What multiplies: a vendor's library, or a kernel that is known with its tiles.

    ``FUSED`` is vLLM's and SGLang's in Triton, ``MARLIN`` theirs for integers of four bits,
    ``MXFP4`` Triton's own on Hopper, where elsewhere libraries multiply such weights.
    """

    LIBRARY = "library"
    FUSED = "fused"
    MARLIN = "marlin"
    MXFP4 = "mxfp4"

    def on(self, chip: Chip) -> ExpertsProgram:
        """Return the one that runs on a chip."""
        return self.LIBRARY if self is self.MXFP4 and not _hopper(chip) else self


def _hopper(chip: Chip) -> bool:
    """Whether arrays read operands from the memory of multiprocessors that are not paired."""
    return chip.compute.operand_rows > 0 and chip.compute.paired == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredExperts:
    """A layer of experts as it was measured on one of ``ep`` x ``tp`` chips. [1], [B], [s]

    ``exponent`` of the power law of the tokens of experts, None where all have as many; products
    multiply numbers of ``dtype``, weights take ``weight`` bytes an element.
    """

    tokens: int
    hidden: int
    expert_ffn: int
    topk: int
    experts: int
    tp: int
    ep: int
    exponent: float | None
    gated: bool
    dtype: Dtype
    weight: float
    program: ExpertsProgram
    time: float

    @property
    def loads(self) -> Floats:
        """Tokens of each expert of the fullest chip, most first. [1]

        Of a power law those of even shares of all experts; no expert has a token twice. The fullest
        chip has the fullest expert, and of the others every so many-th.
        """
        all_of, drawn = self.tokens * self.topk, (np.arange(self.experts) + 0.5) / self.experts
        if self.exponent is None:
            return np.full(self.experts // self.ep, all_of / self.experts)
        low, high = (1.0, 0.8 * self.tokens) if all_of > self.experts else (0.01, 2.0)
        rest, most = 1 - self.exponent, high / low
        weights = most**drawn if rest == 0 else (1 + drawn * (most**rest - 1)) ** (1 / rest)
        found = np.minimum(weights / weights.sum() * all_of, self.tokens)
        return np.asarray(found[::-1][:: self.ep][: self.experts // self.ep])


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredGroups:
    """As many products of M x K by K x N, one kernel each, as measured. [1], [s]

    ``result`` is what moves of each number of a result as it is put down, if more than it has
    itself. [B]
    """

    groups: int
    m: int
    k: int
    n: int
    dtype: Dtype
    time: float
    result: float = 0.0


def experts_said(rows: Sequence[MeasuredExperts], chip: Chip) -> Floats:
    """Return what is said of expert layers on a chip, without routing and launches. [s]"""
    return np.array([_layer(row, chip) for row in rows])


def _layer(row: MeasuredExperts, chip: Chip) -> float:
    loads, wide = row.loads, row.expert_ffn / row.tp
    # Of few tokens some experts have none: those that have one at least.
    touched = np.minimum(loads, 1 - np.exp(-loads) if row.exponent else 1.0)
    many = float(loads.sum())
    first = wide * (2 if row.gated else 1)
    layers = (row.hidden, first), (wide, row.hidden)
    program = row.program.on(chip)
    if known := program is not ExpertsProgram.LIBRARY:
        times = [_tiled(row, chip, touched, *sides) for sides in layers]
    else:
        groups = max(float(touched.sum()), 1.0)
        times = [_grouped(row, chip, (groups, many, *sides)) for sides in layers]
    # These kernels have rows of all experts, also of those on other chips, which are zeros.
    every = row.tokens * row.topk if known else many
    ordered = 0.0 if known else 2 * many * row.hidden
    zeros = (every - many) * (first + row.hidden)
    summed = every * row.hidden + row.tokens * row.hidden
    moved = ELEMENT * (ordered + zeros + summed + every * (first + wide))
    if row.dtype is Dtype.FP8_BLOCKS and _hopper(chip):  # numbers of eight bits by passes of theirs
        moved += many * (row.hidden + wide) * (ELEMENT + row.dtype.size)
    return sum(times) + moved / chip.main_memory.speed


def _tile(row: MeasuredExperts) -> tuple[tuple[int, int], Roofline]:
    """Return the tile of the kernel of a row, and how it multiplies one. [1]"""
    mean = row.tokens * row.topk / row.experts
    match row.program:
        case ExpertsProgram.MXFP4:
            rows = int(np.clip(2 ** np.ceil(np.log2(max(mean, 1.0))), *MXFP4_ROWS))
            return (rows, MXFP4_COLUMNS), MXFP4
        case ExpertsProgram.MARLIN:
            enough = np.append(MARLIN_ROWS[mean / MARLIN_ROWS < MARLIN_FILL], MARLIN_ROWS[-1])
            return (int(enough[0]), MARLIN_COLUMNS), MARLIN
        case ExpertsProgram.FUSED:
            return TRITON_FEW if row.tokens <= row.experts // row.ep else TRITON
        case ExpertsProgram.LIBRARY:
            raise AssertionError("tiles of libraries are searched")
        case _:
            assert_never(row.program)


def _tiled(
    row: MeasuredExperts, chip: Chip, touched: Floats, depth: float, columns: float
) -> float:
    """Time of the products of all experts, each of whose tokens fill whole tiles. [s]

    Weights of four bits are made wider once for every tile that multiplies them.
    """
    loads, (tile, clock) = row.loads, _tile(row)
    tiles = np.maximum((touched * np.maximum(np.ceil(loads / tile[0]), 1.0)).sum(), 1.0)
    m, k, n = (np.array([side]) for side in (tile[0] * tiles, depth, max(columns, 1.0)))
    inside = tile_time(chip, row.dtype, clock, tile, (m, k, n))
    moved = max(touched.sum(), 1.0) * depth * columns * row.weight
    moved += loads.sum() * (depth + columns) * ELEMENT
    memory = chip.main_memory
    widened = tiles * depth * columns * element_time(chip, WIDENED)
    widened *= row.weight < row.dtype.size
    return float(np.maximum(inside[0] + widened, moved / memory.speed + memory.latency))


def _grouped(row: MeasuredExperts, chip: Chip, shape: tuple[float, float, float, float]) -> float:
    """Time of the products of all experts, one kernel; the weights are read once. [s]"""
    groups, many, depth, columns = shape
    found = product_time(
        LIBRARY,
        chip,
        max(many / groups, 1.0),
        depth,
        max(columns, 1.0),
        batch=groups,
        dtype=row.dtype,
    )
    moved = groups * depth * columns * row.weight
    moved += many * (depth * max(row.dtype.size, row.weight) + columns * ELEMENT)
    memory = chip.main_memory
    outside = moved / memory.speed + memory.latency
    widened = 0.0
    if (
        row.weight < row.dtype.size and row.dtype is not Dtype.MXFP8
    ):  # once for every tile of tokens that multiplies them
        tiles = groups * np.ceil(max(many / groups / GENERATED_TOKENS, 1.0))
        widened = tiles * depth * columns * element_time(chip, WIDENED)
    return float(np.maximum(found.work_time + widened, outside) + found.reduction_time)


def groups_said(rows: Sequence[MeasuredGroups], chip: Chip) -> Floats:
    """Return what is said of products that run one after the other, with their launches. [s]"""
    found = []
    for row in rows:
        one = product_time(Roofline(), chip, row.m, row.k, row.n, dtype=row.dtype).time
        numbers, moved = np.array(float(row.m * row.n)), np.array(row.result)
        put_down = Roofline().result_time(chip, row.dtype, numbers, moved)
        found.append(row.groups * float(one + put_down))
    return np.array(found)


def experts_roofline(rows: Sequence[MeasuredExperts], chip: Chip) -> Floats:
    """Return what a plain roofline says of expert layers, without a launch. [s]"""
    found = []
    for row in rows:
        loads, matrices = row.loads, 3 if row.gated else 2
        elements = row.hidden * row.expert_ffn / row.tp * matrices
        moved = float(np.minimum(loads, 1.0).sum()) * elements * row.weight
        found.append(plain_time(chip, row.dtype, 2 * float(loads.sum()) * elements, moved))
    return np.array(found)


def groups_roofline(rows: Sequence[MeasuredGroups], chip: Chip) -> Floats:
    """Return what a plain roofline says of grouped products, with one launch. [s]"""
    found = []
    for row in rows:
        sides = row.m * row.k + row.k * row.n + row.m * row.n
        work, moved = 2 * row.m * row.k * row.n, sides * row.dtype.size
        found.append(GRAPH_LAUNCH + row.groups * plain_time(chip, row.dtype, work, moved))
    return np.array(found)
