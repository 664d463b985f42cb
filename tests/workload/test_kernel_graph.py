from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError, replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.workload import kernels as ops
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.workload import Workload


def a_product(**changes) -> ops.Kernel:
    values = {
        "name": "product",
        "kind": ops.KernelKind.GEMM_WEIGHT,
        "outer": 3,
        "m": 5,
        "k": 7,
        "n": 11,
        "input_sizes": (154.0,),
        "weight_size": 70.0,
        "output_size": 330.0,
        "unit": ops.ComputeUnit.SYSTOLIC,
    }
    return ops.Kernel(**{**values, **changes})


def tensor(producer: str, *readers: str, size: float = 8.0) -> ops.Tensor:
    return ops.Tensor(
        producer=producer, consumers=tuple(ops.Consumer(kernel=r) for r in readers), size=size
    )


@st.composite
def acyclic_edges(draw) -> tuple[int, list[tuple[int, int]]]:
    """Draw edges that lead forward in a hidden order, which is not the listing order."""
    n = draw(st.integers(2, 12))
    hidden = draw(st.permutations(range(n)))
    pairs = [(hidden[i], hidden[j]) for j in range(n) for i in range(j)]
    return n, draw(st.lists(st.sampled_from(pairs), unique=True))


class TestKernel:
    def test_a_systolic_kernel_counts_multiply_and_add(self):
        assert a_product().work == 2 * 3 * 5 * 7 * 11

    def test_an_elementwise_kernel_counts_one_operation_an_element(self, a_kernel):
        assert a_kernel("add", m=5, n=11, outer=3).work == 3 * 5 * 11

    def test_repeats_multiply_the_work(self):
        assert a_product(repeats=4).work == 4 * a_product().work

    def test_no_repeats_count_once(self):
        assert a_product(repeats=1).work == a_product().work

    def test_work_past_64_bits_does_not_overflow(self):
        large = 2**30
        assert a_product(m=large, k=large, n=large, outer=1).work == 2.0**91

    @pytest.mark.parametrize("density", [(1.5, 1.0, 1.0), (1.0, 0.0, 1.0), (1.0, 1.0, -0.5)])
    def test_a_mask_leaves_a_share_of_a_tensor(self, density):
        with pytest.raises(InputError, match="density"):
            a_product(density=density)
        assert a_product(density=(0.5, 1.0, 1.0)).density[0] == 0.5

    @pytest.mark.parametrize("axes", ["mn", "mk", "kn"])
    def test_a_tensor_past_64_bits_is_refused(self, axes):
        extents = {axis: 2**31 if axis in axes else 1 for axis in "mkn"}
        with pytest.raises(InputError, match=r"below 2\^62"):
            a_product(outer=1, **extents)

    @pytest.mark.parametrize(
        ("kind", "inputs"),
        [
            (ops.KernelKind.GEMM_WEIGHT, 1),
            (ops.KernelKind.GEMM, 2),
            (ops.KernelKind.ELEMENTWISE, 1),
            (ops.KernelKind.ELEMENTWISE_2, 2),
        ],
    )
    def test_a_kind_knows_its_operands(self, kind, inputs):
        assert kind.n_inputs == inputs

    @pytest.mark.parametrize(
        ("changes", "field"),
        [
            pytest.param({"name": " "}, "name", id="blank name"),
            pytest.param({"m": 0}, "m", id="no rows"),
            pytest.param({"n": 1.5}, "n", id="half a column"),
            pytest.param({"outer": True}, "outer", id="a truth value"),
            pytest.param({"output_size": -1.0}, "output_size", id="negative bytes"),
            pytest.param({"output_size": float("nan")}, "output_size", id="not a number"),
            pytest.param({"weight_size": float("inf")}, "weight_size", id="infinite bytes"),
            pytest.param({"input_sizes": (1.0, 1.0)}, "input_sizes", id="an operand too many"),
            pytest.param({"input_sizes": ()}, "input_sizes", id="an operand too few"),
            pytest.param({"input_sizes": (-1.0,)}, r"input_sizes\[0\]", id="negative operand"),
            pytest.param({"repeats": 0}, "repeats", id="never"),
            pytest.param({"sram_extra": -1.0}, "sram_extra", id="negative SRAM"),
            pytest.param({"memory_extra": -1.0}, "memory_extra", id="negative memory"),
            pytest.param({"memory_traffic": -1.0}, "memory_traffic", id="negative traffic"),
        ],
    )
    def test_a_wrong_field_is_named(self, changes, field):
        with pytest.raises(InputError, match=f"^{field}: got"):
            a_product(**changes)

    def test_an_elementwise_kernel_contracts_nothing(self, a_kernel):
        with pytest.raises(InputError, match="^k: got 2"):
            a_kernel("add", k=2)

    def test_only_a_weight_kernel_has_a_weight(self):
        with pytest.raises(InputError, match="^weight_size: got"):
            a_product(kind=ops.KernelKind.GEMM, input_sizes=(1.0, 1.0))

    def test_a_record_cannot_be_changed(self, a_kernel):
        with pytest.raises(FrozenInstanceError):
            a_kernel("add").m = 3

    def test_a_communication_of_negative_size_is_refused(self):
        with pytest.raises(InputError, match="^size: got"):
            ops.Communication(collective=ops.Collective.ALL_REDUCE, size=-1.0)


