"""Mappings to start from: cheap ones for every use of the network, before anything is bounded.

Every plan (sizes and uses of the dimensions, microbatch) gets the mappings that are quick to make:
kernels one by one and fused along a few orders, for shardings that weigh the network against the
rest differently and for numbers of tiles that double.

What a chip does for one layer depends on the tensor-parallel dimensions alone, but for what the
gradient exchange and small microbatches add. So a *candidate* (those dimensions, a number of
tiles, a sharding) is fused once, without what its plans add; its time bounds it under each of them,
and it is priced exactly where that bound is below the best so far. So what a question with more
given finds here, a freer one finds too.

Every use of the network has a *lane*: the best of its mappings. The best few lanes are improved by
other numbers of tiles and other choices kernel by kernel; then the best of all by its partitions.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.machine.system import Parallelism
from crosstack.mapping.blocks import unburdened, unburdened_plan
from crosstack.mapping.bounded_strategies import BoundedStrategies
from crosstack.mapping.budget import DEAL
from crosstack.mapping.fusion import make_problem, quick_sequence, sequence_cost, simple_bound
from crosstack.mapping.incumbent import PROOF, Incumbent, masks_of
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.network_uses import shares_ring
from crosstack.mapping.search_node import SearchState
from crosstack.mapping.search_problem import SearchNode
from crosstack.mapping.tiles import useful_tiles
from crosstack.model.alive import live_sizes
from crosstack.model.memory import COPY_COLUMNS, copy_memory
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import Floats, Ints

FEWEST_BLOCKS = 4  # mapped whatever the work
PATIENCE = 8  # blocks mapped one after the other without a better mapping, with one known
AHEAD = 8  # blocks that are bounded together with the one of the least bound
MOST_FUSED = 24  # candidates fused of plans that share their tensor-parallel dimensions
MOST_SPLIT = 8  # plans whose stages split the graph
TWICE = 2.0  # a number of tiles over the one before, at least
ALONE = 10  # units of work of pricing a partition of a chip without memory units
NEAR = 1.5  # times the best, above which a mapping is no start for a better one
MOST_LANES = 4  # improved
IMPROVING = 0.9  # share of the work that is left, for all lanes
MOST_ROUNDS = 8  # of improving one
MOST_TRIED = 64  # strategies under which kernels of another mapping are tried
NEAR_TILES = (-8, 8, -4, 4, -2, 2, -1, 1)  # places from the best number of tiles that are tried


@dataclass(slots=True)
class _Candidate:
    """A sharding and a number of tiles, and the strategies they may serve.

    ``load`` leaves out what plans add, ``kept`` is that of layers that compute nothing again where
    some of the strategies have such beside others; ``hidden`` is what of it passes that run
    together hide [s]; ``least`` is the least objective of its strategies.
    """

    some: BoundedStrategies
    places: Ints
    n_tiles: int
    codes: Ints
    load: ChipLoad
    kept: ChipLoad | None
    hidden: float
    least: float = math.inf

    def layers(self, cost: Callable[[ChipLoad], float]) -> Floats:
        """Return what a layer costs under each of its strategies. [s]"""
        whole, again = cost(self.load), self.some.strategies.again[self.places]
        if self.kept is None:
            return np.full(len(again), whole)
        none = cost(self.kept)
        return np.asarray(none + again * (whole - none))

    def totals(self, state: SearchState, layers: Floats) -> Floats:
        """Return the objective of its strategies for what a layer costs. [s]"""
        return self.some.totals(state, self.places, layers, layers - self.hidden)


_Lanes = dict[tuple[tuple[int, ...], tuple[Parallelism, ...], tuple[int, ...]], Incumbent]


def plant(state: SearchState, some: BoundedStrategies | None, tell: Callable[[], None]) -> None:
    """Make mappings for strategies and keep the best; ``tell`` is called now and then."""
    if some is None:
        return
    lanes: _Lanes = {}
    split: list[tuple[float, int]] = []
    network, plans = state.system.network, some.strategies.plans
    kinds = np.array([(shares_ring(network, p.dimensions), p.context > 1) for p in plans])
    members = some.by_block()
    # What a question without shared rings finds, and one without shared sequences, and more.
    for kind in itertools.product((False, True), repeat=2):
        blocks = [own for own in members if tuple(kinds[some.strategies.use[own[0]]]) == kind]
        if not _map(state, some, blocks, lanes, split, tell):
            return
    _split(state, some, split)
    whole = state.budget
    state.budget = whole.part(IMPROVING)
    _improve(state, lanes, tell)
    whole.spend(state.budget.used)
    state.budget = whole


def adopt(state: SearchState, some: BoundedStrategies | None, kernels: Mapping) -> None:
    """Try the kernels of a mapping under strategies that split tensors as it does.

    The least bound first, until none that is left may be better, or `MOST_TRIED` were.
    """
    if some is None:
        return
    own = kernels.degree(Parallelism.TENSOR), kernels.expert_tensor, 1
    masks, codes = masks_of(kernels), state.codes(kernels)
    plans = some.strategies.plans
    alike = np.array([(p.tensor, p.expert_tensor, p.graph_stages) == own for p in plans])
    bounds = np.where(some.light & alike[some.strategies.use], some.least, math.inf)
    for place in np.argsort(bounds, kind="stable")[:MOST_TRIED].tolist():
        if not bounds[place] < state.target() or state.budget.over():
            return
        if (ended := state.ended(some.plan(state, place))) is None:
            continue
        node = SearchNode(ended, kernels.n_tiles, None)
        load = state.load(node, codes)
        state.budget.spend(_alone(load) * len(masks))
        if not state.rooms(load, masks):
            eased = _eased(state, node, codes, load, masks)
            if eased is None or not state.rooms(eased[1], masks):
                continue
            node, load = eased
        _offer(state, node, codes, load, masks)


def _map(
    state: SearchState,
    some: BoundedStrategies,
    members: list[Ints],
    lanes: _Lanes,
    split: list[tuple[float, int]],
    tell: Callable[[], None],
) -> bool:
    """Map blocks in the order of their bounds; return whether work is left for more.

    Strategies whose stages split the graph are added to ``split`` with their bounds.
    """
    last = 0
    for mapped, own in enumerate(_open_blocks(state, some, members, split), start=1):
        before = state.incumbent.best
        first = some.plan(state, int(own[some.held[own].argmin()]))  # one that fits, if any does
        candidates = [
            one
            for n_tiles in _ladder(useful_tiles(state, first))
            for one in _candidates(state, some, own, first, n_tiles)
        ]
        if state.slots is None:  # kernels one by one
            for candidate in candidates:
                kernels: Iterable[int] = candidate.load.order
                if state.constraints.separate_directions:  # forward first
                    kernels = sorted(kernels, key=lambda i: candidate.load.backward >> i & 1)
                masks = tuple(1 << i for i in kernels)
                state.budget.spend(_alone(candidate.load) * len(masks))
                _price(state, lanes, candidate, masks)
        if not state.unfused:
            _fuse(state, lanes, candidates)
        tell()
        if state.incumbent.mapping is None or state.incumbent.best < before:
            last = mapped
        if mapped >= FEWEST_BLOCKS and state.incumbent.mapping is not None and state.budget.over():
            return False
        if mapped >= last + PATIENCE:
            break
    return True


def _open_blocks(
    state: SearchState,
    some: BoundedStrategies,
    members: list[Ints],
    split: list[tuple[float, int]],
) -> Iterator[Ints]:
    """Yield the strategies of blocks that may be best, the least bound first.

    A bound is made sharper while it is the least of all: by what the block takes, then by when the
    stages of the strategy end that has it.
    """
    order = [(float(some.floors[own].min()), i) for i, own in enumerate(members)]
    heapq.heapify(order)
    bounds = dict[int, Floats]()  # of strategies whose block is bounded
    while order and order[0][0] < state.target():
        least, number = heapq.heappop(order)
        own = members[number]
        if number not in bounds:
            unknown = (one for one in order if one[1] not in bounds)
            ahead = [i for _, i in heapq.nsmallest(AHEAD, unknown)]
            some.know_blocks(state, [members[i] for i in (number, *ahead)])
            bounds[number] = known = some.with_block(state, own)
            if some.strategies.plans[some.strategies.use[own[0]]].graph_stages > 1:
                split += zip(known.tolist(), own.tolist(), strict=True)
                continue
        else:
            known, place = bounds[number], int(bounds[number].argmin())
            if some.sharp[own[place]]:
                yield own[known < state.target()]
                continue
            known[place] = max(least, some.sharpen(state, int(own[place])))
        heapq.heappush(order, (float(known.min()), number))


def _ladder(tiles: list[int]) -> list[int]:
    """Return numbers of tiles that grow by `TWICE` at least, the fewest and the most among them."""
    kept: list[int] = []
    for count in sorted(tiles):
        if not kept or count >= TWICE * kept[-1] or count & (count - 1) == 0:
            kept.append(count)
    return sorted({*kept, max(tiles)}) if tiles else []


def _candidates(
    state: SearchState, some: BoundedStrategies, own: Ints, first: MeshPlan, n_tiles: int
) -> Iterator[_Candidate]:
    """Yield the candidates of strategies of one block, of which ``first`` is a plan."""
    node = SearchNode(first, n_tiles, None)
    if math.isinf(state.open(node)):
        return
    shared = replace(unburdened_plan(state, first), again=1.0)
    mixed = bool((some.strategies.again[own] < 1).any())
    for codes in state.shardings(node):
        loads = [
            unburdened(state.load(SearchNode(replace(shared, again=share), n_tiles, None), codes))
            for share in ((1.0, 0.0) if mixed else (1.0,))
        ]
        exchanged = float(state.table(shared, n_tiles).exchange_time[codes].sum())
        hides = state.system.chip.overlap is not Overlap.ALL
        hidden = (1 - first.taken) * exchanged * hides
        kept = loads[1] if mixed else None
        one = _Candidate(some, own, n_tiles, codes, loads[0], kept, hidden)
        totals = one.totals(state, one.layers(simple_bound))
        one.places, one.least = own[totals < state.incumbent.best * NEAR], float(totals.min())
        if one.least < state.incumbent.best:
            yield one


def _alone(load: ChipLoad) -> int:
    """Units of work of pricing a partition."""
    return ALONE if load.unit is None or load.staircases is None else DEAL


def _price(
    state: SearchState, lanes: _Lanes, candidate: _Candidate, masks: tuple[int, ...]
) -> None:
    """Offer a candidate's partitions under its plans for which they may be best, or a start."""
    whole, some = state.incumbent, candidate.some
    layers = candidate.layers(lambda load: sequence_cost(load, masks) + load.extra)
    if not np.isfinite(layers).all():
        return
    totals, beside = candidate.totals(state, layers), layers - candidate.hidden
    for i in np.argsort(totals, kind="stable").tolist():
        total, place, layer = float(totals[i]), int(candidate.places[i]), float(layers[i])
        if not total < NEAR * whole.best:
            break
        base = some.strategies.plans[some.strategies.use[place]]
        lane = lanes.setdefault((base.sizes, base.parallelism, base.dimensions), Incumbent())
        best = min(lane.best, _worst(lanes))
        if total < best and not some.sharp[place]:
            some.sharpen(state, place)
            one = np.array([place])
            total = float(some.totals(state, one, layers[i : i + 1], beside[i : i + 1])[0])
        ended = state.ended(some.plan(state, place)) if total < best else None
        if ended is None or not state.pricing.total(ended, layer) < best:
            continue
        node = SearchNode(ended, candidate.n_tiles, None)
        load = state.load(node, candidate.codes)
        state.budget.spend(_alone(load) * len(masks))
        here: tuple[int, ...] | None = masks
        if not state.rooms(load, masks):
            eased = _eased(state, node, candidate.codes, load, masks)
            if eased is not None:
                node, load = eased
            if eased is None or not state.rooms(load, masks):
                here = None if state.unfused else _quick(state, load)
        if here is not None:
            state.incumbent = lane
            _offer(state, node, candidate.codes, load, here)
            state.incumbent = whole
            whole.join(Incumbent(best=lane.best, mapping=lane.mapping))


