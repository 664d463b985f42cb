"""Claims about dies, their yield and their price."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InfeasibleError, InputError
from crosstack.io.technology import shipped
from crosstack.technology.wafers import Wafer, YieldModel, die_yield

PLAIN = {"edge": 0.0, "scribe": 0.0}


@pytest.mark.parametrize("model", YieldModel)
def test_a_die_without_defects_always_works(model):
    assert die_yield(0.0, model) == 1


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (YieldModel.POISSON, math.exp(-1)),
        (YieldModel.MURPHY, (1 - math.exp(-1)) ** 2),
        (YieldModel.SEEDS, 0.5),
        (YieldModel.NEGATIVE_BINOMIAL, 1.5**-2),
    ],
)
def test_one_defect_a_die(model, expected):
    assert die_yield(1.0, model, clustering=2) == pytest.approx(expected, rel=1e-12)


@given(st.floats(1e-3, 20))
def test_clusters_lie_between_seeds_and_poisson(defects):
    seeds, poisson = (die_yield(defects, m) for m in (YieldModel.SEEDS, YieldModel.POISSON))
    assert die_yield(defects, clustering=1) == pytest.approx(seeds, rel=1e-12)
    assert die_yield(defects, clustering=1e7) == pytest.approx(poisson, rel=1e-4)
    assert poisson < die_yield(defects) < seeds
    assert poisson < die_yield(defects, YieldModel.MURPHY) < seeds


def test_dies_on_a_wafer():
    # pi 300^2 / 400 - pi 300 / sqrt(200) = 706.86 - 66.64 dies of 100 mm2.
    wafer = Wafer(price=1.0, defect_density=0.0, **PLAIN)
    assert wafer.dies(100e-6) == pytest.approx(640.22, abs=0.01)


def test_the_published_dies_and_price_of_a_chip_in_n5():
    # khan2020aichips has 238 USD for 610 mm2, with a yield that it does not print: between that of
    # a wafer without defects and ours.
    node = shipped().nodes()["N5"]
    wafer = Wafer(price=node.wafer_price, defect_density=node.defect_density)
    assert wafer.yield_of(610e-6) == pytest.approx((1 + 0.11 * 6.1 / 10) ** -10, rel=1e-12)
    assert node.wafer_price / wafer.dies(610e-6) < 238 < wafer.die_price(610e-6)


@given(st.floats(20e-6, 800e-6), st.floats(1.01, 2))
def test_a_larger_die_costs_more_than_in_proportion(area, factor):
    wafer = Wafer(price=1000.0, defect_density=1000.0)
    small, large = wafer.die_price(np.array([area, area * factor]))
    assert large > small * factor * 0.97  # narrower scribe lines make up for a little


def test_a_die_that_no_wafer_gives_is_infeasible():
    with pytest.raises(InfeasibleError, match="working dies"):
        Wafer(price=1.0, defect_density=0.0).die_price(0.08)
    with pytest.raises(InfeasibleError, match="working dies"):
        Wafer(price=1.0, defect_density=1e5).die_price(800e-6)


@pytest.mark.parametrize(
    "field", [{"price": 0}, {"defect_density": -1}, {"edge": 0.2}, {"clustering": 0}]
)
def test_a_wafer_that_cannot_be_is_refused(field):
    with pytest.raises(InputError):
        Wafer(**({"price": 1.0, "defect_density": 0.0} | field))


def test_every_node_has_a_price_and_defects():
    prices = [node.wafer_price for node in shipped().nodes().values()]
    assert None not in prices
    assert prices == sorted(prices)
    assert all(node.defect_density > 0 for node in shipped().nodes().values())
