"""A small transformer of every kind of architecture, and what its graphs read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crosstack.workload.architectures import (
    Activation,
    Experts,
    LatentAttention,
    Norm,
    NormPlace,
    Position,
    Transformer,
)
from crosstack.workload.dataflow import Graph
from crosstack.workload.operations import Role

LLAMA = Transformer(
    hidden=6, layers=2, heads=4, kv_heads=2, head_size=2, feed_forward=5, vocabulary=7, context=16
)
GPT = replace(
    LLAMA, kv_heads=4, gated=False, activation=Activation.GELU, norm=Norm.LAYER,
    position=Position.LEARNED, positions=16, tied=True, qkv_bias=True, output_bias=True,
    feed_forward_bias=True,
)  # fmt: skip
MIXTRAL = replace(LLAMA, experts=Experts(count=4, active=2, feed_forward=3))
DEEPSEEK = replace(
    LLAMA,
    layers=3,
    kv_heads=4,
    head_size=4,
    latent=LatentAttention(
        query_rank=3, key_value_rank=5, content_size=2, rotary_size=2, value_size=3
    ),
    experts=Experts(count=6, active=2, feed_forward=3, shared=2, first_dense=1),
)
FALCON = replace(
    GPT, kv_heads=1, position=Position.ROTARY, positions=0, norms=NormPlace.SHARED, parallel=True,
    qkv_bias=False, output_bias=False, feed_forward_bias=False,
)  # fmt: skip
GEMMA = replace(
    LLAMA, layers=4, activation=Activation.GELU, tied=True, norms=NormPlace.BOTH, window=3,
    global_every=2, qk_norm=True,
)  # fmt: skip

SMALL = {
    "gpt": GPT,
    "gpt-dropped": replace(GPT, dropout=True),
    "gpt-plain": replace(GPT, tied=False, qkv_bias=False, output_bias=False),
    "llama": LLAMA,
    "qwen2.5": replace(LLAMA, qkv_bias=True),
    "mistral": replace(LLAMA, window=2),
    "window-of-one": replace(LLAMA, window=1),
    "gemma2": replace(GEMMA, qk_norm=False, score_cap=1.5, logit_cap=1.2),
    "gemma3": GEMMA,
    "falcon-7b": FALCON,
    "falcon-40b": replace(FALCON, norms=NormPlace.BEFORE, kv_heads=2),
    "parallel-after": replace(FALCON, norms=NormPlace.AFTER),
    "parallel-both": replace(FALCON, norms=NormPlace.BOTH, norm=Norm.RMS),
    "opt": replace(GPT, activation=Activation.RELU),
    "opt-350m": replace(GPT, activation=Activation.RELU, norms=NormPlace.AFTER, embedding=4),
    "bloom": replace(GPT, position=Position.ALIBI, positions=0, embedding_norm=True),
    "nemotron": replace(LLAMA, gated=False, activation=Activation.SQUARED_RELU, norm=Norm.LAYER),
    "gated-relu": replace(LLAMA, activation=Activation.RELU, feed_forward_bias=True),
    "mixtral": MIXTRAL,
    "experts-with-biases": replace(
        MIXTRAL, feed_forward_bias=True, experts=replace(MIXTRAL.experts, shared=2)
    ),
    "every-other": replace(MIXTRAL, layers=4, experts=replace(MIXTRAL.experts, every=2), window=2),
    "taking-turns": replace(
        MIXTRAL, layers=11, experts=replace(MIXTRAL.experts, every=2), window=2, global_every=4
    ),
    "deepseek-v2-lite": replace(DEEPSEEK, latent=replace(DEEPSEEK.latent, query_rank=0)),
    "deepseek-v2": DEEPSEEK,
    "deepseek-v3": replace(
        DEEPSEEK, predictors=2, experts=replace(DEEPSEEK.experts, router_bias=True)
    ),
}


def weights_of(graph: Graph, seed: int = 0) -> dict[str, np.ndarray]:
    """Random weights by name."""
    rng = np.random.default_rng(seed)
    return {
        t.name: rng.normal(0, 0.1 if t.name.startswith("b_") else 0.6, shape(graph, t.name))
        for t in graph.tensors
        if t.role is Role.WEIGHT
    }


def shape(graph: Graph, name: str) -> tuple[int, ...]:
    return tuple(graph.sizes[axis] for axis in graph.tensor[name].axes)


def outside_of(model: Transformer, graph: Graph, start: int = 0, seed: int = 1) -> dict:
    """Indices and constants of a graph whose first new token stands at a place."""
    rng = np.random.default_rng(seed)
    found = {}
    for tensor in graph.tensors:
        if tensor.name in graph.makers or tensor.role not in (
            Role.INDEX, Role.CONSTANT, Role.MASK
        ):  # fmt: skip
            continue
        size = shape(graph, tensor.name)
        match tensor.name:
            case "places":
                found[tensor.name] = start + np.arange(*size)
            case "last":
                found[tensor.name] = np.full(size, graph.sizes["sequence"] - 1)
            case "slopes":
                found[tensor.name] = np.outer(np.arange(1, size[0] + 1), 0.3 * np.arange(size[1]))
            case _ if tensor.role is Role.MASK:
                found[tensor.name] = rng.integers(0, 2, size)
            case _:
                found[tensor.name] = rng.integers(0, model.vocabulary, size)
    return found
