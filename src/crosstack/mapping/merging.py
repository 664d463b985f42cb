"""Partitions of a large graph that are joined where that saves, and put in an order.

Partitions that read the same tensor share its buffer and what enters if they are one. Two become
one if they fit the SRAM together, that costs less, and no third runs between: no path leads from
one to the other through another partition.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import Order
from crosstack.mapping.large_graphs import segment
from crosstack.model.partition import ChipLoad, partition_cost
from crosstack.workload.kernel_graph import bits

__all__ = ["joined_partitions"]


def joined_partitions(
    load: ChipLoad, order: Order, masks: Sequence[int], *, budget: Budget
) -> tuple[int, ...] | None:
    """Return partitions in an order that they may run in, joined; None where there is no order.

    Parameters
    ----------
    masks : sequence of int
        Kernels of each; those that do not fit are cut in pieces first.
    budget : Budget
        What is left to spend.
    """
    pieces = [piece for mask in masks for piece in _fitting(load, mask, budget)]
    state = _Partitions(load, order, pieces)
    if state.sequence() is None:
        return None
    for one, other in state.pairs():
        if budget.spend(CALL):
            break
        state.join(one, other)
    return state.sequence()


def _fitting(load: ChipLoad, mask: int, budget: Budget) -> tuple[int, ...]:
    """Return a partition that fits, or the pieces of an order of its kernels that do."""
    if partition_cost(load, mask).fits:
        return (mask,)
    found, _ = segment(load, [i for i in load.order if mask >> i & 1], budget=budget)
    return tuple(1 << i for i in bits(mask)) if found is None else found[1]


class _Partitions:
    """Partitions by number, what each costs, and which run right behind each."""

    def __init__(self, load: ChipLoad, order: Order, masks: Sequence[int]) -> None:
        self.load = load
        self.masks = dict(enumerate(masks))
        self.costs = {number: partition_cost(load, mask) for number, mask in self.masks.items()}
        self.now = list(range(len(masks)))  # the number of the one that each has become part of
        self.of = [0] * load.n
        for number, mask in self.masks.items():
            for i in bits(mask):
                self.of[i] = number
        self.behind: dict[int, set[int]] = {number: set() for number in self.masks}
        self.before: dict[int, set[int]] = {number: set() for number in self.masks}
        for i, preds in enumerate(order.preds):
            for j in bits(preds):
                self._follow(self.of[j], self.of[i])

    def _follow(self, one: int, other: int) -> None:
        if one != other:
            self.behind[one].add(other)
            self.before[other].add(one)

    def pairs(self) -> Iterator[tuple[int, int]]:
        """Yield partitions that read one tensor, as numbers that they had at first."""
        for flow in self.load.flows:
            read = sorted(
                {self.of[reader] for reader, _ in flow.readers} - {self.of[flow.producer]}
            )
            yield from itertools.combinations(read, 2)

    def join(self, one: int, other: int) -> None:
        """Make two partitions one, if that is allowed and saves."""
        one, other = self._root(one), self._root(other)
        if one == other:
            return
        sram = self.costs[one].sram + self.costs[other].sram
        if sram > 2 * self.load.sram_capacity:
            return
        cost = partition_cost(self.load, self.masks[one] | self.masks[other])
        apart = self.costs[one].cost + self.costs[other].cost
        if not cost.fits or cost.cost >= apart or self._parted(one, other):
            return
        self.masks[one] |= self.masks.pop(other)
        self.costs[one] = cost
        self.now[other] = one
        for those, back in ((self.behind, self.before), (self.before, self.behind)):
            for number in those.pop(other):
                back[number].discard(other)
                if number != one:
                    those[one].add(number)
                    back[number].add(one)
            those[one].discard(other)

    def _root(self, number: int) -> int:
        while self.now[number] != number:
            number = self.now[number]
        return number

    def _parted(self, one: int, other: int) -> bool:
        """Whether a path leads from one to the other through a third."""
        for first, last in ((one, other), (other, one)):
            seen = self.behind[first] - {last}
            waiting = list(seen)
            while waiting:
                for number in self.behind[waiting.pop()]:
                    if number == last:
                        return True
                    if number not in seen:
                        seen.add(number)
                        waiting.append(number)
        return False

    def sequence(self) -> tuple[int, ...] | None:
        """Return the partitions in an order that they may run in; None where there is none."""
        left = {number: len(those) for number, those in self.before.items()}
        ready = sorted((number for number, count in left.items() if not count), reverse=True)
        found = []
        while ready:
            number = ready.pop()
            found.append(self.masks[number])
            for following in sorted(self.behind[number]):
                left[following] -= 1
                if not left[following]:
                    ready.append(following)
        return tuple(found) if len(found) == len(self.masks) else None
