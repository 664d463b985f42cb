"""Series-parallel graphs: what their bound says, against every sequence of partitions there is.

A partition is priced by the sentences that open `crosstack.model.partition` (`brute_step`).
"""

from __future__ import annotations

import math
from dataclasses import replace

import graphs
import pytest
from builders.long_graphs import long_problem, moving_alone
from builders.random_mappings import least_of_all, prices
from builders.seeds import few_and_many
from builders.series_parallel import flow_of, load_of, random_series

from crosstack import optimise
from crosstack.mapping import fusion, labels, series_parallel
from crosstack.mapping.budget import UNLIMITED, Budget
from crosstack.mapping.fusion import fuse, make_problem, sequence_cost
from crosstack.mapping.series_parallel import least_moved_in_series
from crosstack.model.partition import STREAM_DEPTH

# How labels are kept: as they are; compared in steps, a few at a time; and so few, in so few steps,
# that many of a small graph are rounded.
HOW = {
    "as they are": {},
    "in steps": {"FEW": 2, "COARSE": 3, "MOST_PAIRS": 8, "ROWS": 3},
    "rough": {"FEW": 2, "COARSE": 5, "MOST_LABELS": 6, "FINEST": 16, "READ_STEPS": 8},
    "rougher": {"MOST_COMPARED": 0, "MOST_LABELS": 5, "FINEST": 3, "READ_STEPS": 1},
    "few": {"MOST_LABELS": 4, "FINEST": 5, "MOST_PAIRS": 8},
}
EXACT = 1 + 1e-9


@pytest.fixture(params=few_and_many(120, 4000), ids=len)
def seeds(request) -> range:
    return request.param


@pytest.fixture(scope="module")
def template():
    return long_problem("series-parallel", 12.0, 8, 1).load


def kernels(seeds: range, seed: int) -> int:
    return 2 + seed % (6 if len(seeds) < 1000 else 8)


def fusible(template, seeds: range, seed: int):
    """A load whose tensors take two tiles where they enter or leave, as all that are fused."""
    load = random_series(template, seed, kernels(seeds, seed))
    return replace(load, stream_depth=STREAM_DEPTH)


@pytest.mark.parametrize("how", HOW)
def test_no_sequence_moves_less_than_the_bound(template, brute_step, seeds, monkeypatch, how):
    for name, value in HOW[how].items():
        monkeypatch.setattr(series_parallel if name == "MOST_LABELS" else labels, name, value)
    known = tight = 0
    for seed in seeds:
        load = moving_alone(random_series(template, seed, kernels(seeds, seed)))
        least = least_of_all(load.preds, prices(load, brute_step))
        if math.isinf(least):  # some kernel does not fit, in no piece of its weight
            continue
        found = least_moved_in_series(load, budget=UNLIMITED)
        assert found.partitions, seed
        assert found.moved <= least * EXACT, seed
        known += 1
        tight += found.moved >= least / EXACT**2
    assert known > 0.9 * len(seeds)
    assert tight > (0.75 if "MOST_LABELS" in HOW[how] else 0.92) * known


@pytest.mark.parametrize("long", [True, False])
def test_no_sequence_beats_the_bound_nor_the_answer_any(
    template, brute_step, seeds, monkeypatch, long
):
    monkeypatch.setattr(fusion, "LONG_GRAPH", 1 if long else 400)
    monkeypatch.setattr(fusion, "WIDE_GRAPH", 1)
    answered = best = proved = 0
    for seed in seeds:
        load = fusible(template, seeds, seed)
        least = least_of_all(load.preds, prices(load, brute_step))
        found = fuse(make_problem(load), budget=Budget(work=3000), most_ideals=1)
        if found is None or math.isinf(found.time):
            continue
        assert found.bound <= least * EXACT, seed
        assert least <= found.time * EXACT, seed
        assert sequence_cost(load, found.partitions) == pytest.approx(found.time, rel=1e-9)
        answered += 1
        best += found.time <= least * EXACT
        proved += found.proved
    assert answered > 0.85 * len(seeds)
    assert best > 0.8 * answered
    assert proved > 0.25 * answered


