"""Steps of fusion on a chip that runs kernels one after the other, priced all at once with arrays.

Which steps are legal does not depend on what they take, so they are listed once for all loads of a
graph; loads price the sets of kernels between the ideals (`crosstack.model.temporal`).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crosstack.mapping.ideals import IdealTables, memberships, to_words
from crosstack.mapping.steps import TOLERANCE, Filling, Gates, Steps, StepTerms
from crosstack.model.legality import Legality
from crosstack.model.partition import ChipLoad, combine_arrays
from crosstack.model.temporal import Run, TemporalLoad
from crosstack.workload.kernel_graph import Floats, Ints, bits

__all__ = ["TemporalSteps", "make_steps"]

FEW_IDEALS = 1_000  # whose steps are all priced before any is asked for


@dataclass(slots=True, eq=False)
class _LegalSteps:
    """Steps that are legal: by ideal the ideals they lead to, and which of ``masks`` they run."""

    tables: IdealTables
    legality: Legality
    unmixed: tuple[int, ...]
    products: Ints = field(init=False)
    ends: Ints = field(init=False)
    masks: list[int] = field(default_factory=list)
    number: dict[int, int] = field(default_factory=dict)
    found: dict[int, tuple[Ints, Ints]] = field(default_factory=dict)
    listed: tuple[Ints, Ints, Ints] | None = None

    def __post_init__(self) -> None:
        """Count the products in every ideal, and find where the ideals of each size begin."""
        tables = self.tables
        self.products = tables.member[:, bits(self.legality.products)].sum(axis=1)
        self.ends = np.searchsorted(tables.count, np.arange(tables.member.shape[1] + 2))

    def at(self, j: int) -> tuple[Ints, Ints]:
        """Return the ideals that legal steps from ideal ``j`` lead to, and their masks' numbers."""
        if j not in self.found:
            self.found[j] = self._list(j)
        return self.found[j]

    def _list(self, j: int) -> tuple[Ints, Ints]:
        tables, words = self.tables, self.tables.words
        start = int(self.ends[tables.count[j] + 1])
        most = max(self.legality.largest, 1)
        to = np.flatnonzero(self.products[start:] <= self.products[j] + most) + start
        for w in range(words.shape[1]):
            to = to[(words[to, w] & words[j, w]) == words[j, w]]
        kept, numbers = list[int](), list[int]()
        for ideal in to.tolist():
            inside = tables.masks[ideal] ^ tables.masks[j]
            mixed = any(inside & group not in (0, inside) for group in self.unmixed)
            if not mixed and self.legality.allows(inside):
                kept.append(ideal)
                numbers.append(self.number.setdefault(inside, len(self.masks)))
                if numbers[-1] == len(self.masks):
                    self.masks.append(inside)
        return np.array(kept, dtype=np.int64), np.array(numbers, dtype=np.int64)

    def whole(self) -> tuple[Ints, Ints, Ints]:
        """Return all steps: first of each ideal, where they lead, and their masks' numbers."""
        if self.listed is None:
            steps = [self.at(j) for j in range(len(self.tables.masks))]
            first = np.cumsum([0, *(len(to) for to, _ in steps)])
            to, number = (np.concatenate(column) for column in zip(*steps, strict=True))
            self.listed = first, to, number
        return self.listed


