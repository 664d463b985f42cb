"""The choices of every kernel, and what each costs on one tensor-parallel chip.

A kernel has a ragged list of *choices*: ways to split it over the tensor-parallel chips. Costs are
columns over all choices of all kernels, one after the other; an edge between two kernels has a
table over the choices of both, its change of layouts. A sharding picks one choice a kernel.

Source: ``dfmodel_code`` (rules of the inter-chip pass, re-derived in words in ``docs/rules.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.model.attention import density_on
from crosstack.model.boundary import Shares, boundary_traffic
from crosstack.model.caches import keeps_cache
from crosstack.model.choice_index import ChoiceIndex, choice_index
from crosstack.model.collectives import NOTHING
from crosstack.model.context import context_sent, hides_blocks
from crosstack.model.conversions import PARTIAL, SETS, Conversions, Edges, changes_by_set, edges_of
from crosstack.model.expert_cut import exchange_times, inside_experts
from crosstack.model.memory import MASK, activation_sizes, computed_again, masks_moved
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.model.temporal import Clocked, clocked
from crosstack.model.tokens import tokens_of
from crosstack.workload.kernel_graph import AXES, AXIS_CODE, Bools, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Collective, Placement
from crosstack.workload.passes.expert_parallel import expert_gradients
from crosstack.workload.workload import Workload

OUTER, M, K, N, NONE, SUMS = (AXIS_CODE[a] for a in AXES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # hashed by identity, for caches
class Choices:
    """Costs of every choice, shape (choices,), and of every entry of an edge, shape (entries,).

    ``m``, ``k``, ``columns``: extents of one tile on one chip; ``n_tiles``: tiles of a kernel.
    ``work`` [FLOP], ``output_total`` [B] and ``network_time`` [s] are of a whole sequence,
    ``output_tile`` and ``weight`` [B] what one tile makes and what stays on the chip; ``cache``
    [B] what a sequence reads of its own past; ``entering`` and ``leaving`` [B] what it reads and
    writes of operands and results of the graph; ``kept``, ``again`` and ``waiting`` [B] what
    stays of it for the backward pass (`crosstack.model.memory.activation_sizes`);
    ``summed`` [B] are gradients that are summed once an iteration, ``expert_summed`` [B] those of
    routed experts that fewer chips sum, ``data_time`` [s] their sum by rules that count it in the
    layers; ``exchange_time`` [s] what of the network's is tokens on their way to experts and back,
    ``context_time`` keys and values on theirs, for which links are busy ``context_busy`` and of
    which work hides ``context_behind`` at most [s]; ``bytes_moved`` and ``edge_bytes`` [B] count
    whole tensors, as the published byte objective does. What the backward pass computes again is
    counted twice, where only a share of the copies of the graph does that (`MeshPlan.again`), so
    much more. ``conversions``: what changes of layout take; ``clocked``: what a temporal chip
    takes.
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
    waiting: Floats
    network_time: Floats
    exchange_time: Floats
    context_time: Floats
    context_busy: Floats
    context_behind: Floats
    summed: Floats
    expert_summed: Floats
    data_time: Floats
    bytes_moved: Floats
    edge_bytes: Floats
    conversions: Conversions
    clocked: Clocked | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Spread:
    """What is known of every choice before a plan.

    ``extents``, ``splits`` and ``tiles`` are of outer x M, of K and of N, shape (3, choices): the
    kernel's, and which of them the choice splits, and tiles cut.
    """

    extents: Ints
    splits: Bools
    tiles: Bools
    untiled: Bools
    held: Bools
    factor: Floats
    summed: Bools
    reduced: Floats


