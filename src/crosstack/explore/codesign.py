"""Chips, their number and the mapping together: the front of throughput, price and power.

Candidates are machines of generated chips. What a candidate costs and draws is known before it is
mapped, and how fast it can be at most follows from what is known already; one that cannot be on
the front is not mapped. All others are mapped with `crosstack.optimise`, to a proof.
"""

from __future__ import annotations

import math
import operator
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InfeasibleError, InputError, Problem, require_whole
from crosstack.evaluate.plan import Plan
from crosstack.explore.evaluators import PointAnswer, Terms
from crosstack.explore.keys import stated
from crosstack.explore.machines import (
    Machine,
    MachineChoice,
    UnitPrices,
    machines_at,
    never_slower,
)
from crosstack.explore.mapped import ANSWER_UNITS, mapped_point
from crosstack.explore.pareto import pareto_rows
from crosstack.explore.pool import Executor, Run, Serial
from crosstack.explore.progress import Meter, Tell
from crosstack.explore.trials import Trials
from crosstack.machine.generate.generation import Generation
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.attention import iteration_work
from crosstack.model.ends import counted
from crosstack.model.rules import Rules
from crosstack.units import format_quantity
from crosstack.workload.workload import Workload

__all__ = ["BEATEN", "TERMS", "Candidate", "CodesignProblem", "Front", "least_time", "search_front"]

Floats = NDArray[np.float64]
FIRST = 0.4  # of the candidates are drawn evenly, the others near the front
LITTER = 32  # candidates drawn from one front
WAVE = 8  # mapped before the next look at what cannot win; the same whatever the number of jobs
BEATEN = "cannot be on the front"  # why a candidate that a mapped one beats is not mapped
SPREAD = 0.4  # standard deviation of the logarithms of shares, from parent to child
MOVES = 0.3  # how often a child takes another choice than its parent
Drawn = tuple[int, Floats]  # the number of a choice, and a point of its space

TERMS: dict[str, str | None] = {
    **ANSWER_UNITS,
    "bound_by": None,
    "chip_area": "m^2",
    "die_price": "USD",
    "yield": "1",
}
"""What comes of a machine, with units."""


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
        found: dict[str, Any] = {name: answer.terms[name] for name in ("time", "bound", "bound_by")}
        found |= {name: int(answer.terms[name] or 0) for name in ("tensor", "pipeline", "data")}
        return cls(status=answer.status, **found)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Candidate:
    """A machine, where it was drawn, and its mapping if it has one.

    ``reason`` says why there is no mapping.
    """

    number: int
    choice: int
    point: tuple[float, ...]
    machine: Machine | None
    mapped: Mapped | None = None
    reason: str = ""

    @property
    def scores(self) -> tuple[float, float, float]:
        """Time, price and power of one that is mapped: less is better."""
        assert self.mapped is not None
        machine = _machine(self)
        return self.mapped.time, machine.price, machine.power


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Front:
    """All candidates, and those that no other beats, the fastest first.

    ``skipped`` were not mapped, since a mapped one is proved to be at least as good in everything.
    ``reused`` mappings were taken from a store.
    """

    problem: CodesignProblem
    candidates: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    skipped: int
    reused: int

    def __str__(self) -> str:
        """Return how many were looked at, and those of the front that lead in something."""
        counts = f"{len(self.candidates):,} candidates, {len(self.mapped):,} mapped"
        said = [f"{self.problem.workload.name}: {counts}, {len(self.front):,} on the front"]
        for i, what in enumerate(("fastest", "cheapest", "least power")):
            best = min(self.front, key=lambda c: c.scores[i])
            _, price, power = best.scores
            paid = f"{format_quantity(price, 'USD')}, {format_quantity(power, 'W')}"
            said.append(f"  {what}: {self.throughput(best):,.4g}/s, {paid}")
        return "\n".join(said)

    __repr__ = __str__

    @property
    def mapped(self) -> tuple[Candidate, ...]:
        """Those with a mapping."""
        return tuple(c for c in self.candidates if c.mapped is not None)

    def throughput(self, candidate: Candidate) -> float:
        """Items of the global batch a second. [1/s]"""
        assert candidate.mapped is not None
        return self.problem.workload.global_batch_size / candidate.mapped.time


