"""What tensors move between partitions at least in a series-parallel graph.

Kernels and tensors are nodes, a tensor between its producer and its readers, in the partition of
its producer. A part between two nodes x and y is reduced to *labels*: what its tensors move at
least [s], by the SRAM that it takes in the partition of y and in that of x [B]. Where x is a tensor
whose only reader of the part is elsewhere, nothing of the part is with x, as a partition holds
every path between its kernels; the label then has the SRAM of the reader's partition instead
(`_Reader`). Where x and y are in one partition, so is all between them: a label of its own.

Series: partitions of the node between close, if they fit the SRAM; a tensor with a reader elsewhere
moves out and in. Parallel: what is in the partitions of both ends adds up, and readers elsewhere
share what enters if they fit one partition. Labels that another one beats in every respect are
dropped; where too many are left, SRAM is rounded down. So the least label of the whole graph bounds
every sequence of partitions. Source of the reductions: ``valdes1982recognition``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from crosstack.mapping.budget import CALL, Budget
from crosstack.model.partition import ChipLoad, alone_sram
from crosstack.workload.kernel_graph import Floats, Ints

MOST_LABELS = 250  # of a part, for each `_Reader`
FINEST = 512  # steps of SRAM where labels are too many, halved until they are few enough
PAIRS_A_UNIT = 200  # of labels; see `crosstack.mapping.budget`
ROUNDING = 1e-9  # relative

SOURCE, SINK = -1, -2


class _Reader(IntEnum):
    """Where the readers of tensor x are, in a part that begins with it."""

    WITH_PRODUCER = 0  # or x is a kernel
    ELSEWHERE = 1  # in a partition that is not that of y either
    WITH_LAST = 2  # in that of y
    MANY = 3  # some of several are elsewhere; where is not known any more


@dataclass(frozen=True, slots=True)
class _Node:
    """A kernel or a tensor: SRAM that it takes in its partition, which has a ``capacity``. [B]

    Of a tensor ``parted`` is what it takes at least where some reader is elsewhere, and in the
    partition of that reader [B]; ``moves`` is what it moves out, and into each of those. [s]
    """

    own: float
    capacity: float
    parted: float = 0.0
    moves: float = 0.0


NOTHING = _Node(own=0.0, capacity=0.0)


@dataclass(frozen=True, slots=True)
class _Labels:
    """What is moved [s], the SRAM at the first and the last node [B], and a `_Reader`, by label."""

    moved: Floats
    first: Floats
    last: Floats
    reader: Ints

    def at(self, reader: _Reader) -> _Labels:
        """Return the labels with readers there."""
        kept = self.reader == reader
        return _Labels(self.moved[kept], self.first[kept], self.last[kept], self.reader[kept])

    @property
    def with_first(self) -> Floats:
        """SRAM in the partition of the first node. [B]"""
        open_ = (self.reader == _Reader.ELSEWHERE) | (self.reader == _Reader.WITH_LAST)
        return np.where(open_, 0.0, self.first)


def _labels(moved: Floats, first: Floats, last: Floats, reader: _Reader) -> _Labels:
    return _Labels(moved, first, last, np.full(len(moved), int(reader)))


@dataclass(frozen=True, slots=True)
class _Part:
    """What lies between two nodes.

    ``labels`` are those where the nodes are in two partitions; ``whole`` is its SRAM where they are
    in one, or None where they cannot be. [B]
    """

    labels: _Labels
    whole: float | None


def _part(some: Iterable[_Labels], whole: float | None, most: float) -> _Part:
    """Return a part without labels that others beat, or that take more than ``most`` SRAM."""
    fields = ("moved", "first", "last", "reader")
    every = list(some)
    joined = _Labels(*(np.concatenate([getattr(one, name) for one in every]) for name in fields))
    kept: list[_Labels] = []
    for reader in _Reader:
        one = joined.at(reader)
        good = (one.first <= most) & (one.last <= most)
        if good.any():
            kept.append(_least(one.moved[good], one.first[good], one.last[good], reader, most))
    columns = (np.concatenate([getattr(one, name) for one in kept or [joined.at(_Reader.MANY)]])
               for name in fields)  # fmt: skip
    return _Part(_Labels(*columns), whole if whole is not None and whole <= most else None)


def _least(moved: Floats, first: Floats, last: Floats, reader: _Reader, most: float) -> _Labels:
    """Return labels that none beats, their SRAM rounded down where they are too many."""
    steps = FINEST
    while len(moved) > MOST_LABELS:
        unit = most / steps
        table = np.full((steps + 1, steps + 1), np.inf)
        a, b = (np.floor(sram / unit).astype(int) for sram in (first, last))
        np.minimum.at(table, (a, b), moved)
        below = np.minimum.accumulate(np.minimum.accumulate(table, axis=0), axis=1)
        beaten = np.full(table.shape, np.inf)
        beaten[1:] = below[:-1]
        beaten[:, 1:] = np.minimum(beaten[:, 1:], below[:, :-1])
        a, b = np.nonzero(table < beaten)
        moved, first, last = table[a, b], np.multiply(a, unit), np.multiply(b, unit)
        steps //= 2
    rank = np.lexsort((last, first, moved))
    moved, first, last = moved[rank], first[rank], last[rank]
    lower = (first[:, None] >= first) & (last[:, None] >= last)  # and moved, which is sorted
    good = ~np.tril(lower, -1).any(axis=1)
    return _labels(moved[good], first[good], last[good], reader)


def _side_by_side(one: _Part, other: _Part, node: _Node, most: float) -> _Part:
    """Return two parts between the same nodes, of which ``node`` is the first, as one."""
    whole = None
    if one.whole is not None and other.whole is not None:
        whole = one.whole + other.whole
    found = [
        _pairs(one.labels.at(a), other.labels.at(b), (a, b), node, most)
        for a in _Reader
        for b in _Reader
    ]
    return _part(found, whole, most)


def _pairs(
    one: _Labels, other: _Labels, readers: tuple[_Reader, _Reader], node: _Node, most: float
) -> _Labels:
    """Return labels of two parts side by side, whose readers are there."""
    moved = one.moved[:, None] + other.moved
    first = one.with_first[:, None] + other.with_first
    last = one.last[:, None] + other.last
    parted = {*readers} - {_Reader.WITH_PRODUCER}
    if _Reader.WITH_PRODUCER not in readers:
        if parted == {_Reader.ELSEWHERE}:  # one partition reads for both, if they fit it
            both = one.first[:, None] + other.first - node.parted
            moved = moved + np.where(both > most, node.moves, 0.0)
        elif parted == {_Reader.ELSEWHERE, _Reader.WITH_LAST}:
            moved = moved + np.full(moved.shape, node.moves)
        elif _Reader.ELSEWHERE not in parted:  # they may share the buffer
            last = last - node.parted
    reader = _Reader.MANY if parted else _Reader.WITH_PRODUCER
    return _labels(moved.ravel(), first.ravel(), np.maximum(last, 0.0).ravel(), reader)


def _behind(one: _Part, other: _Part, node: _Node, most: float) -> _Part:
    """Return a part and the one behind it, with a node between."""
    before, after = one.labels, other.labels
    parted = after.reader != _Reader.WITH_PRODUCER
    moved = after.moved + 2 * node.moves * parted
    taken = after.with_first + np.where(parted, node.parted, node.own)
    inside = before.last[:, None] + taken
    i, j = np.nonzero(inside <= node.capacity)
    reader = before.reader[i]
    ends = reader == _Reader.WITH_LAST  # its partition, that of the node, stays open
    first = np.where(ends, inside[i, j], before.first[i])
    found = [
        _Labels(before.moved[i] + moved[j], first, after.last[j],
                np.where(ends, int(_Reader.ELSEWHERE), reader)),
    ]  # fmt: skip
    if one.whole is not None:  # the node is in the first partition
        found.append(_labels(moved, one.whole + taken, after.last, _Reader.WITH_PRODUCER))
    whole = None
    if other.whole is not None:  # in the last one
        last = before.last + node.own + other.whole
        found.append(_Labels(before.moved, before.first, last, before.reader))
        whole = None if one.whole is None else one.whole + node.own + other.whole
    return _part(found, whole, most)


def least_moved_in_series(load: ChipLoad, *, budget: Budget) -> float:
    """Return a lower bound on what tensors move; 0 if the graph is not series-parallel. [s]

    ``budget`` is what is left to spend; 0 where it does not suffice.
    """
    if load.temporal is not None:
        return 0.0
    return _Reduced(load, budget).least() * (1 - ROUNDING)


class _Reduced:
    """Parts between nodes, joined until one is left; kernels first, then tensors."""

    def __init__(self, load: ChipLoad, budget: Budget) -> None:
        self.budget, n, depth = budget, load.n, load.stream_depth
        alone = [alone_sram(load, i) for i in range(n)]
        self.most = max(load.sram_capacity, *alone) * (1 + ROUNDING)
        self.nodes = [
            _Node(own=held, capacity=max(load.sram_capacity, size) * (1 + ROUNDING))
            for held, size in zip(load.sram, alone, strict=True)
        ]
        self.parts: dict[int, dict[int, _Part]] = {}
        self.before: dict[int, set[int]] = {}
        fed, read = set[int](), set[int]()
        together = _Part(_edge([], 0.0), 0.0)
        apart = _Part(_edge([_Reader.WITH_PRODUCER], 0.0), None)
        for f, flow in enumerate(load.flows, start=n):
            node = _Node(
                own=flow.tile * max(d for _, d in flow.readers),
                capacity=self.most,
                parted=flow.tile * depth,
                moves=flow.moved / load.bandwidth,
            )
            self.nodes.append(node)
            self._join(flow.producer, f, together)
            read.add(flow.producer)
            for reader, _ in flow.readers:
                fed.add(reader)
                self._join(f, reader, _Part(_edge([_Reader.WITH_LAST], node.parted), 0.0))
        for i in range(n):
            if i not in fed:
                self._join(SOURCE, i, apart)
            if i not in read:
                self._join(i, SINK, apart)

    def _join(self, x: int, y: int, part: _Part) -> None:
        """Add a part between two nodes to what is there."""
        there = self.parts.setdefault(x, {})
        if y in there:
            self._count(there[y], part)
            node = self.nodes[x] if x >= 0 else NOTHING
            part = _side_by_side(there[y], part, node, self.most)
        there[y] = part
        self.before.setdefault(y, set()).add(x)

    def _count(self, one: _Part, other: _Part) -> None:
        pairs = len(one.labels.moved) * len(other.labels.moved)
        self.budget.spend(CALL + pairs // PAIRS_A_UNIT)

    def least(self) -> float:
        """Reduce all nodes that can be; return the least label of what is left. [s]"""
        waiting = [node for node in self.before if node >= 0]
        left = len(waiting)
        while waiting and not self.budget.over():
            node = waiting.pop()
            before, behind = self.before.get(node, set()), self.parts.get(node, {})
            if len(before) != 1 or len(behind) != 1:
                continue
            (x,), ((y, second),) = before, behind.items()
            first = self.parts[x].pop(node)
            del self.parts[node], self.before[node]
            self.before[y].discard(node)
            self._count(first, second)
            self._join(x, y, _behind(first, second, self.nodes[node], self.most))
            left -= 1
            waiting += [end for end in (x, y) if end >= 0]
        if left:
            return 0.0
        return float(self.parts[SOURCE][SINK].labels.moved.min())


def _edge(readers: list[_Reader], last: float) -> _Labels:
    """Return labels of a part without anything in it: one for each of ``readers``."""
    none = np.zeros(len(readers))
    return _Labels(none, none, none + last, np.array(readers, dtype=np.int64))
