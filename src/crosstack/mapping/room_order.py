"""An order of partitions in which main memory holds what is alive, or a proof that there is none.

While a partition runs, a tensor is there that is made in it or before it and is read in it or
behind it, by another than the one that makes it. What is alive depends on which partitions have
run, in whatever order: so each such set of them is looked at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from typing import NamedTuple

from crosstack.mapping.ideals import Order
from crosstack.workload.kernel_graph import bits

MOST_ORDERS = 2000  # sets of partitions that have run

# What a tensor takes [B], who makes it, and the mask of kernels elsewhere that read it.
Tensors = Sequence[tuple[float, int, int]]


class InRoom(NamedTuple):
    """Partitions in the order they run; none where there is no such order, or it is not known.

    There is none with less room than ``needed``, infinite where there is none at all. [B]
    """

    sequence: tuple[int, ...]
    needed: float

    def none_in(self, room: float) -> bool:
        """Whether it is proved that there is no order with so much room. [B]"""
        return not self.sequence and self.needed > room


class _Step(NamedTuple):
    """A partition, those that run before it, what it makes [B], and what it reads, by number."""

    mask: int
    needs: int
    made: float
    read: tuple[int, ...]


@dataclass(slots=True)
class _Search:
    """What is alive as ``steps`` run: ``sizes`` of tensors [B], and masks of their ``readers``.

    ``short`` is the least that what is alive takes where the ``room`` is not enough. [B]
    """

    steps: list[_Step]
    sizes: list[float]
    readers: list[int]
    room: float
    short: float = math.inf

    def following(self, done: int, alive: float) -> list[tuple[float, int]]:
        """Return what may run next, the best last, with what is alive after it. [B]

        A step after which no more is alive than before may as well run first: what it frees is
        alive until it runs, whatever else does.
        """
        found = list[tuple[float, int]]()
        sizes, readers, open_ = self.sizes, self.readers, ~done
        for mask, needs, made, read in self.steps:
            if mask & done or needs & open_:
                continue
            most = alive + made
            if most > self.room:
                self.short = min(self.short, most)
                continue
            left, gone = ~(done | mask), 0.0
            for t in read:
                if not readers[t] & left:
                    gone += sizes[t]
            if made <= gone:
                return [(most - gone, mask)]
            found.append((most - gone, mask))
        return sorted(found, reverse=True)


def in_room(
    partitions: Sequence[int],
    order: Order,
    tensors: Tensors,
    room: float,
    *,
    most: int = MOST_ORDERS,
) -> InRoom:
    """Return an order in which what is alive never takes more than the room. [B]

    Parameters
    ----------
    partitions : sequence of int
        Masks of kernels, all of the graph.
    tensors : sequence
        Those that are in main memory between partitions.
    most : int
        Sets of partitions that are looked at. [1]
    """
    sizes, readers = [size for size, _, _ in tensors], [mask for *_, mask in tensors]
    search = _Search(_steps(partitions, order, tensors), sizes, readers, room)
    whole, seen = sum(partitions), set[int]()
    done, ways, sequence = 0, [search.following(0, 0.0)], list[int]()
    while done != whole:
        if not ways[-1]:
            ways.pop()
            if not ways:
                return InRoom((), search.short)
            done ^= sequence.pop()
            continue
        alive, mask = ways[-1].pop()
        if (now := done | mask) in seen:
            continue
        seen.add(now)
        if len(seen) > most:
            return InRoom((), 0.0)
        done = now
        sequence.append(mask)
        ways.append(search.following(done, alive))
    return InRoom(tuple(sequence), 0.0)


def _steps(partitions: Sequence[int], order: Order, tensors: Tensors) -> list[_Step]:
    """Return partitions with what they make and read."""
    of = {i: number for number, mask in enumerate(partitions) for i in bits(mask)}
    made, read = [0.0] * len(partitions), [list[int]() for _ in partitions]
    for number, (size, maker, readers) in enumerate(tensors):
        made[of[maker]] += size
        for reader in {of[i] for i in bits(readers)}:
            read[reader].append(number)
    needs = (reduce(or_, (order.preds[i] for i in bits(mask))) & ~mask for mask in partitions)
    steps = zip(partitions, needs, made, map(tuple, read), strict=True)
    return [_Step(*each) for each in steps]
