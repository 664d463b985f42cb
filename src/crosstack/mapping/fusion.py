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
of partitions as a second label where (4) asks for it (`crosstack.mapping.shortest`;
`crosstack.mapping.steps` prices them).

Bound. From J on, at least max over resources of what the kernels outside J still need; steps whose
bound does not beat an incumbent are dropped, which comes from the ideals of a few orders.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import dataclass, replace

from crosstack.machine.chip import Overlap
from crosstack.mapping.annealing import COOL, HOT, anneal
from crosstack.mapping.budget import UNLIMITED, Budget
from crosstack.mapping.covering import least_cover
from crosstack.mapping.ideals import (
    IdealTables,
    Order,
    TableCache,
    chain,
    collapse_twins,
    enumerate_ideals,
    graph_shape,
    make_tables,
    topological_chains,
)
from crosstack.mapping.large_graphs import (
    Core,
    core_of,
    improve,
    make_deferred,
    triggered_masks,
    triggers_from,
)
from crosstack.mapping.layouts import only_choice
from crosstack.mapping.merging import joined_partitions
from crosstack.mapping.reordering import reordered
from crosstack.mapping.segments import Segments, segment
from crosstack.mapping.series_parallel import least_moved_in_series
from crosstack.mapping.set_partitioning import least_moved_of_sets
from crosstack.mapping.shortest import Chain, shortest_chain
from crosstack.mapping.slots import Slots
from crosstack.mapping.spreading import least_moved
from crosstack.mapping.steps import (
    TOLERANCE,
    Steps,
    least_compute,
    least_memory_time,
    never_hidden,
    scarcest,
)
from crosstack.mapping.temporal_steps import make_steps
from crosstack.mapping.two_directions import two_directions_bound
from crosstack.model.alive import live_sizes
from crosstack.model.partition import ChipLoad, combine, partition_cost

MOST_CELLS = 6_000_000  # of one table over ideals: about 50 MB
LONG_GRAPH = 400  # kernels above which orders are cut into segments without tables
MOST_ROUNDS = 4
COVER = 20  # units of work of a kernel whose partitions are listed
MANY_IDEALS = 8_000  # above which one round of them has to do
WIDE = "wide graph"  # what is found of the last one, in the cache
WIDE_GRAPH = 64  # kernels above which a search looks for better partitions of its first mapping
SHARE = 0.5  # of what is left, for that
QUICK, BOUNDING, ANNEALING, REORDERING = 0.5, 0.5, 0.75, 0.9  # shares of what is left, in turn
CUTTING, SETTLING = 0.6, 0.3  # the same of cutting anew and annealing what is nearly the best
SERIES = 0.75  # the same of bounding a series-parallel graph, whose partitions are nearly the best
SLIGHT = 1e-3  # relative; a bound of a long graph that is better by less is not looked for
PRICES = (1.0, 0.8)  # of the scarcest idle resource, in the bound for deferrable kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class FusionProblem:
    """A load, its precedence (directions apart where asked) and the slots.

    ``order`` also puts twins in listing order.
    """

    load: ChipLoad
    preds: tuple[int, ...]
    order: Order
    slots: Slots | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """A sequence of partitions (masks), its time and a lower bound on any sequence. [s]"""

    partitions: tuple[int, ...]
    time: float
    bound: float

    @classmethod
    def of(cls, found: Chain, bound: float = math.inf) -> Fusion:
        """Return what was found with a bound on any sequence, or proved; None: nothing yet."""
        time, partitions = found or (math.inf, ())
        return cls(partitions=partitions, time=time, bound=min(bound, time))

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
        load = replace(load, unmixed=(*load.unmixed, load.backward))
    labels: list[object] = [load.backward >> i & 1 for i in range(load.n)]
    if slots is not None:
        labels = [(labels[i], slots.first[i], slots.last[i]) for i in range(load.n)]
    order = collapse_twins(load, preds, labels)
    return FusionProblem(load=load, preds=tuple(preds), order=order, slots=slots)


