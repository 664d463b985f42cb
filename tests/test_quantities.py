"""Quantities as people read them, alone and side by side."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crosstack.quantities import UNITS, compared, format_quantity


@pytest.mark.parametrize(
    ("value", "other", "unit", "words"),
    [
        (3.23515e11, 8e10, "B", ("323.5 GB", "80 GB")),
        (1.2e12, 8e10, "B", ("1,200 GB", "80 GB")),
        (64.0, 16.0, "B", ("64 B", "16 B")),
        (80.001e9, 80e9, "B", ("80.001 GB", "80 GB")),
        (80e9, 80e9, "B", ("80 GB", "80 GB")),
        (4e18, 16.0, "B", ("4 EB", "16 B")),
        (9.0, 8.0, "cores", ("9 cores", "8 cores")),
        (2.3e-3, 0.0, "W", ("2.3 mW", "0 W")),
        (533.0, 500.0, "mm2", ("533 mm2", "500 mm2")),
        (math.inf, 8e9, "B", ("inf B", "8 GB")),
    ],
)
def test_two_quantities_in_a_sentence_have_one_unit(value, other, unit, words):
    assert compared(value, other, unit) == words


@given(value=st.floats(0, 1e30), other=st.floats(0, 1e30), unit=st.sampled_from([*UNITS, "cores"]))
def test_quantities_that_differ_by_a_millionth_look_different(value, other, unit):
    words = compared(value, other, unit)
    apart = abs(value - other) > 1e-6 * max(value, other)
    assert not apart or words[0] != words[1]


def test_a_quantity_beside_another_takes_its_unit():
    assert format_quantity(1.027e12, "B", like=80e9) == "1,027 GB"
    assert format_quantity(1.027e12, "B") == "1.027 TB"
