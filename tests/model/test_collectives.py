from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.system import DimensionKind
from crosstack.model.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    broadcast_time,
    point_to_point_time,
    reduce_scatter_time,
    steps,
)

RING, SWITCH, FULL = (
    DimensionKind.RING,
    DimensionKind.SWITCH,
    DimensionKind.FULLY_CONNECTED,
)
COLLECTIVES = [
    pytest.param(all_gather_time, id="all-gather"),
    pytest.param(reduce_scatter_time, id="reduce-scatter"),
    pytest.param(all_reduce_time, id="all-reduce"),
    pytest.param(partial(all_reduce_time, halves=1), id="half an all-reduce"),
    pytest.param(all_to_all_time, id="all-to-all"),
    pytest.param(partial(all_to_all_time, pair_shares=False), id="DFModel's all-to-all"),
    pytest.param(broadcast_time, id="broadcast"),
]
every_collective = pytest.mark.parametrize("collective", COLLECTIVES)

kinds = st.sampled_from([RING, SWITCH, FULL])
chips = st.integers(1, 512)
sizes = st.just(0.0) | st.floats(1, 1e12)
rates = st.floats(1e6, 1e13)
latencies = st.floats(0, 1e-3)


@pytest.mark.parametrize(
    ("collective", "kind", "n_chips", "bandwidth", "seconds_per_byte"),
    [
        pytest.param(
            partial(all_reduce_time, halves=1), RING, 8, 25e9, 0.035e-9,
            id="dfmodel_code LLM/dataflow_mapping/existing_8x1: bytes (7/8)/25",
        ),
        pytest.param(
            all_reduce_time, RING, 8, 25e9, 0.07e-9,
            id="thakur2005: both halves, 2 (p-1)/p",
        ),
        pytest.param(
            all_reduce_time, SWITCH, 8, 25e9, 0.07e-9,
            id="thakur2005: a switch runs the same algorithm as a ring",
        ),
        pytest.param(
            partial(all_reduce_time, halves=1), FULL, 8, 25e9, 0.005e-9,
            id="dfmodel_code: 1/(n BW)",
        ),
        pytest.param(all_gather_time, RING, 4, 10e9, 0.075e-9, id="thakur2005: (p-1)/p"),
        pytest.param(all_gather_time, FULL, 4, 10e9, 0.025e-9, id="thakur2005: 1/p, all at once"),
        pytest.param(
            partial(all_to_all_time, pair_shares=False), RING, 8, 25e9, 0.32e-9,
            id="dfmodel_code: n^2/(8 BW)",
        ),
        pytest.param(
            partial(all_to_all_time, pair_shares=False), SWITCH, 8, 25e9, 0.08e-9,
            id="dfmodel_code: n/(4 BW)",
        ),
        pytest.param(
            partial(all_to_all_time, pair_shares=False), FULL, 8, 25e9, 0.04e-9,
            id="dfmodel_code: 1/BW",
        ),
        pytest.param(
            all_to_all_time, RING, 8, 25e9, 0.005e-9,
            id="dally2004: 16 pairs each way over the 2 links of the bisection",
        ),
        pytest.param(
            all_to_all_time, SWITCH, 8, 25e9, 0.04e-9 * 7 / 64,
            id="thakur2005: p-1 messages of n/p^2",
        ),
        pytest.param(all_to_all_time, FULL, 8, 25e9, 0.04e-9 / 64, id="one message of n/p^2"),
        pytest.param(broadcast_time, RING, 8, 25e9, 0.04e-9, id="a pipelined chain: n/BW"),
    ],
)  # fmt: skip
def test_time_per_byte_is_known(collective, kind, n_chips, bandwidth, seconds_per_byte):
    size = 1e9
    time = collective(kind, size, n_chips=n_chips, bandwidth=bandwidth)
    assert time == pytest.approx(seconds_per_byte * size, rel=1e-12)


