"""The all-to-all of the published tool, topology by topology (dfmodel_code, releases E2 to E5)."""

from __future__ import annotations

import pytest

from crosstack.machine.system import Dimension, DimensionKind
from crosstack.model.collectives import Extent, Group, collective_lines
from crosstack.published.dfmodel.collectives import slowest_cut
from crosstack.workload.kernels import Collective

R, S, F = DimensionKind.RING, DimensionKind.SWITCH, DimensionKind.FULLY_CONNECTED
x, y, z = 4, 8, 2
n2, n3 = x * y, x * y * z


def half(n: int) -> float:
    return n * (n - 1) / 2


# kinds, sizes, and per dimension: pairs over links, as published for release E3b
PUBLISHED = [
    ((R,), (x,), [half(x) / 2]),
    ((S,), (x,), [half(x) / x]),
    ((F,), (x,), [half(x) / (x**2 / 4)]),
    ((R, R), (x, y), [half(n2) / (2 * x), half(n2) / (2 * y)]),
    ((R, F), (x, y), [half(x) / 2, half(n2) / (y**2 / 4)]),
    ((R, S), (x, y), [half(x) / 2, half(n2) / y]),
    ((S, S), (x, y), [half(x) / x, half(n2) / y]),
    ((F, F), (x, y), [half(x) / (x**2 / 4), half(n2) / (y**2 / 4)]),
    ((R, R, R), (x, y, z), [half(n3) / (2 * n3 / side) for side in (z, y, x)]),
    ((R, S, S), (x, y, z), [half(x) / 2, half(n2) / y, half(n3) / z]),
    ((S, S, S), (x, y, z), [half(x) / x, half(n2) / y, half(n3) / z]),
]  # fmt: skip


@pytest.mark.parametrize(("kinds", "sizes", "loads"), PUBLISHED)
def test_every_published_topology(kinds, sizes, loads):
    for slow in range(len(kinds)):  # one dimension slow enough to be the cut
        speeds = [1.0 if i == slow else 1e6 for i in range(len(kinds))]
        cut = slowest_cut(kinds, sizes, speeds, ring_links=2, all_pairs=True)
        assert cut == pytest.approx(loads[slow])


@pytest.mark.parametrize(
    ("kinds", "sizes", "speed", "size", "time"),
    [
        # release E2: FFT/DSE/system/..., the whole tensor and the time of Step_2 [s]
        ((R, R, R), (8, 8, 16), 450e9, 2.0**41, 19088743.53777778e-9),
        ((R, R), (32, 32), 50e9, 2.0**41, 343597383.68e-9),
        ((S, S), (8, 128), 450e9, 2.0**41, 9544371.768888889e-9),
    ],
)
def test_published_transposes_of_release_e2(kinds, sizes, speed, size, time):
    speeds = [speed] * len(kinds)
    cut = slowest_cut(kinds, sizes, speeds, ring_links=1, all_pairs=False)
    assert cut * size / 1024**2 == pytest.approx(time, rel=1e-12)


def test_release_e4_counts_all_pairs():
    # FFT/Compare_w_existing/FP32/1024: 1340863613.76 ns
    cut = slowest_cut((S, S), (8, 128), (300e9, 12.5e9), ring_links=2, all_pairs=True)
    assert cut * 4294957858816.0 / 1024**2 == pytest.approx(1.34086361376, rel=1e-7)


def test_one_chip_exchanges_nothing():
    assert slowest_cut((R,), (1,), (1.0,), ring_links=2, all_pairs=True) == 0


@pytest.mark.parametrize("size", [2, 4, 16])
def test_on_one_ring_two_links_and_a_quarter_are_the_physical_count(size):
    cut = slowest_cut((R,), (size,), (1.0,), ring_links=2, all_pairs=False) / size**2
    ring = Extent(dimension=Dimension(kind=R, bandwidth=1.0), size=size, members=size)
    (line,) = collective_lines(Collective.ALL_TO_ALL, Group(extents=(ring,))).members
    assert cut == pytest.approx(line.per_byte)
