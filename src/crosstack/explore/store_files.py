"""The files of a store: journals of finished rows, and parts; what is sound in each."""

from __future__ import annotations

import json
import re
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstack.explore.layout import Layout, arrow

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DamageError", "Row", "journal_line", "once", "read_journal", "read_part", "several"]

KEY = "[0-9a-f]{32}"
Row = dict[str, Any]


class DamageError(Exception):
    """What is wrong with a piece of a store."""


def journal_line(row: Row) -> str:
    """Return the line of a row in a journal: JSON, a tab, and its checksum."""
    text = json.dumps(row)
    return f"{text}\t{zlib.crc32(text.encode()):08x}\n"


def read_journal(journal: Path, layout: Layout) -> tuple[list[Row], int]:
    """Return the rows of a journal, and how many lines are none; a line cut off is neither."""
    kinds = {name: str if unit is None else (int, float) for name, unit in layout.columns}
    rows, damaged = [], 0
    for line in journal.read_bytes().split(b"\n")[:-1]:
        row = _row(line)
        if row is not None and _fits(row, kinds):
            rows.append(row)
        else:
            damaged += 1
    return rows, damaged


def _row(line: bytes) -> Row | None:
    text, _, check = line.rpartition(b"\t")
    if check != f"{zlib.crc32(text):08x}".encode():
        return None
    try:
        row = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def _fits(row: Row, kinds: dict[str, Any]) -> bool:
    """Whether a row has a key and a status, and values of the kind of their columns."""
    good = re.fullmatch(KEY, str(row.get("key"))) and isinstance(row.get("status"), str)
    return bool(good) and all(
        name in kinds and (value is None or isinstance(value, kinds[name]))
        for name, value in row.items()
    )


def several(count: int, what: str) -> str:
    """Return how many pieces are damaged, in words."""
    return f"{count:,} damaged {what}{'' if count == 1 else 's'}"


def read_part(part: Path, layout: Layout) -> tuple[pyarrow.Table, int]:
    """Return the rows of a part that have a key and a status, and how many have not.

    Raises
    ------
    OSError
        If the file cannot be read at all.
    DamageError
        If it is no Parquet, fails its checksums, or has other columns.
    """
    pa = arrow()
    content = part.read_bytes()
    try:
        source = pa.BufferReader(content)
        table = pa.parquet.ParquetFile(source, page_checksum_verification=True).read()
        table.validate(full=True)
        columns = Layout.of_schema(table.schema)
    except Exception as error:  # whatever the reader says of these bytes, they are no part
        words = " ".join(str(error).split())[:120]
        raise DamageError(f"is damaged ({words})") from None
    if columns != layout:
        raise DamageError("is foreign: its columns are not those of the store")
    table = pa.Table.from_arrays(table.columns, schema=layout.schema())
    compute = pa.compute
    keyed = compute.match_substring_regex(table.column("key"), f"^{KEY}$")
    good = compute.and_(compute.fill_null(keyed, False), table.column("status").is_valid())
    damaged = table.num_rows - int(compute.sum(good).as_py() or 0)
    return (table.filter(good) if damaged else table), damaged


def once(table: pyarrow.Table) -> pyarrow.Table:
    """Return rows without those whose point has one already, as in a copy of a part."""
    pa = arrow()
    keys = table.column("key")
    if pa.compute.count_distinct(keys).as_py() == len(keys):
        return table
    first = {key: i for i, key in reversed(list(enumerate(keys.to_pylist())))}
    return table.take(pa.array(sorted(first.values()), pa.int64()))
