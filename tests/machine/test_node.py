"""Claims about servers and pods, and the systems they make."""

import math
from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.machine import network
from crosstack.machine.chip import flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.node import Fabric, NetworkPort, Node, system_of_chip, system_of_nodes
from crosstack.machine.system import Dimension, DimensionKind, Medium
from crosstack.workload.dtype import Dtype

CHIP = flat_chip(
    n_cores=4, lanes=4, stages=4, frequency=1e9, sram_capacity=1e6,
    memories=main_memory(bandwidth=1e11),
)  # fmt: skip
SWITCH = Dimension(kind=DimensionKind.SWITCH, size=8, bandwidth=4e11, latency=1e-6)
SERVER = Node(chip=CHIP, network=(SWITCH,), n_ports=4, port_bandwidth=2e10, name="server")
RING = Dimension(kind=DimensionKind.RING, size=4, bandwidth=5e10)
POD = Node(chip=CHIP, network=(RING, RING), name="pod")
TREE = Fabric(kind=DimensionKind.FAT_TREE, oversubscription=2.0, pod_size=16)


def test_a_part_of_a_server_keeps_its_switch():
    (dimension,) = system_of_nodes(SERVER, 4).network
    assert (dimension.kind, dimension.size, dimension.bandwidth) == (SWITCH.kind, 4, 4e11)


def test_whole_servers_are_joined_by_the_ports_of_their_chips():
    port = NetworkPort(bandwidth=2e10, latency=3e-6)
    system = system_of_nodes(SERVER, 64, fabric=TREE, port=port)
    inside, between = system.network
    assert (inside, system.n_chips) == (SWITCH, 64)
    assert (between.kind, between.size, between.latency) == (TREE.kind, 8, 3e-6)
    assert between.bandwidth == 4 * 2e10 / 8
    assert (between.oversubscription, between.pod_size) == (2.0, 16)


def test_of_a_ring_that_is_cut_a_mesh_is_left():
    pod = Node(chip=CHIP, network=(Dimension(kind=RING.kind, size=9, bandwidth=1.0), RING))
    first, second = system_of_nodes(pod, 12).network
    assert (first.kind, first.size, second.kind, second.size) == (
        DimensionKind.MESH, 3, DimensionKind.RING, 4,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("chips", "shape"),
    [(2, (2,)), (3, (3,)), (4, ()), (1, ())],  # two of four have one link
)
def test_a_part_of_a_ring_is_a_line(chips, shape):
    part = RING.part(chips)
    assert (part.size, part.shape) == (chips, shape)
    assert part.kind is (DimensionKind.MESH if shape else DimensionKind.RING)
    assert SWITCH.part(2) == replace(SWITCH, size=2)


def test_one_chip_alone_sends_nothing():
    assert system_of_nodes(SERVER, 1).network == system_of_chip(CHIP).network
    assert system_of_chip(CHIP).network[0].size == 1


@pytest.mark.parametrize(
    ("node", "n_chips", "says"),
    [
        (SERVER, 12, "got 12; allowed: up to 8, or a multiple of it"),
        (SERVER, 16, "needs a fabric"),
        (POD, 32, "pod has no ports out; allowed: up to 16"),
        (POD, 7, "pod is 4 x 4 chips, and no part of it has so many"),
        (SERVER, 0, "at least 1"),
    ],
)
def test_chips_that_nodes_do_not_make_are_refused(node, n_chips, says):
    with pytest.raises(InputError, match=says):
        system_of_nodes(node, n_chips)


# --- the library ----------------------------------------------------------------------------------

BOUGHT = [name for name in library.names("chips") if library.chip(name).memories]


@pytest.mark.parametrize("name", library.names("chips"))
def test_a_chip_reaches_the_rates_of_its_data_sheet(name):
    chip, entry = library.chip(name), library.entry("chips", name)
    for dtype, rate in entry.under("rates").items():
        assert chip.rate(dtype) == pytest.approx(rate, rel=0.03)


@pytest.mark.parametrize("name", library.names("nodes"))
def test_a_node_is_a_system_where_its_chip_has_a_memory(name):
    node = library.node(name)
    assert node.n_chips == library.entry("nodes", name).values["chips"]
    if library.chip(node.chip.name).memories and node.chip.main_memory.bandwidth:
        system = library.system_on(name)
        assert math.prod(d.size for d in system.network) == system.n_chips == node.n_chips


