"""Sets of kernels that may be a partition are all listed, and no sequence is below their bound."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from builders.long_graphs import long_problem, moving_alone
from builders.random_mappings import least_of_all, prices
from builders.seeds import few_and_many
from builders.series_parallel import flow_of, load_of, random_series

from crosstack.mapping import set_partitioning
from crosstack.mapping.budget import UNLIMITED, Budget
from crosstack.mapping.fusion import fuse, make_problem, sequence_cost, simple_bound
from crosstack.mapping.ideals import make_order
from crosstack.mapping.listing import list_partitions
from crosstack.mapping.merging import joined_partitions, packed_partitions
from crosstack.mapping.set_partitioning import Columns, dearest, least_moved_of_sets
from crosstack.model.partition import partition_cost
from crosstack.workload.kernel_graph import bits


@pytest.fixture(params=few_and_many(12, 400), ids=len)
def seeds(request) -> range:
    return request.param


def listed(load) -> dict[int, float]:
    """What each listed set moves, by its mask. [s]"""
    found = list_partitions(load, make_order(load.preds), budget=UNLIMITED)
    assert found is not None
    kernels = found.sequence[found.places].tolist()
    ends = itertools.pairwise(found.start.tolist())
    masks = [sum(1 << i for i in kernels[a:b]) for a, b in ends]
    assert len(set(masks)) == len(masks)
    return dict(zip(masks, found.moved.tolist(), strict=True))


def moved_of_sets(load) -> float:
    return least_moved_of_sets(load, make_order(load.preds), budget=UNLIMITED).moved


def connected(load, mask: int) -> bool:
    """Whether tensors hold the kernels of a mask together."""
    groups = [(flow.mask | 1 << flow.producer) & mask for flow in load.flows]
    seen, before = mask & -mask, 0
    while seen != before:
        before = seen
        for group in groups:
            seen |= group if group & seen else 0
    return seen == mask


class TestListedSets:
    def test_they_are_all_connected_ones_that_fit(self, random_load, seeds):
        for seed in seeds:
            load = moving_alone(random_load(seed, 3 + seed % 6, tight=seed % 5 / 4))
            every = {}
            for mask in range(1, 1 << load.n):
                cost = partition_cost(load, mask)
                if connected(load, mask) and (cost.fits or mask.bit_count() == 1):
                    every[mask] = cost.memory
            assert listed(load) == pytest.approx(every, rel=1e-9), seed

    def test_buffers_as_deep_as_readers_ask_for(self, seeds):
        template = long_problem("series-parallel", 12.0, 4, 1).load
        for seed in seeds:
            load = random_series(template, seed, 2 + seed % 7)
            load = moving_alone(load)
            found = listed(load)
            for mask in range(1, 1 << load.n):
                cost = partition_cost(load, mask)
                if connected(load, mask) and cost.fits:
                    assert found[mask] == pytest.approx(cost.memory, rel=1e-9)
                elif mask.bit_count() > 1:
                    assert mask not in found

    def test_too_many_are_not_listed(self):
        problem = long_problem("layered", 16.0)
        assert list_partitions(problem.load, problem.order, budget=UNLIMITED) is not None
        assert list_partitions(problem.load, problem.order, budget=UNLIMITED, most=9) is not None
        wide = long_problem("layered", 64.0, 200)
        assert list_partitions(wide.load, wide.order, budget=UNLIMITED, most=9) is None
        assert list_partitions(problem.load, problem.order, budget=Budget(work=1.0)) is None


class TestPricesOfKernels:
    def test_no_sequence_moves_less(self, random_load, seeds):
        found = 0
        for seed in seeds:
            load = moving_alone(random_load(seed, 3 + seed % 6, tight=seed % 5 / 4))
            least, bound = fuse(make_problem(load)), moved_of_sets(load)
            assert least is not None
            assert bound <= least.time * (1 + 1e-9), seed
            found += bound >= 0.99 * least.time
        assert found >= 0.8 * len(seeds)

    @pytest.mark.parametrize("kind", ["layered", "series-parallel"])
    def test_no_sequence_of_generated_graphs_moves_less(self, kind, seeds):
        found = 0
        for seed in seeds:
            problem = long_problem(kind, (9.0, 12.0, 16.0)[seed % 3], 3 + seed % 12, seed)
            load = moving_alone(problem.load)
            least, bound = fuse(make_problem(load)), moved_of_sets(load)
            if least is None:  # some kernel does not fit, alone
                continue
            assert bound <= least.time * (1 + 1e-9), seed
            found += bound >= 0.99 * least.time
        assert found >= 0.5 * len(seeds)

    def test_none_moves_less_where_weights_are_cut_and_buffers_deep(self, brute_step, seeds):
        template, found = long_problem("series-parallel", 12.0, 4, 1).load, 0
        for seed in seeds:
            load = moving_alone(random_series(template, seed, 2 + seed % 6))
            least, bound = least_of_all(load.preds, prices(load, brute_step)), moved_of_sets(load)
            assert bound <= least * (1 + 1e-9), seed
            found += bound >= 0.99 * least
        assert found >= 0.6 * len(seeds)

    def test_the_time_is_bounded_whatever_hides_behind_what(self, random_load, seeds):
        for seed in seeds:
            load = random_load(seed, 3 + seed % 6, tight=seed % 4 / 4, star=seed % 7 == 0)
            best = fuse(make_problem(load))
            assert best is not None
            bound = simple_bound(load, moved=moved_of_sets(load))
            assert bound <= best.time * (1 + 1e-9), seed

    def test_they_keep_to_what_every_set_moves(self, monkeypatch):
        problem = long_problem("layered", 12.0, 60)
        found = list_partitions(problem.load, problem.order, budget=UNLIMITED)
        columns = Columns(
            n=problem.load.n, start=found.start, kernels=found.places, moved=found.moved
        )
        whole = dearest(columns, UNLIMITED)[0]
        monkeypatch.setattr(set_partitioning, "ROUNDS", 1)  # prices of few sets, then repaired
        assert 0 < dearest(columns, UNLIMITED)[0] < whole
        assert whole <= columns.moved[columns.sizes == 1].sum()

    def test_one_that_is_the_only_answer(self, chain_of_pairs):
        load, apart = chain_of_pairs
        assert moved_of_sets(load) == pytest.approx(apart, rel=2e-3)

    def test_a_spent_budget_says_nothing(self):
        problem = long_problem("layered", 12.0)
        found = least_moved_of_sets(problem.load, problem.order, budget=Budget(work=1.0))
        assert (found.moved, found.partitions) == (0.0, ())

    def test_blocks_solve_as_the_whole_matrix_does(self):
        rng = np.random.default_rng(1)
        sets = [
            sorted({i, *(i + rng.integers(0, 4, 3)).tolist()} & set(range(20))) for i in range(20)
        ]
        sets += [[i] for i in range(20)]
        start = np.cumsum([0, *map(len, sets)])
        columns = Columns(n=20, start=start, kernels=np.concatenate(sets), moved=np.ones(40))
        weight, right = rng.uniform(0.1, 2, 40), rng.uniform(0, 1, 20)
        table = np.zeros((20, 20))
        for those, amount in zip(sets, weight, strict=True):
            table[np.ix_(those, those)] += amount
        solve = set_partitioning._Matrix(columns).inverse(weight)
        assert solve(right) == pytest.approx(np.linalg.solve(table, right))


@pytest.fixture
def chain_of_pairs():
    """A chain whose SRAM holds two kernels at a time, and what its tensors move at least. [s]"""
    template = long_problem("series-parallel", 12.0, 4, 1).load
    tensors = [flow_of(i, {i + 1: 2}, tile=1.0, total=4.0) for i in range(9)]
    load = moving_alone(load_of(template, [1] * 10, tensors, sram_capacity=8.0))
    return load, 4 * 2 * 4.0


def test_sets_that_are_wanted_become_partitions_where_there_is_an_order(random_load):
    packed = 0
    for seed in range(40):
        load = random_load(seed, 8, tight=0.6)
        problem = make_problem(load)
        load, order = problem.load, problem.order
        wanted = [mask for mask in range(1, 1 << load.n) if mask.bit_count() == 3]
        found = packed_partitions(load, order, wanted[seed:] + wanted[:seed], budget=UNLIMITED)
        assert sum(found) == load.everything
        assert sorted(i for mask in found for i in bits(mask)) == list(range(load.n))
        joined = joined_partitions(load, order, found, budget=UNLIMITED)
        assert joined is not None
        packed += sum(mask.bit_count() == 3 for mask in found)
    assert packed > 40


def test_partitions_read_off_prices_come_near_the_bound():
    problem = long_problem("layered", 16.0, 150, 1)
    load, order = problem.load, problem.order
    found = least_moved_of_sets(load, order, budget=UNLIMITED)
    joined = joined_partitions(load, order, found.partitions, budget=UNLIMITED)
    assert joined is not None
    bound = simple_bound(load, moved=found.moved)
    assert bound <= sequence_cost(load, joined) <= 1.2 * bound
