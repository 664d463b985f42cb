import random
import time
from itertools import pairwise

import pytest

from crosstack.report.layout import Layout, Rectangle, layered


def edges_of(n: int, seed: int) -> list[tuple[int, int]]:
    draw = random.Random(seed)
    pairs = {(draw.randrange(max(0, t - 9), t), t) for t in range(1, n) for _ in range(2)}
    return sorted(pairs)


def drawn(n: int, seed: int, per_cluster: int) -> Layout:
    widths = [60.0 + 7 * (i % 5) for i in range(n)]
    clusters = [i // per_cluster for i in range(n)]
    return layered(widths, edges_of(n, seed), clusters, node_height=30.0, gutter=100.0)


def overlap(a: Rectangle, b: Rectangle) -> bool:
    apart = a.x + a.width <= b.x or b.x + b.width <= a.x
    return not (apart or a.y + a.height <= b.y or b.y + b.height <= a.y)


@pytest.mark.parametrize("seed", range(5))
def test_no_node_lies_on_another(seed):
    nodes = drawn(60, seed, 15).nodes
    assert not any(overlap(a, b) for i, a in enumerate(nodes) for b in nodes[:i])


@pytest.mark.parametrize("seed", range(5))
def test_every_node_lies_in_its_cluster_and_clusters_follow_each_other(seed):
    layout = drawn(60, seed, 15)
    for i, node in enumerate(layout.nodes):
        frame = layout.clusters[i // 15]
        assert frame.x + 100 <= node.x
        assert node.x + node.width <= frame.x + frame.width
        assert frame.y <= node.y
        assert node.y + node.height <= frame.y + frame.height
    for above, below in pairwise(layout.clusters):
        assert above.y + above.height < below.y


@pytest.mark.parametrize("seed", range(5))
def test_every_wire_leads_down_from_its_producer_to_its_reader(seed):
    layout = drawn(60, seed, 15)
    for (source, target), wire in zip(edges_of(60, seed), layout.wires, strict=True):
        maker, reader = layout.nodes[source], layout.nodes[target]
        assert wire.points[0] == pytest.approx((maker.x + maker.width / 2, maker.y + maker.height))
        assert wire.points[-1][1] == reader.y
        assert reader.x < wire.points[-1][0] < reader.x + reader.width
        assert all(a[1] <= b[1] for a, b in pairwise(wire.points))
        assert all(0 <= x <= layout.width and 0 <= y <= layout.height for x, y in wire.points)


def test_the_same_graph_gives_the_same_picture():
    assert drawn(60, 3, 15) == drawn(60, 3, 15)


def test_one_node_needs_no_edges():
    layout = layered([80.0], [], [0], node_height=30.0)
    assert layout.nodes[0].width == 80.0
    assert layout.wires == ()


def test_a_wide_graph_is_folded_into_several_layers():
    layout = layered([80.0] * 50, [], [0] * 50, node_height=30.0)
    assert layout.width < 1000


def test_two_thousand_kernels_are_laid_out_in_seconds():
    started = time.process_time()
    drawn(2000, 0, 200)
    assert time.process_time() - started < 12  # one or two seconds on an idle machine
