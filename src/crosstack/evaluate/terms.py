"""What a mapping takes, kernel by kernel and partition by partition."""

from __future__ import annotations

import numpy as np

from crosstack.evaluate.evaluation import TERMS, EndTerms, KernelTerms, PartitionTerms
from crosstack.mapping.mapping import EndMapping
from crosstack.model.alive import live_sizes
from crosstack.model.choice_index import axis_names
from crosstack.model.choices import Choices
from crosstack.model.collectives import LayoutChange
from crosstack.model.conversions import PARTIAL
from crosstack.model.ends import PricedBlock, plan_of_end
from crosstack.model.expert_cut import changes_of
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad, PartitionCost
from crosstack.workload.kernel_graph import Ints, KernelGraph, bits
from crosstack.workload.kernels import Axis, Collective
from crosstack.workload.workload import End


def partition_terms(
    load: ChipLoad,
    number: int,
    mask: int,
    cost: PartitionCost,
    memory: float,
    stage: int | None = None,
) -> PartitionTerms:
    """Return the terms of a partition.

    Parameters
    ----------
    load, number, mask, cost
        Which it is, its kernels, and what they take on a chip.
    memory : float
        Bytes of its chip's main memory that are used while it runs. [B]
    stage : int or None
        The pipeline stage, where stages split the graph.
    """
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


def kernel_terms(
    arrays: KernelGraph,
    plan: MeshPlan,
    priced: PricedBlock,
    sharding: tuple[Axis, ...],
    partitions: tuple[int, ...],
) -> tuple[KernelTerms, ...]:
    """Return the terms of every kernel of a block, under its plan and of its mapping."""
    choices, codes, load, costs = priced.choices, priced.codes, priced.load, priced.costs
    names = _collectives(arrays, plan, choices, codes)
    dealt = {
        kernel: (lanes, stages) for cost in costs for kernel, lanes, stages in cost.cores or ()
    }
    where = {i: number for number, mask in enumerate(priced.masks) for i in bits(mask)}
    names_of_columns = ("m", "k", "columns", "work", "output_tile")
    columns = (getattr(choices, name)[codes].tolist() for name in names_of_columns)
    terms = []
    for i, (m, k, n, work, tile) in enumerate(zip(*columns, strict=True)):
        lanes, stages = dealt.get(i, (None, None))
        terms.append(
            KernelTerms(
                name=load.names[i],
                partition=partitions[i],
                sharding=axis_names(arrays, i)[sharding[i]],
                m=m,
                k=k,
                n=n,
                work=work,
                compute_time=_compute_time(load, i, lanes, stages),
                network_time=load.network[i] + load.data[i],
                collective=names[i],
                weight_size=load.weight[i],
                output_size=tile,
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
    return load.cycles(i, lanes, stages) * load.cycle_time[i]


def end_terms(end: End, mapping: EndMapping, plan: MeshPlan, priced: PricedBlock) -> EndTerms:
    """Return the terms of an end, of one run of it, under the plan of the whole workload."""
    alive = live_sizes(priced.load, priced.masks)
    rows = zip(sorted({*mapping.partitions}), priced.masks, priced.costs, alive, strict=True)
    return EndTerms(
        name=end.name,
        count=end.count,
        n_tiles=mapping.n_tiles,
        time=sum(cost.time for cost in priced.costs),
        kernels=kernel_terms(
            end.graph, plan_of_end(plan, end), priced, mapping.sharding, mapping.partitions
        ),
        partitions=tuple(
            partition_terms(priced.load, number, mask, cost, size * plan.microbatch_size)
            for number, mask, cost, size in rows
        ),
    )


def _collectives(arrays: KernelGraph, plan: MeshPlan, choices: Choices, codes: Ints) -> list[str]:
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
        if choices.exchange_time[codes[i]] > 0:
            found[i].append(f"tokens {Collective.ALL_TO_ALL.value}")
    for made in known.made(codes):
        changes = changes_of(plan, arrays, made.kernel)
        change = changes[made.start, made.ends] if changes else LayoutChange()
        for collective in change.fastest(made.size, together=made.together):
            if collective.value not in found[made.kernel]:
                found[made.kernel].append(collective.value)
    for i in np.nonzero(choices.data_time[codes] > 0)[0].tolist():
        found[i].append("gradient all_reduce")
    return [" + ".join(names) for names in found]
