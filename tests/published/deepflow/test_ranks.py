from dataclasses import dataclass, replace
from itertools import permutations

import pytest

from crosstack.errors import InputError
from crosstack.io import library
from crosstack.machine.chip import Chip, Link
from crosstack.machine.compute import Compute
from crosstack.machine.memory import MemoryLevel
from crosstack.machine.network import RING, SWITCH, parse_levels
from crosstack.machine.node import system_of_nodes
from crosstack.machine.packages import system_of_grid, system_of_packages
from crosstack.machine.system import DimensionKind, Parallelism
from crosstack.machine.topology import Grid
from crosstack.mapping.strategy import (
    NESTED,
    ParallelDimension,
    Strategy,
    parse_strategy,
    strategies,
    whole_order,
)
from crosstack.model.collectives import Arrival, Joint, LeastTime, NetworkUse
from crosstack.model.collectives.group import axes_of, filled
from crosstack.model.collectives.part import _group
from crosstack.model.kernels.roofline import Roofline
from crosstack.published.deepflow.distributed import Distributed
from crosstack.published.deepflow.ranks import peers_of
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernels import Collective

KP1, KP2, DP, LP = ParallelDimension
DGX = library.node("a100-dgx-80gb")
JOINED = dict(zip(("fabric", "port"), library.joined_by(DGX), strict=True))


@dataclass
class Seen:
    """Of the links that peers have: the slowest, and its latency."""

    bandwidth: float
    latency: float
    name: str
    joints: list


def seen(peers):
    axes = [axis for extent in peers.group.extents for axis in axes_of(extent)]
    if not axes:
        return None
    return Seen(
        bandwidth=min(axis.bandwidth for axis in axes),
        latency=axes[-1].latency,
        name=peers.name,
        joints=[axis.joint for axis in axes],
    )


def links_of(strategy, system, order=NESTED):
    return {d: seen(peers) for d, peers in peers_of(strategy, system, order).items()}


