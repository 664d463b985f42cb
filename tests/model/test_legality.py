"""Claims about what a temporal chip may run as one kernel."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from crosstack.io import library
from crosstack.machine.chip import GPU_FUSIONS
from crosstack.machine.framework import Fusion
from crosstack.mapping.ideals import to_words
from crosstack.model.attention import attentions
from crosstack.model.legality import make_legality
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.published.dfmodel.graphs.serving import decode, prefill
from crosstack.workload.architectures import graphs
from crosstack.workload.kernel_graph import bits
from crosstack.workload.kernels import KernelKind
from crosstack.workload.lowering import lowered

GPT = llm(hidden=256, sequence_length=64, n_heads=4, head_size=64, n_layers=1, global_batch_size=1)
LLAMA = prefill(library.model("llama3-8b"), tokens=64, global_batch_size=1)
MANY = lowered(graphs.training(library.model("deepseek-v3"), sequence=64), "expert_layers")
ARRAYS = GPT.graph


def mask(*names, arrays=ARRAYS):
    return sum(1 << arrays.names.index(name) for name in names)


def legal(*names, fusions=GPU_FUSIONS, network=None):
    return make_legality(ARRAYS, fusions, network).allows(mask(*names))


def test_an_attention_is_a_product_what_follows_it_and_the_products_that_end_it():
    found = {
        tuple(ARRAYS.names[i] for i in bits(held)): ARRAYS.names[bits(first)[0]]
        for first, held in attentions(ARRAYS)
    }
    assert found == {
        ("MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2"): "MHA_GEMM_1",
        (
            "MHA_GEMM_2_bwd1", "DropOut_1_bwd", "SOFTMAX_bwd", "MHA_GEMM_1_bwd1", "MHA_GEMM_1_bwd2",
        ): "MHA_GEMM_2_bwd1",
    }  # fmt: skip


def test_a_gated_network_is_no_attention():
    arrays = LLAMA.graph
    ((_, held),) = attentions(arrays)
    assert {arrays.names[i] for i in bits(held) if arrays.gemm[i]} == {"MHA_GEMM_1", "MHA_GEMM_2"}


@pytest.mark.parametrize(
    ("kernels", "fusion"),
    [
        (("MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2"), Fusion.ATTENTION),
        (("FFN0", "GeLU"), Fusion.EPILOGUE),
        (("FFN1", "DropOut_3", "Add_2"), Fusion.EPILOGUE),
        (("Add_1", "LayerNorm_2"), Fusion.NORMALISATION),
        (("DropOut_2", "Add_1"), Fusion.ELEMENTWISE),
        (("Loss_bwd", "DropOut_3_bwd"), Fusion.ELEMENTWISE),
    ],
)
def test_a_fusion_is_legal_where_the_chip_has_it(kernels, fusion):
    assert legal(*kernels)
    others = tuple(each for each in Fusion if each is not fusion)
    assert not legal(*kernels, fusions=others)


@pytest.mark.parametrize(
    ("kernels", "why"),
    [
        (("FFN0", "GeLU", "FFN1"), "several products"),
        (("Q", "K"), "several products"),
        (("MHA_GEMM_2", "PROJ_GEMM"), "several products"),
        (("MHA_GEMM_1", "SOFTMAX"), "whole rows"),
        (("PROJ_GEMM", "DropOut_2", "Add_1", "LayerNorm_2"), "whole rows"),
        (("GeLU", "FFN1"), "do not name"),
        (("DropOut_2", "DropOut_3"), "no tensor"),
        (("FFN0", "Add_2"), "no tensor"),
    ],
)
def test_what_is_never_one_kernel_says_why(kernels, why):
    rules = make_legality(ARRAYS, GPU_FUSIONS)
    assert not rules.allows(mask(*kernels))
    assert why in rules.why(mask(*kernels))


def test_two_products_are_one_in_an_attention_alone():
    rules = make_legality(ARRAYS, GPU_FUSIONS)
    held = [held for _, held in attentions(ARRAYS)]
    products = [i for i, k in enumerate(GPT.graph.kernels) if k.kind is not KernelKind.ELEMENTWISE]
    products = [i for i in products if ARRAYS.gemm[i]]
    for i, j in itertools.combinations(products, 2):
        between = [k for k in range(ARRAYS.n) if k not in (i, j)]
        for size in range(3):
            for others in itertools.combinations(between, size):
                inside = sum(1 << k for k in (i, j, *others))
                assert not rules.allows(inside) or any(not inside & ~each for each in held)


def test_what_is_exchanged_leaves_the_chip_first():
    network = np.zeros(ARRAYS.n)
    assert legal("PROJ_GEMM", "DropOut_2", network=network)
    network[ARRAYS.names.index("PROJ_GEMM")] = 1e-6
    assert not legal("PROJ_GEMM", "DropOut_2", network=network)
    assert legal("DropOut_2", "Add_1", network=network)
    network[ARRAYS.names.index("MHA_GEMM_1")] = 1e-6
    assert not legal("MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2", network=network)


def test_a_cache_is_read_from_main_memory():
    decoding = decode(library.model("llama3-8b"), context=64, global_batch_size=1)
    arrays = decoding.graph
    rules = make_legality(arrays, GPU_FUSIONS)
    assert not rules.allows(mask("K_cache", "MHA_GEMM_1", arrays=arrays))
    assert rules.allows(mask("MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2", arrays=arrays))


def test_everything_is_every_kernel():
    assert bits(make_legality(ARRAYS, GPU_FUSIONS).everything) == list(range(ARRAYS.n))


def test_parts_of_partitions_keep_the_hereditary_rules():
    """What the search relies on where kernels are left out: no part of a partition is ruled out."""
    rules, random = make_legality(ARRAYS, GPU_FUSIONS), np.random.default_rng(5)
    partitions = {1 << i for i in range(ARRAYS.n)}
    for _ in range(4):  # grow them, kernel by kernel
        grown = {part | 1 << i for part in partitions for i in range(ARRAYS.n)}
        partitions |= {part for part in grown if rules.allows(part)}
    assert max(part.bit_count() for part in partitions) >= 4
    for part in partitions:
        members = bits(part)
        kept = [i for i in members if random.random() < 0.6] or members
        assert rules.may_grow(sum(1 << i for i in kept))
        assert rules.of(kept).allows((1 << len(kept)) - 1)


@pytest.mark.parametrize("arrays", [ARRAYS, LLAMA.graph, MANY], ids=["gpt", "llama", "many"])
def test_many_sets_at_once_are_allowed_as_each_is(arrays):
    rng = np.random.default_rng(3)
    rules = make_legality(arrays, GPU_FUSIONS, rng.random(arrays.n) < 0.1)
    n, sets = arrays.n, set[int]()
    for _ in range(3000):  # pieces of a graph, some with another kernel
        inside = 1 << int(rng.integers(n))
        for _ in range(int(rng.integers(8))):
            near = [j for i in bits(inside) for j in bits(rules.joined[i])]
            inside |= 1 << int(
                rng.choice(near) if near and rng.random() < 0.95 else rng.integers(n)
            )
        sets.add(inside)
    sets |= {held for _, held in rules.attentions}
    masks = sorted(sets)
    for several in (rules, rules.of(range(0, n, 2))):
        some = [m for m in masks if m < 1 << len(several.joined)]
        words = to_words(some, len(several.joined))
        expected = [several.allows(m) for m in some]
        assert several.allowed(words).tolist() == expected
        assert {True, False} == {*expected}
