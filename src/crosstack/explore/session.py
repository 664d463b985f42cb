"""One sweep's hold on a store: which points it works on, and its rows."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.explore.keys import KEY_BYTES, Keys, from_hex, is_in
from crosstack.explore.locks import held, try_lock
from crosstack.explore.store import Store, refusal, sync
from crosstack.explore.store_files import Row, journal_line

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Session"]

MOST_IN_JOURNAL = 5_000  # rows before they become a part
SHORTEST_WAIT, WAIT_SHARE = 10.0, 0.05  # s, and of the sweep's time, until rows become a part


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
        with self._locked():
            self._handle = try_lock(self._claims(self.name), create=True)
            self._look()
        return self

    def __exit__(self, *_: object) -> None:
        """Make a part of what is left and let go of claims; a full disk leaves the journal."""
        assert self._handle is not None  # entered
        try:
            with self._locked():
                self._seal()
                if not list((self.store.path / "journal").glob(f"{self.name}-*")):
                    self._claims(self.name).unlink(missing_ok=True)
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
        with self._locked():
            self._look()
            start = self._cursor if among == slice(None) else among.start or 0
            found = np.flatnonzero(self.state[start : among.stop] == self.OPEN)[:count] + start
            if len(found):
                self._append(self.keys[found])
                self.state[found] = self.MINE
                if among == slice(None):
                    self._cursor = int(found[-1]) + 1
        return found

    def record(self, numbers: Sequence[int], rows: Sequence[Row]) -> None:
        """Write rows to the journal; they are finished when this returns."""
        text = "".join(map(journal_line, rows)).encode()
        with self._told():
            if self._journal is None:
                path = self.store.path / "journal" / f"{self.name}-{self._sequence:06d}.jsonl"
                self._journal = open(path, "ab", buffering=0)  # noqa: SIM115
                sync(path.parent)
                self._since = time.monotonic()
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

    def record_table(self, numbers: Any, table: pyarrow.Table) -> None:
        """Write many rows as a part of their own."""
        self._sequence += 1
        part = self.store.path / "parts" / f"{self.name}-{self._sequence:06d}a.parquet"
        with self._locked():
            self.store.write_part(part, table)
            self._seen_parts.add(part.name)
        self.state[numbers] = self.DONE

    def release(self) -> None:
        """Show others what is done, and look at what they have; their void claims open again.

        Others see parts alone: two sweeps that wait for each other's journals would never end.
        """
        with self._locked():
            self._seal()
            self._look()
            self._cursor = 0

    @contextmanager
    def _told(self) -> Iterator[None]:
        """Say what the operating system refuses by the store."""
        try:
            yield
        except OSError as error:
            raise refusal(self.store.path, error) from None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the store."""
        with self._told(), held(self.store.path / "lock"):
            yield

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
        self.store.seal(path)
        self._seen_parts.add(f"{path.stem}.parquet")

    def _look(self) -> None:
        """Take in finished rows and claims of other sweeps. The lock is held."""
        reopened = False
        live: dict[str, int] = {}
        for name in self.store.sessions():
            if name == self.name:
                continue
            if self.store.recover(name):
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
        known: list[str] = []
        for path in self.store.parts(seen=self._seen_parts):
            known += self.store.keys_of(path) or []
            self._seen_parts.add(path.name)
        if known:
            self.state[is_in(self.keys, from_hex(known))] = self.DONE
