"""Layouts between kernels: what is made, what is needed, and what is paid for it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crosstack.io import library
from crosstack.io.library import system_on
from crosstack.machine.system import Parallelism
from crosstack.mapping.paid_layouts import least_with_layouts
from crosstack.model.choice_index import choice_index
from crosstack.model.choices import make_choices
from crosstack.model.collectives import Layout
from crosstack.model.conversions import LAYOUTS, edges_of
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.builders import elementwise, join, product_of
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.architectures import graphs
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.kernel_graph import AXES
from crosstack.workload.kernels import Axis, Collective
from crosstack.workload.transformer_training import Recompute
from crosstack.workload.workload import Workload

OUTER, M, K, N, NONE = AXES[:5]
RULES, RELEASE = rules_named("crosstack"), rules_named("dfmodel-readme")
WORD, SIZE = 2, 8 * 16 * 2.0


def untiled_product(name, shape, **sizes):
    """Return a product that may be split along all of its axes."""
    return replace(product_of(name, shape, word=WORD, **sizes), tiling=Axis.NONE)


def maker(axis):
    """Return a kernel that makes 8 x 16 and may be split along ``axis``."""
    if axis is K:
        sizes = {"input_sizes": (4 * 16 * 2.0,), "weight_size": 64.0}
        return untiled_product("maker", (1, 8, 4, 16), **sizes)
    return replace(elementwise("maker", 8, 16, word=WORD), tiling=Axis.NONE)


def needed(made, read, reader, operand=0, rules=RULES):
    """Return what a maker split one way makes, and what it is changed into for a reader."""
    graph = join([maker(made), replace(reader, name="reader")], [(1, 2, operand)], WORD)
    arrays = graph
    index = choice_index(arrays)
    codes = index.codes((made, read))
    assert (codes >= 0).all()
    known = edges_of(arrays, index, rules.traffic)
    need = int(known.need[index.entries(codes)][0])
    layout = LAYOUTS[need.bit_length() - 1] if need else None
    return LAYOUTS[known.produced[codes[0]]], layout


def simple():
    return replace(elementwise("reader", 8, 16, word=WORD), tiling=Axis.NONE)


class TestNeeds:
    @pytest.mark.parametrize(
        ("made", "read", "into"),
        [
            (M, M, None),
            (M, N, Layout.COLUMNS),
            (N, M, Layout.ROWS),
            (M, NONE, Layout.REPLICATED),
            (N, NONE, Layout.REPLICATED),
            (NONE, M, None),
            (NONE, N, None),
            (K, M, Layout.ROWS),
            (K, N, Layout.COLUMNS),
            (K, NONE, Layout.REPLICATED),
        ],
    )
    def test_between_elementwise_kernels(self, made, read, into):
        lies, change = needed(made, read, simple())
        assert change is into
        assert (lies is Layout.PARTIAL) == (made is K)

    @pytest.mark.parametrize(
        ("operand", "read", "into"),
        [
            (0, M, Layout.REPLICATED),  # rows times a weight split by rows: all of it
            (0, K, None),
            (0, N, Layout.COLUMNS),
            (1, M, None),
            (1, K, Layout.COLUMNS),
            (1, N, Layout.REPLICATED),
        ],
    )
    def test_into_an_operand_of_a_product(self, operand, read, into):
        sizes = {"input_sizes": (SIZE, SIZE)}
        reader = untiled_product("reader", (1, 8, 8, 16), **sizes)
        assert needed(M, read, reader, operand) == (Layout.ROWS, into)

    def test_what_all_heads_multiply_is_needed_whole(self):
        # Three projections of 8 x 16 by heads: each head has its weights, all have the tokens.
        sizes = {"input_sizes": (SIZE,), "weight_size": 4 * 2 * 8 * 2.0}
        reader = untiled_product("reader", (4, 2, 8, 16), **sizes)
        assert needed(M, OUTER, reader) == (Layout.ROWS, Layout.REPLICATED)
        assert needed(M, OUTER, reader, rules=RELEASE) == (Layout.ROWS, None)

    def test_releases_add_sums_up_at_once(self):
        assert needed(K, M, simple(), rules=RELEASE) == (Layout.REPLICATED, None)


@pytest.fixture
def costs_of(a_system, a_dimension):
    """Return a builder of costs on four tensor-parallel chips."""

    def build(workload, rules=RULES, recompute=Recompute.NONE):
        system = a_system(network=(a_dimension(size=4, latency=1e-6),), n_chips=4)
        plan = make_plan(workload, system, (4,), (Parallelism.TENSOR,), 1, rules)
        plan = replace(plan, recompute=recompute)
        return plan, make_choices(workload, workload.graph, plan, 1, rules)

    return build


def read_by(*readers):
    """Return a product, and readers of what it makes."""
    kernels = [maker(K), *(replace(simple(), name=f"reader{i}") for i in range(readers[0]))]
    edges = [(1, i + 2, 0) for i in range(readers[0])]
    return Workload(graph=join(kernels, edges, WORD), sequence_length=16)


def paid(costs, axes):
    return float(costs.conversions.times(costs.index.codes(axes))[0])


class TestWhatIsPaid:
    def time(self, plan, start, *ends):
        return float(plan.changes[start, frozenset(ends)].lines.time(SIZE))

    def test_readers_of_one_layout_share_its_change(self, costs_of):
        plan, costs = costs_of(read_by(2))
        assert paid(costs, (K, M, M)) == self.time(plan, Layout.PARTIAL, Layout.ROWS)

    def test_who_has_it_all_cuts_the_rest_for_nothing(self, costs_of):
        plan, costs = costs_of(read_by(3))
        whole = self.time(plan, Layout.PARTIAL, Layout.REPLICATED)
        assert paid(costs, (K, M, N, NONE)) == whole
        assert paid(costs, (K, M, N, M)) == self.time(
            plan, Layout.PARTIAL, Layout.ROWS, Layout.COLUMNS
        )

    def test_sums_nobody_reads_are_scattered(self, costs_of):
        plan, costs = costs_of(read_by(0))
        (code,) = costs.index.codes((K,))
        assert costs.network_time[code] == self.time(plan, Layout.PARTIAL)

    def test_an_edge_that_carries_nothing_needs_nothing(self, costs_of):
        workload = read_by(1)
        (tensor,) = workload.graph.tensors
        hidden = replace(tensor, consumers=tuple(replace(c, elided=True) for c in tensor.consumers))
        _, costs = costs_of(replace(workload, graph=workload.graph.listing(tensors=(hidden,))))
        assert paid(costs, (K, M)) == 0.0


def summed(*readers):
    """Return two products, their sum, and readers of that; some of the products, too."""
    first = replace(maker(K), name="first")
    total = replace(elementwise("sum", 8, 16, word=WORD, inputs=2), tiling=Axis.NONE)
    kernels = [first, maker(K), total]
    kernels += [replace(simple(), name=f"reader{i}") for i in range(len(readers))]
    edges = [(1, 3, 0), (2, 3, 1)]
    edges += [(read, i + 4, 0) for i, read in enumerate(readers)]
    graph = join(kernels, edges, WORD)
    adds = np.array([kernel.name == "sum" for kernel in kernels])
    return Workload(graph=replace(graph, adds=adds), sequence_length=16)


class TestSumsOfParts:
    def test_parts_of_several_products_are_added_up_once(self, costs_of):
        plan, costs = costs_of(summed(3))
        for axis, layout in ((M, Layout.ROWS), (N, Layout.COLUMNS), (NONE, Layout.REPLICATED)):
            times = costs.conversions.times(costs.index.codes((K, K, Axis.PARTIAL, axis)))
            change = float(plan.changes[Layout.PARTIAL, frozenset({layout})].lines.time(SIZE))
            assert times.tolist() == [0.0, 0.0, change, 0.0]

    def test_what_is_whole_or_split_is_a_part_beside_zeros(self, costs_of):
        _, costs = costs_of(summed(3))
        for axis in (M, N):
            codes = costs.index.codes((axis, K, Axis.PARTIAL, NONE))
            assert costs.conversions.times(codes)[:2].tolist() == [0.0, 0.0]

    def test_only_where_all_that_read_a_part_add(self):
        def axes(workload, named=True):
            return choice_index(workload.graph, named=named).axes(2)

        assert Axis.PARTIAL in axes(summed(3))
        assert Axis.PARTIAL in axes(summed())
        assert Axis.PARTIAL not in axes(summed(1, 3))  # the first product is added up anyway
        assert Axis.PARTIAL not in axes(summed(3), named=False)

    def test_bytes_are_counted_where_parts_are_added_up(self, costs_of):
        _, costs = costs_of(summed(3))
        codes = costs.index.codes((K, K, Axis.PARTIAL, NONE))
        assert costs.conversions.passed_on(codes).tolist() == [True, True, False, False]
        codes = costs.index.codes((K, K, NONE, NONE))
        assert not costs.conversions.passed_on(codes).any()

    def test_a_layer_of_a_llama_adds_up_as_often_as_is_known(self):
        """Two sums forward and two backward, of a token's vector each (``shoeybi2019megatron``)."""
        graph = graphs.training(library.model("llama3-70b"), sequence=8192)
        workload = workload_of(graph, block="layers", items="batch")
        system = system_on("h100-dgx")
        plan = make_plan(workload, system, (8,), (Parallelism.TENSOR,), 1, RULES)
        costs = make_choices(workload, workload.graph, plan, 1, RULES, system.chip)
        found = least_with_layouts(costs, costs.index.domains(), costs.network_time)
        made = list(costs.conversions.made(found.best()))
        whole = (Layout.PARTIAL, frozenset({Layout.REPLICATED}))
        assert [(change.start, change.ends) for change in made] == [whole] * 4
        assert {change.size for change in made} == {8192 * 8192 * 2.0}


