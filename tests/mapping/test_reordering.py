"""Partitions cut anew along other orders: they run, fit, and cost no more."""

from __future__ import annotations

from dataclasses import replace

import graphs
import pytest
from builders.long_graphs import assert_it_runs, long_problem, moving_alone
from builders.series_parallel import flow_of, load_of

from crosstack.machine.chip import Overlap
from crosstack.mapping.budget import UNLIMITED, Budget
from crosstack.mapping.fusion import fuse, make_problem, sequence_cost
from crosstack.mapping.large_graphs import improve
from crosstack.mapping.reordering import reordered


@pytest.mark.parametrize("kind", graphs.KINDS)
@pytest.mark.parametrize("ratio", [16.0, 64.0])
def test_partitions_of_a_long_graph_run_and_cost_less(kind, ratio):
    problem = long_problem(kind, ratio)
    load = problem.load
    start = tuple(1 << i for i in load.order)
    found = reordered(load, problem.order, start, budget=Budget(work=1e5))
    assert_it_runs(problem, found)
    assert sequence_cost(load, found) < 0.8 * sequence_cost(load, start)


def test_it_is_never_worse_and_never_below_the_best(random_load, monkeypatch):
    monkeypatch.setattr("crosstack.mapping.reordering.PATIENCE", 20)
    best_found = 0
    for seed in range(24):
        how = {"overlap": list(Overlap)[seed % 3], "network_price": seed % 2 * 0.5}
        load = random_load(seed, 7, tight=0.4, **how)
        problem = make_problem(replace(load, resident_alone=False, unmixed=()))
        start = tuple(1 << i for i in load.order)
        found = reordered(problem.load, problem.order, start, budget=UNLIMITED, seed=seed)
        assert_it_runs(problem, found)
        best = fuse(problem)
        assert best is not None
        taken = sequence_cost(problem.load, found)
        assert best.time * (1 - 1e-9) <= taken <= sequence_cost(problem.load, start) * (1 + 1e-9)
        best_found += taken <= best.time * (1 + 1e-9)
    assert best_found >= 12


def test_a_boundary_moves_past_tensors_that_are_larger():
    """Four of five kernels fit; single ones do not move, as what lies between is larger."""
    template = long_problem("series-parallel", 12.0, 4, 1).load
    sizes = (2.0, 5.0, 5.0, 1.0)
    tensors = [flow_of(i, {i + 1: 1}, 0.01, size) for i, size in enumerate(sizes)]
    load = moving_alone(load_of(template, [1.0] * 5, tensors, sram_capacity=4.5))
    problem, start = make_problem(load), (0b00001, 0b11110)
    assert improve(load, problem.order, start, range(5), budget=UNLIMITED)[1] == start
    found = reordered(load, problem.order, start, budget=UNLIMITED)
    assert found == (0b01111, 0b10000)
    assert sequence_cost(load, found) == pytest.approx(sequence_cost(load, start) / 2)


def test_a_spent_budget_leaves_what_was_given():
    problem = long_problem("layered", 16.0)
    start = tuple(1 << i for i in problem.load.order)
    spent = Budget(work=0.0)
    spent.spend(1)
    assert reordered(problem.load, problem.order, start, budget=spent) == start
