"""Runs that were measured on machines, beside what we say of them; see ``measured.yaml``."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from crosstack.evaluate.evaluation import Evaluation
from crosstack.io.yaml_tree import parse_yaml
from crosstack.mapping.mapping import Mapping, Task
from crosstack.published.case import Progress, Row, held_row, run_each, silent, solved
from crosstack.published.dfmodel.runs import published_mapping, published_task

AVERAGE = 0.10  # the tolerance of a run that names none
_TOLD: Any = parse_yaml(files(__package__).joinpath("measured.yaml").read_text(encoding="utf-8"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measured number, the task that stands for its run, and how ours follows from it.

    ``modelled`` is what DFModel says, in the same unit; ``logged`` its time of one iteration, where
    the quantity is relative to it. [s]
    """

    name: str
    source: str
    quantity: str
    unit: str
    measured: float
    task: Task
    rules: str
    tolerance: float = AVERAGE
    modelled: float | None = None
    logged: float = 1.0
    mapping: Mapping | None = None
    note: str = ""
    reason: str = ""

    def ours(self, found: Evaluation) -> float:
        """Return our number, in ``unit``."""
        match self.quantity:
            case "throughput":
                return found.work / found.time
            case "tokens a second":  # of one sequence
                return 1 / found.latency
            case "throughput over DFModel's":
                return self.logged / found.time
            case _:
                return found.time / self.logged


def measured_cases() -> list[Measured]:
    """Return every case, in the order of the published table."""
    return [_case(name, told) for name, told in _TOLD.items()]


def _case(name: str, told: Any) -> Measured:
    known = {key: value for key, value in told.items() if key not in ("task", "mapping")}
    task = published_task(told["task"])
    mapping = published_mapping(told["mapping"], task) if "mapping" in told else None
    return Measured(name=name, task=task, mapping=mapping, **known)


def measured_rows(progress: Progress = silent) -> list[Row]:
    """Run every measured case and return its row."""
    return run_each(measured_cases(), run_measured, progress)


def run_measured(case: Measured) -> Row:
    """Evaluate or optimise a case and return its row."""
    answer, status = solved(case.task, case.rules, case.mapping, 60.0)
    return held_row(
        suite="measured",
        case=case.name,
        source=case.source,
        rules=case.rules,
        quantity=case.quantity,
        unit=case.unit,
        published=case.measured,
        ours=case.ours(answer.evaluation),
        tolerance=case.tolerance,
        status=status,
        note=case.note,
        reason=case.reason,
        modelled=case.modelled,
    )
