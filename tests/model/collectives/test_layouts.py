"""Ways from one layout of a tensor to another."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.system import Dimension, DimensionKind
from crosstack.model.collectives import Adding, Extent, Group, collective_lines
from crosstack.model.collectives.layouts import Layout, layout_change
from crosstack.workload.graph import Collective

REPLICATED, ROWS, COLUMNS, PARTIAL = Layout
GATHER, EXCHANGE, SCATTER, REDUCE = (
    Collective.ALL_GATHER,
    Collective.ALL_TO_ALL,
    Collective.REDUCE_SCATTER,
    Collective.ALL_REDUCE,
)


def chips(kind=DimensionKind.SWITCH, members=8, *, bandwidth=1e11, latency=1e-6):
    one = Dimension(kind=kind, bandwidth=bandwidth, latency=latency)
    return Group(extents=(Extent(dimension=one, size=members, members=members),))


@pytest.mark.parametrize(
    ("start", "end", "collectives"),
    [
        (ROWS, ROWS, ()),
        (REPLICATED, ROWS, ()),
        (ROWS, REPLICATED, (GATHER,)),
        (COLUMNS, REPLICATED, (GATHER,)),
        (ROWS, COLUMNS, (EXCHANGE,)),
        (PARTIAL, ROWS, (SCATTER,)),
        (PARTIAL, PARTIAL, ()),
    ],
)
def test_a_change_is_the_collective_that_makes_it(start, end, collectives):
    change = layout_change(start, end, 1e9, chips())
    assert change.collectives == collectives
    expected = sum(float(collective_lines(c, chips()).time(1e9)) for c in collectives)
    assert float(change.lines.time(1e9)) == pytest.approx(expected)


def test_sums_of_large_tensors_are_all_reduced_in_one():
    assert layout_change(PARTIAL, REPLICATED, 1e9, chips()).collectives == (REDUCE,)


def test_small_sums_are_summed_whole_rather_than_scattered():
    # A tree of 64 chips has 12 steps, a ring that scatters 63; what is whole is cut for nothing.
    assert layout_change(PARTIAL, ROWS, 1e3, chips(members=64)).collectives == (REDUCE,)
    assert layout_change(PARTIAL, ROWS, 1e9, chips(members=64)).collectives == (SCATTER,)


@pytest.mark.parametrize("start", [REPLICATED, ROWS, COLUMNS])
def test_nothing_is_made_partial(start):
    with pytest.raises(InputError, match=f"layout: got {start} to partial; allowed: any"):
        layout_change(start, PARTIAL, 1.0, chips())


def test_one_chip_has_every_layout_at_once():
    for start, end in itertools.product(Layout, [REPLICATED, ROWS, COLUMNS]):
        change = layout_change(start, end, 1e9, chips(members=1))
        assert float(change.lines.time(1e9)) == 0


def test_additions_on_a_chip_are_part_of_the_way():
    slow = Adding(per_byte=1e-9)
    plain, added = (layout_change(PARTIAL, ROWS, 1e9, chips(), adding=a) for a in (Adding(), slow))
    assert float(added.lines.time(1e9) - plain.lines.time(1e9)) == pytest.approx(7 / 8)


@given(
    size=st.floats(1, 1e12),
    members=st.integers(2, 64),
    kind=st.sampled_from([DimensionKind.SWITCH, DimensionKind.RING, DimensionKind.FULLY_CONNECTED]),
    between=st.sampled_from([REPLICATED, ROWS, COLUMNS]),
    start=st.sampled_from(Layout),
    end=st.sampled_from([REPLICATED, ROWS, COLUMNS]),
)
def test_no_way_by_another_layout_is_faster(size, members, kind, between, start, end):
    group = chips(kind, members)

    def time(a, b):
        return float(layout_change(a, b, size, group).lines.time(size))

    assert time(start, end) <= (time(start, between) + time(between, end)) * (1 + 1e-9)
