"""The search over all decisions together, with a proof.

A *node* is a plan (parallelism and microbatch size), a number of tiles, and the choices left to
each kernel. Its bound is the best fusion of a load that takes, term by term, the
least over the node (`crosstack.model.partition.relaxed_load`); a node with one choice a kernel is a
complete answer once fused. Every use of the network first gets cheap mappings
(`crosstack.mapping.seeds`). Then the search takes the node with the least bound, fuses it, and
halves it (``land1960branch``), so the least bound left is at any time a bound on every mapping.
Plans that are not made yet are bounded by their work over all chips; there may be millions.

Search nodes are taken in rounds, each from the same best mapping, and what a round finds is joined
in order. So any number of processes finds the same, and a limit on work
(`crosstack.mapping.budget`) ends the search at the same place on any machine.

Under rules that decide sharding first by bytes, a node none of whose shardings moves the fewest
bytes is dropped, and the fastest among the ties is found.
"""

from __future__ import annotations

import heapq
import itertools
import math
import multiprocessing
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field

from crosstack.errors import InputError, Problem
from crosstack.machine.system import System
from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.checks import check_given
from crosstack.mapping.coverage import covered, method_of, nothing_found
from crosstack.mapping.deferred_plans import ROOT, Item, all_plans, unrolled
from crosstack.mapping.ideals import IdealTables
from crosstack.mapping.incumbent import PROOF, Incumbent, Lack, masks_of
from crosstack.mapping.mapping import (
    Certificate,
    Constraints,
    EndMapping,
    Mapping,
    Status,
    Stop,
)
from crosstack.mapping.parallelism import Use, may_split
from crosstack.mapping.pricing import Pricing
from crosstack.mapping.search_node import EndSearch, SearchNode, SearchState
from crosstack.mapping.seeds import plant
from crosstack.mapping.sharding import given_choices
from crosstack.mapping.slots import make_slots
from crosstack.model.choice_index import choice_index
from crosstack.model.choices import make_choices
from crosstack.model.ends import counted, end_cost, plan_of_end, priced_end
from crosstack.model.mesh_plan import EndCost, MeshPlan
from crosstack.model.objective import Objective, Weights
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import Floats, KernelGraph, bits
from crosstack.workload.workload import End, Workload

FIRST_TRY = 256  # items after which the best open node is mapped, and each time they have doubled
FASTEST = Weights.of(Objective.TIME)
END_WORK = (1e4, 1e5, math.inf)  # units of work of the search of an end, until one has a mapping
CELL_WORK = (1e6, math.inf)  # of one that runs again and again with the same weights
TRY_EVERY = 8  # items between tries while nothing is mapped
MOST_TRIES = 4  # nodes mapped in one try, while none fits
# Nodes taken in a round, by the number done before: few at first, when each tells much.
ROUNDS = ((64, 8), (16, 2), (0, 1))


Tables = dict[object, IdealTables | None]
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


