import pytest

from crosstack.chip.a100 import a100_pcie_80gb, a100_sxm_80gb
from crosstack.chip.hierarchy import ChipHierarchy, Compute, Link, MemoryLevel, Scope
from crosstack.errors import InputError
from crosstack.evaluate.cluster import (
    Cluster,
    Derate,
    named_cluster,
    nested_cluster,
    placed_cluster,
    ring_links,
)
from crosstack.evaluate.distributed import RingLink
from crosstack.evaluate.step_rules import StepRules
from crosstack.mapping.placement import place
from crosstack.mapping.strategy import ParallelDimension, Strategy, parse_strategy
from crosstack.system.system import DimensionKind
from crosstack.system.topology import Grid

KP1, KP2, DP, LP = ParallelDimension
RELEASE = StepRules.deepflow_2025()


def chip(intra=0.0, inter=0.0):
    return ChipHierarchy(
        compute=Compute(n_units=1, n_bundles=1, work_per_cycle=1, frequency=1e9),
        levels=(MemoryLevel(name="DRAM", scope=Scope.CHIP, capacity=1e9, bandwidth=1e12),),
        intra=Link(n_links=1, bandwidth=intra, latency=5e-6),
        inter=Link(n_links=1, bandwidth=inter, latency=5e-6),
    )


# Recorded runs of the 2025 release (deepflow_code): bandwidth of the links, degree of kp1, result.
@pytest.mark.parametrize(
    ("inter", "kp1", "expected"),
    [
        (551929731168.4873, 4, 275964865584.24365),
        (551929731168.4873, 8, 110385946233.69746),
        (551929731168.4873, 16, 137982432792.12183),
        (51605429864.25352, 2, 25802714932.12676),
    ],
)
def test_links_between_packages_are_those_of_the_release(inter, kp1, expected):
    cluster = Cluster(
        chip=chip(inter=inter),
        packages=kp1,
        crossing=frozenset({KP1}),
        derates=(Derate(inside=0, between=1),) * 4,
    )
    links = ring_links(Strategy(kp1=kp1), cluster, RELEASE)
    assert links[KP1].bandwidth == expected
    assert (links[DP].bandwidth, links[DP].latency) == (0.0, 5e-6)


def test_links_inside_a_package_are_those_of_the_release():
    derates = (Derate(inside=2, between=1),) * 4
    cluster = Cluster(chip=chip(intra=892228256040.1199), chips_per_package=4, derates=derates)
    links = ring_links(Strategy(kp1=4), cluster, RELEASE)
    assert {link.bandwidth for link in links.values()} == {223057064010.02997}


def test_links_are_shared_by_edges_not_by_degree():
    cluster = Cluster(chip=chip(intra=6e11), chips_per_package=8)
    links = ring_links(Strategy(kp1=8), cluster, StepRules())
    assert links[KP1].bandwidth == 6e11


def test_a_network_without_power_is_no_link():
    cluster = Cluster(chip=chip(inter=4.5e-5), packages=2, crossing=frozenset({KP1}))
    assert ring_links(Strategy(kp1=2), cluster, StepRules())[KP1].bandwidth == 0.0
    assert ring_links(Strategy(kp1=2), cluster, RELEASE)[KP1].bandwidth > 0.0


def test_sending_over_no_link_is_an_error_that_names_it():
    with pytest.raises(InputError, match="kp1.*no bandwidth"):
        RingLink(bandwidth=0.0, name="kp1: link").time(1e6)


def test_more_chips_than_there_are_is_an_error():
    with pytest.raises(InputError, match="needs 4 chips; there are 2"):
        ring_links(Strategy(kp1=4), Cluster(chip=chip(), packages=2), StepRules())


def test_a_placement_says_which_links_a_dimension_uses_and_shares():
    placement = place(parse_strategy("RC-4-2-d8-p1"), Grid(package=(4, 4), packages=(2, 2)))
    cluster = placed_cluster(chip(intra=9e11, inter=8e10), placement)
    links = ring_links(placement.strategy, cluster, StepRules())
    assert links[KP1].bandwidth == 9e11
    shared = placement.by_dimension[DP].between
    assert links[DP].bandwidth == 8e10 / shared
    assert cluster.n_chips == 64


CHIP = chip(intra=8e11, inter=1e11)


def nested(strategy, **machine):
    cluster = nested_cluster(CHIP, parse_strategy(strategy), **machine)
    return ring_links(parse_strategy(strategy), cluster, StepRules())


def test_packages_are_filled_from_the_innermost_dimension():
    # Eight chips a package: kp2 and kp1 stay inside, dp and lp leave.
    links = nested("RC-2-4-d4-p2", chips_per_package=8, packages=8)
    inside = [dimension for dimension, link in links.items() if "inside" in link.name]
    assert inside == [KP1, KP2]


def test_neighbours_on_a_ring_share_what_lies_between_them():
    ring = nested("RC-2-4-d1-p1", chips_per_package=8)
    assert ring[KP2].bandwidth == CHIP.intra.bandwidth
    assert ring[KP1].bandwidth == CHIP.intra.bandwidth / 4
    switch = nested("RC-2-4-d1-p1", chips_per_package=8, intra_kind=DimensionKind.SWITCH)
    assert switch[KP1].bandwidth == CHIP.intra.bandwidth


def test_every_chip_has_links_of_its_own_to_a_switch_between_packages():
    for strategy in ("RC-1-1-d512-p1", "RC-1-8-d8-p8"):
        links = nested(strategy, packages=512)
        for dimension, link in links.items():
            if parse_strategy(strategy).degree(dimension) > 1:
                assert link.bandwidth == CHIP.inter.bandwidth


def test_a_ring_of_packages_is_shared_by_those_between():
    links = nested("RC-1-8-d4-p2", packages=64, inter_kind=DimensionKind.RING)
    assert links[DP].bandwidth == CHIP.inter.bandwidth / 8
    assert links[LP].bandwidth == CHIP.inter.bandwidth / 32


def test_a_dimension_that_lies_across_the_border_of_a_package_uses_both_links():
    # Three of eight chips: the ring does not fit evenly, so its slowest hop counts.
    links = nested("RC-1-3-d1-p1", chips_per_package=8, packages=2)
    assert links[KP2].bandwidth == min(CHIP.intra.bandwidth, CHIP.inter.bandwidth)


@pytest.mark.parametrize(
    ("strategy", "packages", "crossing"),
    [("RC-1-8-d1-p1", 1, set()), ("RC-1-4-d1-p1", 1, set()), ("RC-1-8-d2-p4", 8, {"dp", "lp"})],
)
def test_servers_of_a_chip_by_name_are_filled(strategy, packages, crossing):
    cluster = named_cluster(a100_sxm_80gb(), parse_strategy(strategy))
    assert (cluster.chips_per_package, cluster.packages) == (8, packages)
    assert {d.value for d in cluster.crossing} == crossing


def test_a_chip_without_a_server_stands_alone():
    assert named_cluster(a100_pcie_80gb(), parse_strategy("RC-1-1-d1-p1")).n_chips == 1
