"""Fusion and stages as a mixed-integer program: the second opinion on the shortest paths."""

from __future__ import annotations

import math
from dataclasses import replace

from crosstack.mapping.fusion import FusionProblem
from crosstack.mapping.pipeline import StageProblem
from crosstack.workload.kernel_graph import bits
from oracles.milp import FusionMilp, MilpFlow, MilpResult, StageMilp, solve_fusion

__all__ = ["as_milp", "fusion_milp", "stages_milp"]


def as_milp(problem: FusionProblem, n_partitions: int) -> FusionMilp:
    """Return the numbers of ``problem`` for at most ``n_partitions`` partitions.

    Raises
    ------
    InputError
        If a kernel fits the SRAM only with its weight cut, which the program leaves out.
    """
    load, slots = problem.load, problem.slots
    count = n_partitions if slots is None else min(n_partitions, slots.count)
    stairs = None
    if load.staircases is not None:
        stairs = tuple(
            tuple(
                (int(cores), float(cycles) * scale)
                for cores, cycles in zip(s.cores, s.cycles, strict=True)
            )
            for s, scale in zip(load.staircases, load.cycle_time, strict=True)
        )
    return FusionMilp(
        n_partitions=count,
        compute=load.compute,
        network=load.network,
        data=load.data,
        own_memory=load.own_memory,
        weight_time=load.weight_time,
        sram=load.sram,
        flows=tuple(
            MilpFlow(
                producer=flow.producer,
                readers=tuple((reader, float(depth)) for reader, depth in flow.readers),
                tile=flow.tile,
                total=flow.total,
            )
            for flow in load.flows
        ),
        before=tuple((i, j) for j, preds in enumerate(problem.order.preds) for i in bits(preds)),
        first=(0,) * load.n if slots is None else slots.first,
        last=(count - 1,) * load.n
        if slots is None
        else tuple(min(p, count - 1) for p in slots.last),
        bandwidth=load.bandwidth,
        sram_capacity=load.sram_capacity,
        memory_room=load.memory_limit,
        unmixed=tuple(tuple(bits(group)) for group in load.unmixed),
        n_cores=load.n_cores,
        stairs=stairs,
        overlap=load.overlap.value,
        network_takes_maximum=load.network_takes_maximum,
        weights_stay=load.resident_alone,
    )


def fusion_milp(
    problem: FusionProblem,
    n_partitions: int,
    *,
    time_limit: float = math.inf,
    gap: float = 0.0,
    threads: int = 1,
) -> MilpResult:
    """Fuse with HiGHS instead of the shortest path; a proof for at most ``n_partitions``.

    Parameters
    ----------
    problem : FusionProblem
        From `crosstack.mapping.fusion.make_problem`.
    n_partitions : int
        Most partitions. [1]
    time_limit : float
        Seconds after which the best solution so far comes back with its bound. [s]
    gap : float
        Relative gap at which to stop. [1]
    threads : int
        Of the solver. [1]

    Raises
    ------
    InputError
        If a kernel fits the SRAM only with its weight cut, which the program leaves out.
    """
    return solve_fusion(
        as_milp(problem, n_partitions), time_limit=time_limit, gap=gap, threads=threads
    )


def stages_milp(
    problem: StageProblem, per_stage: int, *, time_limit: float = math.inf, gap: float = 0.0
) -> MilpResult:
    """Minimise the slowest stage with HiGHS; a proof for at most ``per_stage`` partitions in each.

    What the last stage hands to another copy of the graph is left out.

    Parameters
    ----------
    problem : StageProblem
        From `crosstack.mapping.pipeline.make_stage_problem`, without pinned partitions.
    per_stage : int
        Most partitions of a stage. [1]
    time_limit : float
        Seconds after which the best solution so far comes back with its bound. [s]
    gap : float
        Relative gap at which to stop. [1]

    Raises
    ------
    InputError
        If a kernel fits the SRAM only with its weight cut, which the program leaves out.
    """
    plan, load, count = problem.plan, problem.load, len(problem.slots)
    fusion = replace(problem.fusion, load=replace(load, memory_limit=math.inf))
    stages = StageMilp(
        count=count,
        kept=load.kept,
        capacity=problem.capacity,
        sequences=plan.microbatch_size,
        fixed=plan.border.fixed,
        per_byte=plan.border.per_byte,
    )
    data = replace(as_milp(fusion, count * per_stage), stages=stages)
    return solve_fusion(data, time_limit=time_limit, gap=gap)
