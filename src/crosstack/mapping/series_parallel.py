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
respect are dropped; where too many are left, SRAM is rounded down.

Why no sequence of partitions moves less than the least label of the whole graph. Each sequence
gives every part a label, or has both ends and so all between in one partition. A label counts of a
partition what lies in the part, at the least buffer that a tensor may take, so never more SRAM than
there is. A partition in several branches and in that of neither end is counted as several: they
share nothing but x, as all that is read within a branch is made there or is x. So each fits if the
whole does, what they move but for x is the same, and k partitions that read x hold at most k times
what the SRAM has beside its buffer. From there on all costs and limits grow with what is moved, the
SRAM and that of closed readers: a label that is dropped or rounded leaves one that is no worse.
Source of the reductions: ``valdes1982recognition``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.labels import How, Labels, Most, Reader, least_labels, pairs_of
from crosstack.model.partition import ChipLoad, alone_sram, partition_cost
from crosstack.workload.kernel_graph import Bools, Floats, Ints

MOST_LABELS = 1500  # of a part, for each `Reader`
FEWEST = 30  # the same where the budget is nearly spent
# Labels fall with this power of the share of the budget that is left over that of the nodes, and of
# what is left itself, as the last nodes take longest.
HURRY, UNHURRIED = 3, 1.5
PAIRS_A_UNIT = 200  # of labels; see `crosstack.mapping.budget`
ROUNDING = 1e-9  # relative

SOURCE, SINK = -1, -2


@dataclass(frozen=True, slots=True)
class _Node:
    """A kernel or a tensor: SRAM that it takes in its partition, which has a ``capacity``. [B]

    Of a tensor ``held`` is what it takes there at least where some reader is elsewhere, ``parted``
    what it takes in the partition of that reader [B]; ``moves`` is what it moves out, and into each
    of those. [s]
    """

    own: float
    capacity: float
    held: float = 0.0
    parted: float = 0.0
    moves: float = 0.0


NOTHING = _Node(own=0.0, capacity=0.0)


@dataclass(frozen=True, slots=True, eq=False)
class _Made:
    """What each label of a part was made of, which is kept to the end.

    ``labels`` are `Labels.how`, ``one`` and ``other``, shape (3, labels); ``parts`` are the two
    that it was made of, None where nothing lies between two nodes, and ``node`` is the node between
    them, None where they are side by side.
    """

    labels: NDArray[np.int32]
    parts: tuple[_Made | None, _Made | None]
    node: int | None


@dataclass(frozen=True, slots=True, eq=False)
class _Part:
    """What lies between two nodes.

    ``labels`` are those where the nodes are in two partitions; ``whole`` is its SRAM where they are
    in one, or None where they cannot be [B].
    """

    labels: Labels
    whole: float | None
    made: _Made | None = None

    def of(self, one: _Part, other: _Part, node: int | None = None) -> _Part:
        """Return the same, made of two parts, with a node between."""
        labels = self.labels
        each = np.stack([labels.how, labels.one, labels.other]).astype(np.int32)
        return replace(self, made=_Made(each, (one.made, other.made), node))


def _part(some: Sequence[Labels], whole: float | None, most: Most) -> _Part:
    """Return a part without labels that others beat, or that take more than ``most`` SRAM."""
    whole = whole if whole is not None and whole <= most.sram else None
    return _Part(least_labels(some, most), whole)


def _side_by_side(one: _Part, other: _Part, node: _Node, most: Most) -> _Part:
    """Return two parts between the same nodes, of which ``node`` is the first, as one."""
    whole = None
    if one.whole is not None and other.whole is not None:
        whole = one.whole + other.whole
    a, b, shared = one.labels, other.labels, node.parted

    def fitting(some: slice) -> Bools:
        first, last = a.first[some, None] + b.first, a.last[some, None] + b.last
        both = a.reader[some, None] + b.reader == 2 * Reader.WITH_LAST
        return np.asarray((first <= most.sram) & (last - shared * both <= most.sram))

    def made(i: Ints, j: Ints) -> Labels:
        # Readers in the partition of the last node share a buffer, which rounding may have lost.
        both = a.reader[i] + b.reader[j] == 2 * Reader.WITH_LAST
        return Labels(
            a.moved[i] + b.moved[j],
            a.first[i] + b.first[j],
            np.maximum(a.last[i] + b.last[j] - shared * both, 0.0),
            a.read[i] + b.read[j],
            np.maximum(a.reader[i], b.reader[j]),
            np.zeros_like(i),
            i,
            j,
        )

    return _part(pairs_of(a, b, fitting, made), whole, most).of(one, other)


