"""Studies that come with crosstack: published design spaces, point by point, into a store."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from crosstack.errors import unknown_name
from crosstack.evaluate.plan import Plan
from crosstack.explore.axes import Axis, axis_of_values
from crosstack.explore.evaluators import BaseProblem, Terms
from crosstack.explore.keys import source_hash
from crosstack.explore.mapped import TaskFunction, answer_terms
from crosstack.explore.study import Goal, Study
from crosstack.mapping.mapping import Task
from crosstack.model.rules import Rules
from crosstack.published.dfmodel.machines import GB
from crosstack.published.dfmodel.system_space import AXES, RULES, SpacePoint, result_in, task_at
from crosstack.published.figures import memory_sweep, stacked_memory
from crosstack.published.figures.figure import Figure, MappedPoint
from crosstack.published.figures.systems import systems_figure
from crosstack.published.figures.text import figure_claims

TIME_LIMIT = 60.0  # s, of one search
Row = Mapping[str, Any]
Values = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltIn:
    """A study that is asked for by its name.

    ``place`` is where it stands in the paper, ``shows`` what is varied: along ``axes``, the values
    from which ``task`` makes a task. ``figures`` returns those that rows of its store are the
    points of, with the paper's claims; ``other`` are the units of what ``revise`` says besides.
    """

    name: str
    place: str
    shows: str
    axes: tuple[Axis, ...]
    task: Callable[..., Task]
    rules: str | Rules
    objectives: tuple[str, ...]
    figures: Callable[[Sequence[Row]], list[Figure]]
    other: Mapping[str, str] = field(default_factory=dict)
    revise: Callable[[Plan, Values], Terms] | None = None

    def make(self) -> Study:
        """Return the study."""
        more = {} if self.revise is None else {"revise": self.revise}
        evaluator = TaskFunction(
            name=self.name,
            make=partial(_made, self.task),
            values=tuple(axis.name for axis in self.axes),
            version=_version(),
            rules=self.rules,
            time_limit=TIME_LIMIT,
            objectives=tuple((name, Goal.MAXIMUM) for name in self.objectives),
            other=self.other,
            **more,
        )
        base = BaseProblem(content="", source=f"DFModel, {self.place}")
        return Study(
            name=self.name,
            base=base,
            evaluator=evaluator,
            axes=self.axes,
            objectives=evaluator.objectives,
        )


@cache
def _version() -> str:
    """Tell apart two states of what makes the tasks."""
    return source_hash("published")


def _axis(name: str, labels: Mapping[Any, Any] | Sequence[str]) -> Axis:
    """Return an axis of values with their labels, or of names."""
    values = labels if isinstance(labels, Mapping) else {label: label for label in labels}
    return axis_of_values(name, [{name: value} for value in values.values()], list(values))


def _made(make: Callable[..., Task], values: Values) -> Task:
    return make(**values)


def _space_terms(answer: Plan, values: Values) -> Terms:
    """Return throughput and efficiencies as the paper counts them: from nominal peaks."""
    found = result_in(
        SpacePoint(**values), {**answer_terms(answer), "status": answer.certificate.status.value}
    )
    return {name: getattr(found, name) for name in SPACE_TERMS}


def _space_figures(rows: Sequence[Row]) -> list[Figure]:
    results = [result_in(SpacePoint(**{name: row[name] for name in AXES}), row) for row in rows]
    return [
        systems_figure(workload, [r for r in results if r.point.workload == workload])
        for workload in AXES["workload"]
    ]


def _found(row: Row) -> MappedPoint:
    return MappedPoint(utilization=row["utilization"], status=row["status"])


def _memory_figures(rows: Sequence[Row]) -> list[Figure]:
    known = {
        (round(row["sram"] / memory_sweep.MIB), round(row["memory"] / GB), row["mode"]): _found(row)
        for row in rows
    }
    return [memory_sweep.memory_sweep_figure(known)]


def _stacked_terms(answer: Plan, values: Values) -> Terms:
    """Return the throughput of a chip, which the figure shows."""
    chip = answer.task.system.chip
    return {"throughput": answer.evaluation.utilization * chip.peak_throughput}


def _stacked_figures(rows: Sequence[Row]) -> list[Figure]:
    known = {(row["memory"], row["compute"], row["mode"]): _found(row) for row in rows}
    return [stacked_memory.stacked_memory_figure(known)]


SPACE_TERMS = {
    "throughput": "FLOP/s",
    "cost_efficiency": "FLOP/s/USD",
    "power_efficiency": "FLOP/s/W",
}
STUDIES: dict[str, BuiltIn] = {
    study.name: study
    for study in (
        BuiltIn(
            name="dfmodel-dse",
            place="Fig. 10-17",
            shows="320 points: 80 systems of 1,024 chips x GPT-3 1T, DLRM, HPL, FFT",
            axes=tuple(_axis(name, values) for name, values in AXES.items()),
            task=task_at,
            rules=RULES,
            objectives=("utilization", *SPACE_TERMS),
            figures=_space_figures,
            other=SPACE_TERMS,
            revise=_space_terms,
        ),
        BuiltIn(
            name="dfmodel-fig19",
            place="Fig. 19",
            shows="18 points: SRAM x memory bandwidth, fused and kernel by kernel",
            axes=(
                _axis("sram", {f"{size} MiB": size for size in memory_sweep.SRAM}),
                _axis("memory", {f"{speed} GB/s": speed for speed in memory_sweep.MEMORY}),
                _axis("mode", memory_sweep.MODES),
            ),
            task=memory_sweep.memory_sweep_task,
            rules=memory_sweep.RULES,
            objectives=("utilization",),
            figures=_memory_figures,
        ),
        BuiltIn(
            name="dfmodel-fig22",
            place="Fig. 22",
            shows="30 points: compute share of a chip x 2-D, 2.5-D and 3-D memory, both ways",
            axes=(
                _axis("memory", tuple(stacked_memory.MEMORIES)),
                _axis("compute", {share: share for share in stacked_memory.SHARES}),
                _axis("mode", stacked_memory.MODES),
            ),
            task=stacked_memory.stacked_memory_task,
            rules=stacked_memory.RULES,
            objectives=("throughput", "utilization"),
            figures=_stacked_figures,
            other={"throughput": "FLOP/s"},
            revise=_stacked_terms,
        ),
    )
}


def built_in(name: str) -> BuiltIn:
    """Return the study called ``name``.

    Raises
    ------
    InputError
        If there is none; names the nearest.
    """
    if name not in STUDIES:
        raise unknown_name("NAME", "study is", name, STUDIES)
    return STUDIES[name]


def claims_text(study: BuiltIn, rows: Sequence[Row]) -> str:
    """Return what the paper says of a study's points beside what ``rows`` of its store say."""
    missing = sum(row["utilization"] is None for row in rows)
    if missing:
        found = "1 point has" if missing == 1 else f"{missing} points have"
        return f"{found} no answer; the paper's claims need all of them.\n"
    return "\n".join(figure_claims(figure) for figure in study.figures(rows))


def study_list() -> str:
    """Return the names of all studies with what they show."""
    wide = max(map(len, STUDIES))
    lines = [f"{name:<{wide}}  {item.place:<10}  {item.shows}" for name, item in STUDIES.items()]
    return "\n".join(lines) + "\n"
