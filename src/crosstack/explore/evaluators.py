"""What can be done with a point: the shape of an evaluator, and those that come with crosstack.

A study names one; another is any picklable object with the methods of `Evaluator`, given to
`crosstack.sweep`.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import CrosstackError, InfeasibleError
from crosstack.explore.axes import Assignment
from crosstack.io.yaml_tree import Content

if TYPE_CHECKING:
    from crosstack.explore.study import Goal

__all__ = [
    "EVALUATORS",
    "ArrayEvaluator",
    "BaseProblem",
    "Column",
    "Evaluator",
    "PointAnswer",
    "PointAnswers",
    "Terms",
    "answered",
    "answered_many",
    "evaluator_named",
    "one_by_one",
    "refused",
]

Terms: TypeAlias = "dict[str, float | str | None]"
Arrays: TypeAlias = "Mapping[str, NDArray[np.float64]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class BaseProblem:
    """The problem that a study varies: what a file holds, and options of the evaluator."""

    content: Content
    source: str
    options: Mapping[str, Any] = field(default_factory=dict)


class Column(NamedTuple):
    """A term of the answer; ``unit`` is SI, None for text."""

    name: str
    unit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAnswer:
    """What came of one point: ``status`` says how sure it is, ``reason`` why there is no more.

    ``status`` is one of `crosstack.mapping.mapping.Status`, or ``invalid`` (the point contradicts
    itself), ``timeout`` (stopped from outside) or ``failed`` (a bug, or a process that died).
    ``runtime``: how long it took. [s]
    """

    status: str
    reason: str | None = None
    terms: Terms = field(default_factory=dict)
    runtime: float = field(default=0.0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PointAnswers:
    """What came of many points: arrays of one length; a term of a point without one is NaN.

    Terms that are text are arrays of objects. ``runtime``: how long each took. [s]
    """

    status: NDArray[np.str_]
    reason: NDArray[np.object_]
    terms: Mapping[str, NDArray[Any]]
    runtime: float = 0.0


class Evaluator(Protocol):
    """Answers one point at a time."""

    @property
    def name(self) -> str:
        """What a study file calls it."""

    @property
    def objectives(self) -> tuple[tuple[str, Goal], ...]:
        """Columns that tell good points, where the study names none."""

    def options(self, given: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return the study's options, checked, with what they name read from ``folder``."""

    def columns(self, base: BaseProblem) -> tuple[Column, ...]:
        """Return the terms it gives."""

    def tree(self, base: BaseProblem) -> Any:
        """Return the base as nested mappings and lists, for paths and keys."""

    def check(self, base: BaseProblem, assignments: Sequence[Assignment]) -> None:
        """Raise `InputError` if an assignment leads nowhere, whatever its value."""

    def run(
        self, base: BaseProblem, assignments: Sequence[Assignment], keep: Sequence[str]
    ) -> PointAnswer:
        """Plan the base with fields changed; errors of crosstack are the caller's to note."""


class ArrayEvaluator(Evaluator, Protocol):
    """Answers points that differ in numbers alone all at once."""

    def array_fields(self, base: BaseProblem, fields: Sequence[str]) -> Mapping[str, str]:
        """Return those of ``fields`` whose numbers may be arrays, with their units.

        The others are what each group of points has in common.
        """

    def run_many(
        self, base: BaseProblem, assignments: Sequence[Assignment], arrays: Arrays
    ) -> PointAnswers:
        """Plan the base with fields changed, once for each entry of the arrays.

        An error of crosstack's is one of all points: what is wrong with one is its status.
        """


def refused(error: Exception) -> PointAnswer:
    """Return what is known of a point that an error came of: no bug of one may end the others."""
    if isinstance(error, InfeasibleError):
        return PointAnswer(status="infeasible", reason=str(error))
    if isinstance(error, CrosstackError):
        return PointAnswer(status="invalid", reason="; ".join(str(error).splitlines()))
    where = traceback.extract_tb(error.__traceback__)[-1]
    reason = f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"
    return PointAnswer(status="failed", reason=reason)


def answered(
    evaluator: Evaluator, base: BaseProblem, assignments: Sequence[Assignment], keep: Sequence[str]
) -> PointAnswer:
    """Return what comes of a point, an error included."""
    try:
        return evaluator.run(base, assignments, keep)
    except Exception as error:
        return refused(error)


def answered_many(
    evaluator: ArrayEvaluator,
    base: BaseProblem,
    assignments: Sequence[Assignment],
    arrays: Arrays,
    good: NDArray[np.bool_],
) -> PointAnswers:
    """Plan ``good`` points as arrays and the others, which are invalid somehow, one by one."""
    if good.all():
        return evaluator.run_many(base, assignments, arrays)
    bad = one_by_one(evaluator, base, assignments, {f: a[~good] for f, a in arrays.items()})
    if not good.any():
        return bad
    fine = evaluator.run_many(base, assignments, {f: a[good] for f, a in arrays.items()})
    status = np.empty(len(good), dtype="U16")
    status[good], status[~good] = fine.status, bad.status
    reason = np.empty(len(good), dtype=object)
    reason[good], reason[~good] = fine.reason, bad.reason
    terms = {name: np.empty(len(good)) for name in fine.terms}
    for name, values in terms.items():
        values[good], values[~good] = fine.terms[name], bad.terms[name]
    return PointAnswers(status=status, reason=reason, terms=terms)


def one_by_one(
    evaluator: Evaluator, base: BaseProblem, assignments: Sequence[Assignment], arrays: Arrays
) -> PointAnswers:
    """Plan many points as `ArrayEvaluator.run_many`, one after the other."""
    count = max((len(numbers) for numbers in arrays.values()), default=1)
    found = []
    for i in range(count):
        numbers = [(path, float(values[i])) for path, values in arrays.items()]
        found.append(answered(evaluator, base, [*assignments, *numbers], ()))
    return PointAnswers(
        status=np.array([item.status for item in found]),
        reason=np.array([item.reason for item in found], dtype=object),
        terms={
            column.name: np.array([item.terms.get(column.name) for item in found], dtype=float)
            for column in evaluator.columns(base)
            if column.unit is not None
        },
    )


EVALUATORS = {
    "map": "crosstack.explore.mapped.MappedPoints",
    "mapping": "crosstack.explore.mapped.GivenMapping",
    "predict": "crosstack.explore.predicted.Predicted",
    "chip": "crosstack.explore.chips.Chips",
}
"""By the name that a study file gives: what is imported when it is asked for."""


def evaluator_named(name: str) -> Any:
    """Return an evaluator by its name, one of `EVALUATORS`."""
    module, _, kind = EVALUATORS[name].rpartition(".")
    return getattr(import_module(module), kind)()
