"""Attention kernels as they were measured, beside what is said of them.

See `crosstack.evaluate.scores` of errors. A framework's layer is timed in a graph with what it does
beside the kernel: new keys and values go to their cache, queries are turned. The shortest such
work, whatever the shape, is what the kernel that is said to be shortest takes beyond what is said:
calibrated on that row, which is not scored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from crosstack.evaluate.attention_programs import (
    Tokens,
    flash_tile,
    lane_time,
    takes_single_heads,
    turns_before,
)
from crosstack.evaluate.scores import GRAPH_LAUNCH, Timed, plain_time
from crosstack.machine.chip import Chip
from crosstack.machine.memory import Scope
from crosstack.model.kernels.attention import (
    FEW,
    ROWS,
    WAITS,
    Attentions,
    Tile,
    attention_time,
    busiest_pairs,
    pair_time,
    waiting_time,
)
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats

ELEMENT = 2.0  # bytes of a number of queries and of what is made [B]
# Latencies before keys that are kept in pages: how many there are, and the pages they are in
# (``tensorrt_llm_attention``, ``flash_attention_3``). [1]
PAGED = 2
# Latencies more of a block that has a head: frequencies by which it turns its query, and pages of
# values after those of keys (``tensorrt_llm_attention``); two such blocks of 256 threads share a
# multiprocessor, assumed. [1]
TURNED_AND_PAGED, RESIDENT = 2.0, 2.0
# Latencies of a tile of generated programs after another, which ask for lengths, pages and keys of
# the next one while they multiply (``tensorrt_llm_attention``: their kernels for tokens that are
# called persistent). [1]
AHEAD = 3
SWAPPED = 16  # heads that they take together so (the same) [1]
FULL = 0.8  # of the multiprocessors, from where keys are not split (FlashAttention's own rule) [1]


class AttentionKind(StrEnum):
    """What an attention is of: a prompt, a token, or training in either direction."""

    CONTEXT = "context"
    GENERATION = "generation"
    FORWARD = "training forward"
    BACKWARD = "training backward"


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredAttention:
    """An attention as it was measured: ``query`` new tokens on ``kv`` keys each. [1], [B], [s]

    ``window``: keys that a query sees at most; ``kv_element``: bytes of a number of keys and
    values; ``turned``: how often queries, keys and values are read and written before. ``packs``:
    a tile has queries of all heads with the same keys; ``few``: its rows where these are fewer;
    ``narrow``: all its tiles have as few rows as the smallest; ``generated``: its programs are
    those that TensorRT-LLM has generated where a chip has them; ``spread``: keys of its tiles are
    split over multiprocessors.
    """

    kind: AttentionKind
    batch: int
    query: int
    kv: int
    heads: int
    kv_heads: int
    head_size: int
    value_size: int
    window: int
    causal: bool
    dtype: Dtype
    kv_element: float
    time: float
    timed: Timed = Timed.LOOP
    turned: int = 0
    packs: bool = False
    few: int = FEW
    narrow: bool = False
    generated: bool = False
    spread: bool = False

    @property
    def pairs(self) -> float:
        """Pairs of a query and a key of one head that count. [1]"""
        if not self.causal:
            return float(self.query * self.kv)
        sees = self.kv - self.query + 1 + np.arange(self.query, dtype=float)
        return float(np.minimum(sees, self.window).sum())

    @property
    def seen(self) -> float:
        """Keys that some query sees. [1]"""
        return float(min(self.kv, self.window + self.query - 1))


def _column(rows: Sequence[MeasuredAttention], name: str) -> Floats:
    return np.array([getattr(row, name) for row in rows], dtype=np.float64)


def attention_said(rows: Sequence[MeasuredAttention], chip: Chip) -> Floats:
    """Return what is said of attentions of one kind and type, without a launch. [s]

    A token's queries of heads with the same keys are taken together where a program has it so; keys
    are split where heads leave multiprocessors idle, and a second kernel adds up, but for
    FlashAttention's kernels that read operands into registers where no heads are taken together.
    """
    kind, dtype, timed = rows[0].kind, rows[0].dtype, rows[0].timed
    clock = Roofline(sustained=timed is Timed.LOOP)
    batch, query, heads, groups = (
        _column(rows, n) for n in ("batch", "query", "heads", "kv_heads")
    )
    size, value, seen, pairs = (
        _column(rows, n) for n in ("head_size", "value_size", "seen", "pairs")
    )
    element, packed = _column(rows, "kv_element"), _packed(rows, chip)
    cached = batch * groups * seen * (size + value) * element
    made = batch * heads * query * (size + value) * ELEMENT
    if not chip.compute.operand_rows:  # FlashAttention-2 has one size for all, the longest
        value = np.maximum(size, value)
    back = kind is AttentionKind.BACKWARD
    kernels = Attentions(
        heads=batch * heads / packed,
        queries=query * packed,
        keys=seen,
        share=pairs / (query * seen),
        size=size,
        value_size=value,
        moved=(made + cached) * (2 if back else 1),
        tile=_backward_tile(rows, chip, size, value) if back else _tile(rows, chip),
        waited=_waited(chip, batch * heads / packed, query * packed, seen, _column(rows, "few")),
        lanes=_lanes(rows, chip),
        backward=back,
    )
    found = attention_time(chip, dtype, clock, kernels)
    again = cached * heads / groups / packed  # keys that each of several tiles reads
    found = np.maximum(found, again / chip.levels[-1].speed)
    if kind is AttentionKind.GENERATION:
        splits = (_column(rows, "packs") > 0) | (heads > groups) | (chip.compute.operand_rows > 0)
        behind = np.where(_turns(rows), 0.0, GRAPH_LAUNCH)  # TensorRT-LLM's last block adds up
        found = _split(chip, dtype, kernels, splits, found, behind)
    return found + _before(rows, chip)


def _turns(rows: Sequence[MeasuredAttention]) -> Bools:
    """Whether attentions are TensorRT-LLM's own, which turn queries. (rows,)"""
    return _column(rows, "turned") > 1


