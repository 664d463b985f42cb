"""The fastest strategies of a task, one after the other.

Every strategy is bounded first, as arrays: by the least that stays in main memory, and by the
bound of its block (`crosstack.mapping.blocks`), looked at where the operations alone leave it
open. Blocks are solved in the order of the best strategy that each may serve, until none that is
left can be among the fastest. The arrays leave out what runs before the first layer and behind the
last one, so strategies are then priced one by one, as long as the arrays leave them among the
fastest. What is listed first is the mapping of
each strategy with the first partitions and shardings that the search of its block finds, priced by
`crosstack.evaluate.time.evaluate`. A block knows nothing of main memory: where that does not hold
its mapping, a few strategies are searched with the memory that there is, and what is found serves
others of the block, too.

Then the list is *settled*: the strategy with the least bound is searched by itself, in all that is
left to decide, as long as that bound is below the last of the list, or so many searches are left.
So each that is listed has a bound of its own, and one holds for all that are left out.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping as Table
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

import numpy as np

from crosstack.errors import InfeasibleError, InputError, LimitError, require_whole
from crosstack.evaluate.blocks import BLOCK_WORK, BlockTable
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.next_plans import PROVED, RankedStrategies
from crosstack.evaluate.strategy_times import (
    mapping_of,
    memory_used,
    strategy_times,
    with_strategy,
)
from crosstack.evaluate.time import evaluate
from crosstack.mapping.blocks import layers_of_block
from crosstack.mapping.decided import decided
from crosstack.mapping.least_times import times_of_layers
from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status, Task
from crosstack.mapping.parallelism import Use
from crosstack.mapping.search import search_state
from crosstack.mapping.search_node import SearchState
from crosstack.mapping.strategies import Strategies, all_strategies
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.objective import Objective
from crosstack.model.partition import ROUNDING
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.workload.kernel_graph import Floats, Ints

RANKED_WORK = 1e5  # units of work of the search of a block: about a second
# Strategies of a block that are searched with the memory that there is; those that are proved not
# to fit are none of them.
MOST_SEARCHED = 3
SETTLED = 1  # strategies searched by themselves, for each that is listed [1]
OF_BLOCKS = "the fastest of all strategies with the kernels of their blocks"


class Answer(NamedTuple):
    """The answer of a search: what it decides, what that takes, and what is proved of it."""

    mapping: Mapping
    evaluation: Evaluation
    certificate: Certificate


def next_plans(
    task: Task,
    rules: Rules,
    answer: Answer,
    count: int,
    *,
    gap: float = 0.0,
    known: Table[Use, float] | None = None,
) -> tuple[Answer, RankedStrategies]:
    """Return the plans next to an answer; with the fastest of them where the answer is slower.

    The certificate is then of that plan: the bound is as good as it was, the gap smaller.

    Parameters
    ----------
    count : int
        Plans next to it. [1]
    gap : float
        Relative gap at which the search was to stop. [1]
    known : mapping, optional
        As `fastest_strategies`. [s]
    """
    by_time = answer.certificate.metric is Objective.TIME
    try:
        ranked = fastest_strategies(
            *(task, count + 1),
            rules=rules,
            searches=SETTLED * (count + 1),
            known=known,
            answer=answer if by_time else None,
        )
    except InputError:  # the task was mapped: no strategy of stages with whole copies is left
        ranked = RankedStrategies(found=(), total=0, blocks=0)
    if by_time and ranked.found:
        mapping, found = ranked.found[0]
        if found.time < answer.evaluation.time:
            proved = certified(answer.certificate, found.time, gap, OF_BLOCKS)
            answer = Answer(mapping, found, proved)
    return answer, ranked.without(answer.mapping, count)


def certified(before: Certificate, value: float, gap: float, found_by: str) -> Certificate:
    """Return what is proved of a plan that is better than the one that a search ended with."""
    method = f"{before.method}; {found_by}"
    found = replace(before, objective=value, bound=min(before.bound, value), method=method)
    if found.status is Status.LIMIT and found.gap <= max(gap, PROVED):
        status = Status.OPTIMAL if found.gap <= PROVED else Status.FEASIBLE
        return replace(found, status=status, stopped=None)
    return found


def fastest_strategies(
    task: Task,
    count: int,
    *,
    rules: Rules | str | None = None,
    work_limit: float = RANKED_WORK,
    among: Strategies | None = None,
    searches: int = 0,
    known: Table[Use, float] | None = None,
    answer: Answer | None = None,
) -> RankedStrategies:
    """Return the fastest strategies of a task; fewer than ``count`` where fewer fit.

    Parameters
    ----------
    task, count
        What is mapped, with what is given; and how many. [1]
    rules : Rules or str, optional
        What is counted; by name, that of the task, or ``crosstack``.
    work_limit : float
        Units of work of the search of a strategy by itself, and of a block, which has no more than
        finds a mapping: what that lacks is settled. [1]
    among : Strategies, optional
        Of which; all of the task if left out.
    searches : int
        Of strategies by themselves, to settle the list. [1]
    known : mapping, optional
        What no mapping of a use of the network takes less than, as a search has bounded them. [s]
    answer : Answer, optional
        Of a search of the task for the least time: it is listed from the start, and its bound
        holds for all.

    Raises
    ------
    InputError
        If the workload brings its own distribution over the chips.
    """
    require_whole("count", count)
    chosen = chosen_rules(rules, MAPPED, otherwise=task.rules)
    workload, system = task.workload, task.system
    strategies = among or all_strategies(workload, system, chosen, task.constraints)
    table = BlockTable(
        workload=workload,
        system=system,
        rules=chosen,
        constraints=task.constraints,
        work_limit=min(work_limit, BLOCK_WORK),
    )
    state = search_state(workload, system, task.constraints, chosen)
    strategies = state.room.eased(strategies, task.constraints)
    ranking = _listed(strategies, table, state, count)
    table.work_limit = work_limit
    ranking.raise_to(known or {})
    if answer is not None:
        ranking.join(answer)
    for _ in range(searches):
        if not ranking.settle(table, task.constraints):
            break
    return ranking.ranked(len(table.solved))


@dataclass(slots=True)
class _Ranking:
    """The fastest strategies so far, best first, each with its place, and a bound for all. [s]

    ``settled`` are those that were searched by themselves.
    """

    strategies: Strategies
    bounds: Floats
    count: int
    listed: list[tuple[int, Mapping, Evaluation]] = field(default_factory=list)
    settled: set[int] = field(default_factory=set)

    @property
    def worst(self) -> float:
        """Time of the last of the list; infinite while there are fewer than are asked for. [s]"""
        return self.listed[-1][2].time if len(self.listed) == self.count else np.inf

    def add(self, place: int, mapping: Mapping, found: Evaluation) -> None:
        """Add a strategy with a mapping, in place of a slower one of its own."""
        known = [one for one in self.listed if one[0] == place]
        if known and known[0][2].time <= found.time:
            return
        others = [one for one in self.listed if one[0] != place]
        self.listed = sorted([*others, (place, mapping, found)], key=lambda one: one[2].time)
        del self.listed[self.count :]

    def raise_to(self, known: Table[Use, float]) -> None:
        """Raise bounds to those of the uses of the network that strategies have. [s]"""
        least = {_of_use(use): bound for use, bound in known.items()}
        each = np.array([least.get(_of_use(plan), 0.0) for plan in self.strategies.plans])
        np.maximum(self.bounds, each[self.strategies.use], out=self.bounds)

    def join(self, answer: Answer) -> None:
        """Add the answer of a search of all strategies, whose bound holds for each."""
        certificate, mapping = answer.certificate, answer.mapping
        np.maximum(self.bounds, certificate.bound, out=self.bounds)
        place = self.strategies.place_of(mapping)
        if place is not None:
            self.add(place, mapping, answer.evaluation)

    def _proved(self) -> set[int]:
        """Return those of the list that have the time of their best mapping."""
        return {p for p, _, found in self.listed if self.bounds[p] >= found.time * (1 - PROVED)}

    def settle(self, table: BlockTable, constraints: Constraints) -> bool:
        """Search a strategy by itself; return whether there was one that may change the list.

        Those that are listed first, then that of the least bound.
        """
        open_ = self.bounds < self.worst
        open_[list(self.settled | self._proved())] = False
        if not open_.any():
            return False
        places = [one for one, *_ in self.listed if open_[one]]
        place = places[0] if places else int(np.argmin(np.where(open_, self.bounds, np.inf)))
        self.settled.add(place)
        known = next((one for one in self.listed if one[0] == place), None)
        plan = self.strategies.one(place, table.workload)
        own = decided(self.strategies.one(place, table.workload, whole=True))
        given = {name: own[name] for name in ("schedule", "interleave")}
        given["recompute_layers"] = constraints.recompute_layers
        start = None  # of one that computes so many layers again, all numbers are searched
        if known is not None and known[1].recompute_layers == constraints.recompute_layers:
            start = known[1], known[2].time
        try:
            found = table.searched(plan, table.system, start, **given)
        except InfeasibleError:
            self.bounds[place] = np.inf
            return True
        except LimitError:
            return True
        priced = evaluate(table.workload, table.system, found.mapping, table.rules)
        proved = found.certificate.status is Status.OPTIMAL
        bound = priced.time if proved else min(found.certificate.bound, priced.time)
        self.bounds[place] = max(self.bounds[place], bound)
        self.add(place, found.mapping, priced)
        return True

    def ranked(self, blocks: int) -> RankedStrategies:
        """Return the list, and what no strategy takes less than that is not on it."""
        places = [place for place, _, _ in self.listed]
        left = np.delete(self.bounds, places)
        return RankedStrategies(
            found=tuple((mapping, found) for _, mapping, found in self.listed),
            total=len(self.strategies),
            blocks=blocks,
            bounds=tuple(
                min(float(self.bounds[place]), found.time) for place, _, found in self.listed
            ),
            left=float(left.min()) if len(left) else np.inf,
        )


def _of_use(one: Use | MeshPlan) -> tuple[object, ...]:
    """Return what tells a use of the network from others, whatever the microbatches."""
    more = one.dimensions, one.context_exchange, one.expert_tensor
    return one.sizes, one.parallelism, *more


def _listed(strategies: Strategies, table: BlockTable, state: SearchState, count: int) -> _Ranking:
    """Return the fastest strategies by the mappings of their blocks."""
    given = table.workload, table.system, table.rules
    groups = table.groups_of(strategies.plans)[strategies.use]
    columns = np.stack([groups, strategies.microbatch_size, strategies.recompute])
    _, block = np.unique(columns, axis=1, return_inverse=True)
    least, chip = state.room.of_many(strategies), table.system.chip
    strategies = replace(strategies, left=least.left)
    capacity = chip.memory_room(spilled=chip.has_second_memory)
    light = least.held <= capacity * (1 + ROUNDING)
    floors = np.where(light, times_of_layers(strategies, least.layer, *given), np.inf)
    ranking = _Ranking(strategies, floors, count)
    members = [np.flatnonzero(light & (block == number)) for number in range(block.max() + 1)]
    heap = [(floors[own].min(), False, number) for number, own in enumerate(members) if len(own)]
    heapq.heapify(heap)
    while heap and heap[0][0] < ranking.worst:
        _, bounded, number = heapq.heappop(heap)
        own = members[number]
        some = strategies.at(own)
        if not bounded:
            layer = layers_of_block(state, some.one(0, table.workload), some.again)
            floors[own] = times_of_layers(some, layer, *given)
            heapq.heappush(heap, (floors[own].min(), True, number))
            continue
        left = own[floors[own] < ranking.worst]
        ranking.strategies = strategies = _eased(strategies, left, table, state)
        found = strategy_times(strategies.at(left), table)
        lean = _Lean(strategies, table)
        for place in np.argsort(found.time, kind="stable").tolist():
            if not found.time[place] < ranking.worst:
                break
            mapping = mapping_of(strategies, int(left[place]), table)
            priced = None
            if mapping is not None and found.fits[place]:
                priced = _priced(mapping, table)
            priced = priced or lean.priced(int(left[place]))
            if priced is not None:
                ranking.add(int(left[place]), *priced)
    return ranking


def _eased(strategies: Strategies, left: Ints, table: BlockTable, state: SearchState) -> Strategies:
    """Return strategies of which some of one block compute as few layers again as fit with it."""
    some = strategies.at(left)
    if not (state.room.some_layers_again(table.constraints) and (some.again < 1).any()):
        return strategies
    capacity = table.system.chip.memory_room(spilled=False) * (1 + ROUNDING)
    eased = some.fewest_again(partial(memory_used, table=table), np.full(len(some), capacity))
    again = strategies.again.copy()
    again[left] = np.maximum(some.again, eased.again)
    return replace(strategies, again=again)


def _priced(mapping: Mapping, table: BlockTable) -> tuple[Mapping, Evaluation] | None:
    """Return a mapping with what it takes; None where it does not fit."""
    try:
        return mapping, evaluate(table.workload, table.system, mapping, table.rules)
    except InfeasibleError:
        return None


@dataclass(slots=True)
class _Lean:
    """Mappings of one block that main memory holds under some of its strategies."""

    strategies: Strategies
    table: BlockTable
    found: list[Mapping] = field(default_factory=list)
    searched: int = 0

    def priced(self, number: int) -> tuple[Mapping, Evaluation] | None:
        """Return a strategy's mapping with what it takes; None where none is found that fits."""
        for kernels in self.found:
            mapping = with_strategy(kernels, self.strategies, number, self.table)
            priced = _priced(mapping, self.table)
            if priced is not None:
                return priced
        if self.searched == MOST_SEARCHED:
            return None
        strategies, table = self.strategies, self.table
        plan = strategies.one(number, table.workload)
        own = decided(strategies.one(number, table.workload, whole=True))
        given = {name: own[name] for name in ("schedule", "interleave", "recompute_layers")}
        try:
            found = table.searched(plan, table.system, **given)
        except InfeasibleError:  # which says nothing of the strategies behind it
            return None
        except LimitError:
            self.searched += 1
            return None
        self.searched += 1
        self.found.append(found.mapping)
        return _priced(found.mapping, table)