class TestKernelGraph:
    def test_a_diamond_has_three_levels(self, small_graph):
        assert small_graph.levels == (0, 1, 1, 2)

    def test_a_level_is_the_longest_path(self, a_graph):
        assert a_graph(3, [(0, 1), (1, 2), (0, 2)]).levels == (0, 1, 2)

    def test_kernels_without_edges_are_all_on_level_zero(self, a_graph):
        assert a_graph(3, []).levels == (0, 0, 0)

    def test_listing_order_need_not_be_topological(self, a_graph):
        assert a_graph(3, [(2, 1), (1, 0)]).order == (2, 1, 0)

    def test_the_length_is_the_number_of_kernels(self, small_graph):
        assert len(small_graph) == 4

    def test_names_lead_to_numbers(self, small_graph):
        assert small_graph.index["kernel_2"] == 2

    def test_work_is_the_sum_over_kernels(self, small_graph):
        assert small_graph.total_work == 4 * small_graph.kernels[0].work

    def test_weight_size_is_the_sum_over_kernels(self):
        kernels = (a_product(name="a"), a_product(name="b"))
        graph = kernel_graph(kernels=kernels, tensors=(), word=2)
        assert graph.total_weight_size == 140.0

    def test_a_graph_from_another_process_is_the_same_and_brings_no_hash(self, a_graph):
        graph = a_graph(3, [(0, 1), (1, 2)])
        known = {graph: "known"}
        back = pickle.loads(pickle.dumps(graph))
        assert back.digest is None  # of text, which another process hashes to something else
        assert known[back] == "known"
        assert back.value is graph.value  # found to be the same once
        assert graph != a_graph(3, [(0, 2), (1, 2)])

    def test_graphs_with_equal_records_are_equal(self, a_graph):
        assert a_graph(2, [(0, 1)]) == a_graph(2, [(0, 1)])

    def test_a_backward_kernel_makes_a_backward_pass(self, a_kernel):
        kernels = (a_kernel("a"), a_kernel("b", direction=ops.Direction.BACKWARD))
        assert kernel_graph(kernels=kernels, tensors=(), word=2).has_backward

    def test_forward_kernels_alone_make_none(self, small_graph):
        assert not small_graph.has_backward

    @given(acyclic_edges())
    def test_levels_rise_along_every_edge(self, a_graph, drawn):
        n, edges = drawn
        levels = a_graph(n, edges).levels
        assert all(levels[source] < levels[target] for source, target in edges)

    @given(acyclic_edges())
    def test_a_kernel_is_one_level_above_its_last_producer(self, a_graph, drawn):
        n, edges = drawn
        levels = a_graph(n, edges).levels
        for kernel in range(n):
            producers = [levels[source] for source, target in edges if target == kernel]
            assert levels[kernel] == max(producers, default=-1) + 1

    @given(acyclic_edges())
    def test_the_order_is_topological(self, a_graph, drawn):
        n, edges = drawn
        place = {kernel: i for i, kernel in enumerate(a_graph(n, edges).order)}
        assert all(place[source] < place[target] for source, target in edges)

    @given(acyclic_edges())
    def test_the_order_holds_every_kernel_once(self, a_graph, drawn):
        n, edges = drawn
        assert sorted(a_graph(n, edges).order) == list(range(n))

    @given(acyclic_edges(), st.data())
    def test_an_edge_back_along_a_path_is_a_cycle(self, a_graph, drawn, data):
        n, edges = drawn
        if not edges:
            return
        source, target = data.draw(st.sampled_from(edges))
        with pytest.raises(InputError, match="cycle"):
            a_graph(n, [*edges, (target, source)])

    def test_a_cycle_is_spelled_out_in_the_direction_of_the_data(self, a_graph):
        with pytest.raises(InputError) as caught:
            a_graph(4, [(0, 1), (1, 2), (2, 3), (3, 1)])
        names = str(caught.value).partition("cycle: ")[2].rstrip(".").split(" -> ")
        numbers = [int(name.removeprefix("kernel_")) for name in names]
        assert set(pairwise(numbers)) == {(1, 2), (2, 3), (3, 1)}

    def test_an_operand_is_one_tensor(self, a_kernel):
        kernels = tuple(a_kernel(name) for name in "abc")
        tensors = (tensor("a", "c"), tensor("b", "c"))
        with pytest.raises(InputError, match="operand 0 of 'c' is already what 'a' makes"):
            kernel_graph(kernels=kernels, tensors=tensors, word=2)

    def test_a_tensor_feeds_an_operand_once(self, a_kernel):
        kernels = (a_kernel("a"), a_kernel("b"))
        with pytest.raises(InputError, match="operand 0 of 'b' is already what 'a' makes"):
            kernel_graph(kernels=kernels, tensors=(tensor("a", "b", "b"),), word=2)

    def test_what_is_accounted_for_elsewhere_may_share_an_operand(self, a_kernel):
        kernels = tuple(a_kernel(name) for name in "abc")
        cache = ops.Tensor(
            producer="b", consumers=(ops.Consumer(kernel="c", elided=True),), size=8.0
        )
        graph = kernel_graph(kernels=kernels, tensors=(tensor("a", "c"), cache), word=2)
        assert graph.levels == (0, 0, 1)

    def test_a_kernel_that_reads_itself_is_a_cycle(self, a_graph):
        with pytest.raises(InputError, match="cycle: kernel_0 -> kernel_0"):
            a_graph(1, [(0, 0)])

    def test_an_empty_graph_is_refused(self):
        with pytest.raises(InputError, match="^kernels: got 0"):
            kernel_graph(kernels=(), tensors=(), word=2)

    def test_a_word_of_no_bytes_is_refused(self, a_kernel):
        with pytest.raises(InputError, match="^word: got 0"):
            kernel_graph(kernels=(a_kernel("a"),), tensors=(), word=0)

    def test_a_duplicate_name_says_who_has_it(self, a_kernel):
        kernels = (a_kernel("a"), a_kernel("b"), a_kernel("a"))
        with pytest.raises(InputError, match=r"kernels\[2\]\.name: duplicate.*kernels\[0\]"):
            kernel_graph(kernels=kernels, tensors=(), word=2)

    def test_an_unknown_consumer_brings_the_nearest_name(self, a_kernel):
        kernels = (a_kernel("softmax"), a_kernel("dropout"))
        with pytest.raises(InputError, match="no kernel is called 'dropuot'.*Nearest: 'dropout'"):
            kernel_graph(kernels=kernels, tensors=(tensor("softmax", "dropuot"),), word=2)

    def test_an_unknown_producer_is_refused(self, a_kernel):
        with pytest.raises(InputError, match=r"tensors\[0\]\.producer: no kernel is called 'z'"):
            kernel_graph(kernels=(a_kernel("a"),), tensors=(tensor("z", "a"),), word=2)

    def test_a_kernel_makes_one_tensor(self, a_kernel):
        kernels = (a_kernel("a"), a_kernel("b"), a_kernel("c"))
        tensors = (tensor("a", "b"), tensor("a", "c"))
        with pytest.raises(InputError, match=r"tensors\[1\]\.producer: 'a' already makes"):
            kernel_graph(kernels=kernels, tensors=tensors, word=2)

    def test_a_tensor_has_the_size_its_producer_makes(self, a_kernel):
        kernels = (a_kernel("a"), a_kernel("b", size=9.0))
        with pytest.raises(InputError, match=r"tensors\[0\]\.size: got 9 B, but 'a' makes 8 B"):
            kernel_graph(kernels=kernels, tensors=(tensor("a", "b", size=9.0),), word=2)

    def test_a_tensor_has_the_size_its_reader_expects(self, a_kernel):
        kernels = (a_kernel("a"), a_kernel("b", size=9.0))
        with pytest.raises(InputError, match=r"sizes disagree: 'a' makes 8 B.*'b' is 9 B"):
            kernel_graph(kernels=kernels, tensors=(tensor("a", "b"),), word=2)

    def test_sizes_may_differ_by_the_rounding_of_published_files(self, a_kernel):
        # kosho2013/DFModel prints 1342177280 as 1342177300.0
        kernels = (a_kernel("a", size=1342177280.0), a_kernel("b", size=1342177300.0))
        tensors = (tensor("a", "b", size=1342177300.0),)
        assert len(kernel_graph(kernels=kernels, tensors=tensors, word=2)) == 2

    @pytest.mark.parametrize("operand", [-1, 1])
    def test_an_operand_the_reader_does_not_have_is_refused(self, a_kernel, operand):
        kernels = (a_kernel("a"), a_kernel("b"))
        reader = ops.Consumer(kernel="b", operand=operand)
        tensors = (ops.Tensor(producer="a", consumers=(reader,), size=8.0),)
        with pytest.raises(InputError, match=f"operand: got {operand}; allowed for 'b': 0"):
            kernel_graph(kernels=kernels, tensors=tensors, word=2)

    def test_a_tensor_nobody_reads_is_refused(self):
        with pytest.raises(InputError, match="^consumers: got"):
            ops.Tensor(producer="a", consumers=(), size=8.0)

    def test_every_problem_is_reported_at_once(self, a_kernel):
        kernels = (a_kernel("a"), a_kernel("a"))
        tensors = (tensor("z", "a"), tensor("a", "y", size=9.0))
        with pytest.raises(InputError) as caught:
            kernel_graph(kernels=kernels, tensors=tensors, word=2)
        paths = [problem.path for problem in caught.value.problems]
        assert paths == [
            "kernels[1].name",
            "tensors[0].producer",
            "tensors[1].size",
            "tensors[1].consumers[0]",
        ]


