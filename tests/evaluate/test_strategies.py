"""Many strategies at once: each costs what its mapping does alone, and fits where that fits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.blocks import BlockTable
from crosstack.evaluate.strategy_times import mapping_of, strategy_times
from crosstack.evaluate.time import evaluate
from crosstack.io.library.machines import system_on
from crosstack.io.transformers import transformer
from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints
from crosstack.mapping.search import search
from crosstack.mapping.strategies import ORDERS, Strategies, all_strategies
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.transformer_training import Hidden, Recompute, Schedule
from crosstack.workload.workload import Workload
from tests.builders.small_models import SMALL

RULES = rules_named("crosstack")
BOTH = tuple(Schedule)
PRECISION = 1e-12


def trained(model: str, *, layers: int, sequence: int, batch: int) -> Workload:
    """A few layers of a model of the registry, forward and backward."""
    few = replace(transformer(model), layers=layers)
    graph = graphs.training(few, sequence=sequence, batch=batch)
    return workload_of(graph, block="layers", items="batch", name=model)


def servers(capacity: float, chips: int = 16) -> System:
    """Servers of eight H100 with so much main memory each. [B]"""
    system = system_on("h100-dgx", chips=chips)
    return replace(system, chip=system.chip.with_memory(capacity=capacity))


def dataflow(overlap: Overlap, **memory: float) -> System:
    """Eight spatial chips on a ring of any size and a switch."""
    chip = flat_chip(
        n_cores=64, lanes=32, stages=8, frequency=1e9, sram_capacity=1e8, utilization=0.9,
        overlap=overlap, memories=main_memory(**{"bandwidth": 1e11, "capacity": 1e12} | memory),
    )  # fmt: skip
    network = (
        Dimension(kind=DimensionKind.RING, bandwidth=1e10, latency=1e-6),
        Dimension(kind=DimensionKind.SWITCH, bandwidth=2e9, latency=5e-6),
    )
    return System(chip=chip, network=network, n_chips=8)


def some(strategies: Strategies, count: int, seed: int = 0) -> Strategies:
    """A few of many strategies, drawn at random."""
    rng = np.random.default_rng(seed)
    count = min(count, len(strategies))
    return strategies.at(rng.choice(len(strategies), count, replace=False))


def compare(strategies: Strategies, table: BlockTable) -> int:
    """Price strategies together and one by one; return how many do not fit."""
    found, failed = strategy_times(strategies, table), 0
    for i in range(len(strategies)):
        mapping = mapping_of(strategies, i, table)
        assert mapping is not None
        try:
            alone = evaluate(table.workload, table.system, mapping, table.rules)
        except InfeasibleError:
            assert not found.fits[i]
            failed += 1
            continue
        assert found.fits[i]
        names = ["layer_time", "memory_used", "memory_capacity", "time", "utilization"]
        if mapping.schedule.by_events:  # whose events arrays do not run: a bound
            names = names[:3]
            assert found.time[i] <= alone.time * (1 + PRECISION)
        for name in names:
            assert getattr(found, name)[i] == pytest.approx(getattr(alone, name), rel=PRECISION)
    return failed


class TestEqualsEvaluate:
    def test_servers_of_gpus(self):
        workload = trained("llama3-8b", layers=8, sequence=1024, batch=16)
        system = servers(8e9)
        strategies = all_strategies(workload, system, RULES, orders=BOTH)
        table = BlockTable(workload=workload, system=system, rules=RULES, work_limit=1e3)
        assert 0 < compare(some(strategies, 12, seed=3), table) < 12

    def test_experts_on_servers(self):
        workload = trained("mixtral-8x7b", layers=2, sequence=512, batch=8)
        system = servers(40e9)
        strategies = all_strategies(workload, system, RULES)
        table = BlockTable(workload=workload, system=system, rules=RULES, work_limit=1e3)
        spread = strategies.at(strategies.of_use("expert") > 1)
        compare(some(strategies, 1), table)
        for zero in np.unique(spread.of_use("zero")).tolist():
            compare(some(spread.at(spread.of_use("zero") == zero), 1), table)
        assert set(spread.of_use("expert").tolist()) == {2, 4, 8}

    @pytest.mark.slow
    @pytest.mark.parametrize("overlap", Overlap)
    def test_spatial_chips(self, overlap):
        workload = trained("opt-125m", layers=8, sequence=1024, batch=16)
        system = dataflow(overlap, capacity=2e9)
        strategies = all_strategies(workload, system, RULES, orders=BOTH)
        table = BlockTable(workload=workload, system=system, rules=RULES, work_limit=1e3)
        drawn = some(strategies, 3)
        assert compare(drawn, table) < len(drawn)
        if overlap is Overlap.ALL:
            assert (strategies.interleave > 1).any()
            cut = some(strategies.at(strategies.interleave > 1), 2)
            assert compare(cut, table) < len(cut)

    @pytest.mark.parametrize("hidden", [(), (Hidden.GRADIENTS, Hidden.SENDS), tuple(Hidden)])
    def test_what_is_sent_beside_the_work(self, hidden):
        workload = trained("opt-125m", layers=8, sequence=1024, batch=16)
        system = servers(40e9)
        given = Constraints(overlap=hidden)
        strategies = all_strategies(workload, system, RULES, given, orders=BOTH)
        table = BlockTable(
            workload=workload, system=system, rules=RULES, constraints=given, work_limit=1e3
        )
        drawn = some(strategies, 4)
        assert compare(drawn, table) < len(drawn)
        assert mapping_of(drawn, 0, table).overlap == hidden

    @pytest.mark.slow
    def test_a_second_memory_takes_what_the_first_does_not_hold(self):
        workload = trained("opt-125m", layers=8, sequence=1024, batch=16)
        two = {"capacity": 4e8, "second_bandwidth": 1e10, "second_capacity": 1e10}
        system = dataflow(Overlap.COMPUTE_MEMORY, **two)
        strategies = some(all_strategies(workload, system, RULES), 3, seed=2)
        table = BlockTable(workload=workload, system=system, rules=RULES, work_limit=1e3)
        compare(strategies, table)
        assert len(np.unique(strategy_times(strategies, table).memory_capacity)) == 2

    @pytest.mark.parametrize(
        ("model", "block"), [("llama", "layers"), ("deepseek-v3", "expert_layers")]
    )
    def test_a_forward_pass_alone(self, model, block):
        graph = graphs.prefill(SMALL[model], sequence=8, batch=8)
        workload = workload_of(graph, block=block, items="batch")
        system = servers(80e9, chips=8)
        strategies = all_strategies(workload, system, RULES)
        table = BlockTable(workload=workload, system=system, rules=RULES, work_limit=1e3)
        compare(some(strategies, 10), table)

    @pytest.mark.parametrize(
        "rules", ["dfmodel-e3b", pytest.param("dfmodel-readme", marks=pytest.mark.slow)]
    )
    def test_rules_of_a_release(self, rules):
        workload = trained("opt-125m", layers=4, sequence=1024, batch=8)
        chosen, system = rules_named(rules), dataflow(Overlap.ALL)
        strategies = all_strategies(workload, system, chosen)
        table = BlockTable(workload=workload, system=system, rules=chosen, work_limit=1e3)
        compare(some(strategies, 10), table)


def test_all_strategies_keep_to_what_is_given():
    workload = trained("llama3-8b", layers=8, sequence=1024, batch=16)
    free = all_strategies(workload, servers(80e9), RULES)
    plain = free.recompute == list(Recompute).index(Recompute.NONE)
    for given, these in (
        (Constraints(recompute=Recompute.NONE), plain),
        (Constraints(microbatch_size=2), free.microbatch_size == 2),
        (Constraints(degrees=Degrees(data=2)), free.of_use("data") == 2),
        (
            Constraints(schedule=Schedule.GPIPE, degrees=Degrees(pipeline=2)),
            (free.schedule == ORDERS.index(Schedule.GPIPE)) & (free.of_use("pipeline") == 2),
        ),
    ):
        assert len(all_strategies(workload, servers(80e9), RULES, given)) == these.sum() > 0
    alone = free.of_use("pipeline") == 1  # whose microbatches follow one another in any order
    assert {ORDERS[order] for order in free.schedule[alone]} == {Schedule.ONE_F_ONE_B}


def test_the_best_of_all_strategies_is_what_a_search_finds():
    workload = trained("llama3-8b", layers=4, sequence=1024, batch=8)
    system = servers(80e9, chips=8)
    given = Constraints(kernel_by_kernel=True, microbatch_size=1, recompute=Recompute.NONE)
    table = BlockTable(
        workload=workload, system=system, rules=RULES, constraints=given, work_limit=1e4
    )
    strategies = all_strategies(workload, system, RULES, given)
    found = strategy_times(strategies, table)
    _, certificate = search(workload, system, given, RULES, work_limit=3e5)
    assert found.time[found.fits].min() >= certificate.bound * (1 - 1e-9)
    assert found.time[found.fits].min() == pytest.approx(certificate.objective, rel=1e-6)


def test_blocks_are_solved_once():
    workload = trained("llama3-8b", layers=8, sequence=1024, batch=16)
    system = servers(80e9)
    strategies = some(all_strategies(workload, system, RULES), 6)
    table = BlockTable(workload=workload, system=system, rules=RULES, work_limit=1e3)
    first = strategy_times(strategies, table)
    solved, rows = len(table.solved), len(table.rows)
    again = strategy_times(strategies, table)
    assert (len(table.solved), len(table.rows)) == (solved, rows)
    assert np.array_equal(first.time, again.time)


def test_a_workload_that_brings_its_distribution_has_no_strategies():
    with pytest.raises(InputError, match="placement"):
        all_strategies(hpl(size=4096, block=128), dataflow(Overlap.ALL), RULES)
