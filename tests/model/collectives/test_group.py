"""Where the chips of a parallelism lie on the levels of a network."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.network import Joint
from crosstack.machine.system import Dimension, DimensionKind
from crosstack.model.collectives import Extent, group_of
from crosstack.model.collectives.group import axes_of, filled

K = DimensionKind


def network(*kinds):
    return tuple(Dimension(kind=kind, bandwidth=1e9 / 10**i) for i, kind in enumerate(kinds))


def lies(sizes, degrees, number):
    """Return members and stride of one parallelism on every level it spans."""
    group = group_of(network(*[K.SWITCH] * len(sizes)), sizes, degrees, number)
    return [(e.members, e.stride) for e in group.extents], group.torn


@pytest.mark.parametrize(
    ("sizes", "degrees", "number", "found"),
    [
        pytest.param((8, 4), (8, 4), 0, [(8, 1)], id="fills a server"),
        pytest.param((8, 4), (8, 4), 1, [(4, 1)], id="one of each server"),
        pytest.param((8, 4), (4, 8), 1, [(2, 4), (4, 1)], id="in and between servers"),
        pytest.param((8, 4), (2, 2, 8), 2, [(2, 4), (4, 1)], id="the outermost of three"),
        pytest.param((8, 4), (32,), 0, [(8, 1), (4, 1)], id="all chips"),
        pytest.param((8, 4), (8, 2, 2), 2, [(2, 2)], id="every other server"),
        pytest.param((4, 2, 8), (2, 16), 1, [(2, 2), (2, 1), (4, 1)], id="over three levels"),
        pytest.param((8, 4), (1, 8), 0, [], id="alone"),
    ],
)
def test_a_parallelism_lies_where_its_order_puts_it(sizes, degrees, number, found):
    assert lies(sizes, degrees, number) == (found, None)


def test_a_block_that_does_not_fill_a_server_is_not_torn():
    assert filled((3, 2, 4), (8, 4)) == (6, 24)
    assert lies((8, 4), (3, 2, 4), 2) == ([(4, 1)], None)


def test_a_block_is_torn_where_there_are_too_few_servers():
    assert filled((12,), (8, 2)) == (8, 12)
    extents, torn = lies((8, 2), (12,), 0)
    assert (extents, torn) == ([(8, 1), (2, 1)], 12)


def test_more_ranks_than_chips_are_refused():
    with pytest.raises(InputError, match="degrees: got 33 ranks; allowed: at most 32"):
        group_of(network(K.SWITCH), (32,), (33,), 0)


@given(
    sizes=st.lists(st.sampled_from([2, 4, 8]), min_size=1, max_size=3),
    cuts=st.lists(st.sampled_from([1, 2, 4]), min_size=1, max_size=4),
)
def test_powers_of_two_lie_evenly_and_all_are_there(sizes, cuts):
    if math.prod(cuts) > math.prod(sizes):
        return
    kinds = network(*[K.SWITCH] * len(sizes))
    for number, degree in enumerate(cuts):
        group = group_of(kinds, sizes, cuts, number)
        assert (group.torn, group.members) == (None, degree)


@given(
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    cuts=st.lists(st.integers(1, 6), min_size=1, max_size=4),
)
def test_members_are_the_ranks_whose_numbers_differ_in_one_digit(sizes, cuts):
    """Told one by one: the first group's ranks, put into blocks of every level."""
    ranks = math.prod(cuts)
    if ranks > math.prod(sizes):
        return
    blocks = (1, *filled(cuts, sizes))
    kinds = network(*[K.SWITCH] * len(sizes))
    for number, degree in enumerate(cuts):
        stride = math.prod(cuts[:number])
        group = group_of(kinds, sizes, cuts, number)
        if group.torn is not None:
            assert group.torn == degree
            continue
        members = [stride * i for i in range(degree)]
        found = []
        for below, block in itertools.pairwise(blocks):
            inside = {rank // below for rank in members if rank // block == 0}
            if len(inside) > 1:
                found.append(len(inside))
        assert [extent.members for extent in group.extents] == found


class TestAxes:
    def axes(self, kind, size, members, stride=1, **more):
        dimension = Dimension(kind=kind, bandwidth=100.0, latency=1.0, **more)
        one = Extent(dimension=dimension, size=size, members=members, stride=stride)
        return [(a.joint, a.members, a.bandwidth, a.latency) for a in axes_of(one)]

    def test_chips_that_close_no_ring_are_a_line(self):
        assert self.axes(K.RING, 8, 8) == [(Joint.RING, 8, 100.0, 1.0)]
        assert self.axes(K.RING, 8, 4) == [(Joint.LINE, 4, 100.0, 1.0)]

    def test_every_second_chip_shares_each_link_with_those_in_between(self):
        assert self.axes(K.RING, 8, 4, 2) == [(Joint.RING, 4, 50.0, 2.0)]

    def test_a_block_of_a_torus_is_a_ring_and_a_line(self):
        found = self.axes(K.TORUS, 16, 8, shape=(4, 4))
        assert found == [(Joint.RING, 4, 100.0, 1.0), (Joint.LINE, 2, 100.0, 1.0)]

    def test_an_outer_axis_of_a_torus_is_a_ring_of_its_own_links(self):
        assert self.axes(K.TORUS, 16, 4, 4, shape=(4, 4)) == [(Joint.RING, 4, 100.0, 1.0)]

    def test_chips_that_fit_no_axis_go_along_a_line(self):
        assert self.axes(K.MESH, 16, 6, shape=(4, 4)) == [(Joint.LINE, 6, 100.0, 1.0)]

    def test_a_level_that_cannot_hold_its_members_is_refused(self):
        with pytest.raises(InputError, match="members: got 5; allowed: so many that 8 chips hold"):
            self.axes(K.SWITCH, 8, 5, 2)
