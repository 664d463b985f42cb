"""Choices and covers as a model of pairs, without what main memory has no room for.

The model is that of `crosstack.mapping.choice_covers`, (1) to (4). What main memory has no room for
(`crosstack.mapping.room_conflicts`) is a table over all that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from crosstack.mapping.group_covers import GroupCovers
from crosstack.mapping.paid_layouts import PaidLayouts, paid_layouts
from crosstack.mapping.pricing import Domains
from crosstack.mapping.room_conflicts import Bar
from crosstack.mapping.sharding import Elimination, eliminate_tables
from crosstack.model.choices import Choices
from crosstack.model.context import results_sent
from crosstack.model.legality import Legality
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad
from crosstack.model.temporal_load import TemporalLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph

MOST_ENTRIES = 300_000  # of one table of the elimination

Loads = Callable[[Sequence[Ints], Legality], Sequence[TemporalLoad]]
Waiting = dict[tuple[int, int], Floats]  # of groups, what pairs of their covers cost: 0 or infinity


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """What each pair of each kernel sends [s], and whether that leaves before it is read.

    ``places`` is the number of its choice among those of the kernel.
    """

    network: tuple[Floats, ...]
    sent: tuple[Bools, ...]
    places: tuple[Ints, ...]

    @classmethod
    def of(
        cls,
        choices: Choices,
        domains: Domains,
        paid: PaidLayouts,
        arrays: KernelGraph,
        plan: MeshPlan,
    ) -> _Pairs:
        """Return it of the pairs that are ``paid``."""
        codes = paid.codes
        sent = [choices.network_time[c] + p for c, p in zip(codes, paid.price, strict=True)]
        leaves = tuple(np.zeros(len(c), dtype=np.bool_) for c in codes)
        for row in range(max(map(len, codes))):
            at = [min(row, len(c) - 1) for c in codes]
            network = np.array([times[k] for times, k in zip(sent, at, strict=True)])
            chosen = np.array([c[k] for c, k in zip(codes, at, strict=True)])
            gone = results_sent(arrays, plan, network, choices.context_time[chosen]) > 0
            for own, k, left in zip(leaves, at, gone.tolist(), strict=True):
                own[k] = left
        number = np.zeros(len(choices.network_time), dtype=np.int64)
        for domain in domains:
            number[list(domain)] = np.arange(len(domain))
        places = (number[c] for c in codes)
        times = tuple(n + choices.data_time[c] for n, c in zip(sent, codes, strict=True))
        return cls(times, leaves, tuple(places))


@dataclass(frozen=True, slots=True, eq=False)
class _Taken:
    """What each kernel takes in a set, by its choice; ``near`` are those it matters for."""

    loads: Sequence[TemporalLoad]
    memory_price: float
    near: tuple[int, ...]
    known: dict[tuple[int, int], Floats] = field(default_factory=dict)

    @classmethod
    def of(cls, loads: Sequence[TemporalLoad], memory_price: float) -> _Taken:
        """Return it of loads that have each kernel's choices in turn."""
        near = [0] * len(loads[0].work)
        for run in loads[0].runs:
            for i, moves in enumerate(run.moves):
                for mask, _ in moves:
                    near[i] |= mask
        return cls(loads, memory_price, tuple(near))

    def by_choice(self, i: int, inside: int) -> Floats:
        """Return what a kernel takes in a set, and what the objective adds. [s]"""
        own = 1 << i
        key = i, inside & self.near[i]
        if key not in self.known:
            busy = [load.busy(own, key[1] | own) for load in self.loads]
            self.known[key] = np.array([b[0] + self.memory_price * b[2] for b in busy])
        return self.known[key]


@dataclass(frozen=True, slots=True, eq=False)
class CoverModel:
    """The pairwise model (1) to (4): ``variables``, costs by one or two of them, and kernels. [s]

    The first variables are the pairs of kernels, by their ``codes``; ``covers`` has the variable of
    every group, -1 for none, and the numbers of its covers there.
    """

    codes: tuple[Ints, ...]
    variables: Sequence[Ints | range]
    tables: dict[tuple[int, ...], Floats]
    covers: tuple[tuple[int, Ints], ...]

    def least(self, price: float, sizes: Floats) -> Elimination:
        """Eliminate all at a price of what choices keep. [s/B]

        Parameters
        ----------
        sizes : array, shape (choices,)
            What each keeps. [B]
        """
        priced = dict(self.tables)
        if price:
            for i, codes in enumerate(self.codes):
                priced[(i,)] = priced[(i,)] + price * sizes[codes]
        return eliminate_tables(self.variables, priced, most=MOST_ENTRIES)

    def covers_of(self, best: Ints) -> tuple[int, ...]:
        """Return the cover of every group that values of all variables have."""
        places = (kept[best[place] if place >= 0 else 0] for place, kept in self.covers)
        return tuple(map(int, places))


@dataclass(frozen=True, slots=True, eq=False)
class _GroupTimes:
    """What a group takes by cover, and by column and set what each kernel with several pairs adds.

    The latter by kernel, with its column of the covers. [s]
    """

    fixed: Floats
    several: dict[int, tuple[int, Floats]]


