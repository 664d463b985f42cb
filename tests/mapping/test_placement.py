import csv
import json
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.topology import Grid
from crosstack.mapping.placement import Sharing, logical_edges, place, placements
from crosstack.mapping.placement_rules import Layout, PlacementRules
from crosstack.mapping.strategy import ParallelDimension, Strategy, parse_strategy

GOLDEN = Path(__file__).resolve().parents[3] / "shared/data/deepflow/golden.jsonl"
KP1, KP2, DP, LP = ParallelDimension


def golden_rows():
    if not GOLDEN.exists():
        return [pytest.param(None, marks=pytest.mark.skip("the recorded placements are absent"))]
    rows = [json.loads(line) for line in GOLDEN.read_text().splitlines()]
    return [pytest.param(r, id=r["id"]) for r in rows if r["kind"] == "device-mapping"]


@pytest.mark.parametrize("row", golden_rows())
def test_recorded_placements_are_reproduced(row):
    given_ = row["input"]
    side, count = given_["wafer_dim"], given_["num_wafer"]
    strategy = Strategy(**{d.value: given_[d.value] for d in ParallelDimension})
    found = placements(
        strategy, Grid(package=(side, side), packages=(count, 1)), PlacementRules.deepflow()
    )
    by_degrees = {tuple(strategy.degree(d) for d in p.order): p for p in found}
    assert len(by_degrees) == len(found) == len(row["output"])
    for expected in row["output"]:
        placement = by_degrees[tuple(given_[name] for name in expected["order"])]
        sharing = Sharing(between=expected["inter_derate"], inside=expected["intra_derate"])
        assert placement.sharing == sharing
        crosses = {name for name, crossed in expected["par2cross"].items() if crossed}
        assert {d.value for d in placement.crosses} == crosses


# Worked out from the published source of the release (deepflow_code, deviceMapping.py) by a program
# of its own, which agrees with the recorded runs above; without numbers: the release stops.
RECORDED = Path(__file__).with_name("recorded_placements.csv")


def recorded_orders():
    cases = {}
    with RECORDED.open() as file:
        for row in csv.DictReader(file):
            case = row["strategy"], int(row["side"]), int(row["packages"])
            cases.setdefault(case, []).append(row)
    return cases


def placed_orders(strategy, grid):
    try:
        found = placements(strategy, grid, PlacementRules.deepflow())
    except InputError:  # no order fits
        return {}
    return {
        " ".join(d.value for d in p.order if strategy.degree(d) > 1): (
            p.sharing.between,
            p.sharing.inside,
            {d.value for d in p.crosses},
        )
        for p in found
    }


def test_every_order_shares_links_as_in_the_release():
    cases = recorded_orders()
    assert sum(len(rows) for rows in cases.values()) > 450
    wrong = []
    for (strategy, side, count), rows in cases.items():
        expected = {
            row["order"]: (int(row["between"]), int(row["inside"]), set(row["crossing"].split()))
            for row in rows
            if row["between"]
        }
        found = placed_orders(
            parse_strategy(strategy), Grid(package=(side, side), packages=(count, 1))
        )
        if found != expected:
            wrong.append((strategy, side, count, found, expected))
    assert wrong == []


def released(strategy, order, *, side=4, count=1):
    """Return the placement of one order by the rules of the release."""
    found = placements(
        parse_strategy(strategy),
        Grid(package=(side, side), packages=(count, 1)),
        PlacementRules.deepflow(),
    )
    return next(p for p in found if p.order[: len(order)] == order)


def test_the_release_lays_blocks_row_after_row_turning_back():
    placed = released("RC-1-1-d2-p8", (DP, LP)).positions[0, 0]
    assert placed[0].tolist() == [[x, 0] for x in (0, 1, 2, 3)] + [[x, 2] for x in (3, 2, 1, 0)]


def test_the_release_lays_a_long_dimension_that_is_alone_in_columns():
    placed = released("RC-1-1-d8-p1", (DP,)).positions[0, 0, :, 0]
    assert placed.tolist() == [[0, y] for y in (0, 1, 2, 3)] + [[1, y] for y in (3, 2, 1, 0)]


