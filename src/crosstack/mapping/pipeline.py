"""Pipeline: layers or kernels to stages, so that the slowest stage is as fast as possible.

Sets: items i (layers of a chain, kernels of a graph), tensors v between them, stages p.
Parameters: t_i time of an item for one microbatch [s]; x_v time of sending tensor v over one border
between stages [s]; m_i main memory an item fills all the time [B]; C main memory of a stage [B]; P
stages [1]. Variables: s_i in {0, ..., P - 1}, the stage of every item [1].
Objective: minimise the slowest stage, max over p of T_p [s].

(1) T_p = max(W_p, X_p) where everything overlaps (``ko2025dfmodel`` eq. 7), W_p + X_p otherwise;
    W_p is the sum of t_i over the items of p.
(2) X_p, what stage p sends on, is the sum of x_v over tensors made in p or before and read after p:
    a tensor crosses every border between its producer's and its last reader's stage
    (``ko2025dfmodel`` IV.B), once however many readers wait for it.
(3) Every reader runs in its producer's stage or after it.
(4) The m_i of the items of p sum to at most C.
(5) At most P stages hold items; taking out one that only passes tensors on slows no other.

Exact for chains: given a limit on T_p, filling each stage as far as it goes takes the fewest
stages: a later start reaches at least as far. The least limit for which P suffice is found by
bisection; a limit that fails rules out all up to the least time it rejected.

Exact for graphs: by (3) the union of the first stages is an order ideal J, and by (2) X_p depends
on the ideal after p alone, so f_p(J') = min over J in J' of max(f_{p-1}(J), T(J, J')). Ideals that
nothing faster than the incumbent passes (too much sent, too much work or memory on either side)
are left out; the incumbent is the best split of a few topological orders.

Bound: all work over P stages, and the largest item.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from crosstack.chip.chip import Overlap
from crosstack.errors import InfeasibleError, require, require_quantity, require_whole
from crosstack.mapping.ideals import (
    IdealTables,
    Order,
    enumerate_ideals,
    make_order,
    make_tables,
    topological_chains,
)
from crosstack.mapping.mapping import Status
from crosstack.mapping.steps import TOLERANCE
from crosstack.model.arrays import Bools, Floats, Ints, bits
from crosstack.model.partition import Flow
from crosstack.workload.graph import DataflowGraph

__all__ = ["StageProblem", "Stages", "kernels_to_stages", "layers_to_stages", "make_stage_problem"]

MOST_CELLS = 6_000_000  # of one table over ideals: about 50 MB


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class StageProblem:
    """Items, the tensors between them, and the stages to fill.

    ``times`` [s] and ``memory`` [B] index items, ``transfers`` [s] the tensors ``flows``; ``reads``
    has a row (tensor, item) per reader, ``preds`` are bit masks of direct predecessors.
    """

    names: tuple[str, ...]
    times: Floats
    memory: Floats
    flows: tuple[Flow, ...]
    transfers: Floats
    reads: Ints
    preds: tuple[int, ...]
    n_stages: int
    capacity: float
    overlap: Overlap

    @property
    def room(self) -> float:
        """Main memory that a stage may fill, with slack for rounding. [B]"""
        return self.capacity * (1 + TOLERANCE)

    def stage_time(self, work: Floats, transfer: Floats) -> Floats:
        """Time of a stage from its work and what it sends on: constraint (1). [s]"""
        return np.maximum(work, transfer) if self.overlap is Overlap.ALL else work + transfer


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Which stage holds each item, and how sure it is that no other assignment is faster.

    Parameters
    ----------
    stages : tuple of int
        Stage of every item, from 0; stages without items are left out. [1]
    work, transfer, memory : tuple of float
        Per stage. [s], [s], [B]
    slowest, bound : float
        Time of the slowest stage for one microbatch, and a lower bound on it. [s]
    status : Status
        ``optimal``; ``feasible``: too many order ideals for a proof; ``limit``: out of time, or
        nothing that fits was found: then ``stages`` is empty and ``slowest`` infinite.
    method : str
        How it was found.
    """

    stages: tuple[int, ...] = ()
    work: tuple[float, ...] = ()
    transfer: tuple[float, ...] = ()
    memory: tuple[float, ...] = ()
    slowest: float
    bound: float
    status: Status
    method: str

    @property
    def n_stages(self) -> int:
        """Stages that hold items. [1]"""
        return len(self.work)

    @property
    def boundaries(self) -> tuple[int, ...]:
        """Items before each stage, and all: stage p of a chain is items b[p] to b[p + 1] - 1."""
        held = [self.stages.count(p) for p in range(self.n_stages)]
        return tuple(itertools.accumulate(held, initial=0))

    @property
    def gap(self) -> float:
        """Relative distance of slowest stage and bound. [1]"""
        if math.isinf(self.slowest):
            return 1.0
        return max(0.0, (self.slowest - self.bound) / self.slowest) if self.slowest > 0 else 0.0

    def iteration_time(self, n_microbatches: int, *, n_virtual: int = 1) -> float:
        """Time of one iteration: ``slowest (n_microbatches + (stages - 1) / n_virtual)``. [s]

        Under 1F1B (``narayanan2021megatron``); ``n_virtual`` stages share a chip where it is
        interleaved, and what the borders that this adds cost is left out.
        """
        require_whole("n_microbatches", n_microbatches)
        require_whole("n_virtual", n_virtual)
        return self.slowest * (n_microbatches + (self.n_stages - 1) / n_virtual)