def _behind(one: _Part, other: _Part, nodes: Sequence[_Node], between: int, most: Most) -> _Part:
    """Return a part and the one behind it; ``nodes`` are the first one and that ``between``."""
    first, node = nodes
    before, after = one.labels, other.labels
    moved = after.moved + node.moves * (1 + _entered(after, node, most.sram)) * after.parted
    taken = after.first + np.where(after.parted, node.held, node.own)

    def fitting(some: slice) -> Bools:
        return np.asarray(before.last[some, None] + taken <= node.capacity)

    def apart(i: Ints, j: Ints) -> Labels:
        reader = before.reader[i]
        closed = reader == Reader.WITH_LAST  # a partition that reads the first node
        beside = np.maximum(before.last[i] + taken[j] - first.parted, 0.0)
        return Labels(
            before.moved[i] + moved[j],
            before.first[i],
            after.last[j],
            before.read[i] + np.where(closed, beside, 0.0),
            np.where(closed, int(Reader.ELSEWHERE), reader),
            np.full(len(i), int(How.APART)),
            i,
            j,
        )

    found, whole = pairs_of(before, after, fitting, apart), None
    if one.whole is not None:
        every = np.arange(len(moved))
        how, none = np.full(len(every), int(How.WITH_FIRST)), np.zeros_like(every)
        sram = one.whole + taken, after.last, np.zeros(len(every))
        found.append(Labels(moved, *sram, none, how, none, every))
    if other.whole is not None:
        last, every = before.last + node.own + other.whole, np.arange(len(before.moved))
        how = np.full(len(every), int(How.WITH_LAST))
        found.append(replace(before, last=last, how=how, one=every, other=np.zeros_like(every)))
        whole = None if one.whole is None else one.whole + node.own + other.whole
    return _part(found, whole, most).of(one, other, between)


def _entered(labels: Labels, node: _Node, most: float) -> Floats:
    """Return how many partitions read a tensor that some do not share with its producer. [1]"""
    room = most - node.parted
    closed = np.ceil(labels.read / room * (1 - ROUNDING)) if room > 0 else labels.read > 0
    return np.asarray(np.maximum(closed + (labels.reader == Reader.WITH_LAST), 1.0))


@dataclass(frozen=True, slots=True)
class LeastMoved:
    """What tensors move at least [s], and masks of kernels that come close, in no order.

    0 and none where the graph is not series-parallel, or the budget did not suffice. Partitions may
    be too large where SRAM was rounded down.
    """

    moved: float = 0.0
    partitions: tuple[int, ...] = ()


def least_moved_in_series(load: ChipLoad, *, budget: Budget) -> LeastMoved:
    """Return a lower bound on what tensors move in a series-parallel graph, and partitions.

    ``budget`` is what is left to spend.
    """
    if load.temporal is not None:
        return LeastMoved()
    return _Reduced(load, budget).least()


