from __future__ import annotations

import numpy as np
import pytest

from crosstack.machine.system import Parallelism
from crosstack.model.choice_index import choice_index, sharding_codes
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.rules import as_dfmodel
from crosstack.workload.kernel_graph import AXES, AXIS_CODE, kernel_graph
from crosstack.workload.kernels import (
    Axis,
    Collective,
    Communication,
    ComputeUnit,
    Consumer,
    Kernel,
    KernelKind,
    Tensor,
)
from crosstack.workload.workload import Workload

OUTER, M, K, N, NONE = (AXIS_CODE[a] for a in AXES[:5])
RULES = rules_named("crosstack")


def product(**changes) -> Kernel:
    """Return 8 x 4 times 4 x 16, tiled along N, with a weight of 64 B."""
    values = {
        "name": "product",
        "kind": KernelKind.GEMM_WEIGHT,
        "m": 8,
        "k": 4,
        "n": 16,
        "input_sizes": (128.0,),
        "weight_size": 64.0,
        "output_size": 256.0,
        "unit": ComputeUnit.SYSTOLIC,
    }
    return Kernel(**{**values, **changes})


def simple(**changes) -> Kernel:
    """Return an elementwise kernel of 8 x 16, tiled along N."""
    values = {
        "name": "simple",
        "kind": KernelKind.ELEMENTWISE,
        "m": 8,
        "n": 16,
        "input_sizes": (256.0,),
        "output_size": 256.0,
        "unit": ComputeUnit.SIMD,
    }
    return Kernel(**{**values, **changes})


def axes(kernel: Kernel) -> set[str]:
    graph = kernel_graph(kernels=(kernel,), tensors=(), word=2)
    return {axis.value for axis in choice_index(graph).axes(0)}


def at(choices, axis: int, kernel: int = 0) -> int:
    """Return the column of the choice that splits a kernel along an axis."""
    index = choices.index
    return int(index.start[kernel]) + index.axes(kernel).index(AXES[axis])


class TestAxesOfAKernel:
    @pytest.mark.parametrize(
        ("kernel", "allowed"),
        [
            (product(), {"m", "k"}),  # N is tiled; a weight is split
            (product(tiling=Axis.NONE), {"m", "k", "n"}),
            (product(outer=3), {"outer"}),  # a batch is split along its batch
            (product(m=1, k=1, tiling=Axis.NONE), {"n"}),
            (product(m=1, k=1), {"none"}),
            (simple(), {"m", "none"}),
            (simple(tiling=Axis.M), {"n", "none"}),
            (simple(m=1), {"none"}),
        ],
    )
    def test_a_kernel_is_split_along(self, kernel, allowed):
        assert axes(kernel) == allowed


@pytest.fixture(scope="session")
def costs_of(a_system, a_dimension):
    """Return a builder of the tables of one kernel on a ring of tensor-parallel chips."""

    def build(kernel: Kernel, *, chips: int = 4, n_tiles: int = 4, rules=RULES, batch: int = 1):
        graph = kernel_graph(kernels=(kernel,), tensors=(), word=2)
        workload = Workload(graph=graph, sequence_length=16, global_batch_size=batch)
        system = a_system(network=(a_dimension(size=chips),), n_chips=chips)
        plan = make_plan(workload, system, (chips,), (Parallelism.TENSOR,), 1, rules)
        return make_choices(workload, graph, plan, n_tiles, rules)

    return build


