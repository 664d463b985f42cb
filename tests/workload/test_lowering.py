"""Both forms of a workload give the same arrays, and so the same choices."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields, is_dataclass, replace
from random import Random

import numpy as np
import pytest
from builders.named_models import gpt_layer
from builders.twice_written import at_least_one, gpt_by_hand, gpt_forward, twice_written

from crosstack.io import library
from crosstack.io.library.entries import names
from crosstack.machine.system import Parallelism
from crosstack.model.attention import attentions
from crosstack.model.choice_index import ChoiceIndex
from crosstack.model.choices import Choices, make_choices
from crosstack.model.conversions import Conversions
from crosstack.model.memory import kept_tensors
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs import serving
from crosstack.published.dfmodel.graphs.llm import llm_graph
from crosstack.workload.architectures import graphs
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.lowering import lowered
from crosstack.workload.operations import Role
from crosstack.workload.passes.backward import training
from crosstack.workload.transformer_training import Recompute
from crosstack.workload.workload import Workload

NAMED = ("splits", "layouts", "adds", "outside", "functions", "masked")
Tables = KernelGraph | Choices | ChoiceIndex | Conversions


def differing(a: Tables, b: Tables) -> list[str]:
    """Names of the tables that are not the same, but for what lists do not say."""
    found = []
    for name in (f.name for f in fields(a) if f.name not in NAMED):
        one, other = getattr(a, name), getattr(b, name)
        if is_dataclass(one):
            found += [f"{name}.{inner}" for inner in differing(one, other)]
        elif isinstance(one, np.ndarray):
            same = np.array_equal(one, other) and one.dtype == other.dtype
            found += [] if same else [name]
        elif one != other:
            found.append(name)
    return found


def differing_but_joins(a: KernelGraph, b: KernelGraph) -> list[str]:
    """The same; a graph without blocks that repeat says that nothing is handed on."""
    assert len(b.join_source) == 0
    return [name for name in differing(a, b) if not name.startswith("join_")]


def joined(arrays: KernelGraph) -> list[tuple[str, str, int]]:
    ends = zip(arrays.join_source, arrays.join_target, arrays.join_operand, strict=True)
    return [(arrays.names[i], arrays.names[j], int(place)) for i, j, place in ends]


class TestArrays:
    def test_a_layer_of_a_gpt_has_the_same_arrays_in_both_forms(self):
        old = llm_graph(training=False, hidden=24, sequence_length=10, n_heads=3, head_size=8)
        new = gpt_forward(sequence=10, heads=3, head=8)
        arrays = lowered(new, new.blocks[0].name, work=lambda operation: 1.0)
        # Which axis is tokens that chips may share, names of axes say alone.
        assert differing(old, arrays) == ["tokens", "across", "attends"]

    def test_a_backward_pass_written_by_hand_has_the_same_arrays_in_both_forms(self):
        old = llm_graph(training=True, hidden=24, sequence_length=10, n_heads=3, head_size=8)
        arrays = lowered(gpt_by_hand(sequence=10, heads=3, head=8), "forward", work=lambda _: 1.0)
        # Kernels by extents say what derivatives need that they do not read; of what one layer
        # hands back to the other, they leave out the sum.
        said = {"saved_input", "saved_output", "saved_mask"}
        joins = {f"join_{end}" for end in ("source", "target", "operand")}
        assert {*differing(old, arrays)} - joins == said
        assert joined(arrays) == [("Add_2", "Add_Prev_Layer", 0), ("K_bwd", "Loss_bwd", 0)]
        assert {*joined(arrays)} < {*joined(old)}

    @pytest.mark.parametrize(
        "first",
        [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(100, 1000, 300))],
    )
    def test_random_workloads_have_the_same_arrays_in_both_forms(self, first):
        for seed in range(first, first + 100):
            old, new, block = twice_written(Random(seed))
            arrays = lowered(new, block, work=at_least_one)
            assert [*differing_but_joins(old, arrays)] == [], f"seed {seed}"


@pytest.fixture(scope="session")
def tables_of(a_system, a_dimension):
    """Return a builder of the choices of a workload on a ring of tensor-parallel chips."""

    def build(workload: Workload, arrays: KernelGraph, *, chips: int, n_tiles: int, rules: str):
        found = rules_named(rules)
        system = a_system(network=(a_dimension(size=chips),), n_chips=chips)
        plan = make_plan(workload, system, (chips,), (Parallelism.TENSOR,), 1, found)
        return make_choices(workload, arrays, plan, n_tiles, found)

    return build


def unnamed(arrays: KernelGraph, like: KernelGraph) -> KernelGraph:
    """Return the same kernels as a list says them."""
    return replace(arrays, **{name: getattr(like, name) for name in NAMED})


class TestTables:
    @pytest.mark.parametrize("rules", ["crosstack", "dfmodel-e3b"])
    @pytest.mark.parametrize("chips", [1, 4])
    def test_a_layer_of_a_gpt_has_the_same_choices_in_both_forms(self, tables_of, rules, chips):
        old = llm_graph(training=False, hidden=24, sequence_length=10, n_heads=3, head_size=8)
        new = gpt_forward(sequence=10, heads=3, head=8)
        workload = Workload(graph=old, sequence_length=10, n_layers=3)
        arrays = lowered(new, new.blocks[0].name, work=lambda operation: 1.0)
        how = {"chips": chips, "n_tiles": 2, "rules": rules}
        before = tables_of(workload, old, **how)
        after = tables_of(workload, unnamed(arrays, old), **how)
        assert differing(before, after) == []
        assert differing(before.index, after.index) == []

    @pytest.mark.parametrize(
        ("first", "step"), [(0, 50), pytest.param(1, 15, marks=pytest.mark.slow)]
    )
    @pytest.mark.parametrize("rules", ["crosstack", "dfmodel-e3b"])
    def test_random_workloads_have_the_same_choices_in_both_forms(
        self, tables_of, rules, first, step
    ):
        for seed in range(first, 1000, step):
            old, new, block = twice_written(Random(seed))
            workload = Workload(graph=old, sequence_length=old.kernels[0].n)
            arrays = lowered(new, block, work=at_least_one)
            how = {"chips": 2 + seed % 5, "n_tiles": 1 + seed % 3, "rules": rules}
            before = tables_of(workload, old, **how)
            after = tables_of(workload, unnamed(arrays, old), **how)
            assert differing(before, after) == [], f"seed {seed}"
            assert differing(before.index, after.index) == [], f"seed {seed}"


def products(arrays: KernelGraph, *, turned: bool = False, backward: bool = False) -> Counter:
    """Extents, tiles, weights and operands of the products of one direction.

    ``turned``: rows and columns may be the other way round, and heads be among them.
    """
    chosen = np.nonzero(arrays.gemm & (arrays.backward == backward))[0].tolist()
    shape = np.stack([arrays.outer, arrays.m, arrays.columns, arrays.tiling], axis=1)
    if turned:
        shape = np.prod(shape[:, :3], axis=1, keepdims=True)
    return Counter(
        (
            *shape[i].tolist(), int(arrays.k[i]), bool(arrays.has_weight[i]),
            *sorted(arrays.input_sizes[i].tolist()), float(arrays.output_size[i]),
        )
        for i in chosen
    )  # fmt: skip


def reads_of_caches(arrays: KernelGraph) -> Counter:
    """Bytes that each kernel reads of a cache, and of its readers what they read without it."""
    kept = np.nonzero(arrays.cache_size)[0].tolist()
    ends = zip(arrays.source, arrays.elided, arrays.target, arrays.operand, strict=True)
    return Counter(
        (float(arrays.cache_size[i]), int(arrays.rows[i] * arrays.columns[i]), readers)
        for i in kept
        for readers in [tuple((e, int(arrays.k[t]), int(o)) for s, e, t, o in ends if s == i)]
    )


class TestRegistry:
    """Graphs of the registry beside kernels that were written by hand, of the same models."""

    def test_products_of_gpt3_are_those_written_by_hand(self):
        model = library.model("gpt3-175b")
        new = lowered(graphs.training(model, sequence=2048), "layers")
        old = llm_graph(
            training=True, hidden=12288, sequence_length=2048, n_heads=96, head_size=128
        )
        assert products(new) == products(old)
        # Gradients of keys and values add up over queries tile by tile; by hand they have columns.
        assert products(new, backward=True, turned=True) == products(
            old, backward=True, turned=True
        )

    def test_products_and_caches_of_llama3_are_those_written_by_hand(self):
        model = library.model("llama3.1-70b")
        new = lowered(graphs.prefill(model, sequence=2048), "layers")
        old = serving.prefill(model, tokens=2048).graph
        assert products(new, turned=True) == products(old, turned=True)
        # Scores of grouped queries are the one product that is turned.
        assert (products(new) - products(old)).total() == 1
        new = lowered(graphs.decode(model, context=2048), "layers")
        old = serving.decode(model, context=2048).graph
        assert products(new, turned=True) == products(old, turned=True)
        assert reads_of_caches(new) == reads_of_caches(old)

    def test_a_chosen_expert_is_read_where_it_lies(self):
        model = library.model("mixtral-8x7b")
        arrays = lowered(graphs.decode(model, context=64), "layers")
        assert not any(name.endswith("_chosen") for name in arrays.names)
        read = {arrays.names[i]: arrays.cache_size[i] for i in np.nonzero(arrays.cache_size)[0]}
        size = 2 * 2 * model.hidden * model.experts.feed_forward  # two experts in bf16
        assert {name: s for name, s in read.items() if name.startswith("expert_")} == {
            f"expert_{name}": size for name in ("up", "gate", "down")
        }

    def test_latent_attention_reads_what_is_kept_once(self):
        model = library.model("deepseek-v2")
        arrays = lowered(graphs.decode(model, context=64, batch=8), "expert_layers")
        kept = np.nonzero(arrays.cache_size)[0].tolist()
        assert [arrays.names[i] for i in kept if "latent" in arrays.names[i]] == [
            "expert_latent_all"
        ]
        read = {arrays.names[t] for s, t in zip(arrays.source, arrays.target, strict=True)
                if s == kept[0]}  # fmt: skip
        assert read == {"expert_scores", "expert_attended"}

    def test_gradients_of_norms_and_biases_are_added_up_beside_others(self):
        model = library.model("gpt3-175b")
        graph = graphs.training(model, sequence=64)
        arrays = lowered(graph, "layers")
        back = [arrays.names[i] for i in np.nonzero(arrays.backward & ~arrays.gemm)[0]]
        assert {*back} == {
            "active_bwd0", "feed_forward_norm_bwd0", "attention_added_gradient", "weights_bwd0",
            "attention_norm_gradient_1", "attention_norm_gradient", "attention_norm_bwd0",
            "x_dropped_gradient", "attention_dropped_bwd0", "weights_dropped_bwd0",
            "feed_forward_dropped_bwd0",
        }  # fmt: skip
        # All gradients of the layer are sent.
        sizes = [size for size in arrays.periodic_size.tolist() if size]
        layer = [t for t in graph.tensors if t.role is Role.WEIGHT and "layer" in t.axes]
        assert sum(sizes) * model.layers == sum(graph.size(t.name) for t in layer)
        assert len(sizes) == 6

    @pytest.mark.parametrize(
        "name",
        [
            pytest.param(name, marks=() if place % 3 == 0 else pytest.mark.slow)
            for place, name in enumerate(names("models"))
        ],
    )
    def test_every_block_of_every_model_has_arrays(self, name):
        model = library.model(name)
        made = (
            graphs.training(model, sequence=64, batch=2),
            graphs.prefill(model, sequence=64, batch=2),
            graphs.decode(model, context=64, batch=2),
        )
        for graph in made:
            blocks = [block for block in graph.blocks if not block.twin]
            found = [lowered(graph, block.name) for block in blocks]
            work = sum(
                # A graph counts all places of experts, arrays those that tokens fill.
                (arrays.work / arrays.routing[:, 2]).sum() * graph.repeats(block)
                for arrays, block in zip(found, blocks, strict=True)
            )
            # Gradients of biases are added up by products, whose own work is thousands of times it.
            biased = model.qkv_bias or model.output_bias or model.feed_forward_bias
            exact = 5e-3 if biased and graph is made[0] else 1e-9
            assert work == pytest.approx(graph.total_work, rel=exact)
            # Attention is found by its structure, once in each direction of a layer.
            for arrays, block in zip(found, blocks, strict=True):
                directions = 1 + bool(arrays.backward.any())
                assert len(attentions(arrays)) == (directions * block.layers if block.axis else 0)


class TestKept:
    # korthikanti2023reducing, equation 1; section 5 for what is computed again.
    @pytest.mark.parametrize(("recompute", "scores"), [("none", 5), ("attention", 0)])
    def test_the_account_of_memory_finds_what_a_derived_backward_pass_reads(
        self, recompute, scores
    ):
        s, b, a, head = 64, 3, 4, 16
        h = a * head
        layer = gpt_layer(batch=b, sequence=s, heads=a, head=head, ff=4 * h, causal=False)
        graph = training(layer, "loss", of=(Role.WEIGHT, Role.INPUT))
        arrays = lowered(graph, graph.blocks[0].name)
        kept = kept_tensors(arrays, Recompute(recompute))
        found = (
            (kept.output * arrays.output_size).sum()
            + (kept.mask * arrays.rows * arrays.columns).sum()
            + (kept.operands * arrays.input_sizes).sum()
        )
        assert found == 34 * s * b * h + scores * a * s * s * b

    @pytest.mark.parametrize("name", ["llama3-8b", "gpt3-175b", "falcon-40b", "gemma3-4b"])
    def test_full_recomputation_keeps_what_a_layer_reads_once(self, name):
        """2 s b h (korthikanti2023reducing, section 5), and the places of tokens."""
        model = library.model(name)
        graph = graphs.training(model, sequence=64)
        for block in (b for b in graph.blocks if b.axis and not b.twin):
            arrays = lowered(graph, block.name)
            kept = kept_tensors(arrays, Recompute.FULL)
            found = (kept.output * arrays.output_size).sum()
            found += (kept.operands * arrays.input_sizes).sum()
            places = 4 * 64 * ("places" in graph.tensor and name != "gpt3-175b")
            assert found == 2 * 64 * model.hidden + places

    def test_readers_of_one_tensor_from_outside_know_that_it_is_one(self):
        graph = graphs.training(library.model("llama3-8b"), sequence=64)
        arrays = lowered(graph, "layers")
        found: dict[int, list[str]] = {}
        for i, place in np.argwhere(arrays.outside >= 0).tolist():
            found.setdefault(int(arrays.outside[i, place]), []).append(arrays.names[i])
        assert ((arrays.outside >= 0) == arrays.open_inputs).all()
        assert ["attention_norm", "attention_added", "attention_norm_bwd0"] in found.values()
        assert ["down_bwd0", "down_bwd1", "attention_added_gradient"] in found.values()
        assert (
            llm_graph(training=False, hidden=8, sequence_length=4, n_heads=2, head_size=4).outside
            < 0
        ).all()
