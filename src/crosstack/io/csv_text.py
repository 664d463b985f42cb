"""Comma-separated values that a spreadsheet takes for values, whatever a name begins with."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What a cell begins with that a spreadsheet computes (OWASP, *CSV injection*)."""


def csv_text(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a line of names, then a line a row; None is empty, numbers keep every bit.

    Text that a spreadsheet would compute gets an apostrophe before it; a number written as text
    stays as it is.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, header))
    writer.writerows(map(_cell, row) for row in rows)
    return text.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    line = value.replace("\r", "\n")  # which is quoted; a carriage return is not, and ends a row
    if not value.startswith(FORMULAS):
        return line
    try:
        float(value)
    except ValueError:
        return f"'{line}"
    return line
