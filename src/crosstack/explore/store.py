"""The store of a sweep: Parquet files that only ever get more, safe against any end.

A store is a directory:

- ``store.json``: the columns, the same in every part;
- ``parts/*.parquet``: finished rows. A part is written under another name, flushed to the disk and
  renamed, and never changed after that; any tool may read ``parts/*.parquet`` at any time;
- ``journal/``: rows that are finished but in no part yet, one line of JSON with its checksum each,
  flushed to the disk before the sweep goes on;
- ``claims/``: keys of the points that a running sweep works on. It holds a lock on its file, which
  the operating system drops when it ends: claims without a lock are void, and whoever opens the
  store next makes a part of their journal;
- ``studies/``: what was asked;
- ``aside/``: pieces that were damaged when a sweep went on with the store.

So a process may be killed between any two instructions. A row counts once its line is on the disk;
a part has the name of its journal, so that a journal whose part is there is not read again.

A piece that is damaged or foreign is named in `Store.damage`, and all other rows are given. Who
only reads leaves it where it is, and needs no leave to write; a sweep moves it to ``aside/`` and
answers its points again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from crosstack.errors import InputError, Problem
from crosstack.explore.keys import Keys, hex_keys
from crosstack.explore.layout import FORMAT, Layout, arrow
from crosstack.explore.locks import held, held_if_possible, try_lock
from crosstack.explore.store_files import (
    DamageError,
    Row,
    once,
    read_journal,
    read_part,
    several,
)
from crosstack.io.files import TEMPORARY, read_text, write_atomically

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Store", "refusal", "sync"]

FOLDERS = ("parts", "journal", "claims", "studies")
OURS = {*FOLDERS, "aside", "lock", "store.json"}
SESSION = re.compile("[0-9a-f]{12}")
JOURNAL = re.compile("([0-9a-f]{12})-[0-9]{6}[.]jsonl")


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
            if folder.is_dir() and not (folder / "store.json").exists() and _foreign(folder):
                message = "is a directory with something else; allowed: a new or empty one."
                raise InputError(Problem(str(path), message))
            for name in FOLDERS:
                (folder / name).mkdir(parents=True, exist_ok=True)
            found = cls(folder, layout)
            with held(folder / "lock"):
                known = _layout_in(folder)
                if known is None:
                    if (folder / "store.json").exists():
                        found.set_aside(folder / "store.json", "is damaged")
                    found.layout = _layout_of_parts(folder) or layout
                    write_atomically(folder / "store.json", found.layout.text())
                else:
                    found.layout = known
        except OSError as error:
            raise refusal(path, error) from None
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
        return store

    @classmethod
    def open(cls, path: str | Path) -> Store:
        """Return the store at a path.

        Without a sound ``store.json`` the columns are those of its parts.

        Raises
        ------
        InputError
            If there is none, or one of another format.
        """
        folder = Path(path)
        known = _layout_in(folder)
        if known is not None:
            return cls(folder, known)
        there = (folder / "store.json").exists()
        found = _layout_of_parts(folder)
        if found is None:
            wrong = "store.json is damaged" if there else "there is no store.json in it"
            message = f"is no store: {wrong}."
            raise InputError(Problem(str(path), message))
        store = cls(folder, found)
        wrong = "is damaged" if there else "is missing"
        store.note(folder / "store.json", f"{wrong}; the columns are those of the parts")
        return store

    @property
    def problems(self) -> tuple[Problem, ...]:
        """What is wrong with pieces that were met so far."""
        return tuple(
            Problem(str(self.path / name), f"{wrong}.") for name, wrong in self.damage.items()
        )

    def note(self, piece: Path, wrong: str) -> None:
        """Remember what is wrong with a piece."""
        self.damage[piece.relative_to(self.path).as_posix()] = wrong

    def set_aside(self, piece: Path, wrong: str) -> None:
        """Move a piece out of the way and remember why. The lock is held."""
        folder = self.path / "aside"
        folder.mkdir(exist_ok=True)
        place, count = folder / piece.name, 0
        while place.exists():
            count += 1
            place = folder / f"{piece.name}.{count}"
        os.replace(piece, place)
        self.note(piece, f"{wrong}; it is set aside as {place.relative_to(self.path).as_posix()}")

    def parts(self, seen: Collection[str] = ()) -> list[Path]:
        """Return the files with finished rows, in the order of their names, but those ``seen``."""
        names = (n for n in self._in("parts") if n.endswith(".parquet") and n not in seen)
        return [self.path / "parts" / name for name in names]

    def table(self, keys: Keys | None = None) -> pyarrow.Table:
        """Return finished rows as a pyarrow table, of some keys in their order, or all.

        Rows in the journals of running sweeps are among them; those of damaged pieces are not.
        """
        pa = arrow()
        with held_if_possible(self.path / "lock") as locked:
            if locked:
                self._clear_up()
            # Journals first: one that becomes a part meanwhile, where there is no lock, is in both.
            live = {path: self._rows(path) for path in self.journals()}
            found = {path.stem: self._read(path) for path in self.parts()}
        rows = [row for path in live if found.get(path.stem) is None for row in live[path]]
        tables = [table for table in found.values() if table is not None]
        table = once(pa.concat_tables([*tables, self._as_table(rows)]))
        if keys is None:
            return table
        place = {key: i for i, key in enumerate(table.column("key").to_pylist())}
        wanted = hex_keys(keys)
        return table.take(pa.array([place[key] for key in wanted if key in place], pa.int64()))

    def count(self) -> int:
        """Return how many rows are finished. [1]"""
        done: dict[str, int] = {}
        for path in self.parts():
            with suppress(Exception):  # whatever a reader says of a damaged part
                done[path.stem] = arrow().parquet.read_metadata(path).num_rows
        return sum(done.values()) + sum(
            len(self._rows(path)) for path in self.journals() if path.stem not in done
        )

    def journals(self) -> list[Path]:
        """Return the journals, those of parts that are there among them."""
        return [self.path / "journal" / name for name in self._ours("journal", JOURNAL)]

    def sessions(self) -> list[str]:
        """Return sweeps that have claims, or left a journal."""
        left = {name.partition("-")[0] for name in self._ours("journal", JOURNAL)}
        return sorted(left | set(self._ours("claims", SESSION)))

    def _in(self, folder: str) -> list[str]:
        """Return the names in one of the folders, but for hidden files."""
        place = self.path / folder
        try:
            names = os.listdir(place)
        except FileNotFoundError:
            return []
        except OSError as error:
            self.note(place, f"cannot be read: {error.strerror or error}")
            return []
        return sorted(name for name in names if not name.startswith("."))

    def _ours(self, folder: str, pattern: re.Pattern[str]) -> list[str]:
        """Return the names in one of the folders that a sweep gave."""
        names = self._in(folder)
        for name in names:
            if not pattern.fullmatch(name):
                self.note(self.path / folder / name, "is foreign; it is left out")
        return [name for name in names if pattern.fullmatch(name)]

    def _clear_up(self) -> None:
        """Make parts of what sweeps left behind that have ended without doing so.

        Where that is not allowed, or a piece is in the way, reading goes on without. The lock is
        held.
        """
        for name in self.sessions():
            with suppress(OSError, InputError):
                self.recover(name)

    def recover(self, session: str) -> bool:
        """Clear up after a session that has ended; return whether it has. The lock is held."""
        claims = self.path / "claims" / session
        claims.touch()
        handle = try_lock(claims)
        if handle is None:
            return False
        try:
            for path in self.journals():
                if path.name.startswith(session):
                    self.seal(path)
            for path in (self.path / "parts").glob(f".{session}-*"):
                path.unlink()  # half of a part
            claims.unlink()
        finally:
            os.close(handle)
        return True

    def seal(self, journal: Path) -> None:
        """Turn a journal into a part; nothing changes if it is one already. The lock is held."""
        part = self.path / "parts" / f"{journal.stem}.parquet"
        if part.exists() and self.keys_of(part) is not None:
            journal.unlink()
            return
        rows, damaged = read_journal(journal, self.layout)
        if rows:
            self.write_part(part, self._as_table(rows))
        if damaged:
            self.set_aside(journal, several(damaged, "line"))
        else:
            journal.unlink()

    def keys_of(self, part: Path) -> list[str] | None:
        """Return the keys of a part's rows; a damaged part is set aside. The lock is held.

        Raises
        ------
        InputError
            If the part may not be read: its points would be answered twice.
        """
        try:
            table, _ = read_part(part, self.layout)
        except DamageError as error:
            self.set_aside(part, str(error))
            return None
        except OSError as error:
            message = f"cannot be read: {error.strerror or error}."
            raise InputError(Problem(str(part), message)) from None
        found: list[str] = table.column("key").to_pylist()
        return found

    def _read(self, part: Path) -> pyarrow.Table | None:
        """Return the sound rows of a part; None where there are none."""
        try:
            table, damaged = read_part(part, self.layout)
        except DamageError as error:
            self.note(part, f"{error}; its points are left out")
            return None
        except OSError as error:
            self.note(part, f"cannot be read: {error.strerror or error}; its points are left out")
            return None
        if damaged:
            self.note(part, f"{several(damaged, 'row')} (no key or no status), left out")
        return table

    def _rows(self, journal: Path) -> list[Row]:
        """Return the sound rows of a journal."""
        try:
            rows, damaged = read_journal(journal, self.layout)
        except FileNotFoundError:  # became a part in this moment
            return []
        except OSError as error:
            self.note(journal, f"cannot be read: {error.strerror or error}")
            return []
        if damaged:
            self.note(journal, f"{several(damaged, 'line')}, left out")
        return rows

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
                arrow().parquet.write_table(
                    table, file, compression="zstd", write_page_checksum=True
                )
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, part)
            sync(part.parent)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise


def _layout_in(folder: Path) -> Layout | None:
    """Return the columns that ``store.json`` says; None where it is missing or damaged.

    Raises
    ------
    InputError
        If it is of another format.
    """
    try:
        return Layout.of_text(read_text(folder / "store.json"))
    except InputError:
        return None
    except ValueError as error:
        message = f"is no store that this version reads (format {FORMAT}); got format {error}."
        raise InputError(Problem(str(folder), message)) from None


def _layout_of_parts(folder: Path) -> Layout | None:
    """Return the columns that most parts have; None where no part can be read."""
    pa = arrow()
    found: list[Layout] = []
    for path in sorted((folder / "parts").glob("*.parquet")):
        with suppress(Exception):  # whatever a reader says of a damaged part
            layout = Layout.of_schema(pa.parquet.read_schema(path))
            found += [] if layout is None else [layout]
    return max(found, key=found.count, default=None)


def _foreign(folder: Path) -> bool:
    """Return whether a directory holds what a sweep that was killed early does not leave."""
    return any(n not in OURS and not n.startswith(TEMPORARY) for n in os.listdir(folder))


def sync(folder: Path) -> None:
    """Flush a directory: that a file has a new name is on the disk then."""
    with suppress(OSError, AttributeError):  # not every system opens directories
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def refusal(path: str | Path, error: OSError) -> InputError:
    """Return the error for a store, or a piece of it, that the operating system refuses."""
    piece = "" if error.filename is None else f" ({Path(os.fsdecode(error.filename)).name})"
    return InputError(Problem(str(path), f"cannot be written: {error.strerror or error}{piece}."))
