"""What every step from one order ideal to a larger one costs, priced all at once with arrays.

The terms of S = J' - J are differences of sums over J' and over J, corrected for the few tensors
that are alive at J. The formulas are those of `crosstack.model.partition.partition_cost`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.budget import CALL, DEAL
from crosstack.mapping.ideals import IdealTables
from crosstack.model.partition import (
    STREAM_DEPTH,
    ChipLoad,
    PartitionCost,
    combine_arrays,
    partition_cost,
)
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

TOLERANCE = 1e-12  # relative; two times closer than this are the same


def least_compute(load: ChipLoad) -> Floats:
    """Compute time a kernel adds at least: exact with utilization, its core area otherwise."""
    if load.staircases is None:
        return np.array(load.compute)
    area = [float((s.cores * s.cycles).min()) for s in load.staircases]
    return np.asarray(np.array(area) * np.array(load.cycle_time) / load.n_cores)


def least_memory_time(load: ChipLoad) -> Floats:
    """Memory time a kernel adds at least, whatever partition it runs in. [s]"""
    weights = np.zeros(load.n) if load.resident_alone else np.array(load.weight_time)
    return np.asarray(np.array(load.own_memory) + weights)


def scarcest(load: ChipLoad, left_out: Sequence[int]) -> tuple[float, float]:
    """Return prices of compute and of memory that kernels left out fill: 1 for what is scarcer."""
    memory = least_memory_time(load)
    scarce = memory.sum() > least_compute(load).sum() and memory[list(left_out)].any()
    return (0.0, 1.0) if scarce else (1.0, 0.0)


def never_hidden(load: ChipLoad, left_out: Sequence[int]) -> float:
    """What kernels left out add to any partition, however much of it is idle. [s]"""
    sent = 0.0
    if not load.network_takes_maximum:
        sent = sum(load.network[i] + load.data[i] for i in left_out)
    extra = 0.0 if load.overlap is Overlap.ALL else sent
    extra += load.memory_price * float(least_memory_time(load)[list(left_out)].sum())
    return extra + load.network_price * sent


@dataclass(frozen=True, slots=True)
class StepTerms:
    """Steps that leave one ideal: the ideals they lead to, each partition's terms [s], SRAM [B]."""

    to: Ints
    time: Floats
    compute: Floats
    memory: Floats
    network: Floats
    sram: Floats

    def part(self, at: slice | Bools) -> StepTerms:
        """Return some of the steps."""
        parts = (self.time, self.compute, self.memory, self.network, self.sram)
        return StepTerms(self.to[at], *(term[at] for term in parts))


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """Kernels left out of a load: they may run in any partition that ends after their inputs exist.

    ``compute`` and ``memory``: what those take at least that may run by each ideal [s]. A second of
    each that fills what is idle has a price, at least 0, their sum at most 1. Of the tensors that
    they read ``made`` and ``waits`` (ideals, tensors) tell whether the producer has run, and
    whether it leaves for them alone: all other readers have run, too, and they cannot have.
    ``time``: to leave the partition, or to enter the reader's. [s]
    """

    compute: Floats
    memory: Floats
    compute_price: float
    memory_price: float
    made: Bools
    waits: Bools
    time: Floats

    def leaving(self, start: int | Ints, to: Ints) -> Floats:
        """Time of what leaves partitions between ideals for readers left out alone. [s]"""
        return np.asarray((self.waits[to] & ~self.made[start]) @ self.time)


