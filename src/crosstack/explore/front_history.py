"""Mappings that a search for a front has made so far, as a file that it can go on from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from crosstack.explore.history import SavedFile, key_of
from crosstack.version import __version__

__all__ = ["FrontHistory"]

VERSION = 1
_NUMBERS, _COUNTS = ("time", "bound"), ("tensor", "pipeline", "data")
_WORDS = ("status", "bound_by")


class FrontHistory:
    """Answers by the number of their candidate, in one JSON file; a path of None saves nothing.

    A search draws the same candidates again from its seed, and takes what was mapped from here.

    Raises
    ------
    InputError
        If the file holds something else.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.reused = 0
        self._key = ""
        self._file = SavedFile(path, VERSION, "a front")
        data, self._answers = self._file.read("answers")
        self._found = self._key_in(data)

    def _key_in(self, data: dict[str, Any]) -> str:
        """Return whose answers a file holds; empty where it is not there."""
        if data and "key" not in data:
            raise self._file.refusal("no history of a front; allowed: one saved before.")
        return str(data.get("key", ""))

    def open(self, key: object) -> None:
        """Say whose answers these are.

        Raises
        ------
        InputError
            If the file holds those of another search.
        """
        self._key = key_of({"version": __version__, "problem": key})
        if self._found and self._found != self._key:
            raise self._file.refusal(
                "the history is that of another search: what is asked, its settings or the "
                "version of crosstack differ. Save to another place, or remove it."
            )

    def take(self, number: int, point: tuple[float, ...]) -> dict[str, Any] | None:
        """Return the saved answer of a candidate; None where there is none.

        Raises
        ------
        InputError
            If it is broken.
        """
        entry = self._answers.get(str(number))
        if entry is None:
            return None
        try:
            entry = dict(entry)
            if tuple(entry.pop("point")) != point:
                raise ValueError
            if set(entry) == {"reason"}:
                good = isinstance(entry["reason"], str)
            else:
                good = set(entry) == {*_NUMBERS, *_COUNTS, *_WORDS} and all(
                    isinstance(entry[name], float) and 0 <= entry[name] < math.inf
                    for name in _NUMBERS
                )
                good &= all(isinstance(entry[name], int) for name in _COUNTS)
                good &= all(isinstance(entry[name], str) for name in _WORDS)
            if not good:
                raise ValueError
        except (ValueError, KeyError, TypeError):
            raise self._file.refusal(f"the answer of candidate {number} is broken.") from None
        self.reused += 1
        return entry

    def put(self, number: int, point: tuple[float, ...], answer: dict[str, Any]) -> None:
        """Take up an answer."""
        if self.path is not None:
            self._answers[str(number)] = {"point": list(point), **answer}

    def save(self, *, now: bool = True) -> None:
        """Write the file ``now``, or if it was not written for 2 s."""
        self._file.write({"key": self._key, "answers": self._answers}, now=now)
