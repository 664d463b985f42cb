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
        ("400 Gb/s", "B/s", 5e10),
        ("400 Gbit/s", "B/s", 5e10),
        ("1.6 Tb/s", "B/s", 2e11),
        ("800 Mb/s", "B/s", 1e8),
        ("8 b/s", "B/s", 1.0),
        ("10 Gb/s", "bit/s", 1e10),
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
        ("300 GBps", "B/s", 'Did you mean "GB/s"?'),
        ("300 Gbps", "B/s", 'Did you mean "Gb/s"?'),
        ("300 gb/s", "B/s", 'Did you mean "GB/s" or "Gb/s"?'),
        ("300 GBit/s", "B/s", 'Did you mean "Gbit/s"?'),
        ("64 KB", "B", 'Did you mean "kB" or "KiB"?'),
        ("3 mw", "W", 'Did you mean "mW" or "MW"?'),
        ("3 ghz", "Hz", 'Did you mean "GHz"?'),
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
    ("text", "unit"),
    [
        ("80 Gb", "B"),  # bits, not bytes
        ("80 Gbit", "B"),
        ("3 mHz", "Hz"),  # thousandths, not millions
        ("3 mhz", "Hz"),
        ("3 MS", "s"),
        ("5 um", "m"),
        ("5 cm", "m"),
        ("900 kV", "V"),
        ("2 milliseconds", "s"),
        ("2 USD/(Gb/s)", "USD/(B/s)"),
        ("2 USD/(Gbps)", "USD/(B/s)"),
        ("2 W/(kB/s)", "W/(B/s)"),
        ("2 USD/MB", "USD/B"),
    ],
)
def test_no_hint_changes_a_value(text, unit):
    with pytest.raises(InputError) as caught:
        parse_quantity(text, unit)
    assert "Did you mean" not in str(caught.value)


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


@pytest.mark.parametrize(
    ("count", "words"), [(131_072, "131,072"), (131_072.0, "131,072"), (-15_625, "-15,625"),
                         (1024, "1024"), (131_072.5, "131,100"), (0.12345, "0.1235")],
)  # fmt: skip
def test_a_count_keeps_every_digit(count, words):
    assert format_quantity(count, "1") == words
