"""A task searched again among the strategies that another machine's search left open."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import crosstack
from crosstack.evaluate.again import Likeness, Limits, search_again
from crosstack.explore.resources import resources_of
from crosstack.io.library.machines import system_on
from crosstack.mapping import bounded_strategies
from crosstack.model.rules import rules_named
from crosstack.workload.architectures import Transformer, graphs
from crosstack.workload.graph_workload import workload_of

RULES = rules_named("crosstack")


@pytest.fixture(scope="module")
def task():
    """Return the training of a small model whose kernels run one by one, on 8 chips."""
    model = Transformer(
        hidden=512, layers=4, heads=8, kv_heads=8, head_size=64, feed_forward=2048,
        vocabulary=1024, context=256,
    )  # fmt: skip
    graph = graphs.training(model, sequence=256, batch=16)
    return crosstack.Task(
        workload=workload_of(graph, block="layers", items="batch"),
        system=system_on("h100-dgx", chips=8),
        constraints=crosstack.Constraints(kernel_by_kernel=True, n_tiles=1),
    )


@pytest.fixture(scope="module")
def base(task):
    return search_again(task, RULES, Limits())


def changed(task, resource, factor):
    system = resource.scaled(task.system, resource.value * factor)
    return replace(task, system=system)


def named(task, name):
    return next(one for one in resources_of(task.system) if one.name == name)


def test_what_is_known_of_strategies_is_below_their_best(task, base):
    assert base.known.least <= base.plan.evaluation.time * (1 + 1e-9)
    assert (base.known.floors <= base.known.bounds * (1 + 1e-9)).all()
    assert len(base.known.of_uses()) == len(base.known.uses)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "factor"),
    [("clock", 1.2), ("memory bandwidth", 0.8), ("bandwidth of dimension 0", 1.2)],
)
def test_among_open_strategies_as_good_is_found_as_among_all(task, base, name, factor):
    other = changed(task, named(task, name), factor)
    like = [Likeness(searched=base, share=min(1.0, 1 / factor))]
    found = search_again(other, RULES, Limits(), starts=(base.plan.mapping,), like=like)
    best = search_again(other, RULES, Limits()).plan.evaluation.time
    assert found.plan.evaluation.time == pytest.approx(best, rel=1e-9)
    assert found.bound == pytest.approx(best, rel=1e-9)


@pytest.mark.slow
def test_what_machines_teach_each_other_stays_right(task, base):
    """Along a chain of machines, each searched with what is known of all before."""
    draw, names = random.Random(1), ["clock", "memory bandwidth", "latency of dimension 0"]
    before = [(base, {})]
    for _ in range(4):
        factors = {name: draw.uniform(0.8, 1.25) for name in names}
        other = task
        for name, factor in factors.items():
            other = changed(other, named(other, name), factor)
        like = [
            Likeness(searched=one, share=min(ratios(factors, its).values())) for one, its in before
        ]
        found = search_again(other, RULES, Limits(), starts=(base.plan.mapping,), like=like)
        best = search_again(other, RULES, Limits()).plan.evaluation.time
        assert found.plan.evaluation.time == pytest.approx(best, rel=1e-9)
        before.append((found, factors))


def ratios(here, there):
    """Return how many times each cost of one machine is that of another, at most 1."""
    found = {"all else": 1.0}
    for name, factor in here.items():
        ratio = factor / there.get(name, 1.0)
        found[name] = ratio if "latency" in name else 1 / ratio
    return found


def test_floors_do_not_depend_on_memories_of_the_chip(task, base):
    other = task
    for name in ("L1", "L2", "registers"):
        other = changed(other, named(other, name), 1.5)
    more = search_again(other, RULES, Limits()).known
    floors, same = base.known.floors, base.known.strategies
    assert len(more.strategies) == len(same)
    assert np.array_equal(more.strategies.microbatch_size, same.microbatch_size)
    assert more.floors == pytest.approx(floors, rel=1e-12)


def test_more_memory_on_the_chip_is_searched_among_what_floors_leave_open(task, base):
    other = changed(task, named(task, "L1"), 1.5)
    like = [Likeness(searched=base, share=0.0, floors=1.0)]
    found = search_again(other, RULES, Limits(), starts=(base.plan.mapping,), like=like)
    best = search_again(other, RULES, Limits()).plan.evaluation.time
    assert found.plan.evaluation.time == pytest.approx(best, rel=1e-9)


def test_shares_that_are_of_use_on_one_machine_alone_are_looked_at_anew(task, monkeypatch):
    """Strategies that another machine left out, as others were as good there, are not missed."""
    whole = bounded_strategies.with_shares

    def few(plan, rules, given):
        return whole(plan, rules, given)[-1:]

    with monkeypatch.context() as patched:
        patched.setattr(bounded_strategies, "with_shares", few)
        base = search_again(task, RULES, Limits())
    like = [Likeness(searched=base, share=1e-3)]
    other = changed(task, named(task, "clock"), 1.001)  # of the same machine, plans are known
    found = search_again(other, RULES, Limits(), starts=(base.plan.mapping,), like=like)
    best = search_again(other, RULES, Limits()).plan.evaluation.time
    assert best < base.plan.evaluation.time
    assert found.plan.evaluation.time == pytest.approx(best, rel=1e-9)
    assert found.known.same_as(base.known)
