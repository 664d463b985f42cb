import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.machine.network import DimensionKind, NetworkLevel, parse_levels
from crosstack.machine.topology import Grid, link_loads


def loads(grid, *edges):
    starts = np.array([[start for start, _ in edges]])
    ends = np.array([[end for _, end in edges]])
    return link_loads(grid, starts, ends)


def test_a_grid_counts_chips_over_all_packages():
    grid = Grid(package=(4, 2), packages=(3, 1))
    assert (grid.shape, grid.n_chips, grid.n_packages) == ((12, 2), 24, 3)


def test_one_package_is_assumed():
    assert Grid(package=(4, 2)).packages == (1, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"package": ()},
        {"package": (2, 2, 2, 2)},
        {"package": (0, 2)},
        {"package": (2, 2), "packages": (2,)},
        {"package": (2**11, 2**11)},
    ],
)
def test_a_grid_that_cannot_be_is_refused(wrong):
    with pytest.raises(InputError):
        Grid(**wrong)


def test_a_route_goes_along_x_then_along_y():
    found = loads(Grid(package=(3, 3)), ((0, 0), (2, 1)))
    assert found.counts[0][0, 0].tolist() == [[1, 0, 0], [1, 0, 0], [0, 0, 0]]
    assert found.counts[1][0, 0].tolist() == [[0, 0, 0], [0, 0, 0], [1, 0, 0]]


def test_a_move_down_is_charged_to_the_link_below():
    found = loads(Grid(package=(1, 3)), ((0, 2), (0, 1)))
    assert found.counts[1][0, 1].tolist() == [[0, 1, 0]]


def test_a_ring_on_a_line_loads_each_direction_once():
    grid = Grid(package=(4,))
    ring = [((i,), ((i + 1) % 4,)) for i in range(4)]
    assert loads(grid, *ring).largest(between=False).tolist() == [1]
    both = loads(grid, *ring).counts[0].sum(axis=1)
    assert both.max() == 2


def test_a_ring_on_a_torus_needs_no_link_twice():
    grid = Grid(package=(4,), torus=True)
    ring = [((i,), ((i + 1) % 4,)) for i in range(4)]
    both = loads(grid, *ring).counts[0].sum(axis=1)
    assert both.max() == 1


def test_links_between_packages_are_told_apart():
    found = loads(Grid(package=(2,), packages=(2,)), ((0,), (3,)), ((1,), (2,)))
    assert found.largest(between=True).tolist() == [2]
    assert found.largest(between=False).tolist() == [1]


@st.composite
def routes(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    chip = st.tuples(*(st.integers(0, size - 1) for size in shape))
    edges = draw(st.lists(st.tuples(chip, chip), min_size=1, max_size=8))
    return shape, draw(st.booleans()), edges


@given(routes())
def test_every_route_is_as_long_as_the_distance(case):
    shape, torus, edges = case
    found = loads(Grid(package=shape, torus=torus), *edges)
    total = sum(int(counts.sum()) for counts in found.counts)
    expected = 0
    for start, end in edges:
        for a, b, size in zip(start, end, shape, strict=True):
            expected += min(abs(a - b), size - abs(a - b)) if torus else abs(a - b)
    assert total == expected
    assert all((counts >= 0).all() for counts in found.counts)


def level(text):
    return parse_levels(text)[0]


# By hand: links of any chip of eight; a ring of two has one each way round.
@pytest.mark.parametrize(
    ("text", "links"),
    [
        ("ring", 2),
        ("switch", 1),
        ("fully_connected", 7),
        ("mesh:8", 2),
        ("mesh:4x2", 3),
        ("torus:4x2", 4),
        ("torus:2x2x2", 6),
        ("fat_tree:2", 1),
        ("rail_only", 1),
    ],
)
def test_a_chip_has_the_links_of_its_topology(text, links):
    assert level(text).links(8) == links
    assert level(text.partition(":")[0]).links(1) == 1


def test_an_oversubscription_stands_behind_the_kind():
    found = level("fat_tree:2.5")
    assert (found.kind, found.oversubscription) == (DimensionKind.FAT_TREE, 2.5)
    with pytest.raises(InputError, match="oversubscription: got 'half'; allowed: a number"):
        level("dragonfly:half")


@pytest.mark.parametrize(("size", "axes"), [(8, (4, 2)), (16, (4, 4)), (7, (7, 1)), (12, (4, 3))])
def test_without_a_shape_a_mesh_is_as_near_to_a_square_as_it_can_be(size, axes):
    assert level("mesh").axes(size) == axes


def test_two_levels_are_read():
    assert parse_levels("torus:4x4,switch") == (
        NetworkLevel(kind=DimensionKind.TORUS, shape=(4, 4)),
        NetworkLevel(kind=DimensionKind.SWITCH),
    )
    assert parse_levels("mesh")[1] is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("mush", 'Did you mean "mesh"'),
        ("ring:4", "mesh or torus, not of ring"),
        ("mesh:4y4", "whole numbers joined by x"),
        ("mesh:2x2x2x2", "1 to 3 axes"),
        ("ring,ring,ring", "one level or two"),
    ],
)
def test_a_wrong_topology_is_refused(text, says):
    with pytest.raises(InputError, match=says):
        parse_levels(text)


def test_a_shape_of_another_number_of_chips_is_refused():
    with pytest.raises(InputError, match="a shape of 8 chips"):
        level("mesh:4x4").axes(8)
