"""One sweep's hold on a store: which points it works on, and its rows."""

from __future__ import annotations

import sqlite3
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.explore.keys import KEY_BYTES, Keys, as_bytes, from_bytes, is_in
from crosstack.explore.store import Row, Store, is_sound

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Session"]


@dataclass(slots=True)
class Session:
    """One sweep's hold on a store: claims points, records rows; ``with Session(...) as s``."""

    store: Store
    keys: Keys
    name: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    state: Any = None
    """Of every point: open, claimed here, done, claimed elsewhere."""
    _lock: sqlite3.Connection | None = None
    _seen: int = 0

    OPEN, MINE, DONE, ELSEWHERE = 0, 1, 2, 3

    def __enter__(self) -> Session:
        """Take part."""
        self.state = np.zeros(len(self.keys), dtype=np.int8)
        with self.store.database(write=True) as db:
            self._lock = _locked(self._file(self.name))
            self._look(db)
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of claims."""
        assert self._lock is not None  # entered
        try:
            with self.store.database(write=True) as db:
                db.execute("delete from claims where sweep = ?", (self.name,))
        finally:
            self._lock.close()
            self._file(self.name).unlink(missing_ok=True)

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
        with self.store.database(write=True) as db:
            self._look(db)
            found = np.flatnonzero(self.state[among] == self.OPEN)[:count] + (among.start or 0)
            if len(found):
                mine = self.name, as_bytes(self.keys[found])
                db.execute("insert into claims values (?, ?)", mine)
        self.state[found] = self.MINE
        return found

    def record(self, numbers: Any, rows: list[Row] | pyarrow.Table) -> None:
        """Write the rows of points that were claimed together; they are finished then."""
        keys = as_bytes(self.keys[numbers])
        with self.store.database(write=True) as db:
            self.store.add(db, keys, rows, self.name)
            db.execute("delete from claims where sweep = ? and keys = ?", (self.name, keys))
        self.state[numbers] = self.DONE

    def _file(self, sweep: str) -> Path:
        """Return what a sweep holds a lock on while it runs."""
        return self.store.path / f"{sweep}.sweep"

    def _look(self, db: sqlite3.Connection) -> None:
        """Take in finished rows and claims of other sweeps; clear up after those that ended."""
        known = {name for (name,) in db.execute("select distinct sweep from claims")}
        known |= {file.stem for file in self.store.path.glob("*.sweep")}
        for name in known - {self.name}:
            if (lock := _locked(self._file(name))) is not None:
                lock.close()
                self._file(name).unlink(missing_ok=True)
                db.execute("delete from claims where sweep = ?", (name,))
        self.state[self.state == self.ELSEWHERE] = self.OPEN
        claims = db.execute("select keys from claims where sweep <> ?", (self.name,))
        sound = (k for (k,) in claims if isinstance(k, bytes) and len(k) % KEY_BYTES == 0)
        claimed = is_in(self.keys, from_bytes(b"".join(sound)))
        self.state[claimed & (self.state == self.OPEN)] = self.ELSEWHERE
        new = "select number, sweep, keys, rows, checksum from answers where number > ? order by 1"
        done = []
        for number, sweep, *answer in db.execute(new, (self._seen,)):
            self._seen = number
            if sweep != self.name and is_sound(*answer):
                done.append(answer[0])
        self.state[is_in(self.keys, from_bytes(b"".join(done)))] = self.DONE


def _locked(file: Path) -> sqlite3.Connection | None:
    """Return what holds the lock on a file until it is closed; None where somebody else does."""
    lock = sqlite3.connect(file, timeout=0, isolation_level=None)
    try:
        lock.execute("pragma journal_mode = memory")  # no file beside it
        lock.execute("begin exclusive")
    except sqlite3.OperationalError:
        lock.close()
        return None
    return lock
