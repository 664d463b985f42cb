"""A task searched again on a machine that is much like others it was searched on.

The strategies are those of any machine with as many chips and as much room, and each was bounded
there. Where no mapping is faster here than a share of what it takes there, so much of a bound holds
here: a strategy whose bound is no better than a mapping that is known is left out, and a machine
whose bound meets that needs no search. What is found is as sure as a search of all strategies.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from crosstack.errors import InfeasibleError, LimitError
from crosstack.evaluate.next_plans import PROVED
from crosstack.evaluate.plan import Plan, soonest
from crosstack.evaluate.time import evaluate
from crosstack.mapping.ideals import TableCache
from crosstack.mapping.known_strategies import of_interest, search_known
from crosstack.mapping.mapping import Certificate, Mapping, Status, Task
from crosstack.mapping.parallelism import Use
from crosstack.mapping.search import adopted, search
from crosstack.mapping.strategy_bounds import StrategyBounds
from crosstack.model.rules import Rules

__all__ = ["Likeness", "Limits", "Searched", "search_again"]

KNOWN = "bounds of searches on machines like this one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a search ends: at a relative ``gap`` [1], after so much work [1], or time [s]."""

    gap: float = 0.0
    work_limit: float = math.inf
    time_limit: float = math.inf


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Searched:
    """What a search found: its ``plan``, None where there is none; infeasible then if ``proved``.

    ``bound`` is one on every mapping, infinite where none fits [s], ``known`` those on strategies
    where any were looked at; ``error`` says why there is no plan. ``ran``: whether anything was
    searched.
    """

    task: Task
    plan: Plan | None
    bound: float
    known: StrategyBounds | None = None
    proved: bool = True
    error: InfeasibleError | LimitError | None = None
    ran: bool = True

    @property
    def n_uses(self) -> int:
        """How many uses of the network there are, as far as strategies are known. [1]"""
        return 0 if self.known is None else len(self.known.uses)

    @property
    def reason(self) -> str:
        """Why there is no plan."""
        return "" if self.error is None else str(self.error)


@dataclass(frozen=True, slots=True, kw_only=True)
class Likeness:
    """What was ``searched`` on another machine, and how much of it holds on this one.

    ``share`` of what any mapping takes there it takes here at least, 0: nothing is known. [1]
    ``floors`` is the share of what compute and links take alone, where it is another: of machines
    that differ in memories on the chip; what fits the main memory of this one fits the other's. [1]
    """

    searched: Searched
    share: float
    floors: float | None = None

    @property
    def of_floors(self) -> float:
        """Share of what compute and links take alone. [1]"""
        return self.share if self.floors is None else self.floors

    @property
    def bound(self) -> float:
        """What no mapping takes less than here. [s]"""
        return self.searched.bound * self.share if self.share > 0 else 0.0


def search_again(
    task: Task,
    rules: Rules,
    limits: Limits,
    *,
    start: Plan | None = None,
    starts: Sequence[Mapping] = (),
    like: Sequence[Likeness] = (),
    tables: TableCache | None = None,
) -> Searched:
    """Search a task for the fastest mapping, with what is known of it on other machines.

    Parameters
    ----------
    task, rules, limits
        What is mapped, what is counted, and when to stop.
    start : Plan, optional
        A plan of this task.
    starts : sequence of Mapping
        Mappings of other machines: the fastest here of all is started from; where none fits, the
        kernels of the first are tried under other strategies.
    like : sequence of Likeness
        What was found on other machines.
    tables : dict, optional
        What is known of the shapes of graphs from searches of the same workload, and is added to.

    Raises
    ------
    InputError
        If the task contradicts itself.
    """
    best = _fastest(task, rules, start, starts)
    if best is None and starts:
        best = _adopted(task, rules, starts[0], like, tables)
    target = of_interest(best, limits.gap)
    known = _tightest(like, target)
    settled = _settled(task, rules, limits.gap, like, known, target, best, start)
    if settled is not None:
        return settled
    least = max((one.bound for one in like), default=0.0)
    try:
        mapping, found, now = search_known(
            partial(
                search,
                work_limit=limits.work_limit,
                time_limit=limits.time_limit,
                tables=tables,
            ),
            *(task.workload, task.system, task.constraints, rules),
            known=known,
            best=best,
            gap=limits.gap,
            uses=_uses(like) if best is not None else None,
        )
    except InfeasibleError as error:
        # Strategies that are left out fit nowhere where more fits.
        return _none(task, error, ran=True)
    except LimitError as error:
        return Searched(task=task, plan=None, bound=least, proved=False, error=error)
    settled_on, bound = soonest(task, mapping, rules), max(least, found.bound)
    plan = _plan(task, rules, settled_on, bound, limits.gap, found)
    return Searched(task=task, plan=plan, bound=plan.certificate.bound, known=now)