class TestTables:
    @pytest.mark.parametrize(
        ("axis", "extents"),
        [(M, (2, 4, 4)), (K, (8, 1, 4)), (N, (8, 4, 4))],
    )
    def test_a_tile_on_one_chip_has_the_extents(self, costs_of, axis, extents):
        o = costs_of(product(tiling=Axis.NONE if axis == N else Axis.N))
        here = at(o, axis)
        assert (o.m[here], o.k[here], o.columns[here]) == extents

    @pytest.mark.parametrize("axis", [M, K, N])
    def test_split_work_adds_up_to_the_whole(self, costs_of, axis):
        o = costs_of(product(tiling=Axis.NONE))
        assert o.work[at(o, axis)] * 4 == product().work

    def test_an_extent_that_does_not_divide_rounds_up(self, costs_of):
        o = costs_of(product(), chips=3)
        assert o.m[at(o, M)] == 3

    @pytest.mark.parametrize(("axis", "size"), [(M, 16.0), (K, 16.0), (N, 64.0)])
    def test_a_weight_is_split_along_its_own_axes(self, costs_of, axis, size):
        o = costs_of(product(tiling=Axis.NONE))
        assert o.weight[at(o, axis)] == size

    def test_a_whole_output_is_all_of_its_tiles(self, costs_of):
        o = costs_of(product())
        assert o.output_total[at(o, M)] == 4 * o.output_tile[at(o, M)] == 64

    def test_a_kernel_tiled_along_k_adds_its_tiles_up(self, costs_of):
        o = costs_of(product(tiling=Axis.K))
        assert o.output_total[at(o, M)] == o.output_tile[at(o, M)] == 2 * 16 * 2

    def test_an_untiled_kernel_has_one_tile(self, costs_of):
        o = costs_of(product(tiling=Axis.NONE))
        assert o.n_tiles[at(o, M)] == 1

    @pytest.mark.parametrize(("axis", "pays"), [(M, False), (K, True), (N, False)])
    def test_only_a_split_contraction_is_reduced(self, costs_of, axis, pays):
        o = costs_of(product(tiling=Axis.NONE))
        assert bool(o.network_time[at(o, axis)] > 0) is pays

    def test_a_reduction_moves_the_whole_output(self, costs_of):
        # one half, as any layout will do where nobody reads it: 3/4 x 256 B over two links of
        # 25 GB/s (thakur2005)
        o = costs_of(product())
        assert o.network_time[at(o, K)] == pytest.approx(3 / 4 * 256 / 50e9)

    def test_one_chip_communicates_nothing(self, costs_of):
        assert not costs_of(product(), chips=1).network_time.any()

    def test_communication_of_a_kernel_comes_with_every_axis(self, costs_of):
        extra = Communication(collective=Collective.ALL_GATHER, size=100.0)
        o = costs_of(product(communications=(extra,)))
        assert o.network_time[at(o, M)] == pytest.approx(3 / 4 * 100 / 50e9)

    def test_repeats_multiply_work(self, costs_of):
        three, one = costs_of(product(repeats=3)), costs_of(product())
        assert three.work[at(three, M)] == 3 * one.work[at(one, M)]


@pytest.mark.parametrize("of_shard", [True, False])
def test_a_conversion_moves_the_shard_or_the_whole(a_system, a_dimension, of_shard):
    tensor = Tensor(producer="a", consumers=(Consumer(kernel="b"),), size=256.0)
    kernels = (simple(name="a"), simple(name="b"))
    workload = Workload(
        graph=kernel_graph(kernels=kernels, tensors=(tensor,), word=2), sequence_length=16
    )
    system = a_system(network=(a_dimension(size=4),), n_chips=4)
    rules = as_dfmodel(RULES).changed(conversion_of_shard=of_shard)
    plan = make_plan(workload, system, (4,), (Parallelism.TENSOR,), 1, rules)
    o = make_choices(workload, workload.graph, plan, 4, rules)
    moved = 256.0 / 4 if of_shard else 256.0
    entry = o.index.entries(np.array([at(o, M), at(o, NONE, 1)]))
    assert o.conversions.edge_time[entry[0]] == pytest.approx(3 / 4 * moved / 50e9)


def test_an_axis_that_is_no_choice_is_minus_one_or_the_first():
    graph = kernel_graph(kernels=(product(),), tensors=(), word=2)
    index = choice_index(graph)
    assert sharding_codes(index, (Axis.N,), split=True).tolist() == [-1]
    assert sharding_codes(index, (Axis.N,), split=False).tolist() == [0]