def fuse(
    problem: FusionProblem,
    incumbent: float = math.inf,
    cache: TableCache | None = None,
    budget: Budget = UNLIMITED,
    *,
    most_ideals: int = 60_000,
    bound_only: bool = False,
) -> Fusion | None:
    """Return the best sequence of partitions faster than ``incumbent``, or None if none is.

    Parameters
    ----------
    incumbent : float
        Only sequences below this are of interest. [s]
    cache : dict, optional
        Keeps tables of ideals for problems with the same graph and precedence.
    budget : Budget
        Work and time left; once spent, the best so far comes back with its bound.
    most_ideals : int
        Above this many order ideals the answer may be a heuristic's, with a true bound. [1]
    bound_only : bool
        Whether only the bound matters: no time is spent on better heuristics.
    """
    cache = {} if cache is None else cache
    limit, bound = incumbent * (1 - TOLERANCE), simple_bound(problem.load)
    if not bound < limit:
        return None
    found, least, exact = _without_ideals(problem, budget)
    if exact:
        return None if found is None or not found[0] < limit else Fusion.of(found)
    if not (bound := max(bound, least)) < limit:
        return None
    if budget.over() and problem.load.n <= LONG_GRAPH:  # no path is looked for any more
        return Fusion.of(None, bound)
    tables = all_ideals(problem, most_ideals, cache)
    best = None
    if math.isinf(limit) or not (bound_only or tables is not None):  # else there is an incumbent
        best = quick_sequence(problem, limit, cache=cache, budget=budget)
        if best is not None:
            limit = best[0] * (1 - TOLERANCE)
            if not bound < limit:
                return Fusion.of(best)
    if tables is not None:
        found, complete = shortest_chain(
            problem.slots, make_steps(problem.load, tables), limit, budget
        )
        best = found or best
        if complete:
            return None if best is None else Fusion.of(best)
        return Fusion.of(best, bound)
    effort = _Effort(cache, budget, most_ideals, bound_only)
    best, bound = _without_tables(problem, best, bound, limit, effort)
    if not bound < limit:
        return None if best is None else Fusion.of(best)
    return Fusion.of(best, bound)


@dataclass(frozen=True, slots=True)
class _Effort:
    """What may be spent on a problem; as the parameters of `fuse`."""

    cache: TableCache
    budget: Budget
    most_ideals: int
    bound_only: bool


def _without_tables(
    problem: FusionProblem, best: Chain, bound: float, limit: float, effort: _Effort
) -> tuple[Chain, float]:
    """Return better of a sequence and of a bound where there are too many ideals.

    See `crosstack.mapping.large_graphs`. Where the bound is not below ``limit`` there is no better
    sequence. [s]
    """
    load, order, cache, budget = problem.load, problem.order, effort.cache, effort.budget
    core, tables = core_of(load, order), None
    small = FusionProblem(
        load=core.load, preds=core.order.preds, order=core.order, slots=core.slots(problem.slots)
    )
    if core.deferrable and core.kernels:
        tables = all_ideals(small, effort.most_ideals, cache)
    if tables is not None:
        parts = two_directions_bound(load, order, only_choice(load.n), limit=limit, budget=budget)
        if parts is None:
            prices = PRICES[:1] if effort.bound_only else PRICES
            parts = _bound_by_core(problem, core, small, tables, limit, budget, prices)
        bound = max(bound, parts)
        if bound < limit and not effort.bound_only:
            best = _rounds(problem, core, tables, best, limit, budget)
    elif not effort.bound_only and _takes_long(load, cache):
        found, bound = _wide_graph(problem, best, bound, cache, budget)
        best = min((x for x in (best, found) if x is not None and x[0] < limit), default=best)
    elif best is not None and not effort.bound_only and problem.slots is None:
        best = min(best, improve(load, order, best[1], range(load.n), budget=budget))
    return best, bound


def _without_ideals(problem: FusionProblem, budget: Budget) -> tuple[Chain, float, bool]:
    """Return the best sequence, what all take at least, and whether that is all that is to know.

    Of a long chain, and of kernels few of which run as one: neither takes order ideals. [s]
    """
    only = _only_order(problem)
    if only is not None:
        cut, exact = segment(problem.load, only, budget=budget)
        if exact:
            return cut, math.inf, True
    if problem.slots is not None or (cover := least_cover(problem.load, problem.order)) is None:
        return None, 0.0, False
    budget.spend(COVER * problem.load.n)
    if not cover.partitions:
        return None, cover.bound, False
    return (cover.bound, cover.partitions), cover.bound, True


def _key_of(load: ChipLoad) -> tuple[object, ...]:
    return load.compute, load.own_memory, load.network, load.sram, load.flows


def _takes_long(load: ChipLoad, cache: TableCache) -> bool:
    """Whether a graph with too many ideals is worth seconds: a long one, or a search's first."""
    if load.n > LONG_GRAPH:
        return True
    return load.n > WIDE_GRAPH and cache.get(WIDE, (_key_of(load),))[0] == _key_of(load)


