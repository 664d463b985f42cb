"""Claims about quantities with units."""

import math
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.errors import InputError
from crosstack.units import UNITS, format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("300 GB/s", "B/s", 3e11),
        ("300GB/s", "B/s", 3e11),
        ("640 MiB", "B", 671088640.0),
        ("1 GB", "B", 1e9),
        ("1 GiB", "B", 2.0**30),
        ("1.25 GHz", "Hz", 1.25e9),
        ("150 ns", "s", 1.5e-7),
        ("445 W", "W", 445.0),
        ("2 USD/(GB/s)", "USD/(B/s)", 2e-9),
        ("0.052 W/(GB/s)", "W/(B/s)", 5.2e-11),
        ("1 TFLOP/s", "FLOP/s", 1e12),
        ("90 %", "1", 0.9),
        ("1e9", "B", 1e9),
        (" -3e2 B ", "B", -300.0),
        (7, "s", 7.0),
        (0.5, "1", 0.5),
    ],
)
def test_a_quantity_is_read_in_si(text, unit, value):
    assert parse_quantity(text, unit) == value


@pytest.mark.parametrize(
    ("value", "unit", "says"),
    [
        ("300 Gb/s", "B/s", 'Did you mean "GB/s"?'),
        ("300 gb/s", "B/s", 'Did you mean "GB/s"?'),
        ("3 mw", "W", 'Did you mean "mW"?'),
        ("3 GB", "s", "allowed units: s, ms, us"),
        ("fast", "B/s", "a finite number [B/s]"),
        ("", "B", "a finite number [B]"),
        (math.nan, "B", "got nan"),
        (math.inf, "B", "got inf"),
        ("1e400", "B", "got '1e400'"),
        (10**400, "B", "got a huge number"),
        (True, "B", "got True"),
        (None, "B", "got None"),
        ([1], "B", "got [1]"),
        ("9" * 5000 + " B", "B", "a finite number"),
    ],
)
def test_what_is_not_a_quantity_is_refused(value, unit, says):
    with pytest.raises(InputError) as caught:
        parse_quantity(value, unit)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (3e11, "B/s", "300 GB/s"),
        (999.99e9, "B/s", "1 TB/s"),
        (2e-9, "USD/(B/s)", "2 USD/(GB/s)"),
        (5.2e-11, "W/(B/s)", "0.052 W/(GB/s)"),
        (1.5e-7, "s", "150 ns"),
        (78.994771, "s", "78.99 s"),
        (0, "s", "0 s"),
        (-3e9, "B", "-3 GB"),
        (17757184, "USD", "17,760,000 USD"),
        (0.77481, "1", "0.7748"),
        (math.inf, "s", "inf s"),
    ],
)
def test_a_quantity_is_written_as_people_do(value, unit, text):
    assert format_quantity(value, unit) == text


@given(
    st.sampled_from(sorted(UNITS)),
    st.floats(min_value=1e-9, max_value=1e18, allow_nan=False),
)
def test_what_is_written_can_be_read_back(unit, value):
    text = format_quantity(value, unit, digits=17).replace(",", "")
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-12)


@given(st.sampled_from(sorted(UNITS)), st.text(max_size=30))
def test_no_text_does_worse_than_an_input_error(unit, text):
    with suppress(InputError):
        assert math.isfinite(parse_quantity(text, unit))
