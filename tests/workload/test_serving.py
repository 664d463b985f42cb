from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.workload.llm import llm_forward
from crosstack.workload.serving import MODELS, Transformer, decode, prefill, transformer_named

SMALL = Transformer(
    hidden=64, n_heads=8, n_kv_heads=2, head_size=8, feed_forward=96, n_layers=3, gated=True
)
PLAIN = replace(SMALL, n_kv_heads=8, gated=False)


def n_edges(workload) -> int:
    return sum(len(tensor.consumers) for tensor in workload.graph.tensors)


@pytest.mark.parametrize(
    ("model", "kernels", "edges"), [(PLAIN, (18, 20), (21, 23)), (SMALL, (20, 22), (24, 26))]
)
def test_numbers_of_kernels_and_edges(model, kernels, edges):
    reading, writing = prefill(model, tokens=16), decode(model, context=16)
    assert (len(reading.graph), len(writing.graph)) == kernels
    assert (n_edges(reading), n_edges(writing)) == edges


def test_prefill_without_sharing_or_gate_is_the_forward_layer():
    same = replace(PLAIN, feed_forward=4 * 64)
    ours = prefill(same, tokens=16).graph
    published = llm_forward(hidden=64, sequence_length=16, n_heads=8, head_size=8)
    assert ours.kernels == published.kernels
    assert ours.tensors == published.tensors


# Parameters without embeddings: of 8.03e9, 70.6e9, 405.9e9 and 68e6 with two of 128,256 (32,000)
# words by the width (grattafiori2024llama3, Table 3; miao2024specinfer).
@pytest.mark.parametrize(
    ("name", "total", "words"),
    [
        ("llama3-8b", 8.03e9, 128256),
        ("llama3-70b", 70.6e9, 128256),
        ("llama3-405b", 405.9e9, 128256),
        ("llama-68m", 68.0e6, 32000),
    ],
)
def test_presets_have_as_many_parameters_as_published(name, total, words):
    model = transformer_named(name)
    weights = decode(model, context=1).graph.weight_size / 2 * model.n_layers
    assert weights + 2 * words * model.hidden == pytest.approx(total, rel=2e-3)


def test_the_published_decoding_graph():
    # llm_decode_llama3_8b_sn40l_tp16_pp1: bytes of a weight, of a cache, of what a chip reads
    model = replace(MODELS["llama3-8b"], n_kv_heads=32, gated=False)
    kernels = {k.name: k for k in decode(model, context=4096, chips=16).graph.kernels}
    assert kernels["Q"].memory_traffic == 2097152.0
    assert kernels["FFN0"].memory_traffic == 7340032.0
    cache = kernels["K_cache"]
    assert (cache.outer, cache.m, cache.n, cache.output_size) == (32, 128, 4097, 33562624.0)
    assert (cache.memory_traffic, cache.sram_extra, cache.memory_extra) == (2097152.0,) * 3
    assert (kernels["MHA_GEMM_1"].output_size, kernels["MHA_GEMM_2"].k) == (262208.0, 4097)


def test_the_cache_is_as_large_as_its_keys_and_values():
    kernels = decode(SMALL, context=100).graph.kernels
    assert sum(k.cache_size for k in kernels) == 2 * 2 * 8 * 100 * 2  # K and V, heads, width


def test_shared_heads_shrink_the_cache_and_not_the_attention():
    shared, whole = (
        {k.name: k for k in decode(m, context=100).graph.kernels}
        for m in (SMALL, replace(SMALL, n_kv_heads=8))
    )
    assert whole["K_cache"].cache_size == 4 * shared["K_cache"].cache_size
    for name in ("MHA_GEMM_1", "SOFTMAX", "MHA_GEMM_2"):
        assert shared[name].work == whole[name].work


def test_checking_several_tokens_works_as_much_as_writing_them():
    one, five = decode(SMALL, context=100), decode(SMALL, context=100, tokens=5)
    projections = ("Q", "FFN0", "PROJ_GEMM")
    ones, fives = ({k.name: k.work for k in w.graph.kernels} for w in (one, five))
    assert [fives[p] for p in projections] == [5 * ones[p] for p in projections]
    assert five.boundary_size == 5 * one.boundary_size


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"n_kv_heads": 3}, "n_kv_heads: got 3; allowed: a divisor of n_heads = 8"),
        ({"n_heads": 7}, "n_heads: got 7; allowed: n_heads x head_size = hidden"),
        ({"feed_forward": 0}, "feed_forward: got 0"),
        ({"n_layers": 0}, "n_layers: got 0"),
    ],
)
def test_a_shape_that_makes_no_sense_is_refused(changes, says):
    with pytest.raises(InputError, match=says):
        replace(SMALL, **changes)


@pytest.mark.parametrize("field", ["context", "tokens", "word", "chips"])
def test_a_number_that_makes_no_sense_is_refused(field):
    with pytest.raises(InputError, match=f"{field}: got 0"):
        decode(SMALL, **{"context": 4, field: 0})


def test_the_nearest_model_is_named():
    with pytest.raises(InputError, match='Did you mean "llama3-70b"'):
        transformer_named("llama3-70")