@dataclass(frozen=True, slots=True, eq=False)
class CoverCosts:
    """What a `CoverModel` is made of, whatever main memory has no room for.

    ``network`` is what each pair sends. [s]
    """

    groups: tuple[GroupCovers, ...]
    waiting: Waiting
    paid: PaidLayouts
    pairs: _Pairs
    network: tuple[Floats, ...]
    times: tuple[_GroupTimes, ...]

    @classmethod
    def of(
        cls,
        load: ChipLoad,
        known: tuple[tuple[GroupCovers, ...], Waiting],
        choices: Choices,
        domains: Domains,
        arrays: KernelGraph,
        plan: MeshPlan,
        loads: Loads,
    ) -> CoverCosts:
        """Return it; parameters as `crosstack.mapping.choice_covers.least_of_choices`.

        ``known`` are the covers of groups, and which wait for one another.
        """
        assert load.temporal is not None
        groups, waiting = known
        paid = paid_layouts(choices, domains)
        pairs = _Pairs.of(choices, domains, paid, arrays, plan)
        shardings = [
            np.array([domain[min(k, len(domain) - 1)] for domain in domains])
            for k in range(max(map(len, domains)))
        ]
        taken = _Taken.of(loads(shardings, load.temporal.legality), load.memory_price)
        network = tuple(sent * (1 + load.network_price) for sent in pairs.network)
        times = tuple(_times_of(group, pairs, taken, arrays.succs) for group in groups)
        return cls(groups, waiting, paid, pairs, network, times)

    def without(self, bars: Sequence[Bar]) -> CoverModel | None:
        """Return the model without what is barred; None where a group has no cover left."""
        tables: dict[tuple[int, ...], Floats] = {(i,): own for i, own in enumerate(self.network)}
        covers, numbers = list[range](), list[tuple[int, Ints]]()
        for place, group in enumerate(self.groups):
            every = any(place in pair for pair in self.waiting)
            kept = _left(group, self.times[place], _bars_of(bars, place), every=every)
            if not len(kept):
                return None
            fixed, chosen = self.times[place].fixed[kept], group.held[kept]
            several = self.times[place].several.items()
            by_kernel = {i: times[chosen[:, column]].T for i, (column, times) in several}
            number = len(self.network) + len(covers)
            numbers.append((number if len(kept) > 1 else -1, kept))
            if len(kept) == 1:  # one cover, whatever the choices
                tables[group.kernels[:1]] = tables[group.kernels[:1]] + fixed[0]
                for i, times in by_kernel.items():
                    tables[(i,)] = tables[(i,)] + times[:, 0]
                continue
            covers.append(range(len(kept)))
            tables[(number,)] = fixed
            tables |= {(i, number): times for i, times in by_kernel.items()}
        for (a, b), apart in self.waiting.items():
            (one, ones), (other, others) = numbers[a], numbers[b]
            if one >= 0 and other >= 0:
                tables[one, other] = apart[ones][:, others]
        tables |= self.paid.apart
        for bar in bars:
            self._bar(tables, bar, numbers)
        codes = self.paid.codes
        return CoverModel(codes, [*codes, *covers], tables, tuple(numbers))

    def _bar(
        self,
        tables: dict[tuple[int, ...], Floats],
        bar: Bar,
        numbers: Sequence[tuple[int, Ints]],
    ) -> None:
        """Add infinity where variables have what is barred together."""
        barred = {k: own[self.pairs.places[k]] for k, own in bar.choices.items()}
        for place, own in bar.covers.items():
            number, kept = numbers[place]
            if number >= 0:
                barred[number] = own[kept]
            elif not own[kept].all():  # the only cover there is left is not barred
                return
        if not barred:
            barred = {0: np.ones(len(self.network[0]), dtype=np.bool_)}
        scope = tuple(sorted(barred))
        each = (barred[i].reshape([-1 if i == j else 1 for j in scope]) for i in scope)
        table = np.where(np.asarray(reduce(np.logical_and, each)), np.inf, 0.0)
        tables[scope] = tables[scope] + table if scope in tables else table


def _bars_of(bars: Sequence[Bar], place: int) -> list[tuple[Bools, bool]]:
    """Return which covers of a group bars are of, and whether of them alone."""
    return [(bar.covers[place], bar.alone) for bar in bars if place in bar.covers]


def _times_of(
    group: GroupCovers, pairs: _Pairs, taken: _Taken, readers: Sequence[int]
) -> _GroupTimes:
    """Return what a group takes; ``readers`` are masks of those of every kernel."""
    launch = taken.loads[0].launches
    begun = np.array([launch(s) / s.bit_count() for s in group.sets])
    fixed = begun[group.held].sum(axis=1)
    several = dict[int, tuple[int, Floats]]()
    for column, i in enumerate(group.kernels):
        times = np.full((len(group.sets), len(pairs.places[i])), np.inf)
        for number in np.unique(group.held[:, column]).tolist():
            inside = group.sets[number]
            times[number] = taken.by_choice(i, inside)[pairs.places[i]]
            if inside & readers[i]:
                times[number, pairs.sent[i]] = np.inf
        if times.shape[1] > 1:
            several[i] = column, times
        else:
            fixed = fixed + times[group.held[:, column], 0]
    return _GroupTimes(fixed, several)


def _left(
    group: GroupCovers, times: _GroupTimes, bars: Sequence[tuple[Bools, bool]], *, every: bool
) -> Ints:
    """Return the covers of a group that may be best.

    Of those that are the same for all kernels with several pairs, and for all ``bars``, the one
    that takes least, unless it matters which one it is: then ``every``.
    """
    fixed, told = times.fixed, group.held[:, [column for column, _ in times.several.values()]]
    for own, alone in bars:
        if alone:
            fixed = np.where(own, np.inf, fixed)
        else:
            told = np.concatenate([told, own[:, None]], axis=1)
    kept = np.flatnonzero(np.isfinite(fixed))
    if every or not len(kept):
        return kept
    ranked = kept[np.argsort(fixed[kept], kind="stable")]
    return np.asarray(ranked[np.unique(told[ranked], axis=0, return_index=True)[1]])
