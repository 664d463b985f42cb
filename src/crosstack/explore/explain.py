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
import multiprocessing
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from crosstack.errors import InfeasibleError, InputError, require, require_quantity
from crosstack.evaluate.again import Limits, Searched, search_again
from crosstack.evaluate.plan import Plan, as_task, given_plan, usual_work
from crosstack.explore.progress import Meter, Tell
from crosstack.machine.chip import flat_fields
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints, Status, Task
from crosstack.mapping.parallelism import Use
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.records import brief
from crosstack.workload.job import Job
from crosstack.workload.workload import Workload

__all__ = ["Effect", "Explanation", "Resource", "explain", "resources_of"]

Place = tuple[str | int, ...]
STEP = 0.1
MOST_EFFECTS = 6  # that are printed
ROOM = "memory capacity"
NO_ROOM = "the mapping does not fit there"
MANY_USES = 16  # of the network: with more of them a search takes long [1]
SIDE_GAP, SIDE_WORK = 0.02, 5e5  # of the search of a changed machine, if nothing is said [1]
LITTLE = 0.01  # relative, of the time that more of a resource saves a mapping, if it is little
ADDED_LATENCY = 1e-6  # what a latency of 0 is compared with [s]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A number of the machine: its ``place`` in a `System`, and its ``path`` in the task.

    ``name`` is what it is called, ``value`` is in ``unit``.
    """

    place: Place
    path: str
    name: str
    value: float
    unit: str

    @property
    def cost(self) -> bool:
        """Whether less is better: a latency or a price."""
        return self.unit == "s" or "USD" in self.unit

    def scaled(self, system: System, value: float) -> System:
        """Return the machine with another value."""
        changed: System = _with(system, self.place, value)
        return changed


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
            if "USD" in self.resource.unit:  # a price changes no mapping
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


def _at(record: Any, place: Place) -> Any:
    """Return what stands at a place in nested records."""
    for step in place:
        record = record[step] if isinstance(step, int) else getattr(record, step)
    return record


def _with(record: Any, place: Place, value: float) -> Any:
    """Return nested records with another value at a place."""
    if not place:
        return value
    step, *rest = place
    changed = _with(_at(record, (step,)), tuple(rest), value)
    if isinstance(step, int):
        return (*record[:step], changed, *record[step + 1 :])
    return replace(record, **{step: changed})


def resources_of(system: System) -> tuple[Resource, ...]:
    """Return every number of a machine that a time or a price may depend on."""
    found = []
    for name, unit, place, path in _numbers(system):
        steps = (f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
        found.append(
            Resource(
                place=place,
                path=f"system{''.join(steps)}" if path is None else f"system.{path}",
                name=name,
                value=_at(system, place) or 0.0,
                unit=unit,
            )
        )
    return tuple(found)


def _numbers(system: System) -> Iterator[tuple[str, str, Place, str | None]]:
    """Yield name, unit and place of every number; its path where a file calls it otherwise."""
    chip = system.chip
    flat = flat_fields(chip) is not None
    clock: Place = ("chip", "compute", "frequency")
    yield "clock", "Hz", clock, "chip.frequency" if flat else None
    for i, level in enumerate(chip.levels):
        field = "capacity" if level.bank_capacity is None else "bank_capacity"
        known = {"capacity": "sram_capacity", "bank_capacity": "memory_unit_capacity"}[field]
        yield level.name, "B", ("chip", "levels", i, field), f"chip.{known}" if flat else None
    for i, memory in enumerate(chip.memories):
        for field, unit in (("bandwidth", "B/s"), ("capacity", "B")):
            if getattr(memory, field) is not None:
                name = f"second memory's {field}" if i else f"memory {field}"
                path = f"memory.{'second_' if i else ''}{field}"
                yield name, unit, ("chip", "memories", i, field), path
    for i, dimension in enumerate(system.network):
        if dimension.size == 1:
            continue
        yield f"bandwidth of dimension {i}", "B/s", ("network", i, "bandwidth"), None
        yield f"latency of dimension {i}", "s", ("network", i, "latency"), None
        for field, name in (("link_price", "links"), ("switch_price", "switches")):
            if getattr(dimension, field):  # else the system's
                yield f"price of {name}", "USD/(B/s)", ("network", i, field), None
    yield "price of a chip", "USD", ("chip", "price"), None
    for field, name in (("link", "links"), ("switch", "switches"), ("memory", "memory")):
        yield f"price of {name}", "USD/(B/s)", ("prices", field), None


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
        Processes that search changed machines at the same time. [1]
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

    chosen = chosen_rules(rules, MAPPED, otherwise=task.rules)
    # No share of nothing: a price that is not given.
    changed = [r for r in resources_of(task.system) if r.value != 0 or r.unit == "s"]
    meter, done, total = Meter(progress), 0, 2 * len(changed) + 1
    meter.show(done, total, at="the task as it is")
    work = usual_work(time_limit) if work_limit is None else work_limit
    limits = Limits(gap=gap, work_limit=work, time_limit=time_limit)
    base = _base(task, answer, chosen, limits)
    answer = base.plan
    assert answer is not None  # it would have been an error
    known = _known(base, changed, step, chosen, limits)
    if work_limit is None and math.isinf(time_limit) and gap == 0 and base.n_uses > MANY_USES:
        limits = Limits(gap=SIDE_GAP, work_limit=SIDE_WORK)
    values = [_values(resource, step) for resource in changed]
    asked = [(r, value) for r, both in zip(changed, values, strict=True) for value in both]
    sides = []
    with _sides(known, chosen, limits, jobs) as find:
        for (resource, value), side in zip(asked, find(asked), strict=True):
            done += 1
            at = f"{resource.name} {value:.4g} {resource.unit}"
            meter.show(done, total, at=at, best=answer.evaluation.time)
            sides.append(side)
    pairs = zip(changed, values, zip(sides[::2], sides[1::2], strict=True), strict=True)
    effects = [_effect(base, *each) for each in pairs]
    effects.sort(key=lambda e: (-abs(e.elasticity), -abs(e.price_elasticity), e.resource.path))
    return Explanation(answer=answer, step=step, effects=tuple(effects))


def _values(resource: Resource, step: float) -> tuple[float, float]:
    """Return less and more of a resource, in its unit."""
    less, more = resource.value * (1 - step), resource.value * (1 + step)
    return less, (ADDED_LATENCY if resource.value == 0 else more)


def _base(task: Task, answer: Plan | None, rules: Rules, limits: Limits) -> Searched:
    """Return what is known of a task on the machine as it is; raises where nothing fits there."""
    if answer is not None:
        known = None
        if answer.certificate.status is Status.OPTIMAL and rules.iteration.has_schedules:
            wide = replace(limits, gap=max(limits.gap, SIDE_GAP))
            known = search_again(answer.task, rules, wide, starts=(answer.mapping,)).known
        bound = answer.certificate.bound
        return Searched(task=answer.task, plan=answer, bound=bound, known=known)
    try:
        found = search_again(task, rules, limits)
    except InputError as error:
        raise task.as_in_file(error) from None
    if found.error is not None:
        raise found.error
    return found


@dataclass(frozen=True, slots=True)
class _Side:
    """The answer with less or more of a resource; None: none fits, or none before a limit."""

    answer: Plan | None
    bound: float = 0.0
    of_mapping: bool = False
    reason: str = ""


Asked = tuple[Resource, float]  # a resource with another value


Known = tuple[Searched, ...]  # of the machine as it is, and of one with more of much


def _known(
    base: Searched, changed: Sequence[Resource], step: float, rules: Rules, limits: Limits
) -> Known:
    """Return what is known of a task: also on a machine with more of all that counts for little.

    Whatever is bounded there is bounded where there is more of one of them.
    """
    answer = base.plan
    assert answer is not None
    if answer.certificate.status is not Status.OPTIMAL:
        return (base,)
    system, time = answer.task.system, answer.evaluation.time
    for resource in changed:
        less, more = _values(resource, step)
        value = less if resource.cost else more
        if resource.name == ROOM or "USD" in resource.unit:  # with more room others fit
            continue
        kept = _kept(answer, resource.scaled(answer.task.system, value))
        if kept is not None and kept.evaluation.time >= time * (1 - LITTLE):
            system = resource.scaled(system, value)
    if system == answer.task.system or not rules.iteration.has_schedules:
        return (base,)
    task, wide = replace(answer.task, system=system), replace(limits, gap=LITTLE / 4)
    return base, search_again(task, rules, wide, starts=(answer.mapping,))


@contextmanager
def _sides(
    known: Known, rules: Rules, limits: Limits, jobs: int
) -> Iterator[Callable[[Sequence[Asked]], Iterable[_Side]]]:
    """Give what maps a task with other values of resources, on so many processes."""
    if jobs == 1:
        yield lambda asked: (_side(known, rules, limits, *one) for one in asked)
        return
    context = multiprocessing.get_context("spawn")
    problem = known, rules, limits
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=problem) as pool:
        yield lambda asked: pool.map(_work, asked)


_own: list[tuple[Known, Rules, Limits]] = []  # what a process works on, set once in each


def _begin(*problem: Any) -> None:
    _own[:] = [problem]


def _work(asked: Asked) -> _Side:
    return _side(*_own[0], *asked)


def _side(known: Known, rules: Rules, limits: Limits, resource: Resource, value: float) -> _Side:
    """Map a task anew with another value of a resource, from the mapping it has."""
    base, *others = known
    answer = base.plan
    assert answer is not None
    if value == resource.value:
        return _Side(answer, base.bound)
    system = resource.scaled(answer.task.system, value)
    kept, share = _kept(answer, system), _share(answer, rules, resource, value)
    least = base.bound * share
    if answer.certificate.status is not Status.OPTIMAL:
        return _Side(kept, least, of_mapping=True, reason="" if kept else NO_ROOM)
    if kept is not None:
        if "USD" in resource.unit:  # a price changes no mapping
            return _Side(replace(kept, certificate=answer.certificate), base.bound)
        # The optimum of a worse machine is no better than this one's, so a mapping that is as fast
        # on both stays the best. With a second memory behind the first, more of the first may
        # change what is used of both.
        worse = (value < resource.value) is not resource.cost
        same = kept.evaluation.time <= answer.evaluation.time * (1 + 1e-12)
        if worse and same and not answer.task.system.chip.has_second_memory:
            return _Side(replace(kept, certificate=answer.certificate), kept.evaluation.time)
    try:
        found = search_again(
            replace(answer.task, system=system),
            rules,
            limits,
            starts=() if kept is None else (kept.mapping,),
            like=((base, share), *((one, _dominated(system, one.task.system)) for one in others)),
        )
    except InputError as error:
        return _Side(None, reason=str(error))
    plan = found.plan
    if plan is None:
        return _Side(None, found.bound if found.proved else least, reason=found.reason)
    proved = plan.certificate.status is Status.OPTIMAL
    same = kept is not None and plan.mapping == kept.mapping
    return _Side(plan, found.bound, of_mapping=same and not proved)


def _dominated(system: System, other: System) -> float:
    """Return 1 where another machine has no less of anything but is alike, 0 elsewhere. [1]"""
    pairs = zip(resources_of(system), resources_of(other), strict=True)
    same = all(a.value >= b.value if a.cost else a.value <= b.value for a, b in pairs)
    return float(same)


def _share(answer: Plan, rules: Rules, resource: Resource, value: float) -> float:
    """Return the share of what any mapping takes that it takes with another value at least. [1]

    As of `crosstack.evaluate.machines.relative_costs`: 0 where there is more room, or nothing is
    known of rules of a release, and of a second memory.
    """
    if answer.task.system.chip.has_second_memory or not rules.iteration.has_schedules:
        return 0.0
    if "USD" in resource.unit:
        return 1.0
    if resource.unit == "B":
        return 1.0 if value <= resource.value else 0.0
    if resource.value == 0:
        return 1.0
    return min(1.0, value / resource.value if resource.cost else resource.value / value)


def _kept(answer: Plan, system: System) -> Plan | None:
    """Return the same mapping on another machine; None where it does not fit there."""
    try:
        return given_plan(replace(answer.task, system=system), answer.mapping, answer.rules)
    except (InfeasibleError, InputError):
        return None


def _effect(
    base: Searched, resource: Resource, values: tuple[float, float], sides: tuple[_Side, _Side]
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
        of_mapping="USD" not in resource.unit and any(side.of_mapping for side in sides),
        reason=next((side.reason for side in sides if side.reason), ""),
    )