def make_stage_problem(
    graph: DataflowGraph,
    times: Sequence[float],
    transfers: Sequence[float],
    *,
    n_stages: int,
    memory: Sequence[float] | None = None,
    capacity: float | None = None,
    overlap: Overlap = Overlap.ALL,
    fan_out_copies: bool = False,
) -> StageProblem:
    """Return the problem of assigning the kernels of ``graph`` to stages.

    Parameters
    ----------
    times, transfers : sequence of float
        Per kernel; per tensor of the graph, over one border. For one microbatch. [s]
    n_stages : int
        Most stages. [1]
    memory, capacity : optional
        What each kernel keeps in main memory (weights, ...), none if left out, and the main memory
        of a stage, unlimited if left out. [B]
    overlap : Overlap
        Transfers hide behind work where it is ``all``, and add to it otherwise.
    fan_out_copies : bool
        One copy of a tensor per reader (`crosstack.model.rules.ModelRules.fan_out_copies`).
        Connections whose bytes are accounted for elsewhere are never sent.
    """
    _check("transfers", transfers, "s", len(graph.tensors))
    preds, flows = [0] * len(graph), list[Flow]()
    for tensor, transfer in zip(graph.tensors, transfers, strict=True):
        producer = graph.index[tensor.producer]
        for consumer in tensor.consumers:
            preds[graph.index[consumer.kernel]] |= 1 << producer
        readers = sorted({graph.index[c.kernel] for c in tensor.consumers if not c.elided})
        groups = [[reader] for reader in readers] if fan_out_copies else [readers]
        flows.extend(_flow(producer, group, transfer) for group in groups if group)
    names = [kernel.name for kernel in graph.kernels]
    return _problem(names, times, flows, preds, n_stages, memory, capacity, overlap)


def _flow(producer: int, readers: Sequence[int], transfer: float) -> Flow:
    mask = sum(1 << reader for reader in readers)
    return Flow(producer, tuple((r, 1) for r in readers), 0.0, float(transfer), mask)


def _problem(
    names: Sequence[str],
    times: Sequence[float],
    flows: Sequence[Flow],
    preds: Sequence[int],
    n_stages: int,
    memory: Sequence[float] | None,
    capacity: float | None,
    overlap: Overlap,
) -> StageProblem:
    memory = [0.0] * len(names) if memory is None else memory
    capacity = math.inf if capacity is None else float(capacity)
    require_whole("n_stages", n_stages)
    _check("times", times, "s", len(names))
    _check("memory", memory, "B", len(names))
    require_quantity("capacity", capacity, "B", infinite=True)
    reads = [(v, reader) for v, flow in enumerate(flows) for reader, _ in flow.readers]
    return StageProblem(
        names=tuple(names),
        times=np.array(times, dtype=np.float64),
        memory=np.array(memory, dtype=np.float64),
        flows=tuple(flows),
        transfers=np.array([flow.total for flow in flows], dtype=np.float64),
        reads=np.array(reads, dtype=np.int64).reshape(-1, 2),
        preds=tuple(preds),
        n_stages=min(n_stages, len(names)),
        capacity=capacity,
        overlap=overlap,
    )


