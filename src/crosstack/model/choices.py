"""The choices of every kernel, and what each costs on one tensor-parallel chip.

A kernel has a ragged list of *choices*: ways to split it over the tensor-parallel chips. Costs are
columns over all choices of all kernels, one after the other; an edge between two kernels has a
table over the choices of both, its change of layouts. A sharding picks one choice a kernel.

Source: ``dfmodel_code`` (rules of the inter-chip pass, re-derived in words in ``docs/rules.md``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.model.attention import density_on
from crosstack.model.boundary import boundary_traffic
from crosstack.model.caches import keeps_cache
from crosstack.model.choice_index import ChoiceIndex, choice_index
from crosstack.model.clocked import clocked
from crosstack.model.context import context_sent, hides_blocks
from crosstack.model.conversions import PARTIAL, Conversions, Edges, conversions_of
from crosstack.model.expert_cut import exchange_times
from crosstack.model.memory import MASK, activation_sizes, computed_again, masks_moved
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.model.shards import OUTER, Shards, cut_extents, make_shards, spread_of
from crosstack.model.temporal import Clocked
from crosstack.model.tokens import tokens_of
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph
from crosstack.workload.kernels import Collective, Placement
from crosstack.workload.passes.expert_parallel import expert_gradients
from crosstack.workload.workload import Workload


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
    density = density_on(arrays, chip, rules.traffic)
    shards = make_shards(arrays, plan, index, n_tiles, density)
    row = index.kernel
    stored = _in_memory(workload, shards, plan, rules)
    summed, expert_summed, data_time = _gradients(shards, plan, rules)
    together = _sequences_of_a_message(plan, rules, microbatch)
    network = _network(workload, shards, plan, rules, together)
    clock = None
    if chip is not None:
        moved = {"moved": stored.moved, "cache": stored.cache}
        clock = clocked(workload, shards, plan, chip, rules, **moved, microbatch=microbatch)
    twice = plan.again * computed_again(arrays, plan.recompute)[row]
    times = 1 + twice
    sent = context_sent(
        arrays,
        plan,
        shards.shares,
        made=shards.elements * arrays.output_element[row],
        together=_by_choice(together, row),
        twice=twice,
        work=clock.work if clock is not None and hides_blocks(plan, chip) else None,
    )
    return Choices(
        index=index,
        m=shards.extents[0],
        k=shards.extents[1],
        columns=shards.extents[2],
        n_tiles=shards.n_tiles,
        work=shards.work * times,
        output_tile=shards.output_tile,
        output_total=shards.output_total,
        weight=shards.weight,
        cache=stored.cache,
        entering=stored.entering * times,
        leaving=stored.leaving,
        kept=stored.kept,
        again=stored.again + sent.held,
        waiting=stored.waiting,
        network_time=network.time * times + sent.waited + network.conversions.unread_time,
        exchange_time=network.exchange * times,
        context_time=sent.waited,
        context_busy=sent.busy,
        context_behind=sent.behind,
        summed=summed,
        expert_summed=expert_summed,
        data_time=data_time,
        bytes_moved=shards.spread.reduced * times,
        edge_bytes=_edge_bytes(shards, plan, network.conversions.edges),
        conversions=network.conversions,
        clocked=None if clock is None else clock.again(times),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _InMemory:
    """What every choice moves of main memory, and keeps there, for one sequence; (choices,). [B]

    As in `Choices`, each time that it runs; ``moved`` are, of ``entering``, those in any partition.
    """

    cache: Floats
    entering: Floats
    leaving: Floats
    moved: Floats
    kept: Floats
    again: Floats
    waiting: Floats


def _in_memory(workload: Workload, shards: Shards, plan: MeshPlan, rules: Rules) -> _InMemory:
    graph, index, elements, part = shards.graph, shards.index, shards.elements, shards.part
    row, shares = index.kernel, shards.shares
    entering, leaving = boundary_traffic(workload, graph, plan, shares, rules)
    kept, again, waiting = activation_sizes(workload, graph, plan, elements, shares, rules)
    # Heads are split among chips, but a head's past is not: more chips than heads keep copies.
    heads = (-(-graph.outer // plan.tensor) / graph.outer)[row]
    moved = graph.reread[row] * part + elements * (MASK * masks_moved(graph)[row])
    return _InMemory(
        cache=graph.cache_size[row] * np.where(index.axis == OUTER, heads, part),
        entering=entering + moved,
        leaving=leaving,
        moved=moved,
        kept=kept,
        again=again,
        waiting=waiting,
    )


def _gradients(shards: Shards, plan: MeshPlan, rules: Rules) -> tuple[Floats, Floats, Floats]:
    """Return `Choices.summed` and `Choices.expert_summed` [B], and `Choices.data_time` [s]."""
    graph, row = shards.graph, shards.index.kernel
    sharers, later = graph.sharers[row], not rules.iteration.sums_in_layers
    summed = graph.periodic_size[row] * shards.part / sharers
    experts = expert_gradients(graph)[row] * shards.part / sharers
    data_time = np.zeros(len(row))
    if not later:
        spread = rules.iteration.shares_of_gradients(plan)
        data_time = plan.periodic.time(summed / spread, together=spread * sharers)
    return summed * later, experts * later, data_time


def _sequences_of_a_message(plan: MeshPlan, rules: Rules, microbatch: Ints | None) -> Ints:
    """Return the sequences that are sent together, one number or of each kernel. [1]"""
    together = np.asarray(plan.microbatch_size if microbatch is None else microbatch)
    return together if rules.collectives.once_a_microbatch else np.ones_like(together)


def _by_choice(together: Ints, row: Ints) -> Ints:
    """Return `_sequences_of_a_message` of every choice, or the one number. [1]"""
    return together[row] if together.ndim else together


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Network:
    """What every choice sends, but keys and values, each time that it runs; (choices,). [s]

    ``time``: inherent to the choice, ``exchange`` of it tokens; ``conversions`` come besides.
    """

    time: Floats
    exchange: Floats
    conversions: Conversions


def _network(
    workload: Workload, shards: Shards, plan: MeshPlan, rules: Rules, together: Ints
) -> _Network:
    """Return what every choice sends; ``together``: see `_sequences_of_a_message`. [1]"""
    graph, index, spread = shards.graph, shards.index, shards.spread
    row, total = index.kernel, shards.output_total
    element, as_one = graph.output_element[row], _by_choice(together, row)
    whole = np.where(keeps_cache(graph)[row], graph.output_size[row], spread.elements * element)
    conversions = conversions_of(
        graph,
        plan,
        index,
        rules.traffic,
        size=rules.traffic.converted_size(total, whole),
        together=np.broadcast_to(as_one, row.shape),
    )
    exchanged = np.where(graph.exchanged[row], shards.elements * graph.sent_element[row], 0.0)
    exchange = exchange_times(plan, graph, index, exchanged, together=as_one)
    partial = conversions.edges.produced == PARTIAL
    summed = np.where(spread.summed & ~partial, total, 0.0)
    time = _node_network(workload, plan, index, summed, together) + exchange
    return _Network(time=time, exchange=exchange, conversions=conversions)


def _edge_bytes(shards: Shards, plan: MeshPlan, edges: Edges) -> Floats:
    """Return bytes of whole tensors whose layout changes, of every entry of an edge. [B]

    What runs again reads them a second time.
    """
    graph, index = shards.graph, shards.index
    changed = (edges.need > 0) & ~(edges.produced == PARTIAL)[index.before]
    again = computed_again(graph, plan.recompute)[index.target][index.edge]
    size = graph.output_size[index.kernel[index.before]]
    return np.asarray(np.where(changed, size, 0.0) * (1 + plan.again * again))


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


def least_activations(
    workload: Workload, arrays: KernelGraph, plan: MeshPlan, rules: Rules
) -> tuple[float, float]:
    """Return what a copy keeps of a sequence at least, and what comes to that once. [B]

    Under whatever choices; see `activation_sizes`.
    """
    index = index_of(workload, plan.cut(arrays), rules)
    arrays = plan.graph(arrays)
    (m, _, columns), shares = cut_extents(arrays, spread_of(arrays, index), index, plan)
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
