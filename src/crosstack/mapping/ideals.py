"""Order ideals (downsets) of a dataflow graph, and boolean tables over them.

Every sequence of partitions that respects the graph is a chain of order ideals: sets of kernels
closed under predecessors. The tables say, for each ideal, which kernels it holds and which
tensors cross its border; they depend on the graph alone and are reused for every sharding.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.model.flows import Flow
from crosstack.model.partition import PER_KERNEL, STREAM_DEPTH, ChipLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

MOST_KEPT = 16_384  # ideals of tables that outlive the search that asked for them


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """Precedence among n kernels as bit masks of predecessors and of successors."""

    n: int
    preds: tuple[int, ...]
    succs: tuple[int, ...]


@lru_cache(maxsize=256)
def make_order(preds: tuple[int, ...]) -> Order:
    """Return the order with these masks of direct predecessors."""
    succs = [0] * len(preds)
    for i, mask in enumerate(preds):
        for j in bits(mask):
            succs[j] |= 1 << i
    return Order(n=len(preds), preds=preds, succs=tuple(succs))


# A sweep asks for those of one graph again and again, also where there turn out too many.
@lru_cache(maxsize=4)
def enumerate_ideals(order: Order, *, most: int) -> tuple[int, ...] | None:
    """Return all order ideals by size, or None if there are more than ``most``."""
    readers = [[(1 << j, order.preds[j]) for j in bits(succs)] for succs in order.succs]
    layer: dict[int, int] = {0: sum(1 << i for i in range(order.n) if not order.preds[i])}
    ideals = [0]
    while layer:
        following: dict[int, int] = {}
        for ideal, ready in layer.items():
            left = ready
            while left:
                runs = left & -left
                left ^= runs
                grown = ideal | runs
                if grown in following:
                    continue
                now = ready ^ runs
                for reader, needed in readers[runs.bit_length() - 1]:
                    if needed & grown == needed:
                        now |= reader
                following[grown] = now
        ideals.extend(following)
        if len(ideals) > most:
            return None
        layer = following
    return tuple(ideals)


def chain(sequence: Sequence[int]) -> list[int]:
    """Return the ideals passed when kernels run in ``sequence``."""
    return list(itertools.accumulate((1 << i for i in sequence), initial=0))


def topological_chains(order: Order) -> list[list[int]]:
    """Return a few topological sequences of all kernels.

    By listing order, by level, by level with kernels that nobody reads last, and depth first.
    """
    level, listed = [0] * order.n, _sequence(order, [0] * order.n)
    for i in listed:
        level[i] = 1 + max((level[j] for j in bits(order.preds[i])), default=0)
    last = [level[i] + (0 if order.succs[i] else 1_000_000) for i in range(order.n)]
    return [listed, _sequence(order, level), _sequence(order, last), _sequence(order, None)]


def _sequence(order: Order, key: Sequence[int] | None) -> list[int]:
    """Run what is ready by the least key, then in listing order; None: depth first."""
    waiting = [mask.bit_count() for mask in order.preds]
    ready, pushed = list[tuple[int, int]](), itertools.count(0, -1)

    def push(i: int) -> None:
        heapq.heappush(ready, (next(pushed) if key is None else key[i], i))

    for i in reversed(range(order.n)):
        if not waiting[i]:
            push(i)
    sequence: list[int] = []
    while ready:
        _, i = heapq.heappop(ready)
        sequence.append(i)
        for j in reversed(bits(order.succs[i])):
            waiting[j] -= 1
            if not waiting[j]:
                push(j)
    return sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class IdealTables:
    """Tables over N ideals, by size, for n kernels and T tensors.

    ``words`` (N, W) bit words; ``member`` (N, n); ``live`` (N, T): made inside, some reader
    outside; ``depth`` (N, T): tiles a live tensor's buffer holds in the partition that makes it;
    ``dead`` (N, T): made inside and all readers inside; ``readers`` (T, n). ``known`` keeps what
    else follows from the ideals alone.
    """

    masks: tuple[int, ...]
    count: Ints
    words: NDArray[np.uint64]
    member: Bools
    live: Bools
    dead: Bools
    depth: Floats
    readers: Bools
    known: dict[object, object] = field(default_factory=dict, repr=False, compare=False)

    def sums(self, table: str, values: Floats) -> Floats:
        """Return sums of values over a table of flags.

        ``values`` (n, columns) or (n,): one row for every kernel or tensor. What eight of them add
        up to is looked up by the byte of their flags.
        """
        found = np.zeros((len(self.masks), *values.shape[1:]))
        for byte, some in zip(self._packed(table), _of_bytes(values), strict=True):
            found += some.take(byte, axis=0)
        return found

    def sums_of_either(self, table: str, values: Floats, one: Ints, other: Ints) -> Floats:
        """Return the same of what is flagged at one ideal or another; shape (pairs,)."""
        found = np.zeros((len(one), *values.shape[1:]))
        for byte, some in zip(self._packed(table), _of_bytes(values), strict=True):
            found += some[byte[one] | byte[other]]
        return found

    def _packed(self, table: str) -> NDArray[np.uint8]:
        """Return a table of flags by bytes, shape (bytes, N), packed once for all loads."""
        packed = self.known.get(table)
        if not isinstance(packed, np.ndarray):
            flags = np.packbits(getattr(self, table), axis=1, bitorder="little")
            packed = self.known[table] = np.ascontiguousarray(flags.T)
        return packed


def _of_bytes(values: Floats) -> Iterator[Floats]:
    """Yield sums of eight values, then of the next, by the byte that says which are added."""
    for first in range(0, len(values), 8):
        some = np.zeros((1, *values.shape[1:]))
        for value in values[first : first + 8]:
            some = np.concatenate([some, some + value])
        yield some


_Shape = tuple[int, tuple[tuple[int, int], ...]]  # of a flow: who makes it, who reads it how deep

# Tables of graphs by their shape, None: too many ideals; and what was found of a long graph.
TableCache = dict[object, Any]


def graph_shape(load: ChipLoad, order: Order) -> tuple[object, ...]:
    """Return what tells the tables of a graph and its precedence from others."""
    return order.preds, tuple((flow.producer, flow.readers) for flow in load.flows)


def memberships(masks: Sequence[int], n: int) -> Bools:
    """Return masks of n bits as rows of flags."""
    return flags(to_words(masks, n), n)


def flags(words: NDArray[np.uint64], n: int) -> Bools:
    """Return rows of words as rows of n flags."""
    raw = np.ascontiguousarray(words, dtype="<u8").view(np.uint8)
    raw = raw.reshape(len(words), 8 * words.shape[1])
    return np.unpackbits(raw, axis=1, count=n, bitorder="little").astype(np.bool_)


def to_words(masks: Sequence[int], n: int) -> NDArray[np.uint64]:
    """Return masks of n bits as rows of 64-bit words."""
    width = -(-n // 64)
    raw = b"".join(mask.to_bytes(8 * width, "little") for mask in masks)
    return np.frombuffer(raw, dtype="<u8").reshape(len(masks), width).astype(np.uint64)


def make_tables(masks: Sequence[int], n: int, flows: tuple[Flow, ...]) -> IdealTables:
    """Return the tables of ``masks`` (any order; sorted by size here)."""
    shapes = tuple((flow.producer, flow.readers) for flow in flows)
    make = _tables if len(masks) <= MOST_KEPT else _tables.__wrapped__
    return make(tuple(masks), n, shapes)


# A sweep asks for those of one graph again and again, with what follows from them.
@lru_cache(maxsize=12)
def _tables(masks: tuple[int, ...], n: int, flows: tuple[_Shape, ...]) -> IdealTables:
    ordered = sorted(set(masks), key=lambda mask: (mask.bit_count(), mask))
    member = memberships(ordered, n)
    live = np.zeros((len(ordered), len(flows)), dtype=np.bool_)
    dead = np.zeros_like(live)
    depth = np.zeros((len(ordered), len(flows)))
    readers = np.zeros((len(flows), n), dtype=np.bool_)
    for t, (producer, read) in enumerate(flows):
        into = [reader for reader, _ in read]
        readers[t, into] = True
        made = member[:, producer]
        all_inside = member[:, into].all(axis=1)
        live[:, t], dead[:, t] = made & ~all_inside, made & all_inside
        held = np.full(len(ordered), float(STREAM_DEPTH))
        for reader, tiles in read:
            held = np.where(member[:, reader], np.maximum(held, tiles), held)
        depth[:, t] = np.where(live[:, t], held, 0.0)
    return IdealTables(
        masks=tuple(ordered),
        count=member.sum(axis=1),
        words=to_words(ordered, n),
        member=member,
        live=live,
        dead=dead,
        depth=depth,
        readers=readers,
    )


def collapse_twins(load: ChipLoad, preds: Sequence[int], keep_apart: Sequence[object]) -> Order:
    """Order interchangeable kernels: the first of each pair of twins runs no later.

    Twins have the same predecessors, the same readers' buffers and the same costs, so swapping
    them changes nothing and some best sequence runs them in listing order. ``keep_apart`` adds a
    label per kernel (its allowed partitions) that twins must share.
    """
    grown = list(preds)
    last: dict[object, int] = {}
    shapes = tuple((flow.producer, flow.readers) for flow in load.flows)
    for i, mates in enumerate(_twin_classes(load.preds, shapes)):
        if not mates:
            continue
        stair = None if load.staircases is None else id(load.staircases[i])
        terms = tuple(getattr(load, name)[i] for name in PER_KERNEL)
        flows = [load.flows[f] for f in load.flows_of[i]]
        sizes = tuple(sorted((f.tile, f.total, f.moved) for f in flows if f.producer == i))
        unmixed = tuple(group >> i & 1 for group in load.unmixed)
        takes = None if load.temporal is None else load.temporal.label(i)
        key = (mates, load.succs[i], unmixed, stair, terms, sizes, takes, keep_apart[i])
        if key in last:
            grown[i] |= 1 << last[key]
        last[key] = i
    return make_order(tuple(grown))


@lru_cache(maxsize=64)
def _twin_classes(
    preds: tuple[int, ...], shapes: tuple[tuple[int, tuple[tuple[int, int], ...]], ...]
) -> tuple[object, ...]:
    """Label per kernel, equal for kernels that the graph alone cannot tell apart; None if alone.

    Twins read the same tensors at the same depth and every tensor they make has one reader set of
    its own that is the same for both.
    """
    reads: list[list[tuple[int, int, int]]] = [[] for _ in preds]
    makes: list[list[tuple[tuple[int, int], ...]]] = [[] for _ in preds]
    for f, (producer, readers) in enumerate(shapes):
        makes[producer].append(tuple(sorted(readers)))
        for reader, depth in readers:
            reads[reader].append((f if len(readers) > 1 else -1, producer, depth))
    labels = [
        (before, tuple(sorted(r)), tuple(sorted(m)))
        for before, r, m in zip(preds, reads, makes, strict=True)
    ]
    counts = Counter(labels)
    return tuple(label if counts[label] > 1 else None for label in labels)
