import pytest

from crosstack.errors import InputError
from crosstack.mapping.strategy import parse_strategy
from crosstack.mapping.transform import EdgeKind, transform
from crosstack.published.dfmodel.graphs.llm import llm, llm_graph


def graph():
    return llm_graph(training=False, hidden=64, sequence_length=32, n_heads=4, head_size=16)


def kinds(step):
    return {kind: sum(edge.kind is kind for edge in step.edges) for kind in EdgeKind}


def test_the_first_step_is_the_graph_itself():
    steps = transform(graph(), parse_strategy("RC-1-1-d1-p1"))
    assert len(steps) == 1
    assert [n.kernel for n in steps[0].nodes] == [k.name for k in graph().kernels]


def test_every_step_multiplies_the_nodes_by_its_degree():
    steps = transform(graph(), parse_strategy("RC-4-2-d3-p2"))
    count = len(graph())
    assert [len(s.nodes) for s in steps] == [count * n for n in (1, 1, 3, 12, 24)]
    assert [s.title for s in steps[1:3]] == ["2 stages", "3 ways along dp"]


def test_cr_makes_one_ring_and_rc_a_torus():
    rc = kinds(transform(graph(), parse_strategy("RC-4-2-d1-p1"))[-1])
    cr = kinds(transform(graph(), parse_strategy("CR-8-d1-p1"))[-1])
    assert rc[EdgeKind.ROW] == rc[EdgeKind.COLUMN] > 0
    assert cr[EdgeKind.ROW] > 0 == cr[EdgeKind.COLUMN]


def test_only_products_exchange_and_only_weights_are_summed():
    g = graph()
    products = sum(k.kind.is_gemm for k in g.kernels)
    weights = sum(k.weight_size > 0 for k in g.kernels)
    step = transform(g, parse_strategy("CR-4-d2-p1"))[-1]
    assert kinds(step)[EdgeKind.ROW] == products * 8
    assert kinds(step)[EdgeKind.REPLICA] == weights * 8


def test_tensors_are_shared_out_and_none_is_lost():
    whole = transform(graph(), parse_strategy("RC-1-1-d1-p1"), batch=8)[0]
    split = transform(graph(), parse_strategy("RC-2-2-d2-p1"), batch=8)[-1]
    for direction in ("forward", "backward"):
        sizes = [
            sum(getattr(edge, direction) for edge in step.edges if edge.kind is EdgeKind.DATA)
            for step in (whole, split)
        ]
        assert sizes[1] == pytest.approx(sizes[0])


def test_edges_between_stages_are_cross_edges():
    step = transform(graph(), parse_strategy("RC-1-1-d1-p3"))[-1]
    for edge in step.edges:
        apart = step.nodes[edge.source].stage != step.nodes[edge.target].stage
        assert (edge.kind is not EdgeKind.DATA) == apart


def test_data_does_not_flow_to_an_earlier_stage():
    g = graph()
    backwards = [1 if i == g.order[0] else 0 for i in range(len(g))]
    with pytest.raises(InputError, match="data flows forward"):
        transform(g, parse_strategy("RC-1-1-d1-p2"), stages=backwards)


def test_a_graph_too_large_to_write_down_is_refused():
    with pytest.raises(InputError, match="nodes"):
        transform(graph(), parse_strategy("RC-256-256-d16-p1"))


def test_a_graph_with_its_own_backward_pass_is_refused():
    training = llm(
        hidden=64, sequence_length=32, n_heads=4, head_size=16, n_layers=1, global_batch_size=1
    )
    with pytest.raises(InputError, match="forward graph"):
        transform(training.graph, parse_strategy("RC-1-2-d1-p1"))
