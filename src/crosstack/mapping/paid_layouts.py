"""Choices together with the layouts that a kernel pays for, so that what is shared is pairwise.

What a kernel pays to change its output depends on what all of its readers need
(`crosstack.model.conversions`). With the set K of layouts that it pays for as a part of its
choice, the cost is the kernel's own, and a reader only has to go with it: it needs no change, or
one into K. What is read a second time, as kernels are computed again, is changed a second time: K
holds the layouts of both times, the second time's in bits behind the first's.

Sets and parameters: kernel i with pairs (a, K) of a choice a in A_i and a set K; cost c_i(a) of the
choice and p_i(a, K) of the changes. Variables: one pair a kernel.

(1) minimise sum_i c_i(a_i) + p_i(a_i, K_i), where every reader goes with what it reads.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

import numpy as np

from crosstack.mapping.sharding import (
    Elimination,
    eliminate,
    eliminate_tables,
    least_of_tables,
)
from crosstack.model.choice_index import ChoiceIndex
from crosstack.model.choices import Choices
from crosstack.model.conversions import Edges
from crosstack.workload.kernel_graph import Bools, Floats, Ints

MOST_DOMAINS = 2_000  # of one graph whose pairs are kept
MOST_KERNEL_PAIRS = 20_000  # of kernels, and of edges, that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class PaidLayouts:
    """Per kernel and pair: ``codes`` (the choice) and ``price`` of the changes [s].

    ``agree`` tells by (producer, reader) which pairs go together, where not all do; ``apart`` is
    what that costs, nothing or infinity, by pairs of kernels in ascending order.
    """

    codes: tuple[Ints, ...]
    price: tuple[Floats, ...]
    agree: dict[tuple[int, int], Bools]
    apart: dict[tuple[int, ...], Floats]


@dataclass(frozen=True, slots=True, eq=False)  # hashed by identity, for what two of them share
class _Pairs:
    """Pairs of one kernel: choices, and sets of layouts.

    Row ``fewer[r]`` is of the same choice as row ``more[r]``, and its set is part of the other's.
    """

    codes: Ints
    sets: Ints
    fewer: Ints
    more: Ints


@dataclass(frozen=True, slots=True)
class _Whole:
    """Pairs of all kernels within some domains, one after the other; ``owner`` is the kernel.

    Kernel i has the rows from ``ends[i]`` on.
    """

    of: tuple[_Pairs, ...]
    codes: Ints
    sets: Ints
    owner: Ints
    ends: tuple[int, ...]
    fewer: Ints
    more: Ints


@dataclass(frozen=True, slots=True, eq=False)
class _Before:
    """What is known of pairs before any price; the nodes of a search share nearly all of it."""

    index: ChoiceIndex
    edges: Edges
    need: Ints  # sets, of every entry
    readers: tuple[tuple[int, ...], ...]  # edges, by the kernel they leave
    ends: tuple[tuple[int, int], ...]  # of every edge
    of_kernel: dict[object, _Pairs] = field(default_factory=dict)
    of_edge: dict[object, Bools | None] = field(default_factory=dict)
    wholes: dict[object, _Whole] = field(default_factory=dict)
    left: dict[object, tuple[Ints, PaidLayouts]] = field(default_factory=dict)

    def whole(self, domains: tuple[tuple[int, ...], ...]) -> _Whole:
        """Return the pairs of all kernels within ``domains``."""
        if domains not in self.wholes:
            if len(self.wholes) >= MOST_DOMAINS:
                self.wholes.clear()
            of = tuple(self._pairs(i, domains) for i in range(len(domains)))
            counts = [len(pairs.codes) for pairs in of]
            ends = tuple(itertools.accumulate(counts, initial=0))
            placed = list(zip(of, ends, strict=False))
            self.wholes[domains] = _Whole(
                of,
                codes=np.concatenate([pairs.codes for pairs in of]),
                sets=np.concatenate([pairs.sets for pairs in of]),
                owner=np.repeat(np.arange(len(of)), counts),
                ends=ends,
                fewer=np.concatenate([pairs.fewer + at for pairs, at in placed]),
                more=np.concatenate([pairs.more + at for pairs, at in placed]),
            )
        return self.wholes[domains]

    def _pairs(self, i: int, domains: tuple[tuple[int, ...], ...]) -> _Pairs:
        """Pairs of kernel ``i``, but for sets that nobody needs or that leave a reader nothing."""
        edges, target = self.readers[i], self.index.target
        needed = tuple(domains[int(target[e])] for e in edges)
        key = i, domains[i], needed
        if key in self.of_kernel:
            return self.of_kernel[key]
        if len(self.of_kernel) >= MOST_KERNEL_PAIRS:
            self.of_kernel.clear()
        found: list[tuple[int, int]] = []
        for code in domains[i]:
            asked = [
                set(self.need[self.index.table(e, (code,), domain)[0]].tolist())
                for e, domain in zip(edges, needed, strict=True)
            ]
            sets = {0}
            for one in set().union(*asked):
                sets |= {held | one for held in sets}
            found += [
                (code, s)
                for s in sorted(sets)
                if all(any(not one & ~s for one in ones) for ones in asked)
            ]
        codes, numbers = np.array(found, dtype=np.int64).reshape(-1, 2).T
        part = (codes[:, None] == codes) & (numbers[:, None] & ~numbers == 0)
        fewer, more = np.nonzero(part & ~np.eye(len(codes), dtype=np.bool_))
        self.of_kernel[key] = _Pairs(codes, numbers, fewer, more)
        return self.of_kernel[key]

    def kept(
        self, domains: tuple[tuple[int, ...], ...], dropped: Bools
    ) -> tuple[Ints, PaidLayouts]:
        """Return the pairs left where some are ``dropped``, and what goes with what, unpriced."""
        key = domains, dropped.tobytes()
        if key not in self.left:
            if len(self.left) >= MOST_DOMAINS:
                self.left.clear()
            self.left[key] = self._settled(self.whole(domains), dropped)
        return self.left[key]

    def _settled(self, whole: _Whole, dropped: Bools) -> tuple[Ints, PaidLayouts]:
        alive = [~dropped[a:b] for a, b in itertools.pairwise(whole.ends)]
        agree: dict[tuple[int, int], Bools] = {}
        for e, (i, j) in enumerate(self.ends):
            good = self._agree(e, whole.of[i], whole.of[j])
            if good is not None:
                agree[i, j] = agree[i, j] & good if (i, j) in agree else good
        _drop_unsupported(agree, alive)
        apart: dict[tuple[int, ...], Floats] = {}
        for i, j in list(agree):
            good = agree[i, j] = agree[i, j][alive[i]][:, alive[j]]
            if good.all():
                del agree[i, j]
                continue
            key, fits = ((i, j), good) if i < j else ((j, i), good.T)
            apart[key] = apart.get(key, 0.0) + np.where(fits, 0.0, np.inf)
        codes = tuple(of.codes[some] for of, some in zip(whole.of, alive, strict=True))
        left = PaidLayouts(codes=codes, price=(), agree=agree, apart=apart)
        return np.flatnonzero(np.concatenate(alive)), left

    def _agree(self, e: int, before: _Pairs, after: _Pairs) -> Bools | None:
        """Which pairs of the ends of an edge go together; None: all."""
        key = e, before, after
        if key not in self.of_edge:
            if len(self.of_edge) >= MOST_KERNEL_PAIRS:
                self.of_edge.clear()
            needed = self.need[self.index.table(e, before.codes, after.codes)]
            good = needed & ~before.sets[:, None] == 0
            self.of_edge[key] = None if good.all() else good
        return self.of_edge[key]


def _drop_unsupported(agree: dict[tuple[int, int], Bools], alive: list[Bools]) -> None:
    """Drop pairs that some neighbour has none to go with, until none is left."""
    changed = True
    while changed:
        changed = False
        for (i, j), good in agree.items():
            for k, supported in ((i, good[:, alive[j]].any(1)), (j, good[alive[i]].any(0))):
                if (alive[k] & ~supported).any():
                    alive[k] &= supported
                    changed = True


@lru_cache(maxsize=64)  # graphs of ends, with what runs again
def _before(index: ChoiceIndex, edges: Edges, first: bytes, again: bytes, width: int) -> _Before:
    """Return what is known of edges read the ``first`` time and ``again``; ``width`` of a set."""
    readers: list[list[int]] = [[] for _ in range(index.n)]
    for e, source in enumerate(index.source.tolist()):
        readers[source].append(e)
    once, twice = (np.frombuffer(read, dtype=np.bool_)[index.edge] for read in (first, again))
    need = edges.need * once | (edges.need * twice) << width
    ends = zip(index.source.tolist(), index.target.tolist(), strict=True)
    return _Before(index, edges, need, tuple(map(tuple, readers)), tuple(ends))


def paid_layouts(choices: Choices, domains: Sequence[Sequence[int]]) -> PaidLayouts:
    """Return the pairs of every kernel within ``domains``, of rules by which readers share."""
    return _paid(choices, tuple(map(tuple, domains)))


@lru_cache(maxsize=16)
def _paid(choices: Choices, domains: tuple[tuple[int, ...], ...]) -> PaidLayouts:
    """Return all pairs but those whose layouts another one of the choice has for as little."""
    left, price = _left([choices], domains)
    return replace(left, price=tuple(own[0] for own in price))


def _left(
    many: Sequence[Choices], domains: tuple[tuple[int, ...], ...]
) -> tuple[PaidLayouts, list[Floats]]:
    """Return the pairs of choices of one graph that some of ``many`` prices leave, and their price.

    Of every kernel, shape (prices, pairs). [s]
    """
    known = many[0].conversions
    width = known.table.shape[1].bit_length() - 1
    before = _before(
        many[0].index, known.edges, known.first.tobytes(), known.again.tobytes(), width
    )
    whole = before.whole(domains)
    once, twice = whole.sets & (1 << width) - 1, whole.sets >> width
    tables = np.stack([one.conversions.table for one in many])

    def price_of(sets: Ints) -> Floats:
        return np.where(sets > 0, tables[:, whole.codes, sets], 0.0)

    price = known.share * (price_of(once) + price_of(twice))
    if known.share < 1:
        price = price + (1 - known.share) * price_of(once | twice)
    dropped = np.zeros(len(whole.codes), dtype=np.bool_)
    no_less = (price[:, whole.more] <= price[:, whole.fewer]).all(axis=0)
    dropped[whole.fewer[no_less]] = True
    rows, left = before.kept(domains, dropped)
    ends = itertools.accumulate(map(len, left.codes), initial=0)
    return left, [price[:, rows[a:b]] for a, b in itertools.pairwise(ends)]


def least_with_layouts(
    choices: Choices, domains: Sequence[Sequence[int]], nodes: Floats, *, sent: float = 1.0
) -> Elimination:
    """Minimise (1), or bound it from below where it is too wide.

    ``nodes`` is the cost of every choice [s], ``sent`` the weight of changes of layout. [1]
    """
    known = choices.conversions
    if not known.shared:
        return eliminate(domains, nodes, choices.index, sent * known.edge_time)
    paid = paid_layouts(choices, domains)
    joined = zip(paid.codes, paid.price, strict=True)
    tables: dict[tuple[int, ...], Floats] = {
        (i,): nodes[codes] + sent * price for i, (codes, price) in enumerate(joined)
    }
    return eliminate_tables(paid.codes, tables | paid.apart)


def least_of_many(
    many: Sequence[tuple[Choices, Sequence[Sequence[int]], Floats]], *, sent: float = 1.0
) -> Floats:
    """Return the bounds of `least_with_layouts`, of several costs of choices, all at once. [s]

    Those of one graph with the same domains have the same pairs but for their prices.

    Parameters
    ----------
    many : sequence of (Choices, domains, array)
        As of `least_with_layouts`.
    """
    found, alike = np.zeros(len(many)), dict[object, list[int]]()
    for place, (choices, domains, nodes) in enumerate(many):
        known = choices.conversions
        if not known.shared:
            found[place] = least_with_layouts(choices, domains, nodes, sent=sent).bound
            continue
        read = known.first.tobytes(), known.again.tobytes(), known.share
        key = id(choices.index), id(known.edges), read, tuple(map(tuple, domains))
        alike.setdefault(key, []).append(place)
    for places in alike.values():
        own, domains = [many[place][0] for place in places], many[places[0]][1]
        left, price = _left(own, tuple(map(tuple, domains)))
        costs = np.stack([many[place][2] for place in places])
        tables: dict[tuple[int, ...], Floats] = {
            (i,): costs[:, codes] + sent * paid
            for i, (codes, paid) in enumerate(zip(left.codes, price, strict=True))
        }
        found[places] = least_of_tables(left.codes, tables | left.apart, len(places))
    return found
