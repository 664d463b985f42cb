from __future__ import annotations

import pytest

from crosstack.errors import InputError
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.workload.kernels import Collective, Placement


def test_all_panels_of_the_published_matrix():
    workload = hpl(size=262144, block=4096)
    graph = workload.graph
    edges = sum(len(tensor.consumers) for tensor in graph.tensors)
    assert (len(graph), edges) == (64, 63)
    assert workload.work == 1.229253999853568e16  # HPL/Compare_w_existing/GPU/Selene
    assert (workload.placement, workload.data_size) == (Placement.GRID, 262144.0**2 * 8)


def test_some_panels_of_the_published_matrix():
    # HPL/DSE/system/h100/3d_torus_hbm_nvlink
    workload = hpl(size=1048576, block=2048, iterations=64, word=2)
    assert workload.work == pytest.approx(2.542307278418084e17, rel=1e-15)
    first, second = workload.graph.kernels[:2]
    assert (first.m, first.k, first.n, first.output_size) == (1048576, 1048576, 2048, 4294967296.0)
    assert (second.m, second.output_size) == (1046528, 4286578688.0)


def test_a_panel_is_broadcast_and_as_many_rows_move():
    (kernel,) = hpl(size=8, block=4, iterations=1).graph.kernels
    found = {c.collective: c.size for c in kernel.communications}
    assert found == {Collective.BROADCAST: 256.0, Collective.POINT_TO_POINT: 256.0}


def test_the_last_panel_may_be_narrow():
    assert [k.m for k in hpl(size=10, block=4).graph.kernels] == [10, 6, 2]


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"size": 100, "block": 101}, "block: got 101; allowed: at most the size .* 100"),
        ({"size": 0, "block": 1}, "size: got 0"),
        ({"size": 100, "block": 0}, "block: got 0"),
        ({"size": 100, "block": 30, "iterations": 5}, "iterations: got 5; .* size / block = 4"),
        ({"size": 100, "block": 30, "iterations": 0}, "iterations: got 0"),
        ({"size": 100, "block": 30, "word": 0}, "word: got 0"),
        ({"size": 10**9, "block": 1}, "iterations: got 1000000000; allowed: at most 100000"),
    ],
)
def test_what_makes_no_sense_is_refused(values, says):
    with pytest.raises(InputError, match=says):
        hpl(**values)
