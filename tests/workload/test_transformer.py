"""Claims about the record of transformers: parameters, work, and what may not be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.workload.architectures import (
    Activation,
    AttentionKind,
    Experts,
    LatentAttention,
    LayerKind,
    Norm,
    NormPlace,
    Position,
    Transformer,
    mean_keys,
)

SMALL = Transformer(
    hidden=8, layers=3, heads=4, kv_heads=2, head_size=2, feed_forward=20, vocabulary=50, context=16
)
LATENT = LatentAttention(
    query_rank=3, key_value_rank=5, content_size=2, rotary_size=1, value_size=4
)
LATENT_SMALL = replace(SMALL, kv_heads=4, head_size=3, latent=LATENT)


# Written out tensor by tensor.
def test_parameters_are_told_apart_by_kind():
    count = SMALL.parameters
    assert (count.embedding, count.head) == (50 * 8, 50 * 8)
    assert count.attention == 3 * (8 * 8 + 2 * 8 * 4 + 8 * 8)
    assert count.feed_forward == 3 * 3 * 8 * 20
    assert count.norms == (3 * 2 + 1) * 8
    assert (count.routed, count.shared, count.router) == (0, 0, 0)
    assert count.total == 400 + 576 + 1440 + 56 + 400 == SMALL.active_parameters


def test_biases_and_layer_norms_are_counted():
    biased = replace(
        SMALL, qkv_bias=True, output_bias=True, feed_forward_bias=True, norm=Norm.LAYER
    )
    more = biased.parameters.total - SMALL.parameters.total
    assert more == 3 * ((8 + 4 + 4) + 8 + (20 + 20 + 8)) + (3 * 2 + 1) * 8
    plain = replace(biased, gated=False)
    assert biased.parameters.feed_forward - plain.parameters.feed_forward == 3 * (8 * 20 + 20)


@pytest.mark.parametrize(
    ("change", "norms"),
    [
        ({"norms": NormPlace.AFTER}, 3 * 2 * 8),
        ({"norms": NormPlace.BOTH}, (3 * 4 + 1) * 8),
        ({"norms": NormPlace.SHARED, "parallel": True}, (3 + 1) * 8),
        ({"qk_norm": True}, (3 * 2 + 1) * 8 + 3 * 2 * 2),
        ({"embedding_norm": True}, (3 * 2 + 2) * 8),
    ],
)
def test_norms_are_counted_where_they_stand(change, norms):
    assert replace(SMALL, **change).parameters.norms == norms


def test_a_tied_head_has_no_parameters_but_does_its_work():
    tied = replace(SMALL, tied=True)
    assert tied.parameters.head == 0
    assert tied.forward_flop(1) == SMALL.forward_flop(1)


def test_a_narrow_table_is_led_to_the_width_of_a_layer_and_back():
    narrow = replace(SMALL, embedding=4, position=Position.LEARNED, positions=16)
    assert narrow.parameters.embedding == 50 * 4 + 16 * 8 + 2 * 4 * 8
    assert narrow.parameters.head == 50 * 4
    assert narrow.forward_flop(1).head == 2 * (50 * 4 + 2 * 4 * 8)


def test_experts_stand_in_the_layers_that_have_them():
    experts = Experts(
        count=6, active=2, feed_forward=5, shared=1, first_dense=1, every=2, router_bias=True
    )
    model = replace(SMALL, experts=experts)
    assert [model.layer(i).experts for i in range(3)] == [False, False, True]
    count = model.parameters
    assert count.feed_forward == 2 * 3 * 8 * 20
    assert (count.routed, count.shared) == (6 * 3 * 8 * 5, 3 * 8 * 5)
    assert count.router == 6 * (8 + 1)
    assert model.active_parameters == count.total - 4 * 3 * 8 * 5
    work = model.forward_flop(1)
    assert (work.routed, work.shared) == (2 * 2 * 3 * 8 * 5, 2 * 3 * 8 * 5)
    assert (work.router, work.feed_forward) == (2 * 6 * 8, 2 * count.feed_forward)


def test_latent_attention_is_its_five_projections():
    a = 4
    weights = 8 * 3 + 3 * a * (2 + 1) + 8 * (5 + 1) + 5 * a * (2 + 4) + a * 4 * 8
    assert LATENT_SMALL.attention_weights == weights
    assert LATENT_SMALL.parameters.norms == (3 * 2 + 1) * 8 + 3 * (3 + 5)
    assert LATENT_SMALL.cached == 5 + 1
    at_once = replace(LATENT_SMALL, latent=replace(LATENT, query_rank=0))
    assert weights - at_once.attention_weights == 8 * 3 + 3 * a * 3 - 8 * a * 3


def test_absorbed_scores_are_as_wide_as_what_is_kept():
    usual, absorbed = (LATENT_SMALL.forward_flop(1, cached=9, absorbed=b) for b in (False, True))
    assert usual.attention == 2 * 3 * 10 * 4 * (2 + 1 + 4)
    assert absorbed.attention == 2 * 3 * 10 * 4 * (5 + 1 + 5)
    assert replace(usual, attention=0.0) == replace(absorbed, attention=0.0)


@pytest.mark.parametrize(
    ("kv_heads", "kind"),
    [
        (4, AttentionKind.MULTI_HEAD),
        (2, AttentionKind.GROUPED_QUERY),
        (1, AttentionKind.MULTI_QUERY),
    ],
)
def test_heads_that_share_keys_name_the_kind_of_attention(kv_heads, kind):
    model = replace(SMALL, kv_heads=kv_heads)
    assert (model.attention, model.group) == (kind, 4 // kv_heads)
    assert LATENT_SMALL.attention is AttentionKind.LATENT


# gemma2025gemma3, section 2: five local layers for each global one.
def test_a_window_holds_in_all_layers_but_the_global_ones():
    model = library.model("gemma3-1b")
    assert model.layer_kinds == ((LayerKind(window=512), 22), (LayerKind(), 4))
    assert model.layer(5).window == 0
    assert library.model("mistral-7b").layer_kinds == ((LayerKind(window=4096), 32),)


def test_work_of_a_window_ends_with_it():
    model = library.model("mistral-7b")
    near, far = (model.forward_flop(1, cached=c).attention for c in (4095, 30000))
    assert near == far == 4 * 4096 * 4096 * 32


@given(
    tokens=st.integers(1, 40),
    cached=st.integers(0, 40),
    window=st.integers(0, 50),
    causal=st.booleans(),
)
def test_mean_keys_are_those_counted_one_by_one(tokens, cached, window, causal):
    seen = [cached + (i + 1 if causal else tokens) for i in range(tokens)]
    limited = [min(keys, window) if window else keys for keys in seen]
    mean = sum(limited) / tokens
    assert mean_keys(tokens, cached=cached, causal=causal, window=window) == pytest.approx(mean)


# narayanan2021megatron, section 5.1, nothing computed twice: scores of all tokens by all others.
@pytest.mark.parametrize("name", ["gpt-1.7b", "gpt-18b", "gpt-146b", "gpt-1t"])
def test_work_of_a_gpt_is_the_published_formula(name):
    m, s = library.model(name), 2048
    published = 72 * m.layers * m.hidden**2
    published *= 1 + s / (6 * m.hidden) + m.vocabulary / (12 * m.layers * m.hidden)
    assert 3 * m.forward_flop(s, causal=False).total == pytest.approx(published, rel=1e-12)


# zhao2025insights, table 2: training at 4,096 tokens, in GFLOP a token.
@pytest.mark.parametrize(("name", "published"), [("deepseek-v2", 155), ("deepseek-v3", 250)])
def test_work_of_latent_attention_and_experts_is_as_published(name, published):
    assert round(3 * library.model(name).forward_flop(4096).total / 1e9) == published


# zhao2025insights, table 1: bytes of a token, two an element.
@pytest.mark.parametrize(
    ("name", "published"),
    [("deepseek-v3", 70_272), ("qwen2.5-72b", 327_680), ("llama3-405b", 516_096)],
)
def test_what_is_kept_of_a_token_is_as_published(name, published):
    model = library.model(name)
    assert 2 * model.layers * model.cached == published


# deepseek2024v3, README_WEIGHTS.md of the repository: 11.5 billion of its own, the last digit cut.
def test_a_layer_that_looks_ahead_is_a_layer_and_a_projection():
    model = library.model("deepseek-v3")
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    experts = 257 * 3 * 7168 * 2048 + 256 * 7169
    norms = 5 * 7168 + 1536 + 512
    own = attention + experts + norms + 2 * 7168 * 7168
    assert model.predictor_parameters == own == pytest.approx(11.55e9, abs=0.1e9)
    assert SMALL.predictor_parameters == 0
    dense = replace(SMALL, predictors=2)
    assert dense.predictor_parameters == 2 * ((192 + 480) + 5 * 8 + 2 * 64)
    assert dense.parameters == SMALL.parameters


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"hidden": 0}, "hidden"),
        ({"layers": 1.5}, "layers"),
        ({"kv_heads": 3}, "kv_heads"),
        ({"positions": 4}, "positions"),
        ({"position": Position.LEARNED}, "positions"),
        ({"norms": NormPlace.SHARED}, "parallel"),
        ({"global_every": 2}, "global_every"),
        ({"window": -1}, "window"),
        ({"score_cap": -1.0}, "score_cap"),
        ({"activation": "gelu"}, "activation"),
        ({"latent": LATENT}, "kv_heads"),
        ({"latent": LATENT, "kv_heads": 4}, "head_size"),
        ({"latent": LATENT, "kv_heads": 4, "head_size": 3, "qkv_bias": True}, "qkv_bias"),
        ({"experts": Experts(count=2, active=1, feed_forward=4, first_dense=3)},
         "experts.first_dense"),
    ],
)  # fmt: skip
def test_a_shape_that_does_not_fit_is_refused(change, field):
    with pytest.raises(InputError) as caught:
        replace(SMALL, **change)
    assert [problem.path for problem in caught.value.problems] == [field]


@pytest.mark.parametrize(
    ("part", "change", "field"),
    [
        (Experts(count=4, active=2, feed_forward=4), {"active": 5}, "active"),
        (Experts(count=4, active=2, feed_forward=4), {"shared": -1}, "shared"),
        (LATENT, {"query_rank": -1}, "query_rank"),
        (LATENT, {"value_size": 0}, "value_size"),
    ],
)
def test_a_part_that_does_not_fit_is_refused(part, change, field):
    with pytest.raises(InputError) as caught:
        replace(part, **change)
    assert caught.value.problems[0].path == field


@pytest.mark.parametrize(("tokens", "cached", "field"), [(0, 0, "tokens"), (1, -1, "cached")])
def test_work_of_no_token_is_refused(tokens, cached, field):
    with pytest.raises(InputError) as caught:
        SMALL.forward_flop(tokens, cached=cached)
    assert caught.value.problems[0].path == field


def test_a_layer_past_the_last_is_refused():
    with pytest.raises(InputError, match="below layers = 3"):
        SMALL.layer(3)


def test_every_activation_is_that_of_some_model():
    used = {library.model(name).activation for name in library.names("models")}
    assert used == set(Activation)


def test_a_router_has_a_row_an_expert_and_a_bias_where_it_says_so():
    # deepseek2024v3: 58 of 61 layers choose among 256 experts
    model = library.model("deepseek-v3")
    assert model.parameters.router == 58 * 256 * (7168 + 1)
    unbiased = replace(model, experts=replace(model.experts, router_bias=False))
    assert unbiased.parameters.router == 58 * 256 * 7168
