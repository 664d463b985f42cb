"""What bounds an answer, and what each resource of the machine is worth.

Every resource is made a little more and a little less, one at a time, and the task is mapped anew:
the optimum moves with the machine, so a difference is what an owner would see, not what a mapping
that stays put would lose. The proved optimum is a minimum over mappings, so its two one-sided
elasticities may differ; both are kept.

Every search starts from the mapping of the machine as it is, priced on the changed one, and from
what is known of each use of the network there (`crosstack.evaluate.again`). Where it ends before a
proof, the time is that of the best mapping that is known, and a bound says what the best one takes
at least: the change is between both. Where the machine as it is has no proof, two searches would be
compared that stopped at different places; then the figure is that of the mapping itself, and said
to be.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from crosstack.errors import InputError, require, require_jobs, require_quantity
from crosstack.evaluate.again import Limits, Searched, search_again
from crosstack.evaluate.plan import Plan, as_task, usual_work
from crosstack.explore.changed_machines import Asked, ChangedMachines, Side
from crosstack.explore.progress import Meter, Tell
from crosstack.explore.resources import Resource, resources_of
from crosstack.explore.team import Team, team_of
from crosstack.machine.system import System
from crosstack.mapping.ideals import TableCache
from crosstack.mapping.mapping import Constraints, Status, Task
from crosstack.mapping.search_problem import MACHINES
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.records import brief
from crosstack.workload.job import Job
from crosstack.workload.workload import Workload

__all__ = ["Effect", "Explanation", "explain"]

STEP = 0.1
MOST_EFFECTS = 6  # that are printed
MANY_USES = 16  # of the network: with more of them a search takes long [1]
SIDE_GAP, SIDE_WORK = 0.02, 5e5  # of the search of a changed machine, if nothing is said [1]
ADDED_LATENCY = 1e-6  # what a latency of 0 is compared with [s]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """A resource, and the answers with a little ``less`` and a little ``more`` of it.

    A time or price is None where nothing fits, or no answer came before the limit. [s], [USD]
    ``bound`` and those of both sides are what no mapping takes less than there; 0: nothing is
    known. [s] ``proved`` says whether both answers were optimal; ``of_mapping`` whether a time is
    that of the mapping as it is, run on the changed machine, because they were not.
    """

    resource: Resource
    less: float
    more: float
    time: float
    time_less: float | None
    time_more: float | None
    price_less: float | None
    price_more: float | None
    price: float | None
    proved: bool
    bound: float = 0.0
    bound_less: float = 0.0
    bound_more: float = 0.0
    of_mapping: bool = False
    reason: str = ""

    @property
    def elasticity(self) -> float:
        """Percent of time for a percent of the resource, between less and more; see `one_sided`.

        0 where neither side has an answer; that of one side where the other has none. [1]
        """
        return _slope(self.less, self.more, self.time_less, self.time_more, self)

    @property
    def price_elasticity(self) -> float:
        """Percent of the system's price for a percent of the resource; 0 without a price. [1]"""
        if self.price is None or self.price <= 0:
            return 0.0
        base = replace(self, time=self.price)
        return _slope(self.less, self.more, self.price_less, self.price_more, base)

    @property
    def one_sided(self) -> tuple[float | None, float | None]:
        """Relative change of time with less and with more of the resource; None: nothing fits."""
        return (
            None if self.time_less is None else self.time_less / self.time - 1,
            None if self.time_more is None else self.time_more / self.time - 1,
        )

    @property
    def ranges(self) -> tuple[tuple[float, float] | None, tuple[float, float] | None]:
        """Least and most relative change of the least time, with less and with more; None: no fit.

        The same twice where all is proved. [1]
        """

        def between(time: float | None, bound: float) -> tuple[float, float] | None:
            if time is None:
                return None
            if self.resource.priced:  # a price changes no mapping
                return time / self.time - 1, time / self.time - 1
            least = min(bound, time) / self.time - 1
            return least, (time / self.bound - 1 if self.bound > 0 else math.inf)

        return (
            between(self.time_less, self.bound_less),
            between(self.time_more, self.bound_more),
        )

    @property
    def time_per_unit(self) -> float | None:
        """Time that one more unit costs, or saves if below 0. [s/unit]"""
        if self.time_more is None or self.more == self.resource.value:
            return None
        return (self.time_more - self.time) / (self.more - self.resource.value)


