"""A design and what it is worth: a chip from a budget, one step of a workload on many of them.

The free numbers are how area, power and edge are shared out over the components, and how much of
the package the chip takes. All chips of a request are generated at once, as arrays; each is then
timed with all its products in one search over tilings.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InfeasibleError, InputError, LimitError
from crosstack.evaluate.predict import WORK_LIMIT, Prediction, Program, Step, predict
from crosstack.evaluate.step_settings import StepSettings
from crosstack.explore.budget_space import BudgetSpace
from crosstack.explore.search import Value
from crosstack.machine.chip import Chip
from crosstack.machine.generate.checks import checks_of
from crosstack.machine.generate.generated import GeneratedChip, chip_at, generate
from crosstack.machine.generate.generator import GeneratedChips, generate_chips
from crosstack.machine.system import System
from crosstack.mapping.mapping import Mapping
from crosstack.mapping.strategy import MappingOrder, Strategy
from crosstack.model.energy import Energy, energy_of_budget
from crosstack.model.rules import Rules
from crosstack.quantities import compared

__all__ = ["Design", "DesignProblem", "Metric", "Metrics"]

Floats = NDArray[np.float64]
QUICK = 1e4  # units of work of a mapping that designs are compared by [1]


class Metric(StrEnum):
    """What can be minimised or limited: time of a step, energy of a step, power, area of a chip.

    ``power`` [W] is what all chips draw, ``energy`` [J] that of `energy_of_budget`; ``area`` [m^2]
    is that of one chip; ``energy_delay`` [J s].
    """

    TIME = "time"
    ENERGY = "energy"
    ENERGY_DELAY = "energy_delay"
    POWER = "power"
    AREA = "area"

    @property
    def spare(self) -> tuple[str, ...]:
        """Of ``area`` and ``power``, what a design may leave: a smaller or slower chip may win.

        None where time alone counts.
        """
        return () if self is Metric.TIME else ("area", "power")

    @property
    def unit(self) -> str:
        """Of its values."""
        units = {"time": "s", "energy": "J", "energy_delay": "J s", "power": "W", "area": "m^2"}
        return units[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What a design comes to: ``time`` [s], ``power`` [W] of all chips, chip ``area`` [m^2]."""

    time: float
    power: float
    area: float

    @property
    def energy(self) -> Energy:
        """Of a step, of all chips."""
        return energy_of_budget(self.power, self.time)

    def value(self, measure: Metric) -> float:
        """Return one of them, or what follows from them."""
        if measure is Metric.ENERGY:
            return self.energy.total
        if measure is Metric.ENERGY_DELAY:
            return self.energy.total * self.time
        return float(getattr(self, measure.value))


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A chip, the step on a system of it, and what that comes to."""

    chip: GeneratedChip
    system: System
    prediction: Prediction
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DesignProblem:
    """What is given and what is free.

    Parameters
    ----------
    free : BudgetSpace
        The chip: what it is made of, and how its budget may be shared out.
    workload : Step
        What is timed.
    strategy : Strategy
        How it is spread over chips.
    system : callable
        The machine that chips of a kind make.
    rules : Rules
        How it is counted.
    objective : Metric
        What is minimised.
    limits : mapping of Metric to float
        What a design must not exceed.
    settings : StepSettings
        What the step is run with.
    order : tuple of ParallelDimension
        Of ranks on the network, innermost first.
    """

    free: BudgetSpace
    workload: Step
    strategy: Strategy
    system: Callable[[Chip], System]
    rules: Rules
    objective: Metric = Metric.TIME
    limits: dict[Metric, float] = field(default_factory=dict)
    settings: StepSettings = field(default_factory=StepSettings)
    order: MappingOrder | None = None

    def __call__(self, points: Floats, *, probes: bool = False) -> list[Value]:
        """Return the value of every point; nothing is raised for what is no design."""
        rules = self.rules.chips
        chips = generate_chips(self.free.template, self.free.budgets(points), rules)
        checks = [] if probes else checks_of(chips)
        # The checks are made here for all points at once, not again for each.
        plain = replace(chips, rules=rules.unchecked())
        values = []
        for i in range(len(points)):
            wrong = [check for check in checks if not check.holds[i]]
            if wrong:
                demand, limit = wrong[0].demand[i], wrong[0].limit[i]
                excess = float(demand / limit - 1) if limit > 0 else math.inf
                reason = f"{wrong[0].resource} of {wrong[0].where}"
                values.append(Value(excess=excess, reason=reason))
                continue
            values.append(self._value(plain, i))
        return values

    def _value(self, chips: GeneratedChips, i: int) -> Value:
        try:
            design = self._design(chip_at(chips, (i,)))
        except InfeasibleError as error:
            excess = error.demand / error.limit - 1 if error.limit > 0 else math.inf
            return Value(excess=excess, reason=error.resource)
        except InputError as error:
            return Value(excess=math.inf, reason=str(error.problems[0]))
        over = [
            (value / limit - 1, "{} {} above {}".format(m, *compared(value, limit, m.unit)))
            for m, limit in self.limits.items()
            if (value := design.metrics.value(m)) > limit
        ]
        if over:
            return Value(excess=max(over)[0], reason=max(over)[1])
        terms = {metric.value: design.metrics.value(metric) for metric in Metric}
        return Value(objective=terms[self.objective], terms=terms)

    def given(self) -> Design:
        """Return the design of the budget as it is given, whatever it leaves unused.

        Raises
        ------
        InfeasibleError, InputError
            As `design`.
        """
        return self._design(generate(self.free.template, self.free.budget, self.rules.chips))

    def design(self, point: Sequence[float] | Floats) -> Design:
        """Return the design at one point.

        Raises
        ------
        InfeasibleError
            If no chip comes out of it, or the step does not fit.
        InputError
            If the strategy cannot split the workload, or a link is missing.
        """
        budgets = self.free.budgets(np.array([point]))
        chips = generate_chips(self.free.template, budgets, self.rules.chips)
        return self._design(chip_at(chips, (0,)))

    def step(self, system: System, rules: Rules | None = None) -> Prediction:
        """Return the step on a machine, by other rules where they are given.

        Raises
        ------
        InfeasibleError, InputError
            As `design`.
        """
        return self._step(system, rules or self.rules, _held(self))

    def decided(self, system: System) -> Prediction:
        """Return the step on a machine for which what is left out is decided, but quickly."""
        try:
            return self._step(system, self.rules, None, QUICK)
        except LimitError:
            return self._step(system, self.rules, None)

    def _step(
        self,
        system: System,
        rules: Rules,
        mapping: Mapping | None,
        work_limit: float = WORK_LIMIT,
    ) -> Prediction:
        program: Program = rules.step
        dtype = self.free.template.dtype
        return program(
            self.workload,
            self.strategy,
            system,
            dtype,
            self.settings,
            rules=rules,
            order=self.order,
            mapping=mapping,
            work_limit=work_limit,
        )

    def _design(self, chip: GeneratedChip) -> Design:
        system = self.system(chip.chip)
        found = self.step(system)
        power = sum(part.power for part in chip.components) * self.strategy.n_chips
        metrics = Metrics(time=found.time, power=power, area=chip.area)
        return Design(chip=chip, system=system, prediction=found, metrics=metrics)


@lru_cache(maxsize=1024)
def _held(problem: DesignProblem) -> Mapping | None:
    """Return the mapping that all designs of a problem run: the best one for the given budget.

    None where a design decides for itself: no chip comes of the given budget, or nothing fits it.
    Programs of releases leave nothing to decide.
    """
    if problem.rules.step is not predict:
        return None
    try:
        chip = generate(problem.free.template, problem.free.budget, problem.rules.chips).chip
        found = problem.decided(problem.system(chip))
    except (InfeasibleError, InputError):
        return None
    return None if found.plan is None else found.plan.mapping
