"""What a collective takes on one level and over several, by hand and in its limits."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.machine.chip import Execution
from crosstack.machine.memory import main_memory
from crosstack.machine.system import AllReduceAlgorithm, Dimension, DimensionKind, Medium
from crosstack.model.collectives import (
    Arrival,
    Extent,
    Group,
    collective_lines,
    group_of,
    is_legal,
)
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernels import Collective

K, C, A = DimensionKind, Collective, AllReduceAlgorithm
SWITCHED = [K.SWITCH, K.FAT_TREE, K.DRAGONFLY, K.RAIL_ONLY, K.RAIL_OPTIMISED]
GB, US = 1e9, 1e-6


def level(kind, size, *, bandwidth=100 * GB, latency=0.0, **more):
    return Dimension(kind=kind, size=size, bandwidth=bandwidth, latency=latency, **more)


def alone(dimension):
    """Return all chips of one level."""
    return group_of((dimension,), (dimension.size,), (dimension.size,), 0)


def server(chips=8, servers=4, *, kind=K.RAIL_OPTIMISED, latency=0.0):
    """Return the group of all chips of some servers."""
    inside = level(K.SWITCH, chips, bandwidth=400 * GB, latency=latency)
    outside = level(kind, servers, bandwidth=50 * GB, latency=latency)
    return group_of((inside, outside), (chips, servers), (chips * servers,), 0)


def seconds(collective, group, size, **given):
    return float(collective_lines(collective, group, **given).time(size))


# ---------------------------------------------------------------- one level, by hand


@pytest.mark.parametrize(
    ("collective", "kind", "chips", "seconds_per_byte"),
    [
        pytest.param(C.ALL_GATHER, K.SWITCH, 8, 7 / 8, id="thakur2005: (p-1)/p"),
        pytest.param(C.REDUCE_SCATTER, K.SWITCH, 8, 7 / 8, id="thakur2005: its mirror"),
        pytest.param(C.ALL_REDUCE, K.SWITCH, 8, 14 / 8, id="thakur2005: both halves"),
        pytest.param(C.ALL_GATHER, K.RING, 8, 7 / 16, id="chan2006multilink: both ways round"),
        pytest.param(C.ALL_REDUCE, K.RING, 8, 7 / 8, id="both ways round, there and back"),
        pytest.param(C.ALL_REDUCE, K.RING, 2, 1 / 2, id="a ring of two has two links"),
        pytest.param(C.ALL_GATHER, K.FULLY_CONNECTED, 8, 1 / 8, id="a share over each link"),
        pytest.param(C.ALL_REDUCE, K.FULLY_CONNECTED, 8, 2 / 8, id="a share, there and back"),
        pytest.param(C.ALL_TO_ALL, K.RING, 8, 16 / 2 / 64, id="dally2004: 16 pairs, two links"),
        pytest.param(C.ALL_TO_ALL, K.SWITCH, 8, 7 / 64, id="thakur2005: p-1 pairs"),
        pytest.param(C.ALL_TO_ALL, K.FULLY_CONNECTED, 8, 1 / 64, id="one pair"),
        pytest.param(C.POINT_TO_POINT, K.RING, 8, 1.0, id="to a neighbour"),
    ],
)  # fmt: skip
def test_large_messages_take_what_the_busiest_link_carries(
    collective, kind, chips, seconds_per_byte
):
    found = seconds(collective, alone(level(kind, chips)), 1e12)
    assert found == pytest.approx(seconds_per_byte * 1e12 / (100 * GB), rel=1e-12)


@pytest.mark.parametrize(
    ("collective", "kind", "hops"),
    [
        (C.ALL_GATHER, K.SWITCH, 7),
        (C.ALL_GATHER, K.RING, 4),
        (C.ALL_GATHER, K.FULLY_CONNECTED, 1),
        (C.ALL_REDUCE, K.SWITCH, 6),  # up and down a tree of three levels
        (C.ALL_REDUCE, K.RING, 8),
        (C.ALL_REDUCE, K.FULLY_CONNECTED, 1),
        (C.ALL_TO_ALL, K.RING, 4),
        (C.BROADCAST, K.SWITCH, 3),
        (C.BROADCAST, K.RING, 4),
        (C.POINT_TO_POINT, K.SWITCH, 1),
    ],
)
def test_a_tiny_message_takes_its_hops(collective, kind, hops):
    found = seconds(collective, alone(level(kind, 8, latency=US)), 1e-9)
    assert found == pytest.approx(hops * US)


def test_nothing_sent_takes_no_time():
    assert seconds(C.ALL_REDUCE, alone(level(K.SWITCH, 8, latency=US)), 0.0) == 0


@pytest.mark.parametrize("collective", C)
@pytest.mark.parametrize("kind", K)
def test_one_chip_takes_no_time(collective, kind):
    assert seconds(collective, alone(level(kind, 1, latency=US)), 1e9) == 0


@pytest.mark.parametrize("kind", SWITCHED)
def test_two_chips_exchange_their_sums_at_once(kind):
    # One step of n bytes each way; two steps of n/2 would take a hop more.
    found = seconds(C.ALL_REDUCE, alone(level(kind, 2, latency=US)), 1e6)
    assert found == pytest.approx(US + 1e6 / (100 * GB))


def test_a_torus_of_equal_axes_works_on_all_of_them_at_once():
    # chan2006multilink: (p-1)/p over two links of each of two axes
    torus = alone(level(K.TORUS, 16, shape=(4, 4)))
    assert seconds(C.ALL_GATHER, torus, 1e12) == pytest.approx(15 / 16 * 1e12 / (400 * GB))


def test_axes_of_other_lengths_take_turns():
    torus = alone(level(K.TORUS, 8, shape=(4, 2)))
    turns = (3 / 4 + 1 / 2 / 4) / 2
    assert seconds(C.ALL_GATHER, torus, 1e12) == pytest.approx(turns * 1e12 / (100 * GB))


def test_a_mesh_has_one_link_at_its_ends():
    line = alone(level(K.MESH, 8, shape=(8,)))
    assert seconds(C.ALL_GATHER, line, 1e12) == pytest.approx(7 / 8 * 1e12 / (100 * GB))
    assert seconds(C.ALL_TO_ALL, line, 1e12) == pytest.approx(16 / 64 * 1e12 / (100 * GB))


def test_sums_meet_in_the_middle_of_a_line_and_come_back():
    line = alone(level(K.MESH, 8, shape=(8,)))
    least = 1e12 / (100 * GB)  # the ends send all of it, and get all of it
    assert least <= seconds(C.ALL_REDUCE, line, 1e12) < 1.03 * least


# ---------------------------------------------------------------- who adds, and which algorithm


def test_a_switch_that_adds_halves_an_all_reduce_and_its_hops():
    plain = alone(level(K.SWITCH, 64, latency=US))
    adds = alone(level(K.SWITCH, 64, latency=US, reduces=True))
    assert seconds(C.ALL_REDUCE, adds, 1e-9) == pytest.approx(2 * US)
    ratio = seconds(C.ALL_REDUCE, plain, 1e12) / seconds(C.ALL_REDUCE, adds, 1e12)
    assert ratio == pytest.approx(2 * 63 / 64, rel=1e-3)


def taken_in(collective, group):
    """Return what arrives at a chip and what of that it adds, over the tensor's bytes."""
    rates = Arrival(moving=1 / 3), Arrival(adding=1.0)  # a second a byte; links take next to none
    return [seconds(collective, group, 1e9, arrival=rate) / 1e9 for rate in rates]


