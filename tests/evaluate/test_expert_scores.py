"""Expert layers and grouped products as measured: tokens of experts, and what is said of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.evaluate.expert_scores import (
    ExpertsProgram,
    MeasuredExperts,
    MeasuredGroups,
    experts_said,
    groups_said,
)
from crosstack.evaluate.kernel_scores import score_kernels
from crosstack.evaluate.scores import GRAPH_LAUNCH
from crosstack.io import library
from crosstack.model.kernels.clock import product_time
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.dtype import Dtype

H100 = library.chip("h100-sxm")
LAYER = MeasuredExperts(
    tokens=4096, hidden=4096, expert_ffn=1536, topk=8, experts=128, tp=1, ep=1, exponent=None,
    gated=True, dtype=Dtype.BF16, weight=2, program=ExpertsProgram.LIBRARY, time=1e-3,
)  # fmt: skip


def said(row):
    return float(experts_said([row], H100)[0])


def test_balanced_experts_have_as_many_tokens_each():
    assert LAYER.loads.tolist() == [256.0] * 128
    assert replace(LAYER, ep=4).loads.tolist() == [256.0] * 32


@pytest.mark.parametrize("exponent", [1.0, 1.2])
def test_a_power_law_has_all_tokens_and_none_twice(exponent):
    loads = replace(LAYER, exponent=exponent, tokens=64).loads
    assert loads.sum() == pytest.approx(64 * 8, rel=0.2)
    assert loads.max() <= 64
    assert np.all(np.diff(loads) <= 0)
    assert loads[0] > 10 * loads[-1]


def test_the_fullest_chip_has_more_than_its_share():
    law = replace(LAYER, exponent=1.2)
    share = replace(law, ep=16).loads
    assert len(share) == 8
    assert share.sum() > 2 * law.loads.sum() / 16


def test_every_border_of_groups_takes_trips_to_memory():
    row = replace(
        LAYER, expert_ffn=128, tokens=64
    )  # four tokens each: 128 x 32 tiles of the second
    each = H100.main_memory.latency + 3 * H100.shared_level.latency
    blocks = replace(row, dtype=Dtype.FP8_BLOCKS, weight=1)
    narrow = replace(row, dtype=Dtype.FP8, weight=1)
    passes = 512 * (4096 + 128) * (2 + 1) / H100.main_memory.speed
    borders = (128 * 2 + 128 * 32) / 132 * each
    assert said(narrow) - said(blocks) + passes == pytest.approx(borders, rel=0.4)


def test_generated_kernels_have_none_beside_them():
    row = replace(LAYER, tokens=8, dtype=Dtype.FP8, weight=1)
    more = said(row) - said(replace(row, program=ExpertsProgram.GENERATED))
    assert more > 5 * (GRAPH_LAUNCH + H100.main_memory.latency)


def test_few_tokens_take_what_reading_the_weights_of_their_experts_takes():
    row = replace(LAYER, tokens=8)  # 64 of 128 experts
    weights = 64 * 3 * 4096 * 1536 * 2 / H100.main_memory.speed
    assert said(row) == pytest.approx(weights, rel=0.05)
    assert said(replace(row, weight=1, dtype=Dtype.FP8)) == pytest.approx(weights / 2, rel=0.1)


def test_a_layer_is_two_products_of_groups_and_what_moves_beside():
    clock = Roofline(sustained=False)
    sides = ((256, 4096, 3072), (256, 1536, 4096))
    products = sum(
        float(product_time(clock, H100, *side, batch=128).time) - H100.launch_overhead
        for side in sides
    )
    rows = 4096 * 8
    moved = 2 * (3 * rows * 4096 + 4096 * 4096 + rows * (3072 + 1536))
    assert said(LAYER) == pytest.approx(products + moved / H100.main_memory.speed, rel=0.02)


def test_the_first_tile_takes_a_latency_a_step_where_tokens_are_few():
    row = replace(LAYER, dtype=Dtype.FP8, weight=1, tokens=8, searched=False)  # 64 experts
    tiles = np.ceil(64 * 3072 / 16 / 132) * 4096 / 128, np.ceil(64 * 4096 / 16 / 132) * 1536 / 128
    steps = sum(tiles) * H100.main_memory.latency
    assert said(row) == pytest.approx(steps, rel=0.03)
    assert said(replace(row, searched=True)) < 0.3 * said(row)


def test_tokens_that_fill_no_tile_of_the_first_take_as_long():
    row = replace(LAYER, dtype=Dtype.FP8, weight=1, tokens=512, searched=False)  # 32 each
    assert said(replace(row, tokens=1024)) == pytest.approx(said(row), rel=0.05)


def test_scaled_blocks_on_hopper_have_no_wider_tiles_than_deepgemms():
    row = replace(LAYER, dtype=Dtype.FP8_BLOCKS, weight=1, tokens=16384)  # 1,024 each
    wider = said(row) / said(replace(row, dtype=Dtype.FP8))
    assert wider > 1.2
    few = replace(row, tokens=512)  # 32 each: rows and columns exchanged, searched
    assert said(few) == pytest.approx(said(replace(few, dtype=Dtype.FP8)), rel=0.35)


def test_the_first_tile_is_known_on_hopper_alone():
    row = replace(LAYER, searched=False)
    b200 = library.chip("b200")
    assert experts_said([row], b200) == pytest.approx(experts_said([LAYER], b200))


def test_small_tiles_take_longer():
    assert said(replace(LAYER, program=ExpertsProgram.FUSED)) > 1.3 * said(LAYER)


def test_tokens_of_an_expert_fill_whole_tiles():
    fused = replace(LAYER, program=ExpertsProgram.FUSED)
    rows = [replace(fused, tokens=tokens) for tokens in (512, 1024, 1040)]  # 32, 64, 65 each
    half, full, more = (said(row) for row in rows)
    assert full == pytest.approx(half, rel=0.06)
    assert more == pytest.approx(2 * full, rel=0.12)


def test_a_chip_of_fused_experts_has_rows_of_all():
    fused = replace(LAYER, program=ExpertsProgram.FUSED, tokens=16384)
    share = replace(fused, ep=128)
    zeros = 16384 * 8 * 127 / 128 * (3072 + 4096) * 2 / H100.main_memory.speed
    assert said(share) > zeros
    assert said(replace(share, program=ExpertsProgram.LIBRARY)) < zeros


def test_four_bits_run_kernels_of_triton_on_hopper_alone():
    row = replace(LAYER, program=ExpertsProgram.MXFP4, weight=0.53125)
    library_row = replace(row, program=ExpertsProgram.LIBRARY)
    assert said(row) != said(library_row)
    b200 = library.chip("b200")
    assert experts_said([row], b200) == pytest.approx(experts_said([library_row], b200))


def test_marlin_takes_as_few_rows_as_the_tokens_of_an_expert_need():
    row = replace(LAYER, program=ExpertsProgram.MARLIN, weight=0.515625, tokens=64)  # 4 each
    assert said(replace(row, tokens=112)) < 1.1 * said(row)  # 7: eight rows
    assert said(replace(row, tokens=2048)) > 2 * said(row)  # 128: two tiles of 64


def test_groups_run_one_after_the_other_with_their_launches():
    row = MeasuredGroups(groups=20, m=154, k=1536, n=5120, dtype=Dtype.BF16, time=1.0)
    one = float(product_time(Roofline(), H100, 154, 1536, 5120).time)
    assert groups_said([row], H100) == pytest.approx(20 * one)
    assert score_kernels([replace(row, time=20 * one)], H100).ours.mean == pytest.approx(0)


def test_the_shortest_layer_tells_what_all_take_besides():
    rows = [replace(LAYER, tokens=1), LAYER]
    times = experts_said(rows, H100) + 20e-6
    met = [replace(row, time=float(time)) for row, time in zip(rows, times, strict=True)]
    assert score_kernels(met, H100).ours.mean == pytest.approx(0, abs=1e-12)
    with pytest.raises(InputError, match="two or more"):
        score_kernels(met[:1], H100)