class TestWorkload:
    def test_work_counts_layers_and_sequences(self, small_graph):
        workload = Workload(graph=small_graph, n_layers=6, global_batch_size=5)
        assert workload.work == 30 * small_graph.total_work

    def test_layers_in_the_graph_are_not_counted_twice(self, small_graph):
        workload = Workload(graph=small_graph, n_layers=6, layers_in_graph=2)
        assert workload.graph_repetitions == 3

    def test_layers_divide_evenly_into_graphs(self, small_graph):
        with pytest.raises(InputError, match="^n_layers: got 5; allowed: a multiple of"):
            Workload(graph=small_graph, n_layers=5, layers_in_graph=2)

    @pytest.mark.parametrize(
        "field", ["n_layers", "layers_in_graph", "global_batch_size", "sequence_length"]
    )
    def test_counts_start_at_one(self, small_graph, field):
        with pytest.raises(InputError, match=f"^{field}: got 0"):
            replace(Workload(graph=small_graph), **{field: 0})

    def test_a_boundary_of_negative_size_is_refused(self, small_graph):
        with pytest.raises(InputError, match="^boundary_size: got"):
            Workload(graph=small_graph, boundary_size=-1.0)

    def test_forward_kernels_alone_are_no_training(self, small_graph):
        assert not Workload(graph=small_graph).training


