"""Pipeline stages that split the graph: what each holds, sends on and takes.

The constraints are numbered in `crosstack.mapping.pipeline`.
"""

from __future__ import annotations

import math

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.evaluate.evaluation import StageTerms
from crosstack.mapping.mapping import Mapping
from crosstack.model.iteration import border_time, last_transfer, stage_time
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad, PartitionCost
from crosstack.workload.kernel_graph import KernelGraph, bits


def stage_masks(arrays: KernelGraph, mapping: Mapping, plan: MeshPlan) -> list[int] | None:
    """Return the kernels of every stage as masks, or None where stages hold whole copies.

    Raises
    ------
    InputError
        If there are more stages than the pipeline has for a copy of the graph. That no kernel runs
        in a stage before its inputs' follows from the order of partitions.
    """
    if mapping.stages is None:
        return None
    masks = [0] * (max(mapping.stages) + 1)
    if plan.graph_stages == 1 or len(masks) > plan.graph_stages:
        most = f"at most {plan.graph_stages}" if plan.graph_stages > 1 else "none"
        training = ", and a training graph is not split" if arrays.backward.any() else ""
        message = (
            f"got {len(masks)} for each copy of the graph; allowed: {most}, as there are "
            f"{plan.pipeline} pipeline stages for {plan.graph_repetitions} of it{training}."
        )
        raise InputError(Problem("mapping.stages", message))
    for i, stage in enumerate(mapping.stages):
        masks[stage] |= 1 << i
    return masks


def stage_memory(load: ChipLoad, stage: int | None) -> float:
    """Main-memory bytes that stay on a chip which holds the kernels ``stage``, None: all. [B]"""
    if stage is None:
        return load.memory_static
    everywhere = max(load.memory_static - math.fsum(load.kept), 0.0)
    return everywhere + sum(load.kept[i] for i in bits(stage))


def stage_terms(
    load: ChipLoad,
    plan: MeshPlan,
    stages: list[int],
    numbers: list[int],
    masks: list[int],
    costs: list[PartitionCost],
    memory: list[float],
) -> tuple[StageTerms, ...]:
    """Return every stage from its partitions: their numbers, masks, costs and memory used."""
    terms, done = [], 0
    for number, stage in enumerate(stages):
        inside = [p for p, mask in enumerate(masks) if mask & stage]
        done |= stage
        made = [flow for flow in load.flows if done >> flow.producer & 1]
        sent = sum(flow.total for flow in made if flow.mask & ~done)
        transfer = float(border_time(plan, np.array(sent)))
        if done == load.everything:
            transfer = last_transfer(plan)
        work = sum(costs[p].time for p in inside) * plan.microbatch_size
        terms.append(
            StageTerms(
                number=number,
                kernels=tuple(load.names[i] for i in bits(stage)),
                partitions=tuple(numbers[p] for p in inside),
                work_time=work,
                transfer_time=transfer,
                time=float(stage_time(np.array(work), np.array(transfer), load.overlap)),
                bound_by="work" if work >= transfer else "transfer",
                memory_used=max(memory[p] for p in inside),
            )
        )
    return tuple(terms)


def stages_latency(plan: MeshPlan, stages: tuple[StageTerms, ...]) -> float:
    """Time of one microbatch from the first stage to the last, nothing else in its way. [s]"""
    through = math.fsum(stage.work_time + stage.transfer_time for stage in stages)
    return through * plan.graph_repetitions - stages[-1].transfer_time
