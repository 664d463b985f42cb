from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from builders import named_models
from builders.examples import fewer
from builders.random_graphs import random_graph
from hypothesis import given
from hypothesis import strategies as st
from oracles.differences import gradient_errors

from crosstack.errors import InputError
from crosstack.published.dfmodel.graphs.llm import llm_graph
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft
from crosstack.workload.functions import TABLE, Function
from crosstack.workload.operations import Role
from crosstack.workload.passes.backward import kept, training

MODELS = {
    "gpt": named_models.gpt_layer,
    "llama": named_models.llama,
    "mixture": named_models.mixture,
    "lstm": named_models.lstm,
    "cnn": named_models.convolutional,
}


class TestAgainstDifferences:
    @pytest.mark.parametrize("model", MODELS)
    def test_the_derived_gradient_of_a_model_is_that_of_differences(self, model):
        graph = MODELS[model]()
        found = gradient_errors(graph, named_models.values_of(graph))
        assert {*found} == {t.name for t in graph.tensors if t.role in (Role.WEIGHT, Role.INPUT)}
        for name, (derived, differences) in found.items():
            assert derived == pytest.approx(differences, rel=1e-5, abs=1e-8), name

    @fewer(0.4)
    @given(rng=st.randoms(use_true_random=False), operations=st.integers(1, 7))
    def test_the_derived_gradient_of_any_graph_is_that_of_differences(self, rng, operations):
        graph = random_graph(rng, operations)
        for name, (derived, differences) in gradient_errors(
            graph, named_models.values_of(graph)
        ).items():
            assert derived == pytest.approx(differences, rel=1e-5, abs=1e-6), name

    def test_random_graphs_have_every_function_that_has_a_derivative(self):
        from random import Random

        graphs = [random_graph(Random(seed)) for seed in range(200)]
        forward = {o.function for g in graphs for b in g.blocks for o in b.operations}
        assert {f for f in Function if TABLE[f].derivatives} <= forward


class TestWork:
    def test_products_of_a_gpt_layer_take_the_work_of_the_backward_pass_written_by_hand(self):
        shape = {"sequence": 10, "heads": 3, "head": 8}
        graph = named_models.gpt_layer(batch=1, ff=96, causal=False, biases=False, **shape)
        graph = training(graph, "loss", of=(Role.WEIGHT, Role.INPUT))
        derived = {
            kernel: Counter(
                graph.work(nest)
                for _, nest in graph.nests()
                if nest.operation.multiplies
                and kernel in (nest.operation.twin, nest.operation.name)
            )
            for kernel in ("Q", "K", "V", "MHA_GEMM_1", "MHA_GEMM_2", "PROJ_GEMM", "FFN0", "FFN1")
        }
        by_hand = llm_graph(training=True, hidden=24, sequence_length=10, n_heads=3, head_size=8)
        assert derived == {
            kernel: Counter(
                k.work
                for k in by_hand.kernels
                if k.kind.is_gemm and k.name.partition("_bwd")[0] == kernel
            )
            for kernel in derived
        }

    def test_a_layer_that_repeats_takes_its_work_every_time(self):
        one, three = (
            training(named_models.llama(layers=layers), "loss").total_work for layers in (1, 3)
        )
        both = training(named_models.llama(layers=2), "loss").total_work
        assert three - both == pytest.approx(both - one)

    def test_products_go_back_with_twice_the_work_where_everything_has_a_gradient(self):
        graph = named_models.convolutional()
        graph = training(graph, "loss", of=(Role.WEIGHT, Role.INPUT))
        work = Counter()
        for block, nest in graph.nests():
            if nest.operation.multiplies:
                work[block.twin != ""] += graph.work(nest)
        assert work[True] == 2 * work[False]