def servers(strategy, order=NESTED, **joined):
    """Return as many servers as a strategy fills: what fits into one stays in one."""
    degrees = tuple(strategy.degree(d) for d in whole_order(strategy, order))
    each = filled(degrees, (DGX.n_chips, strategy.n_chips))[0]
    count = -(-strategy.n_chips // each)
    return system_of_nodes(DGX, count * DGX.n_chips, **JOINED, **joined)


def chip(intra=0.0, inter=0.0):
    return Chip(
        compute=Compute(n_units=1, n_multiprocessors=1, work_per_cycle=1, frequency=1e9),
        levels=(MemoryLevel(name="L1", capacity=1e6, bandwidth=1e13),),
        memories=(MemoryLevel(name="DRAM", capacity=1e9, bandwidth=1e12),),
        intra=Link(n_links=1, bandwidth=intra, latency=5e-6),
        inter=Link(n_links=1, bandwidth=inter, latency=5e-6),
    )


def test_links_are_shared_by_edges_not_by_degree():
    one = chip(intra=6e11)
    system = system_of_packages(one, chips_per_package=8)
    assert links_of(Strategy(kp1=8), system)[KP1].bandwidth == 6e11


def test_a_network_without_power_is_no_link():
    one = chip(inter=4.5e-5)
    system = system_of_packages(one, n_packages=2)
    peers = peers_of(Strategy(kp1=2), system, NESTED)[KP1]
    with pytest.raises(InputError, match="kp1: link between packages: .* no bandwidth"):
        peers.time(Collective.ALL_GATHER, 1e6)


def test_more_chips_than_there_are_is_an_error():
    with pytest.raises(InputError, match="needs 4 chips; there are 2"):
        peers_of(Strategy(kp1=4), system_of_packages(CHIP, n_packages=2), NESTED)


# A grid of packages of 4 x 4 chips: of the four in a row one reaches the next package.
def test_a_chip_has_its_share_of_the_links_that_leave_a_package():
    system = system_of_grid(chip(intra=9e11, inter=8e10), Grid(package=(4, 4), packages=(2, 2)))
    assert [level.size for level in system.network] == [16, 2, 2]
    assert [level.bandwidth for level in system.network] == [9e11, 2e10, 2e10]
    links = links_of(parse_strategy("RC-4-4-d2-p2"), system)
    assert [links[d].bandwidth for d in (KP2, KP1, DP, LP)] == [9e11, 9e11, 2e10, 2e10]


@pytest.mark.parametrize(("torus", "joints"), [(True, [Joint.RING] * 2), (False, [Joint.LINE] * 2)])
def test_only_a_torus_of_one_package_closes_the_rings_inside_it(torus, joints):
    one = system_of_grid(CHIP, Grid(package=(4, 4), torus=torus))
    assert links_of(Strategy(kp2=16), one)[KP2].joints == joints
    two = system_of_grid(CHIP, Grid(package=(4, 4), packages=(4, 1), torus=torus))
    links = links_of(Strategy(kp2=16, dp=4), two)
    assert links[KP2].joints == [Joint.LINE] * 2
    assert links[DP].joints == joints[:1]


CHIP = chip(intra=8e11, inter=1e11)


def nested(strategy, order=NESTED, **machine):
    return links_of(parse_strategy(strategy), system_of_packages(CHIP, **machine), order)


def test_packages_are_filled_from_the_innermost_dimension():
    # Eight chips a package: kp2 and kp1 stay inside, dp and lp leave.
    links = nested("RC-2-4-d4-p2", chips_per_package=8, n_packages=8)
    inside = {dimension for dimension, link in links.items() if "inside" in link.name}
    assert inside == {KP1, KP2}


def test_neighbours_on_a_ring_share_what_lies_between_them():
    ring = nested("RC-2-4-d1-p1", chips_per_package=8)
    assert ring[KP2].bandwidth == CHIP.intra.bandwidth
    assert ring[KP1].bandwidth == CHIP.intra.bandwidth / 4
    switch = nested("RC-2-4-d1-p1", chips_per_package=8, inside=SWITCH)
    assert switch[KP1].bandwidth == CHIP.intra.bandwidth


def test_every_chip_has_links_of_its_own_to_a_switch_between_packages():
    for strategy in ("RC-1-1-d512-p1", "RC-1-8-d8-p8"):
        links = nested(strategy, n_packages=512)
        for dimension, link in links.items():
            if parse_strategy(strategy).degree(dimension) > 1:
                assert link.bandwidth == CHIP.inter.bandwidth


def test_a_ring_of_packages_is_shared_by_those_between():
    links = nested("RC-1-8-d4-p2", n_packages=64, between=RING)
    assert links[DP].bandwidth == CHIP.inter.bandwidth / 8
    assert links[LP].bandwidth == CHIP.inter.bandwidth / 32


def test_blocks_that_fit_into_a_package_are_not_torn_where_there_are_packages_enough():
    # Four groups of three on two packages of eight: two in each, and two chips idle.
    links = nested("RC-1-3-d4-p1", chips_per_package=8, n_packages=2)
    assert links[KP2].bandwidth == CHIP.intra.bandwidth
    assert links[DP].bandwidth == min(CHIP.intra.bandwidth, CHIP.inter.bandwidth)


def test_a_dimension_with_a_group_across_the_border_of_a_package_uses_both_links():
    # Five groups of three on two packages of eight fill both: the third lies in two packages.
    links = nested("RC-1-3-d5-p1", chips_per_package=8, n_packages=2)
    assert links[KP2].bandwidth == min(CHIP.intra.bandwidth, CHIP.inter.bandwidth)


def joined(text):
    return parse_levels(text)[0]


# Sixteen chips, 4 x 4 shards, by hand: on a ring the outer dimension jumps over four chips; on a
# mesh or torus each has an axis of its own, the way back of a ring takes the other direction.
@pytest.mark.parametrize(
    ("inside", "kp2", "kp1"),
    [("ring", 1, 4), ("mesh", 1, 1), ("torus", 1, 1), ("switch", 1, 1), ("mesh:16x1", 1, 4)],
)
def test_what_shares_a_link_follows_from_the_topology_of_a_level(inside, kp2, kp1):
    links = nested("RC-4-4-d1-p1", chips_per_package=16, inside=joined(inside))
    assert links[KP2].bandwidth == CHIP.intra.bandwidth / kp2
    assert links[KP1].bandwidth == CHIP.intra.bandwidth / kp1


# Packages of four chips hold kp2; dp 4 and lp 2 run over eight packages, by hand.
@pytest.mark.parametrize(
    ("between", "dp", "lp"), [("switch", 1, 1), ("ring", 1, 4), ("torus:4x2", 1, 1), ("mesh", 1, 1)]
)
def test_levels_have_topologies_of_their_own(between, dp, lp):
    machine = {"chips_per_package": 4, "n_packages": 8, "between": joined(between)}
    links = nested("RC-1-4-d4-p2", inside=joined("mesh:4"), **machine)
    assert links[KP2].bandwidth == CHIP.intra.bandwidth
    assert links[DP].bandwidth == CHIP.inter.bandwidth / dp
    assert links[LP].bandwidth == CHIP.inter.bandwidth / lp


@pytest.mark.parametrize("order", [(DP, KP2), (KP2, DP)])
def test_the_order_says_what_stays_inside(order):
    links = nested("RC-1-4-d4-p1", chips_per_package=4, n_packages=4, order=order)
    assert [d for d in (DP, KP2) if "inside" in links[d].name] == [order[0]]


def test_an_order_has_every_dimension_of_several_shards():
    with pytest.raises(InputError, match="leaves out dp"):
        nested("RC-1-4-d4-p1", chips_per_package=4, n_packages=4, order=(KP2,))


def test_fully_connected_chips_send_to_all_others_at_once():
    full = joined("fully_connected")
    machine = {"chips_per_package": 4, "n_packages": 4, "inside": full, "between": full}
    links = nested("RC-1-4-d4-p1", **machine)
    assert links[KP2].joints == links[DP].joints == [Joint.PAIRS]
    # Two of a dimension in each of four packages: all at once in both, one level after the other.
    assert nested("RC-1-2-d8-p1", **machine)[DP].joints == [Joint.PAIRS] * 2
    assert nested("RC-1-4-d4-p1", chips_per_package=4, n_packages=4)[KP2].joints == [Joint.RING]


def test_links_of_a_named_chip_are_shared_out_over_its_neighbours():
    strategy = parse_strategy("RC-1-8-d1-p1")
    for text, neighbours in (("switch", 1), ("ring", 2), ("fully_connected", 7)):
        link = links_of(strategy, servers(strategy, inside=joined(text)))[KP2]
        assert link.bandwidth == pytest.approx(300e9 / neighbours)


def sizes(system):
    return tuple(level.size for level in system.network)


SMALL = [s for n_chips in range(1, 17) for s in strategies(n_chips)]


def servers_of_ranks(strategy):
    """Server of every rank, by the numbering that the docs describe."""
    blocks = [1]
    for dimension in (KP2, KP1, DP, LP):
        blocks.append(blocks[-1] * strategy.degree(dimension))
    block = max(size for size in blocks if size <= 8)
    return [rank // (8 // block * block) for rank in range(strategy.n_chips)]


def groups_of(strategy, dimension):
    """Ranks of every group of a dimension."""
    stride = 1
    for other in (KP2, KP1, DP, LP):
        if other is dimension:
            break
        stride *= strategy.degree(other)
    degree = strategy.degree(dimension)
    firsts = [r for r in range(strategy.n_chips) if r // stride % degree == 0]
    return [[first + i * stride for i in range(degree)] for first in firsts]


@pytest.mark.parametrize("strategy", SMALL, ids=str)
def test_a_dimension_leaves_the_server_where_a_group_of_it_does(strategy):
    chip_ = DGX.chip
    system = servers(strategy)
    links = links_of(strategy, system)
    servers_ = servers_of_ranks(strategy)
    for dimension in ParallelDimension:
        if strategy.degree(dimension) == 1:
            continue
        torn = any(len({servers_[r] for r in g}) > 1 for g in groups_of(strategy, dimension))
        own = chip_.inter if torn else chip_.intra
        assert (links[dimension].bandwidth, links[dimension].latency) == (
            own.bandwidth,
            own.latency,
        )
    assert sizes(system) == (8, servers_[-1] + 1)[: 1 + (servers_[-1] > 0)]


@pytest.mark.parametrize("strategy", [s for s in SMALL if s.n_chips <= 8], ids=str)
def test_up_to_eight_chips_stay_in_one_server(strategy):
    system = servers(strategy)
    assert sizes(system) == (8,)
    names = {link.name for link in links_of(strategy, system).values() if link}
    assert not any("between" in name for name in names)


@pytest.mark.parametrize(
    ("strategy", "packages", "crossing"),
    [("RC-1-8-d1-p1", 1, set()), ("RC-1-4-d1-p1", 1, set()), ("RC-1-8-d2-p4", 8, {"dp", "lp"})],
)
def test_servers_of_a_chip_by_name_are_filled(strategy, packages, crossing):
    system = servers(parse_strategy(strategy))
    assert sizes(system) == ((8, packages) if packages > 1 else (8,))
    links = links_of(parse_strategy(strategy), system)
    found = {d.value for d, link in links.items() if link and "between" in link.name}
    assert found == crossing


def test_more_chips_than_are_given_are_refused():
    with pytest.raises(InputError, match="needs 16 chips; there are 8"):
        peers_of(parse_strategy("RC-1-8-d2-p1"), system_of_nodes(DGX, 8), NESTED)


# Rails: of a group with several chips in each server, each has a port of its own out of it.
@pytest.mark.parametrize("inside", [1, 2, 4, 8])
def test_a_group_leaves_a_server_by_as_many_ports_as_it_has_chips_there(inside):
    one = chip(intra=1e15, inter=1e10)
    strategy = Strategy(kp1=8 // inside, dp=2 * inside)
    system = system_of_packages(one, chips_per_package=8, n_packages=2, inside=SWITCH)
    time = peers_of(strategy, system, NESTED)[DP].time(Collective.ALL_GATHER, 1e9)
    assert time == pytest.approx(1e9 / 2 / inside / 1e10, rel=2e-2)


# ---------------------------------------------------------------- as a mapping has them


RAILS = library.system_on("h100-dgx", chips=512)
TORUS = replace(library.system_on("tpu-v4-cube", chips=64), chip=RAILS.chip)
MACHINES = {
    "h100-dgx": library.system_on("h100-dgx", chips=64),
    "h100-dgx, two pods of rails": RAILS,
    "a100-dgx-80gb": library.system_on("a100-dgx-80gb", chips=32),
    "three rings": TORUS,
    "one torus": replace(
        TORUS,
        network=(
            replace(TORUS.network[0], kind=DimensionKind.TORUS, shape=(4, 4), size=16),
            replace(TORUS.network[-1], size=4),
        ),
    ),
    "a domain of 32": replace(RAILS, domain_size=32),
}
DIMENSIONS = {Parallelism.TENSOR: KP2, Parallelism.DATA: DP, Parallelism.PIPELINE: LP}


@pytest.mark.parametrize("name", MACHINES)
def test_a_mapping_and_a_step_talk_to_the_same_chips_and_take_as_long(name):
    system = MACHINES[name]
    degrees, dtype = sizes(system), Dtype.BF16
    times = Roofline().times(system.chip, dtype)
    for uses in permutations(DIMENSIONS, len(degrees)):
        network = NetworkUse.of(system, degrees, uses, dtype)
        given = dict(zip((DIMENSIONS[use].value for use in uses), degrees, strict=True))
        strategy, order = Strategy(**given), tuple(DIMENSIONS[use] for use in uses)
        peers = peers_of(strategy, system, order)
        step = Distributed(strategy=strategy, times=times, links=peers)
        for use in uses:
            assert peers[DIMENSIONS[use]].group == _group(network, use)
        for size in (1e3, 1e6, 1e9):
            elements = size / dtype.size
            if Parallelism.TENSOR in uses:
                kernels = LeastTime().kernels(network)
                for collective in Collective:
                    taken = peers[KP2].time(collective, size, network.arrival)
                    assert taken == kernels[collective].time(size)
                    nothing = Arrival(own=network.arrival.own)
                    alone = peers[KP2].time(collective, size, nothing)
                    library = any(level.medium for level in system.network)  # takes it in meanwhile
                    meanwhile = library and collective is Collective.POINT_TO_POINT
                    assert taken == alone if meanwhile else taken > alone
                found = step.all_gather(elements, 1, KP2)
                assert found == pytest.approx(kernels[Collective.ALL_GATHER].time(size), rel=1e-12)
                found = step.reduce_scatter(elements, 1, KP2)
                scattered = kernels[Collective.REDUCE_SCATTER].time(size)
                assert found == pytest.approx(scattered, rel=1e-12)
            if Parallelism.DATA in uses:
                found = step.all_reduce(elements, 1, DP)
                assert found == pytest.approx(LeastTime().gradients(network).time(size), rel=1e-12)
            if Parallelism.PIPELINE in uses and system.domain_size is None:
                ((bandwidth, latency),) = LeastTime().neighbours(network)
                found = step.send(size, LP)
                assert found == pytest.approx(latency + size / bandwidth, rel=1e-12)
