"""Claims about the system that packages of chips make."""

from dataclasses import replace

import pytest

from crosstack.errors import InputError
from crosstack.machine.chip import Chip, Link
from crosstack.machine.compute import Compute
from crosstack.machine.memory import MemoryLevel
from crosstack.machine.network import DimensionKind, NetworkLevel
from crosstack.machine.packages import divided_system, require_links, system_of_packages

CHIP = Chip(
    compute=Compute(n_units=4, n_multiprocessors=2, work_per_cycle=32.0, frequency=1e9, rows=4),
    levels=(MemoryLevel(name="L1", capacity=1e6, bandwidth=1e12),),
    memories=(MemoryLevel(name="DRAM", capacity=1e9, bandwidth=1e11),),
    intra=Link(n_links=8, bandwidth=2e10, latency=1e-7),
    inter=Link(n_links=0, bandwidth=0.0, latency=1e-6),
)


def test_packages_and_chips_become_dimensions_with_the_chips_links():
    system = divided_system(system_of_packages(CHIP, chips_per_package=4))
    assert [(d.kind, d.size, d.bandwidth) for d in system.network] == [
        (DimensionKind.RING, 4, 2e10)
    ]
    assert (system.n_chips, system.chip) == (4, CHIP)


def test_one_chip_needs_no_links():
    assert divided_system(system_of_packages(CHIP)).n_chips == 1


def test_chips_without_links_are_refused():
    with pytest.raises(InputError, match="2 chips are to be joined, but the inter links have no"):
        divided_system(system_of_packages(CHIP, n_packages=2))


def test_a_torus_is_a_ring_along_each_axis():
    torus = NetworkLevel(kind=DimensionKind.TORUS, shape=(4, 2))
    system = divided_system(system_of_packages(CHIP, chips_per_package=8, inside=torus))
    ring = DimensionKind.RING
    assert [(d.kind, d.size, d.bandwidth) for d in system.network] == [
        (ring, 4, 2e10),
        (ring, 2, 2e10),
    ]


def test_a_mesh_is_a_line_along_each_of_its_axes():
    mesh = NetworkLevel(kind=DimensionKind.MESH, shape=(4, 2))
    network = divided_system(system_of_packages(CHIP, chips_per_package=8, inside=mesh)).network
    assert [(d.kind, d.size, d.shape) for d in network] == [("mesh", 4, (4,)), ("mesh", 2, (2,))]


def test_packages_may_be_joined_by_a_fat_tree():
    tree = NetworkLevel(kind=DimensionKind.FAT_TREE, oversubscription=2.0, pod_size=4)
    joined = replace(CHIP, inter=CHIP.intra)
    (outer,) = divided_system(system_of_packages(joined, n_packages=8, between=tree)).network
    assert outer.level == tree


@pytest.mark.parametrize(
    ("chip", "missing"),
    [
        (CHIP.with_compute(frequency=0.0), "it has no throughput"),
        (CHIP.with_level(0, capacity=0.0), "it has no on-chip memory"),
        (CHIP.with_memory(bandwidth=0.0), "bandwidth: got 0.*above 0"),
        (replace(CHIP, memories=()), '"chip" has none'),
    ],
)
def test_a_chip_that_runs_nothing_makes_no_system(chip, missing):
    with pytest.raises(InputError, match=missing):
        divided_system(system_of_packages(chip))


def test_links_are_asked_for_where_there_are_several_chips():
    require_links(system_of_packages(CHIP, chips_per_package=2))
    require_links(system_of_packages(replace(CHIP, intra=None)))
    with pytest.raises(InputError, match="intra: 2 chips .* intra links have no bandwidth"):
        require_links(system_of_packages(replace(CHIP, intra=None), chips_per_package=2))
    free = system_of_packages(CHIP, n_packages=2)
    free = replace(free, network=(free.network[0], replace(free.network[1], size=None)))
    with pytest.raises(InputError, match="inter: 2 chips"):
        require_links(free)
