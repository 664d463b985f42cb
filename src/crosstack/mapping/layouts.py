"""Which layouts go together, and what they cost over the cheapest terms of every kernel.

Kernel i has *layout choices* (a, K): a choice a of its domain and the set K of layouts that it pays
to have its output in (`crosstack.mapping.paid_layouts`), with network and memory time over those of
the cheapest one. Which choices of a producer and its reader go together is known.

The *profile* of an order ideal is the choices of its kernels that others still read: nothing else
about the past matters. Within one partition the excess over the cheapest terms adds up kernel by
kernel, so for every weighing of memory against network the least excess between two profiles
follows from that of the ideal without its last kernel.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.ideals import IdealTables
from crosstack.mapping.paid_layouts import paid_layouts
from crosstack.mapping.steps import Steps
from crosstack.model.choices import Choices
from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

MOST_CHOICES = 12  # of one kernel
MOST_PROFILES = 256  # of one ideal
# Weights of compute, memory and network whose sum never exceeds a partition's time.
WEIGHTS = {
    Overlap.ALL: ((0.0, 0.0, 1.0), (0.0, 0.5, 0.5), (0.0, 1.0, 0.0)),
    Overlap.COMPUTE_MEMORY: ((1.0, 0.0, 1.0), (0.0, 1.0, 1.0)),
    Overlap.NONE: ((1.0, 1.0, 1.0),),
}


def priced_weights(load: ChipLoad) -> Floats:
    """Return `WEIGHTS` of a load with what the objective adds for main memory and network."""
    prices = np.array([0.0, load.memory_price, load.network_price])
    return np.asarray(np.array(WEIGHTS[load.overlap]) + prices)


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutChoices:
    """What each kernel may choose, cheapest terms taken off.

    Per kernel, by layout choice: ``codes`` (its choice), ``network`` [s], ``memory`` [s] of each
    tensor it makes that leaves its partition or is read from outside, and ``own`` [s] of what it
    moves in any partition. ``agree``: which pairs of choices go together, by (producer, reader).
    """

    codes: tuple[Ints, ...]
    network: tuple[Floats, ...]
    memory: tuple[Floats, ...]
    own: tuple[Floats, ...]
    agree: dict[tuple[int, int], Bools]

    def count(self, i: int) -> int:
        """Choices of kernel ``i``. [1]"""
        return len(self.network[i])

    def label(self, i: int) -> object:
        """Equal for kernels that may swap places in a sequence, as far as choices matter."""
        if self.count(i) > 1:
            return i
        return tuple(float(cost[i][0]) for cost in (self.network, self.memory, self.own))

    def of(self, kernels: Sequence[int]) -> LayoutChoices:
        """Return the choices of some kernels, numbered anew."""
        number = {kernel: i for i, kernel in enumerate(kernels)}
        names = ("codes", "network", "memory", "own")
        columns: Any = {name: tuple(getattr(self, name)[i] for i in kernels) for name in names}
        agree = {
            (number[i], number[j]): pairs
            for (i, j), pairs in self.agree.items()
            if i in number and j in number
        }
        return LayoutChoices(**columns, agree=agree)


def make_layout_choices(
    choices: Choices, domains: Sequence[Sequence[int]], load: ChipLoad
) -> LayoutChoices | None:
    """Return the choices of every kernel within ``domains``; None where one has too many.

    ``load`` is the load of the cheapest terms (`crosstack.model.partition.relaxed_load`), under
    rules by which readers that need the same layout share one change.
    """
    paid = paid_layouts(choices, domains)
    if any(len(codes) > MOST_CHOICES for codes in paid.codes):
        return None
    in_any = (choices.entering + choices.leaving + choices.cache) / load.bandwidth
    made = choices.output_total / load.bandwidth
    if choices.clocked is not None:  # a tensor is bounded by its least write or read
        in_any = (choices.clocked.own + choices.clocked.leaving) / load.bandwidth
        made = np.zeros_like(made)
    network = (
        np.maximum(choices.network_time[codes] + price - least, 0.0)
        for codes, price, least in zip(paid.codes, paid.price, load.network, strict=True)
    )
    return LayoutChoices(
        codes=paid.codes,
        network=tuple(network),
        memory=tuple(made[codes] - made[codes].min() for codes in paid.codes),
        own=tuple(in_any[codes] - in_any[codes].min() for codes in paid.codes),
        agree=paid.agree,
    )


def only_choice(n: int) -> LayoutChoices:
    """Return the choices of kernels that have none: one each, at no excess."""
    zero = (np.zeros(1),) * n
    codes = (np.zeros(1, dtype=np.int64),) * n
    return LayoutChoices(codes=codes, network=zero, memory=zero, own=zero, agree={})


# ---------------------------------------------------------------- profiles


@dataclass(frozen=True, slots=True)
class _Grow:
    """How profiles change when one kernel is added: rows sorted by the profile reached.

    ``own`` is the kernel's choice, ``network`` and ``made`` (tensors, and what it moves in any
    partition) its excess by row; ``reads`` the excess
    of tensors it reads, each with its flow and whether this was the last reader.
    """

    before: Ints
    own: Ints
    starts: Ints
    network: Floats
    made: Floats
    reads: tuple[tuple[int, bool, Floats], ...]
    trivial: bool


@dataclass(frozen=True, slots=True)
class Layouts:
    """Profiles of every ideal and how they follow from each other, for one node."""

    n_profiles: tuple[int, ...]
    grow: tuple[dict[int, tuple[int, _Grow]], ...]  # by ideal: kernel -> (smaller ideal, change)


def make_layouts(load: ChipLoad, tables: IdealTables, choices: LayoutChoices) -> Layouts | None:
    """Return the profiles of every ideal, or None where some ideal has too many."""
    several = sum(1 << i for i in range(load.n) if choices.count(i) > 1)
    readers = [0] * load.n
    for flow in load.flows:
        readers[flow.producer] |= flow.mask
    partners = [0] * load.n
    for i, j in choices.agree:
        partners[i] |= 1 << j
        partners[j] |= 1 << i
    fronts: list[tuple[int, ...]] = []
    profiles: list[list[tuple[int, ...]]] = []
    grow: list[dict[int, tuple[int, _Grow]]] = []
    known: dict[Any, tuple[_Grow, list[tuple[int, ...]]]] = {}
    place = {mask: i for i, mask in enumerate(tables.masks)}
    for mask in tables.masks:
        front = tuple(i for i in bits(mask & several) if (readers[i] | partners[i]) & ~mask)
        changes: dict[int, tuple[int, _Grow]] = {}
        found: list[tuple[int, ...]] = [()] if not mask else []
        for k in bits(mask):
            smaller = place.get(mask ^ 1 << k)
            if smaller is None:
                continue
            read = (f for f in load.flows_of[k] if load.flows[f].mask >> k & 1)
            last = tuple(f for f in read if not load.flows[f].mask & ~mask)
            before = fronts[smaller], tuple(profiles[smaller])
            key = k, partners[k] & mask, before, front, last
            if key not in known:
                known[key] = _change(load, choices, *key)
            change, found = known[key]
            changes[k] = (smaller, change)
        if len(found) > MOST_PROFILES:
            return None
        fronts.append(front)
        profiles.append(found)
        grow.append(changes)
    return Layouts(tuple(len(p) for p in profiles), tuple(grow))


def _change(
    load: ChipLoad,
    choices: LayoutChoices,
    k: int,
    met: int,
    before: tuple[tuple[int, ...], tuple[tuple[int, ...], ...]],
    after: tuple[int, ...],
    last: tuple[int, ...],
) -> tuple[_Grow, list[tuple[int, ...]]]:
    """Add kernel ``k`` to an ideal with a front and its profiles ``before``.

    ``met``: whose choices it goes with; ``last``: the tensors that it is the last to read.
    """
    front, profiles = before
    place = {i: p for p, i in enumerate(front)}
    agreed = [
        (i, choices.agree[pair] if pair == (i, k) else choices.agree[pair].T)
        for i in bits(met)
        for pair in ((i, k), (k, i))
        if pair in choices.agree
    ]
    chosen = np.array(profiles, dtype=np.int64).reshape(len(profiles), len(front))
    good = np.ones((len(profiles), choices.count(k)), dtype=np.bool_)
    for i, pairs in agreed:
        good &= pairs[chosen[:, place[i]] if i in place else [0]]
    old_ones, own_choice = np.nonzero(good)
    columns = [own_choice if i == k else chosen[old_ones, place[i]] for i in after]
    rows = np.array(columns, dtype=np.int64).reshape(len(after), len(old_ones))
    if len(after):
        order = np.lexsort(rows[::-1])
        rows, old_ones, own_choice = rows[:, order], old_ones[order], own_choice[order]
    new = np.ones(len(old_ones), dtype=np.bool_)  # profiles that differ from the one before
    new[1:] = (rows[:, 1:] != rows[:, :-1]).any(axis=0)
    reached = np.cumsum(new) - 1
    states: list[tuple[int, ...]] = [tuple(row) for row in rows.T[new].tolist()]
    makes = sum(1 for f in load.flows_of[k] if load.flows[f].producer == k)
    reads = []
    for f in load.flows_of[k]:
        producer = load.flows[f].producer
        if load.flows[f].mask >> k & 1 and producer in place:
            excess = choices.memory[producer][chosen[old_ones, place[producer]]]
            if excess.any():
                reads.append((f, f in last, excess))
    network = choices.network[k][own_choice]
    made = makes * choices.memory[k][own_choice] + choices.own[k][own_choice]
    same = len(old_ones) == len(profiles) == len(states) and (old_ones == reached).all()
    trivial = bool(same and not network.any() and not made.any() and not reads)
    starts = np.searchsorted(reached, np.arange(len(states)))
    return _Grow(old_ones, own_choice, starts, network, made, tuple(reads), trivial), states


# ---------------------------------------------------------------- excess of a partition


class Excess:
    """Least weighted excess of a partition from ideal ``j``, by profiles at both ends."""

    def __init__(self, steps: Steps, layouts: Layouts, j: int, live: Ints, weights: Floats) -> None:
        self.masks, self.flows, self.grow = steps.tables.masks, steps.load.flows, layouts.grow
        self.start = steps.tables.masks[j]
        self.memory, self.network = weights[:, 1], weights[:, 2]
        begin = np.full((len(live), layouts.n_profiles[j], len(weights)), math.inf)
        begin[np.arange(len(live)), live] = 0.0
        self.known = {j: begin}

    def to(self, ideal: int) -> Floats:
        """Excess by (profile at the start, profile at ``ideal``, weighing). [s]"""
        waiting = [ideal]
        while waiting:
            here = waiting[-1]
            if here in self.known:
                waiting.pop()
                continue
            _, (smaller, change) = self._last(here)
            if smaller in self.known:
                self.known[here] = self._grown(self.known[smaller], smaller, change)
                waiting.pop()
            else:
                waiting.append(smaller)
        return self.known[ideal]

    def _grown(self, values: Floats, smaller: int, change: _Grow) -> Floats:
        if change.trivial:
            return values
        rows = values[:, change.before] + self._added(smaller, change)
        return np.minimum.reduceat(rows, change.starts, axis=1)

    def _added(self, smaller: int, change: _Grow) -> Floats:
        memory = change.made
        for f, is_last, size in change.reads:
            flow = self.flows[f]
            if not self.start >> flow.producer & 1:
                if is_last:  # made and read here: it never leaves
                    memory = memory - size
            elif not flow.mask & self.masks[smaller] & ~self.start:  # its first reader here
                memory = memory + size
        return memory[:, None] * self.memory + change.network[:, None] * self.network

    def choices(self, start: int, ideal: int, end: int, weighing: int) -> dict[int, int]:
        """Choice of every kernel of the partition from profile ``start`` to ``end``."""
        found: dict[int, int] = {}
        while self.masks[ideal] != self.start:
            k, (smaller, change) = self._last(ideal)
            row = slice(change.starts[end], (*change.starts[1:], len(change.own))[end])
            sums = self.known[smaller][start, change.before[row], weighing]
            best = int(np.argmin(sums + self._added(smaller, change)[row, weighing]))
            found[k] = int(change.own[row][best])
            ideal, end = smaller, int(change.before[row][best])
        return found

    def _last(self, ideal: int) -> tuple[int, tuple[int, _Grow]]:
        """Return a kernel of the partition that may come last, and what it adds."""
        return next(entry for entry in self.grow[ideal].items() if not self.start >> entry[0] & 1)
