"""Time of a collective among a group of chips, over all levels of the network it spans.

Each level has the algorithms of `crosstack.model.collectives.algorithms`; here they are put
together, and the fastest for every size is kept. The levels follow one another: of an all-gather
the outer ones move the 1/p that a chip holds of p inside, through the ports of all p (the *rails*
of a group in servers). Or rings pass all levels at once, one for each rail. An all-reduce may
scatter its sums over a level and gather them again after the levels outside of it, or sum the
whole tensor level by level, which takes fewer steps.

References: ``thakur2005``, ``rashidi2020astrasim`` (levels one after the other),
``chan2006multilink`` (axes of a torus at the same time), ``wang2023railonly`` (rails),
``jeaugey2019nccl`` (rings and trees of a server's ports).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import assert_never

import numpy as np

from crosstack.machine.system import AllReduceAlgorithm
from crosstack.model.collectives.algorithms import Algorithm, Joint, algorithms
from crosstack.model.collectives.group import Axis, Group, axes_of
from crosstack.model.collectives.lines import NOTHING, Line, Lines, least
from crosstack.workload.graph import Collective

__all__ = ["FREE", "Adding", "collective_lines", "is_legal"]

GATHER, SCATTER, REDUCE = Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE
EXCHANGE, SEND = Collective.ALL_TO_ALL, Collective.POINT_TO_POINT


@dataclass(frozen=True, slots=True, kw_only=True)
class Adding:
    """What a chip takes to add what arrives: ``per_byte`` [s/B], and ``launch`` each time [s]."""

    per_byte: float = 0.0
    launch: float = 0.0


FREE = Adding()
Level = tuple[Axis, ...]


def collective_lines(
    collective: Collective,
    group: Group,
    *,
    adding: Adding = FREE,
    all_reduce: AllReduceAlgorithm | None = None,
) -> Lines:
    """Time of a collective over its bytes.

    Parameters
    ----------
    collective : Collective
        What is done with a tensor; its bytes are those of
        `crosstack.model.collectives.algorithms`.
    group : Group
        Among which chips.
    adding : Adding
        What additions on a chip take; nothing unless given.
    all_reduce : AllReduceAlgorithm or None
        How sums are made on every level where that is possible; None: as is fastest.

    Notes
    -----
    Links are full duplex. Of levels one after the other, times add up; in an all-to-all every
    level has its own share of the messages at the same time, so the slowest counts.
    """
    found = _lines if group.many else _known
    return found(collective, group, adding, all_reduce)


def _lines(
    collective: Collective, group: Group, adding: Adding, all_reduce: AllReduceAlgorithm | None
) -> Lines:
    levels = _levels(group)
    if not levels:
        return NOTHING
    over = _Levels(adding, all_reduce)
    match collective:
        case Collective.ALL_GATHER | Collective.REDUCE_SCATTER:
            return over.shrinking(collective, levels)
        case Collective.ALL_REDUCE | Collective.BROADCAST:
            return over.whole(collective, levels)
        case Collective.ALL_TO_ALL:
            return over.exchange(levels)
        case Collective.POINT_TO_POINT:
            return over.send(levels)
        case _:
            assert_never(collective)


_known = lru_cache(maxsize=4096)(_lines)


def is_legal(algorithm: AllReduceAlgorithm, group: Group) -> bool:
    """Whether some level of a group can make sums that way."""
    return any(
        row.name is algorithm
        for level in _levels(group)
        for axis in level
        for row in algorithms(REDUCE, axis.joint, reduces=axis.reduces)
    )


def _levels(group: Group) -> tuple[Level, ...]:
    levels = tuple(axes for axes in map(axes_of, group.extents) if axes)
    if group.torn is None or not levels:
        return levels
    # One by one: no faster than the slowest level, by way of all of them.
    axes = [axis for level in levels for axis in level]
    slowest = min(axis.bandwidth / max(axis.near_share, axis.far_share) for axis in axes)
    latency = sum(axis.latency for axis in axes)
    one = Axis(joint=Joint.PORT, members=group.torn, bandwidth=slowest, latency=latency)
    return ((one,),)


@dataclass(frozen=True, slots=True)
class _Levels:
    """Collectives over levels, each of one axis or, on a mesh or torus, of several."""

    adding: Adding
    only: AllReduceAlgorithm | None

    def rows(self, collective: Collective, axis: Axis, adding: Adding | None = None) -> Lines:
        """Fastest algorithm among the members of one axis; of ``only``, where that is legal."""
        rows = algorithms(collective, axis.joint, reduces=axis.reduces)
        if collective is REDUCE:
            rows = tuple(row for row in rows if self.only in (None, row.name)) or rows
        return least(_line(row, axis, adding or self.adding) for row in rows)

    def shrinking(
        self, collective: Collective, levels: tuple[Level, ...], adding: Adding | None = None
    ) -> Lines:
        """All-gather, or its mirror: each level moves what those inside of it left."""
        total, share = NOTHING, 1.0
        for level in levels:
            total = total + self._level(collective, level, adding).of_share(share)
            share /= _members(level)
        return least((*total.members, *self._rails(collective, levels, adding)))

    def whole(self, collective: Collective, levels: tuple[Level, ...]) -> Lines:
        """All-reduce, or broadcast: a level scatters and gathers, or has all of the tensor."""
        level, rest = levels[0], levels[1:]
        here = self._whole_level(collective, level)
        if not rest:
            return here
        outside = self.whole(collective, rest)
        adding = self.adding if collective is REDUCE else FREE
        scattered = self._level(SCATTER, level, adding) + self._level(GATHER, level)
        scattered = scattered + outside.of_share(1 / _members(level))
        rings: tuple[Line, ...] = ()
        if collective is REDUCE and self.only in (None, AllReduceAlgorithm.RING):
            rings = self._rails(collective, levels)
        return least((*(here + outside).members, *scattered.members, *rings))

    def exchange(self, levels: tuple[Level, ...]) -> Lines:
        """All-to-all: by way of every level, all of them at the same time."""
        axes = [axis for level in levels for axis in level]
        chips = _members(axes)
        found = [self.rows(EXCHANGE, axis).of_share(axis.members / chips) for axis in axes]
        lines = [line for lines in found for line in lines.members]  # one each
        fixed = sum(line.fixed for line in lines)
        slowest = reduce(_larger, (line.per_byte for line in lines))
        return Lines((Line(fixed=fixed, per_byte=slowest),))

    def send(self, levels: tuple[Level, ...]) -> Lines:
        """Send to the next in the order: all wait for those whose way is the slowest."""
        found = [self.rows(SEND, axis).members[0] for level in levels for axis in level]
        fixed = reduce(_larger, (one.fixed for one in found))
        per_byte = reduce(_larger, (one.per_byte for one in found))
        return Lines((Line(fixed=fixed, per_byte=per_byte),))

    def _level(self, collective: Collective, level: Level, adding: Adding | None = None) -> Lines:
        """All-gather, or its mirror, on one level; axes take turns, each with all of its part."""
        total, share = NOTHING, 1.0
        for axis in level:
            total = total + self.rows(collective, axis, adding).of_share(share)
            share /= axis.members
        return total.of_share(_at_once(level))

    def _whole_level(self, collective: Collective, level: Level) -> Lines:
        if len(level) == 1:
            return self.rows(collective, level[0])
        return self.whole(collective, tuple((a,) for a in level)).of_share(_at_once(level))

    def _rails(
        self, collective: Collective, levels: tuple[Level, ...], adding: Adding | None = None
    ) -> tuple[Line, ...]:
        """Rings through all chips, one for each chip of the levels below the outermost.

        Each ring goes through all of a block before it leaves it, every ring by another port: of
        K chips inside, each sends 1/K of what goes round out of the block.
        """
        axes = [axis for level in levels for axis in level]
        ports = all(axis.joint is Joint.PORT for axis in axes)
        if len(axes) < 2 or not ports:
            return ()
        chips, inside, fixed, slowest = _members(axes), 1, 0.0, 0.0
        for axis in axes:
            fixed += chips / inside * (1 - 1 / axis.members) * axis.latency
            slowest = _larger(slowest, axis.near_share / axis.bandwidth / inside)
            inside *= axis.members
        around = (chips - 1) / chips
        halves = 2 if collective is REDUCE else 1
        fixed, per_byte = halves * fixed, halves * around * slowest
        if collective is not GATHER:
            taken = adding or self.adding
            fixed += (chips - 1) * taken.launch
            per_byte += around * taken.per_byte
        return (Line(fixed=fixed, per_byte=per_byte),)


def _line(row: Algorithm, axis: Axis, adding: Adding) -> Line:
    p = axis.members
    shared = axis.near_share if row.near else axis.far_share
    return Line(
        fixed=row.steps(p) * axis.latency + row.additions(p) * adding.launch,
        per_byte=row.load(p) * shared / axis.bandwidth + row.added(p) * adding.per_byte,
    )


def _members(axes: Sequence[Axis]) -> int:
    return math.prod(axis.members for axis in axes)


def _at_once(level: Level) -> float:
    """Share of a tensor that one of several orders of equal axes takes, all orders at once. [1]

    With d parts, each beginning with another axis, every axis always works on one of them.
    """
    kinds = {(axis.joint, axis.members, axis.stride) for axis in level}
    return 1 / len(level) if len(kinds) == 1 else 1.0


def _larger(one: float, other: float) -> float:
    """Return the larger of two numbers, or of each pair where they are arrays."""
    if isinstance(other, np.ndarray) or isinstance(one, np.ndarray):
        return np.maximum(one, other)
    return max(one, other)
