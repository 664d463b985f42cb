"""Random small problems, and slow, obvious answers to them.

Nothing here calls the formulas under test: a partition is priced from the sentences that open
`crosstack.model.partition`, and the best sequence of partitions is found by trying all of them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from crosstack.machine.chip import Execution, Overlap, flat_chip
from crosstack.machine.framework import Fusion
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, System
from crosstack.mapping.pipeline import StageProblem
from crosstack.mapping.slots import Slots
from crosstack.model.choices import make_choices
from crosstack.model.legality import Legality
from crosstack.model.mesh_plan import make_plan
from crosstack.model.partition import ChipLoad, make_load
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.parts import WeightCuts
from crosstack.published.dfmodel.rules import as_dfmodel
from crosstack.workload import kernels as ops
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.workload import Workload

WORD = 2
ANY_TILING = (ops.Axis.N, ops.Axis.N, ops.Axis.N, ops.Axis.M, ops.Axis.NONE, ops.Axis.K)
Step = tuple[float, bool]

# ---------------------------------------------------------------- random problems


def _random_kernel(
    rng: random.Random,
    name: str,
    inputs: list[float],
    backward: bool,
    length: int,
    tilings: Sequence[ops.Axis],
    alike: bool,
) -> ops.Kernel:
    if len(inputs) < 2:
        kinds = [ops.KernelKind.GEMM_WEIGHT, ops.KernelKind.GEMM_WEIGHT, ops.KernelKind.ELEMENTWISE]
    else:
        kinds = [ops.KernelKind.GEMM, ops.KernelKind.ELEMENTWISE_2]
    kind = rng.choice(kinds)
    m, k = rng.choice([1, 2, 3, 5, 8, 12]), rng.choice([1, 2, 4, 6])
    outer = rng.choice([1, 1, 1, 2, 4])
    gemm = kind.is_gemm
    row_wise = False
    if alike:  # as many elements each, so that what one makes another may take
        m, outer = 4, 2
        row_wise = not gemm and rng.random() < 0.3
    tiling = rng.choice([axis for axis in tilings if gemm or axis is not ops.Axis.K])
    communications = []
    if rng.random() < 0.2:
        communications.append(
            ops.Communication(collective=ops.Collective.ALL_REDUCE, size=64.0, periodic=True)
        )
    if rng.random() < 0.1:
        communications.append(ops.Communication(collective=ops.Collective.ALL_TO_ALL, size=32.0))
    return ops.Kernel(
        name=name,
        kind=kind,
        outer=outer,
        m=m,
        k=k if gemm else 1,
        n=length,
        output_size=float(outer * m * length * WORD),
        input_sizes=(*inputs, 16.0, 16.0)[: kind.n_inputs],
        weight_size=float(m * k * WORD) if kind is ops.KernelKind.GEMM_WEIGHT else 0.0,
        unit=ops.ComputeUnit.SYSTOLIC if gemm else ops.ComputeUnit.SIMD,
        tiling=tiling,
        direction=ops.Direction.BACKWARD if backward else ops.Direction.FORWARD,
        memory_traffic=rng.choice([0.0, 0.0, 0.0, 40.0, 200.0]),
        sram_extra=rng.choice([0.0, 0.0, 0.0, 24.0]),
        memory_extra=rng.choice([0.0, 0.0, 100.0]),
        communications=tuple(communications),
        row_wise=row_wise,
    )


def _random_graph(
    rng: random.Random,
    n: int,
    *,
    twins: bool,
    counted: bool,
    elided: bool,
    length: int,
    tilings: Sequence[ops.Axis],
    star: bool,
    training: bool,
    alike: bool,
) -> KernelGraph:
    kernels: list[ops.Kernel] = []
    feeds: list[tuple[int, int, int]] = []  # source, target, operand
    first_backward = rng.randint(1, n) if n > 1 and rng.random() < 0.6 else n
    if training:
        first_backward = n // 3
    while len(kernels) < n:
        i = len(kernels)
        backward = i >= first_backward
        twin_of = rng.randrange(i) if twins and i and rng.random() < 0.4 else None
        if twin_of is not None:
            direction = ops.Direction.BACKWARD if backward else ops.Direction.FORWARD
            kernels.append(replace(kernels[twin_of], name=f"k{i}", direction=direction))
            feeds += [(s, i, o) for s, t, o in feeds if t == twin_of]
            continue
        count = min(i, rng.choice([0, 1, 1, 1, 2, 2]))
        sources = [0] if star and i else rng.sample(range(i), count)
        if training:
            sources = _training_sources(i, n // 3)
        sizes = [kernels[s].output_size for s in sources]
        kernels.append(_random_kernel(rng, f"k{i}", sizes, backward, length, tilings, alike))
        feeds += [(s, i, o) for o, s in enumerate(sources)]
    if counted:
        kernels = [
            replace(x, repeats=rng.choice([1, 2])) if rng.random() < 0.4 else x for x in kernels
        ]
    consumers: dict[int, list[ops.Consumer]] = {}
    for source, target, operand in feeds:
        hidden = elided and rng.random() < 0.25
        reader = ops.Consumer(kernel=f"k{target}", operand=operand, elided=hidden)
        consumers.setdefault(source, []).append(reader)
    tensors = tuple(
        ops.Tensor(producer=f"k{s}", consumers=tuple(c), size=kernels[s].output_size)
        for s, c in consumers.items()
    )
    shuffled = kernels[:]
    rng.shuffle(shuffled)  # listing order is not the order they run in
    return kernel_graph(kernels=tuple(shuffled), tensors=tensors, word=WORD)


def _training_sources(i: int, layers: int) -> list[int]:
    """What kernel ``i`` reads: forward, backward, then weight updates that nobody reads."""
    part, number = divmod(i, layers)
    if part == 0:
        return [i - 1] if i else []
    forward = layers - 1 - number  # the layer that is undone
    if part == 1:
        return [i - 1] if i == layers else [i - 1, forward]
    return [layers + number, *([forward - 1] if forward else [])]


# Kinds of dimension that every rule set knows.
KINDS = (DimensionKind.RING, DimensionKind.SWITCH, DimensionKind.FULLY_CONNECTED)


@pytest.fixture(scope="session")
def random_task() -> Callable[..., tuple[Workload, System]]:
    """Return a builder of a random workload and a small system, the same for the same seed."""

    def build(
        seed: int,
        n: int = 5,
        *,
        n_chips: int = 4,
        dimensions: int = 1,
        utilization: bool = True,
        twins: bool = False,
        counted: bool = False,
        elided: bool = False,
        length: int = 8,
        tilings: Sequence[ops.Axis] = ANY_TILING,
        star: bool = False,
        training: bool = False,
        kinds: Sequence[DimensionKind] = KINDS,
        temporal: bool = False,
        **changes: Any,
    ) -> tuple[Workload, System]:
        rng = random.Random(seed)
        graph = _random_graph(
            rng,
            n,
            twins=twins,
            counted=counted,
            elided=elided,
            length=length,
            tilings=tilings,
            star=star,
            training=training,
            alike=temporal,
        )
        workload = Workload(
            graph=graph,
            n_layers=rng.choice([1, 2, 4]),
            global_batch_size=rng.choice([4, 8]),
            sequence_length=length,
            boundary_size=64.0,
        )
        chip = flat_chip(
            n_cores=rng.choice([n + 1, 2 * n, 12]),
            lanes=2,
            stages=2,
            frequency=1e6,
            sram_capacity=1e6,
            utilization=rng.choice([0.5, 0.9]) if utilization else None,
            overlap=rng.choice(list(Overlap)),
        )
        if temporal:
            fusions = tuple(fusion for fusion in Fusion if rng.random() < 0.8)
            launch = rng.choice([0.0, 1e-6, 1e-5])
            chip = replace(
                chip, execution=Execution.TEMPORAL, fusions=fusions, launch_overhead=launch
            )
        network = tuple(
            Dimension(
                kind=rng.choice(list(kinds)),
                bandwidth=rng.choice([2e6, 1e7, 1e8]),
                latency=rng.choice([0.0, 1e-6, 1e-5]),
                size=n_chips if dimensions == 1 else None,
            )
            for _ in range(dimensions)
        )
        memories = main_memory(bandwidth=rng.choice([5e6, 2e7, 1e8]))
        if temporal:
            latency = rng.choice([0.0, 1e-6, 1e-5])
            memories = tuple(replace(memory, latency=latency) for memory in memories)
        system = System(
            chip=replace(chip, memories=memories),
            network=network,
            n_chips=n_chips,
        )
        return workload, replace(system, **changes)

    return build


@pytest.fixture(scope="session")
def random_load(
    random_task: Callable[..., tuple[Workload, System]],
) -> Callable[..., ChipLoad]:
    """Return a builder of a random load of one chip, with an SRAM that splits the graph."""

    def build(
        seed: int,
        n: int = 5,
        *,
        tight: float | None = None,
        memory: float | None = None,
        **how: Any,
    ) -> ChipLoad:
        """``tight``, ``memory``: where in its interesting range the capacity lies, 0 to 1."""
        rng = random.Random(seed * 7919 + 1)
        changes = {key: how.pop(key) for key in list(how) if key in _LOAD_FIELDS}
        rules = as_dfmodel(rules_named("crosstack")).changed(
            fan_out_copies=how.pop("copies", rng.random() < 0.5),
            weight_cuts=how.pop("cuts", rng.choice(list(WeightCuts))),
            weights_read=rng.random() < 0.5,
            network_takes_maximum=rng.random() < 0.3,
        )
        workload, system = random_task(seed, n, **how)
        overlap = changes.get("overlap", system.chip.overlap)
        system = replace(system, chip=replace(system.chip, overlap=overlap))
        arrays = workload.graph
        plan = make_plan(workload, system, (4,), (Parallelism.TENSOR,), 1, rules)
        assert plan is not None
        tiles = 1 if how.get("temporal") else rng.choice([2, 4, 8])
        choices = make_choices(workload, arrays, plan, tiles, rules, system.chip)
        codes = [rng.choice(domain) for domain in choices.index.domains()]
        load = make_load(workload, system, arrays, plan, choices, np.array(codes), rules)
        load = replace(load, **changes)
        return _squeezed(load, rng, tight, memory)

    return build


_LOAD_FIELDS = {
    "overlap",
    "network_takes_maximum",
    "resident_alone",
    "n_cores",
    "memory_price",
    "network_price",
}


def _squeezed(
    load: ChipLoad, rng: random.Random, tight: float | None, memory: float | None
) -> ChipLoad:
    alone = [sram_of(load, {i}) for i in range(load.n)]
    everything = sram_of(load, set(range(load.n)))
    low, high = max(alone), max(everything, *alone) + 1
    share = rng.choice([0.0, 0.1, 0.3, 0.6, 1.0]) if tight is None else tight
    capacity = math.ceil(low + share * (high - low))
    load = replace(load, sram_capacity=float(capacity))
    if memory is not None:
        limit = memory * sum(flow.held for flow in load.flows)
        load = replace(load, memory_limit=float(math.ceil(limit)))
    return load


# ---------------------------------------------------------------- slow, obvious answers


def _streams(load: ChipLoad, members: set[int]) -> tuple[float, float, float, float]:
    """Bytes that enter and leave ``members``, and the SRAM of what enters and of what is made."""
    into = out = sram_in = sram_out = 0.0
    for flow in load.flows:
        readers = dict(flow.readers)
        here = [depth for reader, depth in readers.items() if reader in members]
        if flow.producer in members:
            leaves = not set(readers) <= members
            out += flow.total if leaves else 0.0
            sram_out += max(here + ([load.stream_depth] if leaves else [])) * flow.tile
        elif here:
            into += flow.total
            sram_in += load.stream_depth * flow.tile
    return into, out, sram_in, sram_out


def sram_of(load: ChipLoad, members: set[int]) -> float:
    _, _, sram_in, sram_out = _streams(load, members)
    return sram_in + sram_out + sum(load.sram[i] for i in members)


def _slow_compute(load: ChipLoad, members: set[int]) -> float:
    """Slowest kernel when cores are dealt best: the least time that enough cores can keep."""
    if load.staircases is None:
        return sum(load.compute[i] for i in members)
    stairs = [
        [
            (int(c), float(y) * load.cycle_time[i])
            for c, y in zip(load.staircases[i].cores, load.staircases[i].cycles, strict=True)
        ]
        for i in sorted(members)
    ]
    for limit in sorted({time for steps in stairs for _, time in steps}):
        needs = [min((c for c, t in steps if t <= limit), default=10**9) for steps in stairs]
        if sum(needs) <= load.n_cores:
            return limit
    return math.inf


def _mixes(members: set[int], group: int) -> bool:
    """Whether some of ``members`` are in a group and some are not."""
    return len({group >> i & 1 for i in members}) > 1


def slow_step(load: ChipLoad, members: set[int]) -> Step:
    """Time of a partition and whether it fits, from the definition. [s]"""
    if load.temporal is not None:
        return _slow_temporal_step(load, members)
    into, out, sram_in, sram_out = _streams(load, members)
    traffic = into + out
    held = sum(load.sram[i] for i in members)
    whole = fits = sram_in + sram_out + held <= load.sram_capacity
    if not fits and len(members) == 1 and load.weight[min(members)] > 0:
        room = load.sram_capacity - sram_in
        if room > 0:
            cuts = math.ceil((sram_out + held) / room)
            fits = True
            read = into + load.entering[min(members)]
            written = out + load.leaving[min(members)]
            traffic += (cuts - 1) * load.traffic.read_again(read, written)
    memory = traffic / load.bandwidth + sum(load.own_memory[i] for i in members)
    if not (load.resident_alone and len(members) == load.n and whole):
        memory += sum(load.weight_time[i] for i in members)
    tensor = sum(load.network[i] for i in members)
    data = sum(load.data[i] for i in members)
    network = max(tensor, data) if load.network_takes_maximum else tensor + data
    compute = _slow_compute(load, members)
    if math.isinf(compute) or any(_mixes(members, group) for group in load.unmixed):
        fits = False
    priced = load.memory_price * memory + load.network_price * network
    if load.overlap is Overlap.ALL:
        return max(compute, memory, network) + priced, fits
    if load.overlap is Overlap.NONE:
        return compute + memory + network + priced, fits
    return max(compute, memory) + network + priced, fits


def _slow_temporal_step(load: ChipLoad, members: set[int]) -> Step:
    """The same of a chip that runs the kernels one after the other. [s]"""
    t = load.temporal
    assert t is not None
    device = memory = 0.0
    for run in t.runs:
        here = members & _members(run.members)
        device += t.launch * run.share if here else 0.0
        for i in here:
            moved = run.own[i]
            moved += sum(time for mask, time in run.moves[i] if not _members(mask) <= members)
            wait = moved + t.delay[i] if moved > 0 else 0.0
            hides = load.overlap is not Overlap.NONE
            busy = max(t.work[i], wait) if hides else t.work[i] + wait
            device += run.share * (t.after[i] + busy)
            memory += run.share * moved
    tensor = sum(load.network[i] for i in members)
    data = sum(load.data[i] for i in members)
    network = max(tensor, data) if load.network_takes_maximum else tensor + data
    time = max(device, network) if load.overlap is Overlap.ALL else device + network
    mixed = any(_mixes(members, group) for group in load.unmixed)
    priced = load.memory_price * memory + load.network_price * network
    return time + priced, slow_legal(t.legality, members) and not mixed


def slow_legal(rules: Legality, members: set[int]) -> bool:
    """Whether kernels may be one on a temporal chip, from the definition."""
    if len(members) == 1:
        return True
    pairs = list(itertools.permutations(members, 2))
    if any(j in _members(rules.cut[i]) for i, j in pairs):
        return False
    products = members & _members(rules.products)
    attention = len(products) > 1 and any(
        _members(first) <= members <= _members(held) for first, held in rules.attentions
    )
    named = attention or any(members <= _members(held) for held in rules.chains)
    rows = products and members & _members(rules.row_wise)
    barred = any(j in _members(rules.barred[i]) for i, j in pairs)
    if not named and (len(products) > 1 or rows or barred):
        return False
    reached = {min(members)}
    for _ in members:
        reached |= {j for i, j in pairs if i in reached and j in _members(rules.joined[i])}
    return reached == members


def _alive(load: ChipLoad, done: Set[int], members: Set[int]) -> float:
    """Main-memory bytes of tensors while ``members`` run after ``done``. [B]"""
    total = 0.0
    for flow in load.flows:
        readers = {reader for reader, _ in flow.readers}
        never_leaves = flow.producer in members and readers <= members
        counted = not flow.kept and not never_leaves  # kept for the backward pass: counted apart
        if flow.producer in done | members and not readers <= done and counted:
            total += flow.total
    return total


def _predecessors(load: ChipLoad, separate: bool) -> list[set[int]]:
    before = [{j for j in range(load.n) if load.preds[i] >> j & 1} for i in range(load.n)]
    if separate:
        forward = {j for j in range(load.n) if not load.backward >> j & 1}
        before = [b if i in forward else b | forward for i, b in enumerate(before)]
    return before


def _subsets(items: list[int]) -> Iterator[set[int]]:
    for size in range(1, len(items) + 1):
        for chosen in itertools.combinations(items, size):
            yield set(chosen)


def slow_fuse(load: ChipLoad, slots: Any = None, separate: bool = False) -> float:
    """Least time over all sequences of partitions, by trying every one; infinite if none. [s]

    What is left after the same kernels is tried once.
    """
    before = _predecessors(load, separate)
    priced: dict[frozenset[int], Step] = {}

    def step(done: frozenset[int], members: set[int]) -> float:
        key = frozenset(members)
        if key not in priced:
            priced[key] = slow_step(load, members)
        time, fits = priced[key]
        return time if fits and _alive(load, done, members) <= load.memory_limit else math.inf

    @cache
    def best(done: frozenset[int], partition: int) -> float:
        """Partitions are counted where they are numbered alone."""
        if slots is not None and partition == slots.count:
            return 0.0 if len(done) == load.n else math.inf
        if slots is None and len(done) == load.n:
            return 0.0
        after = 0 if slots is None else partition + 1
        left = [i for i in range(load.n) if i not in done]
        found = math.inf
        if slots is not None:  # an empty partition
            found = best(done, after)
        for members in _subsets(left):
            if not all(before[i] <= done | members for i in members):
                continue
            if slots is not None and not all(
                slots.first[i] <= partition <= slots.last[i] for i in members
            ):
                continue
            if separate and _mixes(members, load.backward):
                continue
            time = step(done, members)
            if time < found:
                found = min(found, time + best(done | members, after))
        return found

    return best(frozenset(), 0)


@pytest.fixture(scope="session")
def brute_fuse() -> Callable[..., float]:
    """Return the brute force over sequences of partitions."""
    return slow_fuse


@pytest.fixture(scope="session")
def brute_step() -> Callable[..., Step]:
    """Return the slow price of one partition."""
    return slow_step


# ---------------------------------------------------------------- stages, slowly


def _members(mask: int) -> set[int]:
    return {i for i in range(mask.bit_length()) if mask >> i & 1}


def _sequences(problem: StageProblem, done: int = 0) -> Iterator[tuple[int, ...]]:
    """Every sequence of partitions (masks) that covers what is not done."""
    load = problem.load
    left = [i for i in range(load.n) if not done >> i & 1]
    if not left:
        yield ()
        return
    for members in _subsets(left):
        mask = sum(1 << i for i in members)
        alone = len(members) == 1 or not problem.one_by_one
        if alone and all(not problem.fusion.preds[i] & ~(done | mask) for i in members):
            for rest in _sequences(problem, done | mask):
                yield (mask, *rest)


def _keeps_numbers(slots: Slots | None, masks: tuple[int, ...]) -> bool:
    """Whether the partitions can be numbered in order so that every pin is kept."""
    if slots is None:
        return True
    number = -1
    for mask in masks:
        inside = _members(mask)
        number = max(number + 1, *(slots.first[i] for i in inside))
        if number > min(slots.last[i] for i in inside):
            return False
    return number < slots.count


def _stage_times(
    problem: StageProblem, inside: tuple[int, ...], done: int, step: Callable[[int, bool], Step]
) -> tuple[float, float]:
    """Work and transfer of a stage for one microbatch, its work infinite if it does not fit. [s]

    ``step(mask, alone)`` is the price of a partition, which may have a stage to itself.
    """
    load, plan = problem.load, problem.plan
    sequences, work = plan.microbatch_size, 0.0
    kept = sum(load.kept[i] for mask in inside for i in _members(mask))
    for mask in inside:
        members = _members(mask)
        time, fits = step(mask, len(inside) == 1)
        alive = sequences * _alive(load, _members(done), members)
        filled = problem.everywhere + kept + alive
        fits = fits and filled <= problem.capacity * (1 + 1e-12)
        work += sequences * time if fits else math.inf
        done |= mask
    waiting = [f.total for f in load.flows if done >> f.producer & 1 and f.mask & ~done]
    border = plan.border
    sent = border.fixed + border.per_byte * sequences * sum(waiting) if sum(waiting) else 0.0
    if done == load.everything and plan.graph_repetitions > 1:
        sent = plan.stage_transfer.fixed + plan.stage_transfer.per_byte * sequences
    return work, sent


def slow_split(problem: StageProblem) -> float:
    """Least time of an iteration over all partitions and all stages of them. [s]"""
    load, plan = problem.load, problem.plan
    known: dict[tuple[tuple[int, ...], int], tuple[float, float]] = {}
    waits, repeats, m = problem.slots, plan.graph_repetitions, plan.n_microbatches
    read = replace(load, resident_alone=False)
    held = replace(read, weight_time=(0.0,) * load.n)

    @cache
    def step(mask: int, alone: bool) -> Step:
        members = _members(mask)
        uncut = sram_of(load, members) <= load.sram_capacity
        return slow_step(held if load.resident_alone and alone and uncut else read, members)

    def taken(inside: tuple[int, ...], done: int) -> tuple[float, float]:
        if (inside, done) not in known:
            known[inside, done] = _stage_times(problem, inside, done, step)
        return known[inside, done]

    def iteration(stages: list[tuple[float, float]]) -> float:
        """Microbatches through all copies, machine by machine."""
        hidden = load.overlap is Overlap.ALL
        if not problem.repeats:  # the slowest stage as often as the rules say
            slowest = max(max(s) if hidden else sum(s) for s in stages)
            return float(waits[len(stages) - 1]) * slowest
        every = [time for _ in range(repeats) for stage in stages for time in stage][:-1]
        if not hidden:
            every = [sum(stage) for _ in range(repeats) for stage in stages]
            every[-1] -= stages[-1][1]
        if math.isinf(sum(every)):
            return math.inf
        slowest = max(max(s) if hidden else sum(s) for s in stages)
        return sum(every) + (m - 1) * slowest

    best = math.inf
    for masks in _sequences(problem):
        if not _keeps_numbers(problem.fusion.slots, masks):
            continue
        for cuts in range(min(len(problem.slots), len(masks))):
            for ends in itertools.combinations(range(1, len(masks)), cuts):
                spans = itertools.pairwise((0, *ends, len(masks)))
                stages = [taken(masks[a:b], sum(masks[:a])) for a, b in spans]
                best = min(best, iteration(stages))
    return best


@pytest.fixture(scope="session")
def brute_split() -> Callable[..., float]:
    """Return the brute force over sequences of partitions and their stages."""
    return slow_split
