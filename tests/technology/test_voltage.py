"""Claims about voltage, rate and power."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.technology.voltage import (
    RateBound,
    Supply,
    operating_point,
    relative_power,
    relative_rate,
    voltage_for_power,
    voltage_for_rate,
)

LOGIC = Supply(nominal=0.8, threshold=0.2, minimum=0.55)
MEMORY = Supply(nominal=1.2, threshold=0.4, minimum=1.0, maximum=1.8)
POWERS = st.floats(1e-12, 1e6)


@st.composite
def supplies(draw):
    threshold = draw(st.floats(0, 1))
    nominal = threshold + draw(st.floats(0.01, 2))
    minimum = threshold + draw(st.floats(0.01, 1))
    return Supply(nominal=nominal, threshold=threshold, minimum=minimum)


def test_at_nominal_power_a_circuit_runs_at_nominal():
    point = operating_point(1.0, LOGIC)
    assert float(point.voltage) == pytest.approx(0.8, rel=1e-15)
    assert float(point.rate) == pytest.approx(1.0, rel=1e-14)
    assert RateBound(int(point.bound)) is RateBound.POWER


def test_rate_and_power_by_hand():
    # (1.0 - 0.2)^2 / 1.0 = 0.64; (0.8 - 0.2)^2 / 0.8 = 0.45
    assert float(relative_rate(1.0, LOGIC)) == pytest.approx(0.64 / 0.45, rel=1e-14)
    assert float(relative_power(1.0, LOGIC)) == pytest.approx(0.64 / 0.45 / 0.64, rel=1e-14)


@given(supplies(), POWERS)
def test_the_voltage_found_takes_the_power_that_was_given(supply, power):
    voltage = voltage_for_power(power, supply)
    # The voltage keeps its digits, the excess over the threshold loses those it shares with it.
    excess = float(voltage) - supply.threshold
    lost = 2 * np.spacing(float(voltage)) / excess if excess else 1.0
    assert float(relative_power(voltage, supply)) == pytest.approx(power, rel=1e-12 + 4 * lost)


@given(supplies(), st.floats(1e-9, 1e6))
def test_the_voltage_for_a_rate_allows_it(supply, rate):
    voltage = voltage_for_rate(rate, supply)
    excess = float(voltage) - supply.threshold
    lost = 2 * np.spacing(float(voltage)) / excess
    assert float(relative_rate(voltage, supply)) == pytest.approx(rate, rel=1e-12 + 4 * lost)


@given(supplies(), POWERS, POWERS)
def test_more_power_never_slows_a_circuit(supply, a, b):
    rates = operating_point(np.array([min(a, b), max(a, b)]), supply).rate
    assert rates[0] <= rates[1] * (1 + 1e-12)


@given(supplies(), POWERS)
def test_a_circuit_without_maximum_spends_its_power_exactly(supply, power):
    point = operating_point(power, supply)
    excess = float(point.free) - supply.threshold
    lost = 2 * np.spacing(float(point.free)) / excess if excess else 1.0
    assert float(point.power) == pytest.approx(power, rel=1e-12 + 4 * lost)


def test_below_the_minimum_the_clock_is_held_back():
    point = operating_point(0.01, LOGIC)
    assert (float(point.voltage), RateBound(int(point.bound))) == (0.55, RateBound.MINIMUM_VOLTAGE)
    assert float(point.rate) < float(relative_rate(0.55, LOGIC))


def test_above_the_maximum_power_is_left():
    point = operating_point(100.0, MEMORY)
    assert (float(point.voltage), RateBound(int(point.bound))) == (1.8, RateBound.MAXIMUM_VOLTAGE)
    assert float(point.power) == pytest.approx(float(relative_power(1.8, MEMORY)), rel=1e-14)


def test_without_power_nothing_moves():
    point = operating_point(0.0, LOGIC)
    assert (float(point.rate), float(point.power)) == (0.0, 0.0)


@given(supplies(), st.lists(POWERS, min_size=1, max_size=5))
def test_many_are_solved_as_one(supply, powers):
    together = operating_point(np.array(powers), supply)
    alone = [float(operating_point(power, supply).rate) for power in powers]
    np.testing.assert_allclose(together.rate, alone, rtol=1e-12)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"nominal": 0.3}, "nominal"),
        ({"minimum": 0.4}, "minimum"),
        ({"maximum": 0.9}, "maximum"),
        ({"threshold": -1.0}, "threshold"),
    ],
)
def test_voltages_out_of_order_are_refused(changes, field):
    values = {"nominal": 1.2, "threshold": 0.4, "minimum": 1.0, "maximum": 1.8} | changes
    with pytest.raises(InputError, match=f"^{field}: "):
        Supply(**values)
