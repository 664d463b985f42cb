"""The search over all decisions together, with a proof.

A *box* is a plan (parallelism and microbatch size), a number of tiles, and the axes each kernel
may still be sharded along. Its bound is the best fusion of a load that takes, term by term, the
least over the box (`crosstack.model.partition.relaxed_load`); a box with one axis a kernel is a
complete answer once fused. The search takes the box with the least bound, fuses it, and halves it
(``land1960branch``), so the least bound left is at any time a bound on every mapping. Plans that
are not made yet are bounded by their work over all chips; there may be millions.

Under rules that decide sharding first by bytes, a box none of whose shardings moves the fewest
bytes is dropped, and the fastest among the ties is found.
"""

from __future__ import annotations

import heapq
import itertools
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstack.errors import InfeasibleError, InputError, LimitError, Problem, require
from crosstack.mapping.boxes import PROOF, Box, Boxes, Lack
from crosstack.mapping.fusion import make_slots
from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status, Stop
from crosstack.mapping.parallelism import may_split
from crosstack.mapping.sharding import given_axes
from crosstack.mapping.unmade import ROOT, Item, all_plans, share_of, unrolled
from crosstack.model.arrays import Floats, GraphArrays, graph_arrays
from crosstack.model.options import allowed_axes, make_options
from crosstack.model.plan import Plan, tile_counts
from crosstack.model.rules import ModelRules
from crosstack.system.system import System
from crosstack.units import format_quantity
from crosstack.workload.graph import Placement, Workload

__all__ = ["Progress", "search"]

FIRST_TRY = 256  # items after which the best open box is mapped, and each time they have doubled
TRY_AFTER, TRY_EVERY = 0.25, 8  # share of the limit without a mapping; items between tries then
MOST_TRIES = 4  # boxes mapped in one try, while none fits
LEAST_GRACE = 3.0  # seconds past the limit that one mapping is looked for at least

HURRY = 0.3  # of the time limit after which the best box so far is mapped, if none is


