"""Attentions as they were measured: what counts of them, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.evaluate.attention_scores import (
    AttentionKind,
    MeasuredAttention,
    attention_roofline,
    attention_said,
)
from crosstack.evaluate.kernel_scores import score_kernels
from crosstack.evaluate.scores import GRAPH_LAUNCH, Timed
from crosstack.io import library
from crosstack.workload.dtype import Dtype

A100, H100, B200 = (library.chip(name) for name in ("a100-sxm-80gb", "h100-sxm", "b200"))
PROMPT = MeasuredAttention(
    kind=AttentionKind.CONTEXT, batch=1, query=2048, kv=2048, heads=32, kv_heads=8, head_size=128,
    value_size=128, window=2048, causal=True, dtype=Dtype.BF16, kv_element=2, time=1e-3,
    timed=Timed.GRAPH, turned=1,
)  # fmt: skip
TOKEN = replace(PROMPT, kind=AttentionKind.GENERATION, batch=64, query=1, kv=8192, window=8192)


def said(row, chip=H100):
    return float(attention_said([row], chip)[0])


@pytest.mark.parametrize("window", [1, 100, 2048, 5000])
@pytest.mark.parametrize(("query", "kv"), [(1, 1), (1, 900), (300, 300), (300, 900)])
def test_pairs_are_those_that_a_mask_leaves(query, kv, window):
    places = np.arange(kv)
    by_hand = sum(
        int(((places <= kv - query + i) & (places > kv - query + i - window)).sum())
        for i in range(query)
    )
    row = replace(PROMPT, query=query, kv=kv, window=window)
    assert row.pairs == by_hand
    assert replace(row, causal=False).pairs == query * kv


def test_a_token_takes_what_reading_its_keys_takes():
    moved = 64 * 8 * 8192 * 256 * 2 + 64 * 32 * 256 * 2
    memory = H100.main_memory
    assert said(TOKEN) == pytest.approx(moved / memory.speed + memory.delay)
    assert said(replace(TOKEN, kv_element=1)) < 0.6 * said(TOKEN)


def test_narrow_tiles_of_prompts_on_an_a100_are_bound_by_what_warps_read():
    long = replace(PROMPT, query=16384, kv=16384, window=16384)
    assert said(replace(long, narrow=True), A100) == pytest.approx(
        1.16 * said(long, A100), rel=0.03
    )


def test_heads_that_are_taken_one_by_one_take_longer():
    many = replace(TOKEN, heads=96, kv_heads=2, turned=2)
    assert said(many) > 2 * said(replace(many, turned=1))


def test_tensorrt_turns_queries_of_shared_keys_before_and_adds_up_within():
    memory = H100.main_memory
    turns = replace(TOKEN, turned=2)
    moved = 64 * 32 * 128 * 4 + 64 * 8 * 256 * 4
    more = said(turns) - said(TOKEN)
    assert more == pytest.approx(GRAPH_LAUNCH + memory.latency + moved / memory.speed)
    narrow = replace(turns, kv_element=1)  # which Hopper's own program turns itself
    assert said(narrow) == pytest.approx(said(replace(TOKEN, kv_element=1)))
    split = replace(TOKEN, batch=8, kv_element=1)
    less = said(split) - said(replace(split, turned=2))
    assert less == pytest.approx(GRAPH_LAUNCH)


def test_keys_of_a_lonely_token_are_split_but_for_one_library():
    alone = replace(TOKEN, batch=1, heads=2, kv_heads=2, kv=65536, window=65536)
    assert said(alone, A100) > 10 * said(replace(alone, heads=4), A100)
    assert said(alone) < 0.1 * said(alone, A100)


def test_heads_on_the_same_keys_share_tiles_where_the_kernel_has_it_so():
    few = replace(PROMPT, batch=64, query=16, kv=16, window=16)  # 4 heads a group: 64 rows
    assert said(few) > 2 * said(replace(few, packs=True))


def test_a_lonely_tile_waits_for_its_first_keys():
    short = replace(TOKEN, batch=1024, kv=128, window=128, packs=True)
    wide = replace(short, few=128)
    moved = 1024 * 8 * 128 * 256 * 2 / H100.main_memory.speed
    assert said(wide) > said(short) + 0.9 * moved
    long = [replace(row, batch=8, kv=8192, window=8192) for row in (short, wide)]
    assert said(long[1]) == pytest.approx(said(long[0]), rel=0.3)


def test_generated_kernels_wait_less_for_tiles_after_the_first():
    row = replace(TOKEN, batch=1024, kv=16, window=16, turned=2)  # 8192 tiles
    apart = said(row, B200) - said(replace(row, generated=True), B200)
    rounds = np.ceil(8192 / B200.compute.n_multiprocessors)
    assert apart == pytest.approx((rounds - 1) * 2 * B200.main_memory.latency, rel=1e-6)
    wide = replace(row, head_size=512, value_size=512)  # two blocks of its keys have no room
    assert said(wide, B200) == said(replace(wide, generated=True), B200)


def test_two_blocks_of_one_head_wait_together():
    few = replace(TOKEN, batch=1, heads=96, kv_heads=1, kv=8, window=8, turned=2)
    twice = replace(few, batch=2)  # 192 blocks on 132 multiprocessors
    assert said(twice) == pytest.approx(said(few), rel=0.1)
    assert said(replace(few, batch=8)) > 2 * said(few)


def test_spread_keys_have_no_longest_tile():
    alone = replace(PROMPT, heads=1, kv_heads=1, query=8192, kv=8192, window=8192)
    assert said(replace(alone, spread=True)) < 0.9 * said(alone)


def test_values_are_as_long_as_keys_on_an_a100():
    training = replace(PROMPT, kind=AttentionKind.FORWARD, head_size=192, turned=0)
    short = said(training, A100)
    assert short == pytest.approx(said(replace(training, value_size=192), A100), rel=0.03)


@pytest.mark.parametrize("kind", [AttentionKind.FORWARD, AttentionKind.BACKWARD])
def test_few_heads_of_a_grid_take_longer_than_their_part(kind):
    many = replace(PROMPT, kind=kind, query=4096, kv=4096, window=4096, heads=64, turned=0)
    few = replace(many, heads=8)
    assert said(few, A100) > 1.3 * said(many, A100) / 8
    assert said(few, H100) < 1.15 * said(many, H100) / 8


def test_writing_the_cache_and_turning_take_their_bytes():
    chip, plain = H100.main_memory.speed, said(replace(PROMPT, turned=1))
    once = 8 * 2048 * 256 * (2 + 2)
    turned = 32 * 2048 * 128 * 4
    training = said(replace(PROMPT, kind=AttentionKind.FORWARD, turned=0))
    more = said(replace(PROMPT, turned=2)) - training
    begins = GRAPH_LAUNCH + H100.main_memory.latency  # a kernel that says where sequences begin
    assert more == pytest.approx((2 * once + 2 * turned) / chip + begins)
    spread = said(replace(PROMPT, turned=2, spread=True, kv_element=1)) - said(
        replace(PROMPT, turned=1, spread=True, kv_element=1)
    )
    assert spread > 2 * begins  # keys and values in 8 bits are made by a kernel each
    rounds = np.ceil(32 * 2048 / 128 / H100.compute.n_multiprocessors)
    pages = rounds * 2 * H100.main_memory.latency  # how many keys there are, and where
    assert plain - training == pytest.approx(once / chip + pages, rel=1e-6)


def test_backward_takes_longer_and_has_more_work_on_a_roofline():
    forward = replace(PROMPT, kind=AttentionKind.FORWARD, timed=Timed.LOOP, query=8192, kv=8192)
    backward = replace(forward, kind=AttentionKind.BACKWARD)
    assert 2 < said(backward) / said(forward) < 4
    plain = attention_roofline([forward, backward], H100)
    assert plain[1] == pytest.approx(2.5 * plain[0])


def test_what_all_take_besides_is_that_of_the_shortest_which_is_not_scored():
    rows = [PROMPT, replace(PROMPT, batch=8)]
    times = attention_said(rows, H100) + 10e-6
    met = [replace(row, time=float(time)) for row, time in zip(rows, times, strict=True)]
    score = score_kernels(met, H100)
    assert score.ours.rows == 1
    assert score.ours.mean == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match="two or more"):
        score_kernels(rows[:1], H100)
