"""A machine of a generated chip with its best mapping, as a search for a front keeps it."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field
from typing import Any

from crosstack.errors import InfeasibleError
from crosstack.evaluate.answer import Answer
from crosstack.explore.evaluators import PointAnswer, Terms
from crosstack.explore.machines import MachineChoice, UnitPrices
from crosstack.explore.mapped import ANSWER_UNITS, mapped_point
from crosstack.machine.generate.generation import Generation
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.attention import iteration_work
from crosstack.model.ends import counted
from crosstack.model.rates import reached_rate
from crosstack.model.rules import Rules
from crosstack.workload.workload import Workload

__all__ = ["TERMS", "CodesignProblem", "Mapped", "least_time", "map_machine"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CodesignProblem:
    """What is mapped, onto which machines.

    Parameters
    ----------
    workload, constraints : Workload, Constraints
        What is mapped, and what is given of the mapping.
    choices : tuple of MachineChoice
        Technologies and numbers of chips.
    prices : UnitPrices
        Beside the dies.
    chip_rules : Generation
        How chips are generated.
    rules : Rules
        How a mapping is counted.
    limits : mapping of str to float
        Of ``price`` [USD], ``power`` [W] and ``time`` [s], what a machine must not exceed.
    time_limit : float
        Of each mapping. [s]
    gap : float
        Relative gap at which a mapping is good enough. [1]
    """

    workload: Workload
    choices: tuple[MachineChoice, ...]
    prices: UnitPrices
    chip_rules: Generation
    rules: Rules
    constraints: Constraints = field(default_factory=Constraints)
    limits: dict[str, float] = field(default_factory=dict)
    time_limit: float = math.inf
    gap: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Mapped:
    """The best mapping of a candidate in short.

    ``time`` is that of an iteration, ``bound`` what no mapping beats. [s]
    """

    time: float
    bound: float
    status: str
    tensor: int
    pipeline: int
    data: int
    bound_by: str

    @classmethod
    def of(cls, answer: PointAnswer) -> Mapped:
        """Return what a store keeps of a mapping."""
        found: dict[str, Any] = dict(answer.terms)
        return cls(
            time=found["time"],
            bound=found["bound"],
            status=answer.status,
            tensor=int(found["tensor"]),
            pipeline=int(found["pipeline"]),
            data=int(found["data"]),
            bound_by=found["bound_by"],
        )


def least_time(workload: Workload, system: System, rules: Rules) -> float:
    """Return a time that no mapping beats: all compute busy at its utilization. [s]"""
    chip = system.chip
    throughput = reached_rate(chip, workload.graph.dtype, rules)
    done = iteration_work(counted(workload, rules), chip, rules.traffic)
    return done / (system.copies * system.n_chips * throughput)


TERMS: dict[str, str | None] = {
    **ANSWER_UNITS,
    "bound_by": None,
    "chip_area": "m^2",
    "die_price": "USD",
    "yield": "1",
}
"""What comes of a machine, with units."""


def map_machine(problem: CodesignProblem, item: tuple[int, System]) -> tuple[PointAnswer, float]:
    """Return the best mapping of a numbered machine, or why there is none; and the time. [s]"""
    begun, (_, system) = time.perf_counter(), item
    task = Task(workload=problem.workload, system=system, constraints=problem.constraints)
    try:
        answer = mapped_point(
            task,
            terms=_bound_by,
            rules=problem.rules,
            time_limit=problem.time_limit,
            gap=problem.gap,
        )
    except InfeasibleError as error:
        reason = f"{error.resource} of {error.where.rstrip(',')}"  # which goes on elsewhere
        answer = PointAnswer(status="infeasible", reason=reason)
    return answer, time.perf_counter() - begun


def _bound_by(answer: Answer) -> Terms:
    shares: dict[str, float] = {}
    for partition in answer.evaluation.partitions:
        shares[partition.bound_by] = shares.get(partition.bound_by, 0.0) + partition.time
    return {"bound_by": max(shares, key=lambda name: shares[name], default="")}