@pytest.mark.parametrize(
    ("collective", "kind", "reduces", "arrives", "added"),
    [
        pytest.param(C.ALL_GATHER, K.SWITCH, False, 7 / 8, 0, id="what the chip has not"),
        pytest.param(C.REDUCE_SCATTER, K.SWITCH, False, 7 / 8, 7 / 8, id="a part of each other"),
        pytest.param(C.ALL_REDUCE, K.SWITCH, False, 14 / 8, 7 / 8, id="both halves"),
        pytest.param(C.ALL_REDUCE, K.FULLY_CONNECTED, False, 14 / 8, 7 / 8, id="over any link"),
        pytest.param(C.ALL_TO_ALL, K.SWITCH, False, 7 / 64, 0, id="of a share what others have"),
        pytest.param(C.ALL_TO_ALL, K.RING, False, 7 / 64, 0, id="not what passes by"),
        pytest.param(C.BROADCAST, K.SWITCH, False, 1, 0, id="the tensor"),
        pytest.param(C.POINT_TO_POINT, K.RING, False, 1, 0, id="the message"),
        pytest.param(C.ALL_GATHER, K.SWITCH, True, 7 / 8, 0, id="a switch copies"),
        pytest.param(C.REDUCE_SCATTER, K.SWITCH, True, 1 / 8, 0, id="klenk2020innetwork: a sum"),
        pytest.param(C.ALL_REDUCE, K.SWITCH, True, 1, 0, id="klenk2020innetwork: all sums once"),
    ],
)  # fmt: skip
def test_what_arrives_and_what_of_it_a_chip_adds(collective, kind, reduces, arrives, added):
    found = taken_in(collective, alone(level(kind, 8, reduces=reduces)))
    assert found == pytest.approx([arrives, added], abs=1e-9)


