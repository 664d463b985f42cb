"""Evaluate a mapping: every term by name, from the formulas the optimiser uses."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from crosstack.errors import InfeasibleError, InputError, Problem, require
from crosstack.evaluate.evaluation import (
    TERMS,
    Evaluation,
    KernelTerms,
    PartitionTerms,
    StageTerms,
)
from crosstack.evaluate.stages import stage_masks, stage_memory, stage_terms, stages_latency
from crosstack.machine.chip import Execution
from crosstack.machine.prices import system_power, system_price
from crosstack.machine.system import System
from crosstack.mapping.mapping import GeneralDecisions, Mapping
from crosstack.model.choice_index import axis_names, sharding_codes
from crosstack.model.choices import Choices, make_choices
from crosstack.model.collectives import LayoutChange
from crosstack.model.conversions import PARTIAL
from crosstack.model.energy import Energy, energy_rates
from crosstack.model.iteration import Iteration, iteration, latency, split_iteration
from crosstack.model.memory import (
    MemoryAccount,
    copy_memory,
    memory_levers,
    pipeline_account,
    recomputations,
)
from crosstack.model.partition import (
    ChipLoad,
    PartitionCost,
    cycles,
    live_sizes,
    make_load,
    one_by_one,
    partition_cost,
)
from crosstack.model.placed import placed_use, plan_of
from crosstack.model.plan import Plan
from crosstack.model.rates import peak_rate
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.model.schedule.allowed import interleavings, schedules, with_recompute
from crosstack.records import known_again
from crosstack.workload.kernel_graph import Ints, KernelGraph, bits
from crosstack.workload.kernels import Axis, Collective, Placement
from crosstack.workload.workload import Workload

__all__ = ["decided_plan", "evaluate"]


def evaluate(
    workload: Workload, system: System, mapping: Mapping, rules: Rules | None = None
) -> Evaluation:
    """Price a mapping: time, memory, price and power, with every term.

    Parameters
    ----------
    rules : Rules, optional
        What is counted; `Rules.crosstack` if left out.

    Raises
    ------
    InputError
        If the mapping does not belong to the workload and system (shapes, axes that cannot be
        split, partitions that break the order of kernels, a batch that does not divide).
    InfeasibleError
        If a partition does not fit the SRAM or a chip's memory.

    References
    ----------
    ko2025dfmodel; the formulas are in `crosstack.model`
    """
    rules = chosen_rules(rules, MAPPED)
    arrays = workload.graph
    problems = list(_problems(workload, system, mapping, rules))
    if problems:
        raise InputError(problems)
    if system.chip.execution is Execution.TEMPORAL:
        allowed = "1: a kernel has a temporal chip to itself, and tiles of its own"
        require(mapping.n_tiles == 1, "mapping.n_tiles", mapping.n_tiles, allowed)
    plan, choices = _planned(workload, system, rules, mapping.general)
    codes = _checked_codes(workload, arrays, choices, mapping, plan)
    load = make_load(workload, system, arrays, plan, choices, codes, rules)
    numbers, masks = _partition_masks(arrays, mapping)
    stages = stage_masks(arrays, mapping, plan)
    alive = live_sizes(load, masks)
    if system.chip.has_second_memory and max(_memory(load, plan, masks, stages, alive)) > (
        system.chip.memory_room(spilled=False) * (1 + 1e-12)
    ):
        plan = replace(plan, spilled=True)
        load = make_load(workload, system, arrays, plan, choices, codes, rules)
    if len(masks) == arrays.n:
        load = one_by_one(load, rules)
    cores = None if mapping.cores is None else dict(enumerate(mapping.cores))
    costs = [partition_cost(load, mask, cores, stage=_stage_of(mask, stages)[1]) for mask in masks]
    priced = _Priced(
        workload=workload,
        system=system,
        mapping=mapping,
        rules=rules,
        arrays=arrays,
        plan=plan,
        choices=choices,
        codes=codes,
        load=load,
        numbers=numbers,
        masks=masks,
        stages=stages,
        costs=costs,
        alive=alive,
        memory=_memory(load, plan, masks, stages, alive),
    )
    return _evaluation(priced)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Priced:
    """A mapping with its plan, and what its partitions cost: by number, kernels, memory.

    ``alive`` are bytes of tensors of one sequence while each runs, ``memory`` all on its chip. [B]
    """

    workload: Workload
    system: System
    mapping: Mapping
    rules: Rules
    arrays: KernelGraph
    plan: Plan
    choices: Choices
    codes: Ints
    load: ChipLoad
    numbers: list[int]
    masks: list[int]
    stages: list[int] | None
    costs: list[PartitionCost]
    alive: list[float]
    memory: list[float]


def _evaluation(p: _Priced) -> Evaluation:
    """Sum up what fits."""
    workload, system, plan = p.workload, p.system, p.plan
    rows = zip(p.numbers, p.masks, p.costs, p.memory, strict=True)
    partitions = tuple(
        _partition(p.load, number, mask, cost, used, _stage_of(mask, p.stages)[0])
        for number, mask, cost, used in rows
    )
    capacity, account = system.chip.memory_room(spilled=plan.spilled), _account(p)
    _check_fit(capacity, p.load, partitions, p.costs, account, plan)
    layer_time = sum(cost.time for cost in p.costs)
    total, split = _iteration(p, layer_time)
    traffic = sum(cost.traffic for cost in p.costs)
    moved = _network_bytes(workload, p.arrays, p.choices, p.codes)
    chip_work = float(p.choices.work[p.codes].sum())
    peak = peak_rate(system.chip, workload.graph.dtype, p.rules)
    joules = 0.0 if p.choices.clocked is None else float(p.choices.clocked.joules[p.codes].sum())
    busy = {"compute": chip_work / peak, "on_chip": joules}
    return Evaluation(
        kernels=_kernels(p),
        partitions=partitions,
        layer_time=layer_time,
        layers_per_stage=plan.layers_per_stage,
        n_stages=plan.pipeline,
        n_microbatches=plan.n_microbatches,
        stage_time=total.stage_time,
        bubble_factor=total.bubble_factor,
        stage_transfer_time=total.transfer,
        time=total.time,
        latency=stages_latency(plan, split) if split else latency(plan, layer_time),
        work=workload.work,
        utilization=workload.work / total.time / (system.copies * system.n_chips) / peak,
        throughput=workload.global_batch_size / total.time,
        memory_used=account.peak,
        memory_capacity=capacity,
        memory=account,
        price=system_price(system, plan.dimension_sizes),
        power=system_power(system, plan.dimension_sizes),
        energy=_energy(system, plan, p.load, p.costs, time=total.time, **busy),
        memory_intensity=chip_work / traffic if traffic else math.inf,
        network_intensity=chip_work / moved if moved else math.inf,
        stages=split,
    )


def _iteration(p: _Priced, layer_time: float) -> tuple[Iteration, tuple[StageTerms, ...]]:
    """Return an iteration, and the stages that split a copy of the graph, if any do."""
    overlap = p.system.chip.overlap
    if p.stages is None:
        return iteration(p.plan, layer_time, overlap, p.rules), ()
    split = stage_terms(p.load, p.plan, p.stages, p.numbers, p.masks, p.costs, p.memory)
    work = np.array([stage.work_time for stage in split])
    sent = np.array([stage.transfer_time for stage in split])
    return split_iteration(p.plan, work, sent, overlap, p.rules), split


def _energy(
    system: System,
    plan: Plan,
    load: ChipLoad,
    costs: list[PartitionCost],
    *,
    time: float,
    compute: float,
    on_chip: float,
) -> Energy | None:
    """Return the energy of an iteration; None where a power that it needs is not given."""
    try:
        rates = energy_rates(system, plan)
    except InputError:
        return None
    return rates.energy(
        time=time,
        compute=compute,
        on_chip=on_chip,
        memory=sum(cost.memory for cost in costs),
        tensor=sum(load.network),
        data=sum(load.data),
    )


@known_again(32, by_value=1)
def _planned(
    workload: Workload, system: System, rules: Rules, general: GeneralDecisions
) -> tuple[Plan, Choices]:
    """Return what mappings share that differ in shardings and partitions alone."""
    plan = plan_of(
        workload,
        system,
        general.sizes,
        general.parallelism,
        general.microbatch_size,
        rules,
        general.dimensions,
    )
    require(
        plan is not None,
        "mapping.microbatch_size",
        general.microbatch_size,
        f"a divisor of the batch ({workload.global_batch_size}) over the data-parallel degree",
    )
    assert plan is not None
    plan = decided_plan(workload, system, general, rules, plan)
    arrays = workload.graph
    return plan, make_choices(workload, arrays, plan, general.n_tiles, rules, system.chip)


def decided_plan(
    workload: Workload, system: System, mapping: GeneralDecisions, rules: Rules, plan: Plan
) -> Plan:
    """Return the plan of a use of the network by a mapping's schedule and recomputation.

    Raises
    ------
    InputError
        If the plan does not allow them.
    """
    arrays = workload.graph
    where = f"for {workload.name} by rules {rules.name}"
    kinds, orders = recomputations(arrays, rules), schedules(plan, rules)
    again, order, pieces = mapping.recompute, mapping.schedule, mapping.interleave
    require(again in kinds, "mapping.recompute", again.value, f"{', '.join(kinds)} {where}")
    require(order in orders, "mapping.schedule", order.value, f"{', '.join(orders)} {where}")
    plan = replace(plan, schedule=order)
    counts = interleavings(plan, system.chip.overlap, rules)
    listed = (
        f"{', '.join(map(str, counts))} with {order}, stages x layers "
        f"{plan.pipeline} x {plan.layers_per_stage}, microbatches {plan.n_microbatches}"
    )
    require(pieces in counts, "mapping.interleave", pieces, listed)
    return with_recompute(replace(plan, interleave=pieces), arrays, again)


def _problems(
    workload: Workload, system: System, mapping: Mapping, rules: Rules
) -> Iterator[Problem]:
    """Yield what of a mapping does not belong to the workload or the system."""
    n_kernels = len(workload.graph)
    if len(mapping.sharding) != n_kernels:
        message = f"got {len(mapping.sharding)} kernels; the workload has {n_kernels}."
        yield Problem("mapping.kernels", message)
    sizes = mapping.dimension_sizes
    if len(sizes) != len(system.network):
        message = f"got {len(sizes)} dimensions; the network has {len(system.network)}."
        yield Problem("mapping.sizes", message)
        return
    if mapping.dimensions and not rules.collectives.share_dimensions:
        message = f"got {mapping.dimensions}; a dimension has one use by rules {rules.name}."
        yield Problem("mapping.dimensions", message)
        return
    if math.prod(mapping.sizes) != system.n_chips:
        chips = " x ".join(map(str, mapping.sizes))
        yield Problem("mapping.sizes", f"got {chips} chips; the system has {system.n_chips}.")
        return
    placed = placed_use(workload.placement)
    places = mapping.dimensions or range(len(sizes))
    for i, (place, use) in enumerate(zip(places, mapping.parallelism, strict=True)):
        size, dimension = sizes[place], system.network[place]
        if dimension.size not in (None, size):
            message = f"got {size}; the network has {dimension.size}."
            yield Problem(f"mapping.sizes[{i}]", message)
        if dimension.parallelism not in (None, use):
            message = f"got {use.value}; the network gives {dimension.parallelism}."
            yield Problem(f"mapping.parallelism[{i}]", message)
        elif placed not in (None, use):
            message = f"got {use.value}; allowed for placement {workload.placement}: {placed}."
            yield Problem(f"mapping.parallelism[{i}]", message)


def _checked_codes(
    workload: Workload, arrays: KernelGraph, choices: Choices, mapping: Mapping, plan: Plan
) -> Ints:
    split = plan.tensor > 1 or workload.placement is not Placement.SEARCHED
    codes = sharding_codes(choices.index, mapping.sharding, split=split)
    problems = [
        Problem(
            f"mapping.kernels[{i}].sharding",
            f'got {mapping.sharding[i].value} for "{arrays.names[i]}"; allowed: '
            + ", ".join(axis_names(arrays, i)[axis] for axis in choices.index.axes(i)),
        )
        for i in np.nonzero(codes < 0)[0].tolist()
    ]
    if problems:
        raise InputError(problems)
    return codes


def _partition_masks(arrays: KernelGraph, mapping: Mapping) -> tuple[list[int], list[int]]:
    """Numbers and masks of the partitions in order; empty ones left out."""
    problems = [
        Problem(
            f"mapping.kernels[{target}].partition",
            f'"{arrays.names[target]}" runs in partition {mapping.partitions[target]}, before '
            f'"{arrays.names[source]}" in {mapping.partitions[source]}, whose tensor it reads.',
        )
        for source, target in zip(arrays.source.tolist(), arrays.target.tolist(), strict=True)
        if mapping.partitions[source] > mapping.partitions[target]
    ]
    if problems:
        raise InputError(problems)
    masks: dict[int, int] = {}
    for i, partition in enumerate(mapping.partitions):
        masks[partition] = masks.get(partition, 0) | 1 << i
    numbers = sorted(masks)
    return numbers, [masks[p] for p in numbers]


def _partition(
    load: ChipLoad, number: int, mask: int, cost: PartitionCost, memory: float, stage: int | None
) -> PartitionTerms:
    members = bits(mask)
    terms = (cost.compute, cost.memory, cost.network, cost.launch)
    return PartitionTerms(
        number=number,
        kernels=tuple([load.names[i] for i in members]),
        compute_time=cost.compute,
        memory_time=cost.memory,
        network_time=cost.network,
        time=cost.time,
        bound_by=TERMS[terms.index(max(terms))],
        memory_traffic=cost.traffic,
        sram_used=cost.sram,
        sram_capacity=load.sram_capacity,
        memory_used=memory,
        cores_used=None if cost.cores is None else sum(a * b for _, a, b in cost.cores),
        stage=stage,
        boundary_traffic=sum([load.entering[i] + load.leaving[i] for i in members]),
        launch_time=cost.launch,
        kernel_runs=load.temporal.kernel_runs(mask, load.names) if load.temporal else (),
    )


def _stage_of(mask: int, stages: list[int] | None) -> tuple[int | None, int | None]:
    """Number of the stage that holds a partition, and its kernels; None where it holds all."""
    for number, stage in enumerate(stages or ()):
        if stage & mask:
            return number, stage
    return None, None


def _memory(
    load: ChipLoad, plan: Plan, masks: list[int], stages: list[int] | None, alive: list[float]
) -> list[float]:
    """Bytes of main memory that one chip needs while each partition runs. [B]"""
    return [
        stage_memory(load, _stage_of(mask, stages)[1]) + size * plan.microbatch_size
        for mask, size in zip(masks, alive, strict=True)
    ]


def _account(p: _Priced) -> MemoryAccount:
    names = ("weight", "cache", "kept", "again")
    sizes = {name: getattr(p.choices, name)[p.codes] for name in names}
    memory = copy_memory(p.workload, p.arrays, p.plan, p.rules, **sizes)
    alive = list(zip(p.masks, p.alive, strict=True))
    held = [(1 << p.arrays.n) - 1] if p.stages is None else p.stages
    working = [max(size for mask, size in alive if mask & stage) for stage in held]
    return pipeline_account(
        p.workload,
        p.plan,
        memory,
        [size * p.plan.microbatch_size for size in working],
        None if p.stages is None else [bits(stage) for stage in p.stages],
    )


def _check_fit(
    capacity: float,
    load: ChipLoad,
    partitions: tuple[PartitionTerms, ...],
    costs: list[PartitionCost],
    account: MemoryAccount,
    plan: Plan,
) -> None:
    levers = ("more, smaller partitions", "more tensor parallelism", "shorter tiles", "more SRAM")
    for partition, cost in zip(partitions, costs, strict=True):
        if not cost.fits and load.temporal is not None:
            inside = sum(1 << load.names.index(name) for name in partition.kernels)
            raise InputError(
                Problem(
                    f"mapping.partitions[{partition.number}]",
                    f"got {', '.join(partition.kernels)}; the chip runs no such kernels as one: "
                    f"{load.temporal.legality.why(inside)}.",
                )
            )
        if not cost.fits:
            used = partition.cores_used or len(partition.kernels)
            if used > load.n_cores:
                raise InfeasibleError(
                    resource="cores",
                    demand=float(used),
                    limit=float(load.n_cores),
                    unit="cores",
                    where=f"partition {partition.number}",
                    levers=("more, smaller partitions", "more cores"),
                )
            raise InfeasibleError(
                resource="SRAM",
                demand=cost.sram,
                limit=load.sram_capacity,
                unit="B",
                where=f"partition {partition.number} ({', '.join(partition.kernels[:4])}"
                f"{', ...' if len(partition.kernels) > 4 else ''})",
                levers=levers,
            )
        if partition.memory_used > capacity * (1 + 1e-12):
            raise InfeasibleError(
                resource="main memory",
                demand=partition.memory_used,
                limit=capacity,
                unit="B",
                where=f"partition {partition.number}, most of it {account.kind},",
                levers=memory_levers(account, plan.recompute),
            )


def _network_bytes(workload: Workload, arrays: KernelGraph, choices: Choices, codes: Ints) -> float:
    moved = float(choices.bytes_moved[codes][~choices.conversions.passed_on(codes)].sum())
    moved += sum(c.size for some in arrays.messages for c in some if not c.periodic)
    if len(choices.index.source):
        moved += float(choices.edge_bytes[choices.index.entries(codes)].sum())
    return moved


def _kernels(p: _Priced) -> tuple[KernelTerms, ...]:
    choices, codes, load, costs = p.choices, p.codes, p.load, p.costs
    names = _collectives(p.workload, p.arrays, p.plan, choices, codes)
    dealt = {
        kernel: (lanes, stages) for cost in costs for kernel, lanes, stages in cost.cores or ()
    }
    where = {i: number for number, mask in enumerate(p.masks) for i in bits(mask)}
    m, k, n = (t[codes].tolist() for t in (choices.m, choices.k, choices.columns))
    work = choices.work[codes].tolist()
    tile = choices.output_tile[codes].tolist()
    terms = []
    for i in range(load.n):
        lanes, stages = dealt.get(i, (None, None))
        terms.append(
            KernelTerms(
                name=load.names[i],
                partition=p.mapping.partitions[i],
                sharding=axis_names(p.arrays, i)[p.mapping.sharding[i]],
                m=m[i],
                k=k[i],
                n=n[i],
                work=work[i],
                compute_time=_compute_time(load, i, lanes, stages),
                network_time=load.network[i] + load.data[i],
                collective=names[i],
                weight_size=load.weight[i],
                output_size=tile[i],
                lanes=lanes,
                stages=stages,
                weight_cuts=costs[where[i]].cuts,
                entering=load.entering[i],
                leaving=load.leaving[i],
            )
        )
    return tuple(terms)


def _compute_time(load: ChipLoad, i: int, lanes: int | None, stages: int | None) -> float:
    if load.temporal is not None:
        return load.temporal.computing(i)
    if load.staircases is None or lanes is None or stages is None:
        return load.compute[i]
    return cycles(load, i, lanes, stages) * load.cycle_time[i]


def _collectives(
    workload: Workload, arrays: KernelGraph, plan: Plan, choices: Choices, codes: Ints
) -> list[str]:
    """Names of what each kernel's network time is spent on."""
    found: list[list[str]] = [[] for _ in range(arrays.n)]
    known = choices.conversions
    partial = known.edges.produced[codes] == PARTIAL
    for i in np.nonzero(choices.network_time[codes] > 0)[0].tolist():
        whole = arrays.gemm[i] and not partial[i]
        if whole and choices.index.sharding(codes[i : i + 1]) == (Axis.K,):
            found[i].append(Collective.ALL_REDUCE.value)
        own = arrays.messages[i]
        found[i] += [c.collective.value for c in own if not c.periodic and c.size > 0]
    for made in known.made(codes):
        change = plan.changes[made.start, made.ends] if plan.changes else LayoutChange()
        for collective in change.fastest(made.size, together=made.together):
            if collective.value not in found[made.kernel]:
                found[made.kernel].append(collective.value)
    for i in np.nonzero(choices.data_time[codes] > 0)[0].tolist():
        found[i].append("gradient all_reduce")
    return [" + ".join(names) for names in found]