def _slope(less: float, more: float, low: float | None, high: float | None, e: Effect) -> float:
    """Return d ln y / d ln x between the outermost answers there are."""
    x, y = e.resource.value, e.time
    left = (x, y) if low is None else (less, low)
    right = (x, y) if high is None else (more, high)
    if left[0] <= 0 or left[0] == right[0]:
        return 0.0
    return math.log(right[1] / left[1]) / math.log(right[0] / left[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The answer, the effect of every resource, the strongest first, and what that says."""

    answer: Plan
    step: float
    effects: tuple[Effect, ...]

    __repr__ = brief

    def __str__(self) -> str:
        """Return what bounds the mapping, and what the resources that matter most are worth."""
        bound = ", ".join(f"{name} {share:.0%}" for name, share in self.bound_by.items())
        said = [f"{self.answer.task.workload.name} on {self.answer.task.system.name}"]
        said.append(f"  bound by {bound} of the time of its partitions")
        for effect in self.effects[:MOST_EFFECTS]:
            name, percent = effect.resource.name, effect.elasticity
            said.append(f"  1 % more of {name}: {percent:+.3f} % of time")
        return "\n".join(said)

    @property
    def bound_by(self) -> dict[str, float]:
        """Share of the partitions' time that compute, memory and network bound. [1]"""
        partitions = self.answer.evaluation.partitions
        total = math.fsum(p.time for p in partitions)
        shares: dict[str, float] = {}
        for p in partitions:
            if total > 0:
                shares[p.bound_by] = shares.get(p.bound_by, 0.0) + p.time / total
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


def explain(
    task: Task | Workload | Job,
    system: System | None = None,
    *,
    constraints: Constraints | None = None,
    answer: Plan | None = None,
    rules: Rules | str | None = None,
    step: float = STEP,
    work_limit: float | None = None,
    time_limit: float = math.inf,
    gap: float = 0.0,
    jobs: int = 1,
    progress: Tell | None = None,
) -> Explanation:
    """Map a task, then again with a little less and a little more of every resource.

    Parameters
    ----------
    task : Task, Workload or Job
        As of `crosstack.optimise`, with ``system`` and ``constraints``.
    answer : Plan, optional
        An answer to the task, such as a saved one, whose mapping is explained; it is mapped first
        where there is none.
    rules, gap
        As of `crosstack.optimise`.
    work_limit : float, optional
        Of each search, as of `crosstack.optimise`. Where no limit is given and there are more than
        `MANY_USES` uses of the network, changed machines are searched to `SIDE_GAP`, or until
        `SIDE_WORK`. [1]
    jobs : int
        Processes that search changed machines at the same time, this one among them; the answer is
        the same. [1]
    step : float
        More is ``1 + step`` times, less ``1 - step`` times. [1]
    time_limit : float
        Of each search. [s]
    progress : callable or None
        Told where it stands, and what is searched next.

    Raises
    ------
    InputError
        If ``step`` is out of range, or the task contradicts itself.
    InfeasibleError
        If the task itself fits nowhere.
    """
    require_quantity("step", step, "1")
    task = as_task(task, system, constraints)
    require(0 < step < 1, "step", step, "above 0, below 1, such as 0.1 for ten percent")

    require_jobs(jobs)
    chosen = chosen_rules(rules, MAPPED, otherwise=task.rules)
    # No share of nothing: a price that is not given.
    changed = [r for r in resources_of(task.system) if r.value != 0 or r.unit == "s"]
    meter, total = Meter(progress), 2 * len(changed) + 1
    meter.show(0, total, at="the task as it is")
    work = usual_work(time_limit) if work_limit is None else work_limit
    limits = Limits(gap=gap, work_limit=work, time_limit=time_limit)
    tables: TableCache = {MACHINES: {}}
    with team_of(jobs if chosen.iteration.has_schedules else 1) as team:  # else all is quick
        base = _base(task, answer, chosen, limits, tables)
        answer = base.plan
        assert answer is not None  # it would have been an error
        if work_limit is None and math.isinf(time_limit) and gap == 0 and base.n_uses > MANY_USES:
            limits = Limits(gap=SIDE_GAP, work_limit=SIDE_WORK)
        machines = ChangedMachines(base=base, rules=chosen, limits=limits, tables=tables)
        values = [_values(resource, step) for resource in changed]
        asked = [(r, value) for r, both in zip(changed, values, strict=True) for value in both]
        found: dict[Asked, Side] = {}
        for one, side in _sides(machines, asked, team):
            found[one] = side
            at = f"{one[0].name} {one[1]:.4g} {one[0].unit}"
            meter.show(len(found), total, at=at, best=answer.evaluation.time)
    sides = [found[one] for one in asked]
    pairs = zip(changed, values, zip(sides[::2], sides[1::2], strict=True), strict=True)
    effects = [_effect(base, *each) for each in pairs]
    effects.sort(key=lambda e: (-abs(e.elasticity), -abs(e.price_elasticity), e.resource.path))
    return Explanation(answer=answer, step=step, effects=tuple(effects))


def _sides(
    machines: ChangedMachines, asked: Sequence[Asked], team: Team
) -> Iterator[tuple[Asked, Side]]:
    """Yield every change with its answer, as a team finds them.

    Others answer what corners tell nothing of while this process searches those.
    """
    if not machines.has_bounds:  # nothing is searched
        yield from ((one, machines.side(one)) for one in asked)
        return
    behind, before = machines.in_turn(asked)
    team.begin(machines)
    items = {team.share(before): before}
    machines.find_corners(asked)
    items[team.share(behind)] = behind
    for number, place, sides in team.results(tuple(reversed(items))):
        yield from zip(items[number][place], sides, strict=True)


def _values(resource: Resource, step: float) -> tuple[float, float]:
    """Return less and more of a resource, in its unit."""
    less, more = resource.value * (1 - step), resource.value * (1 + step)
    return less, (ADDED_LATENCY if resource.value == 0 else more)


def _base(
    task: Task, answer: Plan | None, rules: Rules, limits: Limits, tables: TableCache
) -> Searched:
    """Return what is known of a task on the machine as it is; raises where nothing fits there."""
    if answer is not None:
        known = None
        if answer.certificate.status is Status.OPTIMAL and rules.iteration.has_schedules:
            wide = replace(limits, gap=max(limits.gap, SIDE_GAP))
            starts = (answer.mapping,)
            known = search_again(answer.task, rules, wide, starts=starts, tables=tables).known
        bound = answer.certificate.bound
        return Searched(task=answer.task, plan=answer, bound=bound, known=known)
    try:
        found = search_again(task, rules, limits, tables=tables)
    except InputError as error:
        raise task.as_in_file(error) from None
    if found.error is not None:
        raise found.error
    return found


def _effect(
    base: Searched, resource: Resource, values: tuple[float, float], sides: tuple[Side, Side]
) -> Effect:
    answer = base.plan
    assert answer is not None
    less, more = (side.answer for side in sides)
    answers = [a for a in (answer, less, more) if a is not None]
    return Effect(
        resource=resource,
        less=values[0],
        more=values[1],
        time=answer.evaluation.time,
        time_less=None if less is None else less.evaluation.time,
        time_more=None if more is None else more.evaluation.time,
        price=answer.evaluation.price.total,
        price_less=None if less is None else less.evaluation.price.total,
        price_more=None if more is None else more.evaluation.price.total,
        proved=all(a.certificate.status is Status.OPTIMAL for a in answers),
        bound=base.bound,
        bound_less=sides[0].bound,
        bound_more=sides[1].bound,
        # No price changes a mapping, or what it takes.
        of_mapping=not resource.priced and any(side.of_mapping for side in sides),
        reason=next((side.reason for side in sides if side.reason), ""),
    )
