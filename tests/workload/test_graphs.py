"""Recurrent, recommending, transforming and factorising graphs over named axes.

Of each: its numbers, the derived gradient, work by hand, kernels beside those by extents, and what
chips exchange, which no graph says.
"""

from __future__ import annotations

import numpy as np
import pytest
from builders.compared import edges_of, facts, work_of
from builders.layouts import exchanged, split_of
from builders.losses import with_loss
from builders.named_models import values_of
from builders.roots import real_factors, two_parts
from oracles.differences import gradient_errors
from oracles.interpreter import run

from crosstack.errors import InputError
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.workload.dataflow import Graph
from crosstack.workload.dlrm_graph import recommendation_graph
from crosstack.workload.fft_graph import fourier_graph
from crosstack.workload.hpl_graph import factorisation_graph
from crosstack.workload.kernels import Collective
from crosstack.workload.lowering import lowered
from crosstack.workload.lstm import LstmModel, language_model_graph
from crosstack.workload.operations import Role
from crosstack.workload.passes.backward import training
from crosstack.workload.product import Product, product_graph
from crosstack.workload.sharding import PARTIAL, REPLICATED

WORDS = LstmModel(batch=2, sequence=4, vocabulary=5, layers=2, width=3)
CLICKS = {
    "width": 4, "n_bottom": 2, "n_top": 2, "n_tables": 3, "rows": 5, "embedding_size": 2,
    "samples": 4,
}  # fmt: skip


def agree(graph: Graph, values: dict[str, np.ndarray]) -> None:
    """The derived gradient of everything from outside is that of differences."""
    found = gradient_errors(graph, values)
    assert {*found} == {t.name for t in graph.tensors if t.role in (Role.WEIGHT, Role.INPUT)}
    for tensor, (derived, differences) in found.items():
        assert derived == pytest.approx(differences, rel=1e-5, abs=1e-7), tensor


def products(graph: Graph) -> float:
    """Work of all products, every time that they run."""
    return sum(
        graph.work(nest) * graph.repeats(block)
        for block, nest in graph.nests()
        if nest.operation.multiplies
    )


class TestProduct:
    def test_it_is_a_product_with_the_extents_given(self):
        graph = product_graph(Product(m=3, k=4, n=5))
        values = values_of(graph)
        assert run(graph, values)["product"] == pytest.approx(values["first"] @ values["second"])
        (fact,) = facts(lowered(graph, "part_1")).values()
        assert fact[:5] == (1, 3, 4, 5, 2 * 3 * 4 * 5)


class TestLanguageModel:
    def test_cells_are_those_of_an_lstm(self):
        graph = language_model_graph(WORDS)
        values = values_of(graph)
        made = run(graph, values)

        def sigmoid(x: np.ndarray) -> np.ndarray:
            return 1 / (1 + np.exp(-x))

        below = values["embedding"][values["words"].astype(int)]
        for layer in "12":
            shown, kept = values[f"shown_start_{layer}"], values[f"kept_start_{layer}"]
            above = []
            for x in below:
                gate = {
                    g: x @ values[f"W_{g}_{layer}"] + shown @ values[f"U_{g}_{layer}"]
                    + values[f"B_{g}_{layer}"]
                    for g in ("input", "forget", "output", "candidate")
                }  # fmt: skip
                kept = sigmoid(gate["forget"]) * kept + sigmoid(gate["input"]) * np.tanh(
                    gate["candidate"]
                )
                shown = sigmoid(gate["output"]) * np.tanh(kept)
                above.append(shown)
            below = np.array(above)
        assert made["shown_2"] == pytest.approx(below)
        logits = below @ values["head"] + values["bias"]
        right = np.take_along_axis(logits, values["labels"].astype(int)[..., None], -1)[..., 0]
        assert made["loss"] == pytest.approx((np.log(np.exp(logits).sum(-1)) - right).mean())

    def test_its_derived_gradient_is_that_of_differences(self):
        graph = language_model_graph(WORDS)
        agree(graph, values_of(graph))

    def test_it_has_the_parameters_of_the_model(self):
        for layers in (1, 3):
            model = LstmModel(batch=1, sequence=2, vocabulary=7, layers=layers, width=4)
            assert language_model_graph(model).n_parameters == model.parameters

    def test_products_take_the_work_of_two_widths_by_four_for_every_word(self):
        graph = language_model_graph(WORDS)
        words, d = 4 * 2, WORDS.width
        cell = 2 * (2 * d) * (4 * d)  # of one layer and word
        assert products(graph) == words * (WORDS.layers * cell + 2 * d * WORDS.vocabulary)
        assert products(training(graph, "loss")) == 3 * products(graph)

    def test_cells_go_back_from_the_last_word_to_the_first(self):
        graph = training(language_model_graph(WORDS), "loss")
        (back,) = [block for block in graph.blocks if block.twin == "cells_2"]
        assert (back.axis, back.reverse) == ("sequence", True)
        arrays = lowered(graph, "cells_2")
        assert set(facts(arrays)["forget_of_state_2"][:4]) == {1, 3, 2}
        joins = zip(arrays.join_source, arrays.join_target, strict=True)
        assert ("shown_2", "input_of_state_2") in {
            (arrays.names[i], arrays.names[j]) for i, j in joins
        }

    @pytest.mark.parametrize(("field", "value"), [("gates", 3), ("projection", 8)])
    def test_what_is_no_cell_of_it_is_refused(self, field, value):
        model = LstmModel(batch=1, sequence=2, vocabulary=7, layers=1, width=4, **{field: value})
        with pytest.raises(InputError, match=f"{field}: got {value}; allowed:"):
            language_model_graph(model)


