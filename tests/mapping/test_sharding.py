"""Elimination against every sharding."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.mapping import sharding
from crosstack.mapping.sharding import (
    dominated,
    eliminate,
    eliminate_tables,
    given_choices,
    least_of_tables,
    with_given,
)
from crosstack.model.choice_index import ChoiceIndex, axis_names, choice_index
from crosstack.workload.architectures import graphs
from crosstack.workload.kernels import Axis
from crosstack.workload.lowering import lowered

SEEDS = range(60)


def index_of(counts, pairs=()) -> ChoiceIndex:
    """Return the index of kernels with so many choices, joined by edges."""
    start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    source, target = (np.array([pair[end] for pair in pairs], np.int64) for end in (0, 1))
    entries = [
        (e, start[i] + a, start[j] + b)
        for e, (i, j) in enumerate(pairs)
        for a in range(counts[i])
        for b in range(counts[j])
    ]
    edge, before, after = np.array(entries, np.int64).reshape(-1, 3).T
    sizes = np.bincount(edge, minlength=len(pairs))
    kernel = np.repeat(np.arange(len(counts)), counts)
    return ChoiceIndex(
        start=start, kernel=kernel, axis=np.zeros(len(kernel), np.int64), source=source,
        target=target, edge_start=np.concatenate([[0], np.cumsum(sizes)]), edge=edge,
        before=before, after=after,
    )  # fmt: skip


def random_model(seed: int, n: int = 5, *, whole: bool = False):
    """Return domains, costs of choices, their index and costs of edges of a random model."""
    rng = random.Random(seed)
    draw = (lambda: float(rng.randint(0, 2))) if whole else rng.random
    pairs = [p for p in itertools.permutations(range(n), 2) if rng.random() < 0.35]
    index = index_of([rng.randint(1, 5) for _ in range(n)], pairs)
    domains = [
        tuple(sorted(rng.sample(domain, rng.randint(1, min(4, len(domain))))))
        for domain in index.domains()
    ]
    nodes = np.array([draw() for _ in index.kernel])
    return domains, nodes, index, np.array([draw() for _ in index.edge])


def cost_of(choice, nodes, index, edges) -> float:
    codes = np.array(choice)
    return float(nodes[codes].sum() + edges[index.entries(codes)].sum())


def every_cost(domains, nodes, index, edges) -> list[tuple[float, tuple[int, ...]]]:
    choices = itertools.product(*domains)
    return sorted((cost_of(choice, nodes, index, edges), choice) for choice in choices)


def test_kernels_without_edges_have_no_least_on_them():
    index = index_of([3])
    assert index.least_edges(np.zeros(0), np.ones(3, dtype=np.bool_)).shape == (0,)


class TestElimination:
    @pytest.mark.parametrize("n", [1, 2, 5, 6])
    def test_its_bound_is_the_least_cost(self, n):
        for seed in SEEDS:
            model = random_model(seed, n)
            assert eliminate(*model).bound == pytest.approx(every_cost(*model)[0][0]), seed

    def test_models_at_once_have_the_least_of_each(self, monkeypatch):
        rng = np.random.default_rng(2)
        apart = {(0, 2): rng.random((3, 2))}
        costs = {(i,): rng.random((5, n)) for i, n in enumerate((3, 4, 2))}
        costs |= {(0, 1): rng.random((5, 3, 4)), **apart}
        domains = [range(3), range(4), range(2)]
        each = [
            eliminate_tables(domains, {k: t if k in apart else t[m] for k, t in costs.items()})
            for m in range(5)
        ]
        for most in (sharding.MOST_ENTRIES, 30):  # all models together, and two at a time
            monkeypatch.setattr(sharding, "MOST_ENTRIES", most)
            found = least_of_tables(domains, costs, 5)
            np.testing.assert_allclose(found, [one.bound for one in each], rtol=1e-15)

    def test_it_is_exact_where_no_table_is_split(self):
        assert all(eliminate(*random_model(seed)).exact for seed in SEEDS)

    @pytest.mark.parametrize("whole", [False, True], ids=["no ties", "ties"])
    def test_its_best_choices_have_the_least_cost(self, whole):
        for seed in SEEDS:
            domains, nodes, index, edges = random_model(seed, whole=whole)
            found = eliminate(domains, nodes, index, edges)
            codes = found.best().tolist()
            assert cost_of(codes, nodes, index, edges) == pytest.approx(found.bound), seed


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
        domains, first, index, edges = random_model(seed, 4, whole=True)
        second = rng.integers(0, 3, size=first.shape).astype(float)
        weights = rng.random(4)

        def objective(choice) -> float:
            a, b = first[list(choice)].sum(), second[list(choice)].max()
            moved = cost_of(choice, np.zeros_like(first), index, edges)
            return float(max(weights[0] * a, weights[1] * moved) + weights[2] * b)

        kept = dominated(domains, [first, second], index, edges[:, None])
        least = min(map(objective, itertools.product(*domains)))
        assert min(map(objective, itertools.product(*kept))) == pytest.approx(least)

    def test_every_kernel_keeps_a_choice(self):
        for seed in SEEDS:
            domains, nodes, index, edges = random_model(seed, 5, whole=True)
            assert all(dominated(domains, [nodes], index, edges[:, None])), seed

    def test_choices_that_cost_the_same_leave_one(self):
        same = [np.ones(5)]
        assert len(dominated([(0, 1, 3)], same, index_of([5]), np.zeros((0, 1)))[0]) == 1

    def test_choices_that_each_win_somewhere_stay(self):
        terms = [np.array([1.0, 2, 9, 9, 9]), np.array([2.0, 1, 9, 9, 9])]
        assert dominated([(0, 1)], terms, index_of([5]), np.zeros((0, 1))) == [[0, 1]]


class TestGiven:
    def test_a_given_axis_is_the_only_one(self, random_task):
        workload, _ = random_task(1)
        arrays = workload.graph
        index = choice_index(arrays)
        last = len(arrays.names) - 1
        given = given_choices(arrays, ((arrays.names[last], index.axes(last)[-1]),), index)
        assert with_given(index, given)[last] == (int(index.start[-1]) - 1,)

    def test_an_unknown_kernel_is_named(self, random_task):
        arrays = random_task(1)[0].graph
        with pytest.raises(InputError, match='no kernel is called "k9"'):
            given_choices(arrays, (("k9", Axis.M),), choice_index(arrays))

    def test_an_axis_that_cannot_be_split_is_refused(self, random_task):
        arrays = random_task(1)[0].graph
        index = choice_index(arrays)
        axis = next(axis for axis in Axis if axis not in index.axes(0))
        with pytest.raises(InputError, match=f"constraints.sharding.{arrays.names[0]}: got {axis}"):
            given_choices(arrays, ((arrays.names[0], axis),), index)


class TestNames:
    """Kernels over named axes are split along those."""

    @pytest.fixture
    def arrays(self):
        return lowered(graphs.training(library.model("llama3-8b"), sequence=16), "layers")

    def test_what_is_split_is_an_axis_of_what_is_made_or_read(self, arrays):
        def name(kernel, axis):
            return axis_names(arrays, arrays.index[kernel])[axis]

        assert name("queries", Axis.OUTER) == "heads"
        assert name("keys", Axis.OUTER) == "kv_heads"
        assert name("up", Axis.M) == name("down", Axis.K) == "feed_forward"
        assert name("attention_norm", Axis.N) == "sequence"
        assert name("up", Axis.NONE) == "none"

    def test_a_norm_is_split_along_tokens_and_not_along_its_rows(self, arrays):
        axes = choice_index(arrays, named=True).axes(arrays.index["attention_norm"])
        assert axes == (Axis.N, Axis.NONE)
        assert Axis.M in choice_index(arrays).axes(arrays.index["attention_norm"])

    def test_an_axis_is_given_by_its_name_or_its_place(self, arrays):
        index = choice_index(arrays, named=True)
        for kernel, name, place in (("down", "feed_forward", "k"), ("out", "sequence", "n")):
            by_name = given_choices(arrays, ((kernel, name),), index)
            assert by_name == given_choices(arrays, ((kernel, place),), index)
        with pytest.raises(InputError, match="got heads; allowed for this kernel: hidden, feed_fo"):
            given_choices(arrays, (("down", "heads"),), index)


class TestIndex:
    def test_entries_are_the_table_of_every_edge(self, random_task):
        for seed in range(20):
            workload, _ = random_task(seed, 5)
            index = choice_index(workload.graph)
            domains = index.domains()
            for e, (source, target) in enumerate(zip(index.source, index.target, strict=True)):
                table = index.table(e, domains[source], domains[target])
                assert index.before[table].tolist() == [
                    [a] * len(domains[target]) for a in domains[source]
                ]
                assert index.after[table].tolist() == [list(domains[target])] * len(domains[source])
                assert (index.edge[table] == e).all()

    def test_a_sharding_has_codes_and_they_have_it(self, random_task):
        for seed in range(20):
            workload, _ = random_task(seed, 5)
            index = choice_index(workload.graph)
            codes = index.start[1:] - 1
            assert index.codes(index.sharding(codes)).tolist() == codes.tolist()
