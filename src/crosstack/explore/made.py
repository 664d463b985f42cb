"""Points whose tasks a function makes: studies over what no field of a file says."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from crosstack.errors import unknown_name
from crosstack.evaluate.answer import Answer
from crosstack.explore.axes import Assignment
from crosstack.explore.evaluators import BaseProblem, Column, PointAnswer, Terms, known_options
from crosstack.explore.mapped import ANSWER_UNITS, mapped_point
from crosstack.io.study_file import Goal
from crosstack.mapping.mapping import Task
from crosstack.model.rules import Rules

__all__ = ["MadeTasks"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeTasks:
    """The fastest mapping of every task, with its certificate.

    Parameters
    ----------
    name : str
        Of the evaluator.
    make : callable
        Returns the task for values by name. A function of a module: processes import it.
    values : tuple of str
        Their names; the paths that axes set.
    version : str
        Tells apart two states of ``make``; part of every key.
    rules : str, Rules or None
        Of all searches.
    time_limit : float
        Of one search. [s]
    other : mapping
        Units of terms that ``revise`` adds, or gives another unit.
    revise : callable or None
        Returns terms from an answer and the values: those of ``other``.
    """

    name: str
    make: Callable[[Mapping[str, Any]], Task]
    values: tuple[str, ...]
    version: str
    objectives: tuple[tuple[str, Goal], ...] = (("time", Goal.MINIMUM),)
    rules: str | Rules | None = None
    time_limit: float = math.inf
    other: Mapping[str, str] = field(default_factory=dict)
    revise: Callable[[Answer, Mapping[str, Any]], Terms] | None = None

    def options(self, given: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return the options: there are none."""
        known_options(given, ())
        return given

    def columns(self, base: BaseProblem) -> tuple[Column, ...]:
        """Return the terms of an answer."""
        units = {**ANSWER_UNITS, **self.other}
        return tuple(Column(name=name, unit=unit) for name, unit in units.items())

    def tree(self, base: BaseProblem) -> Any:
        """Return the values, without any, and what tells apart the function."""
        return {"version": self.version, **dict.fromkeys(self.values)}

    def check(self, base: BaseProblem, assignments: Sequence[Assignment]) -> None:
        """Raise `InputError` for a value that the function does not take."""
        for path, _ in assignments:
            if path not in self.values:
                raise unknown_name("path", "value is", path, self.values)

    def run(
        self, base: BaseProblem, assignments: Sequence[Assignment], keep: Sequence[str]
    ) -> PointAnswer:
        """Map one point."""
        values, revise = dict(assignments), self.revise
        return mapped_point(
            self.make(values),
            keep,
            terms=None if revise is None else lambda answer: revise(answer, values),
            rules=self.rules,
            time_limit=self.time_limit,
        )
