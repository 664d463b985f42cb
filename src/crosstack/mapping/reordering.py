"""Partitions of a large graph, a few of them at a time cut anew along another order of theirs.

Moves of single kernels (`crosstack.mapping.annealing`) do not get past a tensor that is larger than
those around it. Here partitions are put in another order that they may run in, a few that follow
one another are chosen, and their kernels are put in an order where each comes as soon after what it
reads as it may; along that order the best cut into partitions is found
(`crosstack.mapping.segments`). Where the order keeps each partition together, the
partitions that are there are one such cut, so that none is worse.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import Order
from crosstack.mapping.segments import Segments
from crosstack.model.partition import ChipLoad, partition_cost
from crosstack.workload.kernel_graph import bits

__all__ = ["reordered"]

TOGETHER = (2, 3, 4, 5, None)  # partitions that are cut anew at a time; None: all
PATIENCE = 300  # orders of all partitions without a gain, after which it ends
NEXT = 0.5  # of the partitions that follow come as soon as they may


def reordered(
    load: ChipLoad, order: Order, partitions: Sequence[int], *, budget: Budget, seed: int = 0
) -> tuple[int, ...]:
    """Return a sequence of partitions that costs less, or as much.

    Nothing is said of what main memory the tensors between partitions take.

    Parameters
    ----------
    partitions : sequence of int
        Masks of kernels, in the order they run; each fits.
    budget : Budget
        What is left to spend; the best so far comes back once it is spent.
    """
    state, idle = _Sequence(load, order, partitions, Random(seed)), 0
    while len(state.masks) > 1 and idle < PATIENCE and not budget.over():
        state.shuffle()
        idle = 0 if state.cut_anew(budget) else idle + 1
    return tuple(state.masks)


class _Sequence:
    """Partitions in an order that they may run in, and what those cost that were looked at. [s]"""

    def __init__(
        self, load: ChipLoad, order: Order, partitions: Sequence[int], rng: Random
    ) -> None:
        self.load, self.rng, self.masks = load, rng, list(partitions)
        self.segments = Segments(load)
        self.preds = [bits(mask) for mask in order.preds]
        self.succs = [bits(mask) for mask in order.succs]
        self.costs: dict[int, float] = {}

    def cost(self, mask: int) -> float:
        """What a partition costs. [s]"""
        if mask not in self.costs:
            self.costs[mask] = partition_cost(self.load, mask).cost
        return self.costs[mask]

    def shuffle(self) -> None:
        """Put partitions in another order that they may run in."""
        rng, of = self.rng, dict[int, int]()
        for number, mask in enumerate(self.masks):
            of.update(dict.fromkeys(bits(mask), number))
        behind: list[set[int]] = [set() for _ in self.masks]
        for i, number in of.items():
            behind[number].update(of[j] for j in self.succs[i])
        waits = [0] * len(self.masks)
        for number, those in enumerate(behind):
            those.discard(number)
            for other in those:
                waits[other] += 1
        ready = [number for number, count in enumerate(waits) if not count]
        found = list[int]()
        rng.shuffle(ready)
        while ready:
            number = ready.pop() if rng.random() < NEXT else ready.pop(rng.randrange(len(ready)))
            found.append(number)
            ready += self._freed(sorted(behind[number]), waits)
        self.masks = [self.masks[number] for number in found]

    def cut_anew(self, budget: Budget) -> bool:
        """Cut a few partitions at a time along an order of their kernels; return if that saves."""
        rng, found, saves = self.rng, list[int](), False
        size = rng.choice(TOGETHER) or len(self.masks)
        joined = 2 * rng.random() / size  # so that few are, however many are cut anew
        starts = range(rng.randrange(size) - size, len(self.masks), size)
        for start in starts:
            few = self.masks[max(start, 0) : start + size]
            if len(few) > 1 and not budget.spend(CALL):
                before = sum(map(self.cost, few))
                cut, _ = self.segments.cut(self._kernels(few, joined), budget=budget)
                if cut is not None and cut[0] <= before * (1 + 1e-12):
                    saves = saves or cut[0] < before * (1 - 1e-9)
                    few = list(cut[1])
            found += few
        self.masks = found
        return saves

    def _kernels(self, masks: Sequence[int], joined: float) -> list[int]:
        """Return the kernels of partitions in an order, neighbours ``joined`` with a chance."""
        rng, groups = self.rng, [masks[0]]
        for mask in masks[1:]:
            if rng.random() < joined:
                groups[-1] |= mask
            else:
                groups.append(mask)
        return [i for group in groups for i in self._behind_each_other(group)]

    def _behind_each_other(self, mask: int) -> Iterable[int]:
        """Yield kernels in an order where each follows what it waits for as soon as it may."""
        waits = {i: sum(mask >> j & 1 for j in self.preds[i]) for i in bits(mask)}
        ready = [i for i, count in waits.items() if not count]
        self.rng.shuffle(ready)
        while ready:
            i = ready.pop()
            yield i
            ready += self._freed([j for j in self.succs[i] if j in waits], waits)

    def _freed(self, those: Iterable[int], waits: list[int] | dict[int, int]) -> list[int]:
        """Count one less before ``those``; return which wait for nothing then, in any order."""
        free = list[int]()
        for one in those:
            waits[one] -= 1
            if not waits[one]:
                free.append(one)
        self.rng.shuffle(free)
        return free