def test_the_all_reduce_of_the_published_readme_takes_its_time():
    # kosho2013/DFModel README output (GPT3-1T, 8 chips, 50 GB/s): 3670016 ns for 25600 x 2048 x 2 B
    time = all_reduce_time(RING, 25600 * 2048 * 2, n_chips=8, bandwidth=50e9)
    assert time == pytest.approx(3670016e-9, rel=1e-12)


@pytest.mark.parametrize(
    ("collective", "kind", "hops"),
    [
        (all_gather_time, RING, 7),
        (all_gather_time, SWITCH, 7),
        (all_gather_time, FULL, 1),
        (all_reduce_time, RING, 14),
        (all_reduce_time, FULL, 2),
        (all_to_all_time, RING, 4),
        (all_to_all_time, SWITCH, 7),
        (all_to_all_time, FULL, 1),
        (broadcast_time, RING, 7),
        (broadcast_time, FULL, 1),
    ],
)
def test_an_empty_message_pays_for_its_hops(collective, kind, hops):
    time = collective(kind, 0.0, n_chips=8, bandwidth=1e9, latency=1e-6)
    assert time == pytest.approx(hops * 1e-6)


@pytest.mark.parametrize(
    ("kind", "n_chips", "expected"),
    [(RING, 1, 0), (RING, 8, 7), (SWITCH, 8, 7), (FULL, 1, 0), (FULL, 2, 1), (FULL, 8, 1)],
)
def test_steps_are_known(kind, n_chips, expected):
    assert steps(kind, n_chips) == expected


@every_collective
@given(kind=kinds, size=sizes, bandwidth=rates, latency=latencies)
def test_one_chip_takes_no_time(collective, kind, size, bandwidth, latency):
    assert collective(kind, size, n_chips=1, bandwidth=bandwidth, latency=latency) == 0


@every_collective
@given(kind=kinds, n_chips=chips, bandwidth=rates)
def test_nothing_to_send_takes_no_time_without_latency(collective, kind, n_chips, bandwidth):
    assert collective(kind, 0.0, n_chips=n_chips, bandwidth=bandwidth) == 0


@every_collective
@given(
    kind=kinds,
    message=st.lists(sizes, min_size=1, max_size=4),
    n_chips=chips,
    bandwidth=rates,
    latency=latencies,
)
def test_an_array_is_its_scalars(collective, kind, message, n_chips, bandwidth, latency):
    time = partial(collective, kind, n_chips=n_chips, bandwidth=bandwidth, latency=latency)
    assert np.array_equal(time(np.array(message)), [time(size) for size in message])


@every_collective
@given(
    kind=kinds,
    size=sizes,
    n_chips=chips,
    bandwidth=rates,
    factor=st.floats(1, 100),
    latency=latencies,
)
def test_more_bandwidth_is_never_slower(
    collective, kind, size, n_chips, bandwidth, factor, latency
):
    time = partial(collective, kind, size, n_chips=n_chips, latency=latency)
    assert time(bandwidth=factor * bandwidth) <= time(bandwidth=bandwidth)


@every_collective
@given(kind=kinds, size=sizes, n_chips=chips, bandwidth=rates, latency=latencies)
def test_less_latency_is_never_slower(collective, kind, size, n_chips, bandwidth, latency):
    time = partial(collective, kind, size, n_chips=n_chips, bandwidth=bandwidth)
    assert time(latency=0.0) <= time(latency=latency)


@every_collective
@given(kind=kinds, size=sizes, more=sizes, n_chips=chips, bandwidth=rates)
def test_more_bytes_are_never_faster(collective, kind, size, more, n_chips, bandwidth):
    time = partial(collective, kind, n_chips=n_chips, bandwidth=bandwidth)
    assert time(size + more) >= time(size)


@every_collective
@given(size=sizes, n_chips=st.integers(3, 512), bandwidth=rates, latency=latencies)
def test_fully_connected_is_never_slower_than_a_ring(collective, size, n_chips, bandwidth, latency):
    time = partial(collective, size=size, n_chips=n_chips, bandwidth=bandwidth, latency=latency)
    assert time(FULL) <= time(RING) * (1 + 1e-12)


