"""A free search of a tiny training answers what the best of all given strategies is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from crosstack.errors import InfeasibleError, InputError, LimitError
from crosstack.io.library.machines import system_on
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Status
from crosstack.mapping.search import search
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import Experts, Transformer, graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import ZEROS, Recompute, Schedule, Zero
from crosstack.workload.workload import Workload

pytestmark = pytest.mark.slow

RULES = rules_named("crosstack")
DENSE = Transformer(
    hidden=512, layers=2, heads=8, kv_heads=8, head_size=64, feed_forward=2048, vocabulary=1024,
    context=256,
)  # fmt: skip
MIXTURE = replace(DENSE, experts=Experts(count=4, active=2, feed_forward=1024))
DEGREES = (1, 2, 4, 8)


def servers(capacity: float) -> System:
    """Eight H100 with so much main memory [B], four in each of two servers."""
    system = system_on("h100-dgx", chips=8)
    network = (
        Dimension(kind=DimensionKind.SWITCH, size=4, bandwidth=4.5e11, latency=1e-6),
        Dimension(kind=DimensionKind.SWITCH, size=2, bandwidth=5e10, latency=5e-6),
    )
    chip = system.chip.with_memory(capacity=capacity)
    return replace(system, chip=chip, network=network)


def trained(model: Transformer, batch: int) -> Workload:
    graph = graphs.training(model, sequence=256, batch=batch)
    return workload_of(graph, block="layers", items="batch")


def every_strategy(model: Transformer, batch: int) -> Iterator[dict[str, Any]]:
    """Yield degrees, microbatch sizes, what is computed again and what is shared; all there are.

    All tensor-parallel chips cut experts, or some, or are free to: a search that is free cuts them
    only where they do not divide, over as few as it can, and this is what shows that it loses
    nothing by that.
    """
    experts = 1 if model.experts is None else model.experts.count
    for tensor, pipeline in itertools.product(DEGREES, repeat=2):
        data = 8 // (tensor * pipeline)
        if tensor * pipeline * data != 8:
            continue
        for expert in (n for n in DEGREES if data % n == 0 and experts % n == 0):
            degrees = Degrees(tensor=tensor, pipeline=pipeline, data=data)
            degrees = replace(degrees, expert=expert) if experts > 1 else degrees
            sizes = [n for n in DEGREES if n * data <= batch]
            shares = ZEROS if data > 1 else (Zero.NONE,)
            cuts = [replace(degrees, expert_tensor=None)]
            for cut in (n for n in DEGREES[1:] if tensor % n == 0 and experts > 1):
                parts = expert * tensor // cut
                if experts % parts == 0:
                    cuts.append(replace(degrees, expert=parts, expert_tensor=cut))
            for size, again, zero, own in itertools.product(sizes, Recompute, shares, cuts):
                yield {
                    "degrees": own, "microbatch_size": size, "recompute": again, "zero": zero,
                }  # fmt: skip


@pytest.mark.parametrize(
    ("model", "batch", "capacity", "schedule"),
    [
        (DENSE, 8, 80e9, Schedule.ONE_F_ONE_B),
        (DENSE, 4, 4e7, Schedule.ONE_F_ONE_B),  # little but what tensor parallelism shares fits
        (DENSE, 4, 80e9, Schedule.ZB_H1),
        (DENSE, 8, 80e9, Schedule.ZB_H2),
        (replace(DENSE, layers=4), 8, 80e9, Schedule.ZB_V),
        (MIXTURE, 4, 80e9, Schedule.ONE_F_ONE_B),
        (MIXTURE, 8, 80e9, Schedule.COMBINED),
    ],
    ids=["dense", "little-memory", "zb-h1", "zb-h2", "zb-v", "mixture", "combined"],
)
def test_the_best_of_all_given_strategies_is_what_a_free_search_finds(
    model, batch, capacity, schedule
):
    workload, system = trained(model, batch), servers(capacity)
    known = Constraints(kernel_by_kernel=True, schedule=schedule)
    _, free = search(workload, system, known, RULES, work_limit=3e6)
    assert free.status is Status.OPTIMAL
    found, refused = [], 0
    for given in every_strategy(model, batch):
        try:
            _, one = search(workload, system, replace(known, **given), RULES, work_limit=2e4)
        except (InfeasibleError, InputError, LimitError):
            refused += 1  # does not fit, or is none under the schedule
            continue
        found.append(one.objective)
    assert len(found) > (10 if schedule.pieces == 2 else 20)
    assert min(found) == pytest.approx(free.objective, rel=1e-9)