class _Reduced:
    """Parts between nodes, joined until one is left; kernels first, then tensors.

    A kernel that never fits in one piece is alone, its weight cut, and takes but what enters it.
    """

    def __init__(self, load: ChipLoad, budget: Budget) -> None:
        self.budget, n, depth = budget, load.n, load.stream_depth
        self.n = n
        capacity = load.sram_capacity * (1 + ROUNDING)
        cut = [least_sram(load, i) > capacity for i in range(n)]
        alone = [load.sram_capacity if cut[i] else alone_sram(load, i) for i in range(n)]
        self.sram = max(load.sram_capacity, *alone) * (1 + ROUNDING)
        self.nodes = [
            _Node(
                own=0.0 if cut[i] else load.sram[i], capacity=max(capacity, size * (1 + ROUNDING))
            )
            for i, size in enumerate(alone)
        ]
        self.again = sum(moved_again(load, i) for i in range(n) if cut[i])
        self.waiting = 1  # nodes that are still to be reduced
        self.parts: dict[int, dict[int, _Part]] = {}
        self.before: dict[int, set[int]] = {}
        fed, read = set[int](), set[int]()
        together = _Part(_edge([], 0.0), 0.0)
        apart = _Part(_edge([Reader.WITH_PRODUCER], 0.0), None)
        for f, flow in enumerate(load.flows, start=n):
            whole, parted = not cut[flow.producer], flow.tile * depth
            self.nodes.append(
                _Node(
                    own=whole * flow.tile * max(d for _, d in flow.readers),
                    capacity=self.sram,
                    held=whole * parted,
                    parted=parted,
                    moves=flow.moved / load.bandwidth,
                )
            )
            self._join(flow.producer, f, together)
            read.add(flow.producer)
            for reader, _ in flow.readers:
                fed.add(reader)
                one = 0.0 if whole and not cut[reader] else None
                self._join(f, reader, _Part(_edge([Reader.WITH_LAST], parted), one))
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
            part = _side_by_side(there[y], part, node, self._most())
        there[y] = part
        self.before.setdefault(y, set()).add(x)

    def _most(self) -> Most:
        """Return what a part may take: fewer labels where the budget is spent before the nodes."""
        left = 1 - self.budget.share_spent()
        pace = min(left / (self.waiting / len(self.nodes)), UNHURRIED * left, 1.0)
        return Most(self.sram, max(int(MOST_LABELS * pace**HURRY), min(MOST_LABELS, FEWEST)))

    def _count(self, one: _Part, other: _Part) -> None:
        pairs = len(one.labels.moved) * len(other.labels.moved)
        self.budget.spend(CALL + pairs // PAIRS_A_UNIT)

    def least(self) -> LeastMoved:
        """Reduce all nodes; return the least label of what is left."""
        reductions = self._reductions()
        for done, node in enumerate(reductions):
            self.waiting = len(reductions) - done
            if self.budget.over():
                return LeastMoved()
            (x,), ((y, second),) = self.before.pop(node), self.parts.pop(node).items()
            first = self.parts[x].pop(node)
            self.before[y].discard(node)
            self._count(first, second)
            ends = self.nodes[x] if x >= 0 else NOTHING, self.nodes[node]
            self._join(x, y, _behind(first, second, ends, node, self._most()))
        whole = self.parts.get(SOURCE, {}).get(SINK)
        if whole is None or not len(whole.labels.moved):  # another graph, or nothing fits
            return LeastMoved()
        best = int(whole.labels.moved.argmin())
        masks = _partitions(whole.made, best, self.n)
        moved = float(whole.labels.moved[best]) + self.again
        return LeastMoved(moved * (1 - ROUNDING), masks)

    def _reductions(self) -> list[int]:
        """Return all nodes in an order that each has one before and one behind; [] if none is."""
        before = {node: set(those) for node, those in self.before.items()}
        behind = {node: set(those) for node, those in self.parts.items()}
        waiting, found = [node for node in before if node >= 0], list[int]()
        left = len(waiting)
        while waiting:
            node = waiting.pop()
            if len(before.get(node, ())) != 1 or len(behind.get(node, ())) != 1:
                continue
            (x,), (y,) = before.pop(node), behind.pop(node)
            behind[x] ^= {node, y} if y not in behind[x] else {node}
            before[y] ^= {node, x} if x not in before[y] else {node}
            found.append(node)
            waiting += [end for end in (x, y) if end >= 0]
        return found if len(found) == left else []


def least_sram(load: ChipLoad, i: int) -> float:
    """SRAM that a kernel takes at least, whatever is in its partition, its weight whole. [B]"""
    tiles = 0.0
    for flow in (load.flows[f] for f in load.flows_of[i]):
        depths = [depth for reader, depth in flow.readers if i in (reader, flow.producer)]
        tiles += flow.tile * min(load.stream_depth, *depths)
    return load.sram[i] + tiles


def moved_again(load: ChipLoad, i: int) -> float:
    """What a kernel alone moves for all pieces of its weight but the first. [s]"""
    cost = partition_cost(load, 1 << i)
    tensors = sum(load.flows[f].total for f in load.flows_of[i]) / load.bandwidth
    own = load.own_memory[i] + load.weight_time[i]
    return max(cost.memory - tensors - own, 0.0) if cost.cuts > 1 else 0.0


def _partitions(whole: _Made | None, label: int, n: int) -> tuple[int, ...]:
    """Return the partitions of n kernels, as masks, that a label of the whole graph stands for."""
    masks, waiting = [0, 0], [(whole, label, SOURCE, SINK)]

    def put(node: int, there: int) -> None:
        if node < n:
            masks[there] |= 1 << node

    while waiting:
        here, label, first, last = waiting.pop()
        if here is None:
            continue
        (one, other), node = here.parts, here.node
        how, i, j = here.labels[:, label].tolist()
        if node is None:
            waiting += [(one, i, first, last), (other, j, first, last)]
            continue
        match How(how):
            case How.APART:
                masks.append(0)
                put(node, len(masks) - 1)
                waiting += [(one, i, first, len(masks) - 1), (other, j, len(masks) - 1, last)]
            case How.WITH_FIRST:
                for inside in (node, *_inside(one)):
                    put(inside, first)
                waiting.append((other, j, first, last))
            case How.WITH_LAST:
                for inside in (node, *_inside(other)):
                    put(inside, last)
                waiting.append((one, i, first, last))
            case never:
                assert_never(never)
    return tuple(mask for mask in masks if mask)


def _inside(part: _Made | None) -> Iterator[int]:
    """Yield the nodes that lie within a part."""
    waiting = [part]
    while waiting:
        made = waiting.pop()
        if made is not None:
            waiting += made.parts
            if made.node is not None:
                yield made.node


def _edge(readers: list[Reader], last: float) -> Labels:
    """Return labels of a part without anything in it: one for each of ``readers``."""
    none, count = np.zeros(len(readers)), np.zeros(len(readers), dtype=np.int64)
    reader = np.array(readers, dtype=np.int64)
    return Labels(none, none, none + last, none, reader, count, count, count)
