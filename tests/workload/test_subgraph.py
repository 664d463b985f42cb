from __future__ import annotations

import numpy as np

from crosstack.workload.kernel_graph import bits
from crosstack.workload.kernels import Saved
from crosstack.workload.subgraph import graph_of_rows
from tests.builders.graphs import product_and_function

READERS = {
    "product": [("function", 0)],
    "function_back": [("product_back", 0), ("update", 1)],
}
GRAPH = product_and_function(READERS, saved=Saved.INPUT)


def edges_of(graph):
    columns = graph.source, graph.target, graph.operand, graph.tensor, graph.elided
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_all_kernels_of_a_graph_are_the_graph():
    assert graph_of_rows(GRAPH, range(GRAPH.n), edges_of(GRAPH)) == GRAPH


def test_fewer_kernels_have_the_edges_that_are_given():
    found = graph_of_rows(GRAPH, (0, 1), [(0, 1, 0, 0, False)])
    assert found.names == ("product", "function")
    assert (found.preds, found.succs) == ((0, 1), (2, 0))
    assert found.tensor_size.tolist() == [64.0]
    assert found.open_output.tolist() == [False, True]


def test_a_kernel_that_is_there_twice_makes_its_result_twice():
    # the function reads the second product, and runs behind the first one all the same
    found = graph_of_rows(GRAPH, (0, 1, 0), [(2, 1, 0, 0, False)], later=[(0, 1)])
    assert found.names == ("product", "function", "product")
    assert found.m.tolist() == GRAPH.m[[0, 1, 0]].tolist()
    assert bits(found.preds[1]) == [0, 2]
    assert np.flatnonzero(found.open_output).tolist() == [0, 1]
    assert found.order.index(1) > max(found.order.index(0), found.order.index(2))
