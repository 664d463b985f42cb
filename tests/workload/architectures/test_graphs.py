"""Graphs of transformers: all that their record says, its numbers, and what they compute."""

from __future__ import annotations

from dataclasses import replace
from time import process_time

import numpy as np
import pytest
from builders.small_models import DEEPSEEK, GPT, LLAMA, MIXTRAL, SMALL, outside_of, weights_of
from oracles.differences import gradient_errors
from oracles.interpreter import run

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.library.entries import names
from crosstack.workload.architectures import Transformer
from crosstack.workload.architectures.graphs import decode, forward, prefill, training
from crosstack.workload.architectures.layer import NormPlace
from crosstack.workload.architectures.layer_runs import layer_runs
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role
from crosstack.workload.passes.routing import places, routing_of
from crosstack.workload.sharding import PARTIAL, splits

REGISTRY = names("models")
ROOM = 3.0  # experts that have room for all that may choose them drop nothing

# Latent attention has two ways to keep tokens.
WAYS = [(k, a) for k, m in SMALL.items() for a in (True, False) if a or m.latent is not None]

LONG = ("taking-turns", "deepseek-v3")  # differences of many weights

every_kind = pytest.mark.parametrize("model", SMALL.values(), ids=SMALL)
every_model = pytest.mark.parametrize("name", REGISTRY)


def products(graph: Graph, tokens: int) -> float:
    """Work of products on what counts, for each of some tokens. [FLOP]"""
    spread = places(graph)
    found = (
        graph.work(nest)
        * graph.density(nest.operation)
        * routing_of(graph, nest, spread).filled
        * graph.repeats(block)
        for block, nest in graph.nests()
        if nest.operation.multiplies
    )
    return sum(found) / tokens


def even(model: Transformer) -> int:
    """Tokens of which each expert gets a whole number."""
    return 2 * (1 if model.experts is None else model.experts.count)


class TestRegistry:
    """Every model of the registry, as it is published."""

    @every_model
    def test_weights_are_the_parameters_of_the_record(self, name):
        model = library.model(name)
        for graph in (
            forward(model, sequence=8),
            prefill(model, sequence=8),
            decode(model, context=8),
        ):
            assert graph.n_parameters == model.parameters.total

    @pytest.mark.slow
    @every_model
    def test_training_has_the_weights_of_layers_that_predict_besides(self, name):
        model = library.model(name)
        graph = training(model, sequence=8)
        assert graph.n_parameters == model.parameters.total + model.predictor_parameters
        # A bias that evens the load of experts is changed by rule, not by a gradient.
        trained = {*graph.gradients}
        assert {t.name for t in graph.tensors if t.role is Role.WEIGHT} - trained == {
            t.name for t in graph.tensors if t.name.endswith("b_router")
        }

    @every_model
    def test_products_take_the_work_of_the_record(self, name):
        model = library.model(name)
        sequence = min(even(model), model.context)
        wanted = model.forward_flop(sequence).total
        assert products(forward(model, sequence=sequence), sequence) == pytest.approx(wanted)

    @every_model
    def test_products_of_training_take_three_times_the_work(self, name):
        model = replace(library.model(name), predictors=0)
        sequence = even(model)
        wanted = 3 * model.forward_flop(sequence).total
        assert products(training(model, sequence=sequence), sequence) == pytest.approx(wanted)

    @pytest.mark.slow
    @every_model
    def test_products_of_writing_take_the_work_of_the_record(self, name):
        model = library.model(name)
        for tokens in (1, 4):
            graph = decode(model, context=model.context - 4, tokens=tokens)
            wanted = model.forward_flop(tokens, cached=model.context - 4, absorbed=True).total
            assert products(graph, tokens) == pytest.approx(wanted)

    @every_model
    def test_writing_reads_what_is_kept(self, name):
        model = library.model(name)
        graph = decode(model, context=5, batch=3)
        kept = sum(graph.count(t.axes) for t in graph.tensors if t.role is Role.KV_CACHE)
        assert kept == 3 * 5 * model.layers * model.cached
        graph = prefill(model, sequence=5, batch=3)
        assert kept == sum(graph.count(t.axes) for t in graph.tensors if t.role is Role.KV_CACHE)

    def test_all_graphs_are_made_in_seconds(self):
        start = process_time()
        for name in REGISTRY:
            model = library.model(name)
            training(model, sequence=1024)
            prefill(model, sequence=1024)
            decode(model, context=1000)
        assert process_time() - start < 20

    def test_blocks_repeat_as_often_as_there_are_layers(self):
        for name in REGISTRY:
            model = library.model(name)
            graph = forward(model, sequence=2)
            blocks = [block for block in graph.blocks if block.axis]
            counted = [graph.repeats(block) * block.layers for block in blocks]
            assert sum(counted) == model.layers, name
            assert max(counted) > model.layers / 2, name

    def test_layers_of_several_kinds_take_turns_in_their_order(self):
        kinds = {
            "gemma3-27b": "wwwwwg" * 10 + "ww",
            "gpt-oss-20b": "wg" * 12,
            "llama3-8b": "g" * 32,
        }
        for name, wanted in kinds.items():
            runs = layer_runs(library.model(name))
            found = [kind for run in runs for _ in range(run.count) for kind in run.kinds]
            assert "".join("w" if kind.window else "g" for kind in found) == wanted
        dense, experts = layer_runs(library.model("deepseek-v3"))
        assert (dense.label, dense.count) == ("dense_", 3)
        assert (experts.label, experts.count) == ("expert_", 58)

    @pytest.mark.parametrize(
        ("changes", "runs"),
        [
            ({"layers": 7, "global_every": 3}, [("", 2, 3), ("last_window_", 1, 1)]),
            ({"layers": 5, "global_every": 3}, [("window_", 4, 1), ("global_", 1, 1)]),
            ({"layers": 6, "global_every": 1}, [("", 6, 1)]),
            ({"layers": 60, "global_every": 20}, [("window_", 57, 1), ("global_", 3, 1)]),
            ({"layers": 9, "global_every": 4}, [("", 2, 4), ("last_window_", 1, 1)]),
        ],
    )  # fmt: skip
    def test_groups_that_do_not_repeat_are_blocks_by_kind(self, changes, runs):
        model = replace(LLAMA, window=4, **changes)
        found = [(run.label, run.count, len(run.kinds)) for run in layer_runs(model)]
        assert found == runs


