"""Claims about covers of kernels by partitions, on chips that run kernels one after the other."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from builders.seeds import few_and_many

from crosstack.mapping import fusion
from crosstack.mapping.covering import in_sequence, least_cover
from crosstack.mapping.fusion import fuse, make_problem, sequence_cost
from crosstack.mapping.ideals import make_order
from crosstack.model.alive import least_live, live_sizes
from crosstack.workload.kernel_graph import bits


def best_by_ideals(problem, monkeypatch):
    """The time of the best sequence, by a shortest path over order ideals. [s]"""
    with monkeypatch.context() as patched:
        patched.setattr(fusion, "least_cover", lambda load, order: None)
        found = fuse(problem)
    return math.inf if found is None else found.time


def follows(partitions, order):
    """Whether every kernel runs once, and behind those that it reads."""
    done = 0
    for inside in partitions:
        if done & inside or any(order.preds[i] & ~(done | inside) for i in bits(inside)):
            return False
        done |= inside
    return done == (1 << order.n) - 1


@pytest.mark.parametrize("how", [{}, {"memory": 0.6}, {"twins": True}], ids=str)
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("seeds", few_and_many(15, 300), ids=len)
def test_the_least_cover_is_the_best_sequence_over_ideals(
    random_load, seeds, apart, how, monkeypatch
):
    met = several = 0
    for seed in seeds:
        load = random_load(seed, 5 + seed % 6, temporal=True, **how)
        problem = make_problem(load, separate_directions=apart)
        best, cover = best_by_ideals(problem, monkeypatch), least_cover(problem.load, problem.order)
        assert cover is not None
        assert cover.bound <= best * (1 + 1e-12), seed
        if not cover.partitions:
            assert fuse(problem) is None or fuse(problem).time == pytest.approx(best, rel=1e-12)
            continue
        met += 1
        several += any(inside & (inside - 1) for inside in cover.partitions)
        assert cover.bound == pytest.approx(best, rel=1e-12), seed
        assert follows(cover.partitions, problem.order), seed
        assert sequence_cost(problem.load, cover.partitions) == pytest.approx(cover.bound)
        assert max(live_sizes(load, cover.partitions)) <= load.memory_limit * (1 + 1e-9)
        alone = [1 << i for i in load.order]
        for partitions in (cover.partitions, alone):
            assert least_live(load) <= max(live_sizes(load, partitions))
    assert met > len(seeds) / 4
    assert several


def test_where_memory_is_short_the_bound_of_a_cover_is_below_what_fits(random_load, monkeypatch):
    for seed in range(30):
        load = random_load(seed, 7, temporal=True)
        problem = make_problem(load)
        cover = least_cover(problem.load, problem.order)
        short = replace(problem.load, memory_limit=max(live_sizes(load, cover.partitions)) * 0.9)
        held = least_cover(short, problem.order)
        assert held.bound == cover.bound
        assert held.partitions == () or short.memory_limit == 0
        best = best_by_ideals(replace(problem, load=short), monkeypatch)
        assert cover.bound <= best * (1 + 1e-12)


def test_partitions_that_wait_for_one_another_have_no_order():
    order = make_order((0, 0, 0b01, 0b10))  # 2 reads 0, 3 reads 1
    found, circle = in_sequence((0b1001, 0b0110), order)  # each needs a part of the other
    assert (found, sorted(circle)) == ((), [0b0110, 0b1001])
    assert in_sequence((0b0101, 0b1010), order) == ((0b0101, 0b1010), ())
    assert in_sequence((0b1000, 0b0100, 0b0011), order) == ((0b0011, 0b0100, 0b1000), ())


def test_chips_that_run_kernels_side_by_side_have_no_cover(random_load):
    problem = make_problem(random_load(1, 5))
    assert least_cover(problem.load, problem.order) is None
