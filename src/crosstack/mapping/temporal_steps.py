"""Steps of fusion on a chip that runs kernels one after the other, priced all at once with arrays.

Which steps are legal does not depend on what they take, so they are listed once for all loads of a
graph; loads price the sets of kernels between the ideals (`crosstack.model.temporal`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crosstack.mapping.ideals import IdealTables, memberships, to_words
from crosstack.mapping.steps import TOLERANCE, Filling, Gates, Steps, StepTerms
from crosstack.model.legality import Legality
from crosstack.model.partition import ChipLoad, combine_arrays
from crosstack.model.temporal import Run, TemporalLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

__all__ = ["TemporalSteps", "make_steps"]

FEW_IDEALS = 256  # whose steps are all listed and priced before any is asked for


# ---------------------------------------------------------------- which steps there are


@dataclass(frozen=True, slots=True)
class _Pairs:
    """Pairs of ideals: ``masks[number]`` are the kernels between ``start`` and ``to``."""

    start: Ints
    to: Ints
    number: Ints
    masks: tuple[int, ...]

    def allowed(self, legality: Legality) -> _Pairs:
        """Return the steps that are legal."""
        good = np.array([legality.allows(mask) for mask in self.masks], dtype=np.bool_)
        at = good[self.number]
        number = (np.cumsum(good) - 1)[self.number[at]]
        masks = tuple(mask for mask, fine in zip(self.masks, good.tolist(), strict=True) if fine)
        return _Pairs(self.start[at], self.to[at], number, masks)


def _pairs(tables: IdealTables, rows: Ints, products: int, most: int, groups: _Groups) -> _Pairs:
    """Return the pairs from ``rows`` with ``most`` products at most that mix none of ``groups``."""
    words, count = tables.words, tables.count
    held = tables.member[:, bits(products)].sum(axis=1)
    inside = (words & words[rows][:, None]) == words[rows][:, None]
    good = inside.all(axis=2) & (count > count[rows][:, None])
    at, to = np.nonzero(good & (held <= held[rows][:, None] + most))
    number: dict[int, int] = {}
    numbers = []
    for j, ideal in zip(rows[at].tolist(), to.tolist(), strict=True):
        mask = tables.masks[ideal] ^ tables.masks[j]
        mixed = any(mask & group not in (0, mask) for group in groups)
        numbers.append(-1 if mixed else number.setdefault(mask, len(number)))
    kept = np.array(numbers, dtype=np.int64) >= 0
    return _Pairs(rows[at][kept], to[kept], np.array(numbers, dtype=np.int64)[kept], tuple(number))


_Groups = tuple[int, ...]  # masks of kernels that partitions do not mix with others


@dataclass(slots=True, eq=False)
class _Sets:
    """Sets of kernels as arrays: ``member`` (n, sets), ``outside`` (sets, words)."""

    member: Bools
    outside: NDArray[np.uint64]
    crossed: dict[object, list[tuple[Ints, Bools]]] = field(default_factory=dict)

    @classmethod
    def of(cls, masks: Sequence[int], n: int) -> _Sets:
        """Return some masks over n kernels."""
        return cls(memberships(masks, n).T, ~to_words(masks, n))

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
    """Legal steps between ideals; all of them, where they are few, or those from one ideal."""

    tables: IdealTables
    legality: Legality
    groups: _Groups
    whole: tuple[_Pairs, _Sets, list[int]] | None = None  # with the first step from every ideal
    found: dict[int, _Pairs] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """List all steps where they are few."""
        n_ideals, n = self.tables.member.shape
        if n_ideals <= FEW_IDEALS:
            products, most = self.legality.products, max(self.legality.largest, 1)
            key = products, most, self.groups
            pairs = self.tables.known.get(key)
            if not isinstance(pairs, _Pairs):
                pairs = _pairs(self.tables, np.arange(n_ideals), *key)
                self.tables.known[key] = pairs
            legal = pairs.allowed(self.legality)
            first = np.searchsorted(legal.start, np.arange(n_ideals + 1))
            self.whole = legal, _Sets.of(legal.masks, n), first.tolist()

    def leaving(self, j: int) -> _Pairs:
        """Return the steps from ideal ``j``."""
        if j not in self.found:
            most = max(self.legality.largest, 1)
            pairs = _pairs(self.tables, np.array([j]), self.legality.products, most, self.groups)
            self.found[j] = pairs.allowed(self.legality)
        return self.found[j]


def _legal_steps(tables: IdealTables, legality: Legality, groups: _Groups) -> _LegalSteps:
    key = legality, groups
    found = tables.known.get(key)
    if not isinstance(found, _LegalSteps):
        found = tables.known[key] = _LegalSteps(tables, legality, groups)
    return found


# ---------------------------------------------------------------- what they take


class TemporalSteps(Steps):
    """As `Steps`; SRAM and cores do not bind, legality does."""

    def __init__(
        self,
        load: ChipLoad,
        tables: IdealTables,
        *,
        filling: Filling | None = None,
        gates: Gates | None = None,
    ) -> None:
        super().__init__(load, tables, filling=filling, gates=gates)
        assert load.temporal is not None
        self.temporal = load.temporal
        self.legal = _legal_steps(tables, load.temporal.legality, load.unmixed)
        self.known: dict[int, tuple[float, ...]] = {}  # by mask
        self.whole = None
        if self.legal.whole is not None:
            pairs, sets, self.first = self.legal.whole
            values = _set_terms(self.temporal, sets)
            self.whole = self._price(pairs.start, pairs.to, values[:, pairs.number])

    def leave(self, j: int, limit: float) -> tuple[Ints, Floats]:
        """Return the ideals reachable from ideal ``j`` in one partition and the partition's time.

        Only steps whose time plus the bound of the rest stays below ``limit`` are returned.
        """
        if self.whole is not None:  # the innermost loop of a search
            at = slice(self.first[j], self.first[j + 1])
            to, priced = self.whole[0].to[at], self.whole[1][at]
        else:
            terms, priced = self._from(j)
            to = terms.to
        keep = priced + self.sums.rest[to] < limit
        return to[keep], priced[keep]

    def terms(self, j: int, limit: float) -> StepTerms:
        """Return the steps of `leave` with every term of the partitions, before any price."""
        terms, priced = self._from(j)
        return terms.part(priced + self.sums.rest[terms.to] < limit)

    def _from(self, j: int) -> tuple[StepTerms, Floats]:
        if self.whole is not None:
            at = slice(self.first[j], self.first[j + 1])
            return self.whole[0].part(at), self.whole[1][at]
        pairs = self.legal.leaving(j)
        return self._price(pairs.start, pairs.to, self._looked_up(pairs.masks)[:, pairs.number])

    def _looked_up(self, masks: Sequence[int]) -> Floats:
        """Return `_set_terms`, of every mask once."""
        new = [mask for mask in masks if mask not in self.known]
        if new:
            terms = _set_terms(self.temporal, _Sets.of(new, self.load.n))
            self.known |= dict(zip(new, map(tuple, terms.T.tolist()), strict=True))
        return np.array([self.known[mask] for mask in masks]).reshape(-1, 3).T

    def _price(self, start: Ints, to: Ints, values: Floats) -> tuple[StepTerms, Floats]:
        """Price steps with these `_set_terms`: their terms, and their times with what fills them.

        Those whose tensors do not fit the main memory take for ever.
        """
        load, (device, memory, unshared) = self.load, values
        network = self._network(to, start)
        # What the device takes already holds what main memory does, unless nothing hides.
        busy = device if self.temporal.hides else device - memory
        if self.gates is not None:
            memory = memory + self.gates.leaving(start, to)
        time = combine_arrays(busy, memory, network, load.overlap)
        time = time + load.memory_price * memory + load.network_price * network
        compute = busy - unshared  # as kernels left out are counted, launches by their shares
        terms = StepTerms(to, time, compute, memory, network, np.zeros(len(to)))
        priced = self.priced(time, terms, start)
        if self.held is not None:
            alive = (self.tables.live[to] | self.tables.live[start]) @ self.held
            priced = np.where(alive <= load.memory_limit * (1 + TOLERANCE), priced, np.inf)
        return terms, priced


def _set_terms(temporal: TemporalLoad, sets: _Sets) -> Floats:
    """Return time of the device, of main memory, and of launches unshared, shape (3, sets). [s]

    As `TemporalLoad.terms` and `TemporalLoad.unshared` have them: sums are over kernels one after
    the other, as there, so that the same comes out.
    """
    work, after = np.array(temporal.work)[:, None], np.array(temporal.after)[:, None]
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
        waited = np.where(moved > 0, moved + temporal.latency, 0.0)
        busy = np.maximum(work, waited) if temporal.hides else work + waited
        device = device + np.where(inside, after + busy, 0.0).sum(axis=0)
        memory = memory + np.where(inside, moved, 0.0).sum(axis=0)
        launches = launches + inside.any(axis=0)
    shares = np.where(sets.member, np.array(temporal.shares)[:, None], 0.0).sum(axis=0)
    launch = temporal.launch
    return np.stack([device + launch * launches, memory, launch * (launches - shares)])


def make_steps(
    load: ChipLoad,
    tables: IdealTables,
    *,
    filling: Filling | None = None,
    gates: Gates | None = None,
) -> Steps:
    """Return what prices the steps of a load, as its chip runs kernels."""
    kind = Steps if load.temporal is None else TemporalSteps
    return kind(load, tables, filling=filling, gates=gates)
