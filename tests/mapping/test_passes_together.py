"""Searches of schedules whose passes run together, beside random mappings and given strategies."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.time import evaluate
from crosstack.io.library.machines import system_on
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.pricing import Pricing
from crosstack.mapping.search import search
from crosstack.mapping.strategies import all_strategies
from crosstack.model.choice_index import choice_index
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import Experts, Transformer, graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import Schedule
from crosstack.workload.workload import Workload

RULES = rules_named("crosstack")
MIXTURE = Transformer(
    hidden=512, layers=4, heads=8, kv_heads=8, head_size=64, feed_forward=2048, vocabulary=1024,
    context=256, experts=Experts(count=4, active=2, feed_forward=1024),
)  # fmt: skip


def trained(batch: int) -> Workload:
    graph = graphs.training(MIXTURE, sequence=256, batch=batch)
    return workload_of(graph, block="layers", items="batch")


def servers(bandwidth: float) -> System:
    """Eight H100, four in each of two servers, whose ports have so much. [B/s]"""
    network = (
        Dimension(kind=DimensionKind.SWITCH, size=4, bandwidth=bandwidth, latency=1e-6),
        Dimension(kind=DimensionKind.SWITCH, size=2, bandwidth=bandwidth / 4, latency=5e-6),
    )
    return replace(system_on("h100-dgx", chips=8), network=network)


@pytest.mark.parametrize(
    ("schedule", "degrees"),
    [
        (Schedule.COMBINED, Degrees(tensor=2, data=4, expert=4)),
        pytest.param(
            Schedule.COMBINED,
            Degrees(tensor=2, pipeline=2, data=2, expert=2),
            marks=pytest.mark.slow,
        ),
        (Schedule.DUALPIPE, Degrees(tensor=2, pipeline=2, data=2, expert=2)),
    ],
)
def test_no_random_sharding_is_faster_than_the_bound(schedule, degrees):
    workload, system = trained(16), servers(2e10)
    known = Constraints(kernel_by_kernel=True, schedule=schedule, degrees=degrees)
    best, sure = search(workload, system, known, RULES, work_limit=1e5)
    assert sure.gap < 0.15
    assert evaluate(workload, system, best).time == pytest.approx(sure.objective, rel=1e-9)
    index = choice_index(workload.graph, workload.placement, named=RULES.traffic.traces_layouts)
    choices = [
        index.sharding(np.arange(len(index.kernel))[index.kernel == i])
        for i in range(workload.graph.n)
    ]
    rng, tried = np.random.default_rng(1), 0
    for _ in range(150):
        # Some kernels otherwise than in the best mapping: few at random agree in all layouts.
        changed = rng.choice(workload.graph.n, size=rng.integers(1, 5), replace=False)
        sharding = list(best.sharding)
        for i in changed:
            sharding[i] = choices[i][rng.integers(len(choices[i]))]
        try:
            time = evaluate(workload, system, replace(best, sharding=tuple(sharding))).time
        except (InfeasibleError, InputError):
            continue
        tried += 1
        assert time >= sure.bound * (1 - 1e-9)
    assert tried > 40


def test_tokens_on_a_slow_network_hide_behind_other_microbatches():
    workload, system = trained(512), servers(5e10)
    free = Constraints(kernel_by_kernel=True, degrees=Degrees(data=8, expert=4))
    times = {}
    for schedule in (Schedule.ONE_F_ONE_B, Schedule.COMBINED):
        _, sure = search(workload, system, replace(free, schedule=schedule), RULES)
        times[schedule] = sure.objective
    assert times[Schedule.COMBINED] < 0.95 * times[Schedule.ONE_F_ONE_B]
    mapping, sure = search(workload, system, free, RULES)
    assert mapping.schedule is Schedule.COMBINED
    assert sure.objective == pytest.approx(times[Schedule.COMBINED], rel=1e-9)


@pytest.mark.parametrize("schedule", [Schedule.COMBINED, Schedule.DUALPIPE])
def test_no_layer_is_faster_than_the_line_below_its_strategy(schedule):
    """Layers that take at least what a block does, with tokens that take at least the least."""
    workload, system = trained(64), servers(2e10)
    given = Constraints(schedule=schedule, degrees=Degrees(pipeline=2, data=4, expert=4))
    found = all_strategies(workload, system, RULES, given)
    pricing, rng, hidden = Pricing(workload=workload, system=system, rules=RULES), Random(2), 0
    for number in rng.sample(range(len(found)), min(len(found), 6)):
        plan = found.one(number, workload, whole=True)
        for _ in range(20):
            layer, least = rng.uniform(1e-3, 1e-2), rng.uniform(0, 1.5e-2)
            bend = pricing.bend(replace(plan, tokens=(least, 2 * least)), layer)
            sent, more = least * rng.uniform(1, 2), layer * rng.uniform(1, 1.5)
            own = replace(plan, tokens=(sent, sent), tokens_forward=rng.uniform(0.3, 0.6))
            took = pricing.offered(own, more + (1 - plan.taken) * sent)
            assert bend.at(more) <= took * (1 + 1e-9)
            hidden += bend.at(more) > 0.9 * took
    assert hidden
