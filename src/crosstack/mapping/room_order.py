"""An order of partitions in which main memory holds what is alive, or a proof that there is none.

While a partition runs, a tensor is there that is made in it or before it and is read in it or
behind it, by another than the one that makes it. What is alive depends on which partitions have
run, in whatever order: so each such set of them is looked at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    steps = _steps(partitions, order, tensors)
    sizes, readers = [size for size, _, _ in tensors], [mask for *_, mask in tensors]
    whole, seen, short = sum(step.mask for step in steps), set[int](), [math.inf]

    def following(done: int, alive: float) -> list[tuple[float, _Step]]:
        """Return what may run next, the best last, with what is alive after it."""
        found = list[tuple[float, _Step]]()
        for step in steps:
            if step.mask & done or step.needs & ~done:
                continue
            if alive + step.made > room:
                short[0] = min(short[0], alive + step.made)
                continue
            now = done | step.mask
            gone = sum(sizes[t] for t in step.read if not readers[t] & ~now)
            found.append((alive + step.made - gone, step))
        return sorted(found, key=lambda each: (each[0], each[1].mask), reverse=True)

    done, ways, sequence = 0, [following(0, 0.0)], list[int]()
    while done != whole:
        if not ways[-1]:
            ways.pop()
            if not ways:
                return InRoom((), short[0])
            done ^= sequence.pop()
            continue
        alive, step = ways[-1].pop()
        if (now := done | step.mask) in seen:
            continue
        seen.add(now)
        if len(seen) > most:
            return InRoom((), 0.0)
        done = now
        sequence.append(step.mask)
        ways.append(following(done, alive))
    return InRoom(tuple(sequence), 0.0)


def _steps(partitions: Sequence[int], order: Order, tensors: Tensors) -> list[_Step]:
    """Return partitions with what they make and read."""
    of = {i: number for number, mask in enumerate(partitions) for i in bits(mask)}
    made, read = [0.0] * len(partitions), [list[int]() for _ in partitions]
    for number, (size, maker, readers) in enumerate(tensors):
        made[of[maker]] += size
        for reader in {of[i] for i in bits(readers)}:
            read[reader].append(number)
    return [
        _Step(
            mask, reduce(or_, (order.preds[i] for i in bits(mask))) & ~mask, made[n], tuple(read[n])
        )
        for n, mask in enumerate(partitions)
    ]