def _eased(
    state: SearchState, node: SearchNode, codes: Ints, load: ChipLoad, masks: tuple[int, ...]
) -> tuple[SearchNode, ChipLoad] | None:
    """Return a node, and its load, where more layers compute again, until all fits main memory.

    None where that is not free, or does not help.
    """
    plan, room = node.plan, state.room
    if plan.again == 1 or not room.some_layers_again(state.constraints):
        return None
    choices, moving = state.table(plan, node.n_tiles), max(live_sizes(load, masks))
    columns = {name: getattr(choices, name)[codes] for name in COPY_COLUMNS}
    memory = copy_memory(state.workload, state.arrays, plan, state.rules, **columns)
    fewest = room.fewest_again(plan, memory, moving * plan.microbatch_size, ends=True)
    if fewest is None:
        return None
    other = replace(node, plan=fewest)
    return other, state.load(other, codes)


def _worst(lanes: _Lanes) -> float:
    """Return what a mapping has to beat for its lane to be improved. [s]"""
    best = heapq.nsmallest(MOST_LANES, (lane.best for lane in lanes.values()))
    return best[-1] if len(best) == MOST_LANES else math.inf


def _offer(
    state: SearchState, node: SearchNode, codes: Ints, load: ChipLoad, masks: tuple[int, ...]
) -> None:
    """Keep a mapping if it is the best so far and all its partitions fit."""
    taken = sequence_cost(load, masks) + load.extra
    if math.isfinite(taken):
        state.offer(state.summing(node, codes), codes, load, masks, taken)


