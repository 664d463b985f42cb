from __future__ import annotations

import numpy as np
import pytest

from crosstack.errors import InputError
from crosstack.explore.sobol import MOST_DIMENSIONS, sobol

# First points of dimensions 1 to 3 in the order of the Gray code (bratley1988sobol).
FIRST = [
    (0.0, 0.0, 0.0),
    (0.5, 0.5, 0.5),
    (0.75, 0.25, 0.25),
    (0.25, 0.75, 0.75),
    (0.375, 0.375, 0.625),
    (0.875, 0.875, 0.125),
]


def test_the_sequence_begins_as_published():
    assert sobol(6, 3).tolist() == [list(point) for point in FIRST]


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("power", [1, 5, 10])
def test_every_dimension_has_one_point_in_each_of_2_to_the_k_intervals(seed, power):
    count = 2**power
    cells = np.floor(sobol(count, MOST_DIMENSIONS, seed=seed) * count).astype(int)
    assert (np.sort(cells, axis=0) == np.arange(count)[:, None]).all()


def test_no_two_dimensions_are_alike():
    points = sobol(256, MOST_DIMENSIONS)
    assert len({tuple(column) for column in points.T.tolist()}) == MOST_DIMENSIONS


def test_two_dimensions_fill_every_elementary_box():
    points = sobol(64, 2)  # a (0, 6, 2)-net in base 2
    for rows in range(7):
        sides = np.array([2**rows, 2 ** (6 - rows)])
        boxes = np.floor(points * sides).astype(int)
        assert len(np.unique(boxes, axis=0)) == 64


def test_a_mean_is_ten_times_closer_than_that_of_random_points():
    # The product of six uniform numbers has mean 2^-6; of 4096 random ones the standard error
    # is sqrt((4/3)^6 - 1) / 64 of it.
    found = (sobol(4096, 6).prod(axis=1) * 2**6).mean()
    assert abs(found - 1) < 0.1 * ((4 / 3) ** 6 - 1) ** 0.5 / 64


def test_seeds_differ_and_repeat():
    assert (sobol(8, 2, seed=1) == sobol(8, 2, seed=1)).all()
    assert (sobol(8, 2, seed=1) != sobol(8, 2, seed=2)).any()


def test_more_dimensions_than_there_are_are_refused():
    with pytest.raises(InputError, match="1 to 21"):
        sobol(4, 22)
