"""Tables on terminals of any width: folded, never cut."""

from __future__ import annotations

import pytest

from crosstack.report.text import plain_text, rows_table
from crosstack.report.wording import Table

TABLE = Table(
    header=("choice", "best", "before its search", "no design beats", "what became of it"),
    numeric=(False, True, True, True, False),
    rows=(
        ("node=N12, strategy=RC-1-4-d16-p1", "36.65 ms", "41.46 ms", "19.14 ms", "searched"),
        ("node=N7, strategy=CR-4-d4-p4", "25.37 ms", "28.38 ms", "15.12 ms", "impossible"),
    ),
)


def letters(text: str) -> list[str]:
    return sorted("".join(text.replace("─", "").split()))


@pytest.mark.parametrize("width", [20, 40, 60, 70, 80, 100, 140])
def test_no_letter_of_a_table_is_lost_at_any_width(width):
    wanted = letters("".join(map("".join, (TABLE.header, *TABLE.rows))))
    assert letters(plain_text(rows_table(TABLE), width)) == wanted


@pytest.mark.parametrize("width", [60, 70, 80, 100])
def test_numbers_stay_whole_and_lines_fit(width):
    text = plain_text(rows_table(TABLE), width)
    assert max(map(len, text.splitlines())) <= width
    for row in TABLE.rows:
        assert all(number in text for number in row[1:4])


def test_heads_are_folded_before_names_are():
    text = plain_text(rows_table(TABLE), 80)
    assert all(row[0] in text for row in TABLE.rows)
    assert "before its search" not in text


def test_where_numbers_alone_are_too_wide_lines_are_long():
    table = Table(header=("a", "b"), numeric=(True, True), rows=(("1" * 30, "2" * 30),))
    text = plain_text(rows_table(table), 40)
    assert "1" * 30 in text
    assert "2" * 30 in text