def test_over_every_edge_of_a_tree_the_tensor_goes_up_and_down():
    # sanders2009twotree: two trees of p - 1 edges, each for half of the tensor, among p chips.
    arrival = Arrival(moving=1 / 3)
    chips = alone(level(K.SWITCH, 64))
    found = seconds(C.ALL_REDUCE, chips, 1e9, all_reduce=A.TREE, arrival=arrival) / 1e9
    assert found == pytest.approx(2 * 63 / 64)


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(server(8, 4), id="servers"),
        pytest.param(alone(level(K.TORUS, 32, shape=(8, 4))), id="unequal axes, one by one"),
        pytest.param(alone(level(K.TORUS, 64, shape=(4, 4, 4))), id="equal axes, all at once"),
    ],
)
def test_over_levels_and_axes_as_much_arrives_as_on_one(group):
    others = (group.members - 1) / group.members
    assert taken_in(C.ALL_GATHER, group) == pytest.approx([others, 0], abs=1e-9)
    assert taken_in(C.REDUCE_SCATTER, group) == pytest.approx([others, others])
    assert taken_in(C.ALL_REDUCE, group) == pytest.approx([2 * others, others])
    assert taken_in(C.BROADCAST, group)[0] >= 1 - 1e-9


def test_a_collective_is_launched_once_and_a_message_is_no_kernel():
    launch = Arrival(launch=US, latency=2 * US)
    for collective in C:
        took = seconds(collective, server(), 1.0, arrival=launch) - seconds(
            collective, server(), 1.0
        )
        assert took == pytest.approx((2 if collective is C.POINT_TO_POINT else 3) * US)


def test_a_tree_is_faster_for_small_messages_and_a_ring_for_large_ones():
    chips = alone(level(K.SWITCH, 64, latency=US))
    for size, best in ((1e3, A.TREE), (1e10, A.RING)):
        times = {a: seconds(C.ALL_REDUCE, chips, size, all_reduce=a) for a in (A.RING, A.TREE)}
        assert min(times, key=times.__getitem__) is best
        assert seconds(C.ALL_REDUCE, chips, size) <= times[best]


@pytest.mark.parametrize("algorithm", A)
def test_the_least_time_is_no_longer_than_that_of_any_algorithm(algorithm):
    chips = server(latency=US)
    for size in (1e2, 1e5, 1e8, 1e11):
        given = seconds(C.ALL_REDUCE, chips, size, all_reduce=algorithm)
        assert seconds(C.ALL_REDUCE, chips, size) <= given * (1 + 1e-12)


def test_which_algorithms_a_level_can_run():
    assert [a for a in A if is_legal(a, alone(level(K.RING, 8)))] == [A.RING]
    assert [a for a in A if is_legal(a, alone(level(K.SWITCH, 8)))] == [A.RING, A.TREE, A.DIRECT]
    assert is_legal(A.IN_NETWORK, alone(level(K.SWITCH, 8, reduces=True)))
    assert is_legal(A.DIRECT, alone(level(K.FULLY_CONNECTED, 8)))