class TestRecommendation:
    def test_it_computes_a_click_from_looked_up_rows(self):
        graph = recommendation_graph(**CLICKS, pooled_rows=2)
        values = values_of(graph)
        made = run(graph, values)
        x = values["x"]
        for layer in (1, 2):
            x = np.maximum(x @ values[f"W_{layer}"], 0)
        places = values["places"].astype(int)
        rows = np.stack([values["tables"][t][places[:, t]].sum(1) for t in range(3)], 1)
        pairs = np.einsum("ste,soe->sto", rows, rows)
        crossed = np.einsum("sto,tow->sw", pairs, values["W_pairs_3"])
        x = np.maximum(x @ values["W_3"] + crossed, 0)
        click = np.maximum(x @ values["W_4"], 0) @ values["W_click"]
        loss = np.log1p(np.exp(click)) - click * values["labels"]
        assert made["loss"] == pytest.approx(loss.mean())

    def test_its_derived_gradient_is_that_of_differences(self):
        graph = recommendation_graph(**CLICKS, pooled_rows=2)
        agree(graph, values_of(graph, seed=1))

    def test_perceptrons_tables_and_what_is_looked_up_are_the_same_as_of_kernels(self):
        large = CLICKS | {"rows": 1000, "samples": 32}
        old = dlrm(**large, global_batch_size=1)
        graph = recommendation_graph(**large)
        new = lowered(graph, "part_1")
        one, other = facts(old.graph), facts(new)
        perceptrons = {name for name in one if "bwd" not in name}
        assert {name for name in one if one[name] == other.get(name)} == perceptrons
        assert graph.size("tables") == old.data_size
        # Read from main memory: what is looked up, however large the tables are.
        (read,) = {float(size) for size in old.graph.memory_traffic if size}
        assert other["looked_up"][7] == read == graph.size("looked_up")
        assert {n for n, fact in other.items() if fact[7]} == {"looked_up"}

    def test_products_go_back_with_twice_the_work_but_for_what_comes_from_outside(self):
        graph = recommendation_graph(**CLICKS)
        trained = training(graph, "loss")
        s, w, t, e = 4, 4, 3, 2
        forward = 2 * s * (4 * w * w + t * t * e + t * t * w + w)
        assert products(graph) == forward
        assert products(trained) == 3 * forward - 2 * s * w * w
        old = dlrm(**CLICKS, global_batch_size=1).graph
        perceptrons = [k for k in old.names if "weight_update" not in k]
        # By extents the first layer hands back a gradient too, which nobody reads.
        assert work_of(old, *perceptrons) == 2 * work_of(old, "MLP_1", "MLP_2", "MLP_3", "MLP_4")

    def test_gradients_are_added_to_the_rows_that_were_looked_up(self):
        small, large = (
            lowered(training(recommendation_graph(**CLICKS | {"rows": rows}), "loss"), "part_1")
            for rows in (100, 100_000)
        )
        name = "looked_up_bwd0"
        assert facts(small)[name] == facts(large)[name]
        assert facts(large)[name][6] == facts(large)["looked_up"][6] == 2 * 4 * 3 * 2
        assert large.messages[large.index[name]] == ()
        assert work_of(large, name) == 4 * 3 * 2

    def test_tables_on_different_chips_exchange_all_to_all_with_samples_on_different_chips(self):
        mesh = (3,)
        graph = recommendation_graph(**CLICKS | {"samples": 12})
        tables = split_of(graph, "pooled_rows", ("table",), mesh)
        samples = split_of(graph, "pairs", ("sample",), mesh)
        assert split_of(graph, "looked_up", ("table",), mesh).inputs[0] == ("table",)
        ((what, _, size),) = exchanged(graph, "pooled_rows", tables.output, samples.inputs[0], mesh)
        # What each chip takes part with is what the kernel says that it sends.
        old = dlrm(**CLICKS, global_batch_size=1).graph
        (said,) = {m for messages in old.messages for m in messages if not m.periodic}
        assert (what, size / 3) == (said.collective, said.size)
        assert what is Collective.ALL_TO_ALL

    def test_rows_of_tables_on_different_chips_are_added_up_where_samples_are(self):
        mesh = (3,)
        graph = recommendation_graph(**CLICKS | {"samples": 12})
        rows = split_of(graph, "looked_up", ("row",), mesh)
        assert rows.output == (PARTIAL,)
        pooled = split_of(graph, "pooled_rows", (PARTIAL,), mesh)
        samples = split_of(graph, "pairs", ("sample",), mesh)
        ((what, _, size),) = exchanged(graph, "pooled_rows", pooled.output, samples.inputs[0], mesh)
        assert (what, size) == (Collective.REDUCE_SCATTER, graph.size("pooled_rows"))