# An entry of the heap: bound, then deeper items first, then in the order they came.
_Entry = tuple[float, int, int, Item]


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Where a search stands: best time and bound so far [s], boxes done and waiting."""

    objective: float
    bound: float
    boxes_done: int
    boxes_waiting: int


def tile_choices(state: Boxes, n_chips: int) -> list[int]:
    """Numbers of tiles to try on ``n_chips`` tensor-parallel chips, most first: least SRAM.

    For every extent that is tiled, the fewest tiles of each length; see `tile_counts`.
    """
    workload, constraints, rules = state.workload, state.constraints, state.rules
    length = workload.sequence_length
    if constraints.n_tiles is not None:
        return [constraints.n_tiles]
    counts = tile_counts(length, divide=rules.tiles_divide)
    if not rules.tiles_divide:
        for extent in sorted(_tiled_extents(state.arrays, n_chips) - {length}):
            counts = np.union1d(counts, tile_counts(extent, divide=False, most=length))
    if constraints.tile_size is not None:
        fewest = -(-length // constraints.tile_size)
        counts = counts[counts == fewest if rules.tiles_divide else counts >= fewest]
    return [int(c) for c in counts[::-1]]


def _tiled_extents(arrays: GraphArrays, n_chips: int) -> set[int]:
    """Extents that tiles cut, on one chip."""
    extents: set[int] = set()
    for axis, whole in ((2, arrays.k), (3, arrays.columns), (0, arrays.rows), (1, arrays.rows)):
        tiled = whole[arrays.tiling == axis]
        extents.update(tiled.tolist())
        if axis < 2:  # rows may be sharded too
            extents.update((-(-tiled // n_chips)).tolist())
    return extents


def _useful_tiles(state: Boxes, plan: Plan) -> list[int]:
    """Numbers of tiles that no larger number beats in every respect.

    All that depends on the number of tiles grows with work and output, which the plan enters by
    its tensor-parallel degree alone.
    """
    if plan.tensor in state.useful_tiles:
        return state.useful_tiles[plan.tensor]
    tiles = tile_choices(state, plan.tensor)
    if state.system.chip.utilization is not None:
        allowed = allowed_axes(state.arrays, state.workload.placement)
        kept: list[tuple[int, list[Floats]]] = []
        for number, count in enumerate(tiles):
            if time.perf_counter() > state.deadline and kept:
                kept += [(left, []) for left in tiles[number:]]
                break
            o = make_options(state.workload, state.arrays, plan, count, state.rules)
            terms = [o.work, o.output_tile, o.output_total, o.weight]
            beaten = any(
                all((a <= b)[allowed].all() for a, b in zip(better, terms, strict=True))
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
    rules: ModelRules,
    *,
    time_limit: float = math.inf,
    gap: float = 0.0,
    jobs: int = 1,
    progress: Callable[[Progress], None] | None = None,
) -> tuple[Mapping, Certificate]:
    """Find the fastest mapping within what is given, and prove it.

    Parameters
    ----------
    time_limit : float
        Seconds after which the best mapping so far is returned with its bound; one mapping is
        looked for however long that takes. [s]
    gap : float
        Relative gap at which to stop. [1]
    jobs : int
        Processes that share the plans among them. [1]
    progress : callable, optional
        Called now and then with a `Progress`.

    Raises
    ------
    InfeasibleError
        If nothing fits; names the resource, demand, limit and levers.
    InputError
        If constraints name unknown kernels or contradict the rules.
    """
    started = time.perf_counter()
    _check_tiles(workload, constraints, rules)
    state = _state(workload, system, constraints, rules, started + time_limit, gap)
    if jobs > 1:
        outcome = _run_together(state, jobs, time_limit)
    else:
        outcome = _run(state, all_plans(state), progress)
    if not outcome.plans_made and math.isinf(outcome.bound):
        raise _no_plan(workload, system, constraints)
    if outcome.mapping is None and math.isfinite(outcome.bound):
        raise LimitError(
            "no mapping found before the limit; none beats "
            f"{format_quantity(outcome.bound, 's')}, and none is ruled out. "
            "A longer --time-limit, fewer pins or more SRAM may help."
        )
    if outcome.mapping is None:
        raise _infeasible(state, outcome.lack)
    bound = min(outcome.bound, outcome.best)
    proved = bound >= outcome.best * (1 - PROOF)
    inside = bound >= outcome.best * (1 - gap)
    status = Status.OPTIMAL if proved else Status.FEASIBLE if inside else Status.LIMIT
    ended = time.perf_counter()
    why = Stop.TIME_LIMIT if ended > state.deadline else Stop.METHOD
    splits = may_split(workload, system)
    placed = workload.placement is not Placement.SEARCHED
    free, given = _covered(system, constraints, splits=splits, placed=placed)
    certificate = Certificate(
        status=status,
        objective=outcome.best,
        bound=outcome.best if proved else bound,
        method=_method(rules, splits=splits),
        free=free,
        given=given,
        runtime=ended - started,
        stopped=why if status is Status.LIMIT else None,
    )
    return outcome.mapping, certificate


def _check_tiles(workload: Workload, constraints: Constraints, rules: ModelRules) -> None:
    length, n_tiles = workload.sequence_length, constraints.n_tiles
    size = constraints.tile_size
    require(
        size is None or not rules.tiles_divide or length % size == 0,
        "constraints.tile_size",
        size,
        f"a divisor of sequence_length = {length}, as tiles divide it by rules {rules.name}",
    )
    if n_tiles is None:
        return
    require(n_tiles <= length, "constraints.n_tiles", n_tiles, f"1 to sequence_length, {length}")
    require(
        size is None or n_tiles * size >= length,
        "constraints.tile_size",
        size,
        f"at least {-(-length // n_tiles)}, so that {n_tiles} tiles cover the sequence of {length}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Outcome:
    """What a run found: ``bound`` holds for every mapping it was asked about. [s]"""

    best: float
    mapping: Mapping | None
    bound: float
    lack: Lack
    plans_made: int


def _state(
    workload: Workload,
    system: System,
    constraints: Constraints,
    rules: ModelRules,
    deadline: float,
    gap: float,
) -> Boxes:
    arrays = graph_arrays(workload.graph)
    slots, separate = make_slots(arrays, constraints, rules)
    full = constraints.max_partitions == arrays.n and not constraints.partitions
    return Boxes(
        workload=workload,
        system=system,
        constraints=constraints,
        rules=rules,
        deadline=deadline,
        gap=gap,
        arrays=arrays,
        given=given_axes(arrays, constraints.sharding, allowed_axes(arrays, workload.placement)),
        slots=slots,
        separate=separate,
        unfused=constraints.kernel_by_kernel or (rules.full_count_unfused and full),
    )


def _run(
    state: Boxes,
    roots: list[tuple[float, int, Item]],
    progress: Callable[[Progress], None] | None,
) -> _Outcome:
    """Best-first search: always the item with the least bound; make, open, fuse or halve it."""
    ticket = itertools.count()
    heap: list[_Entry] = [(bound, depth, next(ticket), item) for bound, depth, item in roots]
    heapq.heapify(heap)
    started, done, next_try = time.perf_counter(), 0, FIRST_TRY
    last_call = state.deadline + max(state.deadline - started, LEAST_GRACE)
    while heap:
        bound, depth, _, item = heapq.heappop(heap)
        if not bound < state.target():
            state.prune(bound)
            break
        now, found = time.perf_counter(), math.isfinite(state.incumbent())
        if now > (state.deadline if found else last_call):
            state.left_bound = min(state.left_bound, bound)
            break
        if progress is not None:
            best = state.incumbent()
            progress(
                Progress(
                    objective=best,
                    bound=min(bound, best),
                    boxes_done=done,
                    boxes_waiting=len(heap),
                )
            )
        for better, deeper, child in _advance(state, item, bound, depth):
            if better < state.target():
                heapq.heappush(heap, (better, deeper, next(ticket), child))
            else:
                state.prune(better)
        done += 1
        late = not found and now - started > TRY_AFTER * (state.deadline - started)
        if done >= next_try or (late and done % TRY_EVERY == 0):
            _try_best(state, heap)
            next_try = max(next_try, 2 * done)
    return _Outcome(
        best=state.incumbent(),
        mapping=state.mapping,
        bound=state.left_bound,
        lack=state.lack,
        plans_made=state.plans_made,
    )


def _try_best(state: Boxes, heap: list[_Entry]) -> None:
    """Map the open box with the least bound: it may be long before it comes to the top."""
    waiting = [
        (bound, ticket, item)
        for bound, _, ticket, item in heap
        if isinstance(item, Box) and item.domains is not None and not item.tried
    ]
    for _, _, box in heapq.nsmallest(MOST_TRIES, waiting):
        state.complete(box)
        if math.isfinite(state.incumbent()):
            break


def _advance(
    state: Boxes, item: Item, bound: float, depth: int
) -> Iterator[tuple[float, int, Item]]:
    """Yield what an item becomes, with better bounds: itself, sharper, or its parts."""
    if not isinstance(item, Box):
        yield from unrolled(state, item, bound)
        return
    box = item
    if not box.tiled:
        for n_tiles in _useful_tiles(state, box.plan):
            yield bound, ROOT, Box(box.plan, n_tiles, None, tiled=True)
    elif box.domains is None:
        yield max(bound, state.open(box)), depth, box
    elif not box.fused:
        box.fused = True
        single = all(len(d) == 1 for d in box.domains)
        if not single and not box.tried and (state.mapping is None or depth == 0):
            state.complete(box)
        found = state.fuse_box(box, root=depth == 0)
        if single and math.isfinite(found):  # fused by a heuristic: nothing left to split
            state.left_bound = min(state.left_bound, max(bound, found))
        else:
            yield max(bound, found), depth, box
    else:
        for child in state.halve(box):
            yield max(bound, state.quick_bound(child)), depth - 1, child


# ---------------------------------------------------------------- several processes


def _run_together(state: Boxes, jobs: int, time_limit: float) -> _Outcome:
    """Share the plans among processes, which share the best time."""
    context = multiprocessing.get_context("spawn")
    shared = context.Value("d", math.inf)
    inputs = (state.workload, state.system, state.constraints, state.rules, time_limit, state.gap)
    with ProcessPoolExecutor(
        jobs, mp_context=context, initializer=_join, initargs=(shared,)
    ) as pool:
        runs = list(pool.map(_share, [(*inputs, part, jobs) for part in range(jobs)]))
    best = min(runs, key=lambda run: run.best if run.mapping is not None else math.inf)
    found = [run for run in runs if run.mapping is not None]
    winner = min(found, key=lambda run: run.best) if found else best
    lack = min((run.lack for run in runs), key=lambda lack: lack.demand / lack.limit)
    return _Outcome(
        best=winner.best,
        mapping=winner.mapping,
        bound=min(run.bound for run in runs),
        lack=lack,
        plans_made=sum(run.plans_made for run in runs),
    )


_shared: list[Any] = []  # the best time of all processes, set once in each


def _join(shared: Any) -> None:
    _shared[:] = [shared]


def _share(
    task: tuple[Workload, System, Constraints, ModelRules, float, float, int, int],
) -> _Outcome:
    workload, system, constraints, rules, time_limit, gap, part, parts = task
    deadline = time.perf_counter() + time_limit
    state = _state(workload, system, constraints, rules, deadline, gap)
    state.shared = _shared[0]
    return _run(state, share_of(state, part, parts), None)


# ---------------------------------------------------------------- what to say


def _covered(
    system: System, constraints: Constraints, *, splits: bool, placed: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Name the decisions that were free and those that were given."""
    decided = {
        "dimension sizes": all(d.size is not None for d in system.network),
        "parallelism": placed or all(d.parallelism is not None for d in system.network),
        "microbatch size": constraints.microbatch_size is not None,
        "number of tiles": constraints.n_tiles is not None,
        "sharding": placed,
        "partitions": constraints.kernel_by_kernel,
    }
    free = [name for name, is_given in decided.items() if not is_given]
    free += ["stages"] if splits else []
    given = [name for name, is_given in decided.items() if is_given]
    if constraints.sharding:
        given.append(f"sharding of {len(constraints.sharding)} kernels")
    if constraints.partitions:
        given.append(f"partition of {len(constraints.partitions)} kernels")
    if constraints.max_partitions is not None:
        given.append(f"at most {constraints.max_partitions} partitions")
    if constraints.separate_directions:
        given.append("forward and backward in separate partitions")
    return tuple(free), tuple(given)


