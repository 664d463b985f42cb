"""Parallelism: what every network dimension is used for, and how large free dimensions are.

Sets and parameters: dimensions d with a size or none, a use or none; n chips.
Variables: size s_d and use u_d in {tensor, pipeline, data} of every dimension.

(1) the sizes multiply to n; given sizes and uses stay;
(2) a dimension serves one parallelism (``ko2025dfmodel`` IV.C); one parallelism may have several
    dimensions, which are then used as a hierarchy;
(3) the batch divides by the data-parallel degree and the microbatch size.

Exact method: enumeration. Dimensions of one chip have no use, so those that differ only there are
listed once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

from crosstack.model.plan import Plan, divisors, make_plan
from crosstack.model.rules import ModelRules
from crosstack.system.system import Parallelism, System
from crosstack.workload.graph import Workload

__all__ = ["network_uses", "plans"]


def network_sizes(system: System) -> Iterator[tuple[int, ...]]:
    """Yield every choice of dimension sizes that multiplies to the number of chips."""
    fixed = math.prod(d.size for d in system.network if d.size is not None)
    free = [i for i, d in enumerate(system.network) if d.size is None]

    def split(left: int, parts: int) -> Iterator[tuple[int, ...]]:
        if parts == 0:
            if left == 1:
                yield ()
            return
        if parts == 1:
            yield (left,)
            return
        for size in divisors(left):
            for others in split(left // size, parts - 1):
                yield (size, *others)

    for chosen in split(system.n_chips // fixed, len(free)):
        sizes = [d.size or 1 for d in system.network]
        for i, size in zip(free, chosen, strict=True):
            sizes[i] = size
        yield tuple(sizes)


def network_uses(
    system: System,
) -> Iterator[tuple[tuple[int, ...], tuple[Parallelism, ...]]]:
    """Yield every (sizes, uses) of the network's dimensions."""
    for sizes in network_sizes(system):
        choices = [
            (d.parallelism,)
            if d.parallelism is not None
            else ((Parallelism.DATA,) if size == 1 else tuple(Parallelism))
            for d, size in zip(system.network, sizes, strict=True)
        ]
        for uses in itertools.product(*choices):
            yield sizes, uses


def plans(
    workload: Workload, system: System, rules: ModelRules, microbatch_size: int | None
) -> Iterator[Plan]:
    """Yield every plan: sizes, uses and microbatch size that divide the batch.

    Pipelines longer than the model only idle, so they are left out unless they are given.
    """
    batch = workload.global_batch_size
    for sizes, uses in network_uses(system):
        pairs = list(zip(sizes, uses, strict=True))
        data = math.prod(s for s, u in pairs if u is Parallelism.DATA)
        stages = math.prod(s for s, u in pairs if u is Parallelism.PIPELINE)
        given = all(d.parallelism is not None and d.size is not None for d in system.network)
        if batch % data or (stages > workload.graph_repetitions and not given):
            continue
        sizes_tried = (microbatch_size,) if microbatch_size else divisors(batch // data)
        for microbatch in sizes_tried:
            plan = make_plan(workload, system, sizes, uses, microbatch, rules)
            if plan is not None:
                yield plan
