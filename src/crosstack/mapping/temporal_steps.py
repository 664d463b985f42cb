"""Steps of fusion on a chip that runs kernels one after the other, priced all at once with arrays.

Which steps are legal does not depend on what they take, so they are listed once for all loads of a
graph; loads price the sets of kernels between the ideals (`crosstack.model.temporal`).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_

import numpy as np

from crosstack.mapping.ideals import IdealTables, flags, memberships, to_words
from crosstack.mapping.steps import Deferred, Steps, StepTerms, least_compute
from crosstack.model.legality import Legality, Words, possible_partitions
from crosstack.model.partition import ChipLoad
from crosstack.model.temporal_load import Run, TemporalLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

FEW_IDEALS = 256  # whose steps are all listed and priced before any is asked for
MOST_SETS = 4096  # kernels that may run as one, of which all steps are made
MOST_STEPS = 400_000  # priced before any is asked for
AT_ONCE = 4096  # sets whose legality is looked at together: few enough for a cache
MOST_PRICED = 64  # groups of steps that are kept with their prices
MOST_COMPARED = 4_000_000  # words of ideals and sets at once
MOST_TOUCHED = 200_000  # the same where one word is looked at after the other: few for a cache
# Odd numbers that words of a set are multiplied with, to tell sets apart by one number.
_MIXED = np.random.default_rng(1).integers(0, 2**63, 64, dtype=np.uint64) * np.uint64(2)
_MIXED += np.uint64(1)


# ---------------------------------------------------------------- which steps there are


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of ideals: ``words[number]`` are the kernels between ``start`` and ``to``."""

    start: Ints
    to: Ints
    number: Ints
    words: Words

    @classmethod
    def of(cls, start: Ints, to: Ints, words: Words) -> _Pairs:
        """Return pairs with a row of words each, every set of kernels once."""
        if words.shape[1] == 1:
            sets, number = np.unique(words[:, 0], return_inverse=True)
            return cls(start, to, number, sets[:, None])
        sets, number = np.unique(words, axis=0, return_inverse=True)
        return cls(start, to, number.reshape(-1), sets)

    def only(self, good: Bools) -> _Pairs:
        """Return the pairs of some of the sets."""
        at = good[self.number]
        number = (np.cumsum(good) - 1)[self.number[at]]
        return _Pairs(self.start[at], self.to[at], number, self.words[good])

    def allowed(self, legality: Legality) -> _Pairs:
        """Return the steps that are legal."""
        starts = range(0, len(self.words), AT_ONCE)
        good = [legality.allowed(self.words[at : at + AT_ONCE]) for at in starts]
        return self.only(np.concatenate([np.zeros(0, dtype=np.bool_), *good]))


def _pairs(tables: IdealTables, rows: Ints, products: int, most: int, groups: _Groups) -> _Pairs:
    """Return the pairs from ``rows`` with ``most`` products at most that mix none of ``groups``."""
    words, count = tables.words, tables.count
    held = _held(tables, products)
    inside = (words & words[rows][:, None]) == words[rows][:, None]
    good = inside.all(axis=2) & (count > count[rows][:, None])
    at, to = np.nonzero(good & (held <= held[rows][:, None] + most))
    pairs = _Pairs.of(rows[at], to, words[to] ^ words[rows[at]])
    whole = np.ones(len(pairs.words), dtype=np.bool_)
    for group in to_words(groups, tables.member.shape[1]):
        part = pairs.words & group
        whole &= ~part.any(axis=1) | (part == pairs.words).all(axis=1)
    return pairs if whole.all() else pairs.only(whole)


def _held(tables: IdealTables, products: int) -> Ints:
    """Return how many of some kernels every ideal holds, counted once for all its steps. [1]"""
    known = tables.known.get(("held", products))
    if not isinstance(known, np.ndarray):
        known = np.asarray(tables.member[:, bits(products)].sum(axis=1))
        tables.known["held", products] = known
    return known


_Groups = tuple[int, ...]  # masks of kernels that partitions do not mix with others


