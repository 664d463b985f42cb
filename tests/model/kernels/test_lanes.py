"""What lanes beside the arrays take: by hand, on chips of the library."""

from __future__ import annotations

import numpy as np
import pytest

from crosstack.io import library
from crosstack.io.library import model
from crosstack.model.attention import attentions
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.lanes import (
    Instructions,
    Passes,
    array_rate,
    element_time,
    function_time,
    lane_rates,
)
from crosstack.model.kernels.roofline import Roofline
from crosstack.published.dfmodel.parts import DFModelClock
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.job import Job

A100 = library.chip("a100-sxm-80gb")
LANES = 19.5e12 / 2  # of single precision, a multiply-add being two operations


def test_a_lane_does_an_instruction_a_cycle_and_what_is_special_comes_on_top():
    special = 16 * 108 * 1.41e9
    found = element_time(A100, Instructions(5, 2))
    assert found == pytest.approx(5 / LANES + 2 / special, rel=1e-2)


def test_twice_the_special_units_halve_what_is_special_alone():
    b200, gb300 = (
        element_time(library.chip(name), Instructions(0, 1)) for name in ("gb200", "gb300")
    )
    assert gb300 == pytest.approx(b200 / 2, rel=1e-2)


def test_a_softmax_of_its_own_is_bound_by_its_instructions_and_a_sum_by_memory():
    n, memory = 1e9, A100.main_memory
    moved = 4 * n / memory.speed + memory.delay
    assert function_time(A100, Function.ADD, n, 4 * n) == pytest.approx(moved)
    by_hand = n * (31 / LANES + 3 / (16 * 108 * 1.41e9))
    found = function_time(A100, Function.SOFTMAX, n, 4 * n)
    assert found == pytest.approx(by_hand, rel=2e-2)
    assert found > 1.5 * moved


def test_a_chip_without_lanes_of_its_own_is_bound_by_memory():
    chip, memory = A100.with_compute(relative_vector_rates=()), A100.main_memory
    found = function_time(chip, Function.SOFTMAX, 1e6, 4e6)
    assert found == pytest.approx(4e6 / memory.speed + memory.latency)


def test_what_a_cache_holds_was_just_made_and_what_it_does_not_streams():
    memory, room = A100.main_memory, A100.shared_level.room
    for traffic, waits in ((room, memory.latency), (1.01 * room, memory.ramp)):
        found = function_time(A100, Function.ADD, traffic / 100, traffic)
        assert found == pytest.approx(traffic / memory.speed + waits)


def test_what_is_read_again_comes_from_a_part_of_the_cache_if_all_that_moves_meanwhile_fits():
    memory, part = A100.main_memory, A100.shared_level.room / A100.shared_level.partitions
    n, moved = 1e9, 4e9

    def found(between):
        passes = Passes(again=2 * n, between=between)
        return function_time(A100, Function.ADD, n, moved, passes)

    assert found(part) == pytest.approx(moved / memory.speed + memory.delay)
    assert found(1.01 * part) == pytest.approx(1.5 * moved / memory.speed + memory.delay)


def test_a_row_that_fills_a_multiprocessor_waits_for_its_bytes():
    n, memory = 1e9, A100.main_memory
    computing = function_time(A100, Function.SOFTMAX, n, 4 * n)
    moving = 4 * n / memory.speed + memory.delay
    alone = function_time(A100, Function.SOFTMAX, n, 4 * n, Passes(alone=True))
    assert alone == pytest.approx(computing + moving)


@pytest.fixture(scope="module")
def graph():
    job = Job(model=model("llama3-8b"), batch=1, sequence=2048, kind="train")
    return job.workload.graph


def test_the_softmax_of_an_attention_that_is_one_kernel_is_told_elsewhere(graph):
    (i,) = [i for i, name in enumerate(graph.functions) if name == "softmax"]
    assert any(held >> i & 1 for _, held in attentions(graph))
    alone = lane_rates(library.chip("v100-sxm-16gb"), graph)[i]
    by_hand = 5 / element_time(library.chip("v100-sxm-16gb"), Instructions(31, 3))
    assert alone == pytest.approx(by_hand)
    assert lane_rates(A100, graph)[i] == np.inf


def test_numbers_are_drawn_forward_alone():
    job = Job(model=model("gpt-22b"), batch=1, sequence=2048, kind="train")
    graph, kinds = job.workload.graph, {}
    for name, back, rate in zip(
        graph.functions, graph.backward, lane_rates(A100, graph), strict=True
    ):
        kinds.setdefault((name, bool(back)), set()).add(float(rate))
    (forward,), (backward,) = kinds["dropout", False], kinds["dropout", True]
    assert backward / forward == pytest.approx((6 + 26) / 2)


def test_published_rules_have_the_rate_of_the_type_whatever_is_computed(graph):
    rates = DFModelClock().lane_rates(A100, graph)
    assert np.array_equal(rates, [A100.vector_throughput(d) for d in graph.dtypes])


def test_lanes_add_up_blocks_where_arrays_know_no_scales():
    h100, b200 = library.chip("h100-sxm"), library.chip("b200")
    lanes = h100.vector_throughput(Dtype.FP32) / 2
    by_hand = 1 / h100.throughput(Dtype.FP8) + 1 / (2 * 128 * lanes)
    assert array_rate(h100, Dtype.FP8_BLOCKS) == pytest.approx(1 / by_hand)
    assert array_rate(h100, Dtype.FP8) == h100.throughput(Dtype.FP8)
    assert array_rate(b200, Dtype.FP8_BLOCKS) == b200.throughput(Dtype.FP8)


@pytest.mark.parametrize(
    ("n", "k", "reached"),
    [(7168, 16384, 1358e12), (4096, 7168, 1304e12), (2112, 7168, 1058e12), (7168, 2048, 1025e12)],
)
def test_products_with_scales_of_blocks_are_near_those_of_deepgemm(n, k, reached):
    h100 = library.chip("h100-sxm")
    found = product_time(Roofline(), h100, 4096, k, n, dtype=Dtype.FP8_BLOCKS)
    rate = 2 * 4096 * n * k / (float(found.time) - found.launch_time)
    assert 0.95 * reached < rate < 1.3 * reached