class TestWindows:
    def test_scores_beyond_a_window_are_left_out(self):
        model = library.model("gemma3-1b")
        sequence = 2048
        wanted = model.forward_flop(sequence).total
        assert products(forward(model, sequence=sequence), sequence) == pytest.approx(wanted)

    def test_layers_with_a_window_read_no_more_than_it(self):
        graph = decode(library.model("gemma3-1b"), context=1000)
        assert (graph.sizes["context"], graph.sizes["window_context"]) == (1000, 511)


class TestGradients:
    @pytest.mark.parametrize(
        "model",
        [
            pytest.param(model, marks=pytest.mark.slow if name in LONG else (), id=name)
            for name, model in SMALL.items()
        ],
    )
    def test_the_derived_gradient_is_that_of_differences(self, model):
        graph = forward(model, sequence=3, batch=2, loss=True, capacity=ROOM)
        values = weights_of(graph) | outside_of(model, graph)
        found = gradient_errors(graph, values, of=(Role.WEIGHT,))
        for name, (derived, differences) in found.items():
            assert derived == pytest.approx(differences, rel=1e-5, abs=1e-8), name
        left = {t.name for t in graph.tensors if t.role is Role.WEIGHT} - {*found}
        assert all(name.endswith("b_router") for name in left)


def caches(model: Transformer, read: Graph, found: dict, graph: Graph) -> dict[str, np.ndarray]:
    """What writing reads of what reading kept: the tokens that layers still look at."""
    kept = [t for t in read.tensors if t.role is Role.KV_CACHE]
    given = {}
    for tensor in (t for t in graph.tensors if t.role is Role.KV_CACHE):
        same = [t for t in kept if t.axes[0] == tensor.axes[0]]
        if "latent_size" in tensor.axes:
            value = np.concatenate([found[t.name] for t in same], axis=-1)
        else:
            first = next(t for t in same if t.axes[3:] == tensor.axes[3:])
            kept.remove(first)
            value = found[first.name]
        given[tensor.name] = value[:, :, -graph.sizes[tensor.axes[2]] :]
    return given


class TestWriting:
    """What is written after some tokens is what reading all of them makes."""

    @pytest.mark.parametrize("tokens", [1, 2])
    @pytest.mark.parametrize(("kind", "absorbed"), WAYS)
    def test_words_are_those_of_reading_all_tokens(self, kind, absorbed, tokens):
        model = SMALL[kind]
        context, sizes = 5, {"batch": 2, "capacity": ROOM}
        whole = forward(model, sequence=context + tokens, **sizes)
        values = weights_of(whole) | outside_of(model, whole)
        words = "logits_capped" if model.logit_cap else "logits"
        wanted = run(whole, values)[words]

        read = prefill(model, sequence=context, absorbed=absorbed, **sizes)
        start = outside_of(model, read) | {"tokens": values["tokens"][:, :context]}
        found = run(read, values | start)
        assert found[words] == pytest.approx(wanted[:, context - 1], rel=1e-9)

        step = decode(model, context=context, tokens=tokens, absorbed=absorbed, **sizes)
        new = outside_of(model, step, start=context) | {"tokens": values["tokens"][:, context:]}
        made = run(step, values | new | caches(model, read, found, step))
        assert made[words] == pytest.approx(wanted[:, context:], rel=1e-9)

    def test_absorbed_heads_are_rows_of_one_product(self):
        graph = decode(DEEPSEEK, context=5, batch=2)
        nest = next(n for _, n in graph.nests() if n.operation.name == "expert_scores")
        assert [graph.count(getattr(nest.product, g)) for g in ("outer", "m", "k", "n")] == [
            2, 6, 5 + 2, 4,
        ]  # fmt: skip


