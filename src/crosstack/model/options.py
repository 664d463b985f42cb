"""What every sharding of every kernel costs on one tensor-parallel chip, as tables.

Rows are kernels, columns the axes of `crosstack.model.arrays.AXES`. A sharding picks one column a
row; an edge between two kernels then pays the conversion between their layouts.

Source: ``dfmodel_code`` (rules of the inter-chip pass, re-derived in words in ``docs/rules.md``).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.model.arrays import AXES, AXIS_CODE, Bools, Floats, GraphArrays, Ints
from crosstack.model.boundary import boundary_traffic
from crosstack.model.plan import Plan
from crosstack.model.rules import LatencyRule, ModelRules
from crosstack.workload.graph import Axis, Collective, Placement, Workload

__all__ = ["CONVERSIONS", "Options", "conversion_kinds", "make_options"]

OUTER, M, K, N, NONE = (AXIS_CODE[a] for a in AXES)
# Layouts of a tensor: replicated, split by rows (M or outer), split by columns (N).
REPLICATED, ROWS, COLUMNS = range(3)
_PRODUCED = np.array([ROWS, ROWS, REPLICATED, COLUMNS, REPLICATED])
# What a consumer needs, by its own sharding (outer, M, K, N, none).
_ELEMENTWISE = (ROWS, ROWS, REPLICATED, COLUMNS, REPLICATED)
_FIRST_OPERAND = (ROWS, REPLICATED, ROWS, COLUMNS, REPLICATED)
_SECOND_OPERAND = (ROWS, ROWS, COLUMNS, REPLICATED, REPLICATED)
_CONTRACTION_TILED = (ROWS, ROWS, COLUMNS, ROWS, REPLICATED)
_NEEDED = np.array([_ELEMENTWISE, _FIRST_OPERAND, _SECOND_OPERAND, _CONTRACTION_TILED])
# Conversion from layout (row) to layout (column): 0 nothing, 1 all-gather, 2 all-to-all.
_CONVERT = np.array([[0, 0, 0], [1, 0, 2], [1, 2, 0]])
CONVERSIONS: tuple[Collective | None, ...] = (None, Collective.ALL_GATHER, Collective.ALL_TO_ALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Tables over kernels and axes, shape (n, 5), and over edges, shape (m, 5, 5).

    ``m``, ``k``, ``columns``: extents of one tile on one chip; ``n_tiles``: tiles of a kernel.
    ``work`` [FLOP], ``output_total`` [B] and ``network_time`` [s] are of a whole sequence,
    ``output_tile`` and ``weight`` [B] what one tile makes and what stays on the chip; ``cache``
    [B] what a sequence reads of its own past; ``entering`` and ``leaving`` [B] what it reads and
    writes of operands and results of the graph;
    ``data_time`` [s] is the gradient all-reduce; ``bytes_moved`` and ``edge_bytes`` [B] count whole
    tensors, as the published byte objective does. ``edge_time`` [s] and ``edge_kind`` index
    (edge, producer's axis, consumer's axis).
    """

    allowed: Bools
    m: Ints
    k: Ints
    columns: Ints
    n_tiles: Ints
    work: Floats
    output_tile: Floats
    output_total: Floats
    weight: Floats
    cache: Floats
    entering: Floats
    leaving: Floats
    network_time: Floats
    data_time: Floats
    bytes_moved: Floats
    edge_kind: Ints
    edge_time: Floats
    edge_bytes: Floats


@lru_cache(maxsize=64)
def allowed_axes(arrays: GraphArrays, placement: Placement = Placement.SEARCHED) -> Bools:
    """Which axes each kernel may be sharded along, shape (n, 5).

    None but ``none`` where the workload's `Placement` says how the chips split it. Otherwise:

    A batched kernel is split along its batch; no axis of extent 1, none that is tiled; a kernel
    with a weight is always split, where it can be. Source: ``dfmodel_code``.
    """
    n = arrays.n
    allowed = np.ones((n, 5), dtype=np.bool_)
    if placement is not Placement.SEARCHED:
        allowed[:, :NONE] = False
        allowed.flags.writeable = False
        return allowed
    extents = np.stack([arrays.outer, arrays.m, arrays.k, arrays.columns], axis=1)
    allowed[:, :4] = extents > 1
    allowed[~arrays.gemm, K] = False
    tiled = arrays.tiling != NONE
    allowed[np.nonzero(tiled)[0], arrays.tiling[tiled]] = False
    allowed[arrays.has_weight, NONE] = False
    batched = allowed[:, OUTER].copy()
    allowed[batched, 1:] = False
    allowed[~allowed.any(axis=1), NONE] = True
    allowed.flags.writeable = False  # shared by everyone who asks
    return allowed


def conversion_kinds(arrays: GraphArrays, rules: ModelRules) -> Ints:
    """Conversion of each edge by producer's and consumer's axis, shape (m, 5, 5)."""
    return _conversion_kinds(arrays, rules.operand_by_size)


@lru_cache(maxsize=64)
def _conversion_kinds(arrays: GraphArrays, operand_by_size: bool) -> Ints:
    operand = arrays.operand
    if operand_by_size:
        produced = arrays.output_size[arrays.source]
        first = arrays.input_sizes[arrays.target, 0]
        operand = (np.abs(produced - first) > 1e-6 * np.maximum(produced, first)).astype(np.int64)
    target = arrays.target
    reader = np.where(
        ~arrays.gemm[target],
        0,
        np.where(arrays.tiling[target] == K, 3, np.where(operand == 1, 2, 1)),
    )
    needed = _NEEDED[reader]  # (m, 5)
    return np.asarray(_CONVERT[_PRODUCED[None, :, None], needed[:, None, :]], dtype=np.int64)


