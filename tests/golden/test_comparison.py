"""Frozen rows: what is written is read again, and what differs is named."""

from __future__ import annotations

import json
import math

import pytest

FAMILY = "products"  # any that there is


@pytest.fixture
def kept(golden, row, tmp_path):
    """Return one who compares with a file of two rows."""
    writer = type(golden)(tmp_path, update=True)
    writer.check(FAMILY, "second", [row(name="b", rules="", values={"time": 0.1, "bound": "L2"})])
    writer.check(FAMILY, "first", [row(name="a", rules="r", values={"time": 0.3, "none": None})])
    return type(golden)(tmp_path, update=False)


def test_what_is_written_holds_sorted_a_row_a_line(kept):
    text = (kept.folder / f"{FAMILY}.json").read_text()
    assert [row["case"] for row in json.loads(text)["rows"]] == ["first", "second"]
    assert text.splitlines()[3].startswith('{"case": "first", "name": "a"')
    assert (0.1).hex() in text
    kept.check_cases(FAMILY, ["second", "first"])


@pytest.mark.parametrize("by", [0.0, 5e-10, -5e-10])
def test_rounding_is_no_difference(by, kept, row):
    values = {"time": 0.1 * (1 + by), "bound": "L2"}
    kept.check(FAMILY, "second", [row(name="b", rules="", values=values)])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"time": 0.1 * (1 + 2e-9), "bound": "L2"}, "time: was 0.1, is 0.1000000002"),
        ({"time": math.nan, "bound": "L2"}, "time: was 0.1, is nan"),
        ({"time": 0.0, "bound": "L2"}, "time: was 0.1, is 0.0"),
        ({"time": 0.1, "bound": "L1"}, "bound: was 'L2', is 'L1'"),
        ({"time": 0.1}, "bound: gone"),
        ({"time": 0.1, "bound": "L2", "more": 1}, "more: new"),
    ],
)
def test_a_difference_is_named(values, said, kept, row):
    with pytest.raises(AssertionError, match=said.replace(".", r"\.")):
        kept.check(FAMILY, "second", [row(name="b", rules="", values=values)])


def test_rows_that_are_gone_or_new_are_named(kept, row):
    with pytest.raises(AssertionError, match=r"b \[\]: gone\n +c \[\]: new"):
        kept.check(FAMILY, "second", [row(name="c", rules="", values={})])


def test_a_case_that_nothing_computes_is_noticed_and_dropped_when_written(kept, golden):
    with pytest.raises(AssertionError):
        kept.check_cases(FAMILY, ["first"])
    type(golden)(kept.folder, update=True).check_cases(FAMILY, ["first"])
    kept.check_cases(FAMILY, ["first"])
