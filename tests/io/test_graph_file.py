"""Graphs of operations over named axes as native YAML: read, written, and refused in words."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from builders import named_models, small_models
from builders.examples import fewer
from builders.random_graphs import random_graph
from hypothesis import given
from hypothesis import strategies as st
from oracles.differences import gradient_errors
from oracles.interpreter import run

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.io.native import holds_graph, read_graph, write_graph
from crosstack.io.native.read_graph import graph_in
from crosstack.workload.architectures import graphs
from crosstack.workload.operations import Role
from crosstack.workload.passes.backward import training

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
EXAMPLE = EXAMPLES / "graphs" / "my_transformer.yaml"
SMALL = [
    f"axes.{name}={size}"
    for name, size in {
        "batch.size": 2, "sequence.size": 3, "key_sequence": 3, "heads.size": 2, "head_size": 2,
        "hidden": 4, "feed_forward": 5, "vocabulary": 6, "layer": 2,
    }.items()
]  # fmt: skip
PERCEPTRON = """
axes: {batch: {size: 3, use: token}, wide: 4, inner: 5}
tensors:
  x: batch wide
  up: {axes: wide inner, role: weight}
operations:
  - {makes: loss, function: mean, reads: y, over: batch inner}
  - {makes: y, function: tanh, reads: h}
  - {makes: h, function: product, reads: [x, up], axes: batch inner}
"""


def refused(text: str, *overrides: str) -> list[str]:
    with pytest.raises(InputError) as error:
        graph_in(text, "mine.yaml", overrides)
    return str(error.value).splitlines()


class TestRead:
    def test_a_perceptron_computes_what_it_says(self):
        graph = graph_in(PERCEPTRON, "mine.yaml")
        values = named_models.values_of(graph)
        made = run(graph, values)
        assert made["y"] == pytest.approx(np.tanh(values["x"] @ values["up"]))
        assert made["loss"] == pytest.approx(made["y"].mean())

    def test_the_example_is_a_model_whose_derived_gradient_is_that_of_differences(self):
        graph = read_graph(EXAMPLE, [*SMALL, "training=false"])
        found = gradient_errors(graph, named_models.values_of(graph), of=(Role.WEIGHT,))
        assert {*found} == {t.name for t in graph.tensors if t.role is Role.WEIGHT}
        for name, (derived, differences) in found.items():
            assert derived == pytest.approx(differences, rel=1e-5, abs=1e-8), name

    def test_the_example_has_its_layers_over_and_over_and_its_backward_pass(self):
        graph = read_graph(EXAMPLE)
        d, f, v, n = 256, 1024, 32000, 6
        assert graph.n_parameters == v * d + n * (4 * d * d + 2 * d * f + 2 * d)
        assert [b.twin for b in graph.blocks if b.twin] == ["end", "layers", "start"]
        tokens = 4 * 512
        products = sum(
            graph.work(nest) * graph.repeats(block)
            for block, nest in graph.nests()
            if nest.operation.multiplies
        )
        # Forward and twice backward: weights and the head, scores and what they weigh.
        each = n * (4 * d * d + 2 * d * f + 2 * 512 * d) + v * d
        assert products == 3 * 2 * tokens * each

    def test_an_override_changes_a_size(self):
        assert read_graph(EXAMPLE, ["axes.layer=3"]).sizes["layer"] == 3

    def test_training_takes_the_loss_and_the_roles_that_are_asked_for(self):
        asked = PERCEPTRON + "training: {loss: loss, of: [input]}"
        assert {*graph_in(asked, "mine.yaml").gradients} == {"x"}
        assert {*graph_in(PERCEPTRON + "training: loss", "mine.yaml").gradients} == {"up"}

    def test_what_is_left_out_follows_from_names(self):
        text = """
axes: {a: 2, b: 3, place: 2}
tensors: {x: a b}
operations:
  - {makes: rows, function: softmax, reads: x, over: b}
  - {makes: best, function: select, reads: rows, over: b, axes: a place}
  - {makes: found, function: gather, reads: [rows, best], over: b}
  - {makes: total, function: sum, reads: rows, over: a}
  - {makes: both, function: add, reads: [found, total]}