def test_what_is_proved_is_the_best_of_all(template, brute_step, seeds):
    for seed in seeds:
        load = fusible(template, seeds, seed)
        least = least_of_all(load.preds, prices(load, brute_step))
        found = fuse(make_problem(load))
        assert (found is None) == math.isinf(least), seed
        assert found is None or (found.proved and found.time == pytest.approx(least, rel=1e-9))


@pytest.mark.parametrize("ratio", [8.0, 10.0, 12.0, 16.0])
def test_a_search_of_a_generated_graph_proves_the_best_of_all(brute_step, ratio):
    for n in range(2, 9):
        load = long_problem("series-parallel", ratio, n, n).load
        least = least_of_all(load.preds, prices(load, brute_step))
        workload, system, given = graphs.one_chip(graphs.series_parallel(n, n), ratio)
        if math.isinf(least):
            continue
        answer = optimise(workload, system, constraints=given).certificate
        assert answer.objective == pytest.approx(least, rel=1e-9)
        assert answer.bound == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize(
    ("capacity", "moves"),
    [(7, 5), (13, 3), (18, 3), (19, 2), (30, 2), (31, 0)],  # 1, 2, 2, 3, 4 and 5 fit
)
def test_a_tensor_enters_as_many_partitions_as_the_sram_of_its_readers_fills(
    template, brute_step, capacity, moves
):
    tensor = flow_of(0, dict.fromkeys(range(1, 6), 1), tile=1.0, total=8.0)
    load = load_of(
        template, [0, 6, 6, 6, 6, 6], [tensor], stream_depth=1, sram_capacity=float(capacity)
    )
    load = moving_alone(load)  # its producer is in one of the partitions, which it leaves
    assert least_of_all(load.preds, prices(load, brute_step)) == 8.0 * moves
    bound = least_moved_in_series(load, budget=UNLIMITED).moved
    assert bound == pytest.approx(8.0 * moves, rel=1e-6)


def test_the_buffer_that_readers_share_is_counted_once_where_rounding_has_lost_it(
    template, brute_step, monkeypatch
):
    monkeypatch.setattr(series_parallel, "MOST_LABELS", 4)
    monkeypatch.setattr(labels, "FINEST", 3)
    rounded = labels._rounded

    def watched(some, *how):
        assert min(some.first.min(), some.last.min(), some.read.min()) >= 0
        return rounded(some, *how)

    monkeypatch.setattr(labels, "_rounded", watched)
    for seed in range(200):
        load = moving_alone(random_series(template, seed, 8))
        least_moved_in_series(load, budget=UNLIMITED)


def test_a_tensor_of_a_thousand_readers_is_bounded(template):
    tensor = flow_of(0, dict.fromkeys(range(1, 1001), 1), tile=1.0, total=8.0)
    held = [0.0] + [1.0 + i % 5 for i in range(1000)]
    load = moving_alone(load_of(template, held, [tensor], stream_depth=1, sram_capacity=11.0))
    bound = least_moved_in_series(load, budget=UNLIMITED).moved
    assert 8.0 * 250 < bound <= 8.0 * (1 + sum(held) / 10)


@pytest.mark.parametrize("fixed", [5.0, 6.0])
def test_a_kernel_whose_weight_is_cut_is_alone_and_reads_what_enters_for_every_piece(
    template, brute_step, fixed
):
    chain = [flow_of(i, {i + 1: 1}, tile=1.0, total=4.0) for i in range(3)]
    load = load_of(template, [0, 9, 0, 0], chain, stream_depth=1, sram_capacity=fixed)
    load = moving_alone(load)
    least = least_of_all(load.preds, prices(load, brute_step))
    assert least_moved_in_series(load, budget=UNLIMITED).moved == pytest.approx(least, rel=1e-6)
    assert least == 16.0 + 4.0 * (math.ceil(10 / (fixed - 1)) - 1)
