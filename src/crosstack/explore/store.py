"""The store of a sweep: a database that only ever gets more, safe against any end.

A store is a directory with ``store.sqlite`` (the standard library's SQLite):

- ``layout``: name and unit of every column, the same for all rows;
- ``answers``: finished rows as they came, with their keys and a checksum: those of searches as
  JSON, those that were answered as arrays as Parquet;
- ``claims``: keys of the points that a running sweep works on;
- ``studies``: what was asked, the last one last.

A running sweep holds a lock on a file of its own beside it, which the operating system drops when
it ends: claims without a lock are void. A row counts once its transaction is on the disk, so a
process may be killed between any two instructions.

An answer whose checksum is wrong is named in `Store.damage`, and all other rows are given. Who only
reads leaves it where it is, and needs no leave to write; a sweep deletes it and answers its points
again.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstack.errors import InputError, Problem
from crosstack.explore.keys import KEY_BYTES, Keys, hex_keys
from crosstack.explore.layout import Layout, arrow, columns_as

if TYPE_CHECKING:
    import pyarrow

__all__ = ["DATABASE", "Row", "Store", "checksum", "is_sound"]

Row = dict[str, Any]
FORMAT = 2
DATABASE = "store.sqlite"
OURS = re.compile(r"store\.sqlite(-journal)?|[0-9a-f]{12}\.sweep")
ANSWERS = "select number, keys, rows, checksum from answers"
PATIENCE = 600.0  # for another sweep's transaction [s]
TABLES = (
    "create table layout (columns blob, checksum integer)",
    "create table answers (number integer primary key autoincrement, sweep text, keys blob, "
    "rows blob, checksum integer)",
    "create table claims (sweep text, keys blob)",
    "create table studies (asked blob primary key, checksum integer)",
)


class Store:
    """A directory of results; see the module.

    ``damage``: what is wrong with pieces that were met so far, by their place in the store.
    """

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout
        self.damage: dict[str, str] = {}

    @classmethod
    def create(cls, path: str | Path, layout: Layout) -> Store:
        """Return the store at a path, made if need be.

        Raises
        ------
        InputError
            If there is something else, a store with other columns, or it cannot be written.
        """
        folder = Path(path)
        arrow()
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if not all(OURS.fullmatch(name) for name in os.listdir(folder)):
                message = "is a directory with something else; allowed: a new or empty one."
                raise InputError(Problem(str(path), message))
        except OSError as error:
            message = f"cannot be written: {error.strerror or error}."
            raise InputError(Problem(str(path), message)) from None
        found = cls(folder, layout)
        with found.database(write=True) as db:
            if not db.execute("select * from sqlite_master").fetchall():
                for table in TABLES:
                    db.execute(table)
                db.execute(f"pragma user_version = {FORMAT}")
                columns = json.dumps(layout.columns).encode()
                db.execute("insert into layout values (?, ?)", (columns, checksum(columns)))
            found.layout = found._layout_in(db)
        if found.layout != layout:
            there, here = dict(found.layout.columns), dict(layout.columns)
            extra = [name for name in there if there[name] != here.get(name, "")]
            missing = [name for name in here if here[name] != there.get(name, "")]
            message = (
                "is a store with other columns; allowed: another --store for another study. "
                f"Only there: {', '.join(extra) or 'none'}; only here: "
                f"{', '.join(missing) or 'none'}."
            )
            raise InputError(Problem(str(path), message))
        return found

    @classmethod
    def fresh(cls, path: str | Path, layout: Layout, *, resume: bool) -> Store:
        """Return the store at a path, made if need be; one with rows only where it is resumed.

        Raises
        ------
        InputError
            As `create`, or if there are rows.
        """
        store = cls.create(path, layout)
        if not resume and (count := store.count()):
            message = f"holds {count:,} points already; resume (--resume) goes on with them."
            raise InputError(Problem(str(path), message))
        with store.database(write=True) as db:
            damaged = [n for n, *answer in db.execute(ANSWERS) if not is_sound(*answer)]
            for number in damaged:
                store.damage[f"answer {number}"] = "was damaged; its points are answered again"
                db.execute("delete from answers where number = ?", (number,))
        return store

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Return the store at a path.

        Raises
        ------
        InputError
            If there is none, one of another format, or one that is damaged.
        """
        store = cls(Path(path), Layout(columns=()))
        if not (store.path / DATABASE).is_file():
            message = f"is no store: there is no {DATABASE} in it."
            raise InputError(Problem(str(path), message))
        with store.database() as db:
            store.layout = store._layout_in(db)
        return store

    @contextmanager
    def database(self, *, write: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield the database for one transaction, which an error takes back.

        Raises
        ------
        InputError
            If it may not be read or written, or is damaged.
        """
        # What may not be written SQLite opens to read.
        file = f"{(self.path / DATABASE).absolute().as_uri()}?mode={'rwc' if write else 'rw'}"
        try:
            opened = sqlite3.connect(file, timeout=PATIENCE, isolation_level=None, uri=True)
            with closing(opened) as db:
                if write:
                    db.execute("pragma journal_mode = truncate")  # quicker than one that is deleted
                db.execute("begin immediate" if write else "begin")
                yield db
                db.execute("commit")
        except sqlite3.OperationalError as error:
            message = f"cannot be {'written' if write else 'read'}: {error}."
            raise InputError(Problem(str(self.path), message)) from None
        except (sqlite3.Error, UnicodeDecodeError) as error:  # a name in it may be none
            raise self._damaged(str(error)) from None

    def _damaged(self, wrong: str) -> InputError:
        message = f"{DATABASE} is damaged ({wrong}); allowed: another store, or a copy of this one."
        return InputError(Problem(str(self.path), message))

    def _layout_in(self, db: sqlite3.Connection) -> Layout:
        """Return the columns that a database says."""
        (found,) = db.execute("pragma user_version").fetchone()
        if found != FORMAT:
            message = f"is no store that this version reads (format {FORMAT}); got format {found}."
            raise InputError(Problem(str(self.path), message))
        said = db.execute("select columns, checksum from layout").fetchone()
        if said is None or not is_sound(*said):
            raise self._damaged("its columns")
        return Layout(columns=tuple((name, unit) for name, unit in json.loads(said[0])))

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with pieces that were met so far."""
        return tuple(
            Problem(str(self.path / name), f"{wrong}.") for name, wrong in self.damage.items()
        )

    def table(self, keys: Keys | None = None) -> pyarrow.Table:
        """Return finished rows as a pyarrow table, of some keys in their order, or all.

        Those of damaged answers are not among them.
        """
        pa = arrow()
        with self.database() as db:
            tables: list[pyarrow.Table] = []
            rows: list[Row] = []
            for number, *answer in db.execute(f"{ANSWERS} order by number"):
                found = self._read(answer)
                if found is None:
                    self.damage[f"answer {number}"] = "is damaged; its points are left out"
                elif isinstance(found, list):
                    rows += found
                else:
                    tables.append(found)
        columns = {name: [row.get(name) for row in rows] for name, _ in self.layout.columns}
        table = _once(pa.concat_tables([*tables, columns_as(columns, self.layout)]))
        if keys is None:
            return table
        place = {key: i for i, key in enumerate(table.column("key").to_pylist())}
        wanted = hex_keys(keys)
        return table.take(pa.array([place[key] for key in wanted if key in place], pa.int64()))

    def count(self) -> int:
        """Return how many rows are finished. [1]"""
        with self.database() as db:
            (size,) = db.execute("select coalesce(sum(length(keys)), 0) from answers").fetchone()
        return int(size) // KEY_BYTES

    def add(
        self,
        db: sqlite3.Connection,
        keys: bytes,
        found: list[Row] | pyarrow.Table,
        sweep: str = "",
    ) -> None:
        """Write an answer: the rows of some keys; ``sweep`` is who claimed them, if one did."""
        if isinstance(found, list):
            rows = json.dumps(found).encode()
        else:
            sink = arrow().BufferOutputStream()
            arrow().parquet.write_table(found, sink, compression="zstd")
            rows = sink.getvalue().to_pybytes()
        db.execute(
            "insert into answers (sweep, keys, rows, checksum) values (?, ?, ?, ?)",
            (sweep, keys, rows, checksum(keys, rows)),
        )

    def _read(self, answer: Sequence[Any]) -> list[Row] | pyarrow.Table | None:
        """Return the rows of an answer: its keys, rows and checksum; None where it is damaged."""
        if not is_sound(*answer):
            return None
        content = answer[1]
        if content.startswith(b"["):
            rows: list[Row] = json.loads(content)
            kinds = {n: str if unit is None else (int, float) for n, unit in self.layout.columns}
            fits = all(
                name in kinds and (value is None or isinstance(value, kinds[name]))
                for row in rows
                for name, value in row.items()
            )
            return rows if fits else None
        pa = arrow()
        table = pa.parquet.read_table(pa.BufferReader(content))
        schema = self.layout.schema()
        if table.schema.names != schema.names:
            return None
        return pa.Table.from_arrays(table.columns, schema=schema)


def checksum(*content: bytes) -> int:
    """Return the checksum of bytes."""
    return zlib.crc32(b"".join(content))


def is_sound(*stored: Any) -> bool:
    """Return whether bytes have the checksum that follows them."""
    *content, found = stored
    return all(isinstance(part, bytes) for part in content) and checksum(*content) == found


def _once(table: pyarrow.Table) -> pyarrow.Table:
    """Return rows without those whose point has one already, of another search on the store."""
    pa = arrow()
    keys = table.column("key")
    if pa.compute.count_distinct(keys).as_py() == len(keys):
        return table
    first = {key: i for i, key in reversed(list(enumerate(keys.to_pylist())))}
    return table.take(pa.array(sorted(first.values()), pa.int64()))