# ---------------------------------------------------------------- several levels


def test_members_of_a_server_use_all_its_ports():
    # wang2023railonly: eight rails carry an eighth each of what one port would carry
    eight = seconds(C.ALL_REDUCE, server(8), 1e12)
    one = seconds(C.ALL_REDUCE, alone(level(K.SWITCH, 32, bandwidth=50 * GB)), 1e12)
    assert eight == pytest.approx(one / 8)  # 400 GB/s inside is as much as eight ports


def test_rails_hide_what_goes_round_inside_a_server():
    # jeaugey2019nccl: rings pass a server and its ports at the same time
    found = seconds(C.ALL_GATHER, server(8), 1e12)
    after = 7 / 8 / (400 * GB) + 3 / 4 / 8 / (50 * GB)  # one level after the other
    assert found == pytest.approx(31 / 32 / (400 * GB) * 1e12)
    assert found < after * 1e12


def test_few_hops_matter_for_small_messages():
    # Scattering in the server costs 7 hops each way; sums of all inside, then outside, 6 and 4.
    assert seconds(C.ALL_REDUCE, server(latency=US), 1e-9) == pytest.approx((6 + 3) * US)


def test_an_all_to_all_fills_all_levels_at_once():
    found = seconds(C.ALL_TO_ALL, server(8, 4), 1e12)
    assert found == pytest.approx(3 / 4 * 1e12 / 32 / (50 * GB))  # what leaves a server


def test_what_is_beside_shares_the_links_of_a_ring():
    ring = level(K.RING, 8)
    apart = group_of((ring,), (8,), (4, 2), 1)  # chips 0 and 4: four such pairs
    together = group_of((ring,), (8,), (2, 4), 0)
    assert apart.extents[0].stride == 4
    slow, fast = (seconds(C.ALL_GATHER, g, 1e12) for g in (apart, together))
    assert slow == pytest.approx(1e12 / 4 / (25 * GB))  # both ways round, a quarter of each link
    assert fast == pytest.approx(1e12 / 2 / (100 * GB))  # neighbours have one link


@pytest.mark.parametrize(
    ("kind", "oversubscription", "pod", "factor"),
    [
        pytest.param(K.FAT_TREE, 1, None, 1, id="leiserson1985: full bisection"),
        pytest.param(K.FAT_TREE, 4, None, 4, id="all messages leave their pod"),
        pytest.param(K.FAT_TREE, 4, 32, 1, id="all chips in one pod"),
        pytest.param(K.FAT_TREE, 4, 8, 1, id="one ring leaves a pod of eight by one of two links"),
        pytest.param(K.RAIL_OPTIMISED, 4, None, 1, id="no message leaves its rail"),
        pytest.param(K.DRAGONFLY, 1, None, 2, id="kim2008dragonfly: by way of a third group"),
        pytest.param(K.DRAGONFLY, 1, 32, 1, id="inside one group"),
        pytest.param(K.DRAGONFLY, 3, None, 6, id="tapered"),
        pytest.param(K.RAIL_ONLY, 1, None, 1, id="wang2023railonly: a switch a rail"),
    ],
)  # fmt: skip
def test_what_a_ring_pays_between_pods(kind, oversubscription, pod, factor):
    more = {} if kind is K.RAIL_ONLY else {"oversubscription": oversubscription, "pod_size": pod}
    chips = alone(level(kind, 32, **more))
    found = seconds(C.ALL_GATHER, chips, 1e12)
    assert found == pytest.approx(factor * 31 / 32 * 1e12 / (100 * GB))


def test_an_all_to_all_pays_for_what_leaves_its_pod():
    chips = alone(level(K.FAT_TREE, 32, oversubscription=4.0, pod_size=8))
    assert seconds(C.ALL_TO_ALL, chips, 1e12) == pytest.approx(4 * 24 / 32**2 * 1e12 / (100 * GB))


def test_rings_side_by_side_share_the_links_out_of_a_pod():
    tree = level(K.FAT_TREE, 32, oversubscription=4.0, pod_size=8)
    times = [seconds(C.ALL_GATHER, group_of((tree,), (32,), (s, 4), 1), 1e12) for s in (1, 2, 4, 8)]
    base = 3 / 4 * 1e12 / (100 * GB)
    assert times == pytest.approx([base, base, 2 * base, 4 * base])