@pytest.mark.parametrize("collective", COLLECTIVES[:4] + COLLECTIVES[6:])
@given(size=sizes, bandwidth=rates, latency=latencies)
def test_two_chips_are_a_ring_and_fully_connected_alike(collective, size, bandwidth, latency):
    time = partial(collective, size=size, n_chips=2, bandwidth=bandwidth, latency=latency)
    assert time(FULL) == time(RING)


@pytest.mark.parametrize("collective", COLLECTIVES[4:6])
def test_an_all_to_all_uses_both_links_of_a_ring_of_two(collective):
    # A ring of two has a link each way round, as `link_amounts` charges it; a pair has one link.
    time = partial(collective, size=1e9, n_chips=2, bandwidth=25e9)
    assert time(RING) == time(FULL) / 2


@given(kind=kinds, size=sizes, n_chips=chips, bandwidth=rates, latency=latencies)
def test_an_all_reduce_is_a_reduce_scatter_then_an_all_gather(
    kind, size, n_chips, bandwidth, latency
):
    same = {"n_chips": n_chips, "bandwidth": bandwidth, "latency": latency}
    halves = reduce_scatter_time(kind, size, **same) + all_gather_time(kind, size, **same)
    assert all_reduce_time(kind, size, **same) == halves


@given(kind=kinds, size=sizes, n_chips=chips, bandwidth=rates, latency=latencies)
def test_moving_shards_is_never_slower_than_gathering_the_whole(
    kind, size, n_chips, bandwidth, latency
):
    same = {"n_chips": n_chips, "bandwidth": bandwidth, "latency": latency}
    gathered = all_gather_time(kind, size, **same)
    assert all_to_all_time(kind, size, **same) <= gathered * (1 + 1e-12)


@given(size=sizes, n_chips=chips, bandwidth=rates, latency=latencies)
def test_the_pipelined_broadcast_is_never_slower_than_scatter_then_gather(
    size, n_chips, bandwidth, latency
):
    same = {"n_chips": n_chips, "bandwidth": bandwidth, "latency": latency}
    assert broadcast_time(RING, size, **same) <= all_reduce_time(RING, size, **same) * (1 + 1e-12)


def test_dfmodel_counts_at_least_the_bytes_of_the_pairs():
    same = {"n_chips": 8, "bandwidth": 25e9}
    published = all_to_all_time(RING, 1e9, pair_shares=False, **same)
    assert published == 64 * all_to_all_time(RING, 1e9, **same)


def test_point_to_point_is_latency_then_bytes():
    assert point_to_point_time(1e9, bandwidth=25e9, latency=1e-6) == pytest.approx(0.040001)


@every_collective
@pytest.mark.parametrize(
    ("changes", "field"), [({"n_chips": 0}, "n_chips"), ({"bandwidth": 0.0}, "bandwidth")]
)
def test_a_network_that_cannot_be_is_refused(collective, changes, field):
    with pytest.raises(InputError, match=f"^{field}: got 0"):
        collective(RING, 1.0, **{"n_chips": 2, "bandwidth": 1e9, **changes})


@pytest.mark.parametrize("halves", [0, 3])
def test_an_all_reduce_has_one_half_or_two(halves):
    with pytest.raises(InputError, match=f"^halves: got {halves}"):
        all_reduce_time(RING, 1.0, n_chips=2, bandwidth=1e9, halves=halves)


@pytest.mark.parametrize("kind", [k for k in DimensionKind if k not in (RING, SWITCH, FULL)])
def test_other_kinds_are_refused_by_name(kind):
    with pytest.raises(InputError, match=f"network.kind: got {kind}; allowed under these rules"):
        all_gather_time(kind, 1.0, n_chips=2, bandwidth=1e9)
