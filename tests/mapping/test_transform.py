import pytest

from crosstack.errors import InputError
from crosstack.mapping.strategy import ParallelDimension, parse_strategy
from crosstack.mapping.transform import EdgeKind, ring_sizes, transform
from crosstack.published.dfmodel.graphs.llm import llm, llm_graph
from crosstack.workload.kernels import ComputeUnit, Kernel, KernelKind


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


# 32 tokens x 64 times 64 x 16 in numbers of 2 B: 1024 B made, 4096 B read, 2048 B of weights
KERNEL = Kernel(
    name="product", kind=KernelKind.GEMM_WEIGHT, m=16, k=64, n=32, unit=ComputeUnit.SYSTOLIC,
    input_sizes=(4096.0,), weight_size=2048.0, output_size=1024.0,
)  # fmt: skip


@pytest.mark.parametrize(
    ("strategy", "dimension", "sent"),
    [
        # the gradient of the eighth of the weights that a chip has, by three chips
        ("RC-4-2-d3-p1", ParallelDimension.DP, (0.0, 2 * 2 / 3 * 256)),
        ("CR-8-d1-p1", ParallelDimension.KP1, (7 / 8 * 1024, 7 / 8 * 1024)),
        # half of what is read and a column's half of what is made, by four chips
        ("RC-4-2-d1-p1", ParallelDimension.KP1, (0.0, 3 / 4 * (2048 + 512))),
        # a row's quarter of what is made; back with half of the weights
        ("RC-4-2-d1-p1", ParallelDimension.KP2, (1 / 2 * 256, 1 / 2 * (256 + 1024))),
        ("RC-1-1-d1-p1", ParallelDimension.KP1, (0.0, 0.0)),
    ],
)
def test_a_chip_sends_its_share_of_what_a_product_moves(strategy, dimension, sent):
    found = ring_sizes(KERNEL, 2, parse_strategy(strategy), dimension)
    assert found == pytest.approx(sent)


def test_a_chip_sends_more_for_more_sequences_and_the_same_gradients():
    strategy = parse_strategy("RC-4-2-d3-p1")
    for dimension, times in ((ParallelDimension.KP1, 3), (ParallelDimension.DP, 1)):
        one, three = (ring_sizes(KERNEL, 2, strategy, dimension, batch)[1] for batch in (1, 3))
        assert three == pytest.approx(times * one)