@pytest.mark.parametrize("wrong", [{"sent": 0.0}, {"sent": 1.5}, {"filled": 1.01}, {"tokens": 0.5}])
def test_a_group_gets_a_share_of_the_tokens(wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        ops.Routing(**wrong)
    assert ops.Routing(sent=1.0, filled=1.0).sent == 1


def test_an_elementwise_kernel_contracts_nothing():
    pointwise = {"kind": ops.KernelKind.ELEMENTWISE, "unit": ops.ComputeUnit.SIMD}
    same = {
        "m": 2,
        "n": 2,
        "outer": 1,
        "input_sizes": (8.0,),
        "output_size": 8.0,
        "weight_size": 0.0,
    }
    assert a_product(**pointwise, **same, k=1).k == 1
    with pytest.raises(InputError, match="k: got 2"):
        a_product(**pointwise, **same, k=2)
    assert a_product(k=7).k == 7


@pytest.mark.parametrize("repeats", [None, 1, 2, 7])
def test_a_graph_tells_how_often_a_kernel_was_said_to_run(repeats):
    graph = kernel_graph(kernels=(a_product(repeats=repeats),), tensors=(), word=2)
    assert graph.kernels[0].repeats == repeats


def test_a_graph_tells_who_comes_directly_before_and_behind(small_graph):
    assert small_graph.preds == (0, 0b0001, 0b0001, 0b0110)
    assert small_graph.succs == (0b0110, 0b1000, 0b1000, 0)
    assert not small_graph.adds.any()