def _tokens(rows: Sequence[MeasuredAttention]) -> Tokens:
    """Return what tells which program TensorRT-LLM runs for tokens."""
    batch, heads, groups, keys = (_column(rows, n) for n in ("batch", "heads", "kv_heads", "kv"))
    return Tokens(
        batch=batch,
        heads=heads,
        groups=groups,
        keys=keys,
        element=_column(rows, "kv_element"),
        windowed=_column(rows, "window") < keys,
    )


def _packed(rows: Sequence[MeasuredAttention], chip: Chip) -> Floats:
    """Return how many heads a tile has queries of. (rows,) [1]"""
    shared = _column(rows, "heads") / _column(rows, "kv_heads")
    if rows[0].kind is not AttentionKind.GENERATION:
        return np.where(_column(rows, "packs") > 0, shared, 1.0)
    return np.where(_alone(rows, chip), 1.0, shared)


def _alone(rows: Sequence[MeasuredAttention], chip: Chip) -> Bools:
    """Whether a block has a query of one head, which lanes multiply. (rows,)"""
    if rows[0].kind is not AttentionKind.GENERATION:
        return np.zeros(len(rows), dtype=np.bool_)
    return _turns(rows) & takes_single_heads(chip, _tokens(rows))


def _lanes(rows: Sequence[MeasuredAttention], chip: Chip) -> Floats:
    """Time of lanes where they multiply. (rows,) [s]"""
    batch, heads, seen = (_column(rows, n) for n in ("batch", "heads", "seen"))
    numbers = batch * heads * seen * (_column(rows, "head_size") + _column(rows, "value_size"))
    return _alone(rows, chip) * lane_time(chip, _tokens(rows), numbers)


