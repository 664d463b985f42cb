"""Fusion: which kernels run together on the chip, and in which order the partitions run.

Sets and parameters: kernels i with precedence; for a set S of kernels, its compute, memory and
network time and its SRAM demand (`crosstack.model.partition`, the only home of those formulas).
Variables: a sequence of disjoint sets S_1, S_2, ... that covers all kernels.

(1) minimise the sum over partitions of the time of S_p (the maximum of its terms, or their sum);
(2) every union S_1 + ... + S_p is closed under predecessors: an order ideal;
(3) every S_p fits the SRAM, the cores, and what the main memory has left for tensors;
(4) optionally at most P partitions, kernels pinned to a partition number, or directions apart.

Exact method. By (2) a sequence is a chain of ideals, and the cost of S_p does not depend on the
rest, so the optimum is a shortest path f(J + S) = min f(J) + cost(S) over ideals, with the number
of partitions as a second label where (4) asks for it. All steps that leave one ideal are priced
at once with arrays: the terms of S = J' - J are differences of terms of J' and of J, corrected for
the few tensors that are alive at J.

Bound. From J on, at least max over resources of what the kernels outside J still need; steps whose
bound does not beat an incumbent are dropped. The incumbent comes from the same recursion over
the ideals of a few topological orders.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.chip.chip import Overlap
from crosstack.mapping.ideals import (
    IdealTables,
    Order,
    bits,
    chain,
    collapse_twins,
    enumerate_ideals,
    make_tables,
    topological_chains,
)
from crosstack.model.partition import STREAM_DEPTH, ChipLoad, partition_cost

__all__ = ["Fusion", "FusionProblem", "Slots", "fuse", "make_problem"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

TOLERANCE = 1e-12  # relative; two times closer than this are the same


@dataclass(frozen=True, slots=True, kw_only=True)
class Slots:
    """Which partition numbers each kernel may have: ``first[i]`` to ``last[i]`` of ``count``."""

    count: int
    first: tuple[int, ...]
    last: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionProblem:
    """A load, its precedence (twins ordered, directions apart where asked) and the slots."""

    load: ChipLoad
    order: Order
    slots: Slots | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """A sequence of partitions (masks), its time and a lower bound on any sequence. [s]"""

    partitions: tuple[int, ...]
    time: float
    bound: float

    @property
    def proved(self) -> bool:
        """Whether the bound meets the time."""
        return self.bound >= self.time * (1 - 1e-9)


def make_problem(
    load: ChipLoad, *, slots: Slots | None = None, separate_directions: bool = False
) -> FusionProblem:
    """Return the problem, with backward kernels after all forward ones where asked."""
    preds = list(load.preds)
    if separate_directions:
        forward = load.everything & ~load.backward
        preds = [p | (forward if load.backward >> i & 1 else 0) for i, p in enumerate(preds)]
    labels: list[object] = [load.backward >> i & 1 for i in range(load.n)]
    if slots is not None:
        labels = [(labels[i], slots.first[i], slots.last[i]) for i in range(load.n)]
    order = collapse_twins(load, preds, labels)
    return FusionProblem(load=load, order=order, slots=slots)


# ---------------------------------------------------------------- the exact method


@dataclass(slots=True)
class _Sums:
    """Per-ideal sums of the load, and matrices for the tensors alive at an ideal."""

    compute: Floats
    network: Floats
    data: Floats
    own: Floats
    weights: Floats
    sram: Floats
    counted: Floats
    out: Floats
    out_sram: Floats
    inside_sram: Floats
    live_total: Floats
    live_sram: Floats
    dead_sram: Floats
    rest: Floats
    so_far: Floats


def _least_compute(load: ChipLoad) -> Floats:
    """Compute time a kernel adds at least: exact with utilization, its core area otherwise."""
    if load.staircases is None:
        return np.array(load.compute)
    area = [float((s.cores * s.cycles).min()) for s in load.staircases]
    return np.array(area) * np.array(load.cycle_time) / load.n_cores


def _sums(load: ChipLoad, tables: IdealTables) -> _Sums:
    member, flows = tables.member.astype(float), load.flows
    total = np.array([flow.total for flow in flows]) / load.bandwidth
    tile = np.array([flow.tile for flow in flows])
    most = np.array([max((d for _, d in flow.readers), default=0) for flow in flows], dtype=float)
    live = tables.live.astype(float)
    compute, network = member @ _least_compute(load), member @ np.array(load.network)
    data, own = member @ np.array(load.data), member @ np.array(load.own_memory)
    weights = member @ np.array(load.weight_time)
    counted = member @ np.array([float(load.counted >> i & 1) for i in range(load.n)])
    live_total, live_sram = live * total, tables.depth * tile
    dead_sram = tables.dead * (most * tile)
    out = live_total.sum(axis=1)
    memory = own + weights
    resident = load.resident_alone

    def least(c: Floats, m: Floats, n: Floats, d: Floats) -> Floats:
        network = np.maximum(n, d) if load.network_takes_maximum else n + d
        if load.overlap is Overlap.ALL:
            return np.maximum(np.maximum(c, m), network)
        if load.overlap is Overlap.NONE:
            return c + m + network
        return np.maximum(c, m) + network

    rest = least(
        compute[-1] - compute, memory[-1] - memory + out, network[-1] - network, data[-1] - data
    )
    if resident:  # the whole graph in one partition keeps its weights
        rest[0] = float(least(compute[-1:], own[-1:], network[-1:], data[-1:])[0])
    so_far = least(compute, memory + out, network, data)
    return _Sums(
        compute=compute,
        network=network,
        data=data,
        own=own,
        weights=weights,
        sram=member @ np.array(load.sram),
        counted=counted,
        out=out,
        out_sram=live_sram.sum(axis=1),
        inside_sram=dead_sram.sum(axis=1),
        live_total=live_total,
        live_sram=live_sram,
        dead_sram=dead_sram,
        rest=rest,
        so_far=so_far,
    )


class _Steps:
    """Prices every step that leaves an ideal, all at once."""

    def __init__(self, load: ChipLoad, tables: IdealTables) -> None:
        self.load, self.tables, self.sums = load, tables, _sums(load, tables)
        self.total = np.array([flow.total for flow in load.flows]) / load.bandwidth
        self.tile = np.array([flow.tile for flow in load.flows])
        self.shared = np.array([flow.mask.bit_count() > 1 for flow in load.flows], dtype=np.bool_)
        self.alone = [partition_cost(load, 1 << i) for i in range(load.n)]
        self.memory_binds = (
            sum(flow.total for flow in load.flows) > load.memory_limit
        )
        self.needs = None if load.staircases is None else _core_needs(load)
        self.ends = np.searchsorted(tables.count, np.arange(load.n + 2))

    def leave(self, j: int, limit: float) -> tuple[Ints, Floats]:
        """Return the ideals reachable from ideal ``j`` in one partition and the partition's time.

        Only steps whose time plus the bound of the rest stays below ``limit`` are returned.
        """
        load, tables, s = self.load, self.tables, self.sums
        start = int(self.ends[tables.count[j] + 1])
        words = tables.words
        above = np.ones(len(tables.masks) - start, dtype=np.bool_)
        for w in range(words.shape[1]):
            above &= (words[start:, w] & words[j, w]) == words[j, w]
        to = np.nonzero(above)[0] + start
        # Cheap terms first: they drop most steps.
        compute = s.compute[to] - s.compute[j]
        network = self._network(to, j)
        keep = np.maximum(compute, network) + s.rest[to] < limit
        to, compute, network = to[keep], compute[keep], network[keep]
        if not len(to):
            return to, compute
        live = np.nonzero(tables.live[j])[0]
        alive_total, alive_sram = s.live_total[np.ix_(to, live)], s.live_sram[np.ix_(to, live)]
        reads, read_sram = self._reads(to, live, alive_total, j)
        out = s.out[to] - alive_total.sum(axis=1)
        memory = out + reads + (s.own[to] - s.own[j]) + (s.weights[to] - s.weights[j])
        sram = s.out_sram[to] - alive_sram.sum(axis=1) + read_sram + s.sram[to] - s.sram[j]
        sram += s.inside_sram[to] - s.inside_sram[j] - s.dead_sram[np.ix_(to, live)].sum(axis=1)
        fits = sram <= load.sram_capacity * (1 + TOLERANCE)
        if load.counted:
            counted = s.counted[to] - s.counted[j]
            fits &= (counted == 0) | (counted == tables.count[to] - tables.count[j])
        if self.memory_binds:
            alive = s.out[j] + out
            fits &= alive * load.bandwidth <= load.memory_limit * (1 + TOLERANCE)
        if load.resident_alone and j == 0 and tables.count[to[-1]] == load.n:
            memory[-1] -= s.weights[-1]
        one = np.nonzero(tables.count[to] == tables.count[j] + 1)[0]
        for position in one:  # a kernel alone may cut its weight
            cost = self.alone[(tables.masks[to[position]] ^ tables.masks[j]).bit_length() - 1]
            memory[position] = cost.memory
            fits[position] = cost.fits and (not self.memory_binds or fits[position])
        to, compute, memory, network = to[fits], compute[fits], memory[fits], network[fits]
        time = self._combine(compute, memory, network)
        keep = time + s.rest[to] < limit
        to, compute, memory, network = to[keep], compute[keep], memory[keep], network[keep]
        if self.needs is None or not len(to):
            return to, time[keep]
        compute = self._dealt(to, j)
        return to, self._combine(compute, memory, network)

    def _network(self, to: Ints, j: int) -> Floats:
        s = self.sums
        network, data = s.network[to] - s.network[j], s.data[to] - s.data[j]
        return np.maximum(network, data) if self.load.network_takes_maximum else network + data

    def _reads(
        self, to: Ints, live: Ints, alive_total: Floats, j: int
    ) -> tuple[Floats, Floats]:
        """Memory time and SRAM of tensors made before that the partition reads."""
        tables, single = self.tables, ~self.shared[live]
        died = ~tables.live[np.ix_(to, live[single])]
        reads = died @ self.total[live[single]]
        sram = died @ (STREAM_DEPTH * self.tile[live[single]])
        for t in live[~single]:
            waiting = np.nonzero(tables.readers[t] & ~tables.member[j])[0]
            read = tables.member[np.ix_(to, waiting)].any(axis=1)
            reads = reads + read * self.total[t]
            sram = sram + read * (STREAM_DEPTH * self.tile[t])
        return reads, sram

    def _combine(self, compute: Floats, memory: Floats, network: Floats) -> Floats:
        if self.load.overlap is Overlap.ALL:
            return np.maximum(np.maximum(compute, memory), network)
        if self.load.overlap is Overlap.NONE:
            return compute + memory + network
        return np.maximum(compute, memory) + network

    def _dealt(self, to: Ints, j: int) -> Floats:
        """Exact compute time with whole cores, by bisection over all steps at once."""
        assert self.needs is not None
        times, needs = self.needs
        inside = self.tables.member[to] & ~self.tables.member[j]
        low = np.zeros(len(to), dtype=np.int64)
        high = np.full(len(to), len(times), dtype=np.int64)
        while (low < high).any():
            middle = (low + high) // 2
            open_ = low < high
            at = np.minimum(middle, len(times) - 1)
            enough = (inside * needs[at]).sum(axis=1) <= self.load.n_cores
            high = np.where(open_ & enough, middle, high)
            low = np.where(open_ & ~enough, middle + 1, low)
        found = np.minimum(low, len(times) - 1)
        return np.where(low < len(times), times[found], math.inf)


def _core_needs(load: ChipLoad) -> tuple[Floats, NDArray[np.int64]]:
    """Times some kernel can take, ascending, and the fewest cores of each kernel to keep each."""
    assert load.staircases is not None
    own = [s.cycles * scale for s, scale in zip(load.staircases, load.cycle_time, strict=True)]
    times = np.unique(np.concatenate(own))
    needs = np.empty((len(times), load.n), dtype=np.int64)
    impossible = load.n_cores + 1
    for i, (s, taken) in enumerate(zip(load.staircases, own, strict=True)):
        slower = len(taken) - np.searchsorted(taken[::-1], times, side="right")
        cores = np.append(s.cores, impossible)
        needs[:, i] = cores[slower]
    return times, needs


def _shortest_chain(
    problem: FusionProblem, steps: _Steps, incumbent: float
) -> tuple[float, tuple[int, ...]] | None:
    """Shortest path from the empty ideal to the full one below ``incumbent``, or None."""
    tables, slots = steps.tables, problem.slots
    n_ideals = len(tables.masks)
    layers = 1 if slots is None else slots.count + 1
    best = np.full((layers, n_ideals), math.inf)
    parent = np.full((layers, n_ideals), -1, dtype=np.int64)
    best[0, 0] = 0.0
    valid = None if slots is None else _valid(slots, tables)
    limit = incumbent
    last = n_ideals - 1
    rest = steps.sums.rest
    for j in range(n_ideals - 1):
        column = best[:, j]
        if valid is not None:
            for p in range(1, layers):  # an empty partition
                if valid[p, j] and column[p - 1] < column[p]:
                    column[p], parent[p, j] = column[p - 1], j
        least = float(column.min())
        if not least + rest[j] < limit:
            continue
        to, time = steps.leave(j, limit - least)
        if not len(to):
            continue
        for p in range(layers):
            if not column[p] + rest[j] < limit:
                continue
            q = p if slots is None else p + 1
            if q >= layers:
                break
            reached = column[p] + time
            better = reached < best[q, to]
            if valid is not None:
                better &= valid[q, to]
            best[q, to[better]] = reached[better]
            parent[q, to[better]] = j
            if best[q, last] < limit and (valid is None or valid[q:, last].all()):
                limit = float(best[q, last])
    if valid is not None:
        for p in range(1, layers):
            if valid[p, last] and best[p - 1, last] < best[p, last]:
                best[p, last], parent[p, last] = best[p - 1, last], last
    found = float(best[-1, last])
    if not found < incumbent:
        return None
    return found, _path(tables, parent, layers, last, slots)


def _valid(slots: Slots, tables: IdealTables) -> NDArray[np.bool_]:
    """Whether an ideal may stand after p partitions, shape (count + 1, N)."""
    valid = np.zeros((slots.count + 1, len(tables.masks)), dtype=np.bool_)
    first, last = np.array(slots.first), np.array(slots.last)
    for p in range(slots.count + 1):
        must, must_not = last < p, first >= p
        held = tables.member[:, must].all(axis=1)
        valid[p] = held & ~tables.member[:, must_not].any(axis=1)
    return valid


def _path(
    tables: IdealTables,
    parent: NDArray[np.int64],
    layers: int,
    last: int,
    slots: Slots | None,
) -> tuple[int, ...]:
    masks: list[int] = []
    q, j = layers - 1, last
    while j != 0 or (slots is not None and q > 0):
        i = int(parent[q, j])
        masks.append(tables.masks[j] ^ tables.masks[i])
        j = i
        q -= 0 if slots is None else 1
    return tuple(reversed(masks))


def fuse(
    problem: FusionProblem,
    *,
    incumbent: float = math.inf,
    most_ideals: int = 60_000,
    cache: dict[object, IdealTables] | None = None,
    deadline: float = math.inf,
) -> Fusion | None:
    """Return the best sequence of partitions faster than ``incumbent``, or None if none is.

    Parameters
    ----------
    incumbent : float
        Only sequences below this are of interest. [s]
    most_ideals : int
        Above this many order ideals the answer is a heuristic's, with a true bound. [1]
    cache : dict, optional
        Keeps tables of ideals for problems with the same graph and precedence.
    """
    load, n = problem.load, problem.load.n
    cache = {} if cache is None else cache
    shape = tuple((flow.producer, flow.readers) for flow in load.flows)
    key = (problem.order.preds, shape)
    if ("chains", key) not in cache:
        cache["chains", key] = _heuristic_tables(problem)
    small = cache["chains", key]
    steps = _Steps(load, small)
    limit = incumbent * (1 - TOLERANCE) if math.isfinite(incumbent) else math.inf
    if not steps.sums.rest[0] < limit:
        return None
    best = _shortest_chain(problem, steps, limit)
    if best is not None:
        limit = best[0] * (1 - TOLERANCE)
    bound = float(steps.sums.rest[0])
    if best is None or bound < limit:
        if key not in cache:
            ideals = enumerate_ideals(problem.order, most=most_ideals)
            cache[key] = make_tables(ideals, n, load.flows) if ideals is not None else small
        tables = cache[key]
        if tables is small:
            return None if best is None else Fusion(partitions=best[1], time=best[0], bound=bound)
        better = _shortest_chain(problem, _Steps(load, tables), limit)
        best = better or best
        if best is None:
            return None
    return Fusion(partitions=best[1], time=best[0], bound=best[0])


def _heuristic_tables(problem: FusionProblem) -> IdealTables:
    """Return the ideals of a few topological sequences."""
    ideals: set[int] = set()
    for sequence in topological_chains(problem.order):
        ideals.update(chain(sequence))
    return make_tables(list(ideals), problem.load.n, problem.load.flows)
