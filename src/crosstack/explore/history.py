"""What searches have seen so far, in memory and as a file that they can go on from."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.files import read_text, write_atomically

__all__ = ["Evaluated", "History", "HistoryFile", "SavedFile", "key_of"]

VERSION = 1
SAVE_EVERY = 2.0  # [s]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """One point and its value; ``feasible`` says whether it is a design, ``probe`` if not one."""

    point: tuple[float, ...]
    value: float
    feasible: bool
    probe: bool = False


@dataclass(slots=True, kw_only=True)
class History:
    """Every point in the order it was asked for, by a search with this ``key``."""

    key: str
    names: tuple[str, ...]
    evaluated: list[Evaluated] = field(default_factory=list)

    @property
    def best(self) -> Evaluated | None:
        """The best design so far; the first of equal ones."""
        designs = [e for e in self.evaluated if e.feasible and not e.probe]
        return min(designs, key=lambda e: e.value, default=None)

    @property
    def best_values(self) -> tuple[float, ...]:
        """The best value after every evaluation; infinite before the first design."""
        found, best = [], math.inf
        for e in self.evaluated:
            if e.feasible and not e.probe:
                best = min(best, e.value)
            found.append(best)
        return tuple(found)


def key_of(problem: Mapping[str, Any]) -> str:
    """Return a hash of everything that decides what a search sees."""
    text = json.dumps(problem, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class SavedFile:
    """What a search saves in one JSON file; a path of None saves nothing.

    Parameters
    ----------
    path : Path or None
        A reader sees an old file or a new one, never a part.
    version : int
        Of what is in it.
    of : str
        Whose history it is, in words.
    """

    def __init__(self, path: Path | None, version: int, of: str) -> None:
        self.path = path
        self.version = version
        self.of = of
        self._saved = time.monotonic()

    def read(self, entries: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return what the file holds and its ``entries`` by name; empty where it is not there.

        Raises
        ------
        InputError
            If the file holds something else.
        """
        if self.path is None or not self.path.exists():
            return {}, {}
        try:
            data = json.loads(read_text(self.path))
            if data["version"] != self.version:
                raise ValueError
            return data, dict(data[entries])
        except InputError:
            raise
        except (ValueError, KeyError, TypeError, RecursionError):
            raise self.refusal(f"no history of {self.of}; allowed: one saved before.") from None

    def refusal(self, message: str) -> InputError:
        """Return what is wrong with the file."""
        return InputError(Problem(str(self.path), message))

    def write(self, data: dict[str, Any], *, now: bool) -> None:
        """Write the file ``now``, or if it was not written for 2 s."""
        if self.path is not None and (now or time.monotonic() - self._saved > SAVE_EVERY):
            text = json.dumps({"version": self.version} | data, allow_nan=False)
            write_atomically(self.path, text + "\n")
            self._saved = time.monotonic()


class HistoryFile:
    """The histories of searches by name, in one JSON file; a path of None saves nothing.

    Parameters
    ----------
    path : Path or None
        Read if it is there. A reader sees an old file or a new one, never a part.

    Raises
    ------
    InputError
        If the file holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self._file = SavedFile(path, VERSION, "a search")
        self._entries: dict[str, dict[str, Any]] = self._file.read("searches")[1]

    def history(self, name: str, key: str, names: tuple[str, ...]) -> History:
        """Return the history of a search, an empty one where there is none.

        Raises
        ------
        InputError
            If it is broken, or that of another search.
        """
        found = History(key=key, names=names)
        if name not in self._entries:
            return found
        try:
            entry = self._entries[name]
            same = entry["key"] == key
            for point, value, feasible, probe in entry["evaluated"]:
                e = Evaluated(
                    point=tuple(map(float, point)),
                    value=float(value),
                    feasible=bool(feasible),
                    probe=bool(probe),
                )
                if (len(e.point) != len(names) and same) or not math.isfinite(e.value):
                    raise ValueError
                found.evaluated.append(e)
        except (ValueError, KeyError, TypeError):
            raise self._file.refusal(f'the history of "{name}" is broken.') from None
        if not same:
            raise self._file.refusal(
                f'the history of "{name}" is that of another search: what is asked, its settings '
                "or the version of crosstack differ. Save to another place, or remove it."
            )
        return found

    def put(self, name: str, history: History, *, now: bool = True) -> None:
        """Take up a history; write the file ``now``, or if it was not written for 2 s."""
        if self.path is None:
            return
        self._entries[name] = {
            "key": history.key,
            "names": list(history.names),
            "evaluated": [
                [list(e.point), e.value, int(e.feasible), int(e.probe)] for e in history.evaluated
            ],
        }
        self._file.write({"searches": self._entries}, now=now)