def make_options(
    workload: Workload, arrays: GraphArrays, plan: Plan, n_tiles: int | Ints, rules: ModelRules
) -> Options:
    """Return the tables for ``n_tiles`` tiles a sequence, or so many a kernel, under ``plan``."""
    chips = plan.tensor
    parts = np.broadcast_to(np.asarray(n_tiles, dtype=np.int64), arrays.n)[:, None]

    def split(extent: Ints, *axes: int) -> Ints:
        whole = np.repeat(extent[:, None], 5, axis=1)
        for axis in axes:
            whole[:, axis] = -(-extent // chips)
        return whole

    rows, depth, width = (
        -(-extent // parts)
        for extent, parts in zip((arrays.rows, arrays.k, arrays.columns), plan.split, strict=True)
    )
    m, k, columns = split(rows, OUTER, M), split(depth, K), split(width, N)
    weight = np.where(arrays.has_weight[:, None], m * k, 0) * float(workload.graph.word)
    shard = m * columns
    wholes = (arrays.rows[:, None], arrays.k[:, None], arrays.columns[:, None])
    shares = (m / wholes[0], k / wholes[1], columns / wholes[2])
    entering, leaving = boundary_traffic(workload, arrays, plan, shares, rules)
    tiling = arrays.tiling[:, None]
    m = np.where((tiling == OUTER) | (tiling == M), -(-m // parts), m)
    k = np.where(tiling == K, -(-k // parts), k)
    columns = np.where(tiling == N, -(-columns // parts), columns)
    tiles = np.where(tiling == NONE, 1, parts) * np.ones(5, dtype=np.int64)
    work = m.astype(float) * columns * np.where(arrays.systolic[:, None], 2.0 * k, 1.0)
    work = work * tiles * arrays.repeats[:, None]
    word = float(workload.graph.word)
    output_tile = (m * columns).astype(float) * word
    # A kernel tiled along K adds its tiles up: its output leaves once.
    output_total = output_tile * np.where(tiling == K, 1, tiles)
    network, bytes_moved = _node_network(workload, arrays, plan, output_total, rules)
    whole = (arrays.rows * arrays.columns)[:, None].astype(float)
    cached = shard / whole
    # Heads are split among chips, but a head's past is not: more chips than heads keep copies.
    cached[:, OUTER] = -(-arrays.outer // chips) / arrays.outer
    spread = plan.n_microbatches * (1 if rules.periodic_per_microbatch else plan.microbatch_size)
    periodic = arrays.periodic_size[:, None] * (shard / whole) / spread
    data_time = np.where(
        periodic > 0, plan.periodic.fixed / spread + plan.periodic.per_byte * periodic, 0.0
    )
    kinds = conversion_kinds(arrays, rules)
    size = output_total if rules.conversion_of_shard else _whole_output(arrays, word)
    size = np.where(arrays.elided[:, None], 0.0, size[arrays.source])
    edge_time = _line_time(plan, Collective.ALL_GATHER, size, rules)[:, :, None] * (kinds == 1)
    edge_time = edge_time + _line_time(plan, Collective.ALL_TO_ALL, size, rules)[:, :, None] * (
        kinds == 2
    )
    edge_bytes = np.where(arrays.elided, 0.0, arrays.output_size[arrays.source])
    return Options(
        allowed=allowed_axes(arrays, workload.placement),
        m=m,
        k=k,
        columns=columns,
        n_tiles=tiles,
        work=work,
        output_tile=output_tile,
        output_total=output_total,
        weight=weight,
        cache=arrays.cache_size[:, None] * cached,
        entering=entering,
        leaving=leaving,
        network_time=network,
        data_time=data_time,
        bytes_moved=bytes_moved,
        edge_kind=kinds,
        edge_time=edge_time,
        edge_bytes=edge_bytes[:, None, None] * (kinds > 0),
    )


def _whole_output(arrays: GraphArrays, word: float) -> Floats:
    whole = (arrays.rows * arrays.columns).astype(float) * word
    return np.repeat(whole[:, None], 5, axis=1)


def _line_time(plan: Plan, collective: Collective, size: Floats, rules: ModelRules) -> Floats:
    line = plan.collectives[collective]
    # Under the default rules a collective runs once a microbatch; published rules count latency
    # for every sequence, which is the same while a microbatch is one sequence.
    share = plan.microbatch_size if rules.latency is LatencyRule.ALL else 1
    return np.where(size > 0, line.fixed / share + line.per_byte * size, 0.0)


def _node_network(
    workload: Workload,
    arrays: GraphArrays,
    plan: Plan,
    output_total: Floats,
    rules: ModelRules,
) -> tuple[Floats, Floats]:
    """Time and bytes of the communication inherent to each kernel and axis."""
    reduced = np.zeros_like(output_total)
    reduced[arrays.gemm, K] = output_total[arrays.gemm, K]
    if plan.tensor == 1:
        reduced[:] = 0.0
    time = _line_time(plan, Collective.ALL_REDUCE, reduced, rules)
    moved = np.zeros_like(output_total)
    moved[arrays.gemm, K] = arrays.output_size[arrays.gemm]
    for i, kernel in enumerate(workload.graph.kernels):
        own = [
            _line_time(plan, communication.collective, np.full(5, communication.size), rules)
            for communication in kernel.communications
            if not communication.periodic
        ]
        if own:
            # On a grid of chips the panel goes along the rows while rows go along the columns.
            together = workload.placement is Placement.GRID
            time[i] += np.max(own, axis=0) if together else np.sum(own, axis=0)
    return time, moved


def axis_codes(sharding: tuple[Axis, ...]) -> Ints:
    """Return the column of each kernel's axis."""
    return np.array([AXIS_CODE[axis] for axis in sharding], dtype=np.int64)
