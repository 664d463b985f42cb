from itertools import product

import numpy as np
import pytest
from builders.examples import fewer
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.topology import Grid
from crosstack.mapping.placement import Sharing, logical_edges, place, placements
from crosstack.mapping.strategy import ParallelDimension, Strategy, parse_strategy

KP1, KP2, DP, LP = ParallelDimension


def test_equal_degrees_make_distinct_orders():
    grid = Grid(package=(8, 8))
    assert len(placements(parse_strategy("RC-8-8-d1-p1"), grid)) == 2


def test_a_given_order_is_the_one_that_is_placed():
    strategy, grid = parse_strategy("RC-4-2-d8-p1"), Grid(package=(4, 4), packages=(2, 2))
    every = {p.order[:3]: p.derates for p in placements(strategy, grid)}
    for order in ((DP, KP1, KP2), (KP2, KP1, DP)):
        (found,) = placements(strategy, grid, order=order)
        assert (found.order[:3], found.derates) == (order, every[order])


def test_a_ring_of_each_dimension_fits_a_torus_without_sharing():
    placement = place(parse_strategy("RC-4-4-d1-p1"), Grid(package=(4, 4), torus=True))
    assert placement.sharing == Sharing(between=0, inside=1)


def test_three_dimensions_fit_three_axes_without_sharing():
    placement = place(parse_strategy("RC-4-4-d4-p1"), Grid(package=(4, 4, 4), torus=True))
    assert placement.sharing.inside == 1


def test_routes_pass_through_packages_between():
    # Four chips in a row, one a package: the edge that closes the ring uses every link.
    placement = place(parse_strategy("RC-4-1-d1-p1"), Grid(package=(1,), packages=(4,)))
    assert placement.sharing.between == 1
    assert placement.loads.counts[0][0, 1].sum() == 3


def test_dimensions_that_fit_stay_inside_a_package():
    placement = place(parse_strategy("RC-4-4-d4-p1"), Grid(package=(4, 4), packages=(2, 2)))
    assert len(placement.crosses) == 1


def test_a_strategy_that_needs_more_chips_than_there_are_is_refused():
    with pytest.raises(InputError, match="needs 32 chips"):
        place(parse_strategy("RC-4-4-d2-p1"), Grid(package=(4, 4)))


def test_a_degree_that_divides_no_axis_is_placed_all_the_same():
    placement = place(parse_strategy("RC-5-3-d1-p1"), Grid(package=(4, 4)))
    assert len(np.unique(placement.positions.reshape(-1, 2), axis=0)) == 15


def test_a_line_has_no_edge_that_closes_it():
    assert len(logical_edges(Strategy(lp=4), LP)[0]) == 3
    assert len(logical_edges(Strategy(dp=4), DP)[0]) == 4


small = st.sampled_from([1, 2, 3, 4])
cases = st.tuples(
    st.builds(Strategy, kp1=small, kp2=small, dp=small, lp=small),
    st.sampled_from([(4, 4), (8,), (4, 4, 4), (2, 6)]),
    st.sampled_from([1, 2, 4]),
    st.booleans(),
)


@given(cases)
@fewer(0.25)
def test_every_shard_has_a_chip_of_its_own(case):
    strategy, package, count, torus = case
    grid = Grid(package=package, packages=(count, *(1 for _ in package[1:])), torus=torus)
    if strategy.n_chips > grid.n_chips:
        return
    placement = place(strategy, grid)
    flat = placement.positions.reshape(-1, len(package))
    assert len(np.unique(flat, axis=0)) == strategy.n_chips
    assert (flat >= 0).all()
    assert (flat < np.array(grid.shape)).all()
    whole = placement.sharing
    each = placement.by_dimension.values()
    assert max(s.inside for s in each) <= whole.inside <= sum(s.inside for s in each)
    assert max(s.between for s in each) <= whole.between <= sum(s.between for s in each)


@given(cases)
@fewer(0.25)
def test_hops_are_the_distances_of_all_edges(case):
    strategy, package, count, _ = case
    grid = Grid(package=package, packages=(count, *(1 for _ in package[1:])))
    if strategy.n_chips > grid.n_chips:
        return
    placement = place(strategy, grid)
    flat = placement.positions.reshape(-1, len(package))
    total = 0
    for dimension in ParallelDimension:
        first, last = logical_edges(strategy, dimension)
        total += int(np.abs(flat[first] - flat[last]).sum())
    assert placement.hops == total


def test_no_layout_of_two_dimensions_beats_the_one_found_on_a_small_mesh():
    # All ways to put 2 x 2 shards on a 2 x 2 mesh: the two rings of two need each link once.
    placement = place(parse_strategy("RC-2-2-d1-p1"), Grid(package=(2, 2)))
    assert placement.sharing.inside == 1
    assert placement.hops == 8 == len(list(product(range(2), repeat=3)))
