"""What the releases of DFModel count for a collective, beside its published numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.machine.system import AllReduceAlgorithm, Dimension, DimensionKind, Parallelism
from crosstack.model.collectives import NetworkUse
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.collectives import LatencyRule, ReleaseCollectives
from crosstack.workload.kernels import Collective, Placement

C = Collective
RING, SWITCH, FULL = (
    DimensionKind.RING,
    DimensionKind.SWITCH,
    DimensionKind.FULLY_CONNECTED,
)
TENSOR, PIPELINE, DATA = Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA
ONE_HALF = ReleaseCollectives(ring_all_reduce_halves=1)
README = ReleaseCollectives()


def chips(kind, size, *, bandwidth=25e9, latency=0.0, use=TENSOR):
    one = Dimension(kind=kind, size=size, bandwidth=bandwidth, latency=latency)
    return NetworkUse(dimensions=(one,), sizes=(size,), parallelism=(use,))


def line(part, collective, network):
    """Return the one line of a collective."""
    (found,) = part.kernels(network)[collective].members
    return found


@pytest.mark.parametrize(
    ("collective", "kind", "part", "nanoseconds_per_byte"),
    [
        pytest.param(
            C.ALL_REDUCE, RING, ONE_HALF, 0.035,
            id="dfmodel_code LLM/dataflow_mapping/existing_8x1: bytes (7/8)/25",
        ),
        pytest.param(C.ALL_REDUCE, RING, README, 0.07, id="both halves, 2 (p-1)/p"),
        pytest.param(C.ALL_REDUCE, SWITCH, README, 0.07, id="a switch as a ring"),
        pytest.param(C.ALL_REDUCE, FULL, README, 0.005, id="dfmodel_code: 1/(n BW)"),
        pytest.param(C.ALL_GATHER, RING, README, 0.035, id="(p-1)/p"),
        pytest.param(C.ALL_GATHER, FULL, README, 0.005, id="1/p, all at once"),
        pytest.param(C.ALL_TO_ALL, RING, README, 0.32, id="dfmodel_code: n^2/(8 BW)"),
        pytest.param(C.ALL_TO_ALL, SWITCH, README, 0.08, id="dfmodel_code: n/(4 BW)"),
        pytest.param(C.ALL_TO_ALL, FULL, README, 0.04, id="dfmodel_code: 1/BW"),
        pytest.param(C.BROADCAST, RING, README, 0.04, id="a chain: 1/BW"),
        pytest.param(C.POINT_TO_POINT, RING, README, 0.04, id="1/BW"),
    ],
)  # fmt: skip
def test_time_per_byte_is_that_of_the_release(collective, kind, part, nanoseconds_per_byte):
    found = line(part, collective, chips(kind, 8))
    assert found.per_byte * 1e9 == pytest.approx(nanoseconds_per_byte, rel=1e-12)
    assert found.fixed == 0


def test_the_all_reduce_of_the_published_readme_takes_its_time():
    # kosho2013/DFModel README output (GPT3-1T, 8 chips, 50 GB/s): 3670016 ns for 25600 x 2048 x 2 B
    lines = README.kernels(chips(RING, 8, bandwidth=50e9))[C.ALL_REDUCE]
    assert float(lines.time(25600 * 2048 * 2)) == pytest.approx(3670016e-9, rel=1e-12)


@pytest.mark.parametrize("collective", C)
@pytest.mark.parametrize("kind", [RING, SWITCH, FULL])
def test_one_chip_takes_no_time(collective, kind):
    part = replace(README, latency=LatencyRule.KERNEL)
    found = line(part, collective, chips(kind, 1, latency=1e-6))
    assert (found.fixed, found.per_byte) == (0, 0)


@pytest.mark.parametrize(
    ("latency", "kind", "hops"),
    [
        (LatencyRule.NONE, RING, 0),
        (LatencyRule.ALL_REDUCE, RING, 14),
        (LatencyRule.ALL_REDUCE, FULL, 14),
        (LatencyRule.KERNEL, RING, 14),
        (LatencyRule.KERNEL, FULL, 1),
    ],
)
def test_only_an_all_reduce_of_a_kernel_pays_latency(latency, kind, hops):
    part, network = replace(README, latency=latency), chips(kind, 8, latency=1e-6)
    assert line(part, C.ALL_REDUCE, network).fixed == pytest.approx(hops * 1e-6)
    assert line(part, C.ALL_GATHER, network).fixed == 0
    (gradients,) = part.gradients(chips(kind, 8, latency=1e-6, use=DATA)).members
    assert gradients.fixed == 0


def test_outer_dimensions_move_what_a_chip_holds():
    dimensions = tuple(
        Dimension(kind=RING, size=size, bandwidth=bandwidth)
        for size, bandwidth in ((4, 10e9), (2, 20e9))
    )
    network = NetworkUse(dimensions=dimensions, sizes=(4, 2), parallelism=(TENSOR, TENSOR))
    found = line(README, C.ALL_GATHER, network)
    assert found.per_byte == pytest.approx(3 / 4 / 10e9 + 1 / 4 / 2 / 20e9)


# ---------------------------------------------------------------- high-bandwidth domains


def rail(domain):
    """Return 8 x 2 x 1024 chips: links of 900 GB/s, then of 50 GB/s, in domains."""
    dimensions = tuple(
        Dimension(kind=SWITCH, size=size, bandwidth=speed, latency=1e-6)
        for size, speed in ((8, 900e9), (2, 50e9), (1024, 50e9))
    )
    return NetworkUse(
        dimensions=dimensions,
        sizes=(8, 2, 1024),
        parallelism=(TENSOR, PIPELINE, DATA),
        domain_size=domain,
    )


def both(domain):
    """Return the all-reduce of tensors and of gradients of release E4."""
    part = rules_named("dfmodel-e4").collectives
    (data,) = part.gradients(rail(domain)).members
    return line(part, C.ALL_REDUCE, rail(domain)), data


def test_published_ratios_of_the_rail_only_network():
    # LLM/Compare_w_existing/rail_only/16384/8: seconds a gigabyte
    tensor, data = both(8)
    assert tensor.per_byte * 1e9 == pytest.approx(7 / 7200)
    assert data.per_byte * 1e9 == pytest.approx(7 / 7200 + 127 / 51200)


def test_a_domain_of_one_chip_has_only_slow_links():
    tensor, data = both(1)
    assert tensor.per_byte == pytest.approx(7 / 8 / 50e9)
    assert data.per_byte == pytest.approx(1023 / 1024 / 50e9)


def test_a_larger_domain_is_never_slower():
    times = [sum(line.per_byte for line in both(size)) for size in (1, 2, 4, 8, 16, 64, 16384)]
    assert times == sorted(times, reverse=True)


def test_without_domains_dimensions_count():
    assert both(None)[0].per_byte == pytest.approx(7 / 8 / 900e9)


def test_one_published_run_counts_both_halves_for_tensors_only():
    gradients = [
        rules_named(name).collectives.gradients(rail(None)).members[0].per_byte
        for name in ("dfmodel-e4+separate-tensor", "dfmodel-e4+separate")
    ]
    tensors = [
        line(rules_named(name).collectives, C.ALL_REDUCE, rail(None)).per_byte
        for name in ("dfmodel-e4+separate-tensor", "dfmodel-e4+separate")
    ]
    assert tensors[0] == tensors[1]
    assert gradients[0] == gradients[1] / 2


# ---------------------------------------------------------------- what no release has


@pytest.mark.parametrize("kind", [k for k in DimensionKind if k not in (RING, SWITCH, FULL)])
def test_other_kinds_are_refused_by_name(kind):
    with pytest.raises(InputError, match=f"network.kind: got {kind}; allowed under these rules"):
        README.kernels(chips(kind, 2))
    with pytest.raises(InputError, match=f"network.kind: got {kind}; allowed under these rules"):
        README.placed(chips(kind, 2), Placement.COLUMNS)


def test_an_algorithm_that_is_asked_for_is_refused():
    asked = replace(chips(SWITCH, 8), all_reduce=AllReduceAlgorithm.TREE)
    with pytest.raises(InputError, match=r"system.all_reduce: got 'tree'; allowed: none"):
        README.kernels(asked)


@pytest.mark.parametrize("field", ["ring_all_reduce_halves", "full_all_reduce_halves"])
@pytest.mark.parametrize("value", [0, 3, 1.5])
def test_an_all_reduce_has_one_half_or_two(field, value):
    with pytest.raises(InputError, match=f"^{field}: got"):
        replace(README, **{field: value})
