from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.published.dfmodel.graphs.llm import llm_graph
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.workload.architectures import NormPlace, Transformer

SMALL = Transformer(
    hidden=64,
    heads=8,
    kv_heads=2,
    head_size=8,
    feed_forward=96,
    layers=3,
    vocabulary=100,
    context=4096,
)
PLAIN = replace(SMALL, kv_heads=8, gated=False)


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
    published = llm_graph(training=False, hidden=64, sequence_length=16, n_heads=8, head_size=8)
    assert ours.kernels == published.kernels
    assert ours.tensors == published.tensors


REFUSED = {
    "model.latent": ["deepseek-v2-lite", "deepseek-v2", "deepseek-v3", "kimi-k2"],
    "model.experts": [
        "mixtral-8x7b", "mixtral-8x22b", "qwen3-30b-a3b", "qwen3-235b-a22b", "deepseek-v2-lite",
        "deepseek-v2", "deepseek-v3", "kimi-k2", "gpt-oss-20b", "gpt-oss-120b",
        "qwen3-coder-480b-a35b", "glm-4.5", "glm-4.5-air",
    ],
    "model.parallel": [
        "falcon-7b", "falcon-40b", "falcon-180b", "palm-8b", "palm-62b", "palm-540b",
    ],
    "model.norms": ["opt-350m"],
    "model.window": [
        "mistral-7b", "gemma2-2b", "gemma2-9b", "gemma2-27b", "gemma3-1b", "gemma3-4b",
        "gemma3-12b", "gemma3-27b", "gpt-oss-20b", "gpt-oss-120b",
    ],
}  # fmt: skip
SERVED = sorted(set(library.names("models")).difference(*REFUSED.values()))


@pytest.mark.parametrize("name", library.names("models"))
def test_every_model_of_the_library_is_served_or_refused_by_its_fields(name):
    model = library.model(name)
    fields = [field for field, names in REFUSED.items() if name in names]
    for make, length in ((prefill, {"tokens": 4097}), (decode, {"context": 4096})):
        if fields:
            with pytest.raises(InputError) as refused:
                make(model, **length)
            assert [problem.path for problem in refused.value.problems] == fields
            assert all(model.name in problem.message for problem in refused.value.problems)
        else:
            assert make(model, **length).n_layers == model.layers


@pytest.mark.parametrize("name", SERVED)
def test_a_graph_has_the_weights_and_the_work_that_its_model_counts(name):
    model, tokens = library.model(name), 4096
    graph = prefill(model, tokens=tokens).graph
    weights = model.attention_weights + model.feed_forward_weights(model.feed_forward)
    assert graph.total_weight_size == 2 * weights
    counted = model.forward_flop(tokens, causal=False)
    products = sum(k.work for k in graph.kernels if k.kind.is_gemm)
    assert products * model.layers == tokens * (counted.total - counted.head)


def test_norms_of_heads_and_after_each_half_are_kernels():
    normed = replace(SMALL, qk_norm=True, norms=NormPlace.BOTH)
    for make, length in ((prefill, {"tokens": 16}), (decode, {"context": 16})):
        names = {k.name: k for k in make(normed, **length).graph.kernels}
        more = names.keys() - {k.name for k in make(SMALL, **length).graph.kernels}
        assert more == {"LayerNorm_Q", "LayerNorm_K", "LayerNorm_3", "LayerNorm_4"}
        assert all(names[name].row_wise for name in more)
        assert names["LayerNorm_Q"].outer == 4 * names["LayerNorm_K"].outer


def test_a_prompt_within_the_window_is_read():
    short = replace(SMALL, window=16)
    assert prefill(short, tokens=16).graph == prefill(SMALL, tokens=16).graph
    with pytest.raises(InputError, match="model.window: .* look at 16 at most, and 17 are there"):
        decode(short, context=16)


def test_the_published_decoding_graph():
    # llm_decode_llama3_8b_sn40l_tp16_pp1: bytes of a weight, of a cache, of what a chip reads
    model = replace(library.model("llama3-8b"), kv_heads=32, gated=False)
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
        for m in (SMALL, replace(SMALL, kv_heads=8))
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


@pytest.mark.parametrize("field", ["context", "tokens", "word", "chips"])
def test_a_number_that_makes_no_sense_is_refused(field):
    with pytest.raises(InputError, match=f"{field}: got 0"):
        decode(SMALL, **{"context": 4, field: 0})
