"""Where a study stands, for everyone who waits: one record, and what makes it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

__all__ = ["Meter", "Progress", "Tell"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a sweep or a search stands.

    ``done`` of ``total`` points, ``fresh`` of them in this run; ``rate`` in points per second
    [1/s], ``left`` the time that the others take at that rate [s]; ``counts`` by status of this
    run. ``at``: what is looked at now; ``best``: the least objective so far.
    """

    done: int
    total: int
    fresh: int
    rate: float
    left: float
    counts: Mapping[str, int] = field(default_factory=dict)
    at: str = ""
    best: float | None = None


Tell = Callable[[Progress], None]


class Meter:
    """Tells somebody, or nobody, where a study stands, at the rate since it was made."""

    def __init__(self, tell: Tell | None) -> None:
        self._tell = tell
        self._started = time.monotonic()

    def show(
        self,
        done: int,
        total: int,
        *,
        fresh: int | None = None,
        counts: Mapping[str, int] | None = None,
        at: str = "",
        best: float | None = None,
    ) -> None:
        """Tell where it stands; ``fresh``: points of this run, all where it is left out."""
        if self._tell is None:
            return
        new = done if fresh is None else fresh
        rate = new / max(time.monotonic() - self._started, 1e-9)
        self._tell(
            Progress(
                done=done,
                total=total,
                fresh=new,
                rate=rate,
                left=(total - done) / rate if rate else 0.0,
                counts=dict(counts or {}),
                at=at,
                best=best,
            )
        )
