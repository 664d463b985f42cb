"""What tensors move between partitions at least in a series-parallel graph.

Kernels and tensors are nodes, a tensor between its producer and its readers, in the partition of
its producer. A part between two nodes x and y is reduced to *labels*: what its tensors move at
least [s], by the SRAM that it takes in the partition of y and in that of x [B], and by that of the
partitions that read a tensor x and are closed [B]. As a partition holds every path between its
kernels, nothing of a branch is with x unless its reader is. Where x and y are in one partition, so
is all between them: a label of its own.

Series: partitions of the node between close, if they fit the SRAM. A tensor with readers elsewhere
moves out once, and into each partition that reads it: that of y, and of closed ones as many as
their SRAM fills, since those of several branches may be one. Parallel: what is in the partitions of
both ends adds up, and so does the SRAM of closed readers. Labels that another one beats in every
respect are dropped; where too many are left, SRAM is rounded down. So the least label of the whole
graph bounds every sequence of partitions. Source of the reductions: ``valdes1982recognition``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from enum import IntEnum

import numpy as np

from crosstack.mapping.budget import CALL, Budget
from crosstack.model.partition import ChipLoad, alone_sram
from crosstack.workload.kernel_graph import Bools, Floats, Ints

MOST_LABELS = 1500  # of a part, for each `_Reader`
FINEST = 1024  # steps of SRAM where labels are too many, halved until they are few enough
READ_STEPS = 64  # the same of SRAM of closed readers
MOST_CELLS = 2_000_000  # of a table of steps
PAIRS_A_UNIT = 200  # of labels; see `crosstack.mapping.budget`
ROUNDING = 1e-9  # relative

SOURCE, SINK = -1, -2


class _How(IntEnum):
    """Where the node between two parts is; of parts side by side it says nothing."""

    APART = 0  # in a partition that is not that of either end
    WITH_FIRST = 1
    WITH_LAST = 2


class _Reader(IntEnum):
    """Where readers of tensor x are, in a part that begins with it."""

    WITH_PRODUCER = 0  # all of them, or x is a kernel
    ELSEWHERE = 1  # some in closed partitions, none in that of y
    WITH_LAST = 2  # some in that of y


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
    """What is moved [s], the SRAM at the first and the last node [B], and a `_Reader`, by label.

    ``read`` is the SRAM of closed partitions that read the first node, but for its buffers. [B]
    ``how`` and the labels ``one`` and ``other`` of two parts are what each was made of.
    """

    moved: Floats
    first: Floats
    last: Floats
    read: Floats
    reader: Ints
    how: Ints
    one: Ints
    other: Ints

    def at(self, kept: Bools | Ints) -> _Labels:
        """Return some of the labels."""
        return _Labels(*(getattr(self, field.name)[kept] for field in fields(self)))

    @property
    def parted(self) -> Bools:
        """Whether some reader is not with the producer."""
        return np.asarray(self.reader != _Reader.WITH_PRODUCER)

    @classmethod
    def joined(cls, every: Sequence[_Labels]) -> _Labels:
        """Return those of all."""
        names = [field.name for field in fields(cls)]
        return cls(*(np.concatenate([getattr(one, name) for one in every]) for name in names))


@dataclass(frozen=True, slots=True)
class _Part:
    """What lies between two nodes.

    ``labels`` are those where the nodes are in two partitions; ``whole`` is its SRAM where they are
    in one, or None where they cannot be [B]; ``made`` are the two parts that it is made of, with
    the node between them, None where they are side by side.
    """

    labels: _Labels
    whole: float | None
    made: tuple[_Part, _Part, int | None] | None = None


def _part(some: Sequence[_Labels], whole: float | None, most: float) -> _Part:
    """Return a part without labels that others beat, or that take more than ``most`` SRAM."""
    every = _Labels.joined(some)
    every = every.at(np.flatnonzero((every.first <= most) & (every.last <= most)))
    kept = [_least(every.at(np.flatnonzero(every.reader == one)), most) for one in _Reader]
    return _Part(_Labels.joined(kept), whole if whole is not None and whole <= most else None)


def _least(labels: _Labels, most: float) -> _Labels:
    """Return labels of one `_Reader` that none beats, SRAM rounded down where they are too many."""
    steps = FINEST
    if len(labels.moved) > MOST_LABELS:
        levels = len(np.unique(np.floor(labels.read / (most / READ_STEPS))))
        steps = min(steps, math.isqrt(MOST_CELLS // levels) - 1)
    while len(labels.moved) > MOST_LABELS:
        labels = _rounded(labels, most, steps)
        steps //= 2
    rank = np.lexsort((labels.read, labels.last, labels.first, labels.moved))
    labels = labels.at(rank)
    no_less = np.ones((len(rank), len(rank)), dtype=np.bool_)
    for sram in (labels.first, labels.last, labels.read):
        no_less &= sram[:, None] >= sram
    beaten = np.tril(no_less, -1).any(axis=1)
    return labels.at(np.flatnonzero(~beaten))  # what is moved is sorted


def _rounded(labels: _Labels, most: float, steps: int) -> _Labels:
    """Return labels whose SRAM is rounded down to steps, and none beats another."""
    units = most / steps, most / steps, most / READ_STEPS
    columns = labels.first, labels.last, labels.read
    each = [np.floor(x / unit).astype(int) for x, unit in zip(columns, units, strict=True)]
    read, each[2] = np.unique(each[2], return_inverse=True)  # few, and without end
    shape = steps + 1, steps + 1, len(read)
    table = np.full(shape, np.inf)
    np.minimum.at(table, tuple(each), labels.moved)
    below = table
    for axis in range(3):
        below = np.minimum.accumulate(below, axis=axis)
    beaten = np.full(shape, np.inf)
    beaten[1:] = below[:-1]
    beaten[:, 1:] = np.minimum(beaten[:, 1:], below[:, :-1])
    beaten[:, :, 1:] = np.minimum(beaten[:, :, 1:], below[:, :, :-1])
    a, b, c = np.nonzero(table < beaten)
    least = np.zeros(shape, dtype=np.int64)  # the label of each step that moves least
    rank = np.argsort(-labels.moved, kind="stable")
    least[tuple(steps_of[rank] for steps_of in each)] = rank
    return replace(
        labels.at(np.asarray(least[a, b, c])),
        first=np.multiply(a, units[0]),
        last=np.multiply(b, units[1]),
        read=np.multiply(read[c], units[2]),
    )


def _side_by_side(one: _Part, other: _Part, node: _Node, most: float) -> _Part:
    """Return two parts between the same nodes, of which ``node`` is the first, as one."""
    whole = None
    if one.whole is not None and other.whole is not None:
        whole = one.whole + other.whole
    a, b = one.labels, other.labels
    i, j = _fitting_pairs(a, b, most, node.parted)
    # Readers in the partition of the last node share a buffer.
    both = (a.reader[i] == _Reader.WITH_LAST) & (b.reader[j] == _Reader.WITH_LAST)
    labels = _Labels(
        a.moved[i] + b.moved[j],
        a.first[i] + b.first[j],
        a.last[i] + b.last[j] - node.parted * both,
        a.read[i] + b.read[j],
        np.maximum(a.reader[i], b.reader[j]),
        np.zeros_like(i),
        i,
        j,
    )
    return replace(_part([labels], whole, most), made=(one, other, None))


def _fitting_pairs(a: _Labels, b: _Labels, most: float, shared: float) -> tuple[Ints, Ints]:
    """Return the pairs of labels that fit ``most`` SRAM if they share so much, some at a time."""
    found, rows = [], max(MOST_CELLS // max(len(b.moved), 1), 1)
    for start in range(0, len(a.moved), rows):
        some = a.at(np.arange(start, min(start + rows, len(a.moved))))
        fits = some.first[:, None] + b.first <= most
        fits &= some.last[:, None] + b.last <= most + shared
        i, j = np.nonzero(fits)
        found.append((i + start, j))
    none = np.zeros((2, 0), dtype=np.int64)
    i, j = np.concatenate([none, *map(np.stack, found)], axis=1)
    return i, j


def _behind(one: _Part, other: _Part, nodes: Sequence[_Node], between: int, most: float) -> _Part:
    """Return a part and the one behind it; ``nodes`` are the first one and that ``between``."""
    first, node = nodes
    before, after = one.labels, other.labels
    moved = after.moved + node.moves * (1 + _entered(after, node, most)) * after.parted
    taken = after.first + np.where(after.parted, node.parted, node.own)
    inside = before.last[:, None] + taken
    i, j = np.nonzero(inside <= node.capacity)
    reader = before.reader[i]
    closed = reader == _Reader.WITH_LAST  # a partition that reads the first node
    read = before.read[i] + np.where(closed, inside[i, j] - first.parted, 0.0)
    apart = _Labels(
        before.moved[i] + moved[j],
        before.first[i],
        after.last[j],
        read,
        np.where(closed, int(_Reader.ELSEWHERE), reader),
        np.full(len(i), int(_How.APART)),
        i,
        j,
    )
    found, whole = [apart], None
    if one.whole is not None:
        every = np.arange(len(moved))
        how, none = np.full(len(every), int(_How.WITH_FIRST)), np.zeros_like(every)
        sram = one.whole + taken, after.last, np.zeros(len(every))
        found.append(_Labels(moved, *sram, none, how, none, every))
    if other.whole is not None:
        last, every = before.last + node.own + other.whole, np.arange(len(before.moved))
        how = np.full(len(every), int(_How.WITH_LAST))
        found.append(replace(before, last=last, how=how, one=every, other=np.zeros_like(every)))
        whole = None if one.whole is None else one.whole + node.own + other.whole
    return replace(_part(found, whole, most), made=(one, other, between))


def _entered(labels: _Labels, node: _Node, most: float) -> Floats:
    """Return how many partitions read a tensor that some do not share with its producer. [1]"""
    room = most - node.parted
    closed = np.ceil(labels.read / room * (1 - ROUNDING)) if room > 0 else labels.read > 0
    return np.asarray(np.maximum(closed + (labels.reader == _Reader.WITH_LAST), 1.0))


@dataclass(frozen=True, slots=True)
class InSeries:
    """What tensors move at least [s], and masks of kernels that come close, in no order.

    0 and none where the graph is not series-parallel, or the budget did not suffice. Partitions may
    be too large where SRAM was rounded down.
    """

    moved: float = 0.0
    partitions: tuple[int, ...] = ()


def least_moved_in_series(load: ChipLoad, *, budget: Budget) -> InSeries:
    """Return a lower bound on what tensors move in a series-parallel graph, and partitions.

    ``budget`` is what is left to spend.
    """
    if load.temporal is not None:
        return InSeries()
    return _Reduced(load, budget).least()


class _Reduced:
    """Parts between nodes, joined until one is left; kernels first, then tensors."""

    def __init__(self, load: ChipLoad, budget: Budget) -> None:
        self.budget, n, depth = budget, load.n, load.stream_depth
        self.n = n
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

    def least(self) -> InSeries:
        """Reduce all nodes that can be; return the least label of what is left."""
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
            ends = self.nodes[x] if x >= 0 else NOTHING, self.nodes[node]
            self._join(x, y, _behind(first, second, ends, node, self.most))
            left -= 1
            waiting += [end for end in (x, y) if end >= 0]
        if left:
            return InSeries()
        whole = self.parts[SOURCE][SINK]
        best = int(whole.labels.moved.argmin())
        masks = _partitions(whole, best, self.n)
        return InSeries(float(whole.labels.moved[best]) * (1 - ROUNDING), masks)


def _partitions(part: _Part, label: int, n: int) -> tuple[int, ...]:
    """Return the partitions of n kernels, as masks, that a label of the whole graph stands for."""
    masks, waiting = [0, 0], [(part, label, SOURCE, SINK)]

    def put(node: int, there: int) -> None:
        if node < n:
            masks[there] |= 1 << node

    while waiting:
        here, label, first, last = waiting.pop()
        if here.made is None:
            continue
        one, other, node = here.made
        labels = here.labels
        how, i, j = int(labels.how[label]), int(labels.one[label]), int(labels.other[label])
        if node is None:
            waiting += [(one, i, first, last), (other, j, first, last)]
        elif how == _How.APART:
            masks.append(0)
            put(node, len(masks) - 1)
            waiting += [(one, i, first, len(masks) - 1), (other, j, len(masks) - 1, last)]
        elif how == _How.WITH_FIRST:
            for inside in (node, *_inside(one)):
                put(inside, first)
            waiting.append((other, j, first, last))
        else:
            for inside in (node, *_inside(other)):
                put(inside, last)
            waiting.append((one, i, first, last))
    return tuple(mask for mask in masks if mask)


def _inside(part: _Part) -> Iterator[int]:
    """Yield the nodes that lie within a part."""
    waiting = [part]
    while waiting:
        made = waiting.pop().made
        if made is not None:
            one, other, node = made
            waiting += [one, other]
            if node is not None:
                yield node


def _edge(readers: list[_Reader], last: float) -> _Labels:
    """Return labels of a part without anything in it: one for each of ``readers``."""
    none, count = np.zeros(len(readers)), np.zeros(len(readers), dtype=np.int64)
    reader = np.array(readers, dtype=np.int64)
    return _Labels(none, none, none + last, none, reader, count, count, count)