def _legal_steps(tables: IdealTables, legality: Legality, unmixed: tuple[int, ...]) -> _LegalSteps:
    key = legality, unmixed
    if key not in tables.known:
        tables.known[key] = _LegalSteps(tables, legality, unmixed)
    found = tables.known[key]
    assert isinstance(found, _LegalSteps)
    return found


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
        self.values = np.full((3, len(self.legal.masks)), np.nan)
        self.first, self.whole = np.zeros(0, dtype=np.int64), None
        if len(tables.masks) <= FEW_IDEALS:
            self.first, to, number = self.legal.whole()
            start = np.repeat(np.arange(len(tables.masks)), np.diff(self.first))
            self.whole = self._price(start, to, number)

    def leave(self, j: int, limit: float) -> tuple[Ints, Floats]:
        """Return the ideals reachable from ideal ``j`` in one partition and the partition's time.

        Only steps whose time plus the bound of the rest stays below ``limit`` are returned.
        """
        terms, priced = self._from(j)
        keep = priced + self.sums.rest[terms.to] < limit
        return terms.to[keep], priced[keep]

    def terms(self, j: int, limit: float) -> StepTerms:
        """Return the steps of `leave` with every term of the partitions, before any price."""
        terms, priced = self._from(j)
        return terms.part(priced + self.sums.rest[terms.to] < limit)

    def _from(self, j: int) -> tuple[StepTerms, Floats]:
        if self.whole is None:
            return self._price(j, *self.legal.at(j))
        terms, priced = self.whole
        at = slice(self.first[j], self.first[j + 1])
        return terms.part(at), priced[at]

    def _price(self, start: int | Ints, to: Ints, number: Ints) -> tuple[StepTerms, Floats]:
        """Price steps from ideals ``start`` to ``to``: their terms, and with what fills them."""
        load = self.load
        if self.held is not None:
            alive = (self.tables.live[to] | self.tables.live[start]) @ self.held
            room = alive <= load.memory_limit * (1 + TOLERANCE)
            start = start if isinstance(start, int) else start[room]
            to, number = to[room], number[room]
        device, memory, unshared = self._values(number)
        network = self._network(to, start)
        # What the device takes already holds what main memory does, unless nothing hides.
        busy = device if self.temporal.hides else device - memory
        if self.gates is not None:
            memory = memory + self.gates.leaving(start, to)
        time = combine_arrays(busy, memory, network, load.overlap)
        time = time + load.memory_price * memory + load.network_price * network
        compute = busy - unshared  # as kernels left out are counted, launches by their shares
        terms = StepTerms(to, time, compute, memory, network, np.zeros(len(to)))
        return terms, self.priced(time, terms, start)

    def _values(self, number: Ints) -> Floats:
        """Time of the device, of main memory, and of launches unshared, of some masks. [s]"""
        new = len(self.legal.masks) - self.values.shape[1]
        if new:
            self.values = np.concatenate([self.values, np.full((3, new), np.nan)], axis=1)
        missing = np.unique(number[np.isnan(self.values[0, number])])
        if len(missing):
            masks = [self.legal.masks[m] for m in missing.tolist()]
            self.values[:, missing] = _mask_terms(self.temporal, masks)
        return np.asarray(self.values[:, number])


def _mask_terms(temporal: TemporalLoad, masks: list[int]) -> Floats:
    """Return `TemporalLoad.terms` and `TemporalLoad.unshared` of many masks, shape (3, masks).

    Sums are over kernels one after the other, as there, so that the same comes out.
    """
    n = len(temporal.work)
    member, outside = memberships(masks, n).T, ~to_words(masks, n)
    work, after = np.array(temporal.work)[:, None], np.array(temporal.after)[:, None]
    device, memory, launches = np.zeros((3, len(masks)))
    for run in temporal.runs:
        inside = member & memberships([run.members], n).T
        moved = _moved(run, outside)
        waited = np.where(moved > 0, moved + temporal.latency, 0.0)
        busy = np.maximum(work, waited) if temporal.hides else work + waited
        device = device + np.where(inside, after + busy, 0.0).sum(axis=0)
        memory = memory + np.where(inside, moved, 0.0).sum(axis=0)
        launches = launches + inside.any(axis=0)
    shares = np.where(member, np.array(temporal.shares)[:, None], 0.0).sum(axis=0)
    launch = temporal.launch
    return np.stack([device + launch * launches, memory, launch * (launches - shares)])


def _moved(run: Run, outside: NDArray[np.uint64]) -> Floats:
    """Main memory that each kernel moves in every partition, shape (n, partitions). [s]

    ``outside`` (partitions, words) are the kernels that are not in it.
    """
    n = len(run.own)
    moved = np.repeat(np.array(run.own)[:, None], len(outside), axis=1)
    for place in range(max(map(len, run.moves), default=0)):
        ends = [(i, *moves[place]) for i, moves in enumerate(run.moves) if len(moves) > place]
        rows, masks, times = zip(*ends, strict=True)
        there = to_words(masks, n)[:, None, :] & outside
        moved[list(rows)] += there.any(axis=2) * np.array(times)[:, None]
    return moved


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