def test_a_group_torn_between_servers_goes_at_the_speed_of_the_slowest_level():
    inside, outside = level(K.SWITCH, 8, bandwidth=400 * GB), level(K.SWITCH, 2, bandwidth=50 * GB)
    twelve = group_of((inside, outside), (8, 2), (12,), 0)
    assert twelve.torn == 12
    assert seconds(C.ALL_GATHER, twelve, 1e12) == pytest.approx(11 / 12 * 1e12 / (50 * GB))


# ---------------------------------------------------------------- bounds that hold for anything

kinds = st.sampled_from([*SWITCHED, K.RING, K.FULLY_CONNECTED, K.TORUS, K.MESH])
sizes = st.floats(1, 1e12)


@st.composite
def groups(draw):
    extents = []
    for _ in range(draw(st.integers(1, 3))):
        kind = draw(kinds)
        more = {}
        if kind in (K.FAT_TREE, K.DRAGONFLY, K.RAIL_OPTIMISED):
            more = {
                "oversubscription": draw(st.sampled_from([1.0, 2.0, 7.0])),
                "pod_size": draw(st.sampled_from([None, 2, 4])),
            }
        if kind in SWITCHED:
            more["reduces"] = draw(st.booleans())
            more["medium"] = draw(st.sampled_from([None, *Medium]))
            more["pace"] = draw(st.sampled_from([1.0, 1.3]))
            more["achieved"] = draw(st.sampled_from([0.8, 1.0]))
            more["adding"] = draw(st.sampled_from([0.74, 1.0]))
        dimension = Dimension(
            kind=kind,
            bandwidth=draw(st.sampled_from([25 * GB, 100 * GB, 450 * GB])),
            latency=draw(st.sampled_from([0.0, US, 10 * US])),
            **more,
        )
        members, stride = draw(st.integers(1, 12)), draw(st.sampled_from([1, 2]))
        size = members * stride
        extents.append(Extent(dimension=dimension, size=size, members=members, stride=stride))
    return Group(extents=tuple(extents))


def links(extent):
    """Links, or ports, of a chip at most."""
    match extent.dimension.kind:
        case K.RING | K.TORUS:
            return 2 * len(extent.dimension.axes(extent.size))
        case K.MESH:
            return 2 * len(extent.dimension.axes(extent.size))
        case K.FULLY_CONNECTED:
            return extent.members - 1
        case _:
            return 1


@given(group=groups(), size=sizes)
def test_nothing_beats_what_has_to_enter_a_chip(group, size):
    """What a chip lacks has to come in over its links; sums cross its links, too."""
    p = group.members
    into = sum(links(e) * e.dimension.bandwidth for e in group.extents if e.members > 1)
    if p == 1:
        return
    least = size * (p - 1) / p / into
    for collective in (C.ALL_GATHER, C.REDUCE_SCATTER, C.ALL_REDUCE):
        assert seconds(collective, group, size) >= least * (1 - 1e-9)
    assert seconds(C.BROADCAST, group, size) >= size / into * (1 - 1e-9)
    assert seconds(C.ALL_TO_ALL, group, size) >= least / p * (1 - 1e-9)
    reduces = any(e.dimension.reduces for e in group.extents)
    if not reduces:
        assert seconds(C.ALL_REDUCE, group, size) >= 2 * least * (1 - 1e-9)


@given(group=groups(), size=sizes)
def test_nothing_beats_what_has_to_enter_a_server(group, size):
    """The chips inside the outermost level reach the others through their own ports only."""
    last = group.extents[-1]
    inside = math.prod(e.members for e in group.extents[:-1])
    if last.members == 1:
        return
    into = inside * links(last) * last.dimension.bandwidth
    least = size * (last.members - 1) / last.members / into
    assert seconds(C.ALL_GATHER, group, size) >= least * (1 - 1e-9)
    assert seconds(C.ALL_REDUCE, group, size) >= least * (1 - 1e-9)


