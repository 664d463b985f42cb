"""Cuts of one order: the least of all cuts, by what each partition costs on its own."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest
from builders.long_graphs import long_problem
from builders.seeds import few_and_many
from builders.series_parallel import random_series

from crosstack.machine.chip import Overlap
from crosstack.mapping import segments
from crosstack.mapping.segments import segment
from crosstack.model.alive import live_sizes
from crosstack.model.partition import partition_cost


@pytest.fixture(params=few_and_many(6, 300), ids=len)
def seeds(request) -> range:
    return request.param


@pytest.fixture(scope="module")
def template():
    return long_problem("series-parallel", 12.0, 8, 1).load


def least_cut(load, sequence) -> float:
    """The least cost of all cuts of an order, as all are priced. [s]"""
    masks = list(itertools.accumulate((1 << i for i in sequence), initial=0))
    best = [0.0]
    for end in range(1, len(masks)):
        costs = [(best[k], partition_cost(load, masks[end] & ~masks[k])) for k in range(end)]
        best.append(min((b + c.cost for b, c in costs if c.fits), default=math.inf))
    return best[-1]


def assert_least(load, sequence) -> None:
    found, exact = segment(load, sequence)
    least = least_cut(load, sequence)
    assert exact
    assert (found is None) == math.isinf(least)
    if found is not None:
        assert found[0] == pytest.approx(least, rel=1e-9)
        costs = [partition_cost(load, mask) for mask in found[1]]
        assert all(cost.fits for cost in costs)
        assert sum(cost.cost for cost in costs) == pytest.approx(found[0], rel=1e-9)
        assert sum(found[1]) == sum(1 << i for i in sequence)


def test_it_is_the_least_of_all_cuts(random_load, seeds):
    for seed in seeds:
        how = {"overlap": list(Overlap)[seed % 3], "memory_price": seed % 2 * 0.5}
        load = random_load(seed, 3 + seed % 6, tight=seed % 5 / 4, star=seed % 7 == 0, **how)
        assert_least(load, list(load.order))


def test_of_some_kernels_alone_too(random_load, seeds):
    for seed in seeds:
        load = random_load(seed, 9, tight=seed % 5 / 4)
        assert_least(load, [i for i in load.order if (seed * 37 >> i) & 1] or [0])


@pytest.mark.parametrize("rows", [2, 128])
def test_buffers_of_any_depth_and_weights_that_are_cut(template, seeds, monkeypatch, rows):
    monkeypatch.setattr(segments, "ROWS", rows)
    monkeypatch.setattr(segments, "WIDTH", rows)
    for seed in seeds:
        load = random_series(template, seed, 2 + seed % 8)
        for depth in (1, 2):
            assert_least(replace(load, stream_depth=depth), list(load.order))


def test_main_memory_that_binds(random_load, seeds):
    for seed in seeds:
        load = random_load(seed, 7, tight=0.5)
        held = sum(flow.held for flow in load.flows)
        bound = replace(load, memory_limit=0.9 * held)
        free, cut = segment(load, list(load.order))[0], segment(bound, list(load.order))[0]
        if cut is not None and held:
            assert free is not None
            assert cut[0] >= free[0] * (1 - 1e-9)
            assert max(live_sizes(load, cut[1])) <= bound.memory_limit * (1 + 1e-9)
