"""An answer: the mapping, how sure it is, and what it costs, ready to be saved or drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from crosstack.errors import (
    InfeasibleError,
    InputError,
    Problem,
    require,
    require_jobs,
    require_quantity,
    unknown_name,
)
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.explanation import explained
from crosstack.evaluate.saved import mapping_from_dict
from crosstack.evaluate.time import evaluate
from crosstack.evaluate.whole_run import WholeRun, whole_run
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status, Stop, Task
from crosstack.model.memory import ROWS
from crosstack.model.mesh_plan import spread
from crosstack.model.objective import Objective, Weights, value_of
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.records import brief, plain, require_type
from crosstack.registry import VIEWS
from crosstack.units import format_quantity
from crosstack.version import __version__
from crosstack.workload.job import Job, as_workload
from crosstack.workload.workload import Workload

if TYPE_CHECKING:
    from crosstack.mapping.search import Progress

__all__ = [
    "Plan", "as_task", "evaluate_task", "given_plan", "mapping_from_dict", "optimise", "saved_plan",
]  # fmt: skip

WORK_LIMIT = 3e6  # units of work of a search that is given no limit: about 20 s
SAME = 1e-9  # relative; what rounding may do to a saved time
_GIVEN = (
    "dimension sizes", "parallelism", "microbatch size", "number of tiles", "sharding",
    "partitions",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of `optimise`: task, rules, mapping, certificate and evaluation."""

    task: Task
    rules: Rules
    mapping: Mapping
    certificate: Certificate
    evaluation: Evaluation

    __repr__ = brief

    def __str__(self) -> str:
        """Return what was found and how sure it is, in a few lines."""
        return VIEWS.get("text", brief)(self)

    @property
    def has_experts(self) -> bool:
        """Whether data-parallel chips may have parts of the experts each, by the rules, too."""
        return spread(self.task.workload, self.rules) > 1

    @property
    def degrees(self) -> Degrees:
        """Chips of each parallelism, of experts where there are some. [1]"""
        uses = [use for use in Parallelism if use is not Parallelism.EXPERT or self.has_experts]
        return Degrees(**{use.value: self.mapping.degree(use) for use in uses})

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the layout of `to_json`; see ``docs/result.md``."""
        m, c, task = self.mapping, self.certificate, self.task
        priced = plain(self.evaluation)
        stages = m.stages or (None,) * len(priced["kernels"])
        places = m.dimensions or range(len(m.sizes))
        for kernel, stage in zip(priced["kernels"], stages, strict=True):
            kernel["pipeline_stage"] = stage
        return {
            "crosstack_version": __version__,
            "workload": task.workload.name,
            "system": task.system.name,
            "rules": self.rules.name,
            "status": c.status.value,
            "bound_s": c.bound if c.metric is Objective.TIME else None,
            "gap": c.gap,
            "runtime_s": c.runtime,
            "certificate": plain(c),
            "item": task.workload.item,
            "n_chips": task.system.n_chips,
            "system_price_usd": priced["price_usd"]["total"],
            "system_power_w": priced["power_w"]["total"],
            "partition_times_s": [p.time for p in self.evaluation.partitions],
            "parallelism": self.degrees.by_word,
            "network": [
                {"dimension": i, "size": size, "parallelism": use.value}
                for i, size, use in zip(places, m.sizes, m.parallelism, strict=True)
            ],
            "microbatch_size": m.microbatch_size,
            "recompute": m.recompute.value,
            "schedule": m.schedule.value,
            "interleave": m.interleave,
            "zero": m.zero.value,
            "n_tiles": m.n_tiles,
            "tile_size": -(-task.workload.sequence_length // m.n_tiles),
            **priced,
            "memory": [
                {f"{row}_b": getattr(stage, row) for row in (*ROWS, "total")}
                for stage in self.evaluation.memory.stages
            ],
        }

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the answer as JSON; every number is finite or null."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False) + "\n"

    def whole_run(self, tokens: float) -> WholeRun:
        """Return what a run over so many tokens takes: time, chip-hours, energy, money. [1]"""
        return whole_run(self.task, self.evaluation, tokens)

    def explain(self, partition: int, term: str = "time") -> str:
        """Say where a number comes from; see `crosstack.evaluate.explanation.explained`."""
        return explained(self.evaluation, self.task.system, partition, term)

    def _repr_html_(self) -> str | None:
        """Show the answer in a notebook."""
        return VIEWS["html"](self) if "html" in VIEWS else None


def as_task(
    task: Task | Workload | Job, system: System | None, constraints: Constraints | None
) -> Task:
    """Return a task of what is given: one, perhaps with another machine, or a workload on one.

    Raises `InputError` if one of them is something else, or a workload comes without a system.
    """
    require_type("task", task, Task | Workload | Job)
    require_type("system", system, System | None)
    require_type("constraints", constraints, Constraints | None)
    if isinstance(task, Task):
        return replace(
            task, system=system or task.system, constraints=constraints or task.constraints
        )
    if system is None:
        raise InputError(Problem("system", "missing: a workload alone cannot be mapped."))
    return Task(workload=as_workload(task), system=system, constraints=constraints or Constraints())


def _rules(rules: Rules | str | None, task: Task) -> Rules:
    require_type("rules", rules, Rules | str | None)
    return chosen_rules(rules, MAPPED, otherwise=task.rules)


def optimise(
    task: Task | Workload | Job,
    system: System | None = None,
    *,
    constraints: Constraints | None = None,
    rules: Rules | str | None = None,
    work_limit: float | None = None,
    time_limit: float = math.inf,
    gap: float = 0.0,
    jobs: int = 1,
    start: Mapping | None = None,
    objective: Objective | str = Objective.TIME,
    progress: Callable[[Progress], None] | None = None,
) -> Plan:
    """Find the best mapping of a workload onto a system, prove it and price it.

    Parameters
    ----------
    task : Task, Workload or Job
        What `crosstack.load` returns; or a workload or a job, then ``system`` is needed.
    constraints : Constraints, optional
        Decisions that are given; those of the task if left out.
    rules : Rules or str, optional
        What is counted; by name, that of the task, or ``crosstack``.
    work_limit : float, optional
        Units of work, of a few microseconds each, after which the best mapping so far comes back
        with its bound: the same on any machine, however busy, and for any ``jobs``; infinite for
        no limit. Left out: `WORK_LIMIT`, or none where there is a ``time_limit``. [1]
    time_limit : float
        Seconds after which the same happens. [s]
    gap : float
        Relative gap at which to stop. [1]
    jobs : int
        Processes that search together; the answer is the same. [1]
    start : Mapping, optional
        A mapping to start from, such as that of an answer to a question much like this one; the
        answer is no slower. One that does not fit is left out.
    objective : Objective or str
        What is minimised: ``time``, ``energy``, ``price`` or ``energy-delay``, see
        `crosstack.model.objective`.
    progress : callable, optional
        Called now and then with where the search stands.

    Raises
    ------
    InfeasibleError
        If nothing fits.
    InputError
        If a power or price that the objective needs is not given, or the input contradicts itself.
    """
    # The search is most of the package; pricing a given mapping needs none of it.
    from crosstack.mapping.search import search

    require_type("objective", objective, Objective | str)
    if objective not in list(Objective):
        raise unknown_name("objective", "objective is", str(objective), list(Objective))
    metric, whole = Objective(objective), as_task(task, system, constraints)
    chosen = _rules(rules, whole)
    require_quantity("time_limit", time_limit, "s", infinite=True)
    require_quantity("gap", gap, "1")
    require(gap < 1, "gap", gap, "0 to below 1")
    require_jobs(jobs)
    called = progress is None or callable(progress)
    require(called, "progress", progress, "None or a function of where the search stands")
    if work_limit is None:
        work_limit = WORK_LIMIT if math.isinf(time_limit) else math.inf
    require_quantity("work_limit", work_limit, "1", infinite=True)
    require(start is None or isinstance(start, Mapping), "start", start, "None or a Mapping")
    asked = partial(
        search,
        *(whole.workload, whole.system, whole.constraints, chosen),
        work_limit=work_limit,
        time_limit=time_limit,
        jobs=jobs,
        progress=progress,
    )
    try:
        if metric is Objective.ENERGY_DELAY:
            mapping, certificate = _least_product(asked, whole, chosen, gap)
        else:
            known = _started(whole, start, chosen, metric)
            mapping, certificate = asked(gap=gap, start=known, objective=metric)
    except InputError as error:
        raise whole.as_in_file(error) from None
    evaluation = evaluate(whole.workload, whole.system, mapping, chosen)
    # Sums in another order round otherwise.
    value = _value(certificate.metric, whole.system, mapping, evaluation)
    optimal = certificate.status is Status.OPTIMAL
    bound = value if optimal else min(certificate.bound, value)
    return Plan(
        task=whole,
        rules=chosen,
        mapping=mapping,
        certificate=replace(certificate, objective=value, bound=bound),
        evaluation=evaluation,
    )


def _value(metric: Objective, system: System, mapping: Mapping, found: Evaluation) -> float:
    """Value of the objective for an evaluated mapping."""
    return value_of(metric, system, mapping.dimension_sizes, time=found.time, energy=found.energy)


def _least_product(
    asked: Callable[..., tuple[Mapping, Certificate]], task: Task, rules: Rules, gap: float
) -> tuple[Mapping, Certificate]:
    """Search for the least energy times time, each search ``asked`` within the limits."""
    from crosstack.mapping.product import Point, least_product

    def find(weights: Weights) -> tuple[Point, Certificate]:
        metric = Objective.TIME if weights.only_time else Objective.ENERGY
        mapping, certificate = asked(objective=metric, weights=weights)
        found = evaluate(task.workload, task.system, mapping, rules)
        energy = _value(Objective.ENERGY, task.system, mapping, found)
        return Point(found.time, energy, mapping), certificate

    return least_product(find, gap)


def _started(
    task: Task, start: Mapping | None, rules: Rules, metric: Objective
) -> tuple[Mapping, float] | None:
    """Return a mapping to start from with its objective, or None where it does not fit."""
    if start is None:
        return None
    try:
        found = evaluate(task.workload, task.system, start, rules)
        return start, _value(metric, task.system, start, found)
    except InfeasibleError:
        return None


def evaluate_task(
    task: Task | Workload | Job,
    system: System | Mapping | None = None,
    mapping: Mapping | None = None,
    rules: Rules | str | None = None,
) -> Evaluation:
    """Price a given mapping: ``(workload, system, mapping)`` or ``(task, mapping)``.

    Parameters
    ----------
    rules : Rules or str, optional
        What is counted; by name, that of the task, or ``crosstack``.

    Raises
    ------
    InputError, InfeasibleError
        As `crosstack.evaluate.time.evaluate`.
    """
    require_type("system", system, System | Mapping | None)
    require_type("mapping", mapping, Mapping | None)
    if isinstance(system, Mapping):
        system, mapping = None, system
    whole = as_task(task, system, None)
    if mapping is None:
        raise InputError(Problem("mapping", "missing: there is nothing to evaluate."))
    return evaluate(whole.workload, whole.system, mapping, _rules(rules, whole))


def given_plan(task: Task, mapping: Mapping, rules: Rules | str | None = None) -> Plan:
    """Return the answer of a mapping that is given: every decision given, nothing proved.

    Raises
    ------
    InputError, InfeasibleError
        As `crosstack.evaluate.time.evaluate`.
    """
    chosen = _rules(rules, task)
    evaluation = evaluate(task.workload, task.system, mapping, chosen)
    certificate = Certificate(
        status=Status.FEASIBLE,
        objective=evaluation.time,
        bound=0.0,
        method="evaluation of a given mapping",
        free=(),
        given=_GIVEN + (() if mapping.stages is None else ("stages",)),
        runtime=0.0,
    )
    return Plan(
        task=task, rules=chosen, mapping=mapping, certificate=certificate, evaluation=evaluation
    )


def saved_plan(data: dict[str, Any], task: Task, rules: Rules | str | None = None) -> Plan:
    """Return a saved answer (`Plan.to_dict`), priced again.

    Its certificate is kept only where the time is the saved one; otherwise the task, the rules or
    the formulas have changed since, nothing is proved, and the method says so.

    Raises
    ------
    InputError, InfeasibleError
        If the mapping does not fit the task, or the certificate is none.
    """
    answer = given_plan(task, mapping_from_dict(data, task), rules)
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
    value = _value(kept.metric, answer.task.system, answer.mapping, answer.evaluation)
    if math.isclose(kept.objective, value, rel_tol=SAME):
        return replace(answer, certificate=replace(kept, objective=value))
    before = format_quantity(kept.objective, kept.metric.unit, 6)
    method = f"{answer.certificate.method}; it was saved with {before}"
    return replace(answer, certificate=replace(answer.certificate, method=method))
