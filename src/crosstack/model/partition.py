"""What a partition costs: kernels fused on one chip, run together.

The one home of these formulas: the optimiser's coefficients and the evaluator's terms both come
from `ChipLoad` and `partition_cost`.

For a set S of kernels, one layer, one sequence (``ko2025dfmodel`` V.B; ``dfmodel_code``):

* compute: with a given utilization, the sum of work / (utilization x peak); otherwise the slowest
  kernel when whole cores are dealt out so that the slowest is as fast as possible;
* memory: tensors that enter or leave S, extra traffic and, by rule, weights, over the bandwidth;
* network: collectives of the kernels and conversions of the tensors they make;
* SRAM: two tiles of every tensor that enters or leaves, ``depth`` tiles of every tensor inside, and
  the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from crosstack.chip.chip import Overlap
from crosstack.model.arrays import Bools, Floats, GraphArrays, Ints, bits
from crosstack.model.options import Options
from crosstack.model.plan import Plan
from crosstack.model.rules import ModelRules, WeightCuts
from crosstack.system.system import System
from crosstack.workload.graph import Workload

__all__ = [
    "ChipLoad",
    "Flow",
    "PartitionCost",
    "Staircase",
    "combine",
    "deal_cores",
    "live_size",
    "make_load",
    "memory_static",
    "partition_cost",
    "relaxed_load",
    "staircase",
]

ROUNDING = 1e-12  # relative, of sums of bytes against a capacity
STREAM_DEPTH = 2  # tiles of a tensor that enters or leaves: one moves while one is used


@dataclass(frozen=True, slots=True)
class Staircase:
    """Fewest cores for each reachable number of cycles: cores ascending, cycles descending."""

    cores: Ints
    cycles: Floats
    lanes: Ints
    stages: Ints


@dataclass(frozen=True, slots=True)
class Flow:
    """A tensor on one chip: who makes it, who reads it (kernel, depth), its bytes."""

    producer: int
    readers: tuple[tuple[int, int], ...]
    tile: float
    total: float
    mask: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipLoad:
    """What one chip has to do for one layer of one sequence under a plan and a sharding.

    Times in [s], sizes in [B]; sequences over kernels in graph order. ``compute`` is exact where
    utilization is given, otherwise the least time with all cores; then ``staircases`` hold the
    cycles. ``shapes`` are the extents of a tile: m, k, n, systolic. ``memory_limit`` is what
    tensors of one sequence may occupy of the main memory. A partition lies inside each mask of
    ``unmixed``, or outside.
    """

    n: int
    names: tuple[str, ...]
    preds: tuple[int, ...]
    succs: tuple[int, ...]
    order: tuple[int, ...]
    compute: tuple[float, ...]
    staircases: tuple[Staircase, ...] | None
    cycle_time: tuple[float, ...]
    shapes: tuple[tuple[int, int, int, bool], ...]
    lanes: int
    stages: int
    n_cores: int
    network: tuple[float, ...]
    data: tuple[float, ...]
    own_memory: tuple[float, ...]
    weight_time: tuple[float, ...]
    sram: tuple[float, ...]
    weight: tuple[float, ...]
    flows: tuple[Flow, ...]
    flows_of: tuple[tuple[int, ...], ...]
    backward: int
    unmixed: tuple[int, ...]
    bandwidth: float
    sram_capacity: float
    memory_limit: float
    memory_static: float
    overlap: Overlap
    weight_cuts: WeightCuts
    network_takes_maximum: bool
    resident_alone: bool

    @property
    def everything(self) -> int:
        """Mask of all kernels."""
        return (1 << self.n) - 1


@dataclass(frozen=True, slots=True)
class PartitionCost:
    """Terms of one partition; ``fits`` tells whether the SRAM and the cores suffice."""

    compute: float
    memory: float
    network: float
    time: float
    traffic: float
    sram: float
    cuts: int
    fits: bool
    cores: tuple[tuple[int, int, int], ...] | None  # (kernel, lanes, stages)


@lru_cache(maxsize=4096)
def staircase(
    m: int, k: int, n: int, systolic: bool, lanes: int, stages: int, n_cores: int
) -> Staircase:
    """Return the cycles of one tile against the cores a kernel gets.

    Parameters
    ----------
    m, k, n : int
        Extents of one tile on one chip. [1]
    systolic : bool
        Systolic kernels split M over lanes and N over stages; elementwise ones M over lanes.
    lanes, stages, n_cores : int
        Of the chip. [1]

    Notes
    -----
    ``cycles = ceil(m / (a lanes)) ceil(n / (b stages)) k`` with a x b cores (elementwise: b = 1,
    ``ceil(m / (a lanes)) n``). Source: ``dfmodel_code``.
    """
    a = _fewest(m, lanes, n_cores)
    rows = -(-m // (a * lanes))
    if systolic:
        b = _fewest(n, stages, n_cores)
        columns = -(-n // (b * stages))
        cores = (a[:, None] * b[None, :]).ravel()
        cycles = (rows[:, None] * columns[None, :]).ravel().astype(float) * k
        side_a, side_b = np.repeat(a, len(b)), np.tile(b, len(a))
    else:
        cores, cycles = a, rows.astype(float) * n
        side_a, side_b = a, np.ones_like(a)
    fits = cores <= n_cores
    cores, cycles, side_a, side_b = cores[fits], cycles[fits], side_a[fits], side_b[fits]
    order = np.lexsort((cycles, cores))
    best = np.minimum.accumulate(cycles[order])
    keep = np.concatenate([[True], best[1:] < best[:-1]])
    chosen = order[keep]
    return Staircase(cores[chosen], cycles[chosen], side_a[chosen], side_b[chosen])


def _fewest(extent: int, cells: int, n_cores: int) -> Ints:
    """Core counts along one side that each give a new number of steps, ascending."""
    most = min(n_cores, -(-extent // cells))
    counts = np.arange(1, most + 1, dtype=np.int64)
    rounds = -(-extent // (counts * cells))
    return np.asarray(counts[np.concatenate([[True], rounds[1:] < rounds[:-1]])])


def make_load(
    workload: Workload,
    system: System,
    arrays: GraphArrays,
    plan: Plan,
    options: Options,
    codes: Ints,
    rules: ModelRules,
) -> ChipLoad:
    """Return the load of one chip when kernel i is sharded along axis ``codes[i]``."""
    rows = np.arange(arrays.n)
    conversion = options.edge_time[
        np.arange(len(arrays.source)), codes[arrays.source], codes[arrays.target]
    ]
    network = options.network_time[rows, codes].copy()
    if rules.fan_out_copies:
        np.add.at(network, arrays.source, conversion)
    else:
        network += _converted_once(arrays, options, codes, conversion)
    return _assemble(
        workload,
        system,
        arrays,
        plan,
        rules,
        network=network,
        pick=lambda table: table[rows, codes],
        options=options,
    )


def relaxed_load(
    workload: Workload,
    system: System,
    arrays: GraphArrays,
    plan: Plan,
    options: Options,
    domains: Sequence[Sequence[int]],
    rules: ModelRules,
) -> ChipLoad:
    """Return a load no heavier in any respect than that of any sharding within ``domains``.

    Every term takes its least value over the axes a kernel may still have, each on its own, so the
    best fusion of this load is a lower bound on all of those shardings.
    """
    never = np.ones((arrays.n, 5), dtype=np.bool_)
    for i, domain in enumerate(domains):
        never[i, list(domain)] = False
    network = np.where(never, math.inf, options.network_time).min(axis=1)
    if len(arrays.source):
        shut = never[arrays.source][:, :, None] | never[arrays.target][:, None, :]
        conversion = np.where(shut, math.inf, options.edge_time).min(axis=(1, 2))
        if rules.fan_out_copies:
            np.add.at(network, arrays.source, conversion)
        else:  # readers may share a conversion: only the largest is sure
            largest = np.zeros(arrays.n)
            np.maximum.at(largest, arrays.source, conversion)
            network = network + largest

    def least(table: Floats) -> Floats:
        low = np.where(never, math.inf, table).min(axis=1)
        return np.asarray(low.astype(table.dtype))

    return _assemble(
        workload, system, arrays, plan, rules, network=network, pick=least, options=options
    )


def _assemble(
    workload: Workload,
    system: System,
    arrays: GraphArrays,
    plan: Plan,
    rules: ModelRules,
    *,
    network: Floats,
    pick: Callable[[Any], Any],
    options: Options,
) -> ChipLoad:
    chip = system.chip
    weight, tiles = pick(options.weight), pick(options.n_tiles)
    stairs: tuple[Staircase, ...] | None = None
    cycle_time = tiles * arrays.repeats / chip.frequency
    shapes = tuple(
        zip(
            pick(options.m).tolist(),
            pick(options.k).tolist(),
            pick(options.columns).tolist(),
            arrays.systolic.tolist(),
            strict=True,
        )
    )
    if chip.utilization is None:
        stairs = tuple(staircase(*x, chip.lanes, chip.stages, chip.n_cores) for x in shapes)
        compute = np.array([s.cycles[-1] for s in stairs]) * cycle_time
    else:
        compute = pick(options.work) / (chip.utilization * chip.peak_throughput)
    flows, flows_of = _flows(
        arrays,
        pick(options.output_tile).tolist(),
        pick(options.output_total).tolist(),
        rules.fan_out_copies,
    )
    static = memory_static(workload, arrays, plan, weight, rules)
    capacity = math.inf if system.memory.capacity is None else system.memory.capacity
    bandwidth = system.memory.bandwidth
    read = weight / bandwidth / plan.microbatch_size if rules.weights_read else np.zeros(arrays.n)
    return ChipLoad(
        n=arrays.n,
        names=arrays.names,
        preds=arrays.preds,
        succs=arrays.succs,
        order=arrays.order,
        compute=tuple(compute.tolist()),
        staircases=stairs,
        cycle_time=tuple(cycle_time.tolist()),
        shapes=shapes,
        lanes=chip.lanes,
        stages=chip.stages,
        n_cores=chip.n_cores,
        network=tuple(network.tolist()),
        data=tuple(pick(options.data_time).tolist()),
        own_memory=tuple((arrays.memory_traffic / bandwidth).tolist()),
        weight_time=tuple(read.tolist()),
        sram=tuple((weight + arrays.sram_extra).tolist()),
        weight=tuple(weight.tolist()),
        flows=flows,
        flows_of=flows_of,
        backward=_mask(arrays.backward),
        unmixed=tuple(m for m in (_mask(arrays.counted_inputs),) if m),
        bandwidth=bandwidth,
        sram_capacity=chip.sram_capacity,
        memory_limit=(capacity - static) / plan.microbatch_size,
        memory_static=static,
        overlap=chip.overlap,
        weight_cuts=rules.weight_cuts,
        network_takes_maximum=rules.network_takes_maximum,
        resident_alone=rules.weights_read and plan.layers_per_stage == 1,
    )


def memory_static(
    workload: Workload, arrays: GraphArrays, plan: Plan, weight: Floats, rules: ModelRules
) -> float:
    """Main-memory bytes of one chip that stay: weights, training state, extra data. [B]"""
    state = rules.training_state / workload.graph.word if workload.training else 0.0
    # A training graph names each weight twice, in its forward and its backward kernel; gradient
    # and optimizer state exist once.
    forward = weight[~arrays.backward].sum()
    held = forward if rules.weights_held_once else weight.sum()
    held += state * forward + arrays.memory_extra.sum()
    return float(held * plan.layers_per_stage)


def _converted_once(
    arrays: GraphArrays, options: Options, codes: Ints, conversion: Floats
) -> Floats:
    """Conversion time per producer when readers that need the same layout share one."""
    kinds = options.edge_kind[
        np.arange(len(arrays.source)), codes[arrays.source], codes[arrays.target]
    ]
    best = np.zeros((3, arrays.n))
    np.maximum.at(best, (kinds, arrays.source), conversion)
    return np.asarray(best[1:].sum(axis=0))


def _mask(flags: Bools) -> int:
    return sum(1 << i for i in np.nonzero(flags)[0].tolist())


@lru_cache(maxsize=64)
def _flow_shapes(
    graph: GraphArrays, copies: bool
) -> tuple[tuple[tuple[int, tuple[tuple[int, int], ...], int], ...], tuple[tuple[int, ...], ...]]:
    """Producer, readers and reader mask of every flow, and the flows that touch each kernel."""
    groups: dict[int, list[tuple[int, int, int]]] = {}
    edges = zip(
        graph.source.tolist(),
        graph.target.tolist(),
        graph.depth.tolist(),
        graph.tensor.tolist(),
        graph.elided.tolist(),
        strict=True,
    )
    for e, (source, target, depth, tensor, elided) in enumerate(edges):
        if not elided:
            groups.setdefault(e if copies else tensor, []).append((source, target, depth))
    shapes = []
    touching: list[list[int]] = [[] for _ in range(graph.n)]
    for f, members in enumerate(groups.values()):
        source = members[0][0]
        depths: dict[int, int] = {}
        for _, target, depth in members:  # both operands of one kernel share the buffer
            depths[target] = max(depth, depths.get(target, 0))
        shapes.append((source, tuple(depths.items()), sum(1 << target for target in depths)))
        for kernel in {source, *depths}:
            touching[kernel].append(f)
    return tuple(shapes), tuple(tuple(f) for f in touching)


def _flows(
    arrays: GraphArrays, tile: list[float], total: list[float], copies: bool
) -> tuple[tuple[Flow, ...], tuple[tuple[int, ...], ...]]:
    shapes, touching = _flow_shapes(arrays, copies)
    flows = tuple(
        Flow(source, readers, tile[source], total[source], mask) for source, readers, mask in shapes
    )
    return flows, touching


def combine(compute: float, memory: float, network: float, overlap: Overlap) -> float:
    """Time of a partition from its three terms, by what hides behind what. [s]"""
    if overlap is Overlap.ALL:
        return max(compute, memory, network)
    if overlap is Overlap.NONE:
        return compute + memory + network
    return max(compute, memory) + network


def live_size(load: ChipLoad, before: int, inside: int) -> float:
    """Main-memory bytes of one sequence's tensors while partition ``inside`` runs. [B]

    ``before`` is the mask of kernels that have run. A tensor lives from the partition that makes
    it to the last that reads it, unless it never leaves a partition.
    """
    reached = before | inside
    return sum(
        flow.total
        for flow in load.flows
        if reached >> flow.producer & 1
        and flow.mask & ~before
        and not (inside >> flow.producer & 1 and not flow.mask & ~inside)
    )


def deal_cores(
    stairs: list[tuple[int, Staircase, float]], n_cores: int
) -> tuple[float, tuple[tuple[int, int, int], ...]] | None:
    """Deal whole cores to kernels so that the slowest is as fast as possible, exactly.

    Parameters
    ----------
    stairs : list of (kernel, Staircase, seconds per cycle)
        The kernels of a partition.

    Returns
    -------
    (time, ((kernel, lanes, stages), ...)) or None
        None if there are fewer cores than kernels.

    Notes
    -----
    The fewest cores that reach a time T fall as T grows, so T is found by bisection over the
    times that some kernel can take.
    """
    if sum(int(s.cores[0]) for _, s, _ in stairs) > n_cores:
        return None
    times = [s.cycles * scale for _, s, scale in stairs]
    steps = np.unique(np.concatenate(times))

    def picks(limit: float) -> list[int] | None:
        total, chosen = 0, []
        for (_, s, _), taken in zip(stairs, times, strict=True):
            # taken falls, so count how many are still above the limit
            i = len(taken) - int(np.searchsorted(taken[::-1], limit, side="right"))
            if i == len(taken):
                return None
            total += int(s.cores[i])
            if total > n_cores:
                return None
            chosen.append(i)
        return chosen

    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        if picks(float(steps[middle])) is None:
            low = middle + 1
        else:
            high = middle
    chosen = picks(float(steps[low]))
    if chosen is None:
        return None
    dealt = tuple(
        (kernel, int(s.lanes[i]), int(s.stages[i]))
        for (kernel, s, _), i in zip(stairs, chosen, strict=True)
    )
    return float(steps[low]), dealt


def cycles(load: ChipLoad, i: int, lanes: int, stages: int) -> int:
    """Cycles of one tile of kernel ``i`` on ``lanes`` x ``stages`` cores; see `staircase`."""
    m, k, n, systolic = load.shapes[i]
    rounds = -(-m // (lanes * load.lanes))
    return rounds * -(-n // (stages * load.stages)) * k if systolic else rounds * n


def partition_cost(
    load: ChipLoad, inside: int, cores: Mapping[int, tuple[int, int]] | None = None
) -> PartitionCost:
    """Cost of running the kernels of mask ``inside`` as one partition.

    ``cores`` gives lanes and stages per kernel instead of the best deal.
    """
    members = bits(inside)
    touched = {f for i in members for f in load.flows_of[i]}
    into = out = 0.0
    sram = sram_in = sram_out = 0.0
    for f in touched:
        flow = load.flows[f]
        if inside >> flow.producer & 1:
            depths = [depth for reader, depth in flow.readers if inside >> reader & 1]
            if flow.mask & ~inside:
                out += flow.total
                depths.append(STREAM_DEPTH)
            sram_out += max(depths) * flow.tile
        else:
            into += flow.total
            sram_in += STREAM_DEPTH * flow.tile
    held = sum(load.sram[i] for i in members)
    sram = sram_in + sram_out + held
    cuts, fits = 1, sram <= load.sram_capacity * (1 + ROUNDING)
    if not fits and len(members) == 1 and load.weight[members[0]] > 0:
        cuts = weight_pieces(load, sram_in, sram_out + held)
        fits = cuts > 0
        if fits:
            sram = sram_in + (sram_out + held) / cuts
        cuts = max(cuts, 1)
    traffic = (into + out) / load.bandwidth
    if cuts > 1 and load.weight_cuts is not WeightCuts.FREE:
        extra = into if load.weight_cuts is WeightCuts.INPUTS else into + out
        traffic += (cuts - 1) * extra / load.bandwidth
    memory = traffic + sum(load.own_memory[i] for i in members)
    if not (load.resident_alone and inside == load.everything):
        memory += sum(load.weight_time[i] for i in members)
    network, data = sum(load.network[i] for i in members), sum(load.data[i] for i in members)
    network = max(network, data) if load.network_takes_maximum else network + data
    dealt = None
    if load.staircases is None:
        compute = sum(load.compute[i] for i in members)
    elif cores is not None:
        dealt = tuple((i, *cores[i]) for i in members)
        fits = fits and sum(a * b for _, a, b in dealt) <= load.n_cores
        compute = max(
            (cycles(load, i, a, b) * load.cycle_time[i] for i, a, b in dealt), default=0.0
        )
    elif members:
        deal = deal_cores(
            [(i, load.staircases[i], load.cycle_time[i]) for i in members], load.n_cores
        )
        if deal is None:
            fits, compute = False, math.inf
        else:
            compute, dealt = deal
    else:
        compute = 0.0
    if any(inside & group not in (0, inside) for group in load.unmixed):
        fits = False
    time = combine(compute, memory, network, load.overlap)
    return PartitionCost(
        compute, memory, network, time, memory * load.bandwidth, sram, cuts, fits, dealt
    )


def weight_pieces(load: ChipLoad, fixed: float, cut: float) -> int:
    """Pieces that ``cut`` bytes must be cut into to fit beside ``fixed``; 0 if none does."""
    room = load.sram_capacity - fixed
    if room <= 0:
        return 0
    return math.ceil(cut / room)
