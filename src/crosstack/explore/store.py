"""The store of a sweep: Parquet files that only ever get more, safe against any end.

A store is a directory:

- ``store.json``: the columns, the same in every part;
- ``parts/*.parquet``: finished rows. A part is written under another name, flushed to the disk and
  renamed, and never changed after that; any tool may read ``parts/*.parquet`` at any time;
- ``journal/``: rows that are finished but in no part yet, one line of JSON each, flushed to the
  disk before the sweep goes on;
- ``claims/``: keys of the points that a running sweep works on. It holds a lock on its file, which
  the operating system drops when it ends: claims without a lock are void, and whoever opens the
  store next makes a part of their journal;
- ``studies/``: what was asked.

So a process may be killed between any two instructions. A row counts once its line is on the disk;
a part has the name of its journal, so that a journal whose part is there is not read again.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.explore.keys import KEY_BYTES, Keys, from_hex, hex_keys, is_in
from crosstack.explore.locks import held, try_lock
from crosstack.io.files import TEMPORARY, read_text, write_atomically

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Layout", "Session", "Store"]

FORMAT = 1
MOST_IN_JOURNAL = 5_000  # rows before they become a part
SHORTEST_WAIT, WAIT_SHARE = 10.0, 0.05  # s, and of the sweep's time, until rows become a part
Row = dict[str, Any]


def arrow() -> Any:
    """Return pyarrow with its Parquet reader, or say what to install."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        message = "needs pyarrow; install crosstack[explore]."
        raise InputError(Problem("store", message)) from None
    return pyarrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Columns of a store: name and unit; the unit is None for text."""

    columns: tuple[tuple[str, str | None], ...]

    def schema(self) -> pyarrow.Schema:
        """Return the columns as pyarrow's schema; units are metadata of the fields."""
        pa = arrow()
        return pa.schema(
            [
                pa.field(name, pa.string())
                if unit is None
                else pa.field(name, pa.float64(), metadata={"unit": unit})
                for name, unit in self.columns
            ]
        )