class Steps:
    """Prices every step that leaves an ideal, all at once.

    With ``deferred`` kernels the time of a step is reduced by its idle compute and memory, each at
    most what may fill it at the ideal it leads to, times their prices: the Lagrangian of kernels
    left out (`crosstack.mapping.large_graphs`). What leaves for them alone has to enter another
    partition, too.
    """

    rest: Floats  # what the kernels outside each ideal take at least [s]

    def __init__(
        self, load: ChipLoad, tables: IdealTables, deferred: Deferred | None = None
    ) -> None:
        self.load, self.tables = load, tables
        self.total = np.array([flow.moved for flow in load.flows]) / load.bandwidth
        self.tile = np.array([flow.tile for flow in load.flows])
        self.shared = np.array([flow.mask.bit_count() > 1 for flow in load.flows], dtype=np.bool_)
        held = np.array([flow.held for flow in load.flows])
        self.held = held if held.sum() > load.memory_limit else None  # where it matters
        self.needs = None if load.staircases is None else _core_needs(load)
        self.deferred = deferred
        self.least_share = 1.0  # of the compute of a step that its price does not take off
        self._add_up()
        if deferred is not None:
            x, y = deferred.compute_price, deferred.memory_price
            memory = least_memory_time(load)
            self.rest = (1 - x - y) * self.rest + x * (self.compute[-1] - self.compute)
            self.rest = self.rest + y * (memory.sum() - tables.member @ memory + self.out)
            self.least_share = 1 - y
        self.ends = np.searchsorted(tables.count, np.arange(load.n + 2))

    def _add_up(self) -> None:
        """Add up the terms of the kernels of every ideal, and of the tensors alive there."""
        load, tables, flows = self.load, self.tables, self.load.flows
        member = tables.member.astype(float)
        most = np.array([max((d for _, d in f.readers), default=0) for f in flows], dtype=float)
        self.compute, self.network = member @ least_compute(load), member @ np.array(load.network)
        self.data, self.own = member @ np.array(load.data), member @ np.array(load.own_memory)
        self.weights, self.sram = (member @ np.array(x) for x in (load.weight_time, load.sram))
        self.unmixed = [tables.member[:, bits(group)].sum(axis=1) for group in load.unmixed]
        self.live_total = tables.live.astype(float) * self.total
        self.live_sram = tables.depth * self.tile
        self.dead_sram = tables.dead * (most * self.tile)
        self.out, self.out_sram = self.live_total.sum(axis=1), self.live_sram.sum(axis=1)
        self.inside_sram = self.dead_sram.sum(axis=1)
        self._add_bounds()

    def _add_bounds(self) -> None:
        """Add up what the kernels of every ideal take at least, and those outside it."""
        load = self.load
        compute, network, data = self.compute, self.network, self.data
        memory = self.own + self.weights

        def least(c: Floats, m: Floats, n: Floats, d: Floats) -> Floats:
            network = np.maximum(n, d) if load.network_takes_maximum else n + d
            priced = load.memory_price * m + load.network_price * network
            return combine_arrays(c, m, network, load.overlap) + priced

        left = memory[-1] - memory + self.out
        self.rest = least(compute[-1] - compute, left, network[-1] - network, data[-1] - data)
        if load.resident_alone:  # the whole graph in one partition keeps its weights
            self.rest[0] = float(least(compute[-1:], self.own[-1:], network[-1:], data[-1:])[0])
        self.so_far = least(compute, memory + self.out, network, data)

    def work_of(self, n_steps: int) -> int:
        """Units of work of leaving an ideal by so many steps; see `crosstack.mapping.budget`."""
        dealt = self.load.unit is not None and self.load.staircases is not None
        return CALL + n_steps * (DEAL if dealt else 1)

    @cached_property
    def alone(self) -> list[PartitionCost]:
        """What every kernel takes in a partition of its own."""
        return [partition_cost(self.load, 1 << i) for i in range(self.load.n)]

    def expect(self, rows: Sequence[int]) -> None:
        """Make the steps from some ideals together, where that is faster than one by one."""

    def leave(self, j: int, limit: float) -> tuple[Ints, Floats]:
        """Return the ideals reachable from ideal ``j`` in one partition and the partition's time.

        Only steps whose time plus the bound of the rest stays below ``limit`` are returned.
        """
        terms = self.terms(j, limit)
        return terms.to, self.priced(terms.time, terms, j)

    def terms(self, j: int, limit: float) -> StepTerms:
        """Return the steps of `leave` with every term of the partitions, before any price."""
        load, tables = self.load, self.tables
        start = int(self.ends[tables.count[j] + 1])
        words = tables.words
        # Cheap sums first, then the superset test: buffers and weights only grow.
        near = self.sram[start:] <= self.sram[j] + load.sram_capacity * (1 + TOLERANCE)
        near[: int(self.ends[tables.count[j] + 2]) - start] = True  # a kernel alone may be cut
        least = self.least_share * (self.compute[start:] - self.compute[j])
        to = np.nonzero(near & (least + self.rest[start:] < limit))[0] + start
        for w in range(words.shape[1]):
            to = to[(words[to, w] & words[j, w]) == words[j, w]]
        # Cheap terms first: they drop most steps.
        compute, network = self.compute[to] - self.compute[j], self._network(to, j)
        alone = self.deferred is None
        least = np.maximum(compute, network) if alone else self.least_share * compute
        keep = least + self.rest[to] < limit
        to, compute, network = to[keep], compute[keep], network[keep]
        if not len(to):
            return StepTerms(to, compute, compute, compute, compute, compute)
        live = np.nonzero(tables.live[j])[0]
        ends = np.ix_(to, live)
        alive_total, alive_sram = self.live_total[ends], self.live_sram[ends]
        reads, read_sram = self._reads(to, live, alive_total, j)
        out = self.out[to] - alive_total.sum(axis=1)
        memory = out + reads + (self.own[to] - self.own[j]) + (self.weights[to] - self.weights[j])
        sram = self.out_sram[to] - alive_sram.sum(axis=1) + read_sram + self.sram[to] - self.sram[j]
        sram += self.inside_sram[to] - self.inside_sram[j] - self.dead_sram[ends].sum(axis=1)
        fits = sram <= load.sram_capacity * (1 + TOLERANCE)
        for held in self.unmixed:
            within = held[to] - held[j]
            fits &= (within == 0) | (within == tables.count[to] - tables.count[j])
        if self.held is not None:
            room = self._rooms(to, j)
            fits &= room
        if load.resident_alone and j == 0 and tables.count[to[-1]] == load.n:
            memory[-1] -= self.weights[-1]
        one = np.nonzero(tables.count[to] == tables.count[j] + 1)[0]
        for position in one:  # a kernel alone may cut its weight
            cost = self.alone[(tables.masks[to[position]] ^ tables.masks[j]).bit_length() - 1]
            memory[position] = cost.memory
            fits[position] = cost.fits and (self.held is None or room[position])
        if self.deferred is not None:
            memory = memory + self.deferred.leaving(j, to)
        time = self.cost(compute, memory, network)
        terms = StepTerms(to, time, compute, memory, network, sram).part(fits)
        terms = terms.part(self.priced(terms.time, terms, j) + self.rest[terms.to] < limit)
        if self.needs is not None and len(terms.to):
            time = self.cost(self._dealt(terms.to, j), terms.memory, terms.network)
            terms = replace(terms, time=time)
        if load.unit is not None and len(terms.to):  # units bind cores: one partition at a time
            masks = [tables.masks[t] ^ tables.masks[j] for t in terms.to.tolist()]
            costs = [partition_cost(load, mask) for mask in masks]
            terms = replace(terms, time=np.array([cost.cost for cost in costs]))
            terms = terms.part(np.array([cost.fits for cost in costs]))
        return terms

    def cost(self, compute: Floats, memory: Floats, network: Floats) -> Floats:
        """Time of partitions with these terms, and what the objective adds. [s]"""
        load = self.load
        time = combine_arrays(compute, memory, network, load.overlap)
        return time + load.memory_price * memory + load.network_price * network

    def priced(self, time: Floats, terms: StepTerms, j: int | Ints) -> Floats:
        """Time of steps from ``j`` less the price of what kernels left out add for nothing. [s]"""
        deferred, to = self.deferred, terms.to
        if deferred is None or self.load.overlap is Overlap.NONE:
            return time
        load = self.load
        hidden = time - load.memory_price * terms.memory - load.network_price * terms.network
        if self.load.overlap is not Overlap.ALL:
            hidden = hidden - terms.network
        filled = np.minimum(hidden - terms.compute, deferred.compute[to])
        taken_off = deferred.compute_price * filled
        if deferred.memory_price:
            idle = np.minimum(hidden - terms.memory, deferred.memory[to]) - deferred.leaving(j, to)
            taken_off = taken_off + deferred.memory_price * idle
        return np.asarray(time - taken_off)

    def _network(self, to: Ints, j: int | Ints) -> Floats:
        network, data = self.network[to] - self.network[j], self.data[to] - self.data[j]
        longer = self.load.network_takes_maximum
        return np.asarray(np.maximum(network, data) if longer else network + data)

    def _rooms(self, to: Ints, j: int | Ints) -> Bools:
        """Whether the tensors alive in partitions between ideals fit the main memory."""
        assert self.held is not None
        alive, limit = self.alive, self.load.memory_limit * (1 + TOLERANCE)
        first, last = np.broadcast_arrays(alive[j], alive[to])
        fits = np.asarray(first + last <= limit)
        # What is alive at both ends counts once: only where that decides is it looked up.
        open_ = np.nonzero(~fits & (np.maximum(first, last) <= limit * (1 + TOLERANCE)))[0]
        if len(open_):
            start = np.broadcast_to(j, to.shape)[open_]
            both = self.tables.sums_of_either("live", self.held, to[open_], start)
            fits[open_] = both <= limit
        return fits

    @cached_property
    def alive(self) -> Floats:
        """Main memory that the tensors alive at each ideal take. [B]"""
        assert self.held is not None
        return self.tables.sums("live", self.held)

    def _reads(self, to: Ints, live: Ints, alive_total: Floats, j: int) -> tuple[Floats, Floats]:
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


def _core_needs(load: ChipLoad) -> tuple[Floats, Ints]:
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
