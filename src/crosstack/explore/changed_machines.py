"""A task mapped anew on machines that have another value of one resource each.

Sets: changes (a resource with another value); corners (machines with more of several resources).
Every change has a best known time, of the mapping of the machine as it is or of one that is near
it, and a bound, of searches of other machines: with a share of what any mapping takes there. It is
searched where both are further apart than the gap that is asked for.

A *corner* has more of all resources of a group: what no mapping takes less than there, none takes
less than on a machine with more of one of them. A group is those whose mapping gains so little that
the corner's bound may close them all; what the search of a corner finds is tried on each, and those
that it makes faster leave the group, which is then searched again.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.again import Likeness, Limits, Searched, search_again
from crosstack.evaluate.plan import Plan, given_plan
from crosstack.explore.resources import ROOM, Resource, resources_of
from crosstack.machine.prices import system_price
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.decided import decided
from crosstack.mapping.ideals import TableCache
from crosstack.mapping.mapping import Mapping, Status
from crosstack.mapping.search_problem import MACHINES
from crosstack.model.rules import Rules

__all__ = ["Asked", "ChangedMachines", "Side"]

NO_ROOM = "the mapping does not fit there"
CORNER_WORK = 3  # times the work of the search of one machine [1]
NEAR = 0.01  # relative, of bounds of strategies whose use of the network is tried elsewhere
MOST_NEAR = 3  # uses of the network that are tried, besides the mapping's own [1]
SLACK = 0.25  # share of the gap that a corner's bound needs, to be searched
CORNER_GAP = 1 / 3  # of a corner's search, of what would close its group

Asked = tuple[Resource, float]  # a resource with another value
Machines = tuple[Asked, ...]  # that one process answers


@dataclass(frozen=True, slots=True)
class Side:
    """The answer with less or more of a resource; None: none fits, or none before a limit.

    ``bound`` is what no mapping takes less than there [s]; ``of_mapping`` whether the answer is the
    mapping of the machine as it is, because none is proved; ``reason`` why there is none.
    """

    answer: Plan | None
    bound: float = 0.0
    of_mapping: bool = False
    reason: str = ""


@dataclass(slots=True, kw_only=True, eq=False)
class ChangedMachines:
    """What is known of a task on the machine as it is, and on corners of changed ones."""

    base: Searched
    rules: Rules
    limits: Limits
    tables: TableCache = field(default_factory=lambda: {MACHINES: {}})
    near: tuple[Plan, ...] = field(init=False, default=())
    corners: list[Searched] = field(default_factory=list)
    priced: dict[object, Plan | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Look at what is nearly as fast on the machine as it is."""
        if self.has_bounds:
            self.near = _near_plans(self.base, self.rules)

    @property
    def plan(self) -> Plan:
        """The answer on the machine as it is."""
        assert self.base.plan is not None  # or nothing would be asked
        return self.base.plan

    @property
    def proved(self) -> bool:
        """Whether no mapping is better on the machine as it is."""
        return self.plan.certificate.status is Status.OPTIMAL

    @property
    def has_bounds(self) -> bool:
        """Whether what is known of a machine bounds others."""
        return self.proved and self.rules.iteration.has_schedules

    # ------------------------------------------------------------ corners

    def find_corners(self, asked: Sequence[Asked]) -> None:
        """Search machines with more of several resources, as long as that settles any."""
        if not self.has_bounds:
            return
        gap, left = self.limits.gap, dict[Asked, float]()
        for one in filter(self._improves, asked):
            time = self._time([one])
            if self.base.bound * self.share(one) < time * (1 - gap) < math.inf:
                left[one] = time
        while len(group := self._group(left)) > 1:
            corner = self._corner(list(group), self._needed(group))
            if corner.plan is None:
                return
            mapping, before = corner.plan.mapping, group
            left = {
                one: min(time, self._time([one], mapping))
                for one, time in group.items()
                if corner.bound < time * (1 - gap)
            }
            if left == before:
                return

    def _improves(self, one: Asked) -> bool:
        """Whether a machine has more of something, whose optimum others bound."""
        resource, value = one
        # With more room in main memory others fit.
        better = value != resource.value and (value < resource.value) is resource.cost
        return better and resource.name != ROOM and not resource.priced

    def starts(self, changed: Sequence[Asked]) -> tuple[Mapping, ...]:
        """Return what may be faster than the mapping of the machine as it is on another one.

        Nothing is faster on a worse machine than where it is now.
        """
        if not any(one[0].of_links for one in changed):
            return ()
        if any((value < one.value) is one.cost for one, value in changed):
            return tuple(plan.mapping for plan in self.near)
        kept = self._kept(changed, self.plan.mapping)
        time = math.inf if kept is None else kept.evaluation.time
        return tuple(plan.mapping for plan in self.near if plan.evaluation.time < time)

    def _time(self, changed: Sequence[Asked], mapping: Mapping | None = None) -> float:
        """Time of a mapping, or the best that is known, on a machine; infinite: none fits. [s]"""
        known = self.plan.mapping, *self.starts(changed)
        plans = [self._kept(changed, one) for one in (known if mapping is None else (mapping,))]
        return min((plan.evaluation.time for plan in plans if plan is not None), default=math.inf)

    def _kept(self, changed: Sequence[Asked], mapping: Mapping) -> Plan | None:
        """Return a mapping on another machine; None where it does not fit there."""
        key = tuple((one[0].place, one[1]) for one in changed), mapping
        if key not in self.priced:
            plan = replace(self.plan, mapping=mapping)
            self.priced[key] = _kept(plan, _with_all(self.plan.task.system, changed))
        return self.priced[key]

    def _group(self, times: dict[Asked, float]) -> dict[Asked, float]:
        """Return those machines whose corner may bound all of them closely enough.

        Those that gain most are left out, until the mapping's time on the corner says so.
        """
        left = dict(sorted(times.items(), key=lambda item: -item[1]))
        while len(left) > 1 and self._needed(left) < SLACK * self.limits.gap:
            left.popitem()
        return left

    def _needed(self, times: dict[Asked, float]) -> float:
        """Return the gap at which the search of a corner closes machines of some times. [1]"""
        corner = self._time(list(times))
        return 1 - (1 - self.limits.gap) * max(times.values()) / corner

    def _corner(self, group: Sequence[Asked], gap: float) -> Searched:
        """Search a machine with more of all that a group has more of, to a share of a gap. [1]"""
        task, work = self.plan.task, CORNER_WORK * self.limits.work_limit
        limits = replace(self.limits, gap=max(CORNER_GAP * gap, 0.0), work_limit=work)
        system = _with_all(task.system, group)
        found = search_again(
            replace(task, system=system),
            self.rules,
            limits,
            starts=(self.plan.mapping, *self.starts(group)),
            like=[self._like(group), *self._corners_like(system)],
            tables=self.tables,
        )
        self.corners.append(found)
        return found

    def _like(self, group: Sequence[Asked]) -> Likeness:
        """Return how much of what is known of the machine as it is holds on another one."""
        links = [one for one in group if one[0].unit != "B" or one[0].name == ROOM]
        share, floors = (min(map(self.share, some), default=1.0) for some in (group, links))
        known = self.rules.iteration.has_schedules
        return Likeness(searched=self.base, share=share, floors=floors if known else 0.0)

    def _corners_like(self, system: System) -> list[Likeness]:
        """Return what corners tell of a machine: all, of those that have no less of anything."""
        return [
            Likeness(searched=corner, share=_dominated(system, corner.task.system))
            for corner in self.corners
        ]

    def _has_more_room(self, one: Asked) -> bool:
        """Whether a machine differs in that its main memory, its only one, has more room."""
        more = one[0].name == ROOM and one[1] > one[0].value
        one_memory = not self.plan.task.system.chip.has_second_memory
        return more and one_memory and self.rules.iteration.has_schedules

    def _in_room(self, system: System) -> Likeness:
        """Return what is known of strategies where more fits; of all together, nothing is."""
        known, capacity = self.base.known, system.chip.memory_room(spilled=False)
        room = None if known is None else known.in_room(capacity)
        if room is None:
            return Likeness(searched=self.base, share=0.0)
        return Likeness(searched=replace(self.base, bound=0.0, known=room), share=1.0)

    # ------------------------------------------------------------ several processes

    def in_turn(self, asked: Sequence[Asked]) -> tuple[list[Machines], list[Machines]]:
        """Return what corners tell of, and what may be answered before they are searched.

        Those with another room of main memory, together, as searches of them share what is known of
        the machine as it is: first, as they take the longest.
        """
        rooms = tuple(one for one in asked if one[0].name == ROOM)
        others = [one for one in asked if one[0].name != ROOM]
        behind: list[Machines] = [(one,) for one in others if self._improves(one)]
        before: list[Machines] = [(one,) for one in others if not self._improves(one)]
        return behind, [rooms, *before] if rooms else before

    @property
    def shared(self) -> tuple[object, ...]:
        """What is the same object in all that a search of another machine returns."""
        known, plan = self.base.known, self.plan
        of_strategies: tuple[object, ...] = ()
        if known is not None:
            of_strategies = known.strategies, known.heavy, known.of, known.uses, known.held
        return plan.task.workload, plan.rules, *of_strategies

    @property
    def news(self) -> list[Searched]:
        """The corners that are known."""
        return self.corners

    def learn(self, news: list[Searched]) -> None:
        """Take over the corners that another process has searched."""
        self.corners = news

    def answer(self, item: Machines) -> list[Side]:
        """Map the task anew on some machines, one after the other."""
        return [self.side(one) for one in item]

    # ------------------------------------------------------------ one machine

    def share(self, one: Asked) -> float:
        """Return the share of what any mapping takes that it takes with another value at least. [1]

        As of `crosstack.evaluate.machines.relative_costs`: 0 where there is more room, or nothing
        is known of rules of a release, and of a second memory.
        """
        resource, value = one
        if self.plan.task.system.chip.has_second_memory or not self.rules.iteration.has_schedules:
            return 0.0
        if resource.priced:
            return 1.0
        if resource.unit == "B":
            return 1.0 if value <= resource.value else 0.0
        if resource.value == 0:
            return 1.0
        return min(1.0, value / resource.value if resource.cost else resource.value / value)

    def side(self, one: Asked) -> Side:
        """Map the task anew with another value of a resource, from the mapping it has."""
        resource, value = one
        if value == resource.value:
            return Side(self.plan, self.base.bound)
        system = resource.scaled(self.plan.task.system, value)
        if resource.priced:
            return Side(self._repriced(system), self.base.bound, of_mapping=not self.proved)
        kept, least = self._kept([one], self.plan.mapping), self.base.bound * self.share(one)
        if not self.proved:
            return Side(kept, least, of_mapping=True, reason="" if kept else NO_ROOM)
        if kept is not None and (same := self._same(one, kept)) is not None:
            return same
        return self._searched(one, system, kept, least)

    def _repriced(self, system: System) -> Plan:
        """Return the answer on a machine that has another price and is alike in all else."""
        bill = system_price(system, self.plan.mapping.dimension_sizes)
        evaluation = replace(self.plan.evaluation, price=bill)
        task = replace(self.plan.task, system=system)
        return replace(self.plan, task=task, evaluation=evaluation)

    def _same(self, one: Asked, kept: Plan) -> Side | None:
        """Return the mapping on another machine, where that is known to be the best; else None."""
        resource, value = one
        found = replace(kept, certificate=self.plan.certificate)
        # The optimum of a worse machine is no better than this one's, so a mapping that is as fast
        # on both stays the best. With a second memory behind the first, more of the first may
        # change what is used of both.
        worse = (value < resource.value) is not resource.cost
        same = kept.evaluation.time <= self.plan.evaluation.time * (1 + 1e-12)
        if worse and same and not self.plan.task.system.chip.has_second_memory:
            return Side(found, kept.evaluation.time)
        return None

    def _searched(self, one: Asked, system: System, kept: Plan | None, least: float) -> Side:
        """Search another machine, with what is known of others."""
        own = self._in_room(system) if self._has_more_room(one) else self._like([one])
        like = [own, *(self._corners_like(system) if self._improves(one) else ())]
        near = [self._kept([one], mapping) for mapping in self.starts([one])]
        known = [plan for plan in (kept, *near) if plan is not None]
        start = min(known, key=lambda plan: plan.evaluation.time, default=None)
        try:
            found = search_again(
                replace(self.plan.task, system=system),
                self.rules,
                self.limits,
                start=start,
                starts=() if start is not None else (self.plan.mapping,),
                like=like,
                tables=self.tables,
            )
        except InputError as error:
            return Side(None, reason=str(error))
        plan = found.plan
        if plan is None:
            return Side(None, found.bound if found.proved else least, reason=found.reason)
        proved = plan.certificate.status is Status.OPTIMAL
        same = kept is not None and plan.mapping == kept.mapping
        return Side(plan, found.bound, of_mapping=same and not proved)