def _quick(state: SearchState, load: ChipLoad) -> tuple[int, ...] | None:
    """Partitions along a few orders, or None where nothing fits."""
    problem = make_problem(load, slots=state.slots, separate_directions=state.separate)
    found = quick_sequence(problem, cache=state.tables, budget=state.budget)
    return None if found is None else found[1]


def _fuse(state: SearchState, lanes: _Lanes, candidates: list[_Candidate]) -> None:
    """Fuse candidates along a few orders, the least bound first, while one may be best."""
    heap = [(candidate.least, i) for i, candidate in enumerate(candidates)]
    for least, i in sorted(heap)[:MOST_FUSED]:
        found = state.incumbent
        if not least < found.best or (found.mapping is not None and state.budget.over()):
            return
        masks = _quick(state, candidates[i].load)
        if masks is not None:
            _price(state, lanes, candidates[i], masks)


def _split(state: SearchState, some: BoundedStrategies, places: list[tuple[float, int]]) -> None:
    """Map the strategies whose stages split the graph, those of the least bounds."""
    for bound, place in sorted(places)[:MOST_SPLIT]:
        if not bound < state.incumbent.best or state.budget.over():
            return
        plan = some.plan(state, place)
        for n_tiles in _ladder(useful_tiles(state, plan)):
            node = SearchNode(plan, n_tiles, None)
            if state.open(node) < state.incumbent.best:
                state.complete(node)


