"""The search over all decisions together, with a proof.

A *node* is a plan (parallelism and microbatch size), a number of tiles, and the choices left to
each kernel. Its bound is the best fusion of a load that takes, term by term, the least over the
node (`crosstack.model.partition.relaxed_load`); a node with one choice a kernel is a complete
answer once fused. Every use of the network first gets cheap mappings (`crosstack.mapping.seeds`).
Then the search takes the node with the least bound, fuses it, and halves it (``land1960branch``),
so the least bound left is at any time a bound on every mapping. Plans that are not made yet are
bounded by their work over all chips; there may be millions.

Search nodes are taken in rounds, each from the same best mapping, and what a round finds is joined
in order. So any number of processes finds the same, and a limit on work
(`crosstack.mapping.budget`) ends the search at the same place on any machine. Under rules that
decide sharding first by bytes, a node none of whose shardings moves the fewest bytes is dropped,
and the fastest among the ties is found.
"""

from __future__ import annotations

import heapq
import itertools
import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crosstack.machine.system import Parallelism, System
from crosstack.mapping.blocks import bend_of, block_bound, block_of
from crosstack.mapping.bounded_strategies import (
    REST,
    ROOT,
    Item,
    RestOfUses,
    all_plans,
    bounded_again,
    least_floor,
    unrolled,
)
from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.checks import check_given
from crosstack.mapping.coverage import covered, nothing_found
from crosstack.mapping.fusion import WIDE
from crosstack.mapping.ideals import TableCache
from crosstack.mapping.incumbent import PROOF, Incumbent, Lack, masks_of
from crosstack.mapping.mapping import Certificate, Constraints, EndMapping, Mapping, Status, Stop
from crosstack.mapping.parallelism import Use, expert_ways
from crosstack.mapping.pricing import Pricing
from crosstack.mapping.search_node import SearchState
from crosstack.mapping.search_problem import EndSearch, SearchNode
from crosstack.mapping.seeds import adopt, plant
from crosstack.mapping.sharding import given_choices
from crosstack.mapping.slots import make_slots
from crosstack.mapping.start import offer_start
from crosstack.mapping.strategy_bounds import Noted, StrategyBounds
from crosstack.mapping.tiles import useful_tiles
from crosstack.model.choice_index import choice_index
from crosstack.model.end_cost import EndCost
from crosstack.model.ends import (
    block_of_end,
    counted,
    end_cost,
    plan_of_end,
    priced_end,
)
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.objective import Objective, Weights
from crosstack.model.rules import Rules
from crosstack.workload.workload import End, Workload

FIRST_TRY = 256  # items after which the best open node is mapped, and each time they have doubled
MOST_ADOPTED = 2048  # strategies that may take over the kernels of a mapping
FASTEST = Weights.of(Objective.TIME)
END_WORK = (1e4, 1e5, math.inf)  # units of work of the search of an end, until one has a mapping
CELL_WORK = (1e6, math.inf)  # of one that runs again and again with the same weights
TRY_EVERY = 8  # items between tries while nothing is mapped
MOST_TRIES = 4  # nodes mapped in one try, while none fits
# Nodes taken in a round, by the number done before: few at first, when each tells much.
ROUNDS = ((64, 8), (16, 2), (0, 1))

