"""Shardings by what tensor-parallel chips exchange: Megatron's pairs, with and without tokens."""

from __future__ import annotations

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.mapping.sharding import exchange_sharding
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.workload.architectures import graphs
from crosstack.workload.lowering import lowered
from crosstack.workload.transformer_training import Exchange

LAYER = lowered(graphs.training(library.model("llama3-8b"), sequence=64), "layers")
# shoeybi2019megatron: columns, then rows, of both pairs of products
PAIRS = {
    "queries": "heads", "keys": "kv_heads", "values": "kv_heads", "attention_out": "heads",
    "up": "feed_forward", "gate": "feed_forward", "down": "feed_forward",
}  # fmt: skip


@pytest.mark.parametrize(
    ("exchange", "beside"), [(Exchange.PAIRED, "none"), (Exchange.SEQUENCE, "sequence")]
)
def test_pairs_of_products_are_split_and_what_lies_between_them_is_not(exchange, beside):
    found = dict(exchange_sharding(LAYER, exchange))
    assert {name: found[name] for name in PAIRS} == PAIRS
    assert {found[name] for name in ("attention_norm", "attention_added", "out")} == {beside}


@pytest.mark.parametrize("exchange", Exchange)
def test_a_graph_without_heads_or_feed_forward_has_no_pairs(exchange):
    with pytest.raises(InputError, match="exchange: got"):
        exchange_sharding(fft(length=4096, word=8).graph, exchange)