class TestJoins:
    def layers(self, count):
        """Return a product and what is read of the layer before, of which there are so many."""
        first, last = replace(simple(), name="first"), replace(maker(K), name="last")
        last = replace(last, input_sizes=(SIZE,), k=8, weight_size=128.0)
        return Workload(
            graph=join([first, last], [(1, 2, 0)], WORD), sequence_length=16, n_layers=count
        )

    def test_what_a_layer_makes_lies_as_the_next_one_needs_it(self, costs_of):
        plan, costs = costs_of(self.layers(3))
        index = costs.index
        assert (index.source[-1], index.target[-1]) == (1, 0)
        for axis, layout in ((M, Layout.ROWS), (N, Layout.COLUMNS), (NONE, Layout.REPLICATED)):
            time = costs.conversions.times(index.codes((axis, K)))[1]
            change = plan.changes[Layout.PARTIAL, frozenset({layout})]
            assert time == float(change.lines.time(SIZE))

    def test_a_single_layer_hands_nothing_on(self, costs_of):
        _, costs = costs_of(self.layers(1))
        assert len(costs.index.source) == 1

    def test_releases_do_not_look_at_them(self, costs_of):
        _, costs = costs_of(self.layers(3), RELEASE)
        assert len(costs.index.source) == 1

    def test_a_layer_reads_the_one_before_and_its_gradient_the_one_after(self):
        graph = llm(
            hidden=64, sequence_length=8, n_heads=4, head_size=16, n_layers=4, global_batch_size=8
        ).graph
        arrays = graph
        joined = {
            (arrays.names[i], arrays.names[j])
            for i, j in zip(arrays.join_source, arrays.join_target, strict=True)
        }
        back = {(f"{name}_bwd", "Loss_bwd") for name in "QKV"}
        assert joined == {("Add_2", "Add_Prev_Layer")} | back