def test_the_release_charges_the_way_along_y_where_an_edge_starts():
    # dp 2 inside, kp1 32 in blocks of two up two rows of each of four packages. In the last column
    # of the first three: dp once on links 0 and 2, the turn of both replicas on 0, 1, 1, 2, the way
    # down to the next package, charged one link too high, on 2, 1 and 3, 2. In the last package the
    # edge that closes the rings takes links 0, 1 and 1, 2 on its way up, instead.
    placement = released("RC-32-1-d2-p1", (DP, KP1), count=4)
    along = placement.loads.counts[1][0].sum(axis=0)
    assert [along[3 + 4 * package].tolist() for package in range(4)] == [
        [2, 3, 4, 1],
        [2, 3, 4, 1],
        [2, 3, 4, 1],
        [3, 4, 3, 0],
    ]
    assert placement.sharing == Sharing(between=1, inside=4)


# What each choice of the releases changes, on a case that tells it apart.
@pytest.mark.parametrize(
    ("strategy", "side", "count", "corrected"),
    [
        ("RC-2-4-d8-p1", 4, 4, {"merges_equal_sizes": False}),
        ("RC-4-2-d2-p1", 4, 1, {"charges_next_link_downwards": False}),
        ("RC-8-4-d2-p1", 1, 64, {"skips_packages_between": False}),
        ("RC-8-8-d1-p1", 8, 1, {"directions_share": False}),
    ],
)
def test_each_choice_of_the_releases_is_a_field_of_its_own(strategy, side, count, corrected):
    grid = Grid(package=(side, side), packages=(count, 1))
    case = parse_strategy(strategy)
    release = PlacementRules.deepflow()

    def outcome(rules):
        return [(p.order, p.sharing) for p in placements(case, grid, rules)]

    if "merges_equal_sizes" in corrected:
        case = parse_strategy("RC-2-2-d2-p1")
    assert outcome(replace(release, **corrected)) != outcome(release)


def test_equal_degrees_make_distinct_orders():
    grid = Grid(package=(8, 8))
    assert len(placements(parse_strategy("RC-8-8-d1-p1"), grid)) == 2
    merged = PlacementRules.deepflow()
    assert len(placements(parse_strategy("RC-8-8-d1-p1"), grid, merged)) == 1


def test_a_given_order_is_the_one_that_is_placed():
    strategy, grid = parse_strategy("RC-4-2-d8-p1"), Grid(package=(4, 4), packages=(2, 2))
    every = {p.order[:3]: p.derates for p in placements(strategy, grid)}
    for order in ((DP, KP1, KP2), (KP2, KP1, DP)):
        (found,) = placements(strategy, grid, order=order)
        assert (found.order[:3], found.derates) == (order, every[order])


def test_a_given_order_that_does_not_fit_is_named():
    # Three stages on packages of 2 x 2: the release stops.
    with pytest.raises(InputError, match="does not fit in order lp"):
        place(
            parse_strategy("RC-1-1-d1-p3"),
            Grid(package=(2, 2)),
            PlacementRules.deepflow(),
            order=(LP,),
        )


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


def test_release_rules_place_on_square_packages_in_a_row_only():
    with pytest.raises(InputError, match="square"):
        place(parse_strategy("RC-2-2-d1-p1"), Grid(package=(2, 4)), PlacementRules.deepflow())


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


@given(
    st.builds(
        Strategy,
        kp1=st.sampled_from([1, 2, 4, 8]),
        kp2=st.sampled_from([1, 2, 4, 8]),
        dp=st.sampled_from([1, 2, 4]),
        lp=st.sampled_from([1, 2, 4]),
    ),
    st.sampled_from([(4, 1), (4, 4), (8, 1), (1, 8)]),
)
def test_factors_share_links_no_more_than_the_blocks_of_the_release(strategy, packages):
    side, count = packages
    grid = Grid(package=(side, side), packages=(count, 1))
    if strategy.n_chips > grid.n_chips:
        return
    blocks = place(strategy, grid, PlacementRules(layout=Layout.BLOCKS))
    assert place(strategy, grid).derates[:2] <= blocks.derates[:2]