"""
        graph = graph_in(text, "mine.yaml")
        axes = {name: " ".join(graph.tensor[name].axes) for name in graph.makers}
        assert axes == {
            "rows": "a b", "best": "a place", "found": "a place", "total": "b", "both": "a place b",
        }  # fmt: skip
        assert graph.tensor["best"].role is Role.INDEX

    def test_only_a_graph_holds_a_graph(self):
        found = [path.name for path in sorted(EXAMPLES.rglob("*.yaml")) if holds_graph(path)]
        assert found == [EXAMPLE.name]


class TestWritten:
    @pytest.mark.parametrize(
        "model",
        ["gpt_layer", "llama", "mixture", "lstm", "convolutional"],
    )
    def test_a_model_in_training_is_read_back_the_same(self, model):
        graph = training(getattr(named_models, model)(), "loss")
        assert graph_in(write_graph(graph), "mine.yaml") == graph

    @pytest.mark.parametrize("kind", ["gpt", "gemma2", "bloom", "deepseek-v3"])
    def test_graphs_of_the_registry_are_read_back_the_same(self, kind):
        model = small_models.SMALL[kind]
        for graph in (
            graphs.training(model, sequence=4),
            graphs.prefill(model, sequence=4),
            graphs.decode(model, context=4, tokens=2),
        ):
            assert graph_in(write_graph(graph), "mine.yaml") == graph

    @fewer(0.5)
    @given(
        rng=st.randoms(use_true_random=False), operations=st.integers(1, 8), trained=st.booleans()
    )
    def test_any_graph_is_read_back_the_same(self, rng, operations, trained):
        graph = random_graph(rng, operations)
        if trained:
            graph = training(graph, "loss", of=(Role.WEIGHT, Role.INPUT))
        assert graph_in(write_graph(graph), "mine.yaml") == graph

    @pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "gemma2-9b"])
    def test_a_model_of_the_registry_is_read_back_the_same(self, model):
        record = library.model(model)
        for graph in (
            graphs.training(record, sequence=64, batch=2),
            graphs.decode(record, context=64, batch=2),
        ):
            assert graph_in(write_graph(graph), "mine.yaml") == graph

    def test_a_name_that_yaml_would_read_as_something_else_stays_text(self):
        text = PERCEPTRON.replace("wide", '"12"').replace('batch "12"', '"batch 12"')
        text = text.replace('"12" inner', '"12 inner"')
        graph = graph_in(text, "mine.yaml")
        assert graph.tensor["x"].axes == ("batch", "12")
        assert graph_in(write_graph(graph), "mine.yaml") == graph


class TestRefused:
    @pytest.mark.parametrize(
        ("old", "new", "problem"),
        [
            ("[x, up]", "[x, upp]", "operations[2].reads[1]: no tensor is called 'upp'. Nearest: "),
            ("size: 3", "size: 0", "axes.batch.size: got 0; allowed: a whole number, at least 1."),
            ("use: token", "uses: token", 'axes.batch.uses: unknown field. Did you mean "use"?'),
            ("tanh", "tahn", "operations[1].function: got 'tahn'; allowed: product, "),
            ("role: weight", "roll: weight", 'tensors.up.roll: unknown field. Did you mean "'),
            ("wide inner,", "wide outer,", "tensors.up.axes: no axis is called 'outer'."),
            (", axes: batch inner}", "}", "operations[2].axes: required of product, unless 'h'"),
            ("axes: batch inner}", "axes: batch}", "operations[2].reads: inner stands in one "),
            ("makes: y", "makes: h", "operations[1]: the graph has a cycle: h -> h."),
            ("reads: h", "reads: loss", "operations[0]: the graph has a cycle: loss -> y -> loss."),
            ("reads: h", "reads: [h, x]", "operations[1].reads: got 2; allowed: 1 of tanh."),
            ("over: batch inner", "over: batch wide", "operations[0].over: wide is not among the "),
            ("reads: y", "reads: 3", "operations[0].reads: got 3; allowed: a list."),
            ("operations:", "blocks:", "blocks[0].name: required, but missing."),
            ("mean,", "mean, parameter: .nan,", "operations[0].parameter: got nan; allowed: a num"),
            ("function: tanh", "function: tanh, twin: 3", "operations[1].twin: got 3; allowed: "),
        ],
    )  # fmt: skip
    def test_a_slip_is_said_by_the_path_of_its_field(self, old, new, problem):
        assert old in PERCEPTRON
        lines = refused(PERCEPTRON.replace(old, new, 1))
        assert any(line.startswith(f"mine.yaml: {problem}") for line in lines), lines

    def test_every_problem_is_said_at_once(self):
        text = PERCEPTRON.replace("[x, up]", "[y2, up2]").replace("inner: 5", "deep: 5")
        paths = [line.split(": ")[1] for line in refused(text)]
        assert paths == [
            "tensors.up.axes", "operations[2].axes", "operations[0].over",
            "operations[2].reads[0]", "operations[2].reads[1]",
        ]  # fmt: skip

    def test_a_tensor_is_made_once(self):
        more = "  - {makes: y, function: copy, reads: x, name: again}\n"
        (line, *_) = refused(PERCEPTRON + more)
        assert line == "mine.yaml: operations[3].makes: operations[1] makes 'y' already."

    def test_a_tensor_that_is_listed_says_what_it_is_in_one_place(self):
        text = PERCEPTRON.replace("x: batch wide", "x: batch wide\n  y: batch inner")
        (line,) = refused(text.replace("function: tanh", "function: tanh, dtype: fp32"))
        assert line == "mine.yaml: operations[1].dtype: tensors.y says it; allowed: one place."

    def test_a_block_hands_on_what_fits(self):
        text = EXAMPLE.read_text()
        (line, *_) = refused(text.replace("{x: x_out}", "{x: gelu}"))
        assert line.startswith("mine.yaml: blocks[1].carries.x: 'x' and 'gelu' have different axes")
        (line,) = refused(text.replace("repeats: layer", "repeats: layers"))
        assert line.endswith("blocks[1].repeats: no axis is called 'layers'. Nearest: 'layer'.")

    @pytest.mark.parametrize(
        ("asked", "problem"),
        [
            ("[y]", "training: got a list; allowed: a mapping of loss, of."),
            ("{loss: y}", "training.loss: got 'y'; allowed: a tensor without axes that an "),
            ("{of: [kv_cache]}", "training.loss: got 'loss'; allowed: what depends on something "),
        ],
    )
    def test_a_loss_that_is_none_is_refused(self, asked, problem):
        (line,) = refused(f"{PERCEPTRON}training: {asked}")
        assert line.startswith(f"mine.yaml: {problem}")

    def test_a_loss_is_left_out_only_where_there_is_one(self):
        more = "  - {makes: other, function: sum, reads: y, over: batch inner}\ntraining: true"
        (line,) = refused(PERCEPTRON + more)
        assert line.endswith("nobody reads, of which one is: 'loss', 'other'.")

    def test_a_file_has_blocks_or_operations(self):
        (line,) = refused("axes: {a: 2}\ntensors: {x: a}")
        assert line == "mine.yaml: blocks: allowed: blocks or operations, one of the two."

    @pytest.mark.parametrize("text", ["[]", "3", "axes: 3", "axes: {a: {}}", "operations: {}"])
    def test_another_shape_is_refused(self, text):
        assert refused(text)

    @fewer(0.3)
    @given(data=st.data())
    def test_no_change_of_a_file_is_a_traceback(self, data):
        text = EXAMPLE.read_text()
        start = data.draw(st.integers(0, len(text) - 1))
        end = start + data.draw(st.integers(0, 30))
        other = data.draw(st.sampled_from(["", "x", "3", "[", "{}", ": ", "layer", "\n", "- "]))
        with suppress(InputError):
            graph_in(text[:start] + other + text[end:], "mine.yaml")
