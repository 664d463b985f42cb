"""Points that are mapped, with a proof, or priced under a mapping that is given."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from crosstack.errors import InputError, LimitError, Problem, unknown_name
from crosstack.evaluate.again import Limits
from crosstack.evaluate.machines import (
    Machines,
    can_be_arrays,
    in_range,
    machine_fields,
    machine_times,
)
from crosstack.evaluate.plan import (
    Plan,
    given_plan,
    mapping_from_dict,
    optimise,
    usual_work,
)
from crosstack.explore.axes import Assignment
from crosstack.explore.evaluators import (
    Arrays,
    BaseProblem,
    Column,
    PointAnswer,
    PointAnswers,
    Terms,
    answered_many,
    one_by_one,
)
from crosstack.explore.flat import term_at
from crosstack.explore.options import FileEvaluator, known_options, rules_of, split_options
from crosstack.explore.terms import ANSWER_UNITS, UNITS, answer_terms, common_terms
from crosstack.io.files import read_text
from crosstack.io.load import task_in
from crosstack.io.native import override
from crosstack.io.study_file import Goal
from crosstack.mapping.mapping import Task
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.workload.kernels import Placement

__all__ = [
    "ANSWER_UNITS", "GivenMapping", "MappedPoints", "TaskFunction", "answer_terms", "mapped_point",
]  # fmt: skip


def _task(base: BaseProblem, assignments: Sequence[Assignment]) -> tuple[Task, dict[str, Any]]:
    fields, options = split_options(base, assignments)
    return task_in(base.content, base.source, fields), options


def mapped_point(
    task: Task,
    keep: Sequence[str] = (),
    *,
    terms: Callable[[Plan], Terms] | None = None,
    **options: Any,
) -> PointAnswer:
    """Map a task and return its terms, those of ``keep``, and what ``terms`` says besides.

    ``options`` are those of `crosstack.optimise`.

    Raises
    ------
    InfeasibleError, InputError
        As `crosstack.optimise`.
    """
    try:
        answer = optimise(task, **options)
    except LimitError as error:
        return PointAnswer(status="limit", reason=str(error))
    found = answer_terms(answer) | kept_terms(answer, keep)
    if terms is not None:
        found |= terms(answer)
    return PointAnswer(status=answer.certificate.status.value, terms=found)


def kept_terms(answer: Plan, keep: Sequence[str]) -> Terms:
    """Return other numbers of an answer, by their paths in it."""
    if not keep:
        return {}
    whole = answer.to_dict()
    return {path: term_at(whole, path) for path in keep}


@dataclass(frozen=True, slots=True)
class _OfTasks(FileEvaluator):
    """What evaluators of tasks have in common."""

    def check_fields(
        self, base: BaseProblem, fields: Sequence[Assignment], options: dict[str, Any]
    ) -> None:
        """Raise `InputError` if a path leads nowhere in the task."""
        if isinstance(base.content, dict):
            override(base.content, fields)


@dataclass(frozen=True, slots=True)
class MappedPoints(_OfTasks):
    """``map``: the fastest mapping of every point, with its certificate."""

    name: str = "map"
    allowed: tuple[str, ...] = ("rules", "work_limit", "time_limit", "gap")
    parts: tuple[str, ...] = MAPPED
    units: Mapping[str, str | None] = field(default_factory=lambda: ANSWER_UNITS)

    def options(self, given: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return the options of every search: ``rules``, limits [1], [s] and ``gap`` [1]."""
        given = FileEvaluator.options(self, given, folder)
        for name in ("work_limit", "time_limit", "gap"):
            value = given.get(name)
            good = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
            if value is not None and not good:
                message = f"got {value!r}; allowed: a number, at least 0."
                raise InputError(Problem(f"options.{name}", message))
        return given

    def run(
        self, base: BaseProblem, assignments: Sequence[Assignment], keep: Sequence[str]
    ) -> PointAnswer:
        """Map one point."""
        task, options = _task(base, assignments)
        limit = options.get("time_limit")
        return mapped_point(
            task,
            keep,
            rules=rules_of(options, MAPPED),
            work_limit=options.get("work_limit"),
            time_limit=math.inf if limit is None else limit,
            gap=options.get("gap", 0.0),
        )

    def array_fields(self, base: BaseProblem, fields: Sequence[str]) -> dict[str, str]:
        """Return the numbers of the machine that plans of other machines are kept for.

        None without a ``gap`` above 0: then each point has a proof of its own; and none by rules
        of a release, or of a workload that brings its distribution over the chips.
        """
        found = machine_fields(fields)
        if not found or not base.options.get("gap"):
            return {}
        task, options = _task(base, ())
        rules = chosen_rules(rules_of(options, MAPPED), MAPPED, otherwise=task.rules)
        free = task.workload.placement is Placement.SEARCHED and rules.iteration.has_schedules
        return found if free and not task.system.chip.has_second_memory else {}

    def run_many(
        self, base: BaseProblem, assignments: Sequence[Assignment], arrays: Arrays
    ) -> PointAnswers:
        """Map many machines: a few are searched, others bounded; see `explore.retained`."""
        good = in_range(arrays)
        if not good.all():
            return answered_many(self, base, assignments, arrays, good)
        from crosstack.explore.retained import answer_many

        task, options = _task(base, assignments)
        time, work = options.get("time_limit"), options.get("work_limit")
        time = math.inf if time is None else time
        limits = Limits(work_limit=usual_work(time) if work is None else work, time_limit=time)
        rules = chosen_rules(rules_of(options, MAPPED), MAPPED, otherwise=task.rules)
        found = answer_many(task, rules, arrays, gap=options["gap"], limits=limits)
        return PointAnswers(status=found.status, reason=found.reason, terms=found.terms)


