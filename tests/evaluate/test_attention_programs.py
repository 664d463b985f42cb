"""Which programs TensorRT-LLM runs for tokens, and what is before them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.evaluate.attention_programs import (
    Tokens,
    lane_time,
    takes_single_heads,
    turns_before,
)
from crosstack.io import library
from crosstack.workload.dtype import Dtype

H100, B200 = library.chip("h100-sxm"), library.chip("b200")


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