def test_many_servers_are_joined_by_rails_where_every_chip_has_a_port():
    inside, between = library.system_on("h100-dgx", chips=512).network
    assert (inside.kind, inside.size, inside.reduces) == (DimensionKind.SWITCH, 8, True)
    assert (between.kind, between.size) == (DimensionKind.RAIL_OPTIMISED, 64)
    assert (between.bandwidth, between.latency, between.pod_size) == (50e9, 2.7e-6, 32)
    *_, shared = library.system_on("v100-dgx-2", chips=64).network
    assert (shared.kind, shared.bandwidth) == (DimensionKind.FAT_TREE, 6.25e9)


def test_a_fabric_and_a_port_may_be_named():
    made = library.system_on("h100-dgx", chips=64, fabric="fat-tree-2to1", port="infiniband-xdr")
    assert (made.network[1].oversubscription, made.network[1].bandwidth) == (2.0, 100e9)


def test_a_chip_by_its_name_is_alone():
    system = library.system_on("h100-sxm")
    assert (system.n_chips, system.chip) == (1, library.chip("h100-sxm"))


@pytest.mark.parametrize(
    ("name", "given", "says"),
    [
        ("h100-dgxx", {}, 'on: no node or chip is called "h100-dgxx". Did you mean "h100-dgx"'),
        ("h100-sxm", {"chips": 8}, "got 8, but h100-sxm is one chip. Nodes of it: h100-dgx"),
        ("h100-dgx", {"chips": 64, "fabric": "tree"}, 'fabric: no fabric is called "tree"'),
        ("h100-dgx", {"chips": 64, "port": "ib"}, 'link: no link is called "ib"'),
        ("cs-2", {}, '"cs-2", whose main memory is not in the library'),
    ],
)  # fmt: skip
def test_what_the_library_does_not_have_is_refused(name, given, says):
    with pytest.raises(InputError, match=says.replace("?", ".")):
        library.system_on(name, **given)


@pytest.mark.parametrize("name", BOUGHT)
def test_a_slower_clock_is_nowhere_faster(name):
    chip = library.chip(name)
    slow = library.chip(name, frequency=0.8 * chip.compute.frequency)
    assert slow.peak_throughput == pytest.approx(0.8 * chip.peak_throughput)
    for before, after in zip(chip.storage, slow.storage, strict=True):
        assert after.speed <= before.speed
        assert after.latency >= before.latency
        assert after.capacity == before.capacity


def test_elementwise_work_runs_beside_the_tensor_cores():
    chip = library.chip("a100-sxm-80gb")
    assert chip.vector_throughput(Dtype.BF16) == pytest.approx(39e12)
    assert chip.vector_throughput(Dtype.INT8) == pytest.approx(19.5e12)  # as single precision
    plain = chip.with_compute(relative_vector_rates=(), utilization=0.5)
    assert plain.vector_throughput(Dtype.BF16) == plain.throughput(Dtype.BF16)


def test_what_a_library_of_collectives_reaches_is_of_switches_and_of_ports_out_of_its_nodes():
    def reached(level):
        return level.medium, level.pace, level.achieved

    def joined(**how):
        node = library.node("a100-dgx-80gb")
        fabric, port = library.joined_by(node)
        return system_of_nodes(node, 32, fabric=fabric, port=port, **how).network

    inside, outside = joined()
    assert reached(inside) == (Medium.NVLINK, 1.3, 0.8)
    assert reached(outside) == (Medium.NETWORK, 1.0, 0.96)
    assert reached(joined(inside=network.SWITCH)[0]) == (Medium.NVLINK, 1.3, 0.8)
    assert reached(joined(inside=network.RING)[0]) == (None, 1.0, 1.0)
    assert reached(joined(between=network.SWITCH)[1]) == (Medium.NETWORK, 1.0, 0.96)
    assert reached(joined(between=network.RING)[1]) == (None, 1.0, 0.96)
    # Not of nodes whose own links have none.
    _, outside = library.system_on("tpu-v5p-cube", chips=128).network[-2:]
    assert outside.medium is None