# An entry of the heap: bound, then deeper items first, then in the order they came.
_Entry = tuple[float, int, int, Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a search stands: best and bound of the objective so far, nodes done and waiting."""

    objective: float
    bound: float
    nodes_done: int
    nodes_waiting: int
    unit: str = "s"


def search(
    workload: Workload,
    system: System,
    constraints: Constraints,
    rules: Rules,
    *,
    work_limit: float = math.inf,
    time_limit: float = math.inf,
    gap: float = 0.0,
    jobs: int = 1,
    start: tuple[Mapping, float] | None = None,
    uses: Sequence[Use] | None = None,
    among: StrategyBounds | None = None,
    noted: Callable[[StrategyBounds | None], None] | None = None,
    objective: Objective = Objective.TIME,
    weights: Weights | None = None,
    tables: TableCache | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Mapping, Certificate]:
    """Find the fastest mapping within what is given, and prove it.

    Parameters
    ----------
    work_limit, time_limit : float
        Units of work (`crosstack.mapping.budget`) [1] and seconds [s] after which the best mapping
        so far is returned with its bound.
    gap : float
        Relative gap at which to stop. [1]
    jobs : int
        Processes that share the nodes among them; the answer is the same. [1]
    start : (Mapping, float), optional
        A mapping to start from, one of those that are searched, and its objective.
    uses : sequence of Use, optional
        The only uses of the network that are searched; all if left out. Where there is a ``start``,
        too, nothing is made to start from.
    among : StrategyBounds, optional
        The only strategies that are searched, with bounds on this machine; as ``uses``.
    noted : callable, optional
        Told in the end what is known of all strategies; of those of ``among``, in their order, and
        nothing where others had to be looked at, too.
    objective : Objective
        What is minimised.
    weights : Weights, optional
        Prices of time and energy to minimise a sum of; those of the objective if left out.
    tables : dict, optional
        What is known of the shapes of graphs from searches of the same workload, and is added to.
    progress : callable, optional
        Called now and then with a `Progress`.

    Raises
    ------
    InfeasibleError
        If nothing fits; names the resource, demand, limit and levers.
    LimitError
        If a limit, or an interrupt, comes before the first mapping.
    InputError
        If constraints name unknown kernels or contradict the rules.
    """
    started = time.perf_counter()
    workload, system = constraints.as_run(counted(workload, rules), system)
    check_given(workload, system, constraints, rules)
    weights = Weights.of(objective) if weights is None else weights
    state = search_state(workload, system, constraints, rules, gap, weights, tables)
    state.tables.pop(WIDE, None)  # what takes work is found anew
    state.only, state.among, state.noted = uses, among, None if noted is None else Noted()
    state.budget = Budget(work=work_limit, deadline=started + time_limit)
    if start is not None:
        offer_start(state, *start)
    run, found = _Run(state, progress, objective.unit), state.incumbent
    with nullcontext() if jobs == 1 else _pool(state, jobs) as workers:
        try:
            run.through(workers)
        except KeyboardInterrupt:
            if found.mapping is None:
                raise
            state.incumbent = found  # a lane or a piece may have been at work
            state.budget.cut = Stop.INTERRUPT
            run.leave()
            if workers is not None:
                workers.shutdown(wait=False, cancel_futures=True)
    if noted is not None and state.noted is not None:
        run.note_left()
        noted(state.noted.joined() if among is None or len(state.noted.found) == 1 else None)
    if found.mapping is None:
        raise nothing_found(state, objective)
    bound = min(found.left_bound, found.best)
    proved = bound >= found.best * (1 - PROOF)
    inside = bound >= found.best * (1 - gap)
    status = Status.OPTIMAL if proved else Status.FEASIBLE if inside else Status.LIMIT
    method, free, given = covered(state)
    return found.mapping, Certificate(
        status=status,
        metric=objective,
        objective=found.best,
        bound=found.best if proved else bound,
        method=method,
        free=free,
        given=given,
        runtime=time.perf_counter() - started,
        stopped=(state.budget.cut or Stop.METHOD) if status is Status.LIMIT else None,
    )


def adopted(
    workload: Workload,
    system: System,
    constraints: Constraints,
    rules: Rules,
    kernels: Mapping,
    among: StrategyBounds,
    tables: TableCache | None = None,
) -> tuple[Mapping, float] | None:
    """Return the fastest mapping with given kernels under strategies, and its time; or None. [s]

    Parameters
    ----------
    kernels : Mapping
        One that need not fit.
    among : StrategyBounds
        The strategies, with bounds on this machine: those of the least that split tensors alike.
    tables : dict, optional
        As of `search`.
    """
    tensor = np.array([plan.tensor for plan in among.strategies.plans])
    alike = np.flatnonzero(tensor[among.strategies.use] == kernels.degree(Parallelism.TENSOR))
    first = alike[np.argsort(among.bounds[alike], kind="stable")[:MOST_ADOPTED]]
    workload, system = constraints.as_run(counted(workload, rules), system)
    state = search_state(workload, system, constraints, rules, tables=tables)
    if first.size:
        adopt(state, bounded_again(state, among.at(np.sort(first))).first, kernels)
    found = state.incumbent
    return None if found.mapping is None else (found.mapping, found.best)


def search_state(
    workload: Workload,
    system: System,
    constraints: Constraints,
    rules: Rules,
    gap: float = 0.0,
    weights: Weights = FASTEST,
    tables: TableCache | None = None,
) -> SearchState:
    """Return a search that has found nothing yet; parameters as `search`.

    ``tables`` is what is known of the shapes of graphs: layers and ends may have the same.
    """
    arrays, tables = workload.graph, {} if tables is None else tables
    slots, separate = make_slots(arrays, constraints, rules)
    alone = rules.decisions.one_by_one(arrays.n, constraints.max_partitions)
    index = choice_index(arrays, workload.placement, named=rules.traffic.traces_layouts)
    whole, _ = expert_ways(workload, constraints, rules)
    return SearchState(
        workload=workload,
        system=system,
        constraints=constraints,
        rules=rules,
        gap=gap,
        pricing=Pricing(workload=workload, system=system, rules=rules, weights=weights),
        arrays=arrays,
        given=given_choices(arrays, constraints.sharding, index) if whole else {},
        slots=slots,
        separate=separate,
        unfused=constraints.kernel_by_kernel or (alone and not constraints.partitions),
        tables=tables,
        ends=tuple(
            _end_search(workload, system, end, constraints, rules, tables) for end in workload.ends
        ),
    )


def _end_search(
    workload: Workload,
    system: System,
    end: End,
    constraints: Constraints,
    rules: Rules,
    tables: TableCache,
) -> EndSearch:
    """Return what maps an end under a plan: a head is proved, layers are within limits on work.

    Once for all plans that share a block of the end, by what a microbatch takes; whether it fits is
    asked of the whole stage.
    """
    free = Constraints(
        kernel_by_kernel=constraints.kernel_by_kernel,
        separate_directions=constraints.separate_directions,
    )
    state = search_state(workload.of_end(end), system, free, rules, tables=tables)
    state.roomy = True
    blocks: dict[object, Mapping | Lack] = {}

    def mapped(block: MeshPlan) -> Mapping | Lack:
        for work in CELL_WORK if end.graph.shares_weights else END_WORK:
            state.incumbent, state.budget = Incumbent(), Budget(work=work)
            run = _Run(state, None, Objective.TIME.unit)
            run.add([(0.0, ROOT, SearchNode(block, 1, None))])
            run.down()
            if state.incumbent.mapping is not None or state.budget.cut is None:
                break
        return state.incumbent.mapping or state.incumbent.lack

    def fastest(plan: MeshPlan) -> tuple[EndMapping, EndCost] | Lack:
        alone, block = plan_of_end(plan, end), block_of_end(plan, end, system.chip.overlap)
        key = *block_of(state, block), plan.microbatch_size
        if key not in blocks:
            blocks[key] = mapped(block)
        mapping = blocks[key]
        if isinstance(mapping, Lack):
            return mapping
        choices, codes = state.table(alone, mapping.n_tiles), state.codes(mapping)
        priced = priced_end(workload, system, end, plan, rules, choices, codes, masks_of(mapping))
        kept = EndMapping(
            n_tiles=mapping.n_tiles, sharding=mapping.sharding, partitions=mapping.partitions
        )
        return kept, end_cost(workload, system, end, plan, rules, priced)

    return fastest


@dataclass(slots=True)
class _Piece:
    """What became of one item: its parts with their bounds, and what was found on the way."""

    children: list[tuple[float, int, Item]]
    incumbent: Incumbent
    used: int
    cut: Stop | None


_Limits = tuple[float, float, float]  # the best objective, work left [1], time left [s]


@dataclass(slots=True)
class _Run:
    """Best-first search in rounds: make, open, fuse or halve the items with the least bounds."""

    state: SearchState
    progress: Callable[[Progress], None] | None
    unit: str
    heap: list[_Entry] = field(default_factory=list)
    round: list[_Entry] = field(default_factory=list)  # taken from the heap, not yet joined
    ticket: Iterator[int] = field(default_factory=itertools.count)
    done: int = 0

    def through(self, workers: ProcessPoolExecutor | None) -> None:
        """Search until the proof, the end of the method or a limit."""
        rest = all_plans(self.state)
        self.add([(least_floor(self.state), REST, rest)])
        self._tell()
        whole = self.state.only is None and self.state.among is None
        if whole or self.state.incumbent.mapping is None:
            plant(self.state, rest.first, self._tell)
        self.down(workers)

    def add(self, items: Iterable[tuple[float, int, Item]]) -> None:
        """Add items with their bounds and depths to those that wait."""
        for bound, depth, item in items:
            heapq.heappush(self.heap, (bound, depth, next(self.ticket), item))

    def down(self, workers: ProcessPoolExecutor | None = None) -> None:
        """Take what waits, the least bound first, until the proof or a limit."""
        state, next_try = self.state, FIRST_TRY
        while self.heap:
            if not self.heap[0][0] < state.target():
                state.prune(self.heap[0][0])
                return
            if state.budget.over() and not self._knows_more():
                self.leave()
                return
            self._tell()
            width = next(width for after, width in ROUNDS if self.done >= after)
            while self.heap and len(self.round) < width and self.heap[0][0] < state.target():
                self.round.append(heapq.heappop(self.heap))
            for entry, piece in zip(self.round, self._pieces(workers), strict=True):
                self._join(entry, piece)
            self.done += len(self.round)
            self.round.clear()
            unmapped = state.incumbent.mapping is None
            if self.done >= next_try or (unmapped and self.done % TRY_EVERY == 0):
                _try_best(state, self.heap)
                next_try = max(next_try, 2 * self.done)

    def _knows_more(self) -> bool:
        """Whether what waits first is strategies whose bounds are known but for a few blocks.

        They are worth more than the limit on work is exceeded by.
        """
        item = self.heap[0][3]
        some = isinstance(item, RestOfUses) and item.first is not None
        cut = self.state.budget.cut is Stop.WORK_LIMIT
        return some and cut and self.state.rules.iteration.has_schedules

    def leave(self) -> None:
        """Give up what is still open: the least of its bounds is part of the answer's."""
        for bound, *_ in (*self.heap[:1], *self.round):
            self.state.incumbent.left_bound = min(self.state.incumbent.left_bound, bound)

    def _tell(self) -> None:
        if self.progress is not None:
            best = self.state.incumbent.best
            bound = min(self.heap[0][0], best)
            stands = {"nodes_done": self.done, "nodes_waiting": len(self.heap)}
            self.progress(Progress(objective=best, bound=bound, unit=self.unit, **stands))

    def _pieces(self, workers: ProcessPoolExecutor | None) -> Iterator[_Piece]:
        """Yield what becomes of the items of a round, all from the same best mapping."""
        state, budget = self.state, self.state.budget
        seconds = budget.deadline - time.perf_counter()
        limits = state.incumbent.best, budget.work - budget.used, seconds
        sent = {}
        if workers is not None and len(self.round) > 1:
            for bound, depth, ticket, item in self.round:
                # What is not made yet waits as an iterator, which stays here.
                if isinstance(item, SearchNode):
                    sent[ticket] = workers.submit(_work, item, bound, depth, limits)
        for bound, depth, ticket, item in self.round:
            if ticket in sent:
                yield sent[ticket].result()
            else:
                yield _piece(state, item, bound, depth, limits)

    def note_left(self) -> None:
        """Note the bounds of what still waits."""
        for bound, _, _, item in (*self.heap, *self.round):
            self._note(item, bound)

    def _note(self, item: Item, bound: float) -> None:
        """Note the bound of a part of a strategy that is not looked at further. [s]"""
        if self.state.noted is not None and isinstance(item, SearchNode):
            self.state.noted.leave(item.of, bound)

    def _join(self, entry: _Entry, piece: _Piece) -> None:
        """Add what became of an item to all that is known.

        Where nothing did, as of a strategy that is none on this machine, its bound stays; of what
        is infinite, that nothing in it is of interest.
        """
        state, (before, *_, item) = self.state, entry
        state.incumbent.join(piece.incumbent)
        state.budget.used += piece.used
        state.budget.cut = state.budget.cut or piece.cut
        for child in piece.children:
            bound, _, part = child
            if bound < (target := state.target()):
                self.add([child])
            else:
                state.prune(bound)
                sure = bound if math.isfinite(bound) else target
                self._note(part, sure if math.isfinite(sure) else before)
        if not piece.children:
            self._note(item, before)


def _piece(state: SearchState, item: Item, bound: float, depth: int, limits: _Limits) -> _Piece:
    """Do what is next with an item, from a best time and with what work and time are left."""
    whole, (best, left, seconds) = (state.incumbent, state.budget), limits
    state.incumbent = Incumbent(best=best)
    state.budget = Budget(work=left, deadline=time.perf_counter() + seconds)
    try:
        children = list(_advance(state, item, bound, depth))
        return _Piece(children, state.incumbent, state.budget.used + CALL, state.budget.cut)
    finally:
        state.incumbent, state.budget = whole


def _try_best(state: SearchState, heap: list[_Entry]) -> None:
    """Map the open node with the least bound: it may be long before it comes to the top."""
    waiting = [
        (bound, ticket, item)
        for bound, _, ticket, item in heap
        if isinstance(item, SearchNode) and item.domains is not None and not item.tried
    ]
    for _, _, node in heapq.nsmallest(MOST_TRIES, waiting):
        state.complete(node)
        if state.incumbent.mapping is not None:
            break


def _advance(
    state: SearchState, item: Item, bound: float, depth: int
) -> Iterator[tuple[float, int, Item]]:
    """Yield what an item becomes, with better bounds: itself, sharper, or its parts."""
    if not isinstance(item, SearchNode):
        yield from unrolled(state, item, bound)
    elif not item.tiled:
        # An end computes again what layers do.
        if not state.roomy and state.room.again_for_nothing(item.plan, state.constraints):
            return
        if item.bend is None and (bend := bend_of(state, item.plan)) is not None:
            yield max(bound, bend.least), depth, replace(item, bend=bend)
            return
        more = state.room.with_more_again(item.plan, state.constraints)
        if more is not None and not state.too_heavy(more):
            floor = max(bound, state.pricing.total(more, block_bound(state, more)))
            yield floor, depth, SearchNode(more, 1, None, of=item.of)
        least = state.before_ends(item)
        if not least < state.target():
            yield max(bound, least), depth, item
            return
        plan = state.ended(item.plan)
        if plan is not None:
            bend = item.bend and bend_of(state, plan)
            bound = bound if bend is None else max(bound, bend.least)
            for n_tiles in useful_tiles(state, item.plan) if bound < state.target() else [1]:
                node = SearchNode(plan, n_tiles, None, tiled=True, bend=bend, of=item.of)
                yield bound, ROOT, node
    elif item.domains is None:
        yield max(bound, state.open(item)), depth, item
    elif not item.fused:
        yield from _fused(state, item, bound, depth)
    else:
        for child in state.halve(item):
            yield max(bound, state.quick_bound(child)), depth - 1, child


def _fused(
    state: SearchState, item: SearchNode, bound: float, depth: int
) -> Iterator[tuple[float, int, Item]]:
    """Yield a node with what fusing it says, and try whole shardings of it where that is of use.

    Before, where a bound needs some mapping; behind, where choices and partitions are found
    together: then what is left is seldom anything.
    """
    assert item.domains is not None
    item.fused = True
    single = all(len(d) == 1 for d in item.domains)

    def try_whole() -> None:
        if not single and not item.tried and (math.isinf(state.incumbent.best) or depth == 0):
            state.complete(item)

    later = state.covers(item)
    if not later:
        try_whole()
    found = max(bound, state.fuse_node(item, root=depth == 0))
    if single and math.isfinite(found):  # fused by a heuristic: nothing left to split
        state.incumbent.left_bound = min(state.incumbent.left_bound, found)
        return
    if later and found < state.target():
        try_whole()
    yield found, depth, item


# ---------------------------------------------------------------- several processes


_own: list[SearchState] = []  # the problem that a process works on, set once in each


def _pool(state: SearchState, jobs: int) -> ProcessPoolExecutor:
    given = state.workload, state.system, state.constraints, state.rules
    return ProcessPoolExecutor(
        jobs,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_begin,
        initargs=(*given, state.gap, state.pricing.weights),
    )


def _begin(*problem: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that waits
    _own[:] = [search_state(*problem)]


def _work(item: Item, bound: float, depth: int, limits: _Limits) -> _Piece:
    return _piece(_own[0], item, bound, depth, limits)
