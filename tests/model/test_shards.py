from __future__ import annotations

import numpy as np
import pytest

from crosstack.machine.system import Parallelism
from crosstack.model.choices import index_of
from crosstack.model.mesh_plan import make_plan
from crosstack.model.rules import rules_named
from crosstack.model.shards import make_shards
from crosstack.workload.kernel_graph import kernel_graph
from crosstack.workload.kernels import Axis, ComputeUnit, Kernel, KernelKind
from crosstack.workload.workload import Workload

RULES = rules_named("crosstack")


@pytest.fixture(scope="session")
def shards_of(a_system, a_dimension):
    """Return a builder of the shards of 8 x 4 times 4 x 16, a weight of 64 B, on a ring."""

    def build(*, chips: int = 4, n_tiles: int = 4, counted: float = 1.0, **changes):
        kernel = Kernel(
            **{
                "name": "product", "kind": KernelKind.GEMM_WEIGHT, "m": 8, "k": 4, "n": 16,
                "input_sizes": (128.0,), "weight_size": 64.0, "output_size": 256.0,
                "unit": ComputeUnit.SYSTOLIC, **changes,
            }
        )  # fmt: skip
        graph = kernel_graph(kernels=(kernel,), tensors=(), word=2)
        workload = Workload(graph=graph, sequence_length=16)
        system = a_system(network=(a_dimension(size=chips),), n_chips=chips)
        plan = make_plan(workload, system, (chips,), (Parallelism.TENSOR,), 1, RULES)
        index = index_of(workload, graph, RULES)
        return make_shards(graph, plan, index, n_tiles, np.full((1, 3), counted))

    return build


def test_shards_of_all_chips_are_the_whole(shards_of):
    shards = shards_of(tiling=Axis.NONE)
    whole = np.prod(shards.spread.extents, axis=0)
    assert (4 * np.prod(shards.whole, axis=0) == whole).all()


def test_the_part_of_the_result_is_one_over_the_chips_but_where_a_sum_is_split(shards_of):
    shards = shards_of(tiling=Axis.NONE)
    split_sum = shards.spread.splits[1]
    assert shards.part.tolist() == np.where(split_sum, 1.0, 0.25).tolist()


def test_tiles_are_cut_of_what_a_chip_has_and_cover_it(shards_of):
    shards = shards_of(n_tiles=3)
    columns, tile = shards.whole[2], shards.extents[2]
    assert (tile == np.ceil(columns / 3)).all()
    assert (tile * shards.n_tiles >= columns).all()


def test_what_does_not_count_is_no_work(shards_of):
    assert (shards_of(counted=0.5).work == shards_of().work / 2).all()


def test_one_chip_has_all(shards_of):
    shards = shards_of(chips=1)
    assert (shards.whole == shards.spread.extents).all()
    assert (shards.part == 1).all()
