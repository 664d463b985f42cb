"""Partitions of a large graph, improved by moving single kernels at random.

Simulated annealing (``kirkpatrick1983optimization``): a kernel moves to a partition that makes or
reads one of its tensors, or to an empty one, between the last that it waits for and the first that
waits for it. The terms of both partitions are changed by what the kernel's tensors add there, by
the formulas of `crosstack.model.partition.partition_cost`; a move that adds d to the cost is made
with probability exp(-d / T), and T falls.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from random import Random

from crosstack.machine.chip import Overlap
from crosstack.mapping.budget import Budget
from crosstack.mapping.ideals import Order
from crosstack.mapping.steps import least_compute
from crosstack.model.partition import ChipLoad, alone_sram, combine, partition_cost
from crosstack.workload.kernel_graph import bits

# Temperatures at first and at last, over the mean cost of a kernel: of partitions that are cut
# along an order, and of those that are good already.
HOT, COOL = (3.0, 0.1), (0.1, 0.01)
MOVES_A_KERNEL = 40_000
CHECK_EVERY = 256  # moves, before the temperature falls
NEW = 0.03  # of the moves go to a partition that may be empty

_Terms = list[float]  # of a partition: compute, memory, network, data [s], SRAM [B]


class _Annealing:
    """Partition numbers of kernels, and the terms of every partition that holds any."""

    def __init__(self, load: ChipLoad, order: Order, partitions: Sequence[int]) -> None:
        self.load = load
        self.preds = [bits(mask) for mask in order.preds]
        self.succs = [bits(mask) for mask in order.succs]
        self.flows = [
            (flow.producer, dict(flow.readers), flow.total / load.bandwidth, flow.tile)
            for flow in load.flows
        ]
        own = [a + b for a, b in zip(load.own_memory, load.weight_time, strict=True)]
        self.ends = [
            (flow.producer, *(reader for reader, _ in flow.readers)) for flow in load.flows
        ]
        area = least_compute(load).tolist()
        self.alone = list(zip(area, own, load.network, load.data, load.sram, strict=True))
        self.numbers = [0] * load.n
        for number, mask in enumerate(partitions):
            for i in bits(mask):
                self.numbers[i] = 2 * number + 1  # an empty one lies between
        self.last = 2 * len(partitions)
        # A kernel whose weight is cut to pieces is on its own.
        self.cut = [alone_sram(load, i) > load.sram_capacity for i in range(load.n)]
        self.price = _price(load)
        self.terms: dict[int, _Terms] = {}
        self.count: dict[int, int] = {}
        for mask in partitions:
            self._start(mask)
        self.cost = sum(self.price(terms) for terms in self.terms.values())

    def _start(self, mask: int) -> None:
        """Add up the terms of a partition."""
        inside = bits(mask)
        number, terms = self.numbers[inside[0]], [0.0] * 5
        for i in inside:
            _add(terms, self.alone[i], 1)
        for f in {f for i in inside for f in self.load.flows_of[i]}:
            moved, tiles = self._tensor(f, number)
            terms[1] += moved
            terms[4] += tiles
        if len(inside) == 1 and self.cut[inside[0]]:
            terms[1] = partition_cost(self.load, mask).memory
        self.terms[number], self.count[number] = terms, len(inside)

    def _tensor(self, f: int, number: int) -> tuple[float, float]:
        """Memory time [s] and SRAM [B] of a tensor in a partition."""
        producer, readers, time, tile = self.flows[f]
        numbers, depth = self.numbers, self.load.stream_depth
        inside = [d for reader, d in readers.items() if numbers[reader] == number]
        if numbers[producer] != number:
            return (time, depth * tile) if inside else (0.0, 0.0)
        if len(inside) == len(readers):
            return 0.0, max(inside) * tile
        return time, max(depth, *inside) * tile if inside else depth * tile

    def somewhere(self, random: Callable[[], float], i: int) -> int:
        """Return the number of a partition that kernel ``i`` may move to, or its own."""
        numbers, flows_of = self.numbers, self.load.flows_of[i]
        here = numbers[i]
        if not flows_of or random() < NEW:
            there = int(random() * (self.last + 1))
        else:
            ends = self.ends[flows_of[int(random() * len(flows_of))]]
            there = numbers[ends[int(random() * len(ends))]]
        if there > here:
            for j in self.succs[i]:
                if numbers[j] < there:
                    return here
        elif there < here:
            for j in self.preds[i]:
                if numbers[j] > there:
                    return here
        return there

    def move(self, i: int, there: int, most: Callable[[], float]) -> bool:
        """Move kernel ``i``, if that adds less than ``most`` to the cost and fits; [s]."""
        here, flows_of = self.numbers[i], self.load.flows_of[i]
        left, joined = self.terms[here][:], self.terms.get(there, [0.0] * 5)[:]
        before = self.price(left) + (self.price(joined) if there in self.terms else 0.0)
        for terms, number in ((left, here), (joined, there)):
            for f in flows_of:
                moved, tiles = self._tensor(f, number)
                terms[1] -= moved
                terms[4] -= tiles
        self.numbers[i] = there
        for terms, number in ((left, here), (joined, there)):
            for f in flows_of:
                moved, tiles = self._tensor(f, number)
                terms[1] += moved
                terms[4] += tiles
        _add(left, self.alone[i], -1)
        _add(joined, self.alone[i], 1)
        gone = self.count[here] == 1
        if joined[4] <= self.load.sram_capacity:
            added = self.price(joined) - before + (0.0 if gone else self.price(left))
            if added <= 0 or added < most():
                self._keep(here, there, left, joined)
                self.cost += added
                return True
        self.numbers[i] = here
        return False

    def _keep(self, here: int, there: int, left: _Terms, joined: _Terms) -> None:
        self.terms[there], self.count[there] = joined, self.count.get(there, 0) + 1
        if self.count[here] == 1:
            del self.terms[here], self.count[here]
        else:
            self.terms[here] = left
            self.count[here] -= 1


def _price(load: ChipLoad) -> Callable[[_Terms], float]:
    """Return what the objective counts of a partition by its terms; see `partition_cost`."""
    sent = any(load.network) or any(load.data)
    if load.overlap is Overlap.ALL and not (sent or load.memory_price or load.network_price):
        return lambda terms: terms[0] if terms[0] > terms[1] else terms[1]

    def price(terms: _Terms) -> float:
        compute, memory, network, data, _ = terms
        network = max(network, data) if load.network_takes_maximum else network + data
        time = combine(compute, memory, network, load.overlap)
        return time + load.memory_price * memory + load.network_price * network

    return price


def _add(terms: _Terms, more: Sequence[float], sign: int) -> None:
    for k, value in enumerate(more):
        terms[k] += sign * value


def anneal(
    load: ChipLoad,
    order: Order,
    partitions: Sequence[int],
    *,
    budget: Budget,
    temperatures: tuple[float, float] = HOT,
    seed: int = 0,
) -> tuple[int, ...]:
    """Return a sequence of partitions that is better in these terms, or the one given.

    Cores are divided without remainder here, and nothing is said of main memory: what comes back
    is to be priced.

    Parameters
    ----------
    partitions : sequence of int
        Masks of kernels, in the order they run; each fits.
    budget : Budget
        The temperature falls as it is spent, or with `MOVES_A_KERNEL`, whichever is first.
    temperatures : (float, float)
        At first and at last, over the mean cost of a kernel. [1]
    """
    state, rng = _Annealing(load, order, partitions), Random(seed)
    movable = [i for i in range(load.n) if not state.cut[i]]
    best, kept = state.cost, state.numbers[:]
    mean, moves = state.cost / load.n, MOVES_A_KERNEL * load.n
    hot, cold = temperatures
    for done in range(0, moves if movable else 0, CHECK_EVERY):
        if budget.spend(CHECK_EVERY):
            break
        temperature = mean * hot * (cold / hot) ** max(done / moves, budget.share_spent())

        def most(at: float = temperature) -> float:
            return -at * math.log(1 - rng.random())

        for i in rng.choices(movable, k=CHECK_EVERY):
            there = state.somewhere(rng.random, i)
            if there == state.numbers[i] or not state.move(i, there, most):
                continue
            if state.cost < best * (1 - 1e-12):
                best, kept = state.cost, state.numbers[:]
    masks: dict[int, int] = {}
    for i, number in enumerate(kept):
        masks[number] = masks.get(number, 0) | 1 << i
    return tuple(masks[number] for number in sorted(masks))
