"""Partitions of a large graph that are joined where that saves, and put in an order.

Partitions that read the same tensor share its buffer and what enters if they are one. Two become
one if they fit the SRAM together, that costs less, and no third runs between: no path leads from
one to the other through another partition. Where sets of kernels are wanted as partitions, the
first come first, and kernels of no set are alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import Order
from crosstack.mapping.segments import segment
from crosstack.model.partition import ChipLoad, partition_cost
from crosstack.workload.kernel_graph import bits

__all__ = ["joined_partitions", "packed_partitions"]


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


def packed_partitions(
    load: ChipLoad, order: Order, masks: Iterable[int], *, budget: Budget
) -> tuple[int, ...]:
    """Return partitions, in no order: of ``masks`` those that share no kernel with any before.

    Nor do they run before and behind another of them; kernels of none are alone.
    """
    state, left = _Partitions(load, order, [1 << i for i in range(load.n)]), load.everything
    for mask in masks:
        if mask & ~left or budget.spend(CALL):
            continue
        inside = set(bits(mask))
        if not state.parted(inside):
            left &= ~mask
            state.unite(min(inside), inside, mask)
    return tuple(state.masks.values())


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
        both = self.masks[one] | self.masks[other]
        cost = partition_cost(self.load, both)
        apart = self.costs[one].cost + self.costs[other].cost
        if cost.fits and cost.cost < apart and not self.parted({one, other}):
            self.unite(one, {one, other}, both)

    def unite(self, one: int, those: set[int], mask: int) -> None:
        """Make partitions one, of these kernels, with the number of ``one`` of them."""
        for around, back in ((self.behind, self.before), (self.before, self.behind)):
            near = set[int]().union(*(around.pop(number) for number in those)) - those
            around[one] = near
            for number in near:
                back[number] -= those
                back[number].add(one)
        for number in those:
            self.now[number] = one
            del self.masks[number], self.costs[number]
        self.masks[one], self.costs[one] = mask, partition_cost(self.load, mask)

    def _root(self, number: int) -> int:
        while self.now[number] != number:
            number = self.now[number]
        return number

    def parted(self, those: set[int]) -> bool:
        """Whether a path leads from one of them to another through one that is none of them."""
        seen = set[int]().union(*(self.behind[number] for number in those)) - those
        waiting = list(seen)
        while waiting:
            for number in self.behind[waiting.pop()]:
                if number in those:
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