def search_front(
    problem: CodesignProblem,
    *,
    evaluations: int = 600,
    seed: int = 0,
    executor: Executor | None = None,
    trials: Trials | None = None,
    progress: Tell | None = None,
) -> Front:
    """Return the machines that no other candidate beats in throughput, price and power at once.

    The given and the even shares of every choice come first, then points that are drawn evenly,
    then ones near the front: the logarithms of a member's shares, moved at random, at times under
    another choice. The same seed draws the same, with any number of jobs.

    Parameters
    ----------
    evaluations : int
        Candidates, mapped or not. [1]
    seed : int
        Of all that is drawn. [1]
    executor : Executor or None
        Where machines are mapped; here if left out.
    trials : Trials or None
        Where mappings are remembered, and taken up from.
    progress : callable or None
        Told where the search stands.

    Raises
    ------
    InputError
        If there is no choice, or a number is out of range.
    InfeasibleError
        If no candidate is a machine that the workload fits on.
    """
    require_whole("evaluations", evaluations)
    require_whole("seed", seed, minimum=0)
    if not problem.choices:
        raise InputError(Problem("choices", "there is nothing to choose from."))
    known = trials or Trials()
    with (executor or Serial()).started(partial(_map_machine, problem)) as run:
        search = _Search(problem, known, run, evaluations, Meter(progress))
        random = np.random.default_rng(seed)
        first = _first_draws(problem.choices, random, max(1, int(FIRST * evaluations)))
        search.look(first[:evaluations])
        while len(search.candidates) < evaluations:
            litter = min(LITTER, evaluations - len(search.candidates))
            parents = [(c.choice, c.point) for c in search.front()]
            search.look(_draws_near(problem.choices, parents, random, litter))
    front = search.front()
    if not front:
        raise _nothing(search.candidates)
    return Front(
        problem=problem,
        candidates=tuple(sorted(search.candidates, key=lambda c: c.number)),
        front=tuple(front),
        skipped=search.skipped,
        reused=known.reused,
    )


def _first_draws(
    choices: Sequence[MachineChoice], random: np.random.Generator, count: int
) -> list[Drawn]:
    """Return given and even shares of every choice, then points drawn evenly, choice by choice."""
    drawn: list[Drawn] = [(i, c.space.start) for i, c in enumerate(choices)]
    drawn += [(i, c.space.centre) for i, c in enumerate(choices)]
    while len(drawn) < count:
        drawn.append(_even(choices, random))
    return drawn


def _draws_near(
    choices: Sequence[MachineChoice],
    parents: Sequence[tuple[int, tuple[float, ...]]],
    random: np.random.Generator,
    count: int,
) -> list[Drawn]:
    """Return points near ``parents``; evenly drawn ones where there is none yet."""
    drawn: list[Drawn] = []
    for _ in range(count):
        if not parents:
            drawn.append(_even(choices, random))
            continue
        number, point = parents[int(random.integers(len(parents)))]
        space = choices[number].space.space
        moved = space.logarithms(np.array(point))
        moved = moved + SPREAD * random.standard_normal(len(moved))
        if random.random() < MOVES:
            other = int(random.integers(len(choices)))
            if choices[other].space.space.names == space.names:
                number = other
        drawn.append((number, choices[number].space.space.from_logarithms(moved)))
    return drawn


def _even(choices: Sequence[MachineChoice], random: np.random.Generator) -> Drawn:
    number = int(random.integers(len(choices)))
    return number, choices[number].space.space.draw(random, 1)[0]


def least_time(workload: Workload, system: System, rules: Rules) -> float:
    """Return a time that no mapping beats: all compute busy at its utilization. [s]"""
    chip = system.chip
    done = iteration_work(counted(workload, rules), chip, rules.traffic)
    return rules.clock.least_time(chip, done) / (system.copies * system.n_chips)


def _map_machine(problem: CodesignProblem, item: tuple[int, System]) -> PointAnswer:
    """Return the best mapping of a numbered machine, or why there is none."""
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
    return replace(answer, runtime=time.perf_counter() - begun)


def _bound_by(answer: Plan) -> Terms:
    shares: dict[str, float] = {}
    for partition in answer.evaluation.partitions:
        shares[partition.bound_by] = shares.get(partition.bound_by, 0.0) + partition.time
    return {"bound_by": max(shares, key=lambda name: shares[name], default="")}