def test_sequence_parallelism_is_among_the_shardings(costs_of):
    """Sums scattered after each block and gathered before it: an all-reduce in two halves.

    The elementwise kernels in between then work on a share of the tokens' rows
    (``korthikanti2023reducing``).
    """
    workload = llm(
        hidden=64, sequence_length=8, n_heads=4, head_size=16, n_layers=4, global_batch_size=8,
        training=False,
    )  # fmt: skip
    plan, costs = costs_of(workload)
    arrays = workload.graph
    row_parallel = {"PROJ_GEMM", "FFN1"}
    heads = {"Q", "K", "V", "MHA_GEMM_1", "SOFTMAX", "DropOut_1", "MHA_GEMM_2"}
    axes = [OUTER if name in heads else K if name in row_parallel else M for name in arrays.names]
    codes = costs.index.codes(axes)
    ways = {
        arrays.names[made.kernel]: plan.changes[made.start, made.ends].fastest(made.size)
        for made in costs.conversions.made(codes)
    }
    scattered, gathered = (Collective.REDUCE_SCATTER,), (Collective.ALL_GATHER,)
    assert ways == {
        "PROJ_GEMM": scattered, "FFN1": scattered, "LayerNorm_1": gathered, "LayerNorm_2": gathered
    }  # fmt: skip