def roots(side: int, radix: int, levels: int) -> dict[str, np.ndarray]:
    """Roots of unity of a transform of ``side`` x ``side`` points."""
    digit, place = np.arange(radix), np.arange(side)
    found = {
        "Small": real_factors(np.exp(-2j * np.pi * np.outer(digit, digit) / radix), 1),
        "Roots": two_parts(np.exp(-2j * np.pi * np.outer(place, place) / side**2)),
    }
    for j in range(1, levels):
        left = radix ** (levels - j)
        turns = np.exp(-2j * np.pi * np.outer(np.arange(left), digit) / (left * radix))
        shape = [radix] * (levels - j + 1)
        for what in ("row", "column"):
            found[f"Roots_{what}_{j}"] = two_parts(turns.reshape(shape))
    return found


class TestFourier:
    @pytest.mark.parametrize(("radix", "levels"), [(2, 1), (2, 3), (3, 2), (4, 1)])
    def test_it_is_the_transform_of_its_points(self, radix, levels):
        side = radix**levels
        graph = fourier_graph(length=side * side, radix=radix)
        values = values_of(graph) | roots(side, radix, levels)
        made = run(graph, values)[f"Step_column_{levels}"].reshape(side, side, 2)
        points = (values["x"][..., 0] + 1j * values["x"][..., 1]).reshape(-1)
        waves = np.fft.fft(points).reshape(side, side).T  # frequency = row wave + side column wave
        assert made[..., 0] + 1j * made[..., 1] == pytest.approx(waves)

    def test_its_derived_gradient_is_that_of_differences(self):
        graph = with_loss(fourier_graph(length=16), "Step_column_2")
        agree(graph, values_of(graph) | roots(4, 2, 2))

    @pytest.mark.parametrize(("length", "radix"), [(2**16, 2), (2**16, 4), (3**8, 3)])
    def test_steps_take_the_work_of_the_kernels(self, length, radix):
        old = fft(length=length, radix=radix).graph
        graph = fourier_graph(length=length, radix=radix)
        new = lowered(graph, "part_1")
        assert work_of(new, "Step_row*") == work_of(old, "Step_1")
        assert work_of(new, "Step_column*") == work_of(old, "Step_2")
        # Between them, six operations on a point; by extents roots of unity take none.
        levels = round(np.log(length) / np.log(radix))
        assert work_of(new, "Turned*") == 6 * length * (levels - 1)
        assert graph.size("x") == old.output_size[0]

    def test_columns_and_then_rows_on_all_chips_is_a_transposition(self):
        mesh, graph = (4,), fourier_graph(length=256)
        columns = split_of(graph, "Turned", ("column",), mesh)
        rows = split_of(graph, "Step_column_1", ("row_wave",), mesh)
        assert split_of(graph, "Step_row_1", ("column",), mesh).inputs[0] == ("column",)
        (said,) = {m for messages in fft(length=256).graph.messages for m in messages}
        ((what, _, size),) = exchanged(graph, "Turned", columns.output, rows.inputs[0], mesh)
        assert (what, size) == (said.collective, said.size)

    @pytest.mark.parametrize(("length", "radix"), [(32, 2), (36, 2), (16, 8)])
    def test_another_length_is_refused(self, length, radix):
        with pytest.raises(InputError, match=f"length: got {length}; allowed: the square of a"):
            fourier_graph(length=length, radix=radix)