def tile_choices(state: SearchState, n_chips: int) -> list[int]:
    """Numbers of tiles to try on ``n_chips`` tensor-parallel chips, most first: least SRAM.

    For every extent that is tiled, the fewest tiles of each length; see `Decisions`.
    """
    workload, constraints = state.workload, state.constraints
    length = workload.sequence_length
    if state.temporal:  # a kernel has the whole chip, and tiles of its own
        return [1]
    if constraints.n_tiles is not None:
        return [constraints.n_tiles]
    decisions = state.rules.decisions
    counts = decisions.tile_counts(length, _tiled_extents(state.arrays, n_chips))
    if constraints.tile_size is not None:
        fewest = -(-length // constraints.tile_size)
        counts = decisions.counts_of_size(counts, fewest)
    return [int(c) for c in counts[::-1]]


def _tiled_extents(arrays: KernelGraph, n_chips: int) -> set[int]:
    """Extents that tiles cut, on one chip."""
    extents: set[int] = set()
    for axis, whole in ((2, arrays.k), (3, arrays.columns), (0, arrays.rows), (1, arrays.rows)):
        tiled = whole[arrays.tiling == axis]
        extents.update(tiled.tolist())
        if axis < 2:  # rows may be sharded too
            extents.update((-(-tiled // n_chips)).tolist())
    return extents


def _useful_tiles(state: SearchState, plan: MeshPlan) -> list[int]:
    """Numbers of tiles that no larger number beats in every respect.

    All that depends on the number of tiles grows with work and output, which the plan enters by
    its tensor-parallel degree alone.
    """
    if plan.tensor in state.useful_tiles:
        return state.useful_tiles[plan.tensor]
    tiles = tile_choices(state, plan.tensor)
    if state.system.chip.compute.utilization is not None:
        kept: list[tuple[int, list[Floats]]] = []
        for number, count in enumerate(tiles):
            if state.budget.spend(CALL) and kept:
                kept += [(left, []) for left in tiles[number:]]
                break
            o = make_choices(state.workload, state.arrays, plan, count, state.rules)
            terms = [o.work, o.output_tile, o.output_total, o.weight]
            beaten = any(
                all((a <= b).all() for a, b in zip(better, terms, strict=True))
                for _, better in kept
            )
            if not beaten:
                kept.append((count, terms))
        tiles = [count for count, _ in kept]
    state.useful_tiles[plan.tensor] = tiles
    return tiles


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
    use: Use | None = None,
    objective: Objective = Objective.TIME,
    weights: Weights | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Mapping, Certificate]:
    """Find the fastest mapping within what is given, and prove it.

    Parameters
    ----------
    work_limit : float
        Units of work (`crosstack.mapping.budget`) after which the best mapping so far is returned
        with its bound: at the same place whatever the machine and the number of processes. [1]
    time_limit : float
        Seconds after which the same happens. [s]
    gap : float
        Relative gap at which to stop. [1]
    jobs : int
        Processes that share the nodes among them; the answer is the same. [1]
    start : (Mapping, float), optional
        A mapping to start from, one of those that are searched, and its objective.
    use : Use, optional
        The only use of the network that is searched; all if left out.
    objective : Objective
        What is minimised.
    weights : Weights, optional
        Prices of time and energy to minimise a sum of; those of the objective if left out.
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
    workload = counted(workload, rules)
    check_given(workload, system, constraints, rules)
    weights = Weights.of(objective) if weights is None else weights
    state = search_state(workload, system, constraints, rules, gap, weights)
    state.use, state.budget = use, Budget(work=work_limit, deadline=started + time_limit)
    if start is not None:
        _offer_start(state, *start)
    run, found = _Run(state, progress, objective.unit), state.incumbent
    pool = nullcontext() if jobs == 1 else _pool(state, jobs)
    with pool as workers:
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
    if found.mapping is None:
        raise nothing_found(state, objective)
    bound = min(found.left_bound, found.best)
    proved = bound >= found.best * (1 - PROOF)
    inside = bound >= found.best * (1 - gap)
    status = Status.OPTIMAL if proved else Status.FEASIBLE if inside else Status.LIMIT
    splits = may_split(workload, system, constraints.degrees) and (
        rules.iteration.has_schedules or not weights.energy
    )
    free, given = covered(state, splits=splits)
    certificate = Certificate(
        status=status,
        metric=objective,
        objective=found.best,
        bound=found.best if proved else bound,
        method=method_of(rules, splits=splits),
        free=tuple(free),
        given=tuple(given),
        runtime=time.perf_counter() - started,
        stopped=(state.budget.cut or Stop.METHOD) if status is Status.LIMIT else None,
    )
    return found.mapping, certificate


def _offer_start(state: SearchState, start: Mapping, time_taken: float) -> None:
    """Start from a mapping; by rules of fewest bytes first, only if it moves no more.

    Raises
    ------
    InputError
        If the mapping contradicts what is given.
    """
    given, codes, backward = state.constraints, state.codes(start), state.arrays.backward
    slots, directions = state.slots, list[set[bool]]()
    for mask in masks_of(start):
        directions.append({bool(backward[i]) for i in bits(mask)})
    order = [max(found) for found in directions]
    length = -(-state.workload.sequence_length // start.n_tiles)
    kept = {
        "degrees": given.degrees.are_those_of(start.sizes, start.parallelism),
        "microbatch_size": given.microbatch_size in (None, start.microbatch_size),
        "n_tiles": given.n_tiles in (None, start.n_tiles),
        "tile_size": given.n_tiles is not None or length <= (given.tile_size or length),
        "kernel_by_kernel": not state.unfused or len(directions) == state.arrays.n,
        "recompute": given.recompute in (None, start.recompute),
        "schedule": given.schedule is start.schedule,
        "interleave": given.interleave in (None, start.interleave),
        "separate_directions": not state.separate
        or (all(len(found) == 1 for found in directions) and order == sorted(order)),
        "partitions": slots is None
        or all(
            first <= number <= last
            for number, first, last in zip(start.partitions, slots.first, slots.last, strict=True)
        ),
        "sharding": all(codes[i] == code for i, code in state.given.items()),
    }
    problems = [
        Problem(f"constraints.{name}", "the mapping to start from does not keep to it.")
        for name, is_kept in kept.items()
        if not is_kept
    ]
    if problems:
        raise InputError(problems)
    if state.rules.decisions.before_time:
        domains = tuple((int(code),) for code in codes)
        plan = state.plan_of(start)
        choices = state.table(plan, start.n_tiles)
        if plan.tensor > 1 and not state.first.allows(domains, choices):
            return
    state.incumbent.keep(time_taken, start)


def search_state(
    workload: Workload,
    system: System,
    constraints: Constraints,
    rules: Rules,
    gap: float = 0.0,
    weights: Weights = FASTEST,
    tables: Tables | None = None,
) -> SearchState:
    """Return a search that has found nothing yet.

    Parameters
    ----------
    gap : float
        Relative gap at which it stops. [1]
    weights : Weights
        Prices of time and energy.
    tables : dict, optional
        What is known of the shapes of graphs: layers and ends may have the same.
    """
    arrays, tables = workload.graph, {} if tables is None else tables
    slots, separate = make_slots(arrays, constraints, rules)
    alone = rules.decisions.one_by_one(arrays.n, constraints.max_partitions)
    alone = alone and not constraints.partitions
    index = choice_index(arrays, workload.placement, named=rules.traffic.traces_layouts)
    return SearchState(
        workload=workload,
        system=system,
        constraints=constraints,
        rules=rules,
        gap=gap,
        pricing=Pricing(workload=workload, system=system, rules=rules, weights=weights),
        arrays=arrays,
        given=given_choices(arrays, constraints.sharding, index),
        slots=slots,
        separate=separate,
        unfused=constraints.kernel_by_kernel or alone,
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
    tables: Tables,
) -> EndSearch:
    """Return what maps an end under a plan: a head is proved, layers are within limits on work.

    Parameters
    ----------
    end : End
        One of the workload's.
    tables : dict
        See `search_state`.
    """
    free = Constraints(
        kernel_by_kernel=constraints.kernel_by_kernel,
        separate_directions=constraints.separate_directions,
    )
    state = search_state(workload.of_end(end), system, free, rules, 0.0, FASTEST, tables)
    limits = CELL_WORK if end.graph.shares_weights else END_WORK

    def fastest(plan: MeshPlan) -> tuple[EndMapping, EndCost] | Lack:
        alone = plan_of_end(plan)
        for work in limits:
            state.incumbent, state.budget = Incumbent(), Budget(work=work)
            run = _Run(state, None, Objective.TIME.unit)
            run.add([(0.0, ROOT, SearchNode(alone, 1, None))])
            run.down()
            if state.incumbent.mapping is not None or state.budget.cut is None:
                break
        mapping = state.incumbent.mapping
        if mapping is None:
            return state.incumbent.lack
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
        state = self.state
        self.add(all_plans(state))
        self._tell()
        plant(state, lambda plan: _useful_tiles(state, plan), self._tell)
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
            if state.budget.over():
                self.leave()
                return
            self._tell()
            width = next(width for after, width in ROUNDS if self.done >= after)
            while self.heap and len(self.round) < width and self.heap[0][0] < state.target():
                self.round.append(heapq.heappop(self.heap))
            for piece in self._pieces(workers):
                self._join(piece)
            self.done += len(self.round)
            self.round.clear()
            if self.done >= next_try or (
                state.incumbent.mapping is None and self.done % TRY_EVERY == 0
            ):
                _try_best(state, self.heap)
                next_try = max(next_try, 2 * self.done)

    def leave(self) -> None:
        """Give up what is still open: the least of its bounds is part of the answer's."""
        for bound, *_ in (*self.heap[:1], *self.round):
            self.state.incumbent.left_bound = min(self.state.incumbent.left_bound, bound)

    def _tell(self) -> None:
        if self.progress is not None:
            best = self.state.incumbent.best
            self.progress(
                Progress(
                    objective=best,
                    bound=min(self.heap[0][0], best),
                    nodes_done=self.done,
                    nodes_waiting=len(self.heap),
                    unit=self.unit,
                )
            )

    def _pieces(self, workers: ProcessPoolExecutor | None) -> Iterator[_Piece]:
        """Yield what becomes of the items of a round, all from the same best mapping."""
        state, best = self.state, self.state.incumbent.best
        left = state.budget.work - state.budget.used
        seconds = state.budget.deadline - time.perf_counter()
        if workers is None or len(self.round) == 1:
            for bound, depth, _, item in self.round:
                yield _piece(state, item, bound, depth, best, left, seconds)
            return
        # What is not made yet waits as an iterator, which stays here.
        sent = {
            ticket: workers.submit(_work, item, bound, depth, best, left, seconds)
            for bound, depth, ticket, item in self.round
            if isinstance(item, SearchNode)
        }
        for bound, depth, ticket, item in self.round:
            if ticket in sent:
                yield sent[ticket].result()
            else:
                yield _piece(state, item, bound, depth, best, left, seconds)

    def _join(self, piece: _Piece) -> None:
        state = self.state
        state.incumbent.join(piece.incumbent)
        state.budget.used += piece.used
        state.budget.cut = state.budget.cut or piece.cut
        for bound, depth, item in piece.children:
            if bound < state.target():
                heapq.heappush(self.heap, (bound, depth, next(self.ticket), item))
            else:
                state.prune(bound)


def _piece(
    state: SearchState,
    item: Item,
    bound: float,
    depth: int,
    best: float,
    left: float,
    seconds: float,
) -> _Piece:
    """Do what is next with an item, from a best time and with what work and time are left."""
    whole = state.incumbent, state.budget
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
        return
    node = item
    if not node.tiled:
        plan = state.ended(node.plan)
        for n_tiles in _useful_tiles(state, node.plan) if plan is not None else ():
            assert plan is not None
            yield bound, ROOT, SearchNode(plan, n_tiles, None, tiled=True)
    elif node.domains is None:
        yield max(bound, state.open(node)), depth, node
    elif not node.fused:
        node.fused = True
        single = all(len(d) == 1 for d in node.domains)
        if not single and not node.tried and (math.isinf(state.incumbent.best) or depth == 0):
            state.complete(node)
        found = state.fuse_node(node, root=depth == 0)
        if single and math.isfinite(found):  # fused by a heuristic: nothing left to split
            state.incumbent.left_bound = min(state.incumbent.left_bound, max(bound, found))
        else:
            yield max(bound, found), depth, node
    else:
        for child in state.halve(node):
            yield max(bound, state.quick_bound(child)), depth - 1, child


# ---------------------------------------------------------------- several processes


_own: list[SearchState] = []  # the problem that a process works on, set once in each


def _pool(state: SearchState, jobs: int) -> ProcessPoolExecutor:
    context = multiprocessing.get_context("spawn")
    problem = (
        state.workload, state.system, state.constraints, state.rules, state.gap,
        state.pricing.weights,
    )  # fmt: skip
    return ProcessPoolExecutor(jobs, mp_context=context, initializer=_begin, initargs=(problem,))


def _begin(problem: tuple[Workload, System, Constraints, Rules, float, Weights]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is for the process that waits
    _own[:] = [search_state(*problem)]


def _work(item: Item, bound: float, depth: int, best: float, left: float, seconds: float) -> _Piece:
    return _piece(_own[0], item, bound, depth, best, left, seconds)