@given(group=groups(), size=sizes)
def test_a_message_takes_a_hop_to_every_level(group, size):
    hops = sum(e.dimension.hop_latency for e in group.extents if e.members > 1)
    for collective in (C.ALL_GATHER, C.ALL_REDUCE, C.ALL_TO_ALL, C.BROADCAST):
        assert seconds(collective, group, size) >= hops * (1 - 1e-9)


@given(group=groups(), size=sizes, more=sizes)
@pytest.mark.parametrize("collective", C)
def test_time_grows_with_the_bytes_and_is_concave(collective, group, size, more):
    lines = collective_lines(collective, group)
    first, both, half = (float(lines.time(s)) for s in (size, size + more, (2 * size + more) / 2))
    assert first <= both
    assert half >= (first + both) / 2 * (1 - 1e-12)


@given(group=groups(), size=sizes)
@pytest.mark.parametrize("collective", C)
def test_an_array_is_its_scalars_and_messages_share_what_is_fixed(collective, group, size):
    lines = collective_lines(collective, group)
    alone = [float(lines.time(s)) for s in (size, 2 * size)]
    assert np.array_equal(lines.time(np.array([size, 2 * size])), alone)
    assert float(lines.time(size, together=2)) == pytest.approx(alone[1] / 2, rel=1e-12)


@given(group=groups(), size=sizes)
def test_an_all_reduce_is_no_slower_than_its_two_halves(group, size):
    halves = seconds(C.REDUCE_SCATTER, group, size) + seconds(C.ALL_GATHER, group, size)
    assert seconds(C.ALL_REDUCE, group, size) <= halves * (1 + 1e-9)


# ---------------------------------------------------------------- beside measured ones

MEASURED = Path(__file__).parents[4] / "shared/data/measured/collectives.jsonl"
NVLINK = {"A100-SXM4-80GB": 300 * GB, "H100-SXM5-80GB": 450 * GB, "H200-SXM5-141GB": 450 * GB}


@pytest.mark.skipif(not MEASURED.exists(), reason="measured times are not in the project")
def test_large_measured_messages_are_not_faster_than_their_ports():
    """64 MB and more over NVLink take 1 to 2.5 times what the ports need at their full rate."""
    checked = 0
    for row in map(json.loads, MEASURED.read_text().splitlines()):
        shares = row["op"] in ("all_reduce", "all_gather", "reduce_scatter")
        if row["gpu"] in NVLINK and row["bytes"] >= 2**26 and row["kernel"] == "NCCL" and shares:
            chips = alone(level(K.SWITCH, row["ranks"], bandwidth=NVLINK[row["gpu"]]))
            ratio = row["time_s"] / seconds(C(row["op"]), chips, row["bytes"])
            checked += 1
            assert 0.95 < ratio < 2.5, (row, ratio)
    assert checked > 20


@pytest.mark.parametrize("collective", [C.ALL_GATHER, C.REDUCE_SCATTER])
def test_a_ring_through_all_servers_takes_a_hop_a_chip(collective):
    # 32 chips: 31 hops, of which 3 leave a server
    inside, outside = 2 * US, 5 * US
    levels = (
        level(K.SWITCH, 8, bandwidth=400 * GB, latency=inside),
        level(K.RAIL_OPTIMISED, 4, bandwidth=50 * GB, latency=outside),
    )
    group = group_of(levels, (8, 4), (32,), 0)
    fastest = collective_lines(collective, group).members
    assert max(line.fixed for line in fastest) == pytest.approx(28 * inside + 3 * outside)


def test_a_chip_adds_as_fast_as_its_lanes_and_moves_as_fast_as_its_memory(a_chip):
    chip = replace(
        a_chip(n_cores=1, lanes=2, stages=2, frequency=1e9),
        memories=main_memory(bandwidth=100 * GB),
        execution=Execution.TEMPORAL,
    )
    arrival = Arrival.of(chip, Dtype.BF16)
    assert arrival.moving == pytest.approx(1 / (100 * GB))
    assert arrival.adding == pytest.approx(1 / (2 * chip.vector_throughput(Dtype.BF16)))  # 2 B each
