"""Placements of the releases, recorded and by hand."""

import csv
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.topology import Grid
from crosstack.mapping.placement import Sharing, place, placements
from crosstack.mapping.placement_rules import PlacementRules
from crosstack.mapping.strategy import ParallelDimension, Strategy, parse_strategy
from crosstack.published.deepflow.placement import BlockPlacement

GOLDEN = Path(__file__).resolve().parents[4] / "shared/data/deepflow/golden.jsonl"
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
    found = placements(strategy, Grid(package=(side, side), packages=(count, 1)), BlockPlacement())
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
        found = placements(strategy, grid, BlockPlacement())
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
        BlockPlacement(),
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


def test_a_given_order_that_does_not_fit_is_named():
    # Three stages on packages of 2 x 2: the release stops.
    with pytest.raises(InputError, match="does not fit in order lp"):
        place(
            parse_strategy("RC-1-1-d1-p3"),
            Grid(package=(2, 2)),
            BlockPlacement(),
            order=(LP,),
        )


def test_release_rules_place_on_square_packages_in_a_row_only():
    with pytest.raises(InputError, match="square"):
        place(parse_strategy("RC-2-2-d1-p1"), Grid(package=(2, 4)), BlockPlacement())


def test_orders_of_equal_degrees_are_one():
    grid = Grid(package=(8, 8))
    assert len(placements(parse_strategy("RC-8-8-d1-p1"), grid, BlockPlacement())) == 1


class Blocks(BlockPlacement):
    """The layouts of the release, with every link on the way and each direction on its own."""

    ring_of_two_has_two_edges = True
    loads = PlacementRules.loads


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
    blocks = place(strategy, grid, Blocks())
    assert place(strategy, grid).derates[:2] <= blocks.derates[:2]