def _check(field: str, values: Sequence[float], unit: str, count: int) -> None:
    require(len(values) == count, field, len(values), f"{count} numbers [{unit}]")
    for i, value in enumerate(values):
        require_quantity(f"{field}[{i}]", float(value), unit)


def _sent_on(problem: StageProblem, stages: Ints, count: int) -> Floats:
    """Transfer time that each of ``count`` stages pays: constraint (2). [s]"""
    first = stages[np.array([flow.producer for flow in problem.flows], dtype=np.int64)]
    last = first.copy()
    np.maximum.at(last, problem.reads[:, 0], stages[problem.reads[:, 1]])
    change, alive = np.zeros(count), np.zeros(count, dtype=np.int64)
    np.add.at(change, first, problem.transfers)
    np.subtract.at(change, last, problem.transfers)
    np.add.at(alive, first, 1)
    np.subtract.at(alive, last, 1)
    # Differences of sums leave rounding where nothing is alive.
    return np.where(np.cumsum(alive) > 0, np.maximum(np.cumsum(change), 0.0), 0.0)


def _assess(problem: StageProblem, stages: Sequence[int]) -> tuple[Floats, Floats, Floats, float]:
    """Work [s], transfers [s] and memory [B] of every stage, and the slowest stage's time [s]."""
    at = np.asarray(stages, dtype=np.int64)
    count = int(at.max()) + 1
    work, memory, transfer = np.zeros(count), np.zeros(count), _sent_on(problem, at, count)
    np.add.at(work, at, problem.times)
    np.add.at(memory, at, problem.memory)
    return work, transfer, memory, float(problem.stage_time(work, transfer).max())


# ---------------------------------------------------------------- the exact method for chains


def layers_to_stages(
    times: Sequence[float],
    transfers: Sequence[float],
    *,
    n_stages: int,
    memory: Sequence[float] | None = None,
    capacity: float | None = None,
    overlap: Overlap = Overlap.ALL,
) -> Stages:
    """Split a chain of layers into stages, minimising the slowest; always proved.

    Of the splits with the least slowest stage, it is one with the fewest stages.

    Parameters
    ----------
    times, transfers : sequence of float
        Per layer, and from each layer to the next, for one microbatch. [s]
    n_stages, memory, capacity, overlap
        As `make_stage_problem`, with layers for kernels.

    Raises
    ------
    InfeasibleError
        If no split fits the main memory.
    """
    n = len(times)
    require(n > 0, "times", n, "at least one layer")
    _check("transfers", transfers, "s", n - 1)
    names = [f"layer {i}" for i in range(n)]
    flows = [_flow(i, [i + 1], transfer) for i, transfer in enumerate(transfers)]
    preds = [0, *(1 << i for i in range(n - 1))]
    problem = _problem(names, times, flows, preds, n_stages, memory, capacity, overlap)
    stages = _split(problem, range(n))
    if stages is None:
        raise _infeasible(problem)
    return _result(problem, stages, math.inf, Status.OPTIMAL, "bisection over stage times")


def _split(problem: StageProblem, sequence: Sequence[int]) -> tuple[int, ...] | None:
    """Stage of every item in the best contiguous split of one order, or None if none fits."""
    order, n = np.asarray(sequence, dtype=np.int64), len(sequence)
    position = np.argsort(order)
    work = np.concatenate([[0.0], np.cumsum(problem.times[order])])
    memory = np.concatenate([[0.0], np.cumsum(problem.memory[order])])
    out = _sent_on(problem, position, n)
    reach = np.searchsorted(memory, memory[:-1] + problem.room, side="right") - 1

    def fill(limit: float) -> tuple[list[int], float, float]:
        """Ends of stages, the slowest, and the least time above ``limit`` that was rejected."""
        ends, slowest, rejected, start = [0], 0.0, math.inf, 0
        while start < n and len(ends) <= problem.n_stages:
            stop = int(reach[start])
            spans = problem.stage_time(work[start + 1 : stop + 1] - work[start], out[start:stop])
            good = np.flatnonzero(spans <= limit)
            taken = int(good[-1]) + 1 if len(good) else 0
            rejected = min(rejected, float(spans[taken:].min(initial=math.inf)))
            if not taken:
                break
            slowest = max(slowest, float(spans[taken - 1]))
            start += taken
            ends.append(start)
        return (ends if start == n else []), slowest, rejected

    low, high = _bound(problem), math.inf
    best, limit = list[int](), low
    while low < high:
        ends, slowest, rejected = fill(limit)
        if ends:
            best, high = ends, slowest
        else:
            low = rejected
        middle = low + (high - low) / 2
        limit = middle if middle < high or math.isinf(high) else low
    if not best:
        return None
    return tuple(np.repeat(np.arange(len(best) - 1), np.diff(best))[position].tolist())


