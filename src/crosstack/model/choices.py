"""The choices of every kernel, and what each costs on one tensor-parallel chip.

A kernel has a ragged list of *choices*: ways to split it over the tensor-parallel chips. Costs are
columns over all choices of all kernels, one after the other; an edge between two kernels has a
table over the choices of both, its conversion of layouts. A sharding picks one choice a kernel.
The search sees no more than that; here the graph and the rules say what the choices are.

Source: ``dfmodel_code`` (rules of the inter-chip pass, re-derived in words in ``docs/rules.md``).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.model.arrays import AXES, AXIS_CODE, Bools, Floats, GraphArrays, Ints
from crosstack.model.boundary import Shares, boundary_traffic
from crosstack.model.memory import activation_sizes, computed_again
from crosstack.model.plan import Plan
from crosstack.model.rules import Rules
from crosstack.model.temporal import Clocked, clocked
from crosstack.model.traffic import Traffic
from crosstack.workload.graph import Axis, Collective, Placement, Workload

__all__ = [
    "CONVERSIONS",
    "ChoiceIndex",
    "Choices",
    "choice_index",
    "conversion_kinds",
    "make_choices",
    "sharding_codes",
]

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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChoiceIndex:
    """Where the choices of a kernel and the table of an edge are in the columns.

    Parameters
    ----------
    start : array, shape (n + 1,)
        Kernel i has the choices ``start[i]`` up to ``start[i + 1]``. [1]
    kernel, axis : array, shape (choices,)
        Whose choice it is, and along which of `AXES` that splits it.
    source, target : array, shape (edges,)
        Kernels at both ends of every edge.
    edge_start : array, shape (edges + 1,)
        Edge e has the entries ``edge_start[e]`` up to ``edge_start[e + 1]``, row by row: the
        choices of its source, and for each those of its target. [1]
    edge, before, after : array, shape (entries,)
        The edge of an entry, and the choices of its source and of its target.
    """

    start: Ints
    kernel: Ints
    axis: Ints
    source: Ints
    target: Ints
    edge_start: Ints
    edge: Ints
    before: Ints
    after: Ints

    @property
    def n(self) -> int:
        """Kernels. [1]"""
        return len(self.start) - 1

    def domains(self) -> tuple[tuple[int, ...], ...]:
        """Return all choices of every kernel."""
        ends = self.start.tolist()
        return tuple(tuple(range(a, b)) for a, b in itertools.pairwise(ends))

    def entries(self, codes: Ints) -> Ints:
        """Return the entry of every edge where kernel i takes the choice ``codes[i]``."""
        rows = codes[self.source] - self.start[self.source]
        columns = codes[self.target] - self.start[self.target]
        return np.asarray(self.edge_start[:-1] + rows * self._widths + columns)

    def table(self, e: int, rows: Sequence[int], columns: Sequence[int]) -> Ints:
        """Return the entries of edge ``e`` between some choices of its ends, as a table."""
        source, target = self.source[e], self.target[e]
        width = self.start[target + 1] - self.start[target]
        first = self.edge_start[e] + (np.array(rows, dtype=np.int64) - self.start[source]) * width
        return np.asarray(first[:, None] + (np.array(columns, dtype=np.int64) - self.start[target]))

    @property
    def _widths(self) -> Ints:
        return np.asarray(self.start[self.target + 1] - self.start[self.target])

    def inside(self, domains: Sequence[Sequence[int]]) -> Bools:
        """Whether each choice is among those left to its kernel."""
        kept = np.zeros(len(self.kernel), dtype=np.bool_)
        for domain in domains:
            kept[list(domain)] = True
        return kept

    def least(self, column: Floats, kept: Bools) -> Floats:
        """Return the least value of every kernel over the choices that are ``kept``."""
        low = np.minimum.reduceat(np.where(kept, column, np.inf), self.start[:-1])
        return np.asarray(low.astype(column.dtype))

    def least_edges(self, column: Floats, kept: Bools) -> Floats:
        """Return the least value of every edge over the choices that are ``kept``."""
        if not len(self.source):
            return np.zeros(0)
        both = kept[self.before] & kept[self.after]
        return np.asarray(np.minimum.reduceat(np.where(both, column, np.inf), self.edge_start[:-1]))

    def most(self, column: Floats) -> Floats:
        """Return the largest value of every edge."""
        if not len(self.source):
            return np.zeros(0)
        return np.asarray(np.maximum.reduceat(column, self.edge_start[:-1]))

    def axes(self, i: int) -> tuple[Axis, ...]:
        """Return the axes that kernel ``i`` may be split along."""
        return tuple(AXES[a] for a in self.axis[self.start[i] : self.start[i + 1]])

    def sharding(self, codes: Ints) -> tuple[Axis, ...]:
        """Return the axes of one choice a kernel."""
        return tuple(AXES[a] for a in self.axis[codes].tolist())

    def codes(self, sharding: Sequence[Axis]) -> Ints:
        """Return the choice of every kernel that splits it along an axis; -1 where none does."""
        wanted = np.array([AXIS_CODE[axis] for axis in sharding], dtype=np.int64)
        found = np.full(self.n, -1, dtype=np.int64)
        places = np.nonzero(self.axis == wanted[self.kernel])[0]
        found[self.kernel[places]] = places
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """Costs of every choice, shape (choices,), and of every entry of an edge, shape (entries,).

    ``m``, ``k``, ``columns``: extents of one tile on one chip; ``n_tiles``: tiles of a kernel.
    ``work`` [FLOP], ``output_total`` [B] and ``network_time`` [s] are of a whole sequence,
    ``output_tile`` and ``weight`` [B] what one tile makes and what stays on the chip; ``cache``
    [B] what a sequence reads of its own past; ``entering`` and ``leaving`` [B] what it reads and
    writes of operands and results of the graph; ``kept`` and ``again`` [B] what stays of it for
    the backward pass (`crosstack.model.memory.activation_sizes`);
    ``data_time`` [s] is the gradient all-reduce; ``bytes_moved`` and ``edge_bytes`` [B] count whole
    tensors, as the published byte objective does. What the backward pass computes again is counted
    twice. ``edge_kind`` is a place in `CONVERSIONS`. ``clocked`` is what a temporal chip takes.
    """

    index: ChoiceIndex
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
    kept: Floats
    again: Floats
    network_time: Floats
    data_time: Floats
    bytes_moved: Floats
    edge_kind: Ints
    edge_time: Floats
    edge_bytes: Floats
    clocked: Clocked | None = None


def _allowed(arrays: GraphArrays, placement: Placement) -> Bools:
    """Which of `AXES` each kernel may be split along, shape (n, axes).

    None but ``none`` where the workload's `Placement` says how the chips split it. Otherwise:

    A batched kernel is split along its batch; no axis of extent 1, none that is tiled; a kernel
    with a weight is always split, where it can be. Source: ``dfmodel_code``.
    """
    n = arrays.n
    allowed = np.ones((n, len(AXES)), dtype=np.bool_)
    if placement is not Placement.SEARCHED:
        allowed[:, :NONE] = False
        return allowed
    extents = np.stack([arrays.outer, arrays.m, arrays.k, arrays.columns], axis=1)
    allowed[:, :NONE] = extents > 1
    allowed[~arrays.gemm, K] = False
    tiled = arrays.tiling != NONE
    allowed[np.nonzero(tiled)[0], arrays.tiling[tiled]] = False
    allowed[arrays.has_weight, NONE] = False
    batched = allowed[:, OUTER].copy()
    allowed[batched, 1:] = False
    allowed[~allowed.any(axis=1), NONE] = True
    return allowed


@lru_cache(maxsize=64)
def choice_index(arrays: GraphArrays, placement: Placement = Placement.SEARCHED) -> ChoiceIndex:
    """Return the choices of every kernel of a graph, in the order of `AXES`."""
    kernel, axis = np.nonzero(_allowed(arrays, placement))
    counts = np.bincount(kernel, minlength=arrays.n)
    start = np.concatenate([[0], np.cumsum(counts)])
    source, target = arrays.source, arrays.target
    width = counts[target]
    edge_start = np.concatenate([[0], np.cumsum(counts[source] * width)])
    edge = np.repeat(np.arange(len(source)), np.diff(edge_start))
    place = np.arange(edge_start[-1]) - edge_start[edge]
    return ChoiceIndex(
        start=start,
        kernel=kernel,
        axis=axis,
        source=source,
        target=target,
        edge_start=edge_start,
        edge=edge,
        before=start[source[edge]] + place // width[edge],
        after=start[target[edge]] + place % width[edge],
    )


def conversion_kinds(arrays: GraphArrays, index: ChoiceIndex, rules: Rules) -> Ints:
    """Conversion of every entry of an edge, as a place in `CONVERSIONS`."""
    return _conversion_kinds(arrays, index, rules.traffic)


@lru_cache(maxsize=64)
def _conversion_kinds(arrays: GraphArrays, index: ChoiceIndex, traffic: Traffic) -> Ints:
    operand = traffic.operands(arrays)
    target = arrays.target
    reader = np.where(
        ~arrays.gemm[target],
        0,
        np.where(arrays.tiling[target] == K, 3, np.where(operand == 1, 2, 1)),
    )
    needed = _NEEDED[reader[index.edge], index.axis[index.after]]
    return np.asarray(_CONVERT[_PRODUCED[index.axis[index.before]], needed], dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spread:
    """What is known of every choice before a plan: extents of its kernel, and what it splits."""

    rows: Ints
    depth: Ints
    width: Ints
    splits_rows: Bools
    splits_depth: Bools
    splits_width: Bools
    tiles_rows: Bools
    tiles_depth: Bools
    tiles_width: Bools
    untiled: Bools
    outer: Bools
    held: Bools
    factor: Floats
    repeats: Floats
    periodic: Floats
    cache: Floats
    summed: Bools
    reduced: Floats
    edge_bytes: Floats
    elided: Bools


@lru_cache(maxsize=64)
def _spread(arrays: GraphArrays, index: ChoiceIndex) -> _Spread:
    row, axis = index.kernel, index.axis
    tiling = arrays.tiling[row]
    summed = arrays.gemm[row] & (axis == K)
    edge_bytes = np.where(arrays.elided, 0.0, arrays.output_size[arrays.source])
    return _Spread(
        rows=arrays.rows[row],
        depth=arrays.k[row],
        width=arrays.columns[row],
        splits_rows=(axis == OUTER) | (axis == M),
        splits_depth=axis == K,
        splits_width=axis == N,
        tiles_rows=(tiling == OUTER) | (tiling == M),
        tiles_depth=tiling == K,
        tiles_width=tiling == N,
        untiled=tiling == NONE,
        outer=axis == OUTER,
        held=arrays.has_weight[row],
        factor=np.where(arrays.systolic[row], 2.0, 0.0),
        repeats=arrays.repeats[row],
        periodic=arrays.periodic_size[row],
        cache=arrays.cache_size[row],
        summed=summed,
        reduced=np.where(summed, arrays.output_size[row], 0.0),
        edge_bytes=edge_bytes[index.edge],
        elided=arrays.elided[index.edge],
    )


def make_choices(
    workload: Workload,
    arrays: GraphArrays,
    plan: Plan,
    n_tiles: int | Ints,
    rules: Rules,
    chip: Chip | None = None,
    microbatch: Ints | None = None,
) -> Choices:
    """Return the costs under ``plan``.

    Parameters
    ----------
    n_tiles : int or array
        Tiles a sequence, of all kernels or each. [1]
    chip : Chip or None
        What times the kernels, where it runs them one after the other.
    microbatch : array or None
        Sequences of a microbatch of each kernel, where they differ from the plan's. [1]
    """
    chips = plan.tensor
    index = choice_index(arrays, workload.placement)
    row, known = index.kernel, _spread(arrays, index)
    parts = np.asarray(n_tiles, dtype=np.int64)
    parts = parts[row] if parts.ndim else np.broadcast_to(parts, row.shape)
    whole = known.rows, known.depth, known.width
    rows, depth, width = (
        -(-extent // ways) if ways > 1 else extent
        for extent, ways in zip(whole, plan.split, strict=True)
    )
    m = np.where(known.splits_rows, -(-rows // chips), rows)
    k = np.where(known.splits_depth, -(-depth // chips), depth)
    columns = np.where(known.splits_width, -(-width // chips), width)
    word = float(workload.graph.word)
    weight = np.where(known.held, m * k, 0) * word
    shard = m * columns
    shares = Shares(
        kernel=row,
        axis=index.axis,
        rows=m / known.rows,
        depth=k / known.depth,
        width=columns / known.width,
    )
    entering, leaving = boundary_traffic(workload, arrays, plan, shares, rules)
    kept, again = activation_sizes(workload, arrays, plan, shard, shares, rules)
    m = np.where(known.tiles_rows, -(-m // parts), m)
    k = np.where(known.tiles_depth, -(-k // parts), k)
    columns = np.where(known.tiles_width, -(-columns // parts), columns)
    tiles = np.where(known.untiled, 1, parts)
    each = np.where(known.factor > 0, known.factor * k, 1.0)
    work = m.astype(np.float64) * columns * each * tiles * known.repeats
    output_tile = (m * columns).astype(np.float64) * word
    # A kernel tiled along K adds its tiles up: its output leaves once.
    output_total = output_tile * np.where(known.tiles_depth, 1, tiles)
    together = np.asarray(plan.microbatch_size if microbatch is None else microbatch)
    if not rules.collectives.once_a_microbatch:
        together = np.ones_like(together)
    network = _node_network(workload, plan, index, known, output_total, together)
    elements = (known.rows * known.width).astype(np.float64)
    # Heads are split among chips, but a head's past is not: more chips than heads keep copies.
    heads = (-(-arrays.outer // chips) / arrays.outer)[row]
    cached = np.where(known.outer, heads, shard / elements)
    spread = rules.iteration.shares_of_gradients(plan)
    periodic = known.periodic * (shard / elements) / spread
    data_time = plan.periodic.time(periodic, together=spread)
    kinds = conversion_kinds(arrays, index, rules)
    size = rules.traffic.converted_size(output_total, elements * word)
    size = np.where(known.elided, 0.0, size[index.before])
    sent = together[row[index.before]] if together.ndim else together
    gathered = plan.collectives[Collective.ALL_GATHER].time(size, together=sent)
    exchanged = plan.collectives[Collective.ALL_TO_ALL].time(size, together=sent)
    edge_time = gathered * (kinds == 1) + exchanged * (kinds == 2)
    choices = Choices(
        index=index,
        m=m,
        k=k,
        columns=columns,
        n_tiles=tiles,
        work=work,
        output_tile=output_tile,
        output_total=output_total,
        weight=weight,
        cache=known.cache * cached,
        entering=entering,
        leaving=leaving,
        kept=kept,
        again=again,
        network_time=network,
        data_time=data_time,
        bytes_moved=known.reduced,
        edge_kind=kinds,
        edge_time=edge_time,
        edge_bytes=known.edge_bytes * (kinds > 0),
        clocked=None
        if chip is None
        else clocked(
            workload,
            arrays,
            plan,
            chip,
            rules,
            choices=(row, index.axis),
            extents=(m, k, columns),
            work=work,
            cache=known.cache * cached,
            microbatch=microbatch,
        ),
    )
    twice = computed_again(arrays, plan.recompute)
    return _run_twice(choices, twice) if twice.any() else choices


def _run_twice(choices: Choices, again: Bools) -> Choices:
    """Return the costs where some kernels run twice, the second time in the backward pass.

    So does the conversion of what they read. A result that leaves the graph is there already.
    """
    index = choices.index
    times, reads = 1 + again[index.kernel], 1 + again[index.target][index.edge]
    clock = choices.clocked
    least = 0.0 if clock is None else clock.work + clock.after
    return replace(
        choices,
        work=choices.work * times,
        entering=choices.entering * times,
        network_time=choices.network_time * times,
        bytes_moved=choices.bytes_moved * times,
        edge_time=choices.edge_time * reads,
        edge_bytes=choices.edge_bytes * reads,
        clocked=clock
        and replace(clock, least=clock.least + (times - 1) * least, joules=clock.joules * times),
    )


def _node_network(
    workload: Workload,
    plan: Plan,
    index: ChoiceIndex,
    known: _Spread,
    output_total: Floats,
    together: Ints,
) -> Floats:
    """Time of the communication inherent to each choice; ``together``: sequences a message. [s]"""
    reduced = np.where(known.summed & (plan.tensor > 1), output_total, 0.0)
    each = together[index.kernel] if together.ndim else together
    time = plan.collectives[Collective.ALL_REDUCE].time(reduced, together=each)
    for i, kernel in enumerate(workload.graph.kernels):
        messages = [c for c in kernel.communications if not c.periodic]
        if messages:
            own = [
                float(plan.collectives[c.collective].time(c.size, together=together.flat[0]))
                for c in messages
            ]
            # On a grid of chips the panel goes along the rows while rows go along the columns.
            beside = workload.placement is Placement.GRID
            time[index.start[i] : index.start[i + 1]] += max(own) if beside else sum(own)
    return time


def sharding_codes(index: ChoiceIndex, sharding: Sequence[Axis], *, split: bool) -> Ints:
    """Return the choice of every kernel; -1 where no choice splits it along its axis.

    Where nothing is ``split``, as one chip has all of it, any axis is the first choice.
    """
    codes = index.codes(sharding)
    return codes if split else np.where(codes < 0, index.start[:-1], codes)
