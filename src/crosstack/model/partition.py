"""What a partition costs: kernels fused on one chip, run together.

The one home of these formulas: the optimiser's coefficients and the evaluator's terms both come
from `ChipLoad` and `partition_cost`. For a set S of kernels, one layer, one sequence
(``ko2025dfmodel`` V.B; ``dfmodel_code``):

* compute: with a given utilization, the sum of work / (utilization x peak); otherwise the slowest
  kernel when whole cores are dealt out so that the slowest is as fast as possible;
* memory: tensors that enter or leave S, extra traffic and, by rule, weights and what enters or
  leaves the graph (`crosstack.model.boundary`), over the bandwidth;
* network: collectives of the kernels and conversions of the tensors they make;
* SRAM: two tiles of every tensor that enters or leaves, ``depth`` tiles of every tensor inside, and
  the weights.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, assert_never

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.machine.system import System
from crosstack.model.boundary import streams_memory
from crosstack.model.choices import Choices
from crosstack.model.context import results_sent
from crosstack.model.cores import Staircase, deal_cores, staircase
from crosstack.model.flows import Flow, flow_ends
from crosstack.model.legality import Legality, legality_on, mask_of
from crosstack.model.memory import (
    COPY_COLUMNS,
    activations_held,
    computed_again,
    copy_memory,
    kept_tensors,
    static_sizes,
)
from crosstack.model.memory_units import assign_memory_units
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.model.temporal import Clocked, temporal_load
from crosstack.model.temporal_load import TemporalLoad
from crosstack.model.traffic import Traffic
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph, bits
from crosstack.workload.passes.routing import touched_share
from crosstack.workload.workload import Workload

ROUNDING = 1e-12  # relative, of sums of bytes against a capacity
# Terms of a load that are one value a kernel.
PER_KERNEL = (
    "compute", "cycle_time", "network", "data", "own_memory", "entering", "leaving", "weight_time",
    "sram", "weight", "kept",
)  # fmt: skip
STREAM_DEPTH = 2  # tiles of a tensor that enters or leaves: one moves while one is used


@dataclass(frozen=True, slots=True, kw_only=True)
class ChipLoad:
    """What one chip has to do for one layer of one sequence under a plan and a sharding.

    Times in [s], sizes in [B]; sequences over kernels in graph order. ``compute`` is exact where
    utilization is given, otherwise the least time with all cores; then ``staircases`` hold the
    cycles. ``own_memory`` is what a kernel moves in any partition, weights apart; ``entering`` and
    ``leaving`` are the bytes of it that enter and leave the graph.
    ``shapes`` are the extents of a tile: m, k, n, systolic. ``memory_limit`` is what
    tensors of one sequence may occupy of the main memory, ``memory_static`` what is there whatever
    runs, ``activations`` those of it, ``kept`` what each kernel of one copy of the graph keeps of
    the rest. A partition lies inside each mask of ``unmixed``, or outside. ``memory_price`` and
    ``network_price`` are what the objective adds for each second of main memory and of the network,
    besides the time of the partition. [1] ``extra`` is what it adds for all kernels, whatever the
    partitions. [s] ``temporal`` is what kernels take of a chip that runs them one after the other;
    ``compute`` and ``own_memory`` are then what each adds to any partition at least.
    """

    n: int
    names: tuple[str, ...]
    preds: tuple[int, ...]
    succs: tuple[int, ...]
    order: tuple[int, ...]
    compute: tuple[float, ...]
    staircases: tuple[Staircase, ...] | None = None
    cycle_time: tuple[float, ...]
    shapes: tuple[tuple[int, int, int, bool], ...]
    lanes: int
    stages: int
    n_cores: int
    network: tuple[float, ...]
    data: tuple[float, ...]
    own_memory: tuple[float, ...]
    entering: tuple[float, ...]
    leaving: tuple[float, ...]
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
    activations: float
    kept: tuple[float, ...]
    overlap: Overlap
    traffic: Traffic
    network_takes_maximum: bool
    resident_alone: bool = False
    stream_depth: int = STREAM_DEPTH
    unit: float | None = None
    memory_price: float = 0.0
    network_price: float = 0.0
    extra: float = 0.0
    temporal: TemporalLoad | None = None

    @property
    def everything(self) -> int:
        """Mask of all kernels."""
        return (1 << self.n) - 1

    def cycles(self, i: int, lanes: int, stages: int) -> int:
        """Cycles of one tile of kernel ``i`` on ``lanes`` x ``stages`` cores; see `staircase`."""
        m, k, n, systolic = self.shapes[i]
        rounds = -(-m // (lanes * self.lanes))
        return rounds * -(-n // (stages * self.stages)) * k if systolic else rounds * n


@dataclass(frozen=True, slots=True)
class PartitionCost:
    """Terms of one partition; ``fits`` tells whether the SRAM and the cores suffice.

    ``cost`` is what the objective counts: the time, and what it adds for memory and network. [s]
    ``launch`` is what a temporal chip takes before the kernels start. [s]
    """

    compute: float
    memory: float
    network: float
    time: float
    cost: float
    traffic: float
    sram: float
    cuts: int
    fits: bool
    cores: tuple[tuple[int, int, int], ...] | None  # (kernel, lanes, stages)
    launch: float = 0.0


def make_load(
    workload: Workload,
    system: System,
    arrays: KernelGraph,
    plan: MeshPlan,
    choices: Choices,
    codes: Ints,
    rules: Rules,
    *,
    roomy: bool = False,
) -> ChipLoad:
    """Return the load of one chip when kernel i takes the choice ``codes[i]``.

    ``roomy``: main memory has room for all, so that nothing is said of what is in it.
    """
    graph = plan.graph(arrays)
    picked = _Picked(workload, system, graph, plan, rules, choices, lambda column: column[codes])
    return _assemble(picked, network_times(choices, codes), roomy=roomy)


def network_times(choices: Choices, codes: Ints) -> Floats:
    """Collectives of each kernel, and changes of what it makes, under a sharding. [s]"""
    return np.asarray(choices.network_time[codes] + choices.conversions.times(codes))


def one_by_one(load: ChipLoad, rules: Rules) -> ChipLoad:
    """Return the load of a chip that runs its kernels one by one; see `Rules`."""
    return replace(load, stream_depth=rules.traffic.unfused_depth)


def relaxed_load(
    workload: Workload,
    system: System,
    arrays: KernelGraph,
    plan: MeshPlan,
    choices: Choices,
    domains: Sequence[Sequence[int]],
    rules: Rules,
    *,
    roomy: bool = False,
) -> ChipLoad:
    """Return a load no heavier in any respect than that of any sharding within ``domains``.

    Every term takes its least value over the choices a kernel may still have, each on its own, so
    the best fusion of this load is a lower bound on all of those shardings. ``roomy`` as in
    `make_load`.
    """
    index = choices.index
    kept = index.inside(domains)
    network = index.least(choices.network_time, kept)
    if len(index.source):
        network = network + choices.conversions.least(kept)

    pick = partial(index.least, kept=kept)
    graph = plan.graph(arrays)
    picked = _Picked(workload, system, graph, plan, rules, choices, pick)
    return _assemble(picked, network, roomy=roomy)


@dataclass(frozen=True, eq=False)
class _Picked:
    """What a load is made of: one value a kernel of every column of ``choices``."""

    workload: Workload
    system: System
    arrays: KernelGraph
    plan: MeshPlan
    rules: Rules
    choices: Choices
    pick: Callable[[Any], Any]

    def of(self, name: str) -> Any:
        """Return one column of the choices."""
        return self.pick(getattr(self.choices, name))

    @cached_property
    def again(self) -> Bools:
        """Which kernels run twice."""
        return computed_again(self.arrays, self.plan.recompute)

    @cached_property
    def made(self) -> Floats:
        """Bytes of each result that may cross the border of a partition. [B]"""
        passes = streams_memory(self.workload.placement, self.rules)
        return np.asarray(self.of("output_total") * (not passes))


def _assemble(picked: _Picked, network: Floats, *, roomy: bool) -> ChipLoad:
    workload, arrays, plan = picked.workload, picked.arrays, picked.plan
    chip, rules = picked.system.chip, picked.rules
    columns = {name: picked.of(name) for name in COPY_COLUMNS}
    weight, memory = columns["weight"], copy_memory(workload, arrays, plan, rules, **columns)
    static, limit, activations = 0.0, math.inf, 0.0
    if not roomy:
        static, full = map(float, static_sizes(workload, plan, memory))  # full: while an end runs
        capacity = chip.memory_room(spilled=plan.spilled)
        static = full if full > capacity else static
        limit = (capacity - static) / plan.microbatch_size / plan.schedule.at_once
        activations = float(activations_held(plan, memory))
    temporal = picked.choices.clocked is not None
    kind = _one_after_the_other(picked, network) if temporal else _side_by_side(picked, weight)
    return ChipLoad(
        n=arrays.n,
        names=arrays.names,
        preds=arrays.preds,
        succs=arrays.succs,
        order=arrays.order,
        lanes=chip.compute.rows,
        stages=chip.compute.columns,
        n_cores=chip.compute.n_units,
        network=tuple(network.tolist()),
        data=tuple(picked.of("data_time").tolist()),
        entering=tuple(picked.of("entering").tolist()),
        leaving=tuple(picked.of("leaving").tolist()),
        weight=tuple(weight.tolist()),
        backward=mask_of(arrays.backward),
        unmixed=tuple(m for m in (mask_of(arrays.counted_inputs),) if m),
        bandwidth=chip.memory_speed(spilled=plan.spilled),
        sram_capacity=chip.on_chip_capacity,
        memory_limit=limit,
        memory_static=static,
        activations=activations,
        kept=tuple(memory.resident.tolist()),
        overlap=chip.overlap,
        traffic=rules.traffic,
        network_takes_maximum=rules.traffic.network_takes_maximum,
        **kind,
    )


def _side_by_side(picked: _Picked, weight: Floats) -> dict[str, Any]:
    """Return what a spatial chip adds to a load: cores, SRAM and what crosses its border."""
    chip, arrays, plan, rules = picked.system.chip, picked.arrays, picked.plan, picked.rules
    clock, again, utilization = rules.clock, picked.again, chip.compute.utilization
    each = picked.of("n_tiles") * arrays.repeats * arrays.routing[:, 2]
    cycle_time = each * (1 + again) / chip.compute.frequency
    cycles, peak = np.ones((2, arrays.n))
    for dtype, those in arrays.kernels_by_dtype:
        cycles[those] = clock.cycles_per_step(chip, dtype, arrays.systolic)[those]
        peak[those] = clock.peak_rate(chip, dtype)
    cycle_time = cycle_time * cycles
    steps = np.ceil(picked.of("k") / chip.compute.steps_per_cycle).astype(int)
    extents = picked.of("m"), steps, picked.of("columns"), arrays.systolic
    shapes = tuple(zip(*(column.tolist() for column in extents), strict=True))
    stairs: tuple[Staircase, ...] | None = None
    if utilization is None:
        cells = chip.compute.rows, chip.compute.columns, chip.compute.n_units
        stairs = tuple(staircase(*x, *cells) for x in shapes)
        compute = np.array([s.cycles[-1] for s in stairs]) * cycle_time
    else:
        compute = picked.of("work") / (utilization * peak)
    streams = rules.traffic.streams(picked.workload.placement)
    tile = (picked.of("output_tile") * (not streams)).tolist()
    flows, flows_of = _flows(picked, tile)
    bandwidth = chip.memory_speed(spilled=plan.spilled)
    read = np.zeros(arrays.n)
    if rules.traffic.weights_read:
        touched = touched_share(arrays.routing, plan.microbatch_size)
        read = weight * touched * (1 + again) / bandwidth / plan.microbatch_size
    own = (arrays.memory_traffic + picked.of("cache")) * (1 + again)
    own = own + picked.of("entering") + picked.of("leaving") + _read_anew(picked)
    sram = (weight + arrays.sram_extra) * (not streams)
    # A whole graph whose weights exceed the SRAM is in no single partition; a stage's may be.
    may_stay = plan.graph_stages > 1 or float(sram.sum()) <= chip.on_chip_capacity * (1 + ROUNDING)
    return {
        "compute": tuple(compute.tolist()),
        "staircases": stairs,
        "cycle_time": tuple(cycle_time.tolist()),
        "shapes": shapes,
        "own_memory": tuple((own / bandwidth).tolist()),
        "weight_time": tuple(read.tolist()),
        "sram": tuple(sram.tolist()),
        "flows": flows,
        "flows_of": flows_of,
        "unit": chip.levels[0].bank_capacity if chip.levels else None,
        "resident_alone": rules.traffic.weights_read and plan.layers_per_stage == 1 and may_stay,
    }


def _one_after_the_other(picked: _Picked, network: Floats) -> dict[str, Any]:
    """Return what a temporal chip adds to a load: nothing has to fit beside anything on it."""
    arrays = picked.arrays
    exchanged = results_sent(arrays, picked.plan, network, picked.of("context_time"))
    legality = legality_on(arrays, picked.system.chip, exchanged)
    temporal, lightest, least = _temporal(picked, legality)
    none = (0.0,) * arrays.n
    flows, flows_of = _flows(picked, none, lightest)
    return {
        "compute": least,
        "cycle_time": none,
        "shapes": ((0, 0, 0, False),) * arrays.n,
        "own_memory": temporal.own,
        "weight_time": none,
        "sram": none,
        "flows": flows,
        "flows_of": flows_of,
        "temporal": temporal,
    }


def _temporal(
    picked: _Picked, legality: Legality
) -> tuple[TemporalLoad, tuple[float, ...], tuple[float, ...]]:
    """Return what kernels take of a temporal chip; see `temporal_load`."""
    clocked = picked.choices.clocked
    assert clocked is not None
    return temporal_load(
        picked.system.chip,
        picked.plan,
        Clocked(**{name: picked.pick(getattr(clocked, name)) for name in Clocked.__slots__}),
        picked.arrays,
        picked.rules.traffic,
        legality,
        again=mask_of(picked.again),
        passes=streams_memory(picked.workload.placement, picked.rules),
    )


def temporal_choices(
    workload: Workload,
    system: System,
    arrays: KernelGraph,
    plan: MeshPlan,
    choices: Choices,
    shardings: Sequence[Ints],
    legality: Legality,
    rules: Rules,
) -> list[TemporalLoad]:
    """Return what kernels take of a temporal chip in each of some shardings.

    Parameters
    ----------
    shardings : sequence of arrays, shape (n,)
        The choice of every kernel.
    legality : Legality
        What may be a partition, whatever they exchange.
    """
    graph = plan.graph(arrays)
    found = []
    for codes in shardings:

        def pick(column: Any, codes: Ints = codes) -> Any:
            return column[codes]

        picked = _Picked(workload, system, graph, plan, rules, choices, pick)
        found.append(_temporal(picked, legality)[0])
    return found


def _read_anew(picked: _Picked) -> Floats:
    """Bytes that kernels computed again read of what is not, each operand on its own. [B]"""
    arrays, again = picked.arrays, picked.again
    read = np.zeros(arrays.n)
    if again.any():
        kept = again[arrays.target] & ~again[arrays.source] & ~arrays.elided
        np.add.at(read, arrays.target[kept], picked.made[arrays.source[kept]])
    return read


def _flows(
    picked: _Picked, tile: Sequence[float], least: Sequence[float] | None = None
) -> tuple[tuple[Flow, ...], tuple[tuple[int, ...], ...]]:
    """Return the tensors of `flow_ends`, by the tiles of kernels, and those that touch each."""
    arrays, total = picked.arrays, picked.made.tolist()
    kept = (kept_tensors(arrays).output & picked.rules.memory.keeps_activations).tolist()
    ends, touching = flow_ends(arrays, picked.rules.traffic, mask_of(picked.again))
    flows = []
    for (one, anew), moved in zip(ends, least or (None,) * len(ends), strict=True):
        i = one.producer
        size = 0.0 if anew else tile[i]
        flows.append(Flow(i, one.readers, size, total[i], one.mask, kept[i] or anew, moved))
    return tuple(flows), touching


def combine(compute: float, memory: float, network: float, overlap: Overlap) -> float:
    """Time of a partition from its three terms, by what hides behind what. [s]"""
    return float(_combined(compute, memory, network, overlap, max))


def combine_arrays(compute: Floats, memory: Floats, network: Floats, overlap: Overlap) -> Floats:
    """`combine` of arrays. [s]"""
    return np.asarray(_combined(compute, memory, network, overlap, np.maximum))


def beside_network(device: Any, network: Any, overlap: Overlap, longer: Callable[..., Any]) -> Any:
    """Time of a partition of a temporal chip from those of the device and of the network. [s]

    ``longer`` returns the longer of two times, or of two arrays of them.
    """
    return longer(device, network) if overlap is Overlap.ALL else device + network


def _combined(
    compute: Any, memory: Any, network: Any, overlap: Overlap, longer: Callable[..., Any]
) -> Any:
    match overlap:
        case Overlap.ALL:
            return longer(longer(compute, memory), network)
        case Overlap.NONE:
            return compute + memory + network
        case Overlap.COMPUTE_MEMORY:
            return longer(compute, memory) + network
        case _:
            assert_never(overlap)


def partition_cost(
    load: ChipLoad,
    inside: int,
    cores: Mapping[int, tuple[int, int]] | None = None,
    *,
    stage: int | None = None,
) -> PartitionCost:
    """Cost of running the kernels of mask ``inside`` as one partition.

    ``cores`` gives lanes and stages per kernel instead of the best deal; ``stage`` is the mask of
    all kernels that the chip holds, where that is not the whole graph.
    """
    if load.temporal is not None:
        return _temporal_cost(load, load.temporal, inside)
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
                depths.append(load.stream_depth)
            sram_out += max(depths) * flow.tile
        else:
            into += flow.total
            sram_in += load.stream_depth * flow.tile
    held = sum(load.sram[i] for i in members)
    sram = sram_in + sram_out + held
    cuts, fits = 1, sram <= load.sram_capacity * (1 + ROUNDING)
    if not fits and len(members) == 1 and load.weight[members[0]] > 0:
        cuts = _weight_pieces(load, sram_in, sram_out + held)
        fits = cuts > 0
        if fits:
            sram = sram_in + (sram_out + held) / cuts
        cuts = max(cuts, 1)
    traffic = (into + out) / load.bandwidth
    if cuts > 1:
        enters, leaves = into + load.entering[members[0]], out + load.leaving[members[0]]
        traffic += (cuts - 1) * load.traffic.read_again(enters, leaves) / load.bandwidth
    memory = traffic + sum(load.own_memory[i] for i in members)
    alone = inside == (load.everything if stage is None else stage)
    if not (load.resident_alone and alone and cuts == 1):  # a weight that is cut cannot stay
        memory += sum(load.weight_time[i] for i in members)
    network, data = sum(load.network[i] for i in members), sum(load.data[i] for i in members)
    network = max(network, data) if load.network_takes_maximum else network + data
    if load.unit is not None:  # whole units instead of bytes; they bound the cores, too
        compute, dealt, sram, fits = assign_memory_units(load, inside, cores)
    else:
        compute, dealt, enough = _on_cores(load, members, cores)
        fits = fits and enough
    fits = fits and not _mixes(load, inside)
    time = combine(compute, memory, network, load.overlap)
    cost = time + load.memory_price * memory + load.network_price * network
    return PartitionCost(
        compute, memory, network, time, cost, memory * load.bandwidth, sram, cuts, fits, dealt
    )


def _on_cores(
    load: ChipLoad, members: list[int], cores: Mapping[int, tuple[int, int]] | None
) -> tuple[float, tuple[tuple[int, int, int], ...] | None, bool]:
    """Return the time of compute [s], the cores of each kernel, and whether there are as many."""
    if load.staircases is None or not members:
        return sum((load.compute[i] for i in members), 0.0), None, True
    if cores is None:
        stairs = [(i, load.staircases[i], load.cycle_time[i]) for i in members]
        deal = deal_cores(stairs, load.n_cores)
        return (math.inf, None, False) if deal is None else (*deal, True)
    dealt = tuple((i, *cores[i]) for i in members)
    time = max(load.cycles(i, a, b) * load.cycle_time[i] for i, a, b in dealt)
    return time, dealt, sum(a * b for _, a, b in dealt) <= load.n_cores


def _mixes(load: ChipLoad, inside: int) -> bool:
    return any(inside & group not in (0, inside) for group in load.unmixed)


def _temporal_cost(load: ChipLoad, temporal: TemporalLoad, inside: int) -> PartitionCost:
    """`partition_cost` of a chip that runs the kernels one after the other."""
    device, compute, memory, launch = temporal.terms(inside)
    network = data = 0.0
    for i in bits(inside):
        network += load.network[i]
        data += load.data[i]
    network = max(network, data) if load.network_takes_maximum else network + data
    time = beside_network(device, network, load.overlap, max)
    cost = time + load.memory_price * memory + load.network_price * network
    fits = temporal.legality.allows(inside) and not _mixes(load, inside)
    return PartitionCost(
        compute, memory, network, time, cost, memory * load.bandwidth, 0.0, 1, fits, None, launch
    )


def alone_sram(load: ChipLoad, i: int) -> float:
    """SRAM of kernel ``i`` in a partition of its own, its weight in one piece. [B]"""
    streams = sum(load.flows[f].tile for f in load.flows_of[i])
    return load.sram[i] + load.stream_depth * streams


def _weight_pieces(load: ChipLoad, fixed: float, cut: float) -> int:
    """Pieces that ``cut`` bytes must be cut into to fit beside ``fixed``; 0 if none does."""
    room = load.sram_capacity - fixed
    return math.ceil(cut / room) if room > 0 else 0
