"""Tiles of kernels that do not search, as their source chooses them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.evaluate.product_tiles import ProductProgram, deepgemm_tile, known_tile
from crosstack.evaluate.scores import MeasuredProduct, products_said
from crosstack.io import library
from crosstack.workload.dtype import Dtype

H100, B200 = library.chip("h100-sxm"), library.chip("b200")


@pytest.mark.parametrize(
    ("m", "n", "tile"),
    [
        (4096, 2048, (128, 128)),  # 512 tiles, four rounds
        (161, 256, (128, 16)),  # one round however small they are: the most tiles
        (1024, 12288, (128, 128)),
        (33, 65536, (64, 128)),  # few rows: 64
        (129, 10240, (128, 80)),  # more are 128, even of one that is left over
        (2049, 4096, (128, 112)),  # five rounds with 112 columns as with 128, the last one fuller
    ],
)
def test_deepgemm_takes_the_fewest_rounds_and_fills_the_last(m, n, tile):
    assert deepgemm_tile(132, m, n) == tile


def test_pairs_of_tiles_read_together_from_1024_rows_where_they_fill_n():
    program = ProductProgram.DEEPGEMM
    assert known_tile(program, H100, 4096, 2048, 4096).cluster == 2
    assert known_tile(program, H100, 1793, 6144, 4096).cluster == 1  # 52 of 120 columns: 96 left
    assert known_tile(program, H100, 512, 4096, 4096).cluster == 1


def test_few_rows_are_columns_of_the_transpose():
    found = known_tile(ProductProgram.DEEPGEMM, H100, 12, 4096, 512)
    assert (found.rows, found.columns) == (16, 128)


@pytest.mark.parametrize(
    ("m", "n", "stages"),
    [
        (4096, 2048, 5),  # 128 x 128: six and the scales of weights are more than there is
        (2049, 4096, 6),  # columns that do not divide a block: six at most
        (64, 2112, 8),
    ],
)
def test_steps_are_held_while_there_is_room(m, n, stages):
    assert known_tile(ProductProgram.DEEPGEMM, H100, m, n, 7168).stages == stages


def test_between_tiles_results_are_put_down_and_scales_are_waited_for():
    found = known_tile(ProductProgram.DEEPGEMM, H100, 4096, 2048, 4096)  # four rounds of 128 x 128
    by_hand = 4 * 128 * 128 * 2 / (128 * H100.compute.frequency)  # 128 B a cycle
    by_hand += 3 * H100.shared_level.latency
    m, n = np.array([4096.0]), np.array([2048.0])
    assert found.between(H100, m, n) == pytest.approx(by_hand, rel=1e-6)
    fp4 = known_tile(ProductProgram.FP4, B200, 4096, 2048, 4096)
    assert fp4.between(B200, m, n) == 0


# Products of DeepGEMM's own table, of its first release on an H800: M, N, K, TFLOP/s.
PUBLISHED = [
    (64, 2112, 7168, 206), (64, 24576, 1536, 289), (64, 32768, 512, 219), (64, 7168, 16384, 336),
    (64, 4096, 7168, 287), (64, 7168, 2048, 295), (128, 2112, 7168, 352), (128, 24576, 1536, 535),
    (128, 32768, 512, 358), (128, 7168, 16384, 645), (128, 4096, 7168, 533), (128, 7168, 2048, 510),
    (4096, 2112, 7168, 1058), (4096, 24576, 1536, 990), (4096, 32768, 512, 590),
    (4096, 7168, 16384, 1358), (4096, 4096, 7168, 1304), (4096, 7168, 2048, 1025),
]  # fmt: skip


def test_products_take_as_long_as_deepgemm_says():
    rows = [
        MeasuredProduct(
            m=m, k=k, n=n, dtype=Dtype.FP8_BLOCKS, time=2 * m * n * k / (reached * 1e12),
            result=2.0, program=ProductProgram.DEEPGEMM,
        )
        for m, n, k, reached in PUBLISHED
    ]  # fmt: skip
    said = products_said(rows, replace(H100, launch_overhead=0.0))
    errors = np.abs(np.log(said / [row.time for row in rows]))
    assert errors.mean() < 0.12
    assert errors[-6:].max() < 0.08  # of 4,096 rows


def test_other_kernels_are_searched():
    assert known_tile(ProductProgram.LIBRARY, H100, 4096, 4096, 4096) is None
    assert known_tile(ProductProgram.DEEPGEMM, B200, 4096, 4096, 4096) is None


def test_four_bits_have_one_tile_on_one_multiprocessor():
    found = known_tile(ProductProgram.FP4, B200, 4, 2048, 512)
    assert (found.rows, found.columns) == (128, 256)
    assert found == known_tile(ProductProgram.FP4, B200, 4096, 65536, 512)