def _wide_graph(
    problem: FusionProblem, best: Chain, bound: float, cache: TableCache, budget: Budget
) -> tuple[Chain, float]:
    """Return a sequence and a bound of a graph with too many ideals.

    What is found of a load is kept: a search asks twice, to improve its best mapping and to bound
    what is left.
    """
    load, key = problem.load, _key_of(problem.load)
    if cache.get(WIDE, (None,))[0] != key:
        whole = budget.part(1.0 if load.n > LONG_GRAPH else SHARE)
        moved, near = _nearly_best(problem, whole)
        best = near if best is None else best
        if best is None:
            best = quick_sequence(problem, cache=cache, budget=whole.part(QUICK))
        # Weights stay in a partition that is the whole graph, if there can be such a one.
        stay = load.resident_alone and partition_cost(load, load.everything).fits
        counted = replace(load, resident_alone=stay)

        def of_use(moved: float) -> bool:
            return simple_bound(counted, moved=moved) > bound * (1 + SLIGHT)

        if not moved:
            spent = whole.part(BOUNDING)
            moved = least_moved(load, problem.order, of_use=of_use, budget=spent)
            whole.spend(spent.used)
        if best is not None and problem.slots is None:
            best = _annealed(problem, best, near, whole)
        budget.spend(whole.used)
        cache[WIDE] = key, best, max(bound, simple_bound(counted, moved=moved))
    _, best, bound = cache[WIDE]
    return best, bound


def _nearly_best(problem: FusionProblem, budget: Budget) -> tuple[float, Chain]:
    """Return what tensors move at least [s], and a sequence near that.

    0 and None of graphs that are not series-parallel and have too many sets of kernels that fit, or
    where there is no time for it.
    """
    load, order, spent = problem.load, problem.order, budget.part(SERIES)
    found, best = least_moved_in_series(load, budget=spent), None
    if not found.moved:
        budget.spend(spent.used)
        spent = budget.part(BOUNDING)
        found = least_moved_of_sets(load, order, budget=spent)
    if found.partitions and problem.slots is None and not load.unmixed:
        joined = joined_partitions(load, order, found.partitions, budget=spent)
        if joined is not None and _has_room(load, joined):
            cost = sequence_cost(load, joined)
            best = (cost, joined) if math.isfinite(cost) else None
    budget.spend(spent.used)
    return found.moved, best


def _has_room(load: ChipLoad, masks: tuple[int, ...]) -> bool:
    """Whether the tensors alive in each partition fit the main memory."""
    return max(live_sizes(load, masks)) <= load.memory_limit * (1 + TOLERANCE)


def _annealed(
    problem: FusionProblem, best: tuple[float, tuple[int, ...]], near: Chain, budget: Budget
) -> tuple[float, tuple[int, ...]]:
    """Return a better sequence, or the one given, where moves find none that fits.

    From one that is ``near`` the best, if there is one.
    """
    load, order, every = problem.load, problem.order, range(problem.load.n)
    found = [best] if near is None else [min(best, near)]
    if load.temporal is None and not load.unmixed:
        share, how = (ANNEALING, HOT) if near is None else (SETTLING, COOL)

        def annealed(masks: tuple[int, ...], spent: Budget) -> tuple[int, ...]:
            return anneal(load, order, masks, temperatures=how, budget=spent)

        def cut_anew(masks: tuple[int, ...], spent: Budget) -> tuple[int, ...]:
            return reordered(load, order, masks, budget=spent)

        # Partitions that are nearly the best are cut anew first: moves only settle them.
        first = [] if near is None else [(CUTTING, cut_anew)]
        for part, better in [*first, (share, annealed), (REORDERING, cut_anew)]:
            spent = budget.part(part)
            masks = better(min(found)[1], spent)
            budget.spend(spent.used)
            if _has_room(load, masks):
                found.append((sequence_cost(load, masks), masks))
    if load.n <= LONG_GRAPH or len(found) == 1:
        found += [improve(load, order, masks, every, budget=budget) for _, masks in found]
    return min(found)


def _only_order(problem: FusionProblem) -> list[int] | None:
    """Return the only topological order of a long chain-like graph, or None."""
    order = problem.order
    if order.n <= LONG_GRAPH or problem.slots is not None:
        return None
    sequence = topological_chains(order)[-1]
    follows = itertools.pairwise(sequence)
    return sequence if all(order.preds[b] >> a & 1 for a, b in follows) else None


def sequence_cost(load: ChipLoad, partitions: Iterable[int]) -> float:
    """Cost of a sequence of partitions, infinite where one does not fit. [s]"""
    costs = [partition_cost(load, mask) for mask in partitions]
    return sum(cost.cost for cost in costs) if all(cost.fits for cost in costs) else math.inf


def simple_bound(load: ChipLoad, network: float | None = None, *, moved: float = 0.0) -> float:
    """Return what all kernels need at least of their scarcest resource. [s]

    ``network`` replaces the sum of the kernels' where a better bound on it is known; ``moved`` is
    what tensors move between partitions at least. [s]
    """
    compute = float(least_compute(load).sum())
    memory = moved + sum(load.own_memory) + (0.0 if load.resident_alone else sum(load.weight_time))
    network, data = sum(load.network) if network is None else network, sum(load.data)
    network = max(network, data) if load.network_takes_maximum else network + data
    priced = load.memory_price * memory + load.network_price * network
    return combine(compute, memory, network, load.overlap) + priced


