"""Which layers of experts share the file of a search with another, as their source names it."""

from __future__ import annotations

from crosstack.evaluate.expert_searches import search_is_lost


def test_layers_as_wide_with_as_many_experts_a_chip_share_a_file():
    assert search_is_lost(4096, 1024, 10, 512, 1, 4)  # 1024 wide, 128 a chip
    assert search_is_lost(4096, 2048, 8, 256, 2, 2)  # as this one


def test_a_layer_alone_with_its_width_has_its_own_search():
    assert not search_is_lost(4096, 1536, 8, 128, 1, 1)
    assert not search_is_lost(4096, 1024, 10, 512, 1, 1)  # no other has 512 a chip


def test_a_name_that_begins_as_another_takes_its_file():
    assert search_is_lost(4096, 1536, 8, 128, 1, 128)  # 1 a chip: 16 and 128 begin so
    assert not search_is_lost(4096, 1536, 8, 128, 1, 32)  # 4 a chip