def _method(rules: ModelRules, *, splits: bool) -> str:
    first = "sharding of fewest bytes first, ties by time; " if rules.bytes_first else ""
    what = "fusion and stages" if splits else "fusion"
    return f"{first}branch and bound over shardings, shortest path over order ideals for {what}"


def _no_plan(workload: Workload, system: System, constraints: Constraints) -> InputError:
    return InputError(
        Problem(
            "workload.global_batch_size",
            f"got {workload.global_batch_size}; allowed: a multiple of the data-parallel degree "
            f"and the microbatch size ({constraints.microbatch_size or 'free'}) that some use of "
            f"the {system.n_chips} chips has.",
        )
    )


def _infeasible(state: Boxes, lack: Lack) -> InfeasibleError:
    if lack.resource:
        return InfeasibleError(
            resource=lack.resource,
            demand=lack.demand,
            limit=lack.limit,
            unit="B",
            where=lack.where,
            levers=lack.levers,
        )
    count = state.slots.count if state.slots else state.arrays.n
    return InfeasibleError(
        resource="partitions",
        demand=float(count + 1),
        limit=float(count),
        unit="partitions",
        where="fusing the kernels under the SRAM, the memory and the pins",
        levers=("more partitions", "fewer pinned kernels", "more SRAM"),
    )