# ---------------------------------------------------------------- improving the best


def _improve(state: SearchState, lanes: _Lanes, tell: Callable[[], None]) -> None:
    """Improve the best lanes by their tiles and choices, then the best of all by its partitions."""
    whole = state.incumbent
    if whole.mapping is None:
        return
    for lane in sorted(lanes.values(), key=lambda lane: lane.best)[:MOST_LANES]:
        if not lane.best < NEAR * whole.best:
            break
        state.incumbent = lane
        for _ in range(MOST_ROUNDS):
            before = lane.best
            _better_choices(state)
            _better_tiles(state)
            if state.budget.over() or not lane.best < before * (1 - PROOF):
                break
        state.incumbent = whole
        whole.join(Incumbent(best=lane.best, mapping=lane.mapping))
        tell()
    node, codes, _ = _best_node(state)
    state.settle(node, codes, whole.best)


def _best_node(state: SearchState) -> tuple[SearchNode, Ints, tuple[int, ...]]:
    """Return the plan and number of tiles, the sharding and the partitions of the best mapping."""
    mapping = state.incumbent.mapping
    assert mapping is not None
    node = SearchNode(state.plan_of(mapping), mapping.n_tiles, None)
    return node, state.codes(mapping), masks_of(mapping)


def _better_choices(state: SearchState) -> None:
    """Take another choice for one kernel after the other, while that is faster."""
    node, codes, masks = _best_node(state)
    if node.plan.graph_stages > 1 or node.plan.tensor == 1 or state.rules.decisions.before_time:
        return
    for i, domain in enumerate(state.domains(node.plan)):
        for code in domain:
            if code == codes[i]:
                continue
            other = codes.copy()
            other[i] = code
            load = state.load(node, other)
            if state.budget.spend(_alone(load) * len(masks)):
                return
            if not state.rooms(load, masks):
                continue
            taken, best = sequence_cost(load, masks) + load.extra, state.incumbent.best
            there = state.summing(node, other)
            if not state.pricing.total(there.plan, taken) < best:  # before all events are run
                continue
            if state.offered(there.plan, taken) < best:
                state.offer(there, other, load, masks, taken)
                codes = other


def _better_tiles(state: SearchState) -> None:
    """Try the numbers of tiles around the best."""
    node, codes, _ = _best_node(state)
    counts = sorted(useful_tiles(state, node.plan))
    if node.plan.graph_stages > 1 or node.n_tiles not in counts:
        return
    at = counts.index(node.n_tiles)
    for place in (at + away for away in NEAR_TILES):
        if not 0 <= place < len(counts) or state.budget.over():
            continue
        other = SearchNode(node.plan, counts[place], None)
        load = state.load(other, codes)
        masks = tuple(1 << i for i in load.order) if state.unfused else _quick(state, load)
        if masks is not None and state.rooms(load, masks):
            _offer(state, other, codes, load, masks)
