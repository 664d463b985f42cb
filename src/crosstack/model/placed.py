"""Plans of workloads that bring their own distribution over the chips.

See `crosstack.workload.kernels.Placement`. All chips of the network work together; what is left of
the plan is what a byte of the kernels' own communication costs. High-bandwidth domains are not
looked at: the dimensions of the network say what is near.
"""

from __future__ import annotations

import math
from typing import assert_never

from crosstack.errors import require
from crosstack.machine.system import Parallelism, System
from crosstack.model.collectives import AffineTime, NetworkUse
from crosstack.model.plan import Plan, make_plan, microbatch_count
from crosstack.model.rules import Rules
from crosstack.workload.kernels import Placement
from crosstack.workload.workload import Workload

__all__ = ["placed_use", "plan_of"]


def placed_use(placement: Placement) -> Parallelism | None:
    """What all dimensions of the network split; None where that is searched."""
    match placement:
        case Placement.SEARCHED:
            return None
        case Placement.BATCH:
            return Parallelism.DATA
        case Placement.GRID | Placement.COLUMNS:
            return Parallelism.TENSOR
        case _:
            assert_never(placement)


def plan_of(
    workload: Workload,
    system: System,
    sizes: tuple[int, ...],
    parallelism: tuple[Parallelism, ...],
    microbatch_size: int,
    rules: Rules,
    dimensions: tuple[int, ...] = (),
) -> Plan | None:
    """Return the plan of any workload, or None if the batch does not divide into microbatches.

    Parameters
    ----------
    sizes, parallelism, dimensions : tuple
        See `crosstack.mapping.mapping.Mapping`.
    microbatch_size : int
        Sequences a chip works on at a time. [1]
    """
    if workload.placement is Placement.SEARCHED:
        require(system.copies == 1, "system.copies", system.copies, "1; use data parallelism")
        return make_plan(workload, system, sizes, parallelism, microbatch_size, rules, dimensions)
    require(not dimensions, "dimensions", dimensions, f"none with placement {workload.placement}")
    n_chips = math.prod(sizes)
    data = n_chips if placed_use(workload.placement) is Parallelism.DATA else 1
    if workload.global_batch_size % (data * microbatch_size):
        return None
    network = NetworkUse.of(system, sizes, parallelism, workload.graph.dtype)
    collectives, gradients = rules.collectives.placed(network, workload.placement)
    match workload.placement:
        case Placement.BATCH:
            split = 1, 1, 1
        case Placement.GRID:
            split = n_chips // sizes[-1], sizes[-1], 1
        case Placement.COLUMNS:
            split = 1, 1, n_chips
        case _:
            assert_never(workload.placement)
    return Plan(
        sizes=sizes,
        parallelism=parallelism,
        microbatch_size=microbatch_size,
        tensor=1,
        pipeline=1,
        data=data,
        n_microbatches=microbatch_count(workload, data, microbatch_size),
        layers_per_stage=workload.graph_repetitions,
        collectives=collectives,
        changes={},
        periodic=gradients,
        stage_transfer=AffineTime(),
        n_layers=workload.n_layers,
        split=split,
        copies=system.copies,
    )
