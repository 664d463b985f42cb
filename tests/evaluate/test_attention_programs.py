"""Which programs TensorRT-LLM runs for tokens, and what is before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.evaluate.attention_programs import (
    Tokens,
    flash_tile,
    lane_time,
    takes_single_heads,
    turns_before,
)
from crosstack.io import library
from crosstack.workload.dtype import Dtype

A100, H100, B200 = (library.chip(name) for name in ("a100-sxm-80gb", "h100-sxm", "b200"))


def row(*values):
    return np.array(values, dtype=np.float64)


SHARED = Tokens(
    batch=row(64), heads=row(32), groups=row(8), keys=row(4096), element=row(2),
    windowed=np.array([False]),
)  # fmt: skip


def single(chip, **changed):
    return bool(takes_single_heads(chip, replace(SHARED, **changed))[0])


def turned(chip, **changed):
    return bool(turns_before(chip, replace(SHARED, **changed))[0])


@pytest.mark.parametrize(
    ("changed", "hopper", "blackwell"),
    [
        ({}, False, False),
        ({"heads": row(8)}, True, False),
        ({"heads": row(264)}, True, True),
        ({"windowed": np.array([True])}, True, False),
        ({"windowed": np.array([True]), "element": row(1)}, False, False),
        ({"batch": row(4), "keys": row(128)}, True, False),  # 32 blocks, times 4 fewer than 132
        ({"batch": row(4), "keys": row(128), "element": row(1)}, False, False),
        ({"batch": row(5), "keys": row(128)}, False, False),
        ({"batch": row(4), "keys": row(257)}, False, False),
    ],
)
def test_single_heads_where_the_source_has_it_so(changed, hopper, blackwell):
    assert single(H100, **changed) is hopper
    assert single(B200, **changed) is blackwell


def test_a_kernel_turns_before_but_where_the_program_does_so_itself():
    assert turned(H100)
    assert turned(B200)
    assert not turned(H100, element=row(1))
    assert turned(B200, element=row(1))
    assert not turned(H100, heads=row(8))
    assert not turned(B200, heads=row(264))


def test_lanes_multiply_where_a_block_has_a_head():
    lanes = H100.vector_throughput(Dtype.FP32) / 2
    one = replace(SHARED, heads=row(8))
    assert lane_time(H100, one, row(1e9)) == pytest.approx(2.5e9 / lanes)
    assert lane_time(H100, replace(one, element=row(1)), row(1e9)) == pytest.approx(6.5e9 / lanes)
    assert lane_time(H100, SHARED, row(1e9)) == 0


@pytest.mark.parametrize(
    ("chip", "size", "element", "windowed", "split", "tile"),
    [
        (A100, 128, 2, False, False, (128, 64)),
        (A100, 128, 2, False, True, (128, 112)),
        (H100, 64, 2, False, False, (192, 160)),
        (H100, 128, 2, True, False, (128, 128)),
        (H100, 128, 1, False, False, (128, 160)),
        (H100, 256, 2, False, False, (128, 80)),
        (H100, 256, 1, True, True, (128, 64)),
    ],
)
def test_flash_attention_has_tiles_by_head_and_chip(chip, size, element, windowed, split, tile):
    found = flash_tile(chip, row(size), row(element), np.array([windowed]), np.array([split]))
    assert tuple(float(each[0]) for each in found) == tile