def _settled(
    task: Task,
    rules: Rules,
    gap: float,
    like: Sequence[Likeness],
    known: StrategyBounds | None,
    target: float,
    best: tuple[Mapping, float] | None,
    start: Plan | None,
) -> Searched | None:
    """Return what searches of other machines leave nothing open of; None where they do."""
    least = max((one.bound for one in like), default=0.0)
    closed = known is not None and not (known.bounds < target).any()
    if math.isinf(least):
        return _none(task, next(o.searched.error for o in like if math.isinf(o.bound)))
    if best is None:
        error = next((one.searched.error for one in like if one.of_floors > 0), None)
        return _none(task, error) if closed else None
    if least < target and not closed:
        return None
    least = max(least, known.least) if known is not None and closed else least
    plan = _plan(task, rules, best[0], least, gap, None, start)
    return Searched(task=task, plan=plan, bound=plan.certificate.bound, ran=False)


def _none(task: Task, error: InfeasibleError | LimitError | None, *, ran: bool = False) -> Searched:
    """Return that nothing fits, and why."""
    return Searched(task=task, plan=None, bound=math.inf, error=error, ran=ran)


def _fastest(
    task: Task, rules: Rules, start: Plan | None, starts: Sequence[Mapping]
) -> tuple[Mapping, float] | None:
    """Return the fastest of some mappings with its time; None where none fits. [s]"""
    found = [] if start is None else [(start.evaluation.time, 0, start.mapping)]
    for number, mapping in enumerate(starts, start=1):
        try:
            time = evaluate(task.workload, task.system, mapping, rules).time
        except InfeasibleError:
            continue
        found.append((time, number, mapping))
    if not found:
        return None
    time, _, mapping = min(found, key=lambda one: one[:2])
    return mapping, time


def _adopted(
    task: Task,
    rules: Rules,
    kernels: Mapping,
    like: Sequence[Likeness],
    tables: TableCache | None,
) -> tuple[Mapping, float] | None:
    """Return the fastest mapping with kernels of one that does not fit, and its time. [s]"""
    if (known := _tightest(like, math.inf)) is None:
        return None
    return adopted(*(task.workload, task.system, task.constraints, rules), kernels, known, tables)


def _tightest(like: Sequence[Likeness], target: float) -> StrategyBounds | None:
    """Return bounds on strategies that leave the fewest open below a target; None: there are none.

    Where several searches are of the same strategies, the tightest of their bounds on each. [s]
    """
    found: list[StrategyBounds] = []
    for one in like:
        known, of_floors = one.searched.known, one.of_floors
        if known is None or of_floors <= 0:
            continue
        here = known.elsewhere(one.share, of_floors)
        same = next((i for i, other in enumerate(found) if other.same_as(here)), None)
        if same is None:
            found.append(here)
        else:
            found[same] = found[same].with_others(here)
    whole = [one for one in found if one.rest >= target]
    return min(whole, key=lambda one: np.count_nonzero(one.bounds < target), default=None)


def _uses(like: Sequence[Likeness]) -> tuple[Use, ...] | None:
    """Return all uses of the network; None where no search looked at all of them."""
    known = (one.searched.known for one in like)
    return next((one.uses for one in known if one is not None and math.isinf(one.rest)), None)


def _plan(
    task: Task,
    rules: Rules,
    mapping: Mapping,
    bound: float,
    gap: float,
    found: Certificate | None,
    start: Plan | None = None,
) -> Plan:
    """Return the answer of a mapping with a bound on all others [s]; ``found``: how, if searched.

    ``gap`` is what was asked for [1]; ``start`` may be the plan of the mapping.
    """
    if start is not None and start.mapping == mapping:
        evaluation = start.evaluation
    else:
        evaluation = evaluate(task.workload, task.system, mapping, rules)
    value = evaluation.time
    left = max(0.0, 1 - bound / value)
    proved, inside = left <= PROVED, left <= gap + PROVED
    status = Status.OPTIMAL if proved else Status.FEASIBLE if inside else Status.LIMIT
    stopped = None if status is not Status.LIMIT or found is None else found.stopped
    certificate = Certificate(
        status=status,
        objective=value,
        bound=value if proved else min(bound, value),
        method=KNOWN if found is None else f"{found.method}; {KNOWN}",
        free=() if found is None else found.free,
        given=() if found is None else found.given,
        runtime=0.0 if found is None else found.runtime,
        stopped=stopped,
    )
    return Plan(
        task=task, rules=rules, mapping=mapping, certificate=certificate, evaluation=evaluation
    )