def all_ideals(problem: FusionProblem, most: int, cache: TableCache) -> IdealTables | None:
    """Return the tables of all ideals, or None where there are too many."""
    load, key = problem.load, graph_shape(problem.load, problem.order)
    if load.n > LONG_GRAPH and load.staircases is not None:
        return None  # the cores every kernel needs for every time would fill the memory
    if key not in cache:
        most = min(most, MOST_CELLS // max(len(load.flows), load.n))
        ideals = enumerate_ideals(problem.order, most=most)
        cache[key] = None if ideals is None else make_tables(ideals, load.n, load.flows)
    found: IdealTables | None = cache[key]
    return found


def quick_sequence(
    problem: FusionProblem, limit: float = math.inf, *, cache: TableCache, budget: Budget
) -> Chain:
    """Return the best sequence over a few topological orders below ``limit``, and its time. [s]"""
    load = problem.load
    if load.n > LONG_GRAPH and problem.slots is None:
        sequences = dict.fromkeys(map(tuple, topological_chains(problem.order)[-2:]))
        segments = Segments(load)
        found = [segments.cut(sequence, budget=budget)[0] for sequence in sequences]
        good = [f for f in found if f is not None and f[0] < limit]
        return min(good, default=None)
    key = ("chains", graph_shape(load, problem.order))
    if key not in cache:
        ideals: set[int] = set()
        for sequence in topological_chains(problem.order)[: 4 if load.n <= LONG_GRAPH else 1]:
            ideals.update(chain(sequence))
        cache[key] = make_tables(list(ideals), load.n, load.flows)
    tables: IdealTables = cache[key]
    return shortest_chain(problem.slots, make_steps(load, tables), limit, budget)[0]


def _bound_by_core(
    problem: FusionProblem,
    core: Core,
    small: FusionProblem,
    tables: IdealTables,
    limit: float,
    budget: Budget,
    prices: tuple[float, ...],
) -> float:
    """Bound a graph by the best sequence of its core; `math.inf` if nothing is below ``limit``.

    Deferrable kernels may fill idle compute and memory of any partition that ends after their
    inputs exist; at prices x and y per second of filling (``x, y >= 0``, ``x + y <= 1``) the core's
    best sequence, each partition credited for what could fill it, plus x times all their compute
    and y times all their memory is a lower bound (Lagrangian relaxation of "each runs once").
    """
    best = 0.0
    scarce = scarcest(problem.load, core.deferrable)
    for price in prices:
        priced = scarce[0] * price, scarce[1] * price
        steps, added = core_steps(problem.load, problem.order, core, tables, priced)
        found, complete = shortest_chain(small.slots, steps, limit - added, budget)
        if not complete:
            break
        if found is None:
            return math.inf
        best = max(best, found[0] + added)
        if problem.load.overlap is Overlap.NONE:  # nothing hides, whatever the price
            break
    return best


def core_steps(
    load: ChipLoad, order: Order, core: Core, tables: IdealTables, prices: tuple[float, float]
) -> tuple[Steps, float]:
    """Return the steps of a core at prices for its deferrable kernels, and what to add. [s]

    ``prices`` are those of a second of compute and of memory.
    """
    left_out = list(core.deferrable)
    work = float(least_compute(load)[left_out].sum())
    memory = float(least_memory_time(load)[left_out].sum())
    extra = never_hidden(load, left_out)
    if load.overlap is Overlap.NONE:
        extra += memory
        # Where cores are dealt out, they may compute beside the others.
        extra += work if load.staircases is None else 0.0
        prices = 0.0, 0.0
    deferred = make_deferred(load, order, core, tables, prices)
    return make_steps(core.load, tables, deferred), prices[0] * work + prices[1] * memory + extra


def _rounds(
    problem: FusionProblem,
    core: Core,
    tables: IdealTables,
    best: Chain,
    limit: float,
    budget: Budget,
) -> Chain:
    """Alternate exact sequences for fixed triggers with moves that find better triggers."""
    load, order = problem.load, problem.order
    triggers = triggers_from(core, order)
    for _ in range(MOST_ROUNDS if len(tables.masks) <= MANY_IDEALS else 1):
        masks = triggered_masks(core, order, tables, triggers)
        steps = make_steps(load, make_tables(masks, load.n, load.flows))
        found, complete = shortest_chain(problem.slots, steps, limit, budget)
        if found is not None and (best is None or found[0] < best[0]):
            best = found
        if best is None or problem.slots is not None:
            break
        before = best[0]
        best = min(best, improve(load, order, best[1], core.deferrable, budget=budget))
        best = min(best, improve(load, order, best[1], range(load.n), budget=budget))
        limit = best[0] * (1 - TOLERANCE)
        triggers = triggers_from(core, order, best[1])
        if not complete or (best[0] >= before and found is None):
            break
    return best
