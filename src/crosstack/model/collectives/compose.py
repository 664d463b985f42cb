"""Time of a collective among a group of chips, over all levels of the network it spans.

Each level has the algorithms of `crosstack.model.collectives.algorithms`; the fastest for every
size is kept. The levels follow one another: of an all-gather the outer ones move the 1/p that a
chip holds of p inside, through the ports of all p (the *rails* of a group in servers). Or rings
pass all levels at once, one for each rail. An all-reduce may scatter its sums over a level and
gather them again after the levels outside of it, or sum the whole tensor level by level, which
takes fewer steps. What arrives at a chip by one level is taken in before the next follows
(`crosstack.model.collectives.times`).

References: ``thakur2005``, ``rashidi2020astrasim`` (levels one after the other),
``chan2006multilink`` (axes of a torus at the same time), ``wang2023railonly`` (rails),
``jeaugey2019nccl`` (rings and trees of a server's ports).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from typing import assert_never

import numpy as np

from crosstack.machine.network import Joint, Medium
from crosstack.machine.system import AllReduceAlgorithm
from crosstack.model.collectives.algorithms import Algorithm, algorithms, algorithms_of
from crosstack.model.collectives.group import Axis, Group, axes_of
from crosstack.model.collectives.own_kernels import OwnKernel, own_all_reduce
from crosstack.model.collectives.protocols import (
    CHANNELS,
    IN_BUFFERS,
    IN_SWITCH,
    LL,
    PROTOCOLS,
    SIMPLE,
    Protocol,
    Steps,
)
from crosstack.model.collectives.times import NONE, NOTHING, AffineTime, Arrival, ConcaveTime, least
from crosstack.workload.kernels import Collective

GATHER, SCATTER, REDUCE = Collective.ALL_GATHER, Collective.REDUCE_SCATTER, Collective.ALL_REDUCE
EXCHANGE, SEND = Collective.ALL_TO_ALL, Collective.POINT_TO_POINT


Level = tuple[Axis, ...]


def collective_lines(
    collective: Collective,
    group: Group,
    *,
    arrival: Arrival = NONE,
    all_reduce: AllReduceAlgorithm | None = None,
) -> ConcaveTime:
    """Time of a collective over its bytes.

    Links are full duplex. Of levels one after the other, times add up; in an all-to-all every
    level has its own share of the messages at the same time, so the slowest counts.

    Parameters
    ----------
    collective, group
        What is done with a tensor, and among which chips.
    arrival : Arrival
        What a chip takes for what arrives. A message alone is no kernel.
    all_reduce : AllReduceAlgorithm or None
        How sums are made on every level where that is possible; None: as is fastest.
    """
    found = _lines if group.many or arrival.many else _known
    return found(collective, group, arrival, all_reduce)


def _lines(
    collective: Collective, group: Group, arrival: Arrival, all_reduce: AllReduceAlgorithm | None
) -> ConcaveTime:
    levels = _levels(group)
    if not levels:
        return NOTHING
    if all(axis.medium is None for level in levels for axis in level):
        found = _Levels(arrival, all_reduce, None).among(collective, levels)
        launch = 0.0 if collective is SEND else arrival.launch
        return found + ConcaveTime((AffineTime(fixed=arrival.latency + launch),))
    own: tuple[AffineTime, ...] = ()
    if collective is REDUCE and arrival.own and all_reduce in (None, AllReduceAlgorithm.DIRECT):
        own = _own_kernels(levels, arrival)
    if own and all_reduce is not None:
        return least(own)
    pace = max(axis.pace for level in levels for axis in level if axis.medium is not None)
    lines: list[AffineTime] = [*own]
    for protocol in _protocols(collective, levels, all_reduce):
        found = _Levels(arrival, all_reduce, protocol).among(collective, levels)
        lines += (found + ConcaveTime((AffineTime(fixed=pace * protocol.start),))).members
    return least(lines)


def _protocols(
    collective: Collective, levels: tuple[Level, ...], all_reduce: AllReduceAlgorithm | None
) -> tuple[Protocol, ...]:
    """Return the protocols for a collective; switches are asked to add by one alone."""
    switches = any(axis.reduces for level in levels for axis in level)
    if collective is REDUCE and all_reduce is AllReduceAlgorithm.IN_NETWORK and switches:
        return (SIMPLE,)
    return _PROTOCOLS.get(collective, PROTOCOLS)


def _own_kernels(levels: tuple[Level, ...], arrival: Arrival) -> tuple[AffineTime, ...]:
    """Return the times of kernels for few bytes in one server; nothing among several."""
    (axis, *others) = (axis for level in levels for axis in level)
    if others or axis.medium is not Medium.NVLINK:
        return ()
    return own_all_reduce(axis, OwnKernel.SENDS, arrival.per_byte(1 / axis.members))


# Of messages between two chips; those of pipelines are long.
_PROTOCOLS = {EXCHANGE: (LL, SIMPLE), SEND: (SIMPLE,)}
_known = lru_cache(maxsize=4096)(_lines)


def is_legal(algorithm: AllReduceAlgorithm, group: Group) -> bool:
    """Whether some level of a group can make sums that way."""
    return any(
        row.name is algorithm
        for level in _levels(group)
        for axis in level
        for row in algorithms(REDUCE, axis.joint, axis.members, reduces=axis.reduces)
    )


def _levels(group: Group) -> tuple[Level, ...]:
    levels = tuple(axes for axes in map(axes_of, group.extents) if axes)
    if group.torn is None or not levels:
        return levels
    # One by one: no faster than the slowest level, by way of all of them.
    axes = [axis for level in levels for axis in level]
    slowest = reduce(
        np.minimum,
        (axis.achieved * axis.bandwidth / max(axis.near_share, axis.far_share) for axis in axes),
    )
    latency = sum(axis.latency for axis in axes)
    one = Axis(joint=Joint.PORT, members=group.torn, bandwidth=slowest, latency=latency)
    return ((one,),)


@dataclass(frozen=True, slots=True)
class _Levels:
    """Collectives over levels, each of one axis or, on a mesh or torus, of several.

    By one ``protocol`` on all levels that a library of collectives knows; None: there are none.
    """

    arrival: Arrival
    only: AllReduceAlgorithm | None
    protocol: Protocol | None

    def among(self, collective: Collective, levels: tuple[Level, ...]) -> ConcaveTime:
        """Time of a collective without what its call takes."""
        match collective:
            case Collective.ALL_GATHER | Collective.REDUCE_SCATTER:
                return self.shrinking(collective, levels)
            case Collective.ALL_REDUCE | Collective.BROADCAST:
                return self.whole(collective, levels)
            case Collective.ALL_TO_ALL:
                return self.exchange(levels)
            case Collective.POINT_TO_POINT:
                return self.send(levels)
            case _:
                assert_never(collective)

    def rows(self, collective: Collective, axis: Axis) -> ConcaveTime:
        """Fastest algorithm among the members of one axis; of ``only``, where that is legal."""
        rows = self._algorithms(collective, axis)
        if collective is REDUCE:
            rows = tuple(row for row in rows if self.only in (None, row.name)) or rows
        return least(line for row in rows for line in self._lines(row, axis, self.arrival))

    def _algorithms(self, collective: Collective, axis: Axis) -> tuple[Algorithm, ...]:
        if self.protocol is None or axis.medium is None:
            return algorithms(collective, axis.joint, axis.members, reduces=axis.reduces)
        return algorithms_of(collective, axis, adding=self.protocol.adding)

    def _steps(self, axis: Axis) -> Steps | None:
        """Return what the protocol has over the links of an axis; None where it has nothing."""
        return self.protocol.steps[axis.medium] if self.protocol and axis.medium else None

    def _per_byte(self, axis: Axis, steps: Steps | None, peers: int | None = None) -> float:
        """Time of a byte over a link, as far as the library brings it there. [s/B]

        ``peers``: to how many chips short messages go at once, each by a channel; None: by all.
        """
        if steps is None:
            return 1 / (axis.achieved * axis.bandwidth)
        most = steps.most
        if peers is not None and self.protocol is LL:
            most *= min(1.0, peers / CHANNELS)
        return 1 / (min(steps.share * axis.achieved, most) * axis.bandwidth)

    def _lines(self, row: Algorithm, axis: Axis, arrival: Arrival) -> tuple[AffineTime, ...]:
        shared = axis.near_share if row.near else axis.far_share
        steps = self._steps(axis)
        peers = axis.members - 1 if row.name is AllReduceAlgorithm.DIRECT else None
        moved = row.load * shared * self._per_byte(axis, steps, peers)
        if steps is None:
            moved += arrival.per_byte(row.arrives, row.added)
            return (AffineTime(fixed=row.steps * axis.latency, per_byte=moved),)
        kept = arrival.per_byte(row.arrives)
        if row.name is not AllReduceAlgorithm.IN_NETWORK:
            step = steps.tree if row.name is AllReduceAlgorithm.TREE else steps.ring
            fixed = row.steps * axis.slowness * step
            return (AffineTime(fixed=fixed, per_byte=moved + kept),)
        # What fills the buffers waits for all; of more, the rest does meanwhile.
        fixed, moved = axis.slowness * IN_SWITCH, moved / axis.adding
        filled = fixed + IN_BUFFERS * axis.members * kept
        first = AffineTime(fixed=fixed, per_byte=moved + kept)
        return first, AffineTime(fixed=filled, per_byte=moved)

    def shrinking(self, collective: Collective, levels: tuple[Level, ...]) -> ConcaveTime:
        """All-gather, or its mirror: each level moves what those inside of it left."""
        total, share = NOTHING, 1.0
        for level in levels:
            total = total + self._level(collective, level).of_share(share)
            share /= _members(level)
        return least((*total.members, *self._rails(collective, levels)))

    def whole(self, collective: Collective, levels: tuple[Level, ...]) -> ConcaveTime:
        """All-reduce, or broadcast: a level scatters and gathers, or has all of the tensor."""
        level, rest = levels[0], levels[1:]
        if len(level) == 1:
            here = self.rows(collective, level[0])
        else:
            here = self.whole(collective, tuple((axis,) for axis in _at_once(level)))
        if not rest:
            return here
        outside = self.whole(collective, rest)
        # Of a broadcast a chip gets its share by the scatter, or from outside.
        first = self if collective is REDUCE else replace(self, arrival=NONE)
        scattered = first._level(SCATTER, level) + self._level(GATHER, level)
        scattered = scattered + outside.of_share(1 / _members(level))
        rings: tuple[AffineTime, ...] = ()
        if collective is REDUCE and self.only in (None, AllReduceAlgorithm.RING):
            rings = self._rails(collective, levels)
        return least((*(here + outside).members, *scattered.members, *rings))

    def exchange(self, levels: tuple[Level, ...]) -> ConcaveTime:
        """All-to-all: by way of every level, all of them at the same time."""
        axes = [axis for level in levels for axis in level]
        chips, fixed, slowest, arrives = _members(axes), 0.0, 0.0, 0.0
        for axis in axes:
            (row,) = self._algorithms(EXCHANGE, axis)
            (line,), share = self._lines(row, axis, NONE), axis.members / chips
            fixed += line.fixed
            slowest = _larger(slowest, line.per_byte * share)
            arrives += row.arrives * share
        return ConcaveTime(
            (AffineTime(fixed=fixed, per_byte=slowest + self.arrival.per_byte(arrives)),)
        )

    def send(self, levels: tuple[Level, ...]) -> ConcaveTime:
        """Send to the next in the order: all wait for those whose way is the slowest."""
        found = [self.rows(SEND, axis).members[0] for level in levels for axis in level]
        fixed = reduce(_larger, (one.fixed for one in found))
        per_byte = reduce(_larger, (one.per_byte for one in found))
        return ConcaveTime((AffineTime(fixed=fixed, per_byte=per_byte),))

    def _level(self, collective: Collective, level: Level) -> ConcaveTime:
        """All-gather, or its mirror, on one level; axes take turns, each with all of its part."""
        total, share = NOTHING, 1.0
        for axis in _at_once(level):
            total = total + self.rows(collective, axis).of_share(share)
            share /= axis.members
        return total

    def _rails(self, collective: Collective, levels: tuple[Level, ...]) -> tuple[AffineTime, ...]:
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
            steps = self._steps(axis)
            latency = axis.latency if steps is None else axis.slowness * steps.ring
            fixed += chips / inside * (1 - 1 / axis.members) * latency
            slowest = _larger(slowest, axis.near_share * self._per_byte(axis, steps) / inside)
            inside *= axis.members
        around = (chips - 1) / chips
        halves = 2 if collective is REDUCE else 1
        added = 0.0 if collective is GATHER else around
        taken = self.arrival.per_byte(halves * around, added)
        if self.protocol is not None:
            taken = self.arrival.per_byte(1 / chips)
        return (AffineTime(fixed=halves * fixed, per_byte=halves * around * slowest + taken),)


def _members(axes: Sequence[Axis]) -> int:
    return math.prod(axis.members for axis in axes)


def _at_once(level: Level) -> Level:
    """Return the axes of a level as they are with all orders of equal axes at once.

    Of d equal axes, with d parts, each beginning with another axis, every axis always works on one
    of them: each moves its part in the d-th of the time. What arrives by all is taken in by one
    chip, however.
    """
    if len({(axis.joint, axis.members, axis.stride) for axis in level}) > 1:
        return level
    return tuple(replace(axis, bandwidth=axis.bandwidth * len(level)) for axis in level)


def _larger(one: float, other: float) -> float:
    """Return the larger of two numbers, or of each pair where they are arrays."""
    if isinstance(other, np.ndarray) or isinstance(one, np.ndarray):
        return np.maximum(one, other)
    return max(one, other)