@lru_cache(maxsize=256)
def _spread(arrays: KernelGraph, index: ChoiceIndex) -> _Spread:
    row, axis = index.kernel, index.axis
    tiling = arrays.tiling[row]
    summed = arrays.gemm[row] & (axis == K)
    exchanged = arrays.exchanged[row] & (arrays.expert_degree > 1)
    return _Spread(
        extents=np.stack([arrays.rows[row], arrays.k[row], arrays.columns[row]]),
        splits=np.stack([(axis == OUTER) | (axis == M), axis == K, axis == N]),
        tiles=np.stack([(tiling == OUTER) | (tiling == M), tiling == K, tiling == N]),
        untiled=tiling == NONE,
        held=arrays.has_weight[row],
        factor=np.where(arrays.systolic[row], 2.0, 0.0),
        summed=summed,
        reduced=np.where(summed | (axis == SUMS) | exchanged, arrays.output_size[row], 0.0),
    )


def index_of(workload: Workload, arrays: KernelGraph, rules: Rules) -> ChoiceIndex:
    """Return where the choices of a graph are, by what a rule set knows of layouts."""
    named = rules.traffic.traces_layouts
    joined = named and workload.graph_repetitions > 1 and workload.placement is Placement.SEARCHED
    return choice_index(arrays, workload.placement, named=named, joined=joined)


