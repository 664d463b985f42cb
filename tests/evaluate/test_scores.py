"""Claims about scores: what is said of measured kernels, and how far off it is."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.evaluate.kernel_scores import score_kernels
from crosstack.evaluate.product_tiles import ProductProgram
from crosstack.evaluate.scores import (
    CALLS,
    GRAPH_LAUNCH,
    STEADY,
    MeasuredProduct,
    Score,
    Timed,
    Turns,
    beyond_shortest,
    products_said,
    roofline_said,
)
from crosstack.io import library
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.dtype import Dtype

H100 = library.chip("h100-sxm")


def product(size: int = 4096, **changes) -> MeasuredProduct:
    sides = {"m": size, "k": size, "n": size, "dtype": Dtype.BF16, "time": 1e-3}
    return MeasuredProduct(**(sides | changes))


def test_twice_and_half_are_as_far():
    found = Score.of(np.array([2.0, 1.0, 1.0]), np.array([1.0, 2.0, 1.0]))
    assert found.mean == pytest.approx(2 / 3 * math.log(2))
    assert found.median == pytest.approx(math.log(2))
    assert found.bias == pytest.approx(0.0)
    assert found.rows == 3


def test_there_is_no_score_of_nothing():
    with pytest.raises(InputError, match="rows"):
        Score.of(np.zeros(0), np.zeros(0))


def test_a_loop_of_calls_is_what_products_take():
    (said,) = products_said([product()], H100)
    assert said == product_time(Roofline(), H100, 4096, 4096, 4096).time


def test_in_a_graph_a_launch_is_short_and_short_products_run_at_the_highest_clock():
    rows = [product(size, timed=Timed.GRAPH) for size in (64, 4096, 16384)]
    said = products_said(rows, H100)
    chip = replace(H100, launch_overhead=GRAPH_LAUNCH)
    for row, time in zip(rows, said, strict=True):
        short = product_time(Roofline(sustained=False), chip, row.m, row.k, row.n).time
        clock = Roofline(sustained=bool(CALLS * short > STEADY))
        assert time == product_time(clock, chip, row.m, row.k, row.n).time
    assert said[2] > 1.1 * product_time(Roofline(sustained=False), chip, 16384, 16384, 16384).time


def test_a_cast_reads_what_it_makes_numbers_of_and_takes_the_largest_first():
    chip = replace(H100, launch_overhead=0.0)
    once, twice = (
        [product(dtype=dtype, cast=cast) for cast in (False, True)]
        for dtype in (Dtype.FP8_BLOCKS, Dtype.FP8)
    )
    blocks, whole = (np.diff(products_said(rows, chip))[0] for rows in (once, twice))
    memory, numbers = chip.main_memory, 4096 * 4096
    assert blocks == pytest.approx(memory.latency + numbers * (2 + 1 + 4 / 128) / memory.speed)
    fed = 1024 * 256 * 2 / memory.latency  # a number of each thread on its way
    assert fed < memory.speed
    made = memory.latency + numbers * (2 + 1) / memory.speed
    assert whole == pytest.approx(made + memory.latency + numbers * 2 / fed)


def test_one_tile_for_all_takes_its_steps_of_k_whatever_the_sides():
    chip = replace(library.chip("b200"), launch_overhead=0.0)
    rows = [
        product(m=m, k=k, n=n, dtype=Dtype.NVFP4, timed=Timed.GRAPH, program=ProductProgram.FP4)
        for m, k, n in ((4, 65536, 2048), (64, 65536, 8192), (4, 32768, 2048))
    ]
    few, more, half = products_said(rows, chip)
    # In and out of the memory of a multiprocessor, operands of four bits with their scales.
    near = (4 + 256 + 128 + 256) * 65536 * Dtype.NVFP4.size / (128 * 1.965e9)
    assert few == pytest.approx(near, rel=0.08)
    assert more == pytest.approx(few, rel=0.15)
    assert half == pytest.approx(few / 2, rel=0.05)
    (searched,) = products_said([replace(rows[0], program=ProductProgram.LIBRARY)], chip)
    assert searched < few / 4  # K is split, and pairs share operands


def test_the_roofline_has_one_efficiency():
    compute, memory = roofline_said([product(8192), product(16384, n=1)], H100)
    assert compute == pytest.approx(2e-6 + 2 * 8192**3 / 0.8 / H100.rate(Dtype.BF16))
    moved = 2 * (16384**2 + 2 * 16384)
    assert memory == pytest.approx(2e-6 + moved / 0.8 / H100.main_memory.bandwidth)


def test_rows_are_scored_by_how_long_they_took():
    rows = [product(time=time) for time in (5e-6, 2e-5, 3e-5, 2e-3)]
    found = score_kernels(rows, H100)
    assert [part and part.rows for part in found.by_duration] == [1, 2, None, 1]
    assert found.ours.rows == found.roofline.rows == 4


A100 = library.chip("a100-sxm-80gb")
CACHE = 40 * 2**20  # B


@pytest.mark.parametrize(
    ("turns", "weights", "stays"),
    [
        (Turns(most=5), CACHE / 5.1, True),
        (Turns(most=5), CACHE / 4.9, False),
        (Turns(most=6), CACHE / 5.1, False),
        (Turns(most=5, filling=True), 0.9 * CACHE, False),  # two of them
        (Turns(most=5, filling=True), CACHE / 5.1, True),
        (Turns(most=5, filling=True), CACHE, False),  # one, and what it reads and writes besides
    ],
)
def test_what_calls_take_in_turn_stays_where_all_of_it_fits(turns, weights, stays):
    assert turns.stays(A100, np.array([weights]), np.array([1e3])).tolist() == [stays]


def test_nothing_stays_on_a_chip_without_a_cache():
    bare = replace(A100, levels=A100.levels[:2])
    assert not Turns(most=5).stays(bare, np.array([1.0]), np.array([1.0])).any()


def test_products_that_stay_in_the_cache_do_not_wait_for_main_memory():
    sides = {"m": 16, "k": 1024, "n": 2048, "timed": Timed.GRAPH}
    rows = [product(**sides), product(**sides, turns=Turns(most=6)), product(**sides)]
    chip = A100.with_compute(starting=None)
    alone, together = products_said(rows, chip)[:2]
    once = (16 * 1024 + 1024 * 2048 + 16 * 2048) * 2
    assert alone > GRAPH_LAUNCH + once / A100.main_memory.speed + A100.main_memory.ramp
    assert together < GRAPH_LAUNCH + once / A100.main_memory.speed + A100.main_memory.ramp
    assert together > GRAPH_LAUNCH + once / A100.shared_level.speed


def test_large_products_come_from_main_memory_however_many_there_are():
    rows = [product(timed=Timed.GRAPH), product(timed=Timed.GRAPH, turns=Turns(most=6))]
    first, second = products_said(rows, A100)
    assert first == second


def test_of_many_the_middle_of_three_tells_what_all_take():
    said, more = np.arange(1.0, 11.0), np.array([0.5, 9.0, 0.25, *[1.0] * 7])
    measured, told, plain = beyond_shortest(said + more, said, said, 3)
    assert measured.tolist() == (said + more)[3:].tolist()
    assert told.tolist() == plain.tolist() == (said + 0.5)[3:].tolist()