# ---------------------------------------------------------------- the exact method for graphs


def kernels_to_stages(
    problem: StageProblem, *, most_ideals: int = 60_000, deadline: float = math.inf
) -> Stages:
    """Assign the kernels of a graph to stages, minimising the slowest.

    Parameters
    ----------
    most_ideals : int
        Above this many order ideals the answer is a heuristic's, with a true bound. [1]
    deadline : float
        `time.perf_counter` at which to stop with the best so far and its bound. [s]

    Raises
    ------
    InfeasibleError
        If it is proved that nothing fits the main memory.
    """
    if max(problem.memory.max(), problem.memory.sum() / problem.n_stages) > problem.room:
        raise _infeasible(problem)
    order, bound = make_order(problem.preds), _bound(problem)
    splits = [_split(problem, sequence) for sequence in topological_chains(order)]
    found = [(_assess(problem, split)[3], split) for split in splits if split is not None]
    best, stages = min(found, default=(math.inf, None))
    if best <= bound * (1 + TOLERANCE):
        return _result(problem, stages, bound, Status.OPTIMAL, "reaches the bound on all work")
    most = min(most_ideals, MOST_CELLS // max(len(problem.flows), order.n))
    every = enumerate_ideals(order, most=most)
    ideals = every or _eager_ideals(order, most)
    complete, more = False, "" if every else " of many more"
    method = f"splits of orders, recursion over {len(ideals or ())} order ideals{more}"
    if ideals is not None:
        tables = make_tables(ideals, order.n, problem.flows)
        better, complete = _shortest_chain(problem, tables, best, deadline)
        stages = better or stages
    if every is not None and complete:
        if stages is None:
            raise _infeasible(problem)
        return _result(problem, stages, bound, Status.OPTIMAL, method)
    late = time.perf_counter() > deadline
    return _result(problem, stages, bound, Status.LIMIT if late else Status.FEASIBLE, method)


def _shortest_chain(
    problem: StageProblem, tables: IdealTables, best: float, deadline: float
) -> tuple[tuple[int, ...] | None, bool]:
    """Stages faster than ``best`` along ideals, or None; and whether all were tried."""
    limit, stages = best * (1 - TOLERANCE), problem.n_stages
    work, memory = _rising(tables, problem.times), _rising(tables, problem.memory)
    rest, left_memory, out = work[-1] - work, memory[-1] - memory, tables.live @ problem.transfers
    room = problem.room or 1.0  # where there is none, nothing needs any
    before = np.ceil(np.maximum(work / limit, memory / room) - 1e-9)  # stages at least;
    after = np.ceil(np.maximum(rest / limit, left_memory / room) - 1e-9)  # rounding drops none
    kept = np.flatnonzero((before + after <= stages) & (out < limit))
    kept = kept[np.lexsort((tables.count[kept], work[kept]))]  # subsets before supersets
    if len(kept) < 2 or tables.count[kept[0]] or tables.count[kept[-1]] < tables.count[-1]:
        return None, True
    work, memory, out, words = work[kept], memory[kept], out[kept], tables.words[kept]
    rest, left_memory, member = rest[kept], left_memory[kept], tables.member[kept]
    slowest = np.full((stages + 1, len(kept)), math.inf)
    parent = np.zeros((stages + 1, len(kept)), dtype=np.int64)
    slowest[0, 0], left = 0.0, stages - np.arange(stages)
    for j in range(len(kept) - 1):
        if j % 64 == 63 and time.perf_counter() > deadline:
            return _stages_of(member, slowest, parent), False
        enough = (rest[j] < left * limit) & (left_memory[j] <= left * problem.room)
        after = np.flatnonzero(enough & (slowest[:-1, j] < limit))
        if not len(after):
            continue
        to = np.arange(j + 1, np.searchsorted(work, work[j] + limit, side="right"))
        for w in range(words.shape[1]):
            to = to[(words[to, w] & words[j, w]) == words[j, w]]
        taken = problem.stage_time(work[to] - work[j], out[to])
        fits = (taken < limit) & (memory[to] - memory[j] <= problem.room)
        reached = np.maximum(slowest[after, j][:, None], taken[fits][None, :])
        cells = np.ix_(after + 1, to[fits])
        better = reached < slowest[cells]
        slowest[cells] = np.where(better, reached, slowest[cells])
        parent[cells] = np.where(better, j, parent[cells])
        limit = min(limit, float(slowest[:, -1].min()) * (1 - TOLERANCE))
    return _stages_of(member, slowest, parent), True


def _rising(tables: IdealTables, values: Floats) -> Floats:
    """Sum ``values`` over each ideal; added in one order, a subset's sum is never the larger."""
    total = np.zeros(len(tables.member))
    for i, value in enumerate(values.tolist()):
        total += tables.member[:, i] * value
    return total


def _stages_of(member: Bools, slowest: Floats, parent: Ints) -> tuple[int, ...] | None:
    """Follow the parents back from the full ideal, reached in the fewest stages."""
    p, j = int(np.argmin(slowest[:, -1])), len(member) - 1
    if math.isinf(slowest[p, j]):
        return None
    stages = np.zeros(member.shape[1], dtype=np.int64)
    while p:
        i = int(parent[p, j])
        stages[member[j] & ~member[i]] = p - 1
        p, j = p - 1, i
    return tuple(stages.tolist())


def _eager_ideals(order: Order, most: int) -> list[int] | None:
    """Ideals in which kernels that nobody reads run as soon as they can, or None if too many."""
    kept = [i for i in range(order.n) if order.succs[i]]
    number = {kernel: k for k, kernel in enumerate(kept)}
    preds = tuple(sum(1 << number[j] for j in bits(order.preds[i])) for i in kept)
    small = enumerate_ideals(make_order(preds), most=most)
    if small is None:
        return None
    grown = {0}
    for ideal in small:
        mask = sum(1 << kept[k] for k in bits(ideal))
        ready = [i for i in range(order.n) if i not in number and not order.preds[i] & ~mask]
        grown.add(mask | sum(1 << i for i in ready))
    return list(grown)


# ---------------------------------------------------------------- bound, answer, explanation


def _bound(problem: StageProblem) -> float:
    """What the slowest stage takes at least: all work over all stages, and the largest item. [s]"""
    even = float(problem.times.sum()) / problem.n_stages
    return max(even * (1 - TOLERANCE), float(problem.times.max()))


def _result(
    problem: StageProblem, stages: Sequence[int] | None, bound: float, status: Status, method: str
) -> Stages:
    """Return the answer; a bound that meets the slowest stage is a proof."""
    if stages is None:
        return Stages(slowest=math.inf, bound=bound, status=Status.LIMIT, method=method)
    work, transfer, memory, slowest = _assess(problem, stages)
    proved = status is Status.OPTIMAL or bound >= slowest * (1 - 1e-9)
    return Stages(
        stages=tuple(stages),
        work=tuple(work.tolist()),
        transfer=tuple(transfer.tolist()),
        memory=tuple(memory.tolist()),
        slowest=slowest,
        bound=slowest if proved else bound,
        status=Status.OPTIMAL if proved else status,
        method=method,
    )


def _infeasible(problem: StageProblem) -> InfeasibleError:
    """Say what does not fit: an item alone, or the fullest stage at its least."""
    largest = int(problem.memory.argmax())
    demand, where = float(problem.memory[largest]), f"{problem.names[largest]} alone in a stage"
    levers, limit = ["more memory a chip", "more tensor parallelism"], problem.capacity
    if demand <= problem.room:
        still = np.zeros_like(problem.transfers)
        even = replace(problem, times=problem.memory, transfers=still, capacity=math.inf)
        demand = kernels_to_stages(even).slowest  # memory in place of time: the fullest stage
        where = f"the fullest of at most {problem.n_stages} pipeline stages"
        levers.insert(0, "more pipeline stages")
    return InfeasibleError(
        resource="main memory", demand=demand, limit=limit, unit="B", where=where, levers=levers
    )