class TestKept:
    # korthikanti2023reducing, equation 1: 34 s b h + 5 a s^2 b, with masks of one byte.
    @pytest.mark.parametrize("biases", [True, False])
    def test_a_gpt_layer_with_dropout_keeps_what_is_published(self, biases):
        s, b, a, head = 64, 3, 4, 16
        h = a * head
        graph = named_models.gpt_layer(
            batch=b, sequence=s, heads=a, head=head, ff=4 * h, causal=False, biases=biases
        )
        found = kept(training(graph, "loss"))
        assert found.pop("probe") == 2 * s * b * h  # of the loss
        assert sum(found.values()) == 34 * s * b * h + 5 * a * s * s * b

    def test_a_layer_that_repeats_keeps_its_tensors_every_time(self):
        one, three = (
            kept(training(named_models.llama(layers=layers), "loss")) for layers in (1, 3)
        )
        assert {name: three[name] / one[name] for name in one if name in three} == {
            name: 1.0 if name in ("tokens", "labels", "places", "norm", "logits", "x_out") else 3.0
            for name in one
        }


class TestRecords:
    def test_the_forward_part_stays_as_it_is(self):
        graph = named_models.llama()
        trained = training(graph, "loss")
        assert trained.blocks[: len(graph.blocks)] == graph.blocks
        assert trained.tensors[: len(graph.tensors)] == graph.tensors

    def test_a_block_that_repeats_goes_back_the_other_way(self):
        graph = training(named_models.llama(), "loss")
        block = next(b for b in graph.blocks if b.twin == "layers")
        assert (block.axis, block.reverse) == ("layer", True)
        assert graph.tensor[graph.gradients["w_up"]].axes == graph.tensor["w_up"].axes

    def test_an_operation_knows_the_one_whose_derivative_it_belongs_to(self):
        graph = training(named_models.gpt_layer(), "loss")
        names = {o.name for b in graph.blocks for o in b.operations}
        twins = {o.twin for b in graph.blocks if b.twin for o in b.operations} - {""}
        assert twins <= names
        assert "SOFTMAX" in twins

    def test_a_gradient_has_the_dtype_axes_and_mask_of_its_tensor(self):
        graph = training(named_models.gpt_layer(), "loss")
        for name, gradient in graph.gradients.items():
            tensor, made = graph.tensor[name], graph.tensor[gradient]
            assert (made.axes, made.dtype, made.role) == (tensor.axes, tensor.dtype, Role.GRADIENT)

    def test_one_reader_hands_back_the_gradient_without_a_sum(self):
        graph = training(chain(), "loss")
        functions = [o.function for b in graph.blocks if b.twin for o in b.operations]
        assert Function.ADD not in functions


def chain() -> Graph:
    draft = Draft()
    draft.axis(AxisUse.TOKEN, sequence=3)
    draft.axis(hidden=4, wide=2)
    x, w = draft.tensor("x", "sequence hidden"), draft.weight("w", "hidden wide")
    y = draft.make("y", Function.TANH, draft.product("product", x, w, "sequence wide"))
    draft.reduced("loss", Function.SUM, y, over="sequence wide")
    return draft.graph()


class TestRefused:
    def test_a_loss_has_no_axes(self):
        with pytest.raises(InputError, match="loss: got 'y'; allowed: a tensor without axes"):
            training(chain(), "y")

    def test_a_loss_depends_on_what_has_a_gradient(self):
        with pytest.raises(InputError, match="role optimizer_state"):
            training(chain(), "loss", of=(Role.OPTIMIZER_STATE,))

    def test_a_function_without_a_derivative_is_named(self):
        graph = chain()
        twice = training(graph, "loss")
        gradient = twice.gradients["w"]
        draft = Draft(axes=[*twice.axes], tensors=dict(twice.tensor), blocks=[*twice.blocks])
        draft.reduced("norm", Function.SUM, gradient, over="hidden wide")
        again = draft.graph()
        with pytest.raises(InputError, match="got 'tanh_gradient'; allowed: a function with a der"):
            training(again, "norm")

    def test_names_of_both_passes_differ(self):
        graph = chain()
        block = graph.blocks[0]
        named = replace(
            graph,
            tensors=(*graph.tensors, replace(graph.tensor["w"], name="product_bwd1")),
        )
        assert training(named, "loss").gradients["w"] != "product_bwd1"
        assert block in training(named, "loss").blocks
