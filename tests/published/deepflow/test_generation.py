"""Claims about what the releases of the chip generator do otherwise."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.io.chip_file import read_chip
from crosstack.machine.generate.generated import generate
from crosstack.machine.generate.generation import Generation
from crosstack.published.deepflow.generation import (
    GENERATION_2021,
    GENERATION_2025,
    ReleaseGeneration,
)
from crosstack.technology.voltage import Supply, operating_point, relative_rate

LOGIC = Supply(nominal=0.8, threshold=0.3, minimum=0.55)
NOTHING_DIFFERENT = ReleaseGeneration(
    checks_budgets=True,
    loose_units=False,
    stacks_need_edge=True,
    crossbar_by_scope=True,
    given_clock_sets_voltage=True,
    intra_neighbours=0,
    eigenvalue=False,
)


def test_the_release_of_2025_overdraws_the_power_at_the_minimum_voltage():
    point = GENERATION_2025.point(np.asarray(0.01), LOGIC)
    free = float(point.free)
    over = float(relative_rate(0.55, LOGIC)) / float(relative_rate(free, LOGIC))
    assert over > 1
    assert float(point.power) == pytest.approx(0.01 * over, rel=1e-6)


def test_links_of_the_release_of_2025_keep_to_their_power():
    assert float(GENERATION_2025.link_point(np.asarray(0.01), LOGIC).power) == pytest.approx(0.01)


def test_without_power_the_public_tool_reports_rounding_noise():
    # deepflow_code, waferscale_20v100_80hbm.yaml: a link budget of 0 W.
    supply = Supply(nominal=1.2, threshold=0.35, minimum=0.85)
    free = GENERATION_2021.link_point(np.asarray(0.0), supply).free
    assert float(free) == 0.3499999954679887


@given(
    st.floats(0.05, 0.6),
    st.floats(0.01, 0.3),
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=5),
)
def test_both_ways_to_solve_agree_where_there_is_power(threshold, above, powers):
    supply = Supply(nominal=threshold + 0.5, threshold=threshold, minimum=threshold + above)
    found = operating_point(np.array(powers), supply)
    public = GENERATION_2021.point(np.array(powers), supply)
    np.testing.assert_allclose(found.free, public.free, rtol=1e-6)


@pytest.mark.parametrize("changes", [(), ("frequency=1.2 GHz",), ("shares.power.compute=0.02",)])
def test_a_release_in_which_nothing_is_different_makes_the_chips_of_the_default(changes):
    path = "examples/chips/n5_hbm3.yaml"
    with open(path) as file:
        described = read_chip(file.read(), path, changes)
    found, wanted = (
        generate(described.template, described.budget, part)
        for part in (NOTHING_DIFFERENT, Generation())
    )
    assert found == wanted
