"""Elimination against every choice of axes."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.mapping import sharding
from crosstack.mapping.sharding import dominated_axes, eliminate, given_axes, with_given
from crosstack.model.arrays import AXES, graph_arrays
from crosstack.model.options import allowed_axes
from crosstack.workload.graph import Axis

SEEDS = range(60)


def random_model(seed: int, n: int = 5, *, whole: bool = False):
    """Return domains, node costs and edges of a random pairwise model."""
    rng = random.Random(seed)
    draw = (lambda: float(rng.randint(0, 2))) if whole else rng.random
    domains = [tuple(sorted(rng.sample(range(5), rng.randint(1, 4)))) for _ in range(n)]
    nodes = np.array([[draw() for _ in range(5)] for _ in range(n)])
    pairs = [p for p in itertools.permutations(range(n), 2) if rng.random() < 0.35]
    cost = np.array([[[draw() for _ in range(5)] for _ in range(5)] for _ in pairs])
    source = np.array([i for i, _ in pairs], dtype=np.int64)
    target = np.array([j for _, j in pairs], dtype=np.int64)
    return domains, nodes, (source, target, cost.reshape(-1, 5, 5))


def cost_of(choice, nodes, edges) -> float:
    total = sum(nodes[i, a] for i, a in enumerate(choice))
    for source, target, cost in zip(*edges, strict=True):
        total += cost[choice[source], choice[target]]
    return float(total)


def every_cost(domains, nodes, edges) -> list[tuple[float, tuple[int, ...]]]:
    choices = itertools.product(*domains)
    return sorted((cost_of(choice, nodes, edges), choice) for choice in choices)


class TestElimination:
    @pytest.mark.parametrize("n", [1, 2, 5, 6])
    def test_its_bound_is_the_least_cost(self, n):
        for seed in SEEDS:
            model = random_model(seed, n)
            assert eliminate(*model).bound == pytest.approx(every_cost(*model)[0][0]), seed

    def test_it_is_exact_where_no_table_is_split(self):
        assert all(eliminate(*random_model(seed)).exact for seed in SEEDS)

    def test_the_first_solution_has_the_least_cost(self):
        for seed in SEEDS:
            domains, nodes, edges = random_model(seed)
            found = eliminate(domains, nodes, edges)
            _, codes = next(found.solutions())
            assert cost_of(codes.tolist(), nodes, edges) == pytest.approx(found.bound), seed

    @pytest.mark.parametrize("whole", [False, True], ids=["no ties", "ties"])
    def test_the_best_is_the_first_solution(self, whole):
        for seed in SEEDS:
            found = eliminate(*random_model(seed, whole=whole))
            assert found.best().tolist() == next(found.solutions())[1].tolist(), seed

    @pytest.mark.parametrize("whole", [False, True], ids=["no ties", "ties"])
    def test_solutions_ascend(self, whole):
        for seed in SEEDS:
            costs = [cost for cost, _ in eliminate(*random_model(seed, 4, whole=whole)).solutions()]
            assert all(a <= b + 1e-9 for a, b in itertools.pairwise(costs)), seed

    @pytest.mark.parametrize("whole", [False, True], ids=["no ties", "ties"])
    def test_solutions_are_all_there_are(self, whole):
        for seed in SEEDS:
            model = random_model(seed, 4, whole=whole)
            found = [tuple(codes.tolist()) for _, codes in eliminate(*model).solutions()]
            assert sorted(found) == sorted(itertools.product(*model[0])), seed

    def test_a_solution_costs_what_it_says(self):
        for seed in SEEDS:
            domains, nodes, edges = random_model(seed, 4)
            for cost, codes in eliminate(domains, nodes, edges).solutions():
                assert cost == pytest.approx(cost_of(codes.tolist(), nodes, edges)), seed


class TestSplitTables:
    @pytest.fixture(autouse=True)
    def _small_tables(self, monkeypatch):
        monkeypatch.setattr(sharding, "MOST_ENTRIES", 6)

    def test_they_bound_the_least_cost_from_below(self):
        for seed in SEEDS:
            model = random_model(seed, 6)
            assert eliminate(*model).bound <= every_cost(*model)[0][0] * (1 + 1e-12), seed

    def test_they_are_not_called_exact_where_they_miss(self):
        for seed in SEEDS:
            model = random_model(seed, 6)
            found = eliminate(*model)
            least = every_cost(*model)[0][0]
            assert not found.exact or found.bound == pytest.approx(least), seed

    def test_some_table_is_split(self):
        assert not all(eliminate(*random_model(seed, 6)).exact for seed in SEEDS)


class TestDominance:
    @pytest.mark.parametrize("seed", SEEDS)
    def test_a_best_choice_survives_whatever_is_minimised(self, seed):
        rng = np.random.default_rng(seed)
        domains, first, edges = random_model(seed, 4, whole=True)
        second = rng.integers(0, 3, size=first.shape).astype(float)
        weights = rng.random(4)

        def objective(choice) -> float:
            a = sum(first[i, x] for i, x in enumerate(choice))
            b = max(second[i, x] for i, x in enumerate(choice))
            moved = cost_of(choice, np.zeros_like(first), edges)
            return float(max(weights[0] * a, weights[1] * moved) + weights[2] * b)

        kept = dominated_axes(domains, [first, second], edges)
        least = min(map(objective, itertools.product(*domains)))
        assert min(map(objective, itertools.product(*kept))) == pytest.approx(least)

    def test_every_kernel_keeps_an_axis(self):
        for seed in SEEDS:
            domains, nodes, edges = random_model(seed, 5, whole=True)
            assert all(dominated_axes(domains, [nodes], edges)), seed

    def test_axes_that_cost_the_same_leave_one(self):
        none = np.array([], dtype=np.int64)
        edges = (none, none, np.zeros((0, 5, 5)))
        assert len(dominated_axes([(0, 1, 3)], [np.ones((1, 5))], edges)[0]) == 1

    def test_axes_that_each_win_somewhere_stay(self):
        none = np.array([], dtype=np.int64)
        edges = (none, none, np.zeros((0, 5, 5)))
        terms = [np.array([[1.0, 2, 9, 9, 9]]), np.array([[2.0, 1, 9, 9, 9]])]
        assert dominated_axes([(0, 1)], terms, edges) == [[0, 1]]


class TestGiven:
    def test_a_given_axis_is_the_only_one(self, random_task):
        workload, _ = random_task(1)
        arrays = graph_arrays(workload.graph)
        allowed = allowed_axes(arrays)
        axis = AXES[int(np.argmax(allowed[0]))]
        given = given_axes(arrays, ((arrays.names[0], axis),), allowed)
        assert with_given(allowed, given)[0] == [AXES.index(axis)]

    def test_an_unknown_kernel_is_named(self, random_task):
        arrays = graph_arrays(random_task(1)[0].graph)
        with pytest.raises(InputError, match='no kernel is called "k9"'):
            given_axes(arrays, (("k9", Axis.M),), allowed_axes(arrays))

    def test_an_axis_that_cannot_be_split_is_refused(self, random_task):
        arrays = graph_arrays(random_task(1)[0].graph)
        allowed = np.zeros((arrays.n, 5), dtype=np.bool_)
        with pytest.raises(InputError, match=f"constraints.sharding.{arrays.names[0]}: got m"):
            given_axes(arrays, ((arrays.names[0], Axis.M),), allowed)