class _Search:
    """Candidates so far, and what is known of machines that were mapped."""

    def __init__(
        self, problem: CodesignProblem, trials: Trials, run: Run, allowed: int, meter: Meter
    ) -> None:
        self.problem, self.trials, self.run = problem, trials, run
        self.allowed, self.meter = allowed, meter
        self.candidates: list[Candidate] = []
        self.skipped = 0

    @property
    def mapped(self) -> list[Candidate]:
        """Those with a mapping."""
        return [c for c in self.candidates if c.mapped is not None]

    def look(self, drawn: Sequence[Drawn]) -> None:
        """Make the machines of a litter, map those that may be on the front, cheapest first."""
        waiting = sorted(self._machines(drawn), key=lambda c: (_machine(c).price, c.number))
        while waiting:
            wave: list[Candidate] = []
            while waiting and len(wave) < WAVE:
                candidate = waiting.pop(0)
                if self._beaten(candidate):
                    self.skipped += 1
                    self.candidates.append(replace(candidate, reason=BEATEN))
                else:
                    wave.append(candidate)
            self._map(wave)
            counts = {"mapped": len(self.mapped), "on the front": len(self.front())}
            self.meter.show(len(self.candidates), self.allowed, counts=counts)

    def _machines(self, drawn: Sequence[Drawn]) -> list[Candidate]:
        """Return candidates with a machine inside the limits; others are noted with a reason."""
        problem, before = self.problem, len(self.candidates)
        built: dict[int, Machine | str] = {}
        for number, choice in enumerate(problem.choices):
            own = [i for i, (n, _) in enumerate(drawn) if n == number]
            if own:
                points = np.stack([drawn[i][1] for i in own])
                found = machines_at(choice, points, problem.prices, problem.chip_rules)
                built |= dict(zip(own, found, strict=True))
        kept = []
        for i, (number, point) in enumerate(drawn):
            machine = built[i]
            candidate = Candidate(
                number=before + i,
                choice=number,
                point=tuple(point.tolist()),
                machine=None if isinstance(machine, str) else machine,
                reason=machine if isinstance(machine, str) else self._over(machine),
            )
            if candidate.reason:
                self.candidates.append(candidate)
            else:
                kept.append(candidate)
        return kept

    def _over(self, machine: Machine) -> str:
        worth = {
            "price": machine.price,
            "power": machine.power,
            "time": least_time(self.problem.workload, machine.system, self.problem.rules),
        }
        over = [name for name, limit in self.problem.limits.items() if worth[name] > limit]
        return f"{over[0]} above its limit" if over else ""

    def _beaten(self, candidate: Candidate) -> bool:
        """Whether a mapped candidate is at least as good in everything, proved without mapping."""
        machine, mapped = _machine(candidate), self.mapped
        better = never_slower(machine.system, [_machine(c).system for c in mapped])
        bounds = [c.mapped.bound for c, b in zip(mapped, better, strict=True) if b and c.mapped]
        rules, workload = self.problem.rules, self.problem.workload
        least = max([least_time(workload, machine.system, rules), *bounds])
        worth = (least, machine.price, machine.power)
        return any(all(map(operator.le, c.scores, worth)) for c in mapped)

    def _map(self, wave: Sequence[Candidate]) -> None:
        keys = {c.number: self._key(c) for c in wave}
        answers = {number: self.trials.recall(key) for number, key in keys.items()}
        fresh = {c.number: c for c in wave if answers[c.number] is None}
        waiting = [(number, _machine(c).system) for number, c in fresh.items()]
        for (number, _), answer in self.run(waiting):
            answers[number] = answer
            self._record(fresh[number], keys[number], answer)
        limit = self.problem.limits.get("time", math.inf)
        for candidate in wave:
            found = answers[candidate.number]
            assert found is not None  # known, or mapped just now
            if found.terms.get("time") is None:
                self.candidates.append(replace(candidate, reason=found.reason or ""))
            elif (mapped := Mapped.of(found)).time > limit:
                self.candidates.append(replace(candidate, reason="time above its limit"))
            else:
                self.candidates.append(replace(candidate, mapped=mapped))

    def _key(self, candidate: Candidate) -> str:
        choice = self.problem.choices[candidate.choice]
        # Files name technologies: what the library says of them is in template and wafer.
        chip = [stated(choice.space.template), stated(choice.wafer)]
        point, names = np.array([candidate.point]), choice.space.space.names
        return self.trials.keys(choice.labels, names, point, chip=chip)[0]

    def _record(self, candidate: Candidate, key: str, answer: PointAnswer) -> None:
        choice, machine = self.problem.choices[candidate.choice], _machine(candidate)
        paid = {
            "price": machine.price,
            "power": machine.power,
            "chip_area": machine.chip_area,
            "die_price": machine.die_price,
            "yield": machine.yield_,
        }
        whole = replace(answer, terms={**answer.terms, **paid}) if answer.terms else answer
        names = choice.space.space.names
        self.trials.record(choice.labels, names, {key: (candidate.point, whole, answer.runtime)})

    def front(self) -> list[Candidate]:
        """Return the mapped candidates that no other beats, the fastest first."""
        mapped = self.mapped
        scores = np.array([c.scores for c in mapped]).reshape(-1, 3)
        return [mapped[row] for row in pareto_rows(scores).tolist()]


def _machine(candidate: Candidate) -> Machine:
    assert candidate.machine is not None  # what has none is set aside when it is drawn
    return candidate.machine


def _nothing(candidates: Sequence[Candidate]) -> InfeasibleError:
    ((most, _),) = Counter(candidate.reason for candidate in candidates).most_common(1)
    return InfeasibleError(
        resource="machines",
        demand=1.0,
        limit=0.0,
        unit="that fit",
        where=f"{len(candidates):,} candidates (the most frequent reason: {most})",
        levers=("more area, power or memory", "looser limits", "more evaluations"),
    )
