"""The tables of the page on machines are those of the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from crosstack.report.library_text import chip_table, node_table
from crosstack.report.wording import Table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "machines.md").read_text()


def rows_of(heading: str) -> list[tuple[str, ...]]:
    """Return the rows of the table below a heading, its header first."""
    text = re.split(r"^## ", PAGE.partition(f"\n## {heading}\n")[2], flags=re.MULTILINE)[0]
    lines = [line for line in text.splitlines() if line.startswith("|") and "---" not in line]
    return [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines]


@pytest.mark.parametrize(("heading", "table"), [("Chips", chip_table()), ("Nodes", node_table())])
def test_a_table_is_what_the_library_holds(heading: str, table: Table):
    assert rows_of(heading) == [table.header, *table.rows]