def _steps_of_sets(tables: IdealTables, sets: Sequence[int], groups: _Groups) -> _Pairs:
    """Return the pairs whose kernels between are one of ``sets`` that mix none of ``groups``."""
    n, behind = tables.member.shape[1], _always_before(tables)
    sets = [s for s in sets if not any(s & group not in (0, s) for group in groups)]
    needs = [reduce(or_, (behind[i] for i in bits(s))) & ~s for s in sets]
    own, need = to_words(sets, n), to_words(needs, n)
    # A sum over words is the same for a union as for its parts: what leads where is looked up.
    ideals, of_sets = tables.words @ _MIXED[: own.shape[1]], own @ _MIXED[: own.shape[1]]
    order = np.argsort(ideals)
    ranked, columns = ideals[order], tuple(zip(tables.words.T, own.T, need.T, strict=True))
    chunk = max(MOST_TOUCHED // max(len(own), 1), 1)
    found: list[tuple[Ints, Ints, Ints]] = []
    for first in range(0, len(tables.masks), chunk):
        ready = np.ones((len(tables.masks[first : first + chunk]), len(own)), dtype=np.bool_)
        for words, word, needed in columns:
            ready &= (words[first : first + chunk, None] & (word | needed)) == needed
        start, number = np.divmod(np.flatnonzero(ready), ready.shape[1])
        start += first
        at = np.searchsorted(ranked, ideals[start] + of_sets[number])
        to = order[np.minimum(at, len(order) - 1)]
        met = np.ones(len(to), dtype=np.bool_)
        for words, word, _ in columns:
            met &= words[to] == (words[start] | word[number])
        found.append((start[met], to[met], number[met]))
    start, to, number = (np.concatenate(columns) for columns in zip(*found, strict=True))
    used, number = np.unique(number, return_inverse=True)
    return _Pairs(start, to, number, own[used])


def _always_before(tables: IdealTables) -> list[int]:
    """Return by kernel the mask of those in every ideal that holds it, itself among them."""
    known = tables.known.get("always before")
    if not isinstance(known, list):
        inside = (tables.words[tables.member[:, i]] for i in range(tables.member.shape[1]))
        rows = [np.bitwise_and.reduce(words, axis=0) for words in inside]
        known = [sum(int(word) << 64 * w for w, word in enumerate(row)) for row in rows]
        tables.known["always before"] = known
    return known


@dataclass(slots=True, eq=False)
class _Sets:
    """Sets of kernels as arrays: ``member`` (n, sets), ``outside`` (sets, words)."""

    member: Bools
    outside: Words
    crossed: dict[object, list[tuple[Ints, Bools]]] = field(default_factory=dict)

    @classmethod
    def of(cls, words: Words, n: int) -> _Sets:
        """Return sets of n kernels by their words."""
        return cls(flags(words, n).T, ~words)

    def crossing(self, run: Run) -> list[tuple[Ints, Bools]]:
        """Return kernels with a first tensor, a second and so on, and whose border it crosses.

        In the order of `Run.moves`; shapes (kernels,) and (kernels, sets).
        """
        ends = tuple(tuple(mask for mask, _ in moves) for moves in run.moves)
        if ends not in self.crossed:
            found = list[tuple[Ints, Bools]]()
            for place in range(max(map(len, ends), default=0)):
                rows = [i for i, masks in enumerate(ends) if len(masks) > place]
                there = to_words([ends[i][place] for i in rows], len(ends))
                crosses: Bools = np.any(there[:, None] & self.outside, axis=2)
                found.append((np.array(rows), crosses))
            self.crossed[ends] = found
        return self.crossed[ends]


@dataclass(slots=True, eq=False)
class _LegalSteps:
    """Legal steps between ideals; all of them, where that is known to be few, or as asked for.

    ``sets`` are those of all steps, where they are priced at once.
    """

    tables: IdealTables
    legality: Legality
    groups: _Groups
    listed: _Pairs | None = None
    first: list[int] = field(default_factory=list)  # the first step from every ideal
    sets: _Sets | None = None
    found: dict[int, tuple[_Pairs, _Sets, slice]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """List all steps where they are few."""
        n_ideals, n = self.tables.member.shape
        sets = possible_partitions(self.legality, MOST_SETS)
        if sets is not None:
            self.listed = _steps_of_sets(self.tables, sets, self.groups)
        elif n_ideals <= FEW_IDEALS:
            key = self.legality.products, max(self.legality.largest, 1), self.groups
            pairs = self.tables.known.get(key)
            if not isinstance(pairs, _Pairs):
                pairs = self.tables.known[key] = _pairs(self.tables, np.arange(n_ideals), *key)
            self.listed = pairs.allowed(self.legality)
        if self.listed is not None:
            self.first = np.searchsorted(self.listed.start, np.arange(n_ideals + 1)).tolist()
            if len(self.listed.to) <= MOST_STEPS:
                self.sets = _Sets.of(self.listed.words, n)

    def of(self, j: int) -> tuple[_Pairs, _Sets, slice]:
        """Return some steps with their sets, and which of them leave ideal ``j``."""
        if self.listed is not None and self.sets is not None:
            return self.listed, self.sets, slice(self.first[j], self.first[j + 1])
        if j not in self.found:
            self.find([j])
        return self.found[j]

    def find(self, rows: Sequence[int]) -> None:
        """Make the steps from some ideals, as many at once as arrays are not too long for."""
        new = np.array([j for j in rows if j not in self.found], dtype=np.int64)
        chunk = max(MOST_COMPARED // self.tables.words.size, 1)
        for at in range(0, len(new), chunk):
            some = new[at : at + chunk]
            pairs = self._leaving(some)
            sets = _Sets.of(pairs.words, self.tables.member.shape[1])
            ends = [0, *np.searchsorted(pairs.start, some, side="right").tolist()]
            for j, (begin, end) in zip(some.tolist(), itertools.pairwise(ends), strict=True):
                self.found[j] = pairs, sets, slice(begin, end)

    def _leaving(self, rows: Ints) -> _Pairs:
        """Return the steps from some ideals, in their order."""
        listed, legality = self.listed, self.legality
        if listed is None:
            most = max(legality.largest, 1)
            pairs = _pairs(self.tables, rows, legality.products, most, self.groups)
            return pairs.allowed(legality)
        at = np.concatenate([np.arange(self.first[j], self.first[j + 1]) for j in rows.tolist()])
        used, number = np.unique(listed.number[at], return_inverse=True)
        return _Pairs(listed.start[at], listed.to[at], number, listed.words[used])


def _legal_steps(tables: IdealTables, legality: Legality, groups: _Groups) -> _LegalSteps:
    found = tables.known.get((legality, groups))
    if not isinstance(found, _LegalSteps):
        found = tables.known[legality, groups] = _LegalSteps(tables, legality, groups)
    return found


# ---------------------------------------------------------------- what they take


class TemporalSteps(Steps):
    """As `Steps`; SRAM and cores do not bind, legality does."""

    def __init__(
        self, load: ChipLoad, tables: IdealTables, deferred: Deferred | None = None
    ) -> None:
        super().__init__(load, tables, deferred)
        assert load.temporal is not None
        self.temporal = load.temporal
        self.legal = _legal_steps(tables, load.temporal.legality, load.unmixed)
        self.prices: dict[_Sets, tuple[StepTerms, Floats]] = {}
        self.whole = None if self.legal.sets is None else self._from(0)[:2]

    def _add_up(self) -> None:
        """As `Steps`, of times alone: nothing is held on the chip."""
        load, tables = self.load, self.tables
        values = (least_compute(load), load.network, load.data, load.own_memory, load.weight_time)
        sums = tables.sums("member", np.array(values).T)
        self.compute, self.network, self.data, self.own, self.weights = sums.T.copy()
        self.out = tables.sums("live", self.total)
        self._add_bounds()

    def shortest(self, limit: float) -> tuple[float, list[int]] | None:
        """Return the time of the shortest path below ``limit`` and its ideals, all steps priced.

        Ideals of one size are passed at once. Of paths that take as long, the one whose last
        ideals come first.
        """
        assert self.whole is not None
        assert self.legal.listed is not None
        start, to, priced = self.legal.listed.start, self.legal.listed.to, self.whole[1]
        best = np.full(len(self.tables.masks), np.inf)
        best[0] = 0.0
        borders = [self.legal.first[ideal] for ideal in self.ends.tolist()]
        for first, last in itertools.pairwise(borders):
            reached = best[start[first:last]] + priced[first:last]
            good = reached + self.rest[to[first:last]] < limit
            np.minimum.at(best, to[first:last][good], reached[good])
        if not best[-1] < limit:
            return None
        path = [len(best) - 1]
        while path[-1]:
            into = np.nonzero(to == path[-1])[0]
            path.append(int(start[into[np.argmin(best[start[into]] + priced[into])]]))
        return float(best[-1]), path[::-1]

    def leave(self, j: int, limit: float) -> tuple[Ints, Floats]:
        """Return the ideals that steps from ``j`` lead to, and what they take; as `Steps`."""
        terms, priced, at = self._from(j)
        to, priced = terms.to[at], priced[at]
        keep = priced + self.rest[to] < limit
        return to[keep], priced[keep]

    def terms(self, j: int, limit: float) -> StepTerms:
        """Return the steps of `leave` with every term of the partitions, before any price."""
        every, priced, at = self._from(j)
        terms = every.part(at)
        return terms.part(priced[at] + self.rest[terms.to] < limit)

    def _from(self, j: int) -> tuple[StepTerms, Floats, slice]:
        """Return priced steps, and which of them leave ideal ``j``."""
        pairs, sets, at = self.legal.of(j)
        if sets not in self.prices:
            if len(self.prices) >= MOST_PRICED:
                self.prices.clear()
            values = _set_terms(self.temporal, sets)[:, pairs.number]
            self.prices[sets] = self._price(pairs.start, pairs.to, values)
        return *self.prices[sets], at

    def expect(self, rows: Sequence[int]) -> None:
        """Make the steps from some ideals together, before they are asked for one by one."""
        if self.whole is None:
            self.legal.find(rows)

    def _price(self, start: Ints, to: Ints, values: Floats) -> tuple[StepTerms, Floats]:
        """Price steps with these `_set_terms`: their terms, and their times with what fills them.

        Those whose tensors do not fit the main memory take for ever.
        """
        device, memory, unshared = values
        network = self._network(to, start)
        # What the device takes already holds what main memory does, unless nothing hides.
        busy = device if self.temporal.hides else device - memory
        if self.deferred is not None:
            memory = memory + self.deferred.leaving(start, to)
        time = self.cost(busy, memory, network)
        compute = busy - unshared  # as kernels left out are counted, launches by their shares
        terms = StepTerms(to, time, compute, memory, network, np.zeros(len(to)))
        priced = self.priced(time, terms, start)
        if self.held is not None:
            priced = np.where(self._rooms(to, start), priced, np.inf)
        return terms, priced


def _set_terms(temporal: TemporalLoad, sets: _Sets) -> Floats:
    """Return time of the device, of main memory, and of launches unshared, shape (3, sets). [s]

    Unshared is what is left of launches for kernels that may be in the partition besides. The
    others are as `TemporalLoad.terms` has them: sums are over kernels one after the other, as
    there, so that the same comes out.
    """
    by_kernel = temporal.work, temporal.after, temporal.delay
    work, after, delay = (np.array(each)[:, None] for each in by_kernel)
    device, memory, launches = np.zeros((3, sets.member.shape[1]))
    n = len(temporal.work)
    for run in temporal.runs:
        inside = sets.member
        if run.members != temporal.legality.everything:
            inside = inside & memberships([run.members], n).T
        moved = np.repeat(np.array(run.own)[:, None], inside.shape[1], axis=1)
        for place, (rows, crosses) in enumerate(sets.crossing(run)):
            times = [run.moves[i][place][1] for i in rows.tolist()]
            moved[rows] += crosses * np.array(times)[:, None]
        waited = np.where(moved > 0, moved + delay, 0.0)
        busy = np.maximum(work, waited) if temporal.hides else work + waited
        share = run.share
        device = device + share * np.where(inside, after + busy, 0.0).sum(axis=0)
        memory = memory + share * np.where(inside, moved, 0.0).sum(axis=0)
        launches = launches + share * inside.any(axis=0)
    shares = np.where(sets.member, np.array(temporal.shares)[:, None], 0.0).sum(axis=0)
    launch = temporal.launch
    return np.stack([device + launch * launches, memory, launch * (launches - shares)])


def make_steps(load: ChipLoad, tables: IdealTables, deferred: Deferred | None = None) -> Steps:
    """Return what prices the steps of a load, as its chip runs kernels."""
    return (Steps if load.temporal is None else TemporalSteps)(load, tables, deferred)
