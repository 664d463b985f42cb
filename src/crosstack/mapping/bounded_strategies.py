"""Strategies of a search, bounded as arrays; their plans are made once a bound leaves them open.

Uses of the network are taken some at a time, as there may be millions. All strategies of some uses
are bounded in a few calls: by what stays in main memory, by compute alone, and, where that leaves
one open, by what its block takes (`crosstack.mapping.blocks`). Those of one use and one microbatch
size wait as one item, with the least of their bounds.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from crosstack.mapping.blocks import (
    bend_of,
    chips_of_block,
    know_blocks,
    know_network_floors,
    layers_of_block,
    network_floor,
)
from crosstack.mapping.budget import CALL
from crosstack.mapping.network_uses import shares_ring
from crosstack.mapping.parallelism import Use
from crosstack.mapping.pricing import Bend
from crosstack.mapping.room import Least
from crosstack.mapping.search_node import SearchState
from crosstack.mapping.search_problem import SearchNode, but_for_room
from crosstack.mapping.strategies import (
    ORDERS,
    RECOMPUTED,
    Strategies,
    strategies_of,
    with_shares,
)
from crosstack.mapping.strategy_bounds import StrategyBounds
from crosstack.model.attention import iteration_work
from crosstack.model.energy import static_power
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.objective import LayerPrices
from crosstack.model.partition import ROUNDING as FITTING
from crosstack.workload.kernel_graph import Bools, Floats, Ints

PAIRS = np.array([order.pairs for order in ORDERS])  # whose passes run together
PLANS_AT_ONCE = 8192  # uses of the network, with what chips share, that are bounded together
STRATEGIES_A_UNIT = 20  # bounded in a unit of work
BLOCK = 600  # units of work of a block of chips that share sequences, of which there are many
ROUNDING = 1e-12  # relative, of a floor
REST, OF_USE, PLAN, ROOT = 3, 2, 1, 0  # depth; parts of a root are below 0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BoundedStrategies:
    """Strategies of some uses of the network, with what is known before their plans are made.

    ``uses`` are those of the network, ``of`` the place there of each plan of the strategies.
    ``floors`` is the least of the objective by compute and links alone, ``least`` no less than that
    where more is known; ``held`` what main memory holds at
    least, of ``capacity`` [B]; ``blocks`` numbers the block of each; ``prices`` are arrays where
    time is not all that counts. ``known`` are bounds with the block of some, by the first of them;
    ``bends``, shape (n, 3), lines below the objective as of `Bend`, 0 where ``sharp`` does not say
    that they are known.
    """

    uses: tuple[Use, ...]
    strategies: Strategies
    of: Ints
    floors: Floats
    least: Floats
    held: Floats
    capacity: Floats
    blocks: Ints
    prices: LayerPrices
    bends: Floats
    sharp: Bools
    known: dict[int, Floats] = field(default_factory=dict)

    @property
    def light(self) -> Bools:
        """Which of them main memory may hold."""
        return np.asarray(self.held <= self.capacity * (1 + FITTING))

    def plan(self, state: SearchState, number: int) -> MeshPlan:
        """Return the plan of one of them."""
        return self.strategies.one(number, state.workload, whole=True)

    def bounds(self, state: SearchState) -> Floats:
        """Bound the objective of each that is light, with its block where it is open; else inf."""
        bounds = np.where(self.light, self.least, math.inf)
        open_ = [own for own in self.by_block() if bounds[own].min() < state.target()]
        self.know_blocks(state, open_)
        for own in open_:
            bounds[own] = self.with_block(state, own)
        return bounds

    def note(self, state: SearchState, bounds: Floats) -> int | None:
        """Keep what is known of each strategy, for searches of machines like this one.

        Returns where, if it is asked for.
        """
        if state.noted is None:
            return None
        noted = StrategyBounds(
            uses=self.uses,
            of=self.of,
            strategies=self.strategies,
            bounds=bounds,
            floors=self.floors,
            # What is known of other machines may be known of their room alone.
            roomy=bounds if state.among is None else np.zeros_like(bounds),
            held=self.held,
            system=state.system,
        )
        state.noted.found.append(noted)
        return len(state.noted.found) - 1

    def with_block(self, state: SearchState, own: Ints) -> Floats:
        """Bound the objective of some that have a block in common, with what it takes."""
        self.know_blocks(state, [own])
        return np.asarray(np.maximum(self.known[int(own[0])], self.bends[own, 1]))

    def know_blocks(self, state: SearchState, blocks: Sequence[Ints]) -> None:
        """Bound the objective of those of some blocks that are not bounded yet, all at once.

        Of strategies that what is known of them leaves open; others keep their bounds.
        """
        new = [own for own in blocks if int(own[0]) not in self.known]
        left = [own[self.least[own] < state.target()] for own in new]
        left = [own for own in left if len(own)]
        plans = [self.plan(state, int(own[0])) for own in left]
        asked = list[tuple[MeshPlan, Floats, bool]]()
        for own, plan in zip(left, plans, strict=True):
            kinds = np.unique(PAIRS[self.strategies.schedule[own]]).tolist()
            asked += [(plan, self.strategies.again[own], together) for together in kinds]
        know_blocks(state, asked)
        pairs = [self._layers(state, *each) for each in zip(left, plans, strict=True)]
        bounds = self.least.copy()
        if pairs:
            layers, together = (np.concatenate(columns) for columns in zip(*pairs, strict=True))
            places = np.concatenate(left)
            found = self.totals(state, places, layers, together)
            bounds[places] = np.maximum(bounds[places], found)
        self.known.update((int(own[0]), bounds[own]) for own in new)

    def _layers(self, state: SearchState, own: Ints, plan: MeshPlan) -> tuple[Floats, Floats]:
        """Bound what a layer takes of some that have a block, and where passes run together. [s]

        ``plan`` is that of the first.
        """
        pairs = PAIRS[self.strategies.schedule[own]]
        layer = beside = np.zeros(len(own))
        if not pairs.all():
            layer = layers_of_block(state, plan, self.strategies.again[own])
        if pairs.any():
            beside = layers_of_block(state, plan, self.strategies.again[own], together=True)
        if plan.context > 1:
            state.budget.spend(BLOCK + len(own) // STRATEGIES_A_UNIT)
        return layer, beside

    def sharpen(self, state: SearchState, number: int) -> float:
        """Bound the objective of one exactly for the least that its block and its ends take. [s]"""
        if not self.sharp[number]:
            self.sharp[number] = True
            bend = bend_of(state, self.plan(state, number))
            if bend is not None:
                self.bends[number] = bend.layer, bend.least, bend.slope
        return float(self.bends[number, 1])

    def bend(self, number: int) -> Bend | None:
        """Return the line below the objective of one that `sharpen` found, if it did."""
        layer, least, slope = self.bends[number].tolist()
        return Bend(layer, least, slope) if least else None

    def tell_lack(self, state: SearchState) -> None:
        """Tell what is closest to fitting of what does not."""
        heavy = np.flatnonzero(~self.light)
        if heavy.size:
            over = self.held[heavy] / self.capacity[heavy]
            state.too_heavy(self.plan(state, int(heavy[np.argmin(over)])))

    def by_block(self) -> list[Ints]:
        """Return the places of those that are light, block by block."""
        left = np.flatnonzero(self.light)
        if not left.size:
            return []
        order = left[np.argsort(self.blocks[left], kind="stable")]
        borders = np.flatnonzero(np.diff(self.blocks[order])) + 1
        return np.split(order, borders)

    def totals(self, state: SearchState, places: Ints, layers: Floats, together: Floats) -> Floats:
        """Return the objective of some for layers that cost so much, or passes ``together``. [s]

        At least; exact where stages are alike, nearly so where a line below it is known.
        """
        prices, some = prices_at(self.prices, places), self.strategies.at(places)
        totals = state.pricing.totals(some, layers, prices, together=together)
        beyond = np.where(PAIRS[some.schedule], together, layers)
        at, least, slope = self.bends[places].T
        return np.asarray(np.maximum(totals, least + slope * np.maximum(beyond - at, 0.0)))


@dataclass(frozen=True, slots=True)
class OfUse:
    """Strategies of one use and one microbatch size, with their bounds; plans are not made yet.

    ``noted`` is where they are noted, None: nowhere.
    """

    some: BoundedStrategies
    places: Ints
    bounds: Floats
    noted: int | None = None


class _NoMore:
    """Stands for a use of the network where none is left."""


_NO_MORE = _NoMore()


@dataclass(slots=True)
class RestOfUses:
    """Uses of the network that are not looked at yet; ``first`` are those that already are."""

    uses: Iterator[Use | None]
    first: BoundedStrategies | None = None


Item = SearchNode | OfUse | RestOfUses


def bounded(state: SearchState, uses: Iterator[Use | None]) -> BoundedStrategies | None:
    """Return the strategies of the next uses of the network; None where there are none left."""
    chosen, of = list[Use](), list[int]()
    plans, sizes = list[MeshPlan](), list[tuple[int, ...]]()
    for use in uses:
        if use is not None:
            state.budget.spend(CALL)
            for plan in state.bare_plans(use, use.microbatches[0]):
                for shared in with_shares(plan, state.rules, state.constraints):
                    plans.append(shared)
                    sizes.append(use.microbatches)
                    of.append(len(chosen))
            chosen.append(use)
        if len(plans) >= PLANS_AT_ONCE or (plans and state.budget.over()):
            break
    if not plans:
        return None
    found = strategies_of(plans, sizes, state.workload, state.rules, state.constraints)
    if not len(found):
        return bounded(state, uses)
    return _bounded(state, tuple(chosen), np.array(of, dtype=np.int64), found)


def bounded_again(state: SearchState, known: StrategyBounds) -> RestOfUses:
    """Return strategies that were bounded on another machine, with their plans on this one.

    Uses whose chips may share something of use on this machine alone are looked at anew besides.
    """
    open_, use = np.unique(known.strategies.use, return_inverse=True)
    others, of = [known.strategies.plans[i] for i in open_.tolist()], known.of[open_]
    if known.system is not None and but_for_room(known.system) == but_for_room(state.system):
        found = replace(known.strategies, plans=tuple(others), use=use.ravel())
        _note_rest(state, math.inf)
        return RestOfUses(iter(()), _bounded(state, known.uses, of, found, known))
    plans, anew = list[MeshPlan](), list[Use]()
    for place in np.unique(of).tolist():
        its = known.uses[place]
        state.budget.spend(CALL)
        bare = {plan.spilled: plan for plan in state.bare_plans(its, its.microbatches[0])}
        here = np.flatnonzero(of == place).tolist()
        plans += [replace(bare[others[i].spilled], zero=others[i].zero) for i in here]
        every = (with_shares(plan, state.rules, state.constraints) for plan in bare.values())
        shared = {known.strategies.plans[i].zero for i in np.flatnonzero(known.of == place)}
        if not {plan.zero for some in every for plan in some} <= shared:
            anew.append(its)
    order = np.argsort(of, kind="stable")  # that in which plans were made
    place_of = np.empty_like(order)
    place_of[order] = np.arange(len(order))
    found = replace(known.strategies, plans=tuple(plans), use=place_of[use.ravel()])
    _note_rest(state, 0.0 if anew else math.inf)
    return RestOfUses(iter(anew), _bounded(state, known.uses, of[order], found, known))


def _bounded(
    state: SearchState,
    uses: tuple[Use, ...],
    of: Ints,
    strategies: Strategies,
    known: StrategyBounds | None = None,
) -> BoundedStrategies:
    """Bound strategies of uses of the network; ``known`` are bounds on the same of other machines.

    Parameters
    ----------
    of : array
        The place of the use of each of their plans.
    """
    found = state.room.eased(strategies, state.constraints)
    state.incumbent.plans_made += len(found)
    state.budget.spend(CALL + len(found) // STRATEGIES_A_UNIT)
    least = state.room.of_many(found)
    found = replace(found, left=least.left)
    prices = state.pricing.of_many(found)
    capacity = np.array([state.room.capacity(plan) for plan in found.plans])[found.use]
    floors = _floors(state, found, least, prices, least.held <= capacity * (1 + FITTING))
    return BoundedStrategies(
        uses=uses,
        of=of,
        strategies=found,
        floors=floors,
        least=floors if known is None else np.maximum(floors, known.bounds),
        held=least.held,
        capacity=capacity,
        blocks=_blocks(state, found),
        prices=prices,
        bends=np.zeros((len(found), 3)),
        sharp=np.zeros(len(found), dtype=np.bool_),
    )


def _floors(
    state: SearchState, strategies: Strategies, least: Least, prices: LayerPrices, light: Bools
) -> Floats:
    """Return the least of the objective, infinite of what does not fit.

    By compute alone, and by what the network takes at least of the largest microbatches.
    """
    floors = np.full(len(strategies), math.inf)
    here = np.flatnonzero(light)
    layer, own = (least.layer + least.work * prices.work)[here], prices_at(prices, here)
    some = strategies.at(here)
    sent = _network_floors(state, some)
    floors[here] = state.pricing.totals(some, layer, own, sent=sent)
    return floors


def _network_floors(state: SearchState, strategies: Strategies) -> Floats:
    """Return what the network takes of a layer of each at least, for one sequence. [s]

    Nothing where kernels run side by side: there it hides.
    """
    if not state.temporal:
        return np.zeros(len(strategies))
    known: dict[object, int] = {}
    lines = [known.setdefault(chips_of_block(plan), len(known)) for plan in strategies.plans]
    codes = np.array(lines, np.int64)[strategies.use] * len(RECOMPUTED) + strategies.recompute
    _, first, back = np.unique(codes, return_index=True, return_inverse=True)
    plans = [strategies.one(int(i), state.workload) for i in first]
    know_network_floors(state, plans)
    floors = [network_floor(state, plan) for plan in plans]
    return np.array(floors)[back] if len(strategies) else np.zeros(0)


def prices_at(prices: LayerPrices, places: Ints) -> LayerPrices:
    """Return the prices of some strategies, of arrays of all of them where time is not all."""
    columns = {field.name: getattr(prices, field.name) for field in fields(prices)}
    arrays: dict[str, Any] = {
        name: x[places] for name, x in columns.items() if isinstance(x, np.ndarray)
    }
    return replace(prices, **arrays)


def _blocks(state: SearchState, strategies: Strategies) -> Ints:
    """Return the number of the block of each strategy; see `block_of`.

    Those of plans that share a ring are apart, as mappings are first sought without them.
    """
    known: dict[object, int] = {}
    network = state.system.network
    keys = ((chips_of_block(p), shares_ring(network, p.dimensions)) for p in strategies.plans)
    lines = [known.setdefault(key, len(known)) for key in keys]
    sizes = strategies.microbatch_size if state.temporal else np.zeros(len(strategies), np.int64)
    codes = np.array(lines, np.int64)[strategies.use] * len(RECOMPUTED) + strategies.recompute
    numbers = codes * (int(sizes.max()) + 1) + sizes
    return np.asarray(np.unique(numbers, return_inverse=True)[1].ravel())


# ---------------------------------------------------------------- items of a search


def all_plans(state: SearchState) -> RestOfUses:
    """Return all plans, the strategies of the first uses of the network bounded."""
    if state.among is not None:
        return bounded_again(state, state.among)
    uses = state.uses()
    return RestOfUses(uses, bounded(state, uses))


def least_floor(state: SearchState) -> float:
    """Time of an iteration that shares all work evenly among all chips. [s]"""
    chip, workload = state.system.chip, state.workload
    n_chips = state.system.copies * state.system.n_chips
    done = iteration_work(workload, chip, state.rules.traffic)
    time = state.rules.clock.least_time(chip, done) / n_chips
    weights = state.pricing.weights
    if not weights.only_time:
        # What a plan adds is not known yet: static power alone.
        time *= weights.time + weights.energy * n_chips * (static_power(chip)[0] or 0.0)
    # Rounded down: a plan's own floor is not to be above what holds for all.
    return time * (1 - ROUNDING)


def _note_rest(state: SearchState, bound: float) -> None:
    """Keep a bound on all strategies that are not looked at yet. [s]"""
    if state.noted is not None:
        state.noted.rest = bound


def _above(bound: float, floor: float) -> float:
    """Return the larger; ``bound`` where they are the same but for rounding, to keep ties. [s]"""
    return floor if floor > bound * (1 + 2 * ROUNDING) else bound


def unrolled(
    state: SearchState, rest: OfUse | RestOfUses, bound: float
) -> Iterator[tuple[float, int, Item]]:
    """Yield plans that were not made yet, or items of fewer of them."""
    if isinstance(rest, OfUse):
        its = rest.some
        for place, floor in zip(rest.places.tolist(), rest.bounds.tolist(), strict=True):
            of = None if rest.noted is None else (rest.noted, place)
            node = SearchNode(its.plan(state, place), 1, None, bend=its.bend(place), of=of)
            yield _above(bound, floor), PLAN, node
        return
    some, rest.first = rest.first or bounded(state, rest.uses), None
    if some is None:
        _note_rest(state, math.inf)
        return
    bounds = some.bounds(state)
    noted = some.note(state, bounds)
    sizes = some.strategies.microbatch_size
    open_ = np.flatnonzero(np.isfinite(bounds))
    use = some.of[some.strategies.use]
    order = open_[np.lexsort((sizes[open_], use[open_]))]
    borders = np.flatnonzero(np.diff(use[order]) | np.diff(sizes[order])) + 1
    for own in np.split(order, borders) if order.size else []:
        yield _above(bound, float(bounds[own].min())), OF_USE, OfUse(some, own, bounds[own], noted)
    some.tell_lack(state)
    following = next(rest.uses, _NO_MORE)
    if not isinstance(following, _NoMore):
        rest.uses = itertools.chain([following], rest.uses)
        _note_rest(state, bound)
    elif state.rules.iteration.has_schedules:
        _note_rest(state, math.inf)
        return  # searches by rules of a release end where they always did
    yield bound, REST, rest