def make_choices(
    workload: Workload,
    arrays: KernelGraph,
    plan: MeshPlan,
    n_tiles: int | Ints,
    rules: Rules,
    chip: Chip | None = None,
    microbatch: Ints | None = None,
    index: ChoiceIndex | None = None,
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
    index : ChoiceIndex or None
        That of `index_of`, where it is known.
    """
    index = index_of(workload, plan.cut(arrays), rules) if index is None else index
    arrays = plan.graph(arrays)
    row, known = index.kernel, _spread(arrays, index)
    edges = edges_of(arrays, index, rules.traffic)
    parts = np.asarray(n_tiles, dtype=np.int64)
    parts = parts[row] if parts.ndim else np.broadcast_to(parts, row.shape)
    cut, shares = _cut(arrays, known, index, plan)
    m, k, columns = cut
    element = arrays.output_element[row]
    weight = np.where(known.held, m * k, 0) * arrays.weight_element[row]
    shard = m * columns
    entering, leaving = boundary_traffic(workload, arrays, plan, shares, rules)
    sizes = activation_sizes(workload, arrays, plan, shard, shares, rules)
    kept, again, waiting = sizes
    m, k, columns = np.where(known.tiles, -(-cut // parts), cut)
    tiles = np.where(known.untiled, 1, parts)
    each = np.where(known.factor > 0, known.factor * k, 1.0)
    density = density_on(arrays, chip, rules.traffic)
    work = m.astype(np.float64) * columns * each * tiles * arrays.repeats[row]
    work = work * (density.min(axis=1) * arrays.routing[:, 2])[row]
    output_tile = (m * columns).astype(np.float64) * element
    # A kernel tiled along K adds its tiles up: its output leaves once.
    output_total = output_tile * np.where(known.tiles[1], 1, tiles)
    together = np.asarray(plan.microbatch_size if microbatch is None else microbatch)
    if not rules.collectives.once_a_microbatch:
        together = np.ones_like(together)
    as_one = together[row] if together.ndim else together
    elements = (known.extents[0] * known.extents[2]).astype(np.float64)
    # Heads are split among chips, but a head's past is not: more chips than heads keep copies.
    heads = (-(-arrays.outer // plan.tensor) / arrays.outer)[row]
    cache = arrays.cache_size[row] * np.where(index.axis == OUTER, heads, shard / elements)
    part = shard / elements
    reread = arrays.reread[row] * part
    moved = reread + shard * (MASK * masks_moved(arrays)[row])
    entering = entering + moved
    summed_gradients = arrays.periodic_size[row] * part / arrays.sharers[row]
    later = not rules.iteration.sums_in_layers
    expert_summed = expert_gradients(arrays)[row] * part / arrays.sharers[row] * later
    data_time = np.zeros(len(row))
    if rules.iteration.sums_in_layers:
        spread = rules.iteration.shares_of_gradients(plan)
        shared = spread * arrays.sharers[row]
        data_time = plan.periodic.time(summed_gradients / spread, together=shared)
    twice = computed_again(arrays, plan.recompute)
    conversions = _conversions(
        arrays,
        plan,
        index,
        edges,
        twice,
        size=rules.traffic.converted_size(
            output_total,
            np.where(keeps_cache(arrays)[row], arrays.output_size[row], elements * element),
        ),
        together=np.broadcast_to(as_one, row.shape),
        shared=rules.traffic.shares_conversions,
    )
    exchanged = np.where(arrays.exchanged[row], shard * arrays.sent_element[row], 0.0)
    exchange = exchange_times(plan, arrays, index, exchanged, together=as_one)
    partial = edges.produced == PARTIAL
    summed = np.where(known.summed & ~partial, output_total, 0.0)
    network = _node_network(workload, plan, index, summed, together) + exchange
    changed = (edges.need > 0) & ~partial[index.before]
    clock = None
    if chip is not None:
        clock = clocked(
            workload,
            arrays,
            plan,
            chip,
            rules,
            choices=(row, index.axis),
            extents=(m, k, columns),
            density=density,
            work=work,
            moved=moved,
            cache=cache,
            microbatch=microbatch,
        )
    share = plan.again
    times, reads = 1 + share * twice[row], 1 + share * twice[index.target][index.edge]
    sent = context_sent(
        arrays,
        plan,
        shares,
        made=shard * element,
        together=as_one,
        twice=share * twice[row],
        work=clock.work if clock is not None and hides_blocks(plan, chip) else None,
    )
    return Choices(
        index=index,
        m=m,
        k=k,
        columns=columns,
        n_tiles=tiles,
        work=work * times,
        output_tile=output_tile,
        output_total=output_total,
        weight=weight,
        cache=cache,
        entering=entering * times,
        leaving=leaving,
        kept=kept,
        again=again + sent.held,
        waiting=waiting,
        network_time=network * times + sent.waited + conversions.unread_time,
        exchange_time=exchange * times,
        context_time=sent.waited,
        context_busy=sent.busy,
        context_behind=sent.behind,
        summed=summed_gradients * later,
        expert_summed=expert_summed,
        data_time=data_time,
        bytes_moved=known.reduced * times,
        edge_bytes=np.where(changed, arrays.output_size[row[index.before]], 0.0) * reads,
        conversions=conversions,
        clocked=None if clock is None else clock.again(times),
    )


def _cut(
    arrays: KernelGraph, known: _Spread, index: ChoiceIndex, plan: MeshPlan
) -> tuple[Ints, Shares]:
    """Return the extents that a chip has under every choice, (3, choices), and their shares."""
    row, cut = index.kernel, known.extents
    ways: Any = plan.tensor
    batches = (-(-arrays.outer // plan.tensor) / arrays.outer)[row]
    batch = np.where(index.axis == OUTER, batches, 1.0)
    if plan.split != (1, 1, 1):
        cut = -(-cut // np.array(plan.split)[:, None])
    if plan.cut_over is not None:  # a group has some of the experts, and its chips cut those
        of_experts, groups = (arrays.experts > 0)[row], plan.cut_over.groups
        fewer = np.where(of_experts, groups, 1)
        cut = np.stack([cut[0] // fewer, cut[1], cut[2]])
        ways, batch = np.where(of_experts, plan.cut_over.chips, ways), batch / fewer
    cut = np.where(known.splits, -(-cut // ways), cut)
    rows, depth, width = cut / known.extents
    return cut, Shares(kernel=row, batch=batch, rows=rows, depth=depth, width=width)


def least_activations(
    workload: Workload, arrays: KernelGraph, plan: MeshPlan, rules: Rules
) -> tuple[float, float]:
    """Return what a copy keeps of a sequence at least, and what comes to that once. [B]

    Under whatever choices; see `activation_sizes`.
    """
    index = index_of(workload, plan.cut(arrays), rules)
    arrays = plan.graph(arrays)
    (m, _, columns), shares = _cut(arrays, _spread(arrays, index), index, plan)
    kept, again, _ = activation_sizes(workload, arrays, plan, m * columns, shares, rules)
    every = np.ones(len(index.kernel), dtype=np.bool_)
    least, whole = (float(index.least(x, every).sum()) for x in (kept, kept + again))
    return least, max(whole - least, 0.0)


def least_summing(graph: KernelGraph, plan: MeshPlan) -> MeshPlan:
    """Return a plan that sums the gradients of one copy of a graph that a chip sums at least."""
    ways, graph = plan.tensor * math.prod(plan.split), plan.graph(graph)
    size = graph.periodic_size / graph.sharers
    experts = expert_gradients(graph) / graph.sharers
    return replace(
        plan,
        summed=float(size.sum()) / plan.tensor / math.prod(plan.split),
        expert_summed=float(experts.sum()) / ways,
    )


def summing(plan: MeshPlan, graph: KernelGraph, choices: Choices, codes: Ints) -> MeshPlan:
    """Return a plan that sums the gradients, and exchanges the tokens, of one sharding."""
    columns = choices.summed, choices.expert_summed, choices.kept
    size, experts, left = (float(column[codes].sum()) for column in columns)
    plan = tokens_of(plan, graph, choices, codes)
    return replace(plan, summed=size, expert_summed=experts, left=left)


def _conversions(
    arrays: KernelGraph,
    plan: MeshPlan,
    index: ChoiceIndex,
    edges: Edges,
    twice: Bools,
    *,
    size: Floats,
    together: Ints,
    shared: bool,
) -> Conversions:
    """Return what changes of layout take; ``twice``: kernels that run again.

    What runs again makes its result a second time: only then do backward kernels read it. Joins
    are read once, as what enters a copy of the graph is kept.
    """
    source, target = index.source, index.target
    edge = np.arange(len(source)) < len(arrays.source)
    later = twice[source] & arrays.backward[target] & edge
    among, groups = np.ones((1, len(size)), dtype=np.bool_), [plan.changes]
    if plan.cut_over is not None:  # what stays with the chips of a group is as much less
        inside = inside_experts(arrays)[index.kernel]
        among, groups = np.stack([~inside, inside]), [plan.changes, plan.cut_over.changes]
        size = np.where(inside, size / plan.cut_over.groups, size)
    table, times = np.zeros((len(size), SETS)), dict[int, Floats]()
    for those, changes in zip(among, groups, strict=True):
        for (start, number), change in changes_by_set(changes).items():
            line = change.lines
            if line is not NOTHING:
                if id(line) not in times:
                    times[id(line)] = line.time(size, together=together)
                rows = np.flatnonzero(those & (edges.produced == start))
                table[rows, number] = times[id(line)][rows]
    return Conversions(
        index=index,
        edges=edges,
        size=size,
        together=together.astype(float),
        table=table,
        first=~later,
        again=(twice[target] & edge) | later,
        shared=shared,
        share=plan.again if twice.any() else 1.0,
    )


def _node_network(
    workload: Workload, plan: MeshPlan, index: ChoiceIndex, summed: Floats, together: Ints
) -> Floats:
    """Time of the communication inherent to each choice, as of bytes ``summed``. [s]

    ``together``: sequences a message. [1]
    """
    reduced = np.where(plan.tensor > 1, summed, 0.0)
    each = together[index.kernel] if together.ndim else together
    time = plan.collectives[Collective.ALL_REDUCE].time(reduced, together=each)
    for i, some in enumerate(workload.graph.messages):
        messages = [c for c in some if not c.periodic]
        if messages:
            lines = [(plan.collectives[c.collective], c.size) for c in messages]
            own = [float(line.time(size, together=together.flat[0])) for line, size in lines]
            # On a grid of chips the panel goes along the rows while rows go along the columns.
            beside = workload.placement is Placement.GRID
            time[index.start[i] : index.start[i + 1]] += max(own) if beside else sum(own)
    return time
