"""Claims about the system around a generated chip."""

import pytest

from crosstack.errors import InputError
from crosstack.machine.generate.system import generated_system
from crosstack.machine.hierarchy import ChipHierarchy, Compute, Link, MemoryLevel, Scope
from crosstack.machine.system import DimensionKind
from crosstack.machine.topology import NetworkLevel, Topology

CHIP = ChipHierarchy(
    compute=Compute(n_units=4, n_bundles=2, work_per_cycle=32.0, frequency=1e9, rows=4),
    levels=(
        MemoryLevel(name="L1", scope=Scope.CHIP, capacity=1e6, bandwidth=1e12),
        MemoryLevel(name="DRAM", scope=Scope.CHIP, capacity=1e9, bandwidth=1e11),
    ),
    intra=Link(n_links=8, bandwidth=2e10, latency=1e-7),
    inter=Link(n_links=0, bandwidth=0.0, latency=1e-6),
)


def test_packages_and_chips_become_dimensions_with_the_chips_links():
    system = generated_system(CHIP, chips_per_package=4)
    assert [(d.kind, d.size, d.bandwidth) for d in system.network] == [
        (DimensionKind.RING, 4, 2e10)
    ]
    assert (system.n_chips, system.memory.bandwidth, system.memory.capacity) == (4, 1e11, 1e9)


def test_one_chip_needs_no_links():
    assert generated_system(CHIP).n_chips == 1


def test_chips_without_links_are_refused():
    with pytest.raises(InputError, match="2 chips are to be joined, but the inter links have no"):
        generated_system(CHIP, n_packages=2)


def test_a_torus_is_a_ring_along_each_axis():
    torus = NetworkLevel(topology=Topology.TORUS, shape=(4, 2))
    system = generated_system(CHIP, chips_per_package=8, inside=torus)
    ring = DimensionKind.RING
    assert [(d.kind, d.size, d.bandwidth) for d in system.network] == [
        (ring, 4, 2e10),
        (ring, 2, 2e10),
    ]


def test_a_mesh_is_no_dimension_of_a_system():
    mesh = NetworkLevel(topology=Topology.MESH)
    with pytest.raises(InputError, match="intra.kind: got mesh.*Allowed: ring, torus, switch"):
        generated_system(CHIP, chips_per_package=8, inside=mesh)
