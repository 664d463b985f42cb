"""Expert layers and grouped products as they were measured, beside what is said of them.

See `crosstack.evaluate.scores` of errors, and `crosstack.evaluate.attention_scores` of what a
framework does beside: routing of tokens, their order, launches. A layer is two grouped products (of
gated activations the first twice as wide), each of which reads the weights of the experts that have
tokens once, and what puts tokens in order before, the activation, and the sum behind.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np

from crosstack.evaluate.expert_loads import fullest_loads
from crosstack.evaluate.product_tiles import ROWS, deepgemm_tile
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
DEEPGEMM = Roofline(sustained=False, k_step=128, stages=6)  # (``deepgemm_tiles``)
SIDE = 128  # of a tile of weights of libraries, and of tokens at most; assumed [1]
LIBRARY = Roofline(sustained=False)
# Kernels of a layer of the library's more than of one that is generated: the order of tokens, where
# groups begin, tokens put in order, the activation, and the sum (``tensorrt_llm_experts``).
KERNELS = 5  # [1]
# Where arrays read operands from memory a group's operands have a map each. At the border of groups
# nothing may be on its way while a multiprocessor reads where the next group is, puts down its map,
# and reads that, before it asks for operands (``cutlass_groups``): trips to the cache that all
# multiprocessors share.
BORDER = 3  # [1]
# The first tile of CUTLASS's list for groups on Hopper, tokens x columns, in steps of a line: what
# runs where none was searched (``tensorrt_llm_tiles``).
FIRST_TILE = 128, 16  # [1]
# A weight of four bits in numbers of 16: taken out of a word, multiplied with its scale; assumed.
WIDENED = Instructions(2)


class ExpertsProgram(StrEnum):
    """What multiplies: a vendor's library, or a kernel that is known with its tiles.

    ``GENERATED`` are TensorRT-LLM's kernels for few tokens, which take tokens where they are, apply
    the activation as they put results down, and leave the sum to what follows. ``FUSED`` is vLLM's
    and SGLang's in Triton, ``MARLIN`` theirs for integers of four bits, ``MXFP4`` Triton's own on
    Hopper, where elsewhere libraries multiply such weights.
    """

    LIBRARY = "library"
    GENERATED = "generated"
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
    multiply numbers of ``dtype``, weights take ``weight`` bytes an element. ``searched``: whether
    the tile of a library's kernel was the best of its list, and not the first.
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
    searched: bool = True

    @property
    def loads(self) -> Floats:
        """Tokens of each expert of the fullest chip, most first. [1]"""
        if self.exponent is None:
            return np.full(self.experts // self.ep, self.tokens * self.topk / self.experts)
        return fullest_loads(self.tokens, self.topk, self.experts, self.ep, self.exponent)


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
    touched = np.minimum(loads, 1.0)  # of few tokens some experts have none
    many = float(loads.sum())
    first = wide * (2 if row.gated else 1)
    layers = (row.hidden, first), (wide, row.hidden)
    program = row.program.on(chip)
    if program is ExpertsProgram.LIBRARY and not row.searched and _hopper(chip):
        times = [_first_listed(row, chip, touched, *sides) for sides in layers]
    elif program is ExpertsProgram.LIBRARY and _chosen(row, chip, many / max(touched.sum(), 1.0)):
        times = [_blocks(row, chip, touched, sides) for sides in layers]
    elif program in (ExpertsProgram.LIBRARY, ExpertsProgram.GENERATED):
        groups = max(float(touched.sum()), 1.0)
        times = [_grouped(row, chip, (groups, many, *sides)) for sides in layers]
    else:
        times = [_tiled(row, chip, touched, sides, _tile(row)) for sides in layers]
    moved = _moved_beside(row, chip, many) / chip.main_memory.speed
    kernels = KERNELS * (program is ExpertsProgram.LIBRARY)
    return sum(times) + moved + kernels * (GRAPH_LAUNCH + chip.main_memory.latency)


def _moved_beside(row: MeasuredExperts, chip: Chip, many: float) -> float:
    """Bytes that kernels beside the products move for ``many`` tokens of experts. [B]"""
    program, wide = row.program.on(chip), row.expert_ffn / row.tp
    if program is ExpertsProgram.GENERATED:
        return 0.0
    first = wide * (2 if row.gated else 1)
    # Known kernels have rows of all experts, also of those on other chips, which are zeros.
    known = program is not ExpertsProgram.LIBRARY
    every = row.tokens * row.topk if known else many
    ordered = 0.0 if known else 2 * many * row.hidden
    zeros = (every - many) * (first + row.hidden)
    summed = every * row.hidden + row.tokens * row.hidden
    moved = ELEMENT * (ordered + zeros + summed + every * (first + wide))
    if row.dtype is Dtype.FP8_BLOCKS and _hopper(chip):  # numbers of eight bits by passes of theirs
        moved += many * (row.hidden + wide) * (ELEMENT + row.dtype.size)
    return moved


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
        case ExpertsProgram.LIBRARY | ExpertsProgram.GENERATED:
            raise AssertionError("tiles of libraries are searched")
        case _:
            assert_never(row.program)


def _tiled(
    row: MeasuredExperts,
    chip: Chip,
    touched: Floats,
    sides: tuple[float, float],
    kernel: tuple[tuple[int, int], Roofline],
) -> float:
    """Time of the products of all experts, each of whose tokens fill whole tiles. [s]

    Weights of four bits are made wider once for every tile that multiplies them.
    """
    loads, (depth, columns), (tile, clock) = row.loads, sides, kernel
    tiles = np.maximum((touched * np.maximum(np.ceil(loads / tile[0]), 1.0)).sum(), 1.0)
    m, k, n = (np.array([side]) for side in (tile[0] * tiles, depth, max(columns, 1.0)))
    inside = tile_time(chip, row.dtype, clock, tile, (m, k, n))
    moved = max(touched.sum(), 1.0) * depth * columns * row.weight
    moved += loads.sum() * (depth + columns) * ELEMENT
    memory = chip.main_memory
    widened = tiles * depth * columns * element_time(chip, WIDENED)
    widened *= row.weight < row.dtype.size
    return float(np.maximum(inside[0] + widened, moved / memory.speed + memory.delay))


def _chosen(row: MeasuredExperts, chip: Chip, each: float) -> bool:
    """Whether DeepGEMM multiplies, which has tiles of its own for experts of more than a few."""
    return row.dtype is Dtype.FP8_BLOCKS and _hopper(chip) and each > ROWS[0]


def _blocks(row: MeasuredExperts, chip: Chip, touched: Floats, sides: tuple[float, float]) -> float:
    """Time of the products of all experts in the tile that DeepGEMM chooses, one kernel. [s]

    It chooses as if all had as many tokens; groups have no tiles that read together.
    """
    groups = max(round(touched.sum()), 1)
    each, columns = math.ceil(row.loads.sum() / groups), math.ceil(sides[1])
    tile = deepgemm_tile(chip.compute.n_multiprocessors, each, columns, groups)
    return _tiled(row, chip.with_compute(cluster=1), touched, sides, (tile, DEEPGEMM))


def _first_listed(
    row: MeasuredExperts, chip: Chip, touched: Floats, depth: float, columns: float
) -> float:
    """Time of the products of all experts in the first tile of the list, one kernel. [s]

    Rows of a tile that an expert has no tokens for are not moved, but steps of K come one after
    the other: where tokens are few each takes the latency of main memory, in 16 and in 8 bits, on
    an H100 and on an H200 alike (read off such rows; why so few are on their way is not known).
    Further tiles of an expert find its weights in the cache that all multiprocessors share.
    """
    rows, wide = FIRST_TILE
    clock = Roofline(sustained=False, k_step=int(LINE / row.dtype.size))
    tiles = max(float((touched * np.maximum(np.ceil(row.loads / rows), 1.0)).sum()), 1.0)
    groups, memory = max(float(touched.sum()), 1.0), chip.main_memory
    near = (chip.shared_level or memory).latency
    most = np.ceil(tiles * np.ceil(columns / wide) / chip.compute.n_multiprocessors)
    trip = near + min(groups / tiles, 1.0) * (memory.latency - near)
    fed = most * np.ceil(depth / clock.k_step) * trip
    m, k, n = (np.array([side]) for side in (rows * tiles, depth, max(columns, 1.0)))
    inside = tile_time(chip, row.dtype, clock, FIRST_TILE, (m, k, n))[0]
    moved = groups * depth * columns * row.weight + row.loads.sum() * (depth + columns) * ELEMENT
    return float(max(inside, fed, moved / memory.speed + memory.delay))


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
    outside = moved / memory.speed + memory.delay
    widened = 0.0
    if (
        row.weight < row.dtype.size and row.dtype is not Dtype.MXFP8
    ):  # once for every tile of tokens that multiplies them
        tiles = groups * np.ceil(max(many / groups / GENERATED_TOKENS, 1.0))
        widened = tiles * depth * columns * element_time(chip, WIDENED)
    inside = found.work_time + widened
    if _has_maps(row, chip):
        inside = inside + _borders(chip, groups, many / groups, columns)
    return float(np.maximum(inside, outside) + found.reduction_time)


def _has_maps(row: MeasuredExperts, chip: Chip) -> bool:
    """Whether each group's operands have a map of their own, as in CUTLASS's grouped products.

    Kernels for numbers of eight bits in blocks have one map of all rows, as have generated ones.
    """
    other = row.dtype in (Dtype.FP8_BLOCKS, Dtype.MXFP8) or row.weight < row.dtype.size
    return row.program is ExpertsProgram.LIBRARY and chip.compute.operand_rows > 0 and not other


def _borders(chip: Chip, groups: float, each: float, columns: float) -> float:
    """Time of the busiest multiprocessor at borders of groups. [s]

    Tiles are dealt out in turn, so that of groups with fewer tiles than there are multiprocessors
    every tile is of another group.
    """
    tiles = groups * np.ceil(max(each, 1.0) / SIDE) * np.ceil(columns / SIDE)
    met = min(max(tiles / chip.compute.n_multiprocessors, 1.0), groups)
    shared = chip.shared_level or chip.main_memory
    return float(met * (chip.main_memory.latency + BORDER * shared.latency))


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
