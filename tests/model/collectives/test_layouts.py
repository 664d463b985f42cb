"""Ways from one layout of a tensor to others."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.system import AllReduceAlgorithm, Dimension, DimensionKind, Parallelism
from crosstack.model.collectives import (
    Extent,
    Group,
    LeastTime,
    NetworkUse,
    collective_lines,
    layout_change,
)
from crosstack.model.collectives.layouts import Layout, ways
from crosstack.workload.kernels import Collective

REPLICATED, ROWS, COLUMNS, PARTIAL = Layout
WHOLE = (REPLICATED, ROWS, COLUMNS)
GATHER, EXCHANGE, SCATTER, REDUCE = (
    Collective.ALL_GATHER,
    Collective.ALL_TO_ALL,
    Collective.REDUCE_SCATTER,
    Collective.ALL_REDUCE,
)
KINDS = [DimensionKind.SWITCH, DimensionKind.RING, DimensionKind.FULLY_CONNECTED]
SETS = [frozenset(s) for n in range(4) for s in itertools.combinations(WHOLE, n)]


def chips(kind=DimensionKind.SWITCH, members=8, *, bandwidth=1e11, latency=1e-6):
    one = Dimension(kind=kind, bandwidth=bandwidth, latency=latency)
    return Group(extents=(Extent(dimension=one, size=members, members=members),))


def lines_of(group):
    return {collective: collective_lines(collective, group) for collective in Collective}


def change(start, *ends, group=None):
    return layout_change(start, frozenset(ends), lines_of(group or chips()))


@pytest.mark.parametrize(
    ("start", "ends", "collectives"),
    [
        (ROWS, (ROWS,), ()),
        (REPLICATED, (ROWS, COLUMNS), ()),
        (ROWS, (REPLICATED,), (GATHER,)),
        (COLUMNS, (REPLICATED, ROWS), (GATHER,)),  # who has it all cuts the rest for nothing
        (ROWS, (COLUMNS,), (EXCHANGE,)),
        (PARTIAL, (ROWS,), (SCATTER,)),
        (PARTIAL, (), (SCATTER,)),  # added up, however it then lies
        (PARTIAL, (ROWS, COLUMNS), (SCATTER, EXCHANGE)),
        (PARTIAL, (PARTIAL,), ()),
    ],
)
def test_a_change_is_the_collectives_that_make_it(start, ends, collectives):
    found = change(start, *ends)
    assert found.fastest(1e9) == collectives
    expected = sum(float(collective_lines(c, chips()).time(1e9)) for c in collectives)
    assert float(found.lines.time(1e9)) == pytest.approx(expected)


def test_sums_of_large_tensors_are_all_reduced_in_one():
    assert change(PARTIAL, REPLICATED).fastest(1e9) == (REDUCE,)


def test_small_sums_are_summed_whole_rather_than_scattered():
    # A tree of 64 chips has 12 steps, a ring that scatters 63; what is whole is cut for nothing.
    found = change(PARTIAL, ROWS, group=chips(members=64))
    assert found.fastest(1e3) == (REDUCE,)
    assert found.fastest(1e9) == (SCATTER,)
    assert found.fastest(1e3, together=1e6) == (SCATTER,)  # latency is shared


@pytest.mark.parametrize("start", WHOLE)
def test_nothing_is_made_partial(start):
    with pytest.raises(InputError, match=f"layout: got {start} to partial; allowed: any"):
        change(start, PARTIAL)


def test_one_chip_has_every_layout_at_once():
    for start, ends in itertools.product(Layout, SETS):
        assert float(change(start, *ends, group=chips(members=1)).lines.time(1e9)) == 0


def every_way(held, ends):
    """Yield the collectives of every order in which layouts may be made, most of them silly."""
    if ends <= set(held) and set(held) != {PARTIAL}:
        yield ()
    direct = {
        (PARTIAL, REPLICATED): REDUCE, (PARTIAL, ROWS): SCATTER, (PARTIAL, COLUMNS): SCATTER,
        (ROWS, REPLICATED): GATHER, (COLUMNS, REPLICATED): GATHER,
        (ROWS, COLUMNS): EXCHANGE, (COLUMNS, ROWS): EXCHANGE,
    }  # fmt: skip
    for source, target in itertools.product(held, WHOLE):
        if target in held:
            continue
        one = () if source is REPLICATED else (direct[source, target],)
        for rest in every_way((*held, target), ends):
            yield (*one, *rest)


@given(
    size=st.floats(1, 1e12),
    members=st.integers(2, 64),
    kind=st.sampled_from(KINDS),
    start=st.sampled_from(Layout),
    ends=st.sampled_from(SETS),
)
def test_no_way_is_faster(size, members, kind, start, ends):
    lines = lines_of(chips(kind, members))
    known = {collective: float(line.time(size)) for collective, line in lines.items()}
    least = min(sum(known[c] for c in way) for way in every_way((start,), ends))
    found = layout_change(start, ends, lines)
    assert float(found.lines.time(size)) == pytest.approx(least)
    assert sum(known[c] for c in found.fastest(size)) == pytest.approx(least)


def test_ways_that_do_more_than_another_are_left_out():
    assert ways(PARTIAL, frozenset({REPLICATED})) == ((REDUCE,), (SCATTER, GATHER))


def test_sums_are_made_as_the_system_asks():
    dimension = Dimension(kind=DimensionKind.SWITCH, bandwidth=1e11, latency=1e-6)
    use = NetworkUse(
        dimensions=(dimension,),
        sizes=(8,),
        parallelism=(Parallelism.TENSOR,),
        all_reduce=AllReduceAlgorithm.TREE,
    )
    found = LeastTime().changes(use)[PARTIAL, frozenset({REPLICATED})]
    assert [way for way, _ in found.ways] == [(REDUCE,)]
    free = LeastTime().changes(
        NetworkUse(dimensions=(dimension,), sizes=(8,), parallelism=(Parallelism.TENSOR,))
    )
    assert free[PARTIAL, frozenset({REPLICATED})].lines.time(1e9) < found.lines.time(1e9)