@dataclass(frozen=True, slots=True)
class GivenMapping(_OfTasks):
    """``mapping``: every point under one mapping; points that differ in numbers all at once."""

    name: str = "mapping"
    allowed: tuple[str, ...] = ("rules", "mapping")
    parts: tuple[str, ...] = MAPPED
    units: Mapping[str, str | None] = field(default_factory=lambda: UNITS)

    def options(self, given: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return the options: ``mapping``, a result saved with ``--json``, and ``rules``."""
        given = FileEvaluator.options(self, given, folder)
        name = given.get("mapping")
        if isinstance(name, dict):
            return given
        if not isinstance(name, str):
            message = "required: a result saved with crosstack map --json."
            raise InputError(Problem("options.mapping", message))
        try:
            data = json.loads(read_text(folder / name))
        except ValueError as error:
            if isinstance(error, InputError):
                raise
            raise InputError(Problem("options.mapping", f"{name} is not JSON: {error}.")) from None
        # What is priced, and under which rules, is read; times and the version are not.
        kept = {k: data.get(k) for k in ("network", "microbatch_size", "n_tiles", "kernels")}
        rules = given.get("rules", data.get("rules"))
        return {"mapping": kept} | ({} if rules is None else {"rules": rules})

    def run(
        self, base: BaseProblem, assignments: Sequence[Assignment], keep: Sequence[str]
    ) -> PointAnswer:
        """Price one point."""
        task, options = _task(base, assignments)
        mapping = mapping_from_dict(options["mapping"], task)
        answer = given_plan(task, mapping, rules_of(options, MAPPED))
        return PointAnswer(status="feasible", terms=common_terms(answer) | kept_terms(answer, keep))

    def array_fields(self, base: BaseProblem, fields: Sequence[str]) -> dict[str, str]:
        """Return the numbers of the machine that the formulas take as arrays."""
        return machine_fields(fields)

    def run_many(
        self, base: BaseProblem, assignments: Sequence[Assignment], arrays: Arrays
    ) -> PointAnswers:
        """Price many machines at once."""
        good = in_range(arrays)
        if not good.all():
            return answered_many(self, base, assignments, arrays, good)
        task, options = _task(base, assignments)
        mapping = mapping_from_dict(options["mapping"], task)
        if not can_be_arrays(task, mapping):
            return one_by_one(self, base, assignments, arrays)
        machines = Machines.of(task.system, arrays)
        found = machine_times(task, mapping, rules_of(options, MAPPED), machines)
        return PointAnswers(
            status=np.where(found.fits, "feasible", "infeasible"),
            reason=np.array([None, found.reason], dtype=object)[(~found.fits).astype(int)],
            terms=found.terms,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFunction:
    """The fastest mapping of every task that a function makes: what no field of a file says.

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
    revise: Callable[[Plan, Mapping[str, Any]], Terms] | None = None

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