def _near_plans(base: Searched, rules: Rules) -> tuple[Plan, ...]:
    """Return the plan of a machine by other uses of its network, nearly as fast there.

    Where links of one dimension change, the best use is often the same of another.
    """
    plan, known = base.plan, base.known
    assert plan is not None
    if known is None:
        return ()
    own, found = plan.mapping, list[Plan]()
    order = np.argsort(known.bounds, kind="stable")
    near = order[known.bounds[order] <= plan.evaluation.time * (1 + NEAR)]
    tried = {(own.sizes, own.parallelism, own.dimensions)}
    for place in near.tolist():
        strategy = known.strategies.one(place, plan.task.workload, whole=True)
        use = strategy.sizes, strategy.parallelism, strategy.dimensions
        if use in tried or strategy.tensor != own.degree(Parallelism.TENSOR):
            continue
        tried.add(use)
        other = replace(own, **decided(strategy))
        kept = _kept(replace(plan, mapping=other), plan.task.system)
        if kept is not None:
            found.append(kept)
        if len(found) == MOST_NEAR:
            break
    return tuple(found)


def _with_all(system: System, asked: Iterable[Asked]) -> System:
    """Return a machine with other values of several resources."""
    for resource, value in asked:
        system = resource.scaled(system, value)
    return system


def _dominated(system: System, other: System) -> float:
    """Return 1 where another machine has no less of anything but is alike, 0 elsewhere. [1]"""
    pairs = zip(resources_of(system), resources_of(other), strict=True)
    same = all(a.value >= b.value if a.cost else a.value <= b.value for a, b in pairs)
    return float(same)


def _kept(answer: Plan, system: System) -> Plan | None:
    """Return the same mapping on another machine; None where it does not fit there."""
    try:
        return given_plan(replace(answer.task, system=system), answer.mapping, answer.rules)
    except (InfeasibleError, InputError):
        return None
