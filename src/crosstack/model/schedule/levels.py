"""When passes end that each begin once those before them have, level by level.

A pass waits for the one before it on its chip and for those that hand it a microbatch; a send, for
the one before it on its link and for what it sends. Those that wait for nothing but what earlier
levels do are one array operation, however many pipelines are looked at.

Once a pipeline is filled, chips take the same passes turn after turn, and each waits for others no
more than a few turns before. If that many turns all end as much later than those a period
before, whatever chip they are on, so does every turn after them, as when a pass ends is the
maximum of sums: what so many microbatches take is then known of fewer (`through_many`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Protocol

import numpy as np

from crosstack.workload.kernel_graph import Floats, Ints

NONE = 0  # what those wait for that wait for nothing
NOWHERE = (-1, 0)  # the place of what is in no turn
SAME = 4e-15  # relative to when the last one ends: times that differ by rounding alone


@dataclass(slots=True)
class LevelBuilder:
    """Passes and sends in an order in which each comes behind what it waits for."""

    waits: list[int] = field(default_factory=lambda: [NONE, NONE, NONE])  # three of each
    takes: list[int] = field(default_factory=lambda: [0])
    level: list[int] = field(default_factory=lambda: [0])
    at: list[tuple[int, int]] = field(default_factory=lambda: [NOWHERE])

    def add(
        self,
        takes: int,
        one: int,
        other: int = NONE,
        third: int = NONE,
        *,
        at: tuple[int, int] = NOWHERE,
    ) -> int:
        """Add what takes the time of a number, behind up to three others; return its number.

        ``at``: which of its turn it is, and the number of that.
        """
        level, number = self.level, len(self.level)
        self.waits += (one, other, third)
        self.takes.append(takes)
        self.at.append(at)
        most, next_ = level[one], level[other]  # compared by hand: many are built
        if next_ > most:
            most = next_
        if third and level[third] > most:
            most = level[third]
        level.append(most + 1)
        return number

    def build(self, ends: list[int], steady: Steady | None = None) -> Levels:
        """Return all of them, and those whose ends are asked for.

        ``steady``: turns in which every chip does the same, if there are some.
        """
        level = np.array(self.level)
        order = np.argsort(level, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        waits = place[np.array(self.waits, np.int32).reshape(-1, 3)[order]]
        three = bool((waits[:, 2] != NONE).any())
        at = np.array(self.at)[order] if steady else None
        return Levels(
            waits=tuple(np.ascontiguousarray(x) for x in waits.T[: 2 + three]),
            takes=np.array(self.takes)[order],
            borders=np.flatnonzero(np.diff(level[order])) + 1,
            ends=place[np.array(ends, dtype=np.int64)],
            repeated=None if steady is None or at is None else _repeated(waits, at, steady),
        )


@dataclass(frozen=True, slots=True)
class Steady:
    """Turns from ``first`` to ``last`` in which every chip does what it does a ``period`` later."""

    first: int
    last: int
    period: int


def _repeated(waits: Ints, at: Ints, steady: Steady) -> tuple[Ints, Ints] | None:
    """Return passes and sends of the last steady turns, and the same a period before.

    Of as many turns as any waits for back. None where turns are too few, or do not repeat.
    """
    (place, turn), period = at.T, steady.period
    later = np.flatnonzero((turn > steady.first) & (place >= 0))
    lags = turn[later][:, None] - turn[waits[later]]
    lags = np.where(waits[later] == NONE, 0, lags)
    depth = max(int(lags.max(initial=0)), period)
    if lags.min(initial=0) < 0 or steady.last - depth - period < steady.first:
        return None
    known = {tuple(one): n for n, one in enumerate(at.tolist()) if one != list(NOWHERE)}
    now = np.flatnonzero((turn > steady.last - depth) & (turn <= steady.last) & (place >= 0))
    before = [known.get((int(place[n]), int(turn[n]) - period)) for n in now]
    if None in before:
        return None
    return now, np.array(before, dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """Passes and sends by level: what they wait for, and which of the times each takes.

    ``borders`` are the first of each level, ``ends`` those that are asked for; ``repeated`` those
    of the last steady turns and of the ones a period before, if there are enough.
    """

    waits: tuple[Ints, ...]
    takes: Ints
    borders: Ints
    ends: Ints
    repeated: tuple[Ints, Ints] | None = None

    def through(self, times: Floats) -> Floats:
        """Return when those that are asked for end, of shape (ends, ...). [s]

        Parameters
        ----------
        times : array, shape (kinds, ...)
            What each kind of pass or send takes, of any number of pipelines. [s]
        """
        return np.asarray(self._every(times)[self.ends])

    def settled(self, times: Floats) -> tuple[Floats, Floats] | None:
        """Return `through`, and how much later all end for a period more; None: not yet as much.

        [s]
        """
        if self.repeated is None:
            return None
        end = self._every(times)
        now, before = self.repeated
        later = end[now] - end[before]
        most = later.max(axis=0)
        if np.any(most - later.min(axis=0) > SAME * end.max()):
            return None
        return np.asarray(end[self.ends]), np.asarray(most)

    def _every(self, times: Floats) -> Floats:
        """Return when all of them end. [s]"""
        end = times[self.takes]
        end[0] = 0.0
        borders = [*self.borders.tolist(), len(end)]
        for low, high in pairwise(borders):
            begin = end[self.waits[0][low:high]]
            for others in self.waits[1:]:
                np.maximum(begin, end[others[low:high]], out=begin)
            end[low:high] += begin
        return np.asarray(end)


FEW, MORE = 3, 3  # microbatches a chip that are looked at first, and as many times more after that


class LevelsOf(Protocol):
    """Levels of so many microbatches, with the turns of each pass or without."""

    def __call__(self, microbatches: int, /, *, turns: bool) -> Levels:
        """Return the levels of so many microbatches."""


def few_microbatches(chips: int) -> int:
    """Microbatches through so many chips, after which turns mostly repeat. [1]"""
    return FEW * (chips + 2)


def through_many(
    levels_of: LevelsOf, times: Floats, chips: int, microbatches: int, each: int
) -> Floats:
    """When chips are through with microbatches, of which fewer may tell, shape (chips, ...). [s]

    Parameters
    ----------
    levels_of : callable
        The levels of so many microbatches, a multiple of ``each``, with turns or without.
    times : array, shape (kinds, ...)
        As `Levels.through`. [s]
    chips, microbatches, each : int
        Of a pipeline, of an iteration, of a period. [1]
    """
    some = -(-few_microbatches(chips) // each) * each
    while some < microbatches:
        found = levels_of(some, turns=True).settled(times)
        if found is not None:
            ends, later = found
            return np.asarray(ends + (microbatches - some) / each * later)
        some *= MORE
    return levels_of(microbatches, turns=False).through(times)
