"""Evaluate a mapping: every term by name, from the formulas the optimiser uses."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from crosstack.errors import InfeasibleError, InputError, Problem, require
from crosstack.evaluate.evaluation import (
    EndTerms,
    Evaluation,
    PartitionTerms,
    StageTerms,
)
from crosstack.evaluate.given_mapping import checked_codes, partition_masks, problems_of
from crosstack.evaluate.stages import stage_masks, stage_memory, stage_terms, stages_latency
from crosstack.evaluate.terms import end_terms, kernel_terms, partition_terms
from crosstack.machine.chip import Execution
from crosstack.machine.prices import system_power, system_price
from crosstack.machine.system import System
from crosstack.mapping.checks import (
    check_offload,
    check_overlap,
    require_again,
    require_layers_again,
    require_schedule,
)
from crosstack.mapping.mapping import GeneralDecisions, Mapping
from crosstack.model.alive import live_sizes
from crosstack.model.choices import Choices, make_choices, summing
from crosstack.model.ends import PricedBlock, counted, end_cost, plan_of_end, priced_end, with_ends
from crosstack.model.energy import BusyTimes, iteration_energy
from crosstack.model.host_memory import check_host, host_account
from crosstack.model.iteration import Iteration, iteration, latency, split_iteration
from crosstack.model.memory import COPY_COLUMNS, copy_memory, recomputations
from crosstack.model.memory_account import MemoryAccount, memory_levers, pipeline_account
from crosstack.model.mesh_plan import (
    MeshPlan,
    make_plan,
    with_offloaded,
)
from crosstack.model.partition import ChipLoad, PartitionCost, make_load, one_by_one, partition_cost
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.model.schedule.allowed import (
    interleavings,
    share_again,
    with_recompute,
    zero_stages,
)
from crosstack.records import known_again
from crosstack.workload.kernel_graph import Ints, KernelGraph, bits
from crosstack.workload.workload import Workload

__all__ = ["Priced", "decided_plan", "evaluate", "mapped_plan", "priced"]


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
    return _evaluation(priced(workload, system, mapping, chosen_rules(rules, MAPPED)))


def priced(workload: Workload, system: System, mapping: Mapping, rules: Rules) -> Priced:
    """Return what the parts of a mapping cost: kernels, partitions and ends; raises `InputError`.

    Whether they fit is not looked at; `evaluate` does.
    """
    workload, system = mapping.as_run(counted(workload, rules), system)
    problems = list(problems_of(workload, system, mapping, rules))
    if problems:
        raise InputError(problems)
    if system.chip.execution is Execution.TEMPORAL:
        allowed = "1: a kernel has a temporal chip to itself, and tiles of its own"
        require(mapping.n_tiles == 1, "mapping.n_tiles", mapping.n_tiles, allowed)
    plan, choices = _planned(workload, system, rules, mapping.general)
    arrays = plan.graph(workload.graph)
    codes = checked_codes(workload, workload.graph, choices, mapping.sharding, plan)
    plan, ends = _with_ends(
        workload, system, mapping, summing(plan, workload.graph, choices, codes), rules
    )
    load = make_load(workload, system, arrays, plan, choices, codes, rules)
    numbers, masks = partition_masks(arrays, mapping.partitions)
    stages = stage_masks(arrays, mapping, plan)
    alive = live_sizes(load, masks)
    if system.chip.has_second_memory and max(_memory(load, plan, masks, stages, alive)) > (
        system.chip.memory_room(spilled=False) * (1 + 1e-12)
    ):
        plan, ends = _with_ends(workload, system, mapping, replace(plan, spilled=True), rules)
        load = make_load(workload, system, arrays, plan, choices, codes, rules)
    if len(masks) == arrays.n:
        load = one_by_one(load, rules)
    cores = None if mapping.cores is None else dict(enumerate(mapping.cores))
    costs = [partition_cost(load, mask, cores, stage=_stage_of(mask, stages)[1]) for mask in masks]
    return Priced(
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
        ends=ends,
    )


def mapped_plan(workload: Workload, system: System, mapping: Mapping, rules: Rules) -> MeshPlan:
    """Return the plan of a mapping that was evaluated, with what its ends take."""
    workload, system = mapping.as_run(counted(workload, rules), system)
    plan, choices = _planned(workload, system, rules, mapping.general)
    codes = checked_codes(workload, workload.graph, choices, mapping.sharding, plan)
    return _with_ends(
        workload, system, mapping, summing(plan, workload.graph, choices, codes), rules
    )[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Priced:
    """A mapping with its plan, and what its partitions cost: by number, kernels, memory.

    ``alive`` are bytes of tensors of one sequence while each runs, ``memory`` all on its chip. [B]
    """

    workload: Workload
    system: System
    mapping: Mapping
    rules: Rules
    arrays: KernelGraph
    plan: MeshPlan
    choices: Choices
    codes: Ints
    load: ChipLoad
    numbers: list[int]
    masks: list[int]
    stages: list[int] | None
    costs: list[PartitionCost]
    alive: list[float]
    memory: list[float]
    ends: tuple[PricedBlock, ...]


def _with_ends(
    workload: Workload, system: System, mapping: Mapping, plan: MeshPlan, rules: Rules
) -> tuple[MeshPlan, tuple[PricedBlock, ...]]:
    """Return a plan with what its ends take, and those."""
    found = []
    for number, (end, own) in enumerate(zip(workload.ends, mapping.ends, strict=True)):
        alone, arrays = workload.of_end(end), end.graph
        one = plan_of_end(plan, end)
        choices = make_choices(alone, arrays, one, own.n_tiles, rules, system.chip)
        path = f"mapping.ends[{number}]"
        codes = checked_codes(alone, arrays, choices, own.sharding, one, path)
        masks = tuple(partition_masks(arrays, own.partitions, path)[1])
        found.append(priced_end(workload, system, end, plan, rules, choices, codes, masks))
    costs = [
        end_cost(workload, system, end, plan, rules, each)
        for end, each in zip(workload.ends, found, strict=True)
    ]
    return with_ends(workload, plan, costs) if found else plan, tuple(found)


def _evaluation(p: Priced) -> Evaluation:
    """Sum up what fits."""
    workload, system, plan = p.workload, p.system, p.plan
    rows = zip(p.numbers, p.masks, p.costs, p.memory, strict=True)
    partitions = tuple(
        partition_terms(p.load, number, mask, cost, used, _stage_of(mask, p.stages)[0])
        for number, mask, cost, used in rows
    )
    capacity, (account, away) = system.chip.memory_room(spilled=plan.spilled), _accounts(p)
    check_host(plan, away)
    _check_fit(capacity, p.load, partitions, p.costs, account, plan)
    _check_ends(workload, p.ends)
    layer_time = sum(cost.time for cost in p.costs)
    total, split = _iteration(p, layer_time)
    traffic = sum(cost.traffic for cost in p.costs)
    block = PricedBlock(
        choices=p.choices, codes=p.codes, load=p.load, masks=tuple(p.masks), costs=tuple(p.costs)
    )
    moved = _network_bytes(workload, p.arrays, p.choices, p.codes)
    chip_work = float(p.choices.work[p.codes].sum())
    clock, chip = p.rules.clock, system.chip
    peak = clock.peak_rate(chip, workload.graph.dtype)
    ends = tuple(
        end_terms(end, own, plan, priced)
        for end, own, priced in zip(workload.ends, p.mapping.ends, p.ends, strict=True)
    )
    executed = _executed(p, chip_work, ends)
    most = system.copies * system.n_chips * peak * total.time
    busy = BusyTimes.of(chip, p.rules, p.arrays, p.choices, p.codes)
    return Evaluation(
        kernels=kernel_terms(p.arrays, plan, block, p.mapping.sharding, p.mapping.partitions),
        partitions=partitions,
        layer_time=layer_time,
        layers_per_stage=plan.layers_per_stage,
        n_stages=plan.pipeline,
        n_microbatches=plan.n_microbatches,
        stage_time=total.stage_time,
        bubble_factor=total.bubble_factor,
        stage_transfer_time=total.transfer,
        sums_time=total.sums,
        update_time=total.update,
        gather_time=total.gather,
        time=total.time,
        latency=stages_latency(plan, split) if split else latency(plan, layer_time),
        work=workload.work,
        utilization=workload.work / total.time / (system.copies * system.n_chips) / peak,
        executed_work=executed,
        hardware_utilization=executed / most,
        throughput=workload.global_batch_size / total.time,
        memory_used=account.peak,
        memory_capacity=capacity,
        memory=account,
        host_memory=away,
        price=system_price(system, plan.dimension_sizes),
        power=system_power(system, plan.dimension_sizes),
        energy=iteration_energy(system, plan, p.load, p.costs, busy, time=total.time),
        memory_intensity=chip_work / traffic if traffic else math.inf,
        network_intensity=chip_work / moved if moved else math.inf,
        stages=split,
        ends=ends,
        host_time=plan.host,
    )


def _executed(p: Priced, chip_work: float, ends: tuple[EndTerms, ...]) -> float:
    """Operations that all chips execute in an iteration. [FLOP]

    ``chip_work`` are those of a copy of the graph on one chip, for one sequence. [FLOP]
    """
    plan, workload = p.plan, p.workload
    each = chip_work * plan.graph_repetitions
    each += sum(end.count * sum(kernel.work for kernel in end.kernels) for end in ends)
    together = p.system.n_chips / plan.pipeline / plan.data  # chips that split a sequence
    return each * workload.global_batch_size * together


def _iteration(p: Priced, layer_time: float) -> tuple[Iteration, tuple[StageTerms, ...]]:
    """Return an iteration, and the stages that split a copy of the graph, if any do."""
    overlap = p.system.chip.overlap
    if p.stages is None:
        return iteration(p.plan, layer_time, overlap, p.rules), ()
    split = stage_terms(p.load, p.plan, p.stages, p.numbers, p.masks, p.costs, p.memory)
    work = np.array([stage.work_time for stage in split])
    sent = np.array([stage.transfer_time for stage in split])
    return split_iteration(p.plan, work, sent, overlap, p.rules), split


@known_again(32, by_value=1)
def _planned(
    workload: Workload, system: System, rules: Rules, general: GeneralDecisions
) -> tuple[MeshPlan, Choices]:
    """Return what mappings share that differ in shardings and partitions alone."""
    plan = make_plan(
        workload,
        system,
        general.sizes,
        general.parallelism,
        general.microbatch_size,
        rules,
        general.dimensions,
        general.context_exchange,
        general.expert_tensor,
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
    workload: Workload, system: System, mapping: GeneralDecisions, rules: Rules, plan: MeshPlan
) -> MeshPlan:
    """Return the plan of a use of the network by a mapping's schedule and recomputation.

    Raises
    ------
    InputError
        If the plan does not allow them.
    """
    arrays = workload.graph
    where = f"for {workload.name} by rules {rules.name}"
    kinds, order, pieces = recomputations(arrays, rules), mapping.schedule, mapping.interleave
    again = mapping.recompute
    require(again in kinds, "mapping.recompute", again.value, f"{', '.join(kinds)} {where}")
    require_schedule(plan, arrays, rules, order, where)
    framework = plan.framework
    require_again(framework, order, again, "mapping.recompute")
    plan = replace(plan, schedule=order)
    counts = interleavings(plan, rules)
    listed = (
        f"{', '.join(map(str, counts))} with {order}, stages x layers "
        f"{plan.pipeline} x {plan.layers_per_stage}, microbatches {plan.n_microbatches}"
    )
    require(pieces in counts, "mapping.interleave", pieces, listed)
    shares = zero_stages(plan, rules)
    allowed = f"{', '.join(map(str, shares))} of {plan.alike} chips with the same weights {where}"
    require(mapping.zero in shares, "mapping.zero", mapping.zero.value, allowed)
    check_overlap(workload, rules, mapping.overlap, "mapping.overlap")
    check_offload(workload, system, rules, mapping, "mapping.")
    plan = with_offloaded(plan, workload, system, rules, mapping.offload)
    plan = replace(plan, interleave=pieces, zero=mapping.zero.number, hidden=mapping.overlap)
    some = mapping.recompute_layers
    if some is not None:
        require_layers_again(system.chip, rules, some, "mapping.recompute_layers", plan)
        allowed = f"none with schedule {order}: all layers are alike"
        require(not order.ends_meet, "mapping.recompute_layers", some, allowed)
    return with_recompute(plan, arrays, again, share_again(plan, some))


def _stage_of(mask: int, stages: list[int] | None) -> tuple[int | None, int | None]:
    """Number of the stage that holds a partition, and its kernels; None where it holds all."""
    for number, stage in enumerate(stages or ()):
        if stage & mask:
            return number, stage
    return None, None


def _memory(
    load: ChipLoad, plan: MeshPlan, masks: list[int], stages: list[int] | None, alive: list[float]
) -> list[float]:
    """Bytes of main memory that one chip needs while each partition runs. [B]"""
    return [
        stage_memory(load, _stage_of(mask, stages)[1]) + size * _running(plan)
        for mask, size in zip(masks, alive, strict=True)
    ]


def _running(plan: MeshPlan) -> int:
    """Sequences that a chip works on at a time. [1]"""
    return plan.microbatch_size * plan.schedule.at_once


def _accounts(p: Priced) -> tuple[MemoryAccount, MemoryAccount | None]:
    """Return what chips have in their main memory, and on their hosts if anything."""
    sizes = {name: getattr(p.choices, name)[p.codes] for name in COPY_COLUMNS}
    memory = copy_memory(p.workload, p.arrays, p.plan, p.rules, **sizes)
    alive = list(zip(p.masks, p.alive, strict=True))
    held = [(1 << p.arrays.n) - 1] if p.stages is None else p.stages
    working = [max(size for mask, size in alive if mask & stage) for stage in held]
    whole = pipeline_account(
        p.workload,
        p.plan,
        memory,
        [size * _running(p.plan) for size in working],
        None if p.stages is None else [bits(stage) for stage in p.stages],
    )
    return whole, host_account(p.plan, memory)


def _check_fit(
    capacity: float,
    load: ChipLoad,
    partitions: tuple[PartitionTerms, ...],
    costs: list[PartitionCost],
    account: MemoryAccount,
    plan: MeshPlan,
) -> None:
    for partition, cost in zip(partitions, costs, strict=True):
        path = f"mapping.partitions[{partition.number}]"
        _check_chip(load, cost, partition.kernels, path, f"partition {partition.number}")
        if partition.memory_used > capacity * (1 + 1e-12):
            raise InfeasibleError(
                resource="main memory",
                demand=partition.memory_used,
                limit=capacity,
                unit="B",
                where=f"partition {partition.number}, most of it {account.kind},",
                levers=memory_levers(account, plan.recompute),
            )


def _check_ends(workload: Workload, ends: tuple[PricedBlock, ...]) -> None:
    for number, (end, priced) in enumerate(zip(workload.ends, ends, strict=True)):
        for place, (mask, cost) in enumerate(zip(priced.masks, priced.costs, strict=True)):
            kernels = tuple(priced.load.names[i] for i in bits(mask))
            path = f"mapping.ends[{number}].partitions[{place}]"
            where = f"partition {place} of {end.name}"
            _check_chip(priced.load, cost, kernels, path, where)


def _check_chip(
    load: ChipLoad, cost: PartitionCost, kernels: tuple[str, ...], path: str, where: str
) -> None:
    """Refuse a partition that the chip does not run as one, or has no cores or SRAM for."""
    if cost.fits:
        return
    if load.temporal is not None:
        inside = sum(1 << load.names.index(name) for name in kernels)
        raise InputError(
            Problem(
                path,
                f"got {', '.join(kernels)}; the chip runs no such kernels as one: "
                f"{load.temporal.legality.why(inside)}.",
            )
        )
    used = sum(a * b for _, a, b in cost.cores or ()) or len(kernels)
    if used > load.n_cores:
        raise InfeasibleError(
            resource="cores",
            demand=float(used),
            limit=float(load.n_cores),
            unit="cores",
            where=where,
            levers=("more, smaller partitions", "more cores"),
        )
    raise InfeasibleError(
        resource="SRAM",
        demand=cost.sram,
        limit=load.sram_capacity,
        unit="B",
        where=f"{where} ({', '.join(kernels[:4])}{', ...' if len(kernels) > 4 else ''})",
        levers=(
            "more, smaller partitions",
            "more tensor parallelism",
            "shorter tiles",
            "more SRAM",
        ),
    )


def _network_bytes(workload: Workload, arrays: KernelGraph, choices: Choices, codes: Ints) -> float:
    moved = float(choices.bytes_moved[codes][~choices.conversions.passed_on(codes)].sum())
    moved += sum(c.size for some in arrays.messages for c in some if not c.periodic)
    if len(choices.index.source):
        moved += float(choices.edge_bytes[choices.index.entries(codes)].sum())
    return moved
