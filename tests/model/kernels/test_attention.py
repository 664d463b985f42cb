"""Attention as one kernel: by hand, tile by tile, and as steps have it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import crosstack
from crosstack.io import library
from crosstack.machine.framework import AttentionProgram
from crosstack.model.kernels import attention as attention_module
from crosstack.model.kernels.attention import (
    Attended,
    Attentions,
    Tile,
    around_time,
    attention_product,
    attention_time,
    busiest_pairs,
    head_by_head,
    multiplied,
    pair_time,
    products_in_attention,
    slowness,
    summing,
    waiting_time,
)
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.dtype import Dtype

A100, H100, B200 = (library.chip(name) for name in ("a100-sxm-80gb", "h100-sxm", "b200"))
FAST = Roofline(sustained=False)
MANY = A100.compute.n_multiprocessors


def arrays(*values):
    return tuple(np.array([float(value)]) for value in values)


def attention(heads, queries, keys, *, share=1.0, size=128.0, moved=0.0, backward=False):
    names = ("heads", "queries", "keys", "share", "size", "value_size", "moved")
    values = arrays(heads, queries, keys, share, size, size, moved)
    return Attentions(**dict(zip(names, values, strict=True)), backward=backward)


def tiles_by_hand(heads, queries, keys, *, causal):
    """Blocks of 128 keys of every tile of 128 queries, tile by tile."""
    blocks = []
    for tile in range(math.ceil(queries / 128)):
        last = min(keys - queries + (tile + 1) * 128, keys) if causal else keys
        blocks.append(math.ceil(last / 128))
    return blocks * heads


@pytest.mark.parametrize("heads", [1, 7, 108, 109, 300])
@pytest.mark.parametrize("length", [128, 1024, 4096])
def test_whole_tiles_go_round_over_multiprocessors(heads, length):
    blocks = tiles_by_hand(heads, length, length, causal=False)
    rounds = math.ceil(len(blocks) / MANY)
    pairs, found = busiest_pairs(A100, *arrays(heads, length, length, 1.0))
    assert found == rounds
    assert pairs == pytest.approx(rounds * blocks[0] * 128 * 128 * MANY)


@pytest.mark.parametrize(("heads", "length"), [(32, 2048), (256, 4096), (108, 8192)])
def test_causal_tiles_are_what_taking_the_longest_first_gives(heads, length):
    blocks = sorted(tiles_by_hand(heads, length, length, causal=True), reverse=True)
    work = np.zeros(MANY)
    for block in blocks:
        work[work.argmin()] += block
    share = (length + 1) / 2 / length
    pairs, _ = busiest_pairs(A100, *arrays(heads, length, length, share))
    assert pairs / (128 * 128 * MANY) == pytest.approx(work.max(), rel=0.08)


def test_warps_of_narrow_tiles_read_keys_for_longer_than_they_multiply():
    depth = np.array([128.0])
    near = A100.levels[1].speed
    wide, narrow = (multiplied(A100, Dtype.BF16, depth, rows=rows) for rows in (128, 64))
    assert wide == pytest.approx(2 * depth / A100.throughput(Dtype.BF16))
    assert narrow == pytest.approx((4 + 1) / 64 * depth * 2 / near)  # four warps read, one writes
    assert narrow == pytest.approx(1.25 * wide, rel=0.01)
    assert multiplied(H100, Dtype.BF16, depth, rows=64) < wide  # arrays read memory by themselves


def test_blocks_of_fewer_keys_have_fewer_pairs_past_the_last_key():
    given = arrays(MANY, 1, 16, 1.0)
    half, _ = busiest_pairs(A100, *given, Tile(rows=128, few=128, keys=64))
    whole, _ = busiest_pairs(A100, *given, Tile(rows=128, few=128))
    assert half == whole / 2


def test_whole_tiles_of_few_queries_go_round_and_split_ones_are_shared_out():
    given = arrays(MANY + 1, 1, 1024, 1.0)
    split, _ = busiest_pairs(A100, *given, Tile(rows=128))
    whole, rounds = busiest_pairs(A100, *given, Tile(rows=128, whole=True))
    assert rounds == 2
    assert whole / split == pytest.approx(2 * MANY / (MANY + 1))


def test_a_window_cuts_two_blocks_of_a_tile():
    length, window = 8192, 1024
    sees = np.minimum(np.arange(length) + 1, window)
    blocks = [
        math.floor((tile * 128 + 127) / 128) - math.floor(max(tile * 128 - window + 1, 0) / 128) + 1
        for tile in range(length // 128)
    ]
    share = sees.sum() / length / length
    pairs, _ = busiest_pairs(A100, *arrays(108, length, length, share))
    assert pairs / (128 * 128 * MANY) == pytest.approx(sum(blocks), rel=0.03)


def test_two_tiles_take_turns_forward_where_multiprocessors_are_paired():
    b200 = library.chip("b200")
    many = b200.compute.n_multiprocessors
    forward, back = (
        busiest_pairs(b200, *arrays(many, 128, 1024, 1.0), tile)[0]
        for tile in (Tile.of(b200), Tile.back(b200))
    )
    assert forward == 2 * back


@pytest.mark.parametrize(("value", "tiles"), [(64, 2), (128, 2), (192, 1), (256, 1)])
def test_two_tiles_take_turns_where_there_is_room_for_their_scores_and_results(value, tiles):
    columns = tiles * (128 + value)  # of 512, each of 128 lanes in single precision
    assert (columns <= 512) == (tiles == 1 or value <= 128)
    assert Tile.of(library.chip("b200"), value).rows == 128 * tiles
    assert Tile.of(H100, value).rows == 128


@pytest.mark.parametrize(
    ("size", "value", "block"), [(64, 64, 128), (128, 128, 128), (192, 128, 64)]
)
def test_blocks_of_queries_are_half_as_long_where_gradients_leave_less_room(size, value, block):
    columns = size + value + 2 * 128  # of gradients of keys and values, scores and differences
    assert (columns <= 512) == (block == 128)
    assert Tile.back(library.chip("b200"), size, value).keys == block
    assert Tile.back(H100, size, value).keys == 128
    depth = np.array([128.0])
    (near,) = [level for level in B200.levels if level.name == "L1"]
    reading = (1 / 128 + 1 / block) * 128 * 2 / near.speed
    found = multiplied(B200, Dtype.BF16, depth, keys=block, backward=True)
    assert found == pytest.approx(max(reading, 2 * 128 / B200.throughput(Dtype.BF16)))


def test_heads_that_are_taken_in_turn_end_later_the_fewer_they_are():
    assert head_by_head(2, 3, 2.0, 6.0, 2) == 2 + 6 + 6  # and 4 + 2 + 4; longest first 12 and 12
    assert head_by_head(1, 3, 2.0, 6.0, 2) == 2 + 6
    assert head_by_head(1, 3, 6.0, 2.0, 2) == 6
    over = [head_by_head(heads, 32, 1.0, 32.0, 108) / (heads * 528 / 108) for heads in (8, 32, 512)]
    assert over[0] > 1.3 > over[1] > 1.05 > over[2] >= 1
    many = [head_by_head(heads, 32, 1.0, 32.0, 108) for heads in (300, 400)]  # evenly before
    assert many[1] - many[0] == pytest.approx(100 * 528 / 108)


@pytest.mark.parametrize(("turn", "order"), [(1.0, 1), (-1.0, -1)])
def test_tiles_of_a_masked_grid_are_dealt_out_head_by_head(turn, order):
    shape = arrays(8, 4096, 4096, (4096 + 1) / 2 / 4096)
    pairs, _ = busiest_pairs(A100, *shape, Tile(rows=128, turn=turn))
    longest, _ = busiest_pairs(A100, *shape, Tile(rows=128))
    shortest = 2 * (4097 / 2 / 128 + 0.5) - 32
    span = head_by_head(8, 32, *(shortest, 32.0)[::order], MANY)
    assert pairs / (128 * 128 * MANY) == pytest.approx(span)
    assert pairs > 1.3 * longest
    whole = [
        busiest_pairs(A100, *arrays(8, 4096, 4096, 1.0), Tile(rows=128, turn=t))[0] for t in (0, 1)
    ]
    assert whole[0] == whole[1]


def test_a_tile_of_hopper_takes_a_block_more():
    shape = arrays(108, 1024, 1024, 1.0)
    plain, filled = (
        busiest_pairs(library.chip(name).with_compute(n_multiprocessors=108), *shape)[0]
        for name in ("a100-sxm-80gb", "h100-sxm")
    )
    assert filled / plain == pytest.approx((8 + 1) / 8)


def test_one_token_fills_a_tile_of_64_and_its_keys_are_split():
    pairs, rounds = busiest_pairs(A100, *arrays(1, 1, 108 * 128, 1.0))
    assert (pairs, rounds) == (64 * 108 * 128, 1)


def test_arrays_and_special_units_take_turns_and_lanes_hide_but_for_a_tile_alone_on_an_a100():
    pairs = 1e9
    for chip, alone, lanes in ((A100, True, 4.0), (A100, False, 0.0), (H100, True, 0.0)):
        compute = chip.compute
        special = 16 * compute.n_multiprocessors * compute.frequency * compute.boost
        by_hand = 1 / special + lanes / (chip.vector_throughput(Dtype.FP32) / 2)
        assert pairs * pair_time(chip, alone=alone) == pytest.approx(pairs * by_hand)


def test_flash_attention_2_reaches_73_percent_of_an_a100():
    # dao2023flashattention2, 4.1: up to 230 TFLOP/s, 73 % of what the data sheet has; work of less
    # than some tenths of a second runs at 1.275 GHz
    kernels = attention(16, 16384, 16384, size=128)
    found = attention_time(A100, Dtype.BF16, Roofline(sustained=False), kernels)
    assert 4 * 16 * 16384.0**2 * 128 / found == pytest.approx(230e12, rel=0.02)


@pytest.mark.parametrize(
    ("heads", "queries", "alone"),
    [(16 * MANY, 1, True), (16 * MANY, 128, False), (MANY, 128, True)],
)
def test_lanes_of_a_tile_alone_on_an_a100_wait_for_the_arrays(heads, queries, alone):
    kernels = attention(heads, queries, 8192, size=128)
    pairs, rounds = busiest_pairs(A100, *arrays(heads, queries, 8192, 1.0))
    waiting = waiting_time(
        A100, Dtype.BF16, rounds, np.array([queries]), np.array([128.0]), Tile.of(A100)
    )
    products = 2 * attention_product(
        A100, Dtype.BF16, FAST, pairs, np.array([128.0]), rows=64 if queries == 1 else 128
    )
    beside = pairs * pair_time(A100, alone=alone)
    found = attention_time(A100, Dtype.BF16, FAST, kernels)
    assert found == pytest.approx(products + beside + waiting)


def test_a_long_forward_pass_is_products_exponentials_and_waiting():
    kernels = attention(432, 8192, 8192, size=128)
    pairs = 432 * 8192.0**2
    by_hand = pairs * (4 * 128 / (312e12 * 1.275 / 1.41) + pair_time(A100))
    rounds = 432 * 64 / 108
    carried = 3 * 128 * 128 * 2 / (A100.levels[-1].speed / MANY)  # queries, first keys, result
    by_hand += rounds * (3 * A100.main_memory.latency + carried)
    found = attention_time(A100, Dtype.BF16, Roofline(sustained=False), kernels)
    assert found == pytest.approx(by_hand, rel=2e-3)


def test_backward_has_five_products_and_no_less_than_reading_their_operands():
    depth = np.array([128.0])
    (near,) = [level for level in B200.levels if level.name == "L1"]
    reading = 2 * 128 / 128 * 2 / near.speed
    assert multiplied(B200, Dtype.BF16, depth, backward=True) == pytest.approx(
        max(reading, 2 * 128 / B200.throughput(Dtype.BF16))
    )
    forward = attention_time(A100, Dtype.BF16, FAST, attention(432, 8192, 8192))
    backward = attention_time(A100, Dtype.BF16, FAST, attention(432, 8192, 8192, backward=True))
    assert 2.0 < backward / forward < 3.1  # 2.5 x 73 / 63 % of the peak (dao2023flashattention2)


def test_pairs_of_multiprocessors_add_up_gradients_of_queries_half_as_often():
    depth = np.array([128.0])
    l2 = B200.levels[-1].speed
    assert summing(B200, depth) == pytest.approx(128 / 128 * 4 / l2 / 2)


def test_kernels_around_a_backward_one_move_results_and_gradients_of_queries():
    queries, size, value = np.array([1e6]), np.array([192.0]), np.array([128.0])
    moved = 2 * 128 * 2 + 192 * 4 + 192 * (4 + 2)  # results and theirs, zeros; sums, as kept
    found = around_time(B200, queries, size, value)
    assert found == pytest.approx(1e6 * moved / B200.main_memory.speed)


def test_one_product_of_a_backward_attention_of_a_step_tells_the_kernels_around_it(monkeypatch):
    no, yes = np.zeros(3, dtype=bool), np.ones(3, dtype=bool)
    telling, backward = np.array([True, True, False]), np.array([True, False, True])
    inside = Attended(inside=yes, scores=yes, across=no, tells=telling, again=no, past=no)
    shapes = np.tile([4096.0, 128.0, 4096.0, 32.0], (3, 1))  # keys by queries, of 32 heads

    def found():
        counted = np.ones((3, 3))
        return products_in_attention(FAST, H100, Dtype.BF16, shapes, counted, backward, inside)

    whole = found()
    monkeypatch.setattr(attention_module, "around_time", lambda chip, queries, *sizes: 0 * queries)
    around = around_time(H100, np.array([32 * 4096.0]), np.array([128.0]), np.array([128.0]))
    assert whole - found() == pytest.approx([around[0], 0, 0])


def test_what_moves_may_take_longer():
    moved = 1e9
    found = attention_time(H100, Dtype.BF16, FAST, attention(8, 1, 4096, moved=moved))
    memory = H100.main_memory
    assert found == pytest.approx(moved / memory.speed + memory.delay)


def test_a_product_runs_at_the_clock_that_its_arrays_allow():
    chip = library.chip("a100-pcie-80gb")  # 1.04 of 1.41 GHz where arrays are all busy
    pairs, _ = busiest_pairs(chip, *arrays(432, 8192, 8192, 1.0))
    fast = attention_product(chip, Dtype.BF16, FAST, pairs, np.array([128.0]))
    slow = attention_product(chip, Dtype.BF16, Roofline(), pairs, np.array([128.0]))
    assert 1.02 < slow[0] / fast[0] < 1.41 / 1.04


@pytest.mark.parametrize(
    ("chip", "program", "forward", "backward"),
    [
        (A100, "newest", 1.0, 1.0),
        (A100, "flash-attention-2", 1.0, 1.0),
        (A100, "flash-attention-triton", 1.4, 2.0),
        (H100, "flash-attention-2", 1.75, 1.625),
        (H100, "flash-attention-triton", 1.75 * 1.4, 1.625 * 2.0),
    ],
)
def test_programs_of_older_generations_take_as_much_longer_as_their_papers_say(
    chip, program, forward, backward
):
    eager = replace(library.framework("eager"), attention=AttentionProgram(program))
    assert slowness(replace(chip, framework=eager)) == pytest.approx((forward, backward))


def test_a_step_has_the_time_of_the_kernel():
    system = crosstack.system("a100-dgx-80gb", chips=1)
    chip, sequence = system.chip, 4096
    llama = library.model("llama3-8b")
    job = crosstack.Job(model=llama, batch=1, sequence=sequence, kind="prefill")
    found = crosstack.predict(job, system, "tp=1")
    runs = {run.name: run for each in found.plan.evaluation.partitions for run in each.kernel_runs}
    kernel = attention(8, 4 * sequence, sequence, share=(sequence + 1) / 2 / sequence)
    by_kernel = sum(runs[name].compute for name in ("scores", "weights", "attended"))
    assert by_kernel == pytest.approx(
        attention_time(chip, Dtype.BF16, Roofline(), kernel)[0], rel=1e-3
    )
    assert runs["weights"].compute == 0
