from __future__ import annotations

import csv
import io

import pytest

from crosstack.io.csv_text import csv_text


def read(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text, newline="")))


@pytest.mark.parametrize("cell", ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1"])
def test_what_a_spreadsheet_would_compute_is_text(cell):
    assert read(csv_text(["name", cell], [[cell, 1]])) == [["name", f"'{cell}"], [f"'{cell}", "1"]]


@pytest.mark.parametrize("value", [-1.5, -3, 0.1 + 0.2, "-1.5", "+2", "-inf"])
def test_negative_numbers_stay_numbers(value):
    ((cell,),) = read(csv_text(["x"], [[value]]))[1:]
    assert float(cell) == float(value)


def test_a_carriage_return_begins_no_row():
    assert read(csv_text(["x"], [["\r=1"], ["a\r=1"]])) == [["x"], ["'\n=1"], ["a\n=1"]]


def test_other_text_is_as_it_was():
    row = ["a,b", 'a "b"', "two\nlines", "", "N5"]
    assert read(csv_text(list("abcde"), [row]))[1] == row
