"""An answer: the mapping, how sure it is, and what it costs, ready to be saved or drawn."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from crosstack.errors import (
    InfeasibleError,
    InputError,
    LimitError,
    Problem,
    require,
    require_jobs,
    require_quantity,
    require_whole,
    unknown_name,
)
from crosstack.evaluate.comparisons import Comparison, comparison_of
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.explanation import explained
from crosstack.evaluate.memory_front import MemoryFront, front_metric, memory_front
from crosstack.evaluate.next_plans import RankedStrategies
from crosstack.evaluate.plan_data import front_data, general_data, next_plans_data, stages_data
from crosstack.evaluate.saved import mapping_from_dict
from crosstack.evaluate.time import evaluate
from crosstack.evaluate.warned import warnings_of
from crosstack.evaluate.whole_run import (
    WholeRun,
    tokens_of_iteration,
    tokens_per_second,
    whole_run,
)
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.degrees import FREE, Degrees
from crosstack.mapping.mapping import Certificate, Constraints, Mapping, Status, Task
from crosstack.model.context import shared_tokens
from crosstack.model.dispatch import waits_for_host
from crosstack.model.expert_degrees import spread
from crosstack.model.objective import Objective, Weights, value_of
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.records import brief, plain, require_type
from crosstack.registry import VIEWS
from crosstack.version import __version__
from crosstack.workload.job import Job, as_workload
from crosstack.workload.kernels import Placement
from crosstack.workload.workload import Workload

if TYPE_CHECKING:
    from crosstack.evaluate.step_account import StepAccount
    from crosstack.mapping.search import Progress
    from crosstack.mapping.strategy_bounds import StrategyBounds

__all__ = [
    "Plan", "as_task", "evaluate_task", "given_plan", "mapping_from_dict", "optimise",
    "value_under",
]  # fmt: skip

WORK_LIMIT = 5e6  # units of work of a search that is given no limit: about 20 s
SETTLING_WORK = 1e5  # units of work of what the time of an iteration does not tell
OF_FRONT = 16  # a search of a front has one in so many of the limits
SAME = 1e-9  # relative; what rounding may do to a saved time
_GIVEN = (
    "dimension sizes", "parallelism", "microbatch size", "number of tiles", "sharding",
    "partitions",
)  # fmt: skip


def usual_work(time_limit: float) -> float:
    """Return the units of work of a search that is given none: as many as its time allows. [s]"""
    return WORK_LIMIT if math.isinf(time_limit) else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The result of `optimise`: task, rules, mapping, certificate and evaluation.

    ``tokens`` of a whole run, the plans next to this one, fastest first, and the front that it ends
    are None where they were not asked for. [1]
    """

    task: Task
    rules: Rules
    mapping: Mapping
    certificate: Certificate
    evaluation: Evaluation
    tokens: float | None = None
    next_plans: RankedStrategies | None = None
    front: MemoryFront | None = None

    __repr__ = brief

    def __str__(self) -> str:
        """Return what was found and how sure it is, in a few lines."""
        return VIEWS.get("text", brief)(self)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What nobody would run, or would look at twice; see `crosstack.evaluate.warned`."""
        return warnings_of(self.task, self.rules, self.mapping, self.evaluation)

    @property
    def degrees(self) -> Degrees:
        """Chips of each parallelism, of experts and of sequences where chips may share some. [1]"""
        job = self.task.workload, self.rules
        most = {Parallelism.EXPERT: spread(*job), Parallelism.CONTEXT: shared_tokens(*job)}
        uses = [use for use in Parallelism if most.get(use, 2) > 1]
        found = Degrees(**{use.value: self.mapping.degree(use) for use in uses})
        cut, expert = self.mapping.expert_tensor, found.expert or 1
        if cut == 1:
            return found
        parts = expert * self.mapping.degree(Parallelism.TENSOR) // cut
        return replace(found, expert=parts, expert_tensor=cut)

    @property
    def comparison(self) -> Comparison | None:
        """How long measured steps like this one took over what is said of them, if any did."""
        return comparison_of(self.task, self.rules)

    def to_dict(self) -> dict[str, Any]:
        """Return the answer as plain data, the layout of `to_json`; see ``docs/result.md``."""
        m, c, task = self.mapping, self.certificate, self.task
        framework, like = task.system.chip.framework, self.comparison
        priced = plain(self.evaluation)
        stages = m.stages or (None,) * len(priced["kernels"])
        for kernel, stage in zip(priced["kernels"], stages, strict=True):
            kernel["pipeline_stage"] = stage
        found = {
            "crosstack_version": __version__,
            "workload": task.workload.name,
            "system": task.system.name,
            "framework": None if framework is None else framework.name,
            "rules": self.rules.name,
            "status": c.status.value,
            "bound_s": c.bound if c.metric is Objective.TIME else None,
            "gap": c.gap,
            "runtime_s": c.runtime,
            "certificate": plain(c),
            "warnings": list(self.warnings),
            "compared": like and like.to_dict(self.evaluation.time),
            "item": task.workload.item,
            "gradients": plain(task.workload.gradients),
            "optimizer": plain(task.workload.optimizer),
            "n_chips": task.system.n_chips,
            "system_price_usd": priced["price_usd"]["total"],
            "system_power_w": priced["power_w"]["total"],
            "partition_times_s": [p.time for p in self.evaluation.partitions],
            "parallelism": self.degrees.by_word,
            **general_data(m),
            "tile_size": -(-task.workload.sequence_length // m.n_tiles),
            "tokens_per_s": tokens_per_second(task.workload, self.evaluation),
            "step": self.step_account().to_dict(),
            **priced,
            "memory": stages_data(self.evaluation.memory),
        }
        if self.evaluation.host_memory is not None:
            found["host_memory"] = stages_data(self.evaluation.host_memory)
        if self.run is not None:
            found["run"] = plain(self.run)
        if self.next_plans is not None:
            found["next_plans"] = next_plans_data(self, self.next_plans)
        if self.front is not None:
            found["memory_front"] = front_data(self, self.front)
        return found

    def to_json(self, *, indent: int | None = 2) -> str:
        """Return the answer as JSON; every number is finite or null."""
        return json.dumps(self.to_dict(), indent=indent, allow_nan=False) + "\n"

    @property
    def run(self) -> WholeRun | None:
        """What a run over `tokens` takes; None where they were not asked for."""
        return None if self.tokens is None else self.whole_run(self.tokens)

    def step_account(self) -> StepAccount:
        """Return where the time of an iteration goes, and what should change first."""
        from crosstack.evaluate.step_account import step_account

        return step_account(self)

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
    top: int = 0,
    front: Sequence[str] = (),
    tokens: float | None = None,
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
    top : int
        Plans next to the answer to look for, the fastest of all strategies
        (`crosstack.evaluate.ranking`); where one is faster than what the search found, it is the
        answer. [1]
    front : sequence of str
        Metrics of which to find all plans that no other beats: ``memory`` of the fullest chip and
        ``time`` (or ``price``, which moves with it), or ``energy`` where that is the objective
        (`crosstack.evaluate.memory_front`). Each search of it has a sixteenth of the limits.
    tokens : float, optional
        Of a whole run, of which the answer says what it takes. [1]
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
    from crosstack.mapping.search_problem import MACHINES

    require_type("objective", objective, Objective | str)
    if objective not in list(Objective):
        raise unknown_name("objective", "objective is", str(objective), list(Objective))
    metric, whole = Objective(objective), as_task(task, system, constraints)
    chosen = _rules(rules, whole)
    require(start is None or isinstance(start, Mapping), "start", start, "None or a Mapping")
    _check_more(whole, metric, top, front, tokens)
    work_limit = _checked_limits(work_limit, time_limit, gap, jobs, progress)
    tables: dict[object, Any] | None = {MACHINES: {}} if front else None
    limited = partial(search, jobs=jobs, progress=progress, tables=tables)
    asked = partial(
        limited,
        *(whole.workload, whole.system, whole.constraints, chosen),
        work_limit=work_limit,
        time_limit=time_limit,
    )
    noted: list[StrategyBounds | None] = []
    try:
        if metric is Objective.ENERGY_DELAY:
            mapping, certificate = _least_product(asked, whole, chosen, gap)
        else:
            known = _started(whole, start, chosen, metric)
            mapping, certificate = asked(
                gap=gap,
                start=known,
                objective=metric,
                noted=noted.append if metric is Objective.TIME and (top or front) else None,
            )
            mapping = soonest(whole, mapping, chosen) if metric is Objective.TIME else mapping
    except InputError as error:
        raise whole.as_in_file(error) from None
    answer = _priced(whole, chosen, mapping, certificate, tokens)
    if top:
        answer = _with_next_plans(answer, top, gap, next(iter(noted), None))
    if front:
        share = {"work_limit": work_limit / OF_FRONT, "time_limit": time_limit / OF_FRONT}
        asked = partial(limited, gap=gap, objective=metric, **share)
        answer = _with_front(answer, front, gap, asked, next(iter(noted), None))
    return answer


def _priced(
    task: Task, rules: Rules, mapping: Mapping, certificate: Certificate, tokens: float | None
) -> Plan:
    """Return the answer that a search found, with the value that its evaluation has.

    ``tokens`` are those of `Plan`. [1]
    """
    evaluation = evaluate(task.workload, task.system, mapping, rules)
    # Sums in another order round otherwise.
    value = value_under(certificate.metric, task.system, mapping, evaluation)
    optimal = certificate.status is Status.OPTIMAL
    bound = value if optimal else min(certificate.bound, value)
    return Plan(
        task=task,
        rules=rules,
        mapping=mapping,
        certificate=replace(certificate, objective=value, bound=bound),
        evaluation=evaluation,
        tokens=tokens,
    )


def _checked_limits(
    work_limit: float | None,
    time_limit: float,
    gap: float,
    jobs: int,
    progress: Callable[[Progress], None] | None,
) -> float:
    """Return the limit on work of a search that may be asked for so."""
    require_quantity("time_limit", time_limit, "s", infinite=True)
    require_quantity("gap", gap, "1")
    require(gap < 1, "gap", gap, "0 to below 1")
    require_jobs(jobs)
    called = progress is None or callable(progress)
    require(called, "progress", progress, "None or a function of where the search stands")
    if work_limit is None:
        return usual_work(time_limit)
    require_quantity("work_limit", work_limit, "1", infinite=True)
    return work_limit


def _check_more(
    task: Task, metric: Objective, top: int, front: Sequence[str], tokens: float | None
) -> None:
    """Refuse what cannot be said of a task besides its best mapping."""
    require_whole("top", top, minimum=0)
    ranked = not top or task.workload.placement is Placement.SEARCHED
    require(ranked, "top", top, "0 for a workload that brings its distribution over the chips")
    if front:
        priced = front_metric(front, task.system)
        require(metric is priced, "objective", metric.value, f"{priced} for this front")
    if tokens is not None:
        require_quantity("tokens", tokens, "1", above_zero=True)
        tokens_of_iteration(task.workload)


def _with_next_plans(answer: Plan, count: int, gap: float, known: StrategyBounds | None) -> Plan:
    """Return an answer with the plans next to it; the fastest of them where it is slower.

    ``known`` is what the search knows of strategies.
    """
    from crosstack.evaluate.ranking import Answer, next_plans

    before = Answer(answer.mapping, answer.evaluation, answer.certificate)
    uses = {} if known is None else known.of_uses()
    found, ranked = next_plans(answer.task, answer.rules, before, count, gap=gap, known=uses)
    return replace(answer, **found._asdict(), next_plans=ranked)


def _with_front(
    answer: Plan,
    metrics: Sequence[str],
    gap: float,
    search: Callable[..., Any],
    known: StrategyBounds | None,
) -> Plan:
    """Return an answer with the front that it ends; the last of that where it is worse.

    ``known`` is what the search knows of strategies.
    """
    from crosstack.evaluate.ranking import certified
    from crosstack.mapping.known_strategies import search_known

    task = answer.task

    def find(
        system: System, best: tuple[Mapping, float] | None, within: StrategyBounds | None
    ) -> tuple[Mapping, Certificate, StrategyBounds | None]:
        given = task.workload, system, task.constraints, answer.rules
        if known is None:
            return *search(*given, start=best), None
        return search_known(search, *given, known=within, best=best, gap=gap)

    light = None if known is None else known.lighter(known.bounds < math.inf)
    first = answer.mapping, answer.certificate.bound, light
    front = memory_front(task, answer.rules, find, first, metrics=metrics, gap=gap)
    best = front.points[-1]
    if best.value < answer.certificate.objective:
        proved = certified(answer.certificate, best.value, gap, "the best within less memory")
        answer = replace(
            answer, mapping=best.mapping, evaluation=best.evaluation, certificate=proved
        )
    return replace(answer, front=front)


def value_under(metric: Objective, system: System, mapping: Mapping, found: Evaluation) -> float:
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
        energy = value_under(Objective.ENERGY, task.system, mapping, found)
        return Point(found.time, energy, mapping), certificate

    return least_product(find, gap)


def soonest(task: Task, mapping: Mapping, rules: Rules) -> Mapping:
    """Return a mapping, or where chips wait for their host one that takes as long and waits most.

    The time of an iteration then does not tell how its kernels are grouped and split: they are so
    that a layer is through soonest.
    """
    from crosstack.mapping.parallelism import Use
    from crosstack.mapping.search import search

    if not waits_for_host(task.system.chip):
        return mapping
    found = evaluate(task.workload, task.system, mapping, rules)
    if found.layer_time * mapping.microbatch_size >= found.host_time:
        return mapping
    given = replace(
        task.constraints,
        degrees=FREE,
        microbatch_size=None,
        recompute=mapping.recompute,
        recompute_layers=mapping.recompute_layers,
        interleave=mapping.interleave,
        zero=mapping.zero,
    )
    use = Use.of(mapping, (mapping.microbatch_size,))
    asked = task.workload, task.system.replayed, given, rules
    try:
        other, _ = search(*asked, uses=(use,), work_limit=SETTLING_WORK)
    except LimitError:
        return mapping
    again = evaluate(task.workload, task.system, other, rules)
    return other if again.time <= found.time * (1 + SAME) else mapping


def _started(
    task: Task, start: Mapping | None, rules: Rules, metric: Objective
) -> tuple[Mapping, float] | None:
    """Return a mapping to start from with its objective, or None where it does not fit."""
    if start is None:
        return None
    try:
        found = evaluate(task.workload, task.system, start, rules)
        return start, value_under(metric, task.system, start, found)
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
