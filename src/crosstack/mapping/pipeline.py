"""Pipeline: kernels to stages below the layer, together with their fusion.

Sets: kernels i with precedence, stages p = 0 .. s - 1 that hold one copy of the graph, tensors v.
Parameters: what fusion needs (`crosstack.mapping.fusion`); sequences b of a microbatch [1]; bytes
m_i that a kernel keeps in main memory and c_v that a tensor takes there [B]; capacity C of a stage
[B]; transfer time X of bytes sent over a border [s]; how often an iteration waits for its slowest
stage, n(s) where s stages hold a copy [1], and passes all of them, r [1]; S stages at most [1].
Variables: s and a sequence of partitions, each in a stage.

(1) minimise n(s) x the slowest stage + r x the sum of W_p + X_p (`Pipelining.split`), and, where
    more than time counts, + g x the sum of what the objective adds to the partitions;
(2) a stage takes max(W_p, X_p) where everything overlaps (``ko2025dfmodel`` eq. 7), W_p + X_p
    otherwise; W_p is b x the time of its partitions; a single one keeps its weights on the chip;
(3) X_p sends what is made in p or before and read after p (``ko2025dfmodel`` IV.B), once however
    many wait; the last stage hands the model's activations to the next copy, if there is one;
(4) partitions keep to what fusion asks of them, and lie in one stage, none before its inputs';
(5) the m_i of a stage and b x the c_v alive while one of its partitions runs fit C.

Exact method. Borders are order ideals J in J'. W(J, J') is a shortest path over the ideals between
(and the number of partitions, where limited) for all J at once. By (3) X depends on the ideal after
a stage alone, so f_s(J') = min over J of max(f_{s-1}(J), T(J, J')), and the same with sums. Where
r > 0 the slowest stage is bounded by intervals, the least bound first: none inside beats n x the
lower end + r x the least sum of stages faster than the upper end. Where more than time counts, all
sequences of partitions between two borders stay that no other beats in time, price and memory. Of
(5) tensors alive in the middle of a stage are left out at first; a chosen stage that breaks it is
priced again under it, until none does. What cannot beat the incumbent is left out.

Bound: what one chip would take for everything, over s stages, and the slowest kernel.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass, replace

import numpy as np

from crosstack.mapping.budget import UNLIMITED, Budget
from crosstack.mapping.fusion import (
    FusionProblem,
    all_ideals,
    fuse,
    sequence_cost,
    simple_bound,
)
from crosstack.mapping.ideals import (
    IdealTables,
    TableCache,
)
from crosstack.mapping.stage_ideals import MOST_CELLS, few_ideals
from crosstack.mapping.stage_times import StageChoices, StageTimes, make_stage_choices, on_one_chip
from crosstack.mapping.steps import TOLERANCE
from crosstack.model.iteration import last_transfer
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad, combine
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import Floats, Ints

MOST_IDEALS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class StageProblem:
    """A fusion problem, and stages to spread its partitions over.

    ``plan`` prices borders; ``slots[s - 1]`` and ``repeats`` are n(s) and r [1], and the last copy
    sends nothing, of which ``unsent`` is counted too much [s];
    ``capacity`` is the main memory of a chip, of which ``everywhere`` is taken on all chips [B];
    ``one_by_one``: every kernel is its own partition. ``per_layer`` is g: seconds of an iteration
    for each that the objective adds to a layer. [1]
    """

    fusion: FusionProblem
    plan: MeshPlan
    slots: Floats
    repeats: int
    per_layer: float
    unsent: float
    last_transfer: float
    capacity: float
    everywhere: float
    one_by_one: bool

    @property
    def load(self) -> ChipLoad:
        """What one chip has to do; weights are accounted for apart, main memory by stage."""
        return self.fusion.load

    @property
    def priced(self) -> bool:
        """Whether more than time counts."""
        return self.load.memory_price > 0 or self.load.network_price > 0

    @property
    def least_price(self) -> float:
        """What the objective adds at least, as time of an iteration. [s]"""
        load = self.load
        sent = sum(load.network) + sum(load.data)
        added = load.memory_price * sum(load.own_memory) + load.network_price * sent
        return self.per_layer * added * (1 - TOLERANCE)

    @property
    def timed(self) -> StageProblem:
        """The same, for time alone."""
        if not self.priced:
            return self
        load = replace(self.load, memory_price=0.0, network_price=0.0)
        return replace(self, fusion=replace(self.fusion, load=load))

    @property
    def room(self) -> float:
        """Main memory that kernels and tensors of a stage may fill, with slack for rounding. [B]"""
        return max(self.capacity - self.everywhere, 0.0) * (1 + TOLERANCE)


def make_stage_problem(
    fusion: FusionProblem,
    plan: MeshPlan,
    rules: Rules,
    *,
    capacity: float,
    one_by_one: bool = False,
    per_layer: float = 1.0,
) -> StageProblem:
    """Return the problem of spreading a graph over at most ``plan.graph_stages`` stages.

    Parameters as the fields of `StageProblem`; ``rules`` say what an iteration is made of.
    """
    last = last_transfer(plan)
    weights = [rules.iteration.split(plan, s + 1) for s in range(plan.graph_stages)]
    repeats = weights[0][1]
    return StageProblem(
        fusion=fusion,
        plan=plan,
        slots=np.array([slots for slots, _ in weights], dtype=float),
        repeats=repeats,
        per_layer=per_layer,
        unsent=last if repeats else 0.0,
        last_transfer=last,
        capacity=capacity,
        everywhere=_everywhere(fusion.load),
        one_by_one=one_by_one,
    )


def _everywhere(load: ChipLoad) -> float:
    """Main memory that every chip fills, whatever kernels it holds. [B]"""
    return max(load.memory_static - sum(load.kept), 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSplit:
    """Partitions (masks, empty ones included) of every stage, and how sure they are the best.

    ``slowest`` is the time of the slowest stage for one microbatch; ``time`` that of an iteration
    with what the objective adds, ``bound`` a lower bound on it. [s]
    """

    stages: tuple[tuple[int, ...], ...]
    slowest: float
    time: float
    bound: float

    @property
    def proved(self) -> bool:
        """Whether the bound meets the time."""
        return self.bound >= self.time * (1 - 1e-9)


# ---------------------------------------------------------------- the exact method


@dataclass(frozen=True, slots=True)
class _Chain:
    """Stages as pairs of positions among the borders, and what they come to. [s]

    ``which`` of the sequences of partitions between two borders each stage takes.
    """

    pairs: tuple[tuple[int, int], ...]
    time: float
    which: tuple[int, ...] = ()


def _least(
    taken: Floats, slots: Floats, limit: float, moves: list[tuple[Ints, Ints]], together: np.ufunc
) -> _Chain | None:
    """Stages from the first border to the last whose slots x times ``together`` are the least.

    ``together`` is the maximum or the sum; ``taken[a, b]`` the time of a stage between two borders;
    ``moves`` lead from one position to another for nothing (empty partitions). Only what is below
    ``limit`` is found. With as much by fewer stages more are of no use.
    """
    n = len(taken)
    reached = np.full(n, math.inf)
    reached[0] = 0.0
    begin, until = list[Ints](), list[Ints]()  # of the last stage, by stages and border
    start_of = _moved(reached, moves)
    by_fewer = np.full(n, math.inf)
    best, count = limit, 0
    for s, slot in enumerate(slots.tolist()):
        active = np.flatnonzero(reached < math.inf)
        if not len(active):
            break
        through = together(reached[active][:, None], taken[active])
        chosen = through.argmin(axis=0)
        reached = through[chosen, np.arange(n)]
        reached[reached >= best / slot] = math.inf
        begin.append(active[chosen])
        until.append(_moved(reached, moves))
        reached[reached >= by_fewer] = math.inf
        by_fewer = np.minimum(by_fewer, reached)
        if reached[-1] * slot < best:
            best, count = float(reached[-1] * slot), s + 1
    if not count:
        return None
    pairs, b = list[tuple[int, int]](), n - 1
    for s in reversed(range(count)):
        b = int(until[s][b])
        a = int(begin[s][b])
        pairs.append((a, b))
        b = a
    assert int(start_of[b]) == 0
    return _Chain(tuple(reversed(pairs)), best)


def _least_time(
    problem: StageProblem,
    taken: Floats,
    added: Floats,
    limit: float,
    moves: list[tuple[Ints, Ints]],
) -> _Chain | None:
    """Stages of the least iteration below ``limit`` [s], what is unsent counted as sent.

    ``taken[a, b, k]`` is what the k-th way between two borders keeps waiting, ``added`` what it
    takes. [s]
    """
    slots, repeats = problem.slots, problem.repeats
    if not repeats:
        found = _least(taken[:, :, 0], slots, limit, moves, np.maximum)
        return found and replace(found, which=(0,) * len(found.pairs))
    once = np.ones(len(slots))
    fastest = _least(taken.min(axis=2), once, math.inf, moves, np.maximum)
    if fastest is None:
        return None
    slot, best, answer = float(slots[0]), limit, None
    heap = [(slot * fastest.time, fastest.time, math.inf)]  # bound, and an interval of the slowest
    while heap:
        bound, low, high = heapq.heappop(heap)
        if not bound < best * (1 - TOLERANCE):
            break
        allowed = np.where(taken < high, added, math.inf)
        found = _least(allowed.min(axis=2), once, (best - slot * low) / repeats, moves, np.add)
        if found is None:
            continue
        which = tuple(int(allowed[pair].argmin()) for pair in found.pairs)
        ways = zip(found.pairs, which, strict=True)
        slowest = max(float(taken[(*pair, k)]) for pair, k in ways)
        time = slot * slowest + repeats * found.time
        if time < best:
            best, answer = time, _Chain(found.pairs, time, which)
        if slowest > low:
            middle = (low + slowest) / 2
            for start, end in ((middle, slowest), (low, middle)):
                heapq.heappush(heap, (slot * start + repeats * found.time, start, end))
    return answer


def _moved(slowest: Floats, moves: list[tuple[Ints, Ints]]) -> Ints:
    """Apply free moves in place; return from where each position is reached."""
    origin = np.arange(len(slowest))
    for source, target in moves:
        better = slowest[source] < slowest[target]
        slowest[target[better]] = slowest[source[better]]
        origin[target[better]] = origin[source[better]]
    return origin


def _solve(
    problem: StageProblem,
    tables: IdealTables,
    limit: float,
    work: float,
    budget: Budget,
    *,
    thin: bool = False,
) -> tuple[StageSplit | None, bool]:
    """Best stages along ``tables`` below ``limit``, or None; and whether nothing was left out.

    ``work`` is what all stages together take at least for one microbatch [s]; ``thin``: of too
    many borders, take some.
    """
    longest = _longest(problem, limit - problem.least_price, work)
    enough = _counts(problem) * longest > work
    if not enough.any():
        return None, True
    net = StageTimes(problem, tables, float(longest[enough.argmax()]))
    ideals, labels = net.borders(), net.labels
    nodes = net.nodes(ideals)
    last = (len(tables.masks) - 1) * labels + labels - 1
    if not len(nodes) or nodes[0] != 0 or nodes[-1] != last:
        return None, True
    most = max(MOST_CELLS // (len(tables.masks) * labels), 2)
    if len(nodes) > most:
        if not thin:
            return None, False
        some = np.isin(nodes // labels, (0, len(tables.masks) - 1))
        some[np.linspace(0, len(nodes) - 1, most).astype(np.int64)] = True
        nodes = nodes[some]
    ways = make_stage_choices(problem, net, nodes, budget)
    if ways is None:
        return None, False
    moves, below = net.moves(nodes), limit + problem.unsent
    while True:
        found = _least_time(problem, ways.taken, ways.added, below, moves)
        if found is None:
            return None, True
        for pair in found.pairs:
            ways.check(*pair)
        chosen = [(*pair, k) for pair, k in zip(found.pairs, found.which, strict=True)]
        slowest = max(float(ways.taken[way]) for way in chosen)
        slots = float(problem.slots[len(chosen) - 1])
        through = problem.repeats * sum(float(ways.added[way]) for way in chosen)
        if slowest < math.inf and slots * slowest + through <= found.time * (1 + TOLERANCE):
            break
        if budget.over():
            return None, False
    stages = _numbered(chosen, ways, labels)
    time = found.time - problem.unsent
    return StageSplit(stages=stages, slowest=slowest, time=time, bound=0.0), True


def _numbered(
    chosen: list[tuple[int, int, int]], ways: StageChoices, labels: int
) -> tuple[tuple[int, ...], ...]:
    """Partitions of every stage, empty ones where numbers are left out."""
    stages, label = list[tuple[int, ...]](), 0
    for a, b, k in chosen:
        first = int(ways.nodes[a]) % labels
        stages.append((0,) * (first - label) + ways.masks(a, b, k))
        label = int(ways.nodes[b]) % labels
    stages[-1] += (0,) * (labels - 1 - label)
    return tuple(stages)


def _longest(problem: StageProblem, limit: float, work: float) -> Floats:
    """Time below which every stage stays in an iteration below ``limit``, by their number. [s]

    The sum of all stages is at least ``work``, and at least the slowest.
    """
    slots, repeats, below = problem.slots, problem.repeats, limit + problem.unsent
    with np.errstate(divide="ignore"):
        beside = np.where(slots > 0, (below - repeats * work) / slots, math.inf)
    beside = np.where(below > repeats * work, beside, 0.0)
    return np.minimum(below / (slots + repeats), beside)


def split(
    problem: StageProblem,
    incumbent: float = math.inf,
    cache: TableCache | None = None,
    budget: Budget = UNLIMITED,
    *,
    most_ideals: int = MOST_IDEALS,
    bound_only: bool = False,
) -> StageSplit | None:
    """Return the best stages, of an iteration faster than ``incumbent``, or None if none is.

    Parameters as `crosstack.mapping.fusion.fuse`.
    """
    cache = {} if cache is None else cache
    limit = incumbent * (1 - TOLERANCE)
    work = _least_work(problem.timed, limit - problem.least_price, cache, budget)
    bound = _bound(problem, work) + problem.least_price
    if not bound < limit:
        return None
    tables = all_ideals(problem.fusion, most_ideals, cache)
    best = None
    if math.isinf(limit) or (tables is None and not bound_only):
        few = few_ideals(problem, cache, budget)
        best, _ = _solve(problem, few, limit, work, budget, thin=True)
    limit = limit if best is None else best.time * (1 - TOLERANCE)
    complete = not bound < limit
    if tables is not None and not complete:
        found, complete = _solve(problem, tables, limit, work, budget)
        best = found or best
    if best is None:
        unknown = StageSplit(stages=(), slowest=math.inf, time=math.inf, bound=bound)
        return None if complete else unknown
    return replace(best, bound=best.time if complete else min(bound, best.time))


# ---------------------------------------------------------------- bound


def _least_work(problem: StageProblem, limit: float, cache: TableCache, budget: Budget) -> float:
    """What all stages together take at least for one microbatch, infinite if too long. [s]

    Their partitions in order are a sequence for one chip, on which every weight may stay.
    """
    load, microbatch = problem.load, problem.plan.microbatch_size
    free = on_one_chip(load)
    if problem.one_by_one:
        return microbatch * sequence_cost(free, (1 << i for i in range(load.n)))
    each = problem.slots / _counts(problem) + problem.repeats
    longest = float(((limit + problem.unsent) / each).max()) / microbatch
    if not simple_bound(free) < longest:
        return math.inf
    alone = replace(problem.fusion, load=free)
    found = fuse(alone, longest, cache, budget, bound_only=True)
    return math.inf if found is None else microbatch * found.bound


def _counts(problem: StageProblem) -> Ints:
    return np.arange(1, len(problem.slots) + 1, dtype=np.int64)


def _bound(problem: StageProblem, work: float) -> float:
    """Time of an iteration at least: all work over the stages, and the slowest kernel. [s]"""
    load = problem.load
    if math.isinf(work):
        return math.inf
    slowest = 0.0
    for i in range(load.n):
        network, data = load.network[i], load.data[i]
        sent = max(network, data) if load.network_takes_maximum else network + data
        slowest = max(slowest, combine(load.compute[i], load.own_memory[i], sent, load.overlap))
    even = work / _counts(problem)
    least = np.maximum(even, slowest * problem.plan.microbatch_size) * (1 - TOLERANCE)
    return float((least * problem.slots).min()) + problem.repeats * work - problem.unsent


# ---------------------------------------------------------------- what does not fit


def least_memory(load: ChipLoad, n_stages: int) -> float:
    """Main memory that the fullest of some stages fills at least, without any tensor. [B]"""
    return _everywhere(load) + max(sum(load.kept) / n_stages, *load.kept)


def fullest_stage(problem: StageProblem, cache: TableCache) -> float:
    """Main memory that the fullest stage fills at least, however the graph is split. [B]"""
    tables = all_ideals(problem.fusion, MOST_IDEALS, cache)
    least = least_memory(problem.load, len(problem.slots))
    if tables is None:
        return least
    net = StageTimes(replace(problem, capacity=math.inf), tables, math.inf)
    net.binds = True  # count what is alive
    nodes = net.nodes(np.arange(len(tables.masks)))
    if len(nodes) * len(tables.masks) * net.labels > MOST_CELLS:
        return least
    alive = net.along(nodes, UNLIMITED, most_alive=True)
    assert alive is not None
    at = nodes // net.labels
    filled = net.held[at][None, :] - net.held[at][:, None] + alive[:, nodes]
    filled[at[:, None] >= at[None, :]] = math.inf
    once = np.ones(len(problem.slots))
    found = _least(filled, once, math.inf, net.moves(nodes), np.maximum)
    return math.inf if found is None else problem.everywhere + found.time