def _before(rows: Sequence[MeasuredAttention], chip: Chip) -> Floats:
    """Time of kernels before: queries are turned, and new keys go to their cache. (rows,) [s]

    Of prompts all have them, and so their bytes count; of tokens some, and so does a kernel.
    """
    kind, turned, turns = rows[0].kind, _column(rows, "turned"), _turns(rows)
    batch, query, heads, groups = (
        _column(rows, n) for n in ("batch", "query", "heads", "kv_heads")
    )
    size, value, element = (_column(rows, n) for n in ("head_size", "value_size", "kv_element"))
    new = batch * groups * query * (size + value) * (ELEMENT + element)
    queries = batch * heads * query * size
    if kind is AttentionKind.CONTEXT:
        moved = np.maximum(turned, 1.0) * new + 2 * turns * queries * 2 * ELEMENT
        return moved / chip.main_memory.speed + _launches_before(rows, chip)
    if kind is not AttentionKind.GENERATION:
        return np.zeros(len(rows))
    # Generated programs read queries in the type of keys.
    written = element if chip.compute.paired > 1 else ELEMENT
    moved = new + queries * (ELEMENT + written)
    each = GRAPH_LAUNCH + chip.main_memory.latency + moved / chip.main_memory.speed
    return each * (turns & turns_before(chip, _tokens(rows)))


def _launches_before(rows: Sequence[MeasuredAttention], chip: Chip) -> Floats:
    """Time of launches of TensorRT-LLM's kernels before prompts, beyond one that turns. (rows,) [s]

    Its own program has one more, that says where sequences begin; FlashInfer's has keys and values
    in 8 bits made by a kernel each (``tensorrt_llm_attention``).
    """
    casts = 2.0 * (_column(rows, "kv_element") < ELEMENT)
    more = np.where(_column(rows, "spread") > 0, casts, 1.0)
    return np.asarray(_turns(rows) * more * (GRAPH_LAUNCH + chip.main_memory.latency))


def _tile(rows: Sequence[MeasuredAttention], chip: Chip) -> Tile:
    """Return what the kernels take at a time, where pairs are of a prompt always two tiles. [1]"""
    spread = _column(rows, "spread") > 0
    rows_of = Tile.of(chip, _column(rows, "value_size")).rows
    prompt = (rows[0].kind is AttentionKind.CONTEXT) & (_column(rows, "query") > 1) & ~spread
    few = np.where(prompt & (chip.compute.paired > 1), rows_of, _column(rows, "few"))
    few = np.where(_alone(rows, chip), 1.0, few)
    alone = _alone(rows, chip)
    waits = np.where(_paged(rows), WAITS + PAGED, float(WAITS))
    waits = waits + np.where(alone, TURNED_AND_PAGED, 0.0)
    rows_of = np.where(spread, ROWS, np.where(_column(rows, "narrow") > 0, FEW, rows_of))
    tall, keys = _flash_tile(rows, chip)
    wide = _column(rows, "few") > FEW
    rows_of, keys = np.where(wide, tall, rows_of), np.where(wide, keys, ROWS)
    flash = wide | (_column(rows, "narrow") > 0)
    heads = _column(rows, "batch") * _column(rows, "heads") / _packed(rows, chip)
    return Tile(
        rows=rows_of,
        few=few,
        keys=keys,
        spread=spread,
        whole=flash & (heads >= FULL * chip.compute.n_multiprocessors),
        waits=waits,
        again=np.where(_ahead(rows, chip), float(AHEAD), np.inf),
        resident=np.where(alone, RESIDENT, 1.0),
        turn=np.where(_grid(rows, chip), 1.0, 0.0),
    )


def _grid(rows: Sequence[MeasuredAttention], chip: Chip) -> Bools:
    """Whether tiles are blocks of a grid, head by head, as FlashAttention-2's are. (rows,)

    And those of the third one where arrays read registers, of prompts of any lengths
    (``flash_attention_3``).
    """
    second = (_column(rows, "narrow") > 0) | (chip.compute.operand_rows == 0)
    return np.asarray(second & ~_turns(rows))


def _backward_tile(
    rows: Sequence[MeasuredAttention], chip: Chip, size: Floats, value: Floats
) -> Tile:
    """Return what a backward kernel takes at a time; of a grid's heads the longest first. [1]"""
    turn = np.where(_grid(rows, chip), -1.0, 0.0)
    return replace(Tile.back(chip, size, value), turn=turn)


