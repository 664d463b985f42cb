"""Tiles of kernels that do not search, as their source chooses them."""

from __future__ import annotations

import pytest

from crosstack.evaluate.product_tiles import ProductProgram, deepgemm_tile, known_tile
from crosstack.io import library

H100, B200 = library.chip("h100-sxm"), library.chip("b200")


@pytest.mark.parametrize(
    ("m", "n", "tile"),
    [
        (4096, 2048, (128, 128)),  # 512 tiles, four rounds
        (161, 256, (64, 16)),  # one round however small they are: the most tiles
        (1024, 12288, (128, 128)),
        (33, 65536, (64, 128)),  # few rows: 64 alone
        (2049, 4096, (128, 112)),  # five rounds with 112 columns as with 128, the last one fuller
    ],
)
def test_deepgemm_takes_the_fewest_rounds_and_fills_the_last(m, n, tile):
    assert deepgemm_tile(132, m, n) == tile


def test_pairs_of_tiles_read_together_from_1024_rows_where_columns_are_even():
    program = ProductProgram.DEEPGEMM
    assert known_tile(program, H100, 4096, 2048).cluster == 2
    assert known_tile(program, H100, 2049, 4096).cluster == 1  # 37 of 112 columns
    assert known_tile(program, H100, 512, 4096).cluster == 1


def test_other_kernels_are_searched():
    assert known_tile(ProductProgram.LIBRARY, H100, 4096, 4096) is None
    assert known_tile(ProductProgram.DEEPGEMM, B200, 4096, 4096) is None
    assert known_tile(ProductProgram.DEEPGEMM, H100, 16, 4096) is None


def test_four_bits_have_one_tile_on_one_multiprocessor():
    found = known_tile(ProductProgram.FP4, B200, 4, 2048)
    assert (found.rows, found.columns) == (128, 256)
    assert found == known_tile(ProductProgram.FP4, B200, 4096, 65536)
