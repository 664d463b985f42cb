"""A published case and its checks, and the rows they give."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from crosstack.evaluate.plan import Plan, given_plan, optimise
from crosstack.mapping.mapping import Mapping, Status, Task
from crosstack.model.rules import Rules

Progress = Callable[[str], None]
"""Called with what is computed next, in a few words."""

UNITS = {
    "layer_time": "s",
    "time": "s",
    "latency": "s",
    "utilization": "1",
    "price": "USD",
    "power": "W",
    "work": "FLOP",
}


@dataclass(frozen=True, slots=True)
class Check:
    """A published number: ``quantity`` is an attribute of the evaluation.

    ``sense`` is ``equal`` (within ``tolerance``, relative), ``at most`` or ``at least``: a
    published incumbent of a solver that stopped early may be beaten, never missed. ``reason``
    says why a number that is missed is missed.
    """

    quantity: str
    published: float
    sense: str = "equal"
    tolerance: float = 1e-6
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A task, perhaps a given mapping, and what was published about it.

    ``proved`` asks for a proof of optimality too.
    """

    name: str
    source: str
    rules: str
    task: Task
    checks: tuple[Check, ...]
    mapping: Mapping | None = None
    proved: bool = False
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check carried out: both numbers, the signed relative error and the verdict.

    ``holds`` is False for every row outside its tolerance, known or not. ``note`` says what was
    assumed, ``reason`` why a row that misses does so: one without a reason is new.
    ``modelled`` is what the source's own model says of a measured number, where it says it.
    """

    suite: str
    case: str
    source: str
    rules: str
    quantity: str
    unit: str
    sense: str = "equal"
    published: float
    ours: float
    tolerance: float
    status: str
    holds: bool
    note: str = ""
    reason: str = ""
    modelled: float | None = None

    @property
    def error(self) -> float:
        """(ours - published) / published. [1]"""
        return (self.ours - self.published) / self.published

    @property
    def modelled_error(self) -> float | None:
        """(modelled - published) / published. [1]"""
        return None if self.modelled is None else (self.modelled - self.published) / self.published


def inside(sense: str, error: float, tolerance: float) -> bool:
    """Return whether a relative error is inside the tolerance, in the sense that is wanted."""
    return {
        "equal": abs(error) <= tolerance,
        "at most": error <= tolerance,
        "at least": error >= -tolerance,
    }[sense]


def held_row(*, proved: bool = True, **told: Any) -> Row:
    """Return the row of a check from all else that a `Row` has; ``proved``: it may hold."""
    row = Row(**told, holds=False)
    return replace(row, holds=proved and inside(row.sense, row.error, row.tolerance))


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], right: Container[int] = ()
) -> list[str]:
    """Return the lines of a table; the columns ``right`` hold numbers."""
    rule = "|".join("---:" if i in right else "---" for i in range(len(header)))
    return [f"| {' | '.join(header)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]


def silent(_: str) -> None:
    """Tell nobody."""


def run_each(
    cases: Iterable[Any], run: Callable[[Any], Row | list[Row]], progress: Progress
) -> list[Row]:
    """Return the rows of all cases, each told by its name before it is run."""
    rows: list[Row] = []
    for case in cases:
        progress(case.name)
        found = run(case)
        rows += found if isinstance(found, list) else [found]
    return rows


def solved(
    task: Task, rules: str | Rules, mapping: Mapping | None, time_limit: float
) -> tuple[Plan, str]:
    """Return the plan of a given mapping, or the best one of a search [s], and how sure it is."""
    if mapping is not None:
        return given_plan(task, mapping, rules), "given"
    answer = optimise(task, rules=rules, time_limit=time_limit)
    return answer, answer.certificate.status.value


def run_case(case: Case, suite: str = "dfmodel") -> list[Row]:
    """Evaluate or optimise a case and return a row per check."""
    answer, status = solved(case.task, case.rules, case.mapping, 120.0)
    rows = []
    for check in case.checks:
        value = getattr(answer.evaluation, check.quantity)
        rows.append(
            held_row(
                suite=suite,
                case=case.name,
                source=case.source,
                rules=case.rules,
                quantity=check.quantity,
                unit=UNITS[check.quantity],
                sense=check.sense,
                published=check.published,
                ours=float(getattr(value, "total", value)),
                tolerance=check.tolerance,
                status=status,
                proved=not case.proved or answer.certificate.status is Status.OPTIMAL,
                note=case.note,
                reason=check.reason,
            )
        )
    return rows
