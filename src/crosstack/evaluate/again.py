"""A task searched again on a machine that is much like others it was searched on.

The uses of the network are those of any machine with as many chips, and each was bounded there.
Where no mapping is faster here than a share of what it takes there, so much of a bound holds here:
a use whose bound is no better than a mapping that is known is left out, and a machine whose bound
meets that needs no search. What is found is as sure as a search of all uses.
"""

from __future__ import annotations

import math
from collections.abc import Mapping as Table
from collections.abc import Sequence
from dataclasses import dataclass, field

from crosstack.errors import InfeasibleError, LimitError
from crosstack.evaluate.next_plans import PROVED
from crosstack.evaluate.plan import Plan, soonest
from crosstack.evaluate.time import evaluate
from crosstack.mapping.incumbent import PROOF
from crosstack.mapping.mapping import Certificate, Mapping, Status, Task
from crosstack.mapping.parallelism import Use
from crosstack.mapping.search import search
from crosstack.model.rules import Rules

__all__ = ["Limits", "Searched", "search_again"]

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

    ``bound`` is one on every mapping, infinite where none fits, ``uses`` has one for each use of
    the network [s]; ``error`` says why there is no plan. ``ran``: whether anything was searched.
    """

    task: Task
    plan: Plan | None
    bound: float
    uses: Table[Use, float] = field(default_factory=dict)
    proved: bool = True
    error: InfeasibleError | LimitError | None = None
    ran: bool = True

    @property
    def reason(self) -> str:
        """Why there is no plan."""
        return "" if self.error is None else str(self.error)


def search_again(
    task: Task,
    rules: Rules,
    limits: Limits,
    *,
    starts: Sequence[Mapping] = (),
    like: Sequence[tuple[Searched, float]] = (),
) -> Searched:
    """Search a task for the fastest mapping, with what is known of it on other machines.

    Parameters
    ----------
    task, rules, limits
        What is mapped, what is counted, and when to stop.
    starts : sequence of Mapping
        Mappings of other machines: the fastest here is started from.
    like : sequence of (Searched, float)
        What was found on other machines, and the share of what any mapping takes there that it
        takes here at least. [1]

    Raises
    ------
    InputError
        If the task contradicts itself.
    """
    best = _fastest(task, rules, starts)
    known = _known_uses(like)
    least = max((one.bound * share for one, share in like if share > 0), default=0.0)
    if math.isinf(least):
        error = next(one.error for one, share in like if share > 0 and math.isinf(one.bound))
        return Searched(task=task, plan=None, bound=math.inf, uses=known, error=error, ran=False)
    # As a search counts what is of interest, see `SearchState.target`.
    target = math.inf if best is None else best[1] * (1 - max(limits.gap, PROOF / 10))
    open_ = [use for use, bound in known.items() if bound < target] if known else None
    closed = min((bound for bound in known.values() if bound >= target), default=math.inf)
    if best is None and open_ == []:
        error = next(one.error for one, share in like if share > 0)
        return Searched(task=task, plan=None, bound=math.inf, uses=known, error=error, ran=False)
    if best is not None and (least >= target or open_ == []):
        bound = max(least, closed if open_ == [] else 0.0)
        plan = _plan(task, rules, best[0], bound, limits.gap, None)
        return Searched(task=task, plan=plan, bound=plan.certificate.bound, uses=known, ran=False)
    bounds: dict[Use, float] = {}
    try:
        mapping, found = search(
            *(task.workload, task.system, task.constraints, rules),
            gap=limits.gap,
            work_limit=limits.work_limit,
            time_limit=limits.time_limit,
            start=best,
            uses=open_,
            bounds=bounds,
        )
    except InfeasibleError as error:
        # Uses that are left out fit nowhere where more fits.
        return Searched(task=task, plan=None, bound=math.inf, uses=known, error=error)
    except LimitError as error:
        return Searched(task=task, plan=None, bound=least, uses=known, proved=False, error=error)
    for use, bound in bounds.items():
        known[use] = max(bound, known.get(use, 0.0))
    bound = max(least, min(found.bound, closed))
    plan = _plan(task, rules, soonest(task, mapping, rules), bound, limits.gap, found)
    return Searched(task=task, plan=plan, bound=plan.certificate.bound, uses=known)


def _fastest(task: Task, rules: Rules, starts: Sequence[Mapping]) -> tuple[Mapping, float] | None:
    """Return the fastest of some mappings with its time; None where none fits. [s]"""
    found = list[tuple[float, int]]()
    for number, start in enumerate(starts):
        try:
            time = evaluate(task.workload, task.system, start, rules).time
        except InfeasibleError:
            continue
        found.append((time, number))
    return (starts[min(found)[1]], min(found)[0]) if found else None


def _known_uses(like: Sequence[tuple[Searched, float]]) -> dict[Use, float]:
    """Return the tightest bound of every use that all of some searches say. [s]"""
    known: dict[Use, float] = {}
    for one, share in like:
        if share > 0:
            for use, bound in one.uses.items():
                known[use] = max(known.get(use, 0.0), bound * share)
    return known


def _plan(
    task: Task,
    rules: Rules,
    mapping: Mapping,
    bound: float,
    gap: float,
    found: Certificate | None,
) -> Plan:
    """Return the answer of a mapping with a bound on all others [s]; ``found``: how, if searched.

    ``gap`` is what was asked for. [1]
    """
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