def _ahead(rows: Sequence[MeasuredAttention], chip: Chip) -> Bools:
    """Whether kernels ask for the next tile while they multiply one. (rows,)

    So generated ones do that take few heads together, where a block of keys of two tiles has room
    in the memory of a multiprocessor.
    """
    known = (_column(rows, "generated") > 0) & (_packed(rows, chip) <= SWAPPED)
    if rows[0].kind is not AttentionKind.GENERATION or chip.compute.paired == 1:
        return np.zeros(len(rows), dtype=np.bool_)
    near = [level.room for level in chip.levels if level.scope is Scope.MULTIPROCESSOR]
    room = min(near, default=0.0) / chip.compute.n_multiprocessors
    held = 2 * ROWS * _column(rows, "head_size") * _column(rows, "kv_element")
    return known & ~_alone(rows, chip) & (held <= room)


def _flash_tile(rows: Sequence[MeasuredAttention], chip: Chip) -> tuple[Floats, Floats]:
    """Return queries and keys of tiles, were they FlashAttention-3's. (rows,) [1]"""
    packed = _packed(rows, chip)
    heads = _column(rows, "batch") * _column(rows, "heads") / packed
    few = _column(rows, "query") * packed <= FEW
    split = few & (heads < FULL * chip.compute.n_multiprocessors)
    windowed = _column(rows, "window") < _column(rows, "kv")
    size, element = _column(rows, "head_size"), _column(rows, "kv_element")
    return flash_tile(chip, size, element, windowed, split)


def _paged(rows: Sequence[MeasuredAttention]) -> Bools:
    """Whether keys are read from pages of a cache, as all are but TensorRT-LLM's of prompts."""
    pages = {AttentionKind.CONTEXT: [1], AttentionKind.GENERATION: [1, 2]}.get(rows[0].kind, [])
    return np.array([row.turned in pages for row in rows], dtype=np.bool_)


def _waited(chip: Chip, heads: Floats, queries: Floats, keys: Floats, few: Floats) -> Floats:
    """Return the share of keys and values that tiles of few queries wait for. [1]

    Where a tile is alone on its multiprocessor nothing hides its first block, and where it has no
    more than one block at a time, as in split kernels on an A100, none (``flash_attention_3``).
    """
    alone = (few > FEW) & (queries <= FEW)
    split = heads < FULL * chip.compute.n_multiprocessors
    single = split & (chip.compute.operand_rows == 0)
    return np.where(alone, np.where(single, 1.0, np.minimum(ROWS / keys, 1.0)), 0.0)


def _split(
    chip: Chip, dtype: Dtype, kernels: Attentions, splits: Bools, found: Floats, behind: Floats
) -> Floats:
    """Add the kernel that adds up parts of keys, or take tiles that are not split. [s]"""
    many = chip.compute.n_multiprocessors
    few = (kernels.heads < FULL * many) & (kernels.keys > ROWS)
    tile = kernels.tile or Tile.of(chip)
    _, rounds = busiest_pairs(
        chip, kernels.heads, kernels.queries, kernels.keys, kernels.share, tile
    )
    plain = replace(tile, waits=WAITS)
    wait = waiting_time(chip, dtype, rounds, kernels.queries, kernels.size, plain)
    each = 2 * (kernels.size + kernels.value_size) / chip.throughput(dtype)
    each = each + pair_time(chip, alone=True)
    alone = FEW * kernels.keys * each * many
    alone = alone + np.ceil(kernels.keys / ROWS) * 2 * chip.main_memory.latency
    whole = np.maximum(found, alone)
    return np.where(few, np.where(splits, found + behind + wait, whole), found)


def attention_roofline(rows: Sequence[MeasuredAttention], chip: Chip) -> Floats:
    """Return what a plain roofline with one efficiency says of attentions, without a launch. [s]"""
    found = []
    for row in rows:
        depth = row.head_size + row.value_size
        products = 2.5 if row.kind is AttentionKind.BACKWARD else 1.0
        work = 2 * row.batch * row.heads * row.pairs * depth * products
        moved = row.batch * row.kv_heads * row.seen * depth * row.kv_element
        moved += row.batch * row.heads * row.query * depth * ELEMENT
        found.append(plain_time(chip, row.dtype, work, moved))
    return np.array(found)