class Store:
    """A directory of results; see the module."""

    def __init__(self, path: Path, layout: Layout) -> None:
        self.path, self.layout = path, layout

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
            if folder.is_dir() and not (folder / "store.json").exists() and _foreign(folder):
                message = "is a directory with something else; allowed: a new or empty one."
                raise InputError(Problem(str(path), message))
            for name in ("parts", "journal", "claims", "studies"):
                (folder / name).mkdir(parents=True, exist_ok=True)
            with held(folder / "lock"):
                if not (folder / "store.json").exists():
                    data = {"format": FORMAT, "columns": [list(c) for c in layout.columns]}
                    write_atomically(folder / "store.json", json.dumps(data, indent=1) + "\n")
        except OSError as error:
            raise _refusal(path, error) from None
        found = cls.open(path)
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
    def open(cls, path: str | Path) -> Store:
        """Return the store at a path.

        Raises
        ------
        InputError
            If there is none, or one of another format.
        """
        folder = Path(path)
        if not (folder / "store.json").is_file():
            raise InputError(Problem(str(path), "is no store: there is no store.json in it."))
        try:
            data = json.loads(read_text(folder / "store.json"))
            columns = tuple((str(n), None if u is None else str(u)) for n, u in data["columns"])
            good = data["format"] == FORMAT
        except (ValueError, TypeError, KeyError):
            good = False
        if not good:
            message = f"is no store that this version reads (format {FORMAT})."
            raise InputError(Problem(str(path), message))
        return cls(folder, Layout(columns=columns))

    def parts(self) -> list[Path]:
        """Return the files with finished rows, in the order of their names."""
        return sorted((self.path / "parts").glob("*.parquet"))

    def recover(self) -> None:
        """Make parts of what sweeps left behind that have ended without doing so."""
        with held(self.path / "lock"):
            for name in self._sessions():
                self._recover(name)

    def table(self, keys: Keys | None = None) -> pyarrow.Table:
        """Return finished rows as a pyarrow table, of some keys in their order, or all.

        Rows in the journals of running sweeps are among them.
        """
        pa = arrow()
        with held(self.path / "lock"):
            for name in self._sessions():
                self._recover(name)
            live = [row for path in self._journals() for row in _rows(path)]
            found = [pa.parquet.ParquetFile(path).read() for path in self.parts()]
        found.append(self._as_table(live))
        table = pa.concat_tables(found)
        if keys is None:
            return table
        place = {key: i for i, key in enumerate(table.column("key").to_pylist())}
        wanted = hex_keys(keys)
        rows = [place[key] for key in wanted if key in place]
        return table.take(pa.array(rows, pa.int64()))

    def count(self) -> int:
        """Return how many rows are finished. [1]"""
        pq = arrow().parquet
        parts = sum(pq.read_metadata(path).num_rows for path in self.parts())
        return int(parts) + sum(len(_rows(path)) for path in self._journals())

    def _journals(self) -> list[Path]:
        """Return journals whose rows are in no part."""
        done = {path.stem for path in self.parts()}
        return [p for p in sorted((self.path / "journal").iterdir()) if p.stem not in done]

    def _sessions(self) -> list[str]:
        """Return sweeps that have claims, or left a journal."""
        left = {path.name.partition("-")[0] for path in (self.path / "journal").iterdir()}
        return sorted(left | set(os.listdir(self.path / "claims")))

    def _recover(self, session: str) -> bool:
        """Clear up after a session that has ended; return whether it has. The lock is held."""
        claims = self.path / "claims" / session
        claims.touch()
        handle = try_lock(claims)
        if handle is None:
            return False
        try:
            for path in sorted((self.path / "journal").glob(f"{session}-*")):
                self._seal(path)
            for path in (self.path / "parts").glob(f".{session}-*"):
                path.unlink()  # half of a part
            claims.unlink()
        except OSError as error:
            raise _refusal(self.path, error) from None
        finally:
            os.close(handle)
        return True

    def _seal(self, journal: Path) -> None:
        """Turn a journal into a part; nothing changes if it is one already."""
        part = self.path / "parts" / f"{journal.stem}.parquet"
        if not part.exists():
            rows = _rows(journal)
            if rows:
                self.write_part(part, self._as_table(rows))
        journal.unlink()

    def _as_table(self, rows: Sequence[Row]) -> pyarrow.Table:
        pa = arrow()
        schema = self.layout.schema()
        columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in schema]
        return pa.Table.from_arrays(columns, schema=schema)

    def write_part(self, part: Path, table: pyarrow.Table) -> None:
        """Write a part so that it is there whole or not at all, even after a loss of power."""
        temporary = part.with_name(f".{part.name}.{os.getpid()}")
        try:
            with open(temporary, "wb") as file:
                arrow().parquet.write_table(table, file, compression="zstd")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, part)
            _sync(part.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


@dataclass(slots=True)
class Session:
    """One sweep's hold on a store: claims points, records rows; ``with Session(...) as s``."""

    store: Store
    keys: Keys
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    state: Any = None
    """Of every point: open, claimed here, done, claimed elsewhere."""
    _handle: int | None = None
    _journal: Any = None
    _sequence: int = 0
    _unsealed: int = 0
    _since: float = 0.0
    _started: float = 0.0
    _cursor: int = 0
    _seen_parts: set[str] = field(default_factory=set)
    _others: dict[str, int] = field(default_factory=dict)

    OPEN, MINE, DONE, ELSEWHERE = 0, 1, 2, 3

    def __enter__(self) -> Session:
        """Take part."""
        self._started = time.monotonic()
        self.state = np.zeros(len(self.keys), dtype=np.int8)
        try:
            with held(self.store.path / "lock"):
                self._handle = try_lock(self._claims(self.name), create=True)
                self._look()
        except OSError as error:
            raise _refusal(self.store.path, error) from None
        return self

    def __exit__(self, *_: object) -> None:
        """Make a part of what is left and let go of claims; a full disk leaves the journal."""
        assert self._handle is not None  # entered
        try:
            with held(self.store.path / "lock"):
                self._seal()
                if not list((self.store.path / "journal").glob(f"{self.name}-*")):
                    self._claims(self.name).unlink()
        except OSError as error:
            raise _refusal(self.store.path, error) from None
        finally:
            if self._journal is not None:
                self._journal.close()
            os.close(self._handle)

    @property
    def n_done(self) -> int:
        """Points of this study that are finished, here or elsewhere. [1]"""
        return int(np.count_nonzero(self.state == self.DONE))

    @property
    def complete(self) -> bool:
        """Whether all are."""
        return bool((self.state == self.DONE).all())

    def claim(self, count: int, among: slice = slice(None)) -> Any:
        """Claim up to ``count`` open points of a slice; return their numbers, perhaps none."""
        try:
            with held(self.store.path / "lock"):
                self._look()
                start = among.start or 0
                if among == slice(None):
                    start = self._cursor
                found = np.flatnonzero(self.state[start : among.stop] == self.OPEN)[:count] + start
                if len(found):
                    self._append(self.keys[found])
                    self.state[found] = self.MINE
                    if among == slice(None):
                        self._cursor = int(found[-1]) + 1
        except OSError as error:
            raise _refusal(self.store.path, error) from None
        return found

    def record(self, numbers: Sequence[int], rows: Sequence[Row]) -> None:
        """Write rows to the journal; they are finished when this returns."""
        if self._journal is None:
            path = self.store.path / "journal" / f"{self.name}-{self._sequence:06d}.jsonl"
            try:
                self._journal = open(path, "ab", buffering=0)  # noqa: SIM115
            except OSError as error:
                raise _refusal(self.store.path, error) from None
            _sync(path.parent)
            self._since = time.monotonic()
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        try:
            end = self._journal.seek(0, os.SEEK_END)
            try:
                written = self._journal.write(text)
                while written < len(text):
                    written += self._journal.write(text[written:])
                os.fsync(self._journal.fileno())
            except OSError:
                with suppress(OSError):
                    os.truncate(self._journal.name, end)
                raise
            self.state[list(numbers)] = self.DONE
            self._unsealed += len(rows)
            age = time.monotonic() - self._since
            wait = max(SHORTEST_WAIT, WAIT_SHARE * (time.monotonic() - self._started))
            if self._unsealed >= MOST_IN_JOURNAL or age >= wait:
                with held(self.store.path / "lock"):
                    self._seal()
        except OSError as error:
            raise _refusal(self.store.path, error) from None

    def record_table(self, numbers: Any, table: pyarrow.Table) -> None:
        """Write many rows as a part of their own."""
        self._sequence += 1
        part = self.store.path / "parts" / f"{self.name}-{self._sequence:06d}a.parquet"
        try:
            with held(self.store.path / "lock"):
                self.store.write_part(part, table)
                self._seen_parts.add(part.name)
        except OSError as error:
            raise _refusal(self.store.path, error) from None
        self.state[numbers] = self.DONE

    def release(self) -> None:
        """Show others what is done, and look at what they have; their void claims open again.

        Others see parts alone: two sweeps that wait for each other's journals would never end.
        """
        try:
            with held(self.store.path / "lock"):
                self._seal()
                self._look()
                self._cursor = 0
        except OSError as error:
            raise _refusal(self.store.path, error) from None

    def _claims(self, session: str) -> Path:
        return self.store.path / "claims" / session

    def _append(self, keys: Keys) -> None:
        assert self._handle is not None  # entered
        data = keys.astype("<u8").tobytes()
        while data:
            data = data[os.write(self._handle, data) :]

    def _seal(self) -> None:
        if self._journal is None:
            return
        path = Path(self._journal.name)
        self._journal.close()
        self._journal, self._unsealed = None, 0
        self._sequence += 1
        self.store._seal(path)
        self._seen_parts.add(f"{path.stem}.parquet")

    def _look(self) -> None:
        """Take in finished rows and claims of other sweeps. The lock is held."""
        reopened = False
        live: dict[str, int] = {}
        for name in self.store._sessions():
            if name == self.name:
                continue
            if self.store._recover(name):
                reopened = reopened or name in self._others
            else:
                live[name] = self._others.get(name, 0)
        if reopened or set(self._others) - set(live):  # what they left undone is open again
            self.state[self.state == self.ELSEWHERE] = self.OPEN
            self._cursor = 0
            live = dict.fromkeys(live, 0)
        for name, offset in live.items():
            with open(self._claims(name), "rb") as file:
                file.seek(offset)
                data = file.read()
            data = data[: len(data) // KEY_BYTES * KEY_BYTES]
            live[name] = offset + len(data)
            if data:
                claimed = np.frombuffer(data, dtype="<u8").reshape(-1, 2)
                mine = is_in(self.keys, claimed) & (self.state == self.OPEN)
                self.state[mine] = self.ELSEWHERE
        self._others = live
        self._take_in_parts()

    def _take_in_parts(self) -> None:
        names = [n for n in os.listdir(self.store.path / "parts") if n.endswith(".parquet")]
        new = sorted(set(names) - self._seen_parts)
        known: list[str] = []
        for name in new:
            file = arrow().parquet.ParquetFile(self.store.path / "parts" / name)
            known += file.read(columns=["key"]).column("key").to_pylist()
        if known:
            self.state[is_in(self.keys, from_hex(known))] = self.DONE
        self._seen_parts.update(new)


def _foreign(folder: Path) -> bool:
    """Return whether a directory holds what a sweep that was killed early does not leave."""
    ours = {"parts", "journal", "claims", "studies", "lock"}
    return any(n not in ours and not n.startswith(TEMPORARY) for n in os.listdir(folder))


def _rows(journal: Path) -> list[Row]:
    """Return the rows of a journal; a line that was cut off is none."""
    rows = []
    for line in journal.read_bytes().split(b"\n")[:-1]:
        with suppress(ValueError):
            row = json.loads(line)
            if isinstance(row, dict) and isinstance(row.get("key"), str):
                rows.append(row)
    return rows


def _sync(folder: Path) -> None:
    """Flush a directory: that a file has a new name is on the disk then."""
    with suppress(OSError, AttributeError):  # not every system opens directories
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _refusal(path: str | Path, error: OSError) -> InputError:
    return InputError(Problem(str(path), f"cannot be written: {error.strerror or error}."))


def columns_as(values: Mapping[str, Any], layout: Layout) -> pyarrow.Table:
    """Return columns of numbers and text as a table of a store; NaN is null."""
    pa = arrow()
    schema = layout.schema()
    found = []
    for f in schema:
        value = values[f.name]
        if isinstance(value, pa.Array):
            found.append(value)
        elif pa.types.is_float64(f.type):
            found.append(pa.array(np.asarray(value, dtype=float), f.type, from_pandas=True))
        else:
            found.append(pa.array(value, f.type, from_pandas=True))
    return pa.Table.from_arrays(found, schema=schema)
