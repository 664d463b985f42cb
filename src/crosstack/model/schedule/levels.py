"""When passes end that each begin once those before them have, level by level.

A pass waits for the one before it on its chip and for those that hand it a microbatch; a send, for
the one before it on its link and for what it sends. Those that wait for nothing but what earlier
levels do are one array operation, however many pipelines are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from crosstack.workload.kernel_graph import Floats, Ints

NONE = 0  # what those wait for that wait for nothing


@dataclass(slots=True)
class LevelBuilder:
    """Passes and sends in an order in which each comes behind what it waits for."""

    waits: list[int] = field(default_factory=lambda: [NONE, NONE, NONE])  # three of each
    takes: list[int] = field(default_factory=lambda: [0])
    level: list[int] = field(default_factory=lambda: [0])

    def add(self, takes: int, one: int, other: int = NONE, third: int = NONE) -> int:
        """Add what takes the time of a number, behind up to three others; return its number."""
        level, number = self.level, len(self.level)
        self.waits += (one, other, third)
        self.takes.append(takes)
        most, next_ = level[one], level[other]  # compared by hand: millions of them are built
        if next_ > most:
            most = next_
        if third and level[third] > most:
            most = level[third]
        level.append(most + 1)
        return number

    def build(self, ends: list[int]) -> Levels:
        """Return all of them, and those whose ends are asked for."""
        level = np.array(self.level)
        order = np.argsort(level, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        waits = place[np.array(self.waits, np.int32).reshape(-1, 3)[order]]
        three = bool((waits[:, 2] != NONE).any())
        return Levels(
            waits=tuple(np.ascontiguousarray(x) for x in waits.T[: 2 + three]),
            takes=np.array(self.takes)[order],
            borders=np.flatnonzero(np.diff(level[order])) + 1,
            ends=place[np.array(ends, dtype=np.int64)],
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Levels:
    """Passes and sends by level: what they wait for, and which of the times each takes.

    ``borders`` are the first of each level, ``ends`` those that are asked for.
    """

    waits: tuple[Ints, ...]
    takes: Ints
    borders: Ints
    ends: Ints

    def through(self, times: Floats) -> Floats:
        """Return when those that are asked for end, of shape (ends, ...). [s]

        Parameters
        ----------
        times : array, shape (kinds, ...)
            What each kind of pass or send takes, of any number of pipelines. [s]
        """
        end = times[self.takes]
        end[0] = 0.0
        borders = [*self.borders.tolist(), len(end)]
        for low, high in pairwise(borders):
            begin = end[self.waits[0][low:high]]
            for others in self.waits[1:]:
                np.maximum(begin, end[others[low:high]], out=begin)
            end[low:high] += begin
        return np.asarray(end[self.ends])
