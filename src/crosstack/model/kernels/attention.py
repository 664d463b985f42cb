"""Attention as one kernel: tiles of queries over multiprocessors, softmax beside the products.

A multiprocessor takes a tile of ``ROWS`` queries of a head at a time and passes over keys in blocks
of as many (``dao2023flashattention2``, 3.2; backward over queries, by tiles of keys). Every pair of
a tile is multiplied, masked or not, queries or not; blocks that a mask leaves out are skipped. For
each pair the arrays have both products, and the special units an exponential that waits for the
first and that the second waits for. What lanes do besides runs beside the arrays, which have
another tile of the same multiprocessor meanwhile, or read operands from memory by themselves
(Hopper and later, ``shah2024flashattention3``); there one tile fills a multiprocessor, so that
nothing hides its first scores and its last values, as long as a block. Where arrays read registers
and a tile is alone, as the only one of its multiprocessor, those of few queries and all backward,
lanes work after them. Where queries
are few (a token at a time), or those of all heads that share a kept vector (``flashmla2025``),
their keys are split over multiprocessors.

Backward, five products of a pair read their operands from the memory of the multiprocessor, which
may take longer than multiplying, and gradients of queries are added up in the cache, in single
precision, once a block of keys; pairs of multiprocessors do that for two blocks at a time
(``zadouri2026flashattention4``). A kernel before it and one behind prepare what is added up.

Tiles are taken longest first, or, where they are blocks of a plain grid, head by head
(``flash_attention_2``): then the last heads' long ones end late where there are few heads.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, partial
from heapq import heapreplace
from typing import TYPE_CHECKING

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.machine.framework import AttentionProgram, Fusion
from crosstack.machine.memory import Scope
from crosstack.model.attention import attentions
from crosstack.model.kernels.lanes import Instructions, element_time, has_lanes, in_attention
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph, bits

if TYPE_CHECKING:
    from crosstack.model.kernels.clock import KernelClock

ROWS = 128  # queries of a tile, and keys of a block (``dao2023flashattention2``) [1]
WARPS = 4  # of a tile, forward, each with its rows (``dao2023flashattention2``, 3.3) [1]
FEW = 64  # rows of the smallest tile, of an instruction of Hopper (``nvidia_ptx``) [1]
# Where multiprocessors are paired the scores and results of tiles are in a memory of their own, in
# single precision: 512 columns of 128 lanes a multiprocessor (``nvidia_ptx``, tcgen05). [B]
TENSOR_MEMORY = 512 * 128 * 4
DEALT = 16  # rounds of tiles that are dealt out one by one, at least (assumed) [1]
NEARLY = 1 - 1e-6  # of pairs of a causal mask, from where there is no window [1]
WAITS = 3  # latencies of main memory in a tile: queries and keys, values, and what is made [1]

# How many times as long as a program that is written for the chip an older one takes, forward and
# backward. FlashAttention-2 on chips whose arrays read operands from memory: 1.5 to 2.0 and 1.5 to
# 1.75 times FlashAttention-3 (``shah2024flashattention3``, 4.1). The first one in Triton: 1.3 to
# 1.5 and around 2 times FlashAttention-2 (``dao2023flashattention2``, 4.1). Here their middles.
SECOND = 1.75, 1.625
TRITON = 1.4, 2.0


def slowness(chip: Chip) -> tuple[float, float]:
    """Return how many times as long as one for the chip its program takes, both passes. [1]"""
    program = chip.framework.attention if chip.framework else AttentionProgram.NEWEST
    if program is AttentionProgram.NEWEST:
        return 1.0, 1.0
    second = SECOND if chip.compute.operand_rows else (1.0, 1.0)
    if program is AttentionProgram.SECOND:
        return second
    return second[0] * TRITON[0], second[1] * TRITON[1]


def pair_time(chip: Chip, *, backward: bool = False, alone: bool = False) -> float:
    """Time of softmax of a pair that nothing hides, on all multiprocessors. [s]

    Forward an exponential; backward the difference with the sum of a row, and a product. ``alone``:
    a tile has a multiprocessor to itself.
    """
    function = Function.SOFTMAX_GRADIENT if backward else Function.SOFTMAX
    return element_time(chip, in_attention(chip, function, alone=alone) or Instructions(0))


def softmax_time(
    chip: Chip, queries: Floats, rounds: Floats, backward: Bools | bool = False
) -> Floats:
    """Time of a forward softmax of a pair that nothing hides, or of one made again backward. [s]

    Two tiles share a multiprocessor forward, of many ``queries`` and in more than one of the
    ``rounds`` of `busiest_pairs`; others are alone.
    """
    shared = (queries > FEW) & (rounds > 1) & ~np.asarray(backward)
    return np.where(shared, pair_time(chip), pair_time(chip, alone=True))


def multiplied(
    chip: Chip,
    dtype: Dtype,
    depth: Floats,
    *,
    rows: Floats | float = ROWS,
    keys: Floats | float = ROWS,
    backward: bool = False,
) -> Floats:
    """Time of one product of a pair, ``2 depth`` operations, on all multiprocessors. [s]

    No less than what passes the memory of the multiprocessor: backward both operands of a tile are
    read from there, of ``rows`` by ``keys``. Forward, where arrays read registers, each of `WARPS`
    has its part of the ``rows`` of a tile in these, and reads all keys, which are written there
    once.
    """
    computing = 2 * depth / chip.throughput(dtype)
    near = [level for level in chip.levels if level.scope is Scope.MULTIPROCESSOR]
    if not near or (chip.compute.operand_rows and not backward):
        return computing
    tall = 1 / np.asarray(rows)
    passes = tall + 1 / np.asarray(keys) if backward else (WARPS + 1) * tall
    return np.asarray(np.maximum(computing, passes * depth * dtype.size / near[-1].speed))


def summing(chip: Chip, depth: Floats) -> Floats:
    """Time of adding up gradients of queries for a pair, in the cache of the chip. [s]"""
    if (shared := chip.shared_level) is None:
        return np.zeros_like(depth)
    return depth / ROWS * Dtype.FP32.size / shared.speed / chip.compute.paired


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Tile:
    """Queries that a kernel takes at a time: ``rows`` of many, ``few`` of up to ``FEW``. [1]

    It passes over blocks of ``keys``. [1] ``spread``: keys of a tile are split over
    multiprocessors, also of many queries; ``whole``: not even of few. ``waits``: latencies of main
    memory that nothing hides; ``again``: of these, of every tile but the first of a multiprocessor,
    all where it has none on their way before; ``resident`` tiles of a multiprocessor wait together.
    [1] ``turn``: whole tiles are taken head by head, of a head the shortest first (1) or the
    longest (-1); or the longest of all (0).
    """

    rows: Floats | float
    few: Floats | float = FEW
    keys: Floats | float = ROWS
    spread: Bools | bool = False
    whole: Bools | bool = False
    waits: Floats | float = WAITS
    again: Floats | float = np.inf
    resident: Floats | float = 1.0
    turn: Floats | float = 0.0

    @classmethod
    def of(cls, chip: Chip, value_size: Floats | float = ROWS) -> Tile:
        """Return those of a program that is written for the chip, forward.

        Two tiles take turns where two multiprocessors are paired (``zadouri2026flashattention4``),
        if there is room for the results of both.
        """
        held = 2 * ROWS * (ROWS + np.asarray(value_size)) * Dtype.FP32.size
        turns = np.where(held <= TENSOR_MEMORY, chip.compute.paired, 1)
        return cls(rows=ROWS * turns)

    @classmethod
    def back(cls, chip: Chip, size: Floats | float = ROWS, value: Floats | float = ROWS) -> Tile:
        """Return those of a backward one: rows of keys, which pass over blocks of queries.

        Where multiprocessors are paired gradients of keys and of values, scores and differences are
        in the memory for results (``zadouri2026flashattention4``), so that blocks are smaller where
        heads leave less room.
        """
        held = ROWS * (np.asarray(size) + value + 2 * ROWS) * Dtype.FP32.size
        small = (held > TENSOR_MEMORY) & (chip.compute.paired > 1)
        return cls(rows=ROWS, keys=np.where(small, FEW, ROWS).astype(float))


def busiest_pairs(
    chip: Chip,
    heads: Floats,
    queries: Floats,
    keys: Floats,
    share: Floats,
    tile: Tile | None = None,
) -> tuple[Floats, Floats]:
    """Return pairs of the busiest multiprocessor times all of them, and its tiles. [1]

    ``share`` of all pairs count, those of earlier keys. Tiles are taken longest first, so that the
    busiest has its part of all, or the longest, or its part of the shortest if there are few; or
    head by head, as the kernel's say.

    Parameters
    ----------
    heads, queries, keys, share : array
        Attentions of one head, of so many queries and keys; share of pairs. [1]
    tile : Tile, optional
        Those of the kernel; a forward one's of the chip where none is given.
    """
    many = chip.compute.n_multiprocessors
    tile = tile or Tile.of(chip)
    rows = np.where(queries > FEW, tile.rows, tile.few)
    border = np.maximum(rows / tile.keys, 1) / 2
    tiles = heads * np.ceil(queries / rows)
    masked = share < 1
    # A window cuts blocks on both sides, and all its tiles are as long.
    windowed = masked & (share * keys < (keys - (queries - 1) / 2) * NEARLY)
    mean = np.maximum(share * keys / tile.keys + border * masked + border * windowed, 1.0)
    every = np.ceil(keys / tile.keys)
    mean = np.where(masked, np.minimum(mean, every), every)
    longest = np.where(windowed, mean, np.minimum(2 * mean, every))
    shortest = np.where(masked, np.maximum(2 * mean - longest, 1.0), every)
    rounds = np.ceil(tiles / many)
    shares = (queries <= FEW) | np.asarray(tile.spread)
    split = shares & ~np.asarray(tile.whole)
    longest = np.where(split, 1.0, longest)
    shortest = np.where(split, 1.0, shortest)
    filled = ~shares * float(chip.compute.operand_rows > 0)
    mean, longest, shortest = mean + filled, longest + filled, shortest + filled
    blocks = np.maximum.reduce([tiles * mean / many, longest, rounds * shortest])
    turn = np.broadcast_to(tile.turn, blocks.shape)
    for i in np.flatnonzero((turn != 0) & masked & ~windowed & ~split):
        ends = (float(shortest[i]), float(longest[i]))[:: int(turn[i])]
        of_head = int(np.ceil(queries[i] / rows[i]))
        blocks[i] = head_by_head(int(np.ceil(heads[i])), of_head, *ends, many)
    return blocks * rows * tile.keys * many, rounds


@lru_cache(maxsize=4096)
def head_by_head(heads: int, tiles: int, first: float, last: float, many: int) -> float:
    """Return what the busiest of ``many`` multiprocessors has if tiles are taken in turn. [1]

    Each takes the next as soon as it is free: the ``tiles`` of a head, of ``first`` to ``last``
    blocks, and then those of the next. Of heads that fill the chip `DEALT` times only the last ones
    are dealt out, and those before share out evenly.
    """
    dealt = min(heads, -(-DEALT * many // tiles))
    lengths = np.linspace(first, last, tiles)
    free = [0.0] * many
    for length in np.tile(lengths, dealt).tolist():
        heapreplace(free, free[0] + length)
    return max(free) + (heads - dealt) * float(lengths.sum()) / many


def attention_product(
    chip: Chip,
    dtype: Dtype,
    clock: KernelClock,
    pairs: Floats,
    depth: Floats,
    *,
    rows: Floats | float = ROWS,
    keys: Floats | float = ROWS,
    backward: bool = False,
) -> Floats:
    """Time of a product in attention that is one kernel, its part of it. [s]

    ``pairs`` are those of `busiest_pairs`, ``depth`` terms of the product for each, ``rows`` and
    ``keys`` those of a tile. The clock is that of its arrays and half of a softmax, as products
    have in common.
    """
    each = multiplied(chip, dtype, depth, rows=rows, keys=keys, backward=backward)
    beside = pair_time(chip, backward=backward) / 2
    work = pairs * 2 * depth / chip.throughput(dtype)
    share = clock.clock_share(chip, work, pairs * (each + beside), np.zeros_like(work))
    return pairs * each / share


def waiting_time(
    chip: Chip, dtype: Dtype, rounds: Floats, queries: Floats, size: Floats, tile: Tile
) -> Floats:
    """Time of the busiest multiprocessor that nothing hides, of all its tiles. [s]

    ``rounds`` are those of `busiest_pairs`, with ``queries`` each: the tile's latencies, and the
    way of queries, first keys and result, from and to the first level of the chip that all
    multiprocessors share; tiles of few queries hide that behind one another.
    """
    memory = chip.main_memory
    each = (2 * tile.rows + ROWS) * size * dtype.size * (queries > FEW)
    moved = each * chip.compute.n_multiprocessors
    times = np.ceil(rounds / tile.resident)
    later = np.maximum(times - 1, 0) * np.minimum(tile.again, tile.waits)
    waiting = (tile.waits * np.minimum(times, 1) + later) * memory.latency
    return np.asarray(waiting + rounds * moved / (chip.shared_level or memory).speed)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attended:
    """Which kernels of a graph are in attentions that are one kernel each; arrays are (n,).

    ``scores``: products whose result has an element for each pair, the others of those ``inside``
    add up over keys, or over queries; ``across``: what they make has its terms as columns.
    ``tells``: which one of an attention tells what tiles wait for and what softmax takes;
    ``again``: it makes scores once more, in a backward pass; ``past``: keys of tokens before are
    read as they are kept, by queries of the newest tokens alone.
    """

    inside: Bools
    scores: Bools
    across: Bools
    tells: Bools
    again: Bools
    past: Bools

    @classmethod
    def none(cls, n: int) -> Attended:
        """Return that no one of n kernels is."""
        no = np.zeros(n, dtype=np.bool_)
        return cls(inside=no, scores=no, across=no, tells=no, again=no, past=no)

    def of(self, kernels: Ints) -> Attended:
        """Return that of some kernels, in their order."""
        return Attended(
            inside=self.inside[kernels],
            scores=self.scores[kernels],
            across=self.across[kernels],
            tells=self.tells[kernels],
            again=self.again[kernels],
            past=self.past[kernels],
        )


@lru_cache(maxsize=256)
def attended(chip: Chip, graph: KernelGraph) -> Attended:
    """Return the kernels of attentions that are one kernel each.

    None on chips that have no such kernel, or whose lanes are not known.
    """
    found = Attended.none(graph.n)
    if Fusion.ATTENTION not in chip.fused or not has_lanes(chip):
        return found
    inside, scores, across, tells, again, past = np.zeros((6, graph.n), dtype=np.bool_)
    kept = {*graph.target[graph.elided].tolist()}
    for first, held in attentions(graph):
        begins = bits(first)
        remade = [i for i in begins if graph.remade[i] >= 0]
        inside[bits(held)], scores[begins], tells[(remade or begins)[0]] = True, True, True
        again[remade[:1]] = True
        past[bits(held)] = not kept.isdisjoint(bits(held))
        others = [i for i in bits(held & ~first) if graph.gemm[i]]
        softmax = next(i for i in bits(held) if graph.row_wise[i])
        pairs = float(graph.rows[softmax] * graph.columns[softmax])
        across[others] = 2 * pairs * graph.columns[others] == graph.work[others]
    return Attended(
        inside=inside, scores=scores, across=across, tells=tells, again=again, past=past
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Attentions:
    """Attentions that are one kernel each, forward or backward; arrays are (kernels,).

    ``heads`` of all sequences, each of ``queries`` that see a ``share`` of the pairs with ``keys``;
    queries of heads with keys in common may be taken for those of one. ``size`` of a query and a
    key, ``value_size`` of a value [1]; ``moved`` bytes of main memory [B]; ``tile`` what
    the kernel takes at a time. ``waited``: the share of what is moved that tiles wait for, as
    nothing else is on their multiprocessor meanwhile [1]. ``lanes``: what these take where they
    multiply, and not the arrays [s].
    """

    heads: Floats
    queries: Floats
    keys: Floats
    share: Floats
    size: Floats
    value_size: Floats
    moved: Floats
    tile: Tile | None = None
    waited: Floats | float = 0.0
    lanes: Floats | float = 0.0
    backward: bool = False


def attention_time(chip: Chip, dtype: Dtype, clock: KernelClock, kernels: Attentions) -> Floats:
    """Time of attentions without a launch, the longer of the chip and main memory. [s]

    Backward the scores are computed again, as they are not kept.
    """
    size, value, backward = kernels.size, kernels.value_size, kernels.backward
    written = Tile.back(chip, size, value) if backward else Tile.of(chip, value)
    tile = kernels.tile or written
    pairs, rounds = busiest_pairs(
        chip, kernels.heads, kernels.queries, kernels.keys, kernels.share, tile
    )
    terms = [size, value, *([value, size, size] if backward else [])]
    rows = np.where(kernels.queries > FEW, tile.rows, tile.few)
    each = partial(
        attention_product,
        chip,
        dtype,
        clock,
        pairs,
        rows=rows,
        keys=tile.keys,
        backward=backward,
    )
    products = sum((each(depth) for depth in terms), np.zeros_like(size))
    beside = pairs * softmax_time(chip, kernels.queries, rounds, backward)
    if backward:
        beside = beside + pairs * (pair_time(chip, backward=True) + summing(chip, size))
    memory = chip.main_memory
    moving = kernels.moved / memory.speed
    waiting = waiting_time(chip, dtype, rounds, kernels.queries, size, tile)
    busy = products + beside + waiting + kernels.lanes
    found = np.maximum(busy + kernels.waited * moving, moving + memory.delay)
    if not backward:
        return found
    return found + around_time(chip, kernels.heads * kernels.queries, size, value)


def around_time(chip: Chip, queries: Floats, size: Floats, value: Floats) -> Floats:
    """Time of the kernels before and behind a backward one, for so many queries of a head. [s]

    Before it, each row's sum of results times their gradients (``dao2023flashattention2``,
    algorithm 2), and zeros where gradients of queries are added up; behind it, these are read in
    single precision and written as they are kept.
    """
    before = 2 * value * Dtype.BF16.size + size * Dtype.FP32.size
    behind = size * (Dtype.FP32.size + Dtype.BF16.size)
    return queries * (before + behind) / chip.main_memory.speed


def products_in_attention(
    clock: KernelClock,
    chip: Chip,
    dtype: Dtype,
    shapes: Floats,
    counted: Floats,
    backward: Bools,
    attended: Attended,
) -> Floats:
    """Return what products of graphs take of attentions that are one kernel, (products,). [s]

    One of them tells what tiles wait for and what softmax takes, backward once more if it is made
    anew, with the differences, sums of gradients of queries, and the kernels around it.

    Parameters
    ----------
    shapes : array, shape (products, 4)
        M, K, N and batch; keys by queries as M by N of scores. [1]
    counted : array, shape (products, 3)
        Shares of operands and results that count. [1]
    backward : array of bool
        Which are of the backward pass.
    attended : Attended
        Of these products.
    """
    rows, depth, columns, heads = shapes.T
    scores, across = attended.scores, attended.across
    queries, keys = np.where(across, rows, columns), np.where(scores, rows, depth)
    terms = np.where(scores, depth, np.where(across, columns, rows))
    forward = Tile.of(chip, terms).rows
    tile = Tile(rows=np.where(backward, ROWS, forward), spread=attended.past)
    pairs, rounds = busiest_pairs(chip, heads, queries, keys, counted.min(axis=1), tile)
    beside = softmax_time(chip, queries, rounds, backward) * (~backward | attended.again)
    beside = beside + backward * (pair_time(chip, backward=True) + summing(chip, terms))
    found = waiting_time(chip, dtype, rounds, queries, terms, tile) + pairs * beside
    found = found * attended.tells
    for back in (False, True):
        those = backward == back
        found[those] += attention_product(
            chip, dtype, clock, pairs[those], terms[those], backward=back
        )
    first, then = slowness(chip)
    around = around_time(chip, heads * queries, terms, terms) * (backward & attended.tells)
    return np.asarray(found * np.where(backward, then, first) + around)
