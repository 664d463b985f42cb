"""Results that commands saved with ``--json``, read again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstack.cli.inputs import in_file, refuse, rules_given
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from rich.console import RenderableType

    from crosstack.evaluate.plan import Plan
    from crosstack.mapping.mapping import Task
    from crosstack.model.rules import Rules
    from crosstack.report.pages.study_table import StudyTable


@dataclass(frozen=True, slots=True)
class SavedResult:
    """What a result can be shown as: tables, a page, and rows for other tools if it is a search."""

    tables: Callable[[], RenderableType]
    page: Callable[[], str]
    study: Callable[[], StudyTable] | None = None


def saved_result(
    file: Path, data: dict[str, Any], task: Path | None = None, rules: str | None = None
) -> SavedResult:
    """Return a result that is checked; a mapping is checked with its task when it is shown.

    Parameters
    ----------
    file : Path
        Where it is from.
    data : dict
        What the file holds.
    task, rules : Path, str, optional
        Of a mapping, if not its own.
    """
    with in_file(file):
        found = _of_search(file, data)
    if found is not None:
        refuse({"--task": task, "--rules": rules}, "allowed: with a mapping alone.")
        return found

    def tables() -> RenderableType:
        from crosstack.report.text import answer_tables

        return answer_tables(result_answer(file, data, task, rules))

    def page() -> str:
        from crosstack.report.html import answer_html

        return answer_html(result_answer(file, data, task, rules))

    return SavedResult(tables, page)


def _prediction(file: Path, data: dict[str, Any]) -> SavedResult:
    """Return a prediction; where it holds the plan of the step, that is priced again and shown."""
    from crosstack.report.prediction_text import prediction_html, prediction_tables

    def plan() -> Plan | None:
        with in_file(file):
            held = data.get("plan")
            return None if held is None else result_answer(file, held, None, None)

    return SavedResult(
        lambda: prediction_tables(data, plan()), lambda: prediction_html(data, plan())
    )


def _of_search(file: Path, data: dict[str, Any]) -> SavedResult | None:
    """Return a front, a design, a prediction or why nothing fits; None for a mapping."""
    from crosstack.io import saved_file

    if saved_file.is_front(data):
        from crosstack.report import front_text as front

        views = (front.front_tables, front.front_html, front.front_study)
        return _seen(saved_file.check_front(data), *views)
    if saved_file.is_optimum(data):
        from crosstack.report import optimize_text as optimum

        shown = (optimum.optimum_tables, optimum.optimum_html, optimum.optimum_study)
        return _seen(saved_file.check_optimum(data), *shown)
    if saved_file.is_prediction(data):
        return _prediction(file, saved_file.check_prediction(data))
    if saved_file.is_infeasible(data):
        from crosstack.report.fitting_text import ways_html, ways_tables

        return _seen(saved_file.check_ways(data), ways_tables, ways_html)
    return None


def _seen(data: dict[str, Any], *views: Callable[[dict[str, Any]], Any]) -> SavedResult:
    return SavedResult(*(partial(view, data) for view in views))


def result_rules(name: str | None, result: Path, data: dict[str, Any], task: Task) -> Rules:
    """Return the rules to price a saved mapping under: ``--rules``, else the result's own.

    A result without rules is priced under those of the file, as by `crosstack.optimise`.
    """
    from crosstack.model.rules import MAPPED, chosen_rules, rules_named

    given = rules_given(name)
    saved = data.get("rules")
    if given is not None or saved is None:
        return chosen_rules(given, MAPPED, otherwise=task.rules)
    try:
        if not isinstance(saved, str):
            raise InputError(Problem("rules", "not a name; allowed: the name of a rule set."))
        return rules_named(saved, MAPPED)
    except InputError as error:
        hint = " Rules that are not built in are given with --rules FILE."
        raise InputError(
            Problem(f"{result}: {p.path}", f"{p.message}{hint}") for p in error.problems
        ) from None


def read_result(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file saved with ``--json``."""
    from crosstack.io.files import read_text

    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        where = f"{path}: line {error.lineno}, column {error.colno}"
        allowed = "allowed: a file saved with --json"
        raise InputError(Problem(where, f"not JSON: {error.msg}; {allowed}.")) from None
    except RecursionError:
        raise InputError(Problem(str(path), "not a result: nested too deep.")) from None
    except ValueError as error:  # a whole number of more digits than Python converts
        if isinstance(error, InputError):
            raise
        raise InputError(Problem(str(path), "not a result: a number is too long.")) from None
    if not isinstance(data, dict):
        raise InputError(Problem(str(path), "not a result; allowed: a file saved with --json."))
    return data


def result_answer(result: Path, data: dict[str, Any], file: Path | None, rules: str | None) -> Plan:
    """Return a saved result with its task, which it holds or which is in a file of its own."""
    import crosstack
    from crosstack.evaluate.saved_plan import saved_plan
    from crosstack.io.native import read_task

    if file is not None:
        task = crosstack.load(file)
    elif isinstance(data.get("task"), str):
        with in_file(result):
            task = read_task(data["task"], "task")
    else:
        message = "missing from the result; give the file that was mapped with --task."
        raise InputError(Problem(f"{result}: task", message))
    chosen = result_rules(rules, result, data, task)
    with in_file(result):
        return saved_plan(data, task, rules=chosen)
