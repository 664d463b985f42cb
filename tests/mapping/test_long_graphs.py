"""Graphs that are cut into segments: what is found fits, and no sequence is below the bound."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from random import Random

import graphs
import pytest
from builders.long_graphs import assert_it_runs, long_problem, moving_alone
from builders.seeds import few_and_many
from builders.series_parallel import flow_of, load_of

from crosstack import optimise
from crosstack.machine.chip import Overlap
from crosstack.mapping import fusion, series_parallel, spreading
from crosstack.mapping.annealing import anneal
from crosstack.mapping.budget import UNLIMITED, Budget
from crosstack.mapping.fusion import fuse, make_problem, sequence_cost, simple_bound
from crosstack.mapping.ideals import make_order
from crosstack.mapping.merging import joined_partitions
from crosstack.mapping.series_parallel import least_moved_in_series
from crosstack.mapping.spreading import least_moved
from crosstack.model.partition import partition_cost


@pytest.fixture(params=few_and_many(12, 400), ids=len)
def seeds(request) -> range:
    return request.param


def moved_at_least(load) -> float:
    order = make_order(load.preds)
    return least_moved(load, order, of_use=lambda moved: True, budget=Budget(work=25e3))


def moved_in_series(load) -> float:
    return least_moved_in_series(load, budget=UNLIMITED).moved


class TestSeriesParallelGraphs:
    def test_no_sequence_moves_less(self, seeds):
        found = 0
        for seed in seeds:
            problem = long_problem(
                "series-parallel", (9.0, 12.0, 16.0)[seed % 3], 3 + seed % 12, seed
            )
            load = moving_alone(problem.load)
            least, bound = fuse(make_problem(load)), moved_in_series(load)
            if least is None:  # some kernel does not fit, alone
                continue
            assert least.proved
            assert bound <= least.time * (1 + 1e-9), seed
            found += bound >= least.time * (1 - 1e-6) > 0
        assert found >= len(seeds) / 2  # where it is the optimum

    def test_partitions_read_off_its_labels_are_nearly_the_best(self, seeds):
        whole = least = 0.0
        for seed in seeds:
            problem = long_problem("series-parallel", 12.0, 4 + seed % 11, seed)
            load = moving_alone(problem.load)
            best = fuse(make_problem(load))
            if best is None:  # some kernel does not fit, alone
                continue
            labels = least_moved_in_series(load, budget=UNLIMITED)
            found = joined_partitions(load, problem.order, labels.partitions, budget=UNLIMITED)
            assert found is not None
            assert_it_runs(problem, found)
            whole += sequence_cost(load, found)
            least += best.time
        assert least * (1 - 1e-9) <= whole <= 1.05 * least

    def test_a_long_one_comes_near_its_bound(self):
        problem = long_problem("series-parallel", 16.0, 150, 1)
        load = problem.load
        labels = least_moved_in_series(load, budget=UNLIMITED)
        found = joined_partitions(load, problem.order, labels.partitions, budget=UNLIMITED)
        assert_it_runs(problem, found)
        bound = simple_bound(load, moved=labels.moved)
        assert bound <= sequence_cost(load, found) <= 1.05 * bound

    def test_it_holds_on_any_random_graph(self, random_load, seeds):
        found = 0
        for seed in seeds:
            load = moving_alone(random_load(seed, 3 + seed % 6, tight=seed % 5 / 4))
            least, bound = fuse(make_problem(load)), moved_in_series(load)
            assert least is not None
            assert bound <= least.time * (1 + 1e-9), seed
            found += bound > 0.5 * least.time > 0
        assert found >= len(seeds) / 12

    def test_sram_that_is_rounded_down_leaves_a_bound(self, monkeypatch):
        load = long_problem("series-parallel", 16.0, 40).load
        exact = moved_in_series(load)
        monkeypatch.setattr(series_parallel, "MOST_LABELS", 20)
        rough = moved_in_series(load)
        assert 0.5 * exact < rough <= exact * (1 + 1e-9)

    def test_other_graphs_have_none(self):
        assert moved_in_series(long_problem("layered", 16.0).load) == 0


class TestWhatTensorsMoveAtLeast:
    def test_no_sequence_moves_less(self, monkeypatch, random_load, seeds):
        found, late = 0, spreading.LATE
        for seed in seeds:
            # Steps without length from the start, and late.
            monkeypatch.setattr(spreading, "LATE", seed // 5 % 2 * late)
            load = moving_alone(random_load(seed, 3 + seed % 6, tight=seed % 5 / 4))
            least, bound = fuse(make_problem(load)), moved_at_least(load)
            assert least is not None
            assert least.proved
            assert bound <= least.time * (1 + 1e-9), seed
            found += bound > 0.25 * least.time > 0
        assert found >= len(seeds) / 12  # it says something

    def test_no_sequence_of_layered_graphs_moves_less(self, monkeypatch, seeds):
        monkeypatch.setattr(spreading, "LATE", 0)
        found = 0
        for seed in seeds[::3]:
            load = moving_alone(long_problem("layered", 10.0 + seed % 3, 13 + seed % 4, seed).load)
            least = fuse(make_problem(load))
            if least is None:  # some kernel does not fit, alone
                continue
            bound = moved_at_least(load)
            assert bound <= least.time * (1 + 1e-9), seed
            found += bound > 0.25 * least.time > 0
        assert found >= 1

    def test_a_kernel_between_two_others_is_with_both(self, monkeypatch, chain_load):
        # The last reads the first, too; what lies between holds more than fits beside either.
        links = [(0, 3), (0, 1), (1, 2), (2, 3)]
        tensors = [flow_of(a, {b: 2}, tile=1.0, total=1.0 if a else 9.0) for a, b in links]
        load = chain_load([1, 5, 5, 1], tensors, 12.0)
        best = fuse(make_problem(load))
        assert best is not None
        found = []
        for late in (0, spreading.ROUNDS):
            monkeypatch.setattr(spreading, "LATE", late)
            found.append(moved_at_least(load))
        assert found[1] * 1.05 < found[0] <= best.time * (1 + 1e-9)

    def test_the_time_is_bounded_whatever_hides_behind_what(self, random_load, seeds):
        for seed in seeds:
            how = {"overlap": list(Overlap)[seed % 3], "memory_price": seed % 2 * 0.5}
            load = random_load(seed, 3 + seed % 6, tight=seed % 4 / 4, star=seed % 7 == 0, **how)
            best = fuse(make_problem(load))
            assert best is not None
            bound = simple_bound(load, moved=moved_at_least(load))
            assert bound <= best.time * (1 + 1e-9), seed

    def test_a_deep_reader_parts_what_would_fit_beside_a_shallow_one(self, chain_load):
        for depth, fits in ((2, True), (9, False)):
            tensors = [flow_of(0, {1: depth}, tile=1.0, total=4.0), flow_of(1, {2: 2}, 1.0, 4.0)]
            load = chain_load([0, 0, 0], tensors, 6.0)
            assert partition_cost(load, 0b111).fits == fits
            assert (moved_at_least(load) == 0) == fits

    @pytest.mark.parametrize("seeds", few_and_many(10, 24), ids=len)
    def test_what_deep_readers_take_never_bounds_too_much(self, random_load, seeds):
        deeper, rng = 0, Random(5)
        for seed in seeds:
            load = moving_alone(random_load(seed, 3 + seed % 6, tight=seed % 5 / 4))
            flows = tuple(
                replace(flow, readers=tuple((r, rng.choice((1, 2, 3, 6))) for r, _ in flow.readers))
                for flow in load.flows
            )
            deep = replace(load, flows=flows)
            best = fuse(make_problem(deep))
            if best is None:  # some kernel does not fit, alone
                continue
            assert best.proved
            bound = moved_at_least(deep)
            assert bound <= best.time * (1 + 1e-9), seed
            deeper += bound > moved_at_least(load) * (1 + 1e-6)
        assert deeper >= 1

    def test_nothing_has_to_move_where_all_fits(self, random_load):
        for seed in range(6):
            assert moved_at_least(random_load(seed, 6, tight=1.0)) == 0

    def test_a_spent_budget_leaves_a_bound(self):
        load = long_problem("layered", 16.0).load
        budget = Budget(work=1.0)
        order = make_order(load.preds)
        bound = least_moved(load, order, of_use=lambda moved: True, budget=budget)
        assert 0 < bound < sum(flow.moved for flow in load.flows) / load.bandwidth * 2


@pytest.fixture
def chain_load():
    """A builder of loads where tensors that move take all the time, in 1 s for a byte."""
    template = long_problem("series-parallel", 12.0, 4, 1).load

    def build(held, tensors, sram_capacity: float):
        return moving_alone(load_of(template, held, tensors, sram_capacity=sram_capacity))

    return build


def test_partitions_are_joined_where_that_saves_and_none_runs_between(random_load):
    joined = 0
    for seed in range(40):
        load = random_load(seed, 8, tight=0.6)
        problem = make_problem(replace(load, resident_alone=False, unmixed=()))
        alone = tuple(1 << i for i in load.order)
        found = joined_partitions(problem.load, problem.order, alone, budget=UNLIMITED)
        assert found is not None
        assert_it_runs(problem, found)
        assert sequence_cost(problem.load, found) <= sequence_cost(problem.load, alone) * (1 + 1e-9)
        joined += len(found) < len(alone)
    assert joined > 10


@pytest.mark.parametrize("kind", graphs.KINDS)
@pytest.mark.parametrize("ratio", [16.0, 64.0])
def test_moves_of_kernels_keep_the_order_and_fit(kind, ratio):
    problem = long_problem(kind, ratio)
    load = problem.load
    start = tuple(1 << i for i in load.order)
    found = anneal(load, problem.order, start, budget=Budget(work=3e4))
    assert_it_runs(problem, found)
    assert sequence_cost(load, found) < 0.8 * sequence_cost(load, start)


def test_the_cost_that_moves_add_up_to_is_that_of_the_partitions(random_load):
    for seed in range(12):
        how = {"overlap": list(Overlap)[seed % 3], "network_price": seed % 2 * 0.5}
        load = random_load(seed, 7, tight=0.4, **how)
        problem = make_problem(replace(load, resident_alone=False, unmixed=()))
        start = tuple(1 << i for i in load.order)
        found = anneal(problem.load, problem.order, start, budget=Budget(work=3000))
        best = fuse(problem)
        assert best is not None
        taken = sequence_cost(problem.load, found)
        assert best.time * (1 - 1e-9) <= taken <= sequence_cost(problem.load, start) * (1 + 1e-9)


@pytest.mark.parametrize("kind", graphs.KINDS)
def test_a_long_graph_is_answered_with_its_bound(monkeypatch, kind):
    monkeypatch.setattr(fusion, "LONG_GRAPH", 20)
    problem = long_problem(kind, 16.0)
    found = fuse(problem, budget=Budget(work=1e5), most_ideals=200)
    assert found is not None
    assert sequence_cost(problem.load, found.partitions) == pytest.approx(found.time)
    assert simple_bound(problem.load) < found.bound < found.time


class TestAChainThatIsCut:
    """A tensor takes one tile inside a partition, and two where it leaves one."""

    def test_a_partition_grows_past_one_that_does_not_fit(self, monkeypatch, chain_load):
        monkeypatch.setattr(fusion, "LONG_GRAPH", 1)
        tensors = [flow_of(0, {1: 1}, tile=1.0, total=4.0), flow_of(1, {2: 1}, tile=3.0, total=4.0)]
        load = chain_load([2, 0, 2], tensors, 8.0)  # the first two take 9, all three 8
        assert [partition_cost(load, mask).sram for mask in (0b11, 0b111)] == [9.0, 8.0]
        found = fuse(make_problem(load))
        assert found is not None
        assert (found.partitions, found.time, found.bound) == ((0b111,), 0.0, 0.0)

    def test_readers_that_are_all_inside_share_the_deepest_buffer(self, monkeypatch, chain_load):
        monkeypatch.setattr(fusion, "LONG_GRAPH", 1)
        tensors = [flow_of(0, {1: 1, 2: 1}, tile=4.0, total=4.0), flow_of(1, {2: 1}, 1.0, 4.0)]
        load = chain_load([0, 0, 0], tensors, 9.0)
        assert partition_cost(load, 0b111).sram == 5.0
        found = fuse(make_problem(load))
        assert found is not None
        assert (found.partitions, found.time, found.bound) == ((0b111,), 0.0, 0.0)


@pytest.mark.slow
def test_a_time_limit_holds_and_the_answer_is_evaluated_as_found():
    workload, system, given = graphs.one_chip(graphs.layered(500), 16.0)
    started = time.perf_counter()
    plan = optimise(workload, system, constraints=given, time_limit=10.0)
    assert time.perf_counter() - started < 15
    assert plan.certificate.bound < plan.certificate.objective < math.inf
    assert plan.evaluation.time == pytest.approx(plan.certificate.objective, rel=1e-9)