class TestSplits:
    """Tensor parallelism is a split by heads and by the width inside: nothing is said of it."""

    @pytest.mark.parametrize("name", ["gpt3-175b", "llama3.1-70b", "falcon-40b", "deepseek-v3"])
    @pytest.mark.parametrize("make", [prefill, training])
    def test_layers_split_by_heads_and_width_add_up_twice(self, name, make):
        model = library.model(name)
        graph = make(model, sequence=64)
        block = next(block for block in graph.blocks if block.axis)
        lies, sums = {}, []
        for i in graph.orders[block.name]:
            operation = block.operations[i]
            nest = graph.nest(block, operation)
            found = {split.along[0]: split for split in splits(graph, block, nest, (8,))}
            held = {*nest.output, *nest.inputs[0]}
            along = next(
                (a for a in ("feed_forward", "kv_heads", "heads") if a in held and a in found), ""
            )
            read = zip(operation.inputs, found[along].inputs, strict=True)
            for operand, (needed,) in read:
                assert lies.get(operand.tensor, needed) == needed, operation.name
            (made,) = found[along].output
            if made == PARTIAL:
                sums.append(operation.name.removeprefix("dense_"))
            lies[operation.output.tensor] = "" if made == PARTIAL else made
        assert sorted(sums) == ["attention_out", "down"]


class TestExperts:
    def test_few_choices_have_an_expert_each(self):
        few, many = decode(MIXTRAL, context=5), decode(MIXTRAL, context=5, batch=3)
        assert "capacity" not in few.sizes
        assert many.sizes["capacity"] == 2  # 3 x 2 choices of 4 experts
        assert few.count(few.tensor["w_expert_up_chosen"].axes) == 2 * 6 * 3

    def test_experts_take_no_more_than_all_tokens(self):
        assert forward(MIXTRAL, sequence=3, capacity=100.0).sizes["capacity"] == 3


class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "said"),
        [
            ({"sequence": 0}, "sequence: got 0"),
            ({"batch": 0}, "batch: got 0"),
            ({"capacity": 0.5}, "capacity: got 0.5; allowed: 1 or more: an even share."),
            ({"sequence": 17}, "sequence: got 17; allowed: at most 16, the places"),
        ],
    )
    def test_what_is_out_of_range(self, changes, said):
        with pytest.raises(InputError, match=said):
            forward(GPT, **({"sequence": 4} | changes))

    def test_writing_behind_the_last_learned_place(self):
        with pytest.raises(InputError, match="got 17; allowed: at most 16"):
            decode(GPT, context=15, tokens=2)

    def test_no_context(self):
        with pytest.raises(InputError, match="context: got 0"):
            decode(LLAMA, context=0)


def test_all_but_indices_has_the_dtype_asked_for():
    graph = training(MIXTRAL, sequence=4, dtype=Dtype.FP16)
    found = {t.dtype for t in graph.tensors if t.role is not Role.INDEX}
    assert found == {Dtype.FP16}
    assert {t.dtype for t in graph.tensors if t.role is Role.INDEX} == {Dtype.INT32}


@pytest.mark.parametrize(
    ("place", "chain"),
    [
        (NormPlace.BEFORE, "norm attention add norm network add"),
        (NormPlace.AFTER, "attention add norm network add norm"),
        # gemma2024gemma2: around each part
        (NormPlace.BOTH, "norm attention norm add norm network norm add"),
    ],
)
def test_norms_stand_where_the_model_has_them(place, chain):
    model = replace(library.model("llama3-8b"), norms=place)
    (layers,) = (b for b in forward(model, sequence=8).blocks if b.name == "layers")
    words = {Function.RMS_NORM: "norm", Function.ADD: "add", Function.SOFTMAX: "attention"}
    words |= {Function.GATED_SILU: "network"}
    found = [words[o.function] for o in layers.operations if o.function in words]
    assert " ".join(found) == chain