class TestFactorisation:
    def test_a_step_takes_the_panel_out_of_the_rest(self):
        rng = np.random.default_rng(0)
        whole = rng.normal(size=(7, 7)) + 7 * np.eye(7)
        lower, upper = np.eye(7), whole.copy()
        for i in range(2):  # two columns by hand
            lower[i + 1 :, i] = upper[i + 1 :, i] / upper[i, i]
            upper[i + 1 :] -= np.outer(lower[i + 1 :, i], upper[i])
        graph = factorisation_graph(side=5, block=2)
        made = run(
            graph,
            {
                "inverse": np.linalg.inv(lower[:2, :2]), "beside": whole[:2, 2:],
                "panel": lower[2:, :2], "rest": whole[2:, 2:],
            },
        )  # fmt: skip
        assert made["Solve"] == pytest.approx(upper[:2, 2:])
        assert made["Rest"] == pytest.approx(upper[2:, 2:])

    def test_its_derived_gradient_is_that_of_differences(self):
        graph = with_loss(factorisation_graph(side=3, block=2), "Rest")
        agree(graph, values_of(graph))

    def test_an_update_takes_the_work_of_the_kernel(self):
        old = hpl(size=512, block=64, iterations=1)
        new = lowered(factorisation_graph(side=512, block=64), "part_1")
        assert work_of(new, "Update") == work_of(old.graph, "Iteration_1") == 2 * 512 * 512 * 64
        assert work_of(new, "Solve") == 2 * 512 * 64 * 64
        assert edges_of(new) == {("Solve", "Update"), ("Update", "Rest")}

    def test_on_a_grid_the_panel_goes_along_rows_and_what_is_beside_it_along_columns(self):
        mesh, graph = (2, 4), factorisation_graph(side=512, block=64)
        update = split_of(graph, "Update", ("row", "column"), mesh)
        solve = split_of(graph, "Solve", (REPLICATED, "column"), mesh)
        assert update.inputs == (("row", REPLICATED), solve.output)
        along_rows = exchanged(graph, "panel", ("row", "pivot"), update.inputs[0], mesh)
        assert along_rows == [(Collective.ALL_GATHER, 1, graph.size("panel") / 2)]
        down = exchanged(graph, "beside", ("other_pivot", "column"), solve.inputs[1], mesh)
        assert down == [(Collective.ALL_GATHER, 0, graph.size("beside") / 4)]
        # As many bytes as the kernel says that it broadcasts and exchanges.
        (messages,) = hpl(size=512, block=64, iterations=1).graph.messages
        assert {m.size for m in messages} == {graph.size("panel"), graph.size("beside")}
