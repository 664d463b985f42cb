"""One task on many machines: a few plans are searched, priced on all, and bounded on all.

Sets: machines i that differ in numbers; cells, each of some machines; plans that are retained.
Parameters: of every machine its clock, rates of memory and links, latencies, room in main memory.

(1) Numbers are costs: one over a clock or a rate, a latency as it is. Where each cost of a machine
    is at least s times that of another one, each mapping takes at least s times as long
    (`crosstack.evaluate.machines.relative_costs`). So the least time on one machine is, times the
    least of such shares, a bound on all that have no more room.
    A *corner* of a cell is a machine that bounds those of the cell well: it has, for each unit of
    the cost that time depends on most, the least of each other cost that any of them has.
(2) A plan that is retained is priced on the machines of a cell as arrays
    (`crosstack.evaluate.machines`), exactly as on each alone.
(3) The cell with the largest gap between both is halved along the number that its plan's time
    depends on most, and the corner of each half is searched, from the plans that are best in it and
    with what is known of corners that have more (`crosstack.evaluate.again`); what is found there
    is retained.
(4) Where nothing fits on a corner, nothing does on any machine of its cell.

It ends where no gap is above that which is asked for, or a cell is one machine, searched by itself:
so each machine has a status as true as that of its own search.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InfeasibleError
from crosstack.evaluate.again import Likeness, Limits, Searched, search_again
from crosstack.evaluate.machines import (
    OTHERS,
    ROOM,
    Machines,
    can_be_arrays,
    machine_costs,
    machine_of,
    machine_times,
    relative_costs,
)
from crosstack.evaluate.next_plans import PROVED
from crosstack.evaluate.plan import given_plan
from crosstack.explore.terms import UNITS, common_terms
from crosstack.machine.system import Parallelism
from crosstack.mapping.ideals import TableCache
from crosstack.mapping.mapping import Mapping as Plan
from crosstack.mapping.mapping import Status, Task
from crosstack.mapping.search_problem import MACHINES
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import Bools, Floats, Ints

__all__ = ["ManyAnswers", "answer_many"]

AT_ONCE = 4096  # machines that a plan is priced on together
SEARCHED_TO = 0.25  # share of the gap asked for to which corners are searched
DECIDED = ("tensor", "pipeline", "data", "microbatch_size", "n_tiles", "n_partitions")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ManyAnswers:
    """Answers of machines, arrays of one length; NaN where there is none.

    ``terms`` are those of `crosstack.evaluate.machines.machine_times`, and decisions by name;
    ``bound`` [s] and ``gap`` [1] as of a certificate. ``searches`` were run, ``plans`` retained.
    """

    status: NDArray[np.str_]
    reason: NDArray[np.object_]
    terms: dict[str, Floats]
    searches: int
    plans: int


@dataclass(frozen=True, slots=True, eq=False)
class _Cell:
    """Some machines, and what was found on a corner of them; ``alone``: that is their machine."""

    places: Ints
    searched: Searched
    alone: bool


@dataclass(slots=True, kw_only=True, eq=False)
class _Retained:
    """The machines of one task, the plans so far, and the best and the bound of each machine."""

    task: Task
    rules: Rules
    limits: Limits
    arrays: Mapping[str, Floats]
    costs: Floats  # of every machine, shape (machines, paths); see `machine_costs`
    paths: tuple[str, ...]
    main: int = -1  # the cost that time depends on most; -1: not known yet
    times: Floats
    bounds: Floats
    which: Ints  # the plan that is best, -1: none is known
    terms: dict[str, Floats] = field(default_factory=dict)
    plans: list[Plan] = field(default_factory=list)
    priced: list[Bools] = field(default_factory=list)  # by plan, on which machines it is
    corners: dict[tuple[float, ...], Searched] = field(default_factory=dict)
    reasons: dict[int, str] = field(default_factory=dict)
    tables: TableCache = field(default_factory=lambda: {MACHINES: {}})

    def gaps(self, places: Ints) -> Floats:
        """Return the relative gap of some machines, 1 where no plan is known or needed. [1]"""
        times, bounds = self.times[places], self.bounds[places]
        with np.errstate(invalid="ignore"):
            gaps = np.where(np.isfinite(times), 1 - bounds / times, 1.0)
        return np.where(np.isinf(bounds), 0.0, np.maximum(gaps, 0.0))

    def offer(self, plan: Plan, places: Ints) -> None:
        """Price a plan on some machines, where it is not yet, and keep it where it is fastest."""
        if plan not in self.plans:
            self.plans.append(plan)
            self.priced.append(np.zeros(len(self.times), dtype=np.bool_))
        number = self.plans.index(plan)
        new = places[~self.priced[number][places]]
        self.priced[number][new] = True
        for start in range(0, len(new), AT_ONCE):
            here = new[start : start + AT_ONCE]
            found = _priced(
                self.task, plan, self.rules, {p: a[here] for p, a in self.arrays.items()}
            )
            time = found["time"]
            better = np.flatnonzero(time < self.times[here])  # not where it does not fit: NaN
            rows = here[better]
            self.times[rows], self.which[rows] = time[better], number
            for name, values in found.items():
                column = self.terms.setdefault(name, np.full(len(self.times), np.nan))
                column[rows] = values[better]

    def search(self, corner: tuple[float, ...], starts: Sequence[int]) -> Searched:
        """Search a machine of some costs, with what is known of others; it bounds all machines."""
        if corner not in self.corners:
            here = np.array(corner)
            like = [
                Likeness(
                    searched=one, share=float(relative_costs(np.array(other), here, self.paths))
                )
                for other, one in self.corners.items()
            ]
            found = search_again(
                replace(self.task, system=machine_of(self.task.system, self.paths, corner)),
                self.rules,
                self.limits,
                starts=[self.plans[number] for number in starts],
                like=like,
                tables=self.tables,
            )
            self.corners[corner] = found
            shares = relative_costs(here, self.costs, self.paths)
            bounds = np.where(shares > 0, found.bound * np.where(shares > 0, shares, 1.0), 0.0)
            self.bounds = np.maximum(self.bounds, bounds)
            if math.isinf(found.bound):
                none = np.flatnonzero(np.isinf(bounds))
                self.reasons.update(dict.fromkeys(none.tolist(), found.reason))
        return self.corners[corner]

    def corner(self, places: Ints) -> tuple[float, ...]:
        """Return the costs of a machine that bounds some machines."""
        costs = self.costs[places]
        if self.main < 0:
            return tuple(costs.min(axis=0).tolist())
        least, own = costs[:, self.main].min(), costs[:, self.main, None]
        shared = (costs / own).min(axis=0) * least
        room = np.array([path == ROOM for path in self.paths])
        return tuple(np.where(room, costs.min(axis=0), shared).tolist())

    def cell(self, places: Ints) -> _Cell:
        """Search the corner of some machines, and price what is found on them."""
        alone = bool((self.costs[places] == self.costs[places[0]]).all())
        corner = tuple(self.costs[places[0]].tolist()) if alone else self.corner(places)
        starts = sorted({number for number in self.which[places].tolist() if number >= 0})
        found = self.search(corner, starts)
        if found.plan is not None:
            self.offer(found.plan.mapping, places)
        if alone and found.plan is None:
            self.reasons.update(dict.fromkeys(places.tolist(), found.reason))
        return _Cell(places, found, alone)

    def halves(self, cell: _Cell) -> Iterator[Ints]:
        """Yield the machines of both halves of a cell, the better one first."""
        costs = self.costs[cell.places]
        number = self.steepest(cell, costs)
        values = np.unique(costs[:, number])
        border = values[(len(values) - 1) // 2]
        better = costs[:, number] <= border
        yield cell.places[better]
        yield cell.places[~better]

    def steepest(self, cell: _Cell, costs: Floats) -> int:
        """Return the cost that the time of a cell depends on most."""
        best, worst = costs.min(axis=0), costs.max(axis=0)
        numbers = np.flatnonzero(worst > best)
        plan, room = cell.searched.plan, np.array([path == ROOM for path in self.paths])
        if plan is not None and len(numbers) > 1:
            times = self.worse_times(plan.mapping, best, worst, numbers)
            if self.main < 0:
                self.main = int(numbers[np.argmax(np.where(room[numbers], 0.0, times))])
        else:
            times = np.ones(len(numbers))
        if not room[numbers].any():
            return int(numbers[np.argmax(times)])
        if (self.which[cell.places] < 0).any():
            return int(np.flatnonzero(room)[0])
        # What more room saves is what plans with less take more.
        here, gaps = self.costs[cell.places][:, room].ravel(), self.gaps(cell.places)
        more = gaps[here == here.max()].max() - gaps[here == here.min()].max()
        times[room[numbers]] = times.min() / max(1 - max(float(more), 0.0), 1e-3)
        return int(numbers[np.argmax(times)])

    def worse_times(self, plan: Plan, best: Floats, worst: Floats, numbers: Ints) -> Floats:
        """Time of a plan on the best of some machines, each of some costs at its worst. [s]

        Where the main one is at its worst, all others are as much better in units of it.
        """
        rows = np.tile(best, (len(numbers), 1))
        rows[np.arange(len(numbers)), numbers] = worst[numbers]
        if self.main >= 0 and self.main in numbers:
            grown = np.full(len(best), worst[self.main] / best[self.main])
            grown[self.main] = 1.0
            rows[numbers == self.main] = best * grown
        room = [path == ROOM for path in self.paths]
        rows[:, room] = best[room]
        arrays = {
            path: rows[:, i] if path.endswith("latency") else 1 / rows[:, i]
            for i, path in enumerate(self.paths)
            if path != OTHERS
        }
        return np.nan_to_num(_priced(self.task, plan, self.rules, arrays)["time"], nan=0.0)


def answer_many(
    task: Task, rules: Rules, arrays: Mapping[str, Floats], *, gap: float, limits: Limits
) -> ManyAnswers:
    """Return the fastest plans of a task on many machines, each within a gap or as near as it got.

    Parameters
    ----------
    task, rules
        What is mapped, on the machine that the others differ from; what is counted.
    arrays : mapping of array, shape (machines,)
        Numbers of the machines, by their path in a native file; see `Machines.of`.
    gap : float
        Relative gap at which a machine is done. [1]
    limits : Limits
        Of each search; its gap is that of a machine that is searched by itself. [1]

    Raises
    ------
    InputError
        For numbers out of range, and as `crosstack.optimise`.
    """
    Machines.of(task.system, arrays)
    paths, costs = machine_costs(arrays)
    count = len(costs)
    state = _Retained(
        task=task,
        rules=rules,
        limits=replace(limits, gap=SEARCHED_TO * gap),
        arrays=arrays,
        costs=costs,
        paths=paths,
        times=np.full(count, np.inf),
        bounds=np.zeros(count),
        which=np.full(count, -1, dtype=np.int64),
    )
    _close(state, gap)
    return _answers(state, gap)


def _close(state: _Retained, gap: float) -> None:
    """Halve cells until no gap is above ``gap``, or each is of one machine."""
    order = itertools.count()
    heap: list[tuple[float, int, _Cell]] = []

    def add(places: Ints) -> None:
        left = places[state.gaps(places) > gap + PROVED]
        if len(left):
            cell = state.cell(left)
            heapq.heappush(heap, (-float(state.gaps(left).max()), next(order), cell))

    add(np.arange(len(state.times)))
    while heap:
        _, _, cell = heapq.heappop(heap)
        if cell.alone or not (state.gaps(cell.places) > gap + PROVED).any():
            continue
        for places in state.halves(cell):
            add(places)


def _priced(
    task: Task, plan: Plan, rules: Rules, arrays: Mapping[str, Floats]
) -> dict[str, Floats]:
    """Return the terms of one plan on machines, NaN where it does not fit them."""
    if can_be_arrays(task, plan):
        return machine_times(task, plan, rules, Machines.of(task.system, arrays)).terms
    paths, costs = machine_costs(arrays)
    found = {name: np.full(len(costs), np.nan) for name in UNITS}
    for row, numbers in enumerate(costs.tolist()):
        others = {path: float(x[row]) for path, x in arrays.items() if path not in paths}
        system = Machines.one(machine_of(task.system, paths, numbers), others)
        try:
            terms = common_terms(given_plan(replace(task, system=system), plan, rules))
        except InfeasibleError:
            continue
        for name, value in terms.items():
            found[name][row] = np.nan if value is None else value
    return found


def _answers(state: _Retained, gap: float) -> ManyAnswers:
    """Return what became of every machine."""
    every = np.arange(len(state.times))
    gaps, found = state.gaps(every), state.which >= 0
    none = np.where(np.isinf(state.bounds), Status.INFEASIBLE.value, Status.LIMIT.value)
    sure = np.where(gaps <= gap + PROVED, Status.FEASIBLE.value, Status.LIMIT.value)
    sure = np.where(gaps <= PROVED, Status.OPTIMAL.value, sure)
    reason = np.full(len(every), None, dtype=object)
    for place, words in state.reasons.items():
        reason[place] = None if found[place] else words
    bounds = np.where(gaps <= PROVED, state.times, np.minimum(state.bounds, state.times))
    terms = {**state.terms, "bound": bounds, "gap": gaps} | _decided(state)
    return ManyAnswers(
        status=np.where(found, sure, none),
        reason=reason,
        terms={name: np.where(found, values, np.nan) for name, values in terms.items()},
        searches=sum(one.ran for one in state.corners.values()),
        plans=len(state.plans),
    )


def _decided(state: _Retained) -> dict[str, Floats]:
    """Return what the plans of machines decide, by name. [1]"""
    uses = {use.value: use for use in Parallelism}
    rows = []
    for plan in state.plans:
        row = [
            plan.degree(uses[name]) if name in uses else getattr(plan, name)
            for name in DECIDED[:-1]
        ]
        rows.append([*row, len(set(plan.partitions))])
    table = np.array(rows, dtype=float).reshape(-1, len(DECIDED))
    known = np.maximum(state.which, 0)
    picked = table[known] if len(table) else np.full((len(known), len(DECIDED)), np.nan)
    return dict(zip(DECIDED, picked.T, strict=True))
