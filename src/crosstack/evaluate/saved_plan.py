"""Saved answers, read and priced again."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from crosstack.errors import InfeasibleError, InputError, Problem, require_quantity, require_whole
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.memory_front import FrontPoint, MemoryFront, front_metric
from crosstack.evaluate.next_plans import RankedStrategies
from crosstack.evaluate.plan import SAME, Plan, given_plan, value_under
from crosstack.evaluate.saved import mapping_from_dict
from crosstack.evaluate.time import evaluate
from crosstack.evaluate.whole_run import tokens_of_iteration
from crosstack.mapping.mapping import Certificate, Mapping, Status, Stop, Task
from crosstack.model.objective import Objective
from crosstack.model.rules import Rules
from crosstack.units import format_quantity


def saved_plan(data: dict[str, Any], task: Task, rules: Rules | str | None = None) -> Plan:
    """Return a saved answer (`Plan.to_dict`), priced again, with the plans next to it.

    Its certificate is kept only where the time is the saved one; otherwise the task, the rules or
    the formulas have changed since, nothing is proved, and the method says so.

    Raises
    ------
    InputError, InfeasibleError
        If the mapping does not fit the task, or the certificate is none.
    """
    answer = given_plan(task, mapping_from_dict(data, task), rules)
    answer = replace(
        answer,
        tokens=_saved_tokens(data, task),
        next_plans=_saved_plans(data, answer),
        front=_saved_front(data, answer),
    )
    saved = data.get("certificate")
    if not isinstance(saved, dict):
        return answer
    try:
        kept = Certificate(
            status=Status(saved["status"]),
            metric=Objective(saved["metric"]),
            objective=float(saved["objective"]),
            bound=float(saved["bound"]),
            method=str(saved["method"]),
            free=tuple(map(str, saved["free"])),
            given=tuple(map(str, saved["given"])),
            runtime=float(saved["runtime_s"]),
            stopped=Stop(saved["stopped"]) if saved.get("stopped") else None,
        )
    except InputError as error:
        raise error.under("certificate") from None
    except (KeyError, TypeError, ValueError) as error:
        message = f"is none: {type(error).__name__}: {error}."
        raise InputError(Problem("certificate", message)) from None
    value = value_under(kept.metric, answer.task.system, answer.mapping, answer.evaluation)
    if math.isclose(kept.objective, value, rel_tol=SAME):
        return replace(answer, certificate=replace(kept, objective=value))
    before = format_quantity(kept.objective, kept.metric.unit, 6)
    method = f"{answer.certificate.method}; it was saved with {before}"
    return replace(answer, certificate=replace(answer.certificate, method=method))


def _saved_tokens(data: dict[str, Any], task: Task) -> float | None:
    """Return the tokens of a run that a saved answer says something of."""
    run = data.get("run")
    if run is None:
        return None
    tokens = run.get("tokens") if isinstance(run, dict) else run
    with_run = InputError(Problem("run.tokens", f"got {tokens!r:.60}; allowed: a number above 0."))
    if not isinstance(tokens, int | float) or isinstance(tokens, bool) or not 0 < tokens < math.inf:
        raise with_run
    tokens_of_iteration(task.workload)
    return float(tokens)


def _saved_plans(data: dict[str, Any], answer: Plan) -> RankedStrategies | None:
    """Return the plans next to a saved answer, priced again; those that no longer fit are left out.

    They are in the order of what they take now.
    """
    saved = data.get("next_plans")
    if saved is None:
        return None
    rows = _rows(saved, "next_plans", "plans")
    found = [
        (mapping, priced, min(bound, priced.time))
        for mapping, priced, (bound,) in _priced(
            rows, "next_plans.plans", answer, ("bound_s",), "s"
        )
    ]
    found.sort(key=lambda one: one[1].time)
    counts = {name: saved.get(name, 0) for name in ("strategies", "blocks")}
    for name, count in counts.items():
        require_whole(f"next_plans.{name}", count, minimum=0)
    left = saved.get("left_bound_s", 0.0)
    if left is not None:
        require_quantity("next_plans.left_bound_s", left, "s")
    return RankedStrategies(
        found=tuple((mapping, priced) for mapping, priced, _ in found),
        total=counts["strategies"],
        blocks=counts["blocks"],
        bounds=tuple(bound for *_, bound in found),
        left=math.inf if left is None else left,
    )


def _saved_front(data: dict[str, Any], answer: Plan) -> MemoryFront | None:
    """Return the front of a saved answer, priced again; points that no longer fit are left out."""
    saved = data.get("memory_front")
    if saved is None:
        return None
    task, rows = answer.task, _rows(saved, "memory_front", "points")
    try:
        metrics = tuple(map(str, saved.get("metrics", ())))
        metric = front_metric(metrics, task.system)
        least, searches = saved.get("least_memory_b", 0.0), saved.get("searches", 0)
        require_quantity("least_memory_b", least, "B")
        require_whole("searches", searches, minimum=0)
    except InputError as error:
        raise error.under("memory_front") from None
    points, names = [], ("bound", "least")
    found = _priced(rows, "memory_front.points", answer, names, metric.unit)
    for mapping, priced, saved_bounds in found:
        value = value_under(metric, task.system, mapping, priced)
        bound, own = (min(one, value) for one in saved_bounds)
        points.append(
            FrontPoint(mapping=mapping, evaluation=priced, value=value, bound=bound, least=own)
        )
    return MemoryFront(
        metrics=metrics,
        metric=metric,
        points=tuple(points),
        least_memory=least,
        searches=searches,
    )


def _rows(saved: Any, field: str, name: str) -> list[dict[str, Any]]:
    """Return the mappings of a list in a saved answer; raises `InputError` where there is none."""
    rows = saved.get(name) if isinstance(saved, dict) else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(Problem(f"{field}.{name}", "missing; allowed: a list of mappings."))
    return rows


def _priced(
    rows: list[dict[str, Any]], where: str, answer: Plan, bounds: Sequence[str], unit: str
) -> Iterator[tuple[Mapping, Evaluation, tuple[float, ...]]]:
    """Give mappings that were saved next to an answer as priced now, and their bounds. [``unit``]

    Those that no longer fit are left out.
    """
    for number, row in enumerate(rows):
        try:
            mapping = mapping_from_dict(row, answer.task)
            least = tuple(row.get(bound, 0.0) for bound in bounds)
            priced = evaluate(answer.task.workload, answer.task.system, mapping, answer.rules)
            for bound, value in zip(bounds, least, strict=True):
                require_quantity(bound, value, unit)
        except InfeasibleError:
            continue
        except InputError as error:
            raise error.under(f"{where}[{number}]") from None
        yield mapping, priced, least
