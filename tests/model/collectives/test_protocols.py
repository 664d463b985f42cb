"""What a library of collectives takes by its protocols, by hand from NCCL's table."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.machine.system import (
    AllReduceAlgorithm,
    Dimension,
    DimensionArrays,
    DimensionKind,
    Medium,
)
from crosstack.model.collectives import (
    Arrival,
    Extent,
    Group,
    collective_lines,
    group_of,
    neighbour_link,
)
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernels import Collective

C = Collective
GB, US = 1e9, 1e-6
NVLINK = Dimension(
    kind=DimensionKind.SWITCH,
    size=8,
    bandwidth=450 * GB,
    latency=0.6 * US,
    medium=Medium.NVLINK,
    achieved=0.8,
    adding=0.85,
)
PORTS = Dimension(
    kind=DimensionKind.RAIL_OPTIMISED,
    size=4,
    bandwidth=50 * GB,
    latency=2.7 * US,
    medium=Medium.NETWORK,
    achieved=0.9,
)
REACHED = 360 * GB
MEMORY = Arrival(moving=1 / (3000 * GB))  # three accesses: 1000 GB/s


def among(level, chips):
    return Group(extents=(Extent(dimension=level, size=chips, members=chips),))


def seconds(collective, level, chips, size, **given):
    return float(collective_lines(collective, among(level, chips), **given).time(size))


def servers():
    """Return the group of all chips of four servers of eight."""
    return group_of((NVLINK, PORTS), (8, 4), (32,), 0)


@pytest.mark.parametrize(
    ("collective", "chips", "start_and_steps"),
    [
        (C.ALL_GATHER, 8, 6.6 + 7 * 0.6),
        (C.REDUCE_SCATTER, 4, 6.6 + 3 * 0.6),
        (C.ALL_REDUCE, 2, 6.6 + 2 * 0.6),
        (C.ALL_REDUCE, 8, 6.6 + 14 * 0.6),
        (C.ALL_TO_ALL, 8, 6.6 + 0.6),  # messages to all are on their way at once
        (C.POINT_TO_POINT, 2, 8.4 + 6.0),  # those of pipelines are long
    ],
)
def test_a_tiny_message_takes_the_start_and_the_steps_of_ll(collective, chips, start_and_steps):
    found = seconds(collective, NVLINK, chips, 1e-3)
    assert found == pytest.approx(start_and_steps * US, rel=1e-6)


def test_a_large_message_takes_the_reached_bandwidth_and_the_chips_own_part_of_its_memory():
    size = 1e12
    for collective, loads in ((C.ALL_GATHER, 7 / 8), (C.ALL_REDUCE, 14 / 8)):
        found = seconds(collective, NVLINK, 8, size, arrival=MEMORY)
        by_hand = loads * size / REACHED + size / 8 / (1000 * GB)
        assert found == pytest.approx(by_hand, rel=1e-3)
    # Of all to all, a chip has 1/8 and keeps 1/8 of that.
    found = seconds(C.ALL_TO_ALL, NVLINK, 8, 8 * size, arrival=MEMORY)
    assert found == pytest.approx(7 / 8 * size / REACHED + size / 8 / (1000 * GB), rel=1e-3)


@pytest.mark.parametrize(
    ("size", "by_hand"),
    [
        # LL: 0.31 of 450 GB/s
        (64e3, 6.6 * US + 3 * 0.6 * US + 3 / 4 * 64e3 / (0.31 * 450 * GB)),
        # LL128: 120 of 128 bytes
        (8e6, 14 * US + 3 * 1.9 * US + 3 / 4 * 8e6 / (REACHED * 120 / 128)),
        # Simple
        (1e9, 8.4 * US + 3 * 6 * US + 3 / 4 * 1e9 / REACHED),
    ],
)
def test_every_size_has_the_protocol_that_is_fastest(size, by_hand):
    assert seconds(C.ALL_GATHER, NVLINK, 4, size) == pytest.approx(by_hand, rel=1e-9)


def test_short_messages_to_one_chip_have_one_of_sixteen_channels():
    size = 32e3  # of a chip; half of it goes to the other
    channel = 0.31 * 450 * GB / 16
    found = seconds(C.ALL_TO_ALL, NVLINK, 2, 2 * size)
    assert found == pytest.approx((6.6 + 0.6) * US + size / 2 / channel, rel=1e-9)


def test_a_switch_that_adds_carries_the_tensor_and_a_part_and_fills_its_buffers_before():
    adds = replace(NVLINK, reduces=True)
    size, rate = 1e9, 0.85 * REACHED
    buffers = 16 * 128 * 1024 * 8
    found = seconds(C.ALL_REDUCE, adds, 8, size, arrival=MEMORY)
    by_hand = 25 * US + 9 / 8 * size / rate + 2 * buffers / (1000 * GB)
    assert found == pytest.approx(by_hand, rel=1e-9)
    assert found < seconds(C.ALL_REDUCE, NVLINK, 8, size, arrival=MEMORY)
    short = 4e6  # all of it fits
    found = seconds(C.ALL_REDUCE, adds, 8, short, arrival=MEMORY)
    assert found == pytest.approx(25 * US + 9 / 8 * short / rate + 2 * short / (1000 * GB))


def test_the_whole_call_is_as_much_slower_as_its_pace():
    slow = replace(NVLINK, pace=1.3, reduces=True)
    for collective in (C.ALL_GATHER, C.ALL_REDUCE, C.ALL_TO_ALL, C.POINT_TO_POINT):
        fixed = [
            collective_lines(collective, among(level, 8)).members[0].fixed
            for level in (replace(NVLINK, reduces=True), slow)
        ]
        assert fixed[1] == pytest.approx(1.3 * fixed[0])


def test_links_with_a_longer_hop_have_longer_steps_and_the_same_start():
    far = replace(NVLINK, latency=1.2 * US)
    assert seconds(C.ALL_GATHER, far, 8, 1e-3) == pytest.approx((6.6 + 7 * 1.2) * US, rel=1e-6)


def test_a_ring_through_servers_takes_one_start_and_a_step_of_each_kind():
    tiny = collective_lines(C.ALL_GATHER, servers()).members[0].fixed
    # 31 steps, 3 of which leave a server; level by level there are 7 and 3 of them.
    assert tiny == pytest.approx((6.6 + 7 * 0.6 + 3 * 2.7) * US)
    flat = collective_lines(C.ALL_GATHER, servers()).members[-1]
    assert flat.fixed == pytest.approx((8.4 + 28 * 6 + 3 * 14) * US)
    assert flat.per_byte == pytest.approx(31 / 32 / min(REACHED, 8 * 45 * GB))


def test_sums_over_servers_go_up_and_down_a_tree_where_they_are_short():
    lines = collective_lines(C.ALL_REDUCE, servers(), all_reduce=AllReduceAlgorithm.TREE)
    # A chain in the server, and two levels of a tree outside.
    assert lines.members[0].fixed == pytest.approx((6.6 + 14 * 0.6 + 4 * 5.0) * US)


@pytest.mark.parametrize("collective", C)
def test_many_machines_have_the_times_of_each(collective):
    bandwidths, latencies = np.array([300, 450]) * GB, np.array([0.6, 1.0]) * US
    adds = replace(NVLINK, reduces=True)
    many = DimensionArrays.of(adds, bandwidths, latencies)
    each = [
        replace(adds, bandwidth=b, latency=a) for b, a in zip(bandwidths, latencies, strict=True)
    ]
    for size in (1e3, 1e6, 1e9):
        lines = collective_lines(collective, among(many, 8), arrival=MEMORY)
        apart = [seconds(collective, one, 8, size, arrival=MEMORY) for one in each]
        assert lines.time(size) == pytest.approx(np.array(apart), rel=1e-12)


def test_bus_bandwidth_grows_with_the_message_up_to_what_is_reached():
    sizes = [4**k for k in range(5, 17)]
    rates = [7 / 8 * s / seconds(C.ALL_GATHER, NVLINK, 8, s) for s in sizes]
    assert all(a < b for a, b in pairwise(rates))
    assert rates[-1] < REACHED
    assert rates[-1] == pytest.approx(REACHED, rel=0.01)


def test_sums_of_few_bytes_are_made_by_kernels_of_ones_own_where_no_framework_is_said():
    chip = library.chip("h100-sxm")
    arrival = Arrival.of(chip, Dtype.BF16)
    assert arrival.own
    own = seconds(C.ALL_REDUCE, NVLINK, 8, 1e-3, arrival=arrival)
    assert own == pytest.approx((2 + 0.6) * US, rel=1e-6)
    driven = replace(chip, framework=library.framework("megatron"))
    by_library = seconds(C.ALL_REDUCE, NVLINK, 8, 1e-3, arrival=Arrival.of(driven, Dtype.BF16))
    assert by_library == pytest.approx((6.6 + 14 * 0.6) * US, rel=1e-6)
    # One shot gets seven tensors through a port, a ring less than two.
    large = [seconds(C.ALL_REDUCE, NVLINK, 8, 1e9, arrival=replace(arrival, own=o)) for o in (0, 1)]
    assert large[0] == large[1]
    for other in (C.ALL_GATHER, C.REDUCE_SCATTER):
        assert seconds(other, NVLINK, 8, 1e-3, arrival=arrival) > 6.6 * US
    # Not between servers.
    fixed = collective_lines(C.ALL_REDUCE, servers(), arrival=arrival).members[0].fixed
    assert fixed > 6.6 * US


def test_sums_are_made_as_they_are_asked_for():
    adds, arrival = replace(NVLINK, reduces=True), replace(MEMORY, own=True)

    def tiny(algorithm, level=adds):
        return seconds(C.ALL_REDUCE, level, 8, 1e-3, arrival=arrival, all_reduce=algorithm)

    asked = AllReduceAlgorithm
    by_hand = {asked.RING: 15.0, asked.TREE: 15.0, asked.IN_NETWORK: 25.0, asked.DIRECT: 2.6}
    for algorithm, time in by_hand.items():
        assert tiny(algorithm) == pytest.approx(time * US, rel=1e-6)
    assert tiny(None) == tiny(asked.DIRECT)
    large = [
        seconds(C.ALL_REDUCE, adds, 8, 1e9, arrival=arrival, all_reduce=a) for a in (None, *asked)
    ]
    assert large[0] == min(large)
    assert large[1 + list(asked).index(asked.DIRECT)] == pytest.approx(
        2.6 * US + 7 * 1e9 / REACHED + 1e9 / 8 / (1000 * GB)
    )


def test_a_message_to_the_next_stage_is_a_kernel_that_takes_it_in_meanwhile():
    level = Extent(dimension=PORTS, size=4, members=4)
    assert neighbour_link(level, MEMORY) == pytest.approx((45 * GB, (8.4 + 14) * US))


def test_a_level_without_a_switch_has_no_library():
    with pytest.raises(InputError, match="medium: got 'nvlink'; allowed: none where there is no"):
        replace(NVLINK, kind=DimensionKind.RING)
    for name in ("achieved", "adding"):
        with pytest.raises(InputError, match=f"{name}: got 1.1"):
            replace(NVLINK, **{name: 1.1})


def test_the_same_links_without_a_library_take_latency_and_the_full_rate():
    plain = NVLINK.plain
    assert (plain.medium, plain.pace, plain.achieved, plain.adding) == (None, 1, 1, 1)
    found = seconds(C.ALL_GATHER, plain, 8, 1e12)
    assert found == pytest.approx(7 * 0.6 * US + 7 / 8 * 1e12 / (450 * GB))
