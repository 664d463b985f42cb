from __future__ import annotations

import pytest

from crosstack.errors import InputError
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.workload.kernels import Axis, Collective, Direction, Placement

SHAPE = {
    "width": 64, "n_bottom": 2, "n_top": 3, "n_tables": 7, "pooled_rows": 5, "embedding_size": 4,
    "samples": 8,
}  # fmt: skip
# 7 tables x 5 rows x 4 numbers x 8 samples x 2 bytes
LOOKED_UP = 2240.0


def dlrm_graph(**shape):
    return dlrm(**shape, rows=100, global_batch_size=16).graph


def n_edges(graph) -> int:
    return sum(len(tensor.consumers) for tensor in graph.tensors)


@pytest.mark.parametrize(
    ("layers", "kernels", "edges"),
    [((10, 10), 60, 76), ((20, 23), 129, 168)],  # DLRM-A and DLRM-I, published inputs
)
def test_training_has_as_many_kernels_and_edges_as_published(layers, kernels, edges):
    graph = dlrm_graph(**{**SHAPE, "n_bottom": layers[0], "n_top": layers[1]})
    assert (len(graph), n_edges(graph)) == (kernels, edges)


def test_the_forward_pass_is_a_chain():
    graph = dlrm_graph(**SHAPE, training=False)
    assert (len(graph), n_edges(graph)) == (5, 4)
    assert graph.levels == (0, 1, 2, 3, 4)


def test_only_the_last_bottom_layer_exchanges_embeddings_in_either_direction():
    graph = dlrm_graph(**SHAPE)
    exchanging = {
        k.name: (k.communications[0].collective, k.communications[0].size, k.memory_traffic)
        for k in graph.kernels
        if k.memory_traffic
    }
    exchange = (Collective.ALL_TO_ALL, LOOKED_UP, LOOKED_UP)
    assert exchanging == {"MLP_2": exchange, "MLP_2_bwd": exchange}


def test_backward_kernels_come_in_reverse_then_the_updates():
    names = [k.name for k in dlrm_graph(**SHAPE).kernels if k.direction is Direction.BACKWARD]
    suffixes = [f"MLP_{i}_bwd" for i in (5, 4, 3, 2, 1)]
    assert names == suffixes + [f"{name}_weight_update" for name in suffixes]


def test_an_update_reads_the_activation_before_and_the_gradient_after_its_layer():
    graph = dlrm_graph(**SHAPE)
    reads = {}
    for tensor in graph.tensors:
        for consumer in tensor.consumers:
            reads.setdefault(consumer.kernel, {})[consumer.operand] = tensor.producer
    assert reads["MLP_3_bwd_weight_update"] == {0: "MLP_2", 1: "MLP_4_bwd"}
    assert reads["MLP_5_bwd_weight_update"] == {0: "MLP_4"}
    assert reads["MLP_1_bwd_weight_update"] == {0: "MLP_2_bwd"}


def test_updates_reduce_the_gradient_of_the_weight_over_all_chips():
    update = dlrm_graph(**SHAPE).kernels[-1]
    (reduce,) = update.communications
    assert (reduce.periodic, reduce.size) == (True, 64 * 64 * 2.0)
    assert (update.m, update.k, update.n, update.tiling) == (64, 8, 64, Axis.NONE)


def test_every_kernel_multiplies_as_much():
    graph = dlrm_graph(**SHAPE)
    assert {k.work for k in graph.kernels} == {2.0 * 64 * 64 * 8}


def test_the_tables_lie_on_all_chips_together():
    workload = dlrm(**SHAPE, rows=100, global_batch_size=16)
    assert workload.data_size == 7 * 100 * 4 * 2
    assert workload.placement is Placement.BATCH


@pytest.mark.parametrize("field", [*SHAPE, "rows", "global_batch_size"])
@pytest.mark.parametrize("value", [0, -1, 1.5])
def test_what_makes_no_sense_is_refused_by_name(field, value):
    values = {**SHAPE, "rows": 100, "global_batch_size": 16, field: value}
    with pytest.raises(InputError, match=f"{field}: got {value}; allowed: a whole number"):
        dlrm(**values)


def test_a_mistyped_number_of_layers_is_refused():
    with pytest.raises(InputError, match="n_top: got 1000000; allowed: at most"):
        dlrm(**{**SHAPE, "n_top": 10**6}, rows=100, global_batch_size=16)
