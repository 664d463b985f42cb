from __future__ import annotations

from collections.abc import Sequence
from random import Random

import numpy as np
import pytest
from builders import named_models
from builders.examples import fewer
from builders.random_graphs import random_graph
from hypothesis import given
from hypothesis import strategies as st
from oracles.interpreter import run
from oracles.layout_steps import conversion
from oracles.sharded import Sharded, part

from crosstack.errors import InputError
from crosstack.workload.dataflow import Graph
from crosstack.workload.kernels import Collective
from crosstack.workload.operations import Role
from crosstack.workload.passes.backward import training
from crosstack.workload.sharding import PARTIAL, REPLICATED, Layout, Split, splits

MESHES = [(1,), (2,), (3,), (2, 2), (2, 3)]


def ways(graph: Graph, mesh: tuple[int, ...]) -> dict[str, tuple[Split, ...]]:
    return {nest.operation.name: splits(graph, b, nest, mesh) for b, nest in graph.nests()}


def agree(graph: Graph, mesh: tuple[int, ...], rng: Random) -> None:
    """Split every operation somehow, and compare with a run on one chip."""
    values, found = named_models.values_of(graph), ways(graph, mesh)
    layouts = dict.fromkeys(values, (REPLICATED,) * len(mesh))
    chosen = {}
    for block in graph.blocks:
        for i in graph.orders[block.name]:
            operation = block.operations[i]
            lie = [layouts[x.tensor] for x in operation.inputs]
            fitting = [s for s in found[operation.name] if reachable(lie, s.inputs)]
            chosen[operation.name] = split = rng.choice(fitting)
            layouts[operation.output.tensor] = split.output
    alone, together = run(graph, values), Sharded(graph, values, chosen, mesh).values
    for name in graph.makers:
        assert together[name] == pytest.approx(alone[name], rel=1e-9, abs=1e-9), name


def reachable(lie: Sequence[Layout], needed: Sequence[Layout]) -> bool:
    """Whether nothing has to be made partial that is not."""
    return all(
        after != PARTIAL
        for one, other in zip(lie, needed, strict=True)
        for before, after in zip(one, other, strict=True)
        if after != before
    )


class TestOnChips:
    """Whatever every operation is split along, the chips together find the same numbers."""

    @fewer(0.3)
    @given(
        rng=st.randoms(use_true_random=False),
        mesh=st.sampled_from(MESHES),
        trains=st.booleans(),
    )
    def test_any_splits_of_any_graph(self, rng, mesh, trains):
        graph = random_graph(rng, 5, repeats=False)
        roles = (Role.WEIGHT, Role.INPUT)
        agree(training(graph, "loss", of=roles) if trains else graph, mesh, rng)

    @pytest.mark.parametrize("mesh", MESHES)
    @pytest.mark.parametrize("model", ["gpt_layer", "mixture", "convolutional"])
    def test_any_splits_of_a_model_in_training(self, model, mesh):
        graph = training(getattr(named_models, model)(), "loss")
        agree(graph, mesh, Random(f"{model}{mesh}"))


class TestSplits:
    def of(self, name: str, graph: Graph | None = None, mesh: tuple[int, ...] = (2,)):
        found = ways(graph or named_models.gpt_layer(), mesh)[name]
        return {split.along: split for split in found}

    def test_a_product_is_split_along_every_axis_that_it_runs_over(self):
        found = self.of("FFN0")
        assert {*found} == {
            ("",), ("batch",), ("sequence",), ("hidden",), ("feed_forward",)
        }  # fmt: skip
        assert found["feed_forward",].inputs == (("",), ("feed_forward",))
        assert found["feed_forward",].output == ("feed_forward",)

    def test_what_is_added_up_over_chips_is_partial(self):
        split = self.of("FFN1")["feed_forward",]
        assert split.inputs == (("feed_forward",), ("feed_forward",))
        assert split.output == (PARTIAL,)

    def test_a_softmax_needs_its_rows(self):
        assert ("key_sequence",) not in self.of("SOFTMAX")
        assert ("heads",) in self.of("SOFTMAX")

    def test_a_sum_of_parts_of_sums_is_one_and_a_norm_of_them_is_none(self):
        found = self.of("Add_1")
        assert found[PARTIAL,].inputs == ((PARTIAL,), (PARTIAL,))
        assert (PARTIAL,) not in self.of("LayerNorm_2")

    def test_keys_split_along_tokens_are_split_along_theirs(self):
        split = self.of("MHA_GEMM_1")["key_sequence",]
        assert split.inputs == ((REPLICATED,), ("sequence",))

    def test_an_embedding_split_along_words_makes_parts_of_sums(self):
        split = self.of("x", named_models.llama())["vocabulary",]
        assert (split.inputs, split.output) == ((("vocabulary",), (REPLICATED,)), (PARTIAL,))

    def test_an_axis_is_split_over_two_dimensions_where_it_has_so_many_places(self):
        assert ("feed_forward", "feed_forward") in self.of("FFN0", mesh=(2, 4))
        assert ("feed_forward", "feed_forward") not in self.of("FFN0", mesh=(3, 4))

    @given(size=st.integers(1, 40), mesh=st.tuples(st.integers(1, 4), st.integers(1, 4)))
    def test_parts_are_all_of_an_axis_and_each_place_once(self, size, mesh):
        held = [place for at in np.ndindex(mesh) for place in part(size, ("a", "a"), "a", mesh, at)]
        assert sorted(held) == [*range(size)]


class TestConversions:
    def steps(self, start, end, mesh=(4,)):
        sizes = {"a": 16, "b": 16}
        found = conversion(start, end, ("a", "b"), mesh, sizes, lambda step: step.share)
        return [(step.dimension, step.collective) for step in found]

    @pytest.mark.parametrize(
        ("start", "end", "collective"),
        [
            ("a", "", Collective.ALL_GATHER),
            ("a", "b", Collective.ALL_TO_ALL),
            ("+", "", Collective.ALL_REDUCE),
            ("+", "a", Collective.REDUCE_SCATTER),
            ("", "a", None),
        ],
    )
    def test_one_step(self, start, end, collective):
        assert self.steps((start,), (end,)) == [(0, collective)]

    def test_nothing_between_equal_layouts(self):
        assert self.steps(("a",), ("a",)) == []

    def test_nothing_is_made_partial_again(self):
        with pytest.raises(InputError, match="layout: got"):
            self.steps(("a",), ("+",))

    def test_the_last_dimension_of_an_axis_changes_first(self):
        gather = Collective.ALL_GATHER
        assert self.steps(("a", "a"), ("", ""), (2, 2)) == [(1, gather), (0, gather)]

    def test_the_cheapest_way_is_taken(self):
        # To gather a part after it has become smaller moves less.
        assert self.steps(("a", "+"), ("", "b"), (2, 2))[0] == (1, Collective.REDUCE_SCATTER)
