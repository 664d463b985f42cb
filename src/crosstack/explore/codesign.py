"""Chips, their number and the mapping together: the front of throughput, price and power.

Candidates are machines of generated chips. What a candidate costs and draws is known before it is
mapped, and how fast it can be at most follows from what is known already; one that cannot be on
the front is not mapped. All others are mapped with `crosstack.optimise`, to a proof.
"""

from __future__ import annotations

import math
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import get_context, parent_process
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import (
    InfeasibleError,
    InputError,
    LimitError,
    Problem,
    require_jobs,
    require_whole,
)
from crosstack.evaluate.answer import optimise
from crosstack.explore.front_history import FrontHistory
from crosstack.explore.machines import (
    Machine,
    MachineChoice,
    UnitPrices,
    machines_at,
    never_slower,
)
from crosstack.explore.pareto import pareto_rows
from crosstack.machine.generate.generation import Generation
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.rates import reached_rate
from crosstack.model.rules import Rules
from crosstack.workload.workload import Workload

__all__ = [
    "BEATEN",
    "Candidate",
    "CodesignProblem",
    "Front",
    "FrontProgress",
    "Mapped",
    "least_time",
    "search_front",
]

Floats = NDArray[np.float64]
FIRST = 0.4  # of the candidates are drawn evenly, the others near the front
LITTER = 32  # candidates drawn from one front
WAVE = 8  # mapped before the next look at what cannot win; the same whatever the number of jobs
SPREAD = 0.4  # standard deviation of the logarithms of shares, from parent to child
MOVES = 0.3  # how often a child takes another choice than its parent
BEATEN = "cannot be on the front"  # why a candidate that a mapped one beats is not mapped


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


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProgress:
    """Candidates so far, how many there may be, how many were mapped, how many are on the front."""

    done: int
    allowed: int
    mapped: int
    front: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Front:
    """All candidates, and those that no other beats, the fastest first.

    ``skipped`` were not mapped, since a mapped one is proved to be at least as good in everything.
    ``reused`` mappings were taken from a saved history.
    """

    problem: CodesignProblem
    candidates: tuple[Candidate, ...]
    front: tuple[Candidate, ...]
    skipped: int
    reused: int

    @property
    def mapped(self) -> tuple[Candidate, ...]:
        """Those with a mapping."""
        return tuple(c for c in self.candidates if c.mapped is not None)

    def throughput(self, candidate: Candidate) -> float:
        """Items of the global batch a second. [1/s]"""
        assert candidate.mapped is not None
        return self.problem.workload.global_batch_size / candidate.mapped.time


def least_time(workload: Workload, system: System, rules: Rules) -> float:
    """Return a time that no mapping beats: all compute busy at its utilization. [s]"""
    chip = system.chip
    throughput = reached_rate(chip, workload.graph.dtype, rules)
    return workload.work / (system.copies * system.n_chips * throughput)


def map_machine(
    system: System,
    *,
    workload: Workload,
    constraints: Constraints,
    rules: Rules,
    time_limit: float,
    gap: float,
) -> Mapped | str:
    """Return the best mapping in short, or why there is none."""
    task = Task(workload=workload, system=system, constraints=constraints)
    try:
        answer = optimise(task, rules=rules, time_limit=time_limit, gap=gap)
    except InfeasibleError as error:
        return f"{error.resource} of {error.where.rstrip(',')}"  # which goes on elsewhere
    except LimitError as error:
        return str(error)
    shares: dict[str, float] = {}
    for partition in answer.evaluation.partitions:
        shares[partition.bound_by] = shares.get(partition.bound_by, 0.0) + partition.time
    degree = answer.mapping.degree
    return Mapped(
        time=answer.evaluation.time,
        bound=answer.certificate.bound,
        status=answer.certificate.status.value,
        tensor=degree(Parallelism.TENSOR),
        pipeline=degree(Parallelism.PIPELINE),
        data=degree(Parallelism.DATA),
        bound_by=max(shares, key=lambda name: shares[name], default=""),
    )


def search_front(
    problem: CodesignProblem,
    *,
    evaluations: int = 600,
    seed: int = 0,
    jobs: int = 1,
    key: object = None,
    history: FrontHistory | None = None,
    progress: Callable[[FrontProgress], None] | None = None,
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
    jobs : int
        Processes that map. [1]
    key : object
        What the mappings depend on, as plain data: a saved history is taken up only under the
        same key.
    history : FrontHistory or None
        Where mappings are saved while the search runs, and taken up from.
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
    require_jobs(jobs)
    if not problem.choices:
        raise InputError(Problem("choices", "there is nothing to choose from."))
    saved = history or FrontHistory(None)
    saved.open([key, seed, evaluations])  # how many decides what is drawn
    with _mapper(jobs) as mapping:
        search = _Search(problem, saved, mapping, evaluations, progress)
        random = np.random.default_rng(seed)
        first = _first(problem, random, max(1, int(FIRST * evaluations)))
        search.look(first[:evaluations])
        while len(search.candidates) < evaluations:
            litter = min(LITTER, evaluations - len(search.candidates))
            search.look(_children(problem, search.front(), random, litter))
    saved.save()
    front = search.front()
    if not front:
        raise _nothing(search.candidates)
    return Front(
        problem=problem,
        candidates=tuple(sorted(search.candidates, key=lambda c: c.number)),
        front=tuple(front),
        skipped=search.skipped,
        reused=saved.reused,
    )


Drawn = tuple[int, Floats]  # choice, point
MapOne = Callable[[System], Mapped | str]
Mapping = Callable[[MapOne, Sequence[System]], list[Mapped | str]]


@contextmanager
def _mapper(jobs: int) -> Iterator[Mapping]:
    """Return what applies a function to systems, in ``jobs`` processes."""
    if jobs == 1:
        yield lambda function, systems: [function(system) for system in systems]
        return
    context = get_context("spawn")
    stop = context.Event()
    with ProcessPoolExecutor(jobs, mp_context=context, initializer=_join, initargs=(stop,)) as pool:

        def together(function: MapOne, systems: Sequence[System]) -> list[Mapped | str]:
            waiting = [pool.submit(function, system) for system in systems]
            return [future.result() for future in waiting]

        try:
            yield together
        except BaseException:  # interrupted, perhaps: nobody waits for what is mapped now
            stop.set()
            raise


def _join(stop: Any) -> None:
    """Leave interrupts to the process that draws; end when it says so, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = parent_process()
    assert parent is not None  # this is a child

    def end() -> None:
        while not stop.wait(1.0) and parent.is_alive():
            pass
        os._exit(1)

    threading.Thread(target=end, daemon=True).start()


def _first(problem: CodesignProblem, random: np.random.Generator, count: int) -> list[Drawn]:
    """Return given and even shares of every choice, then points drawn evenly, choice by choice."""
    drawn: list[Drawn] = [(i, c.space.start) for i, c in enumerate(problem.choices)]
    drawn += [(i, c.space.centre) for i, c in enumerate(problem.choices)]
    while len(drawn) < count:
        number = int(random.integers(len(problem.choices)))
        drawn.append((number, problem.choices[number].space.space.draw(random, 1)[0]))
    return drawn


def _children(
    problem: CodesignProblem,
    front: Sequence[Candidate],
    random: np.random.Generator,
    count: int,
) -> list[Drawn]:
    """Return points near the front; evenly drawn ones where there is none yet."""
    drawn: list[Drawn] = []
    for _ in range(count):
        if not front:
            number = int(random.integers(len(problem.choices)))
            drawn.append((number, problem.choices[number].space.space.draw(random, 1)[0]))
            continue
        parent = front[int(random.integers(len(front)))]
        space = problem.choices[parent.choice].space.space
        moved = space.logarithms(np.array(parent.point))
        moved = moved + SPREAD * random.standard_normal(len(moved))
        number = parent.choice
        if random.random() < MOVES:
            other = int(random.integers(len(problem.choices)))
            if problem.choices[other].space.space.names == space.names:
                number = other
        drawn.append((number, problem.choices[number].space.space.from_logarithms(moved)))
    return drawn


class _Search:
    """Candidates so far, and what is known of machines that were mapped."""

    def __init__(
        self,
        problem: CodesignProblem,
        saved: FrontHistory,
        mapping: Mapping,
        allowed: int,
        progress: Callable[[FrontProgress], None] | None,
    ) -> None:
        self.problem, self.saved, self.mapping = problem, saved, mapping
        self.allowed, self.progress = allowed, progress
        self.candidates: list[Candidate] = []
        self.skipped = 0
        self.map_one = partial(
            map_machine,
            workload=problem.workload,
            constraints=problem.constraints,
            rules=problem.rules,
            time_limit=problem.time_limit,
            gap=problem.gap,
        )

    def look(self, drawn: Sequence[Drawn]) -> None:
        """Make the machines of a litter, map those that may be on the front, cheapest first."""
        waiting = sorted(self._made(drawn), key=lambda c: (_machine(c).price, c.number))
        while waiting:
            wave: list[Candidate] = []
            while waiting and len(wave) < WAVE:
                candidate = waiting.pop(0)
                if self._beaten(candidate):
                    self.skipped += 1
                    self.candidates.append(_with(candidate, reason=BEATEN))
                else:
                    wave.append(candidate)
            self._map(wave)
            if self.progress is not None:
                done = len(self.candidates)
                mapped = sum(c.mapped is not None for c in self.candidates)
                front = len(self.front())
                self.progress(
                    FrontProgress(done=done, allowed=self.allowed, mapped=mapped, front=front)
                )

    def _made(self, drawn: Sequence[Drawn]) -> list[Candidate]:
        """Return candidates with a machine inside the limits; others are noted with a reason."""
        problem, before = self.problem, len(self.candidates)
        made: dict[int, Machine | str] = {}
        for number, choice in enumerate(problem.choices):
            own = [i for i, (n, _) in enumerate(drawn) if n == number]
            if own:
                points = np.stack([drawn[i][1] for i in own])
                found = machines_at(choice, points, problem.prices, problem.chip_rules)
                made |= dict(zip(own, found, strict=True))
        kept = []
        for i, (number, point) in enumerate(drawn):
            machine = made[i]
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

    def _least(self, system: System) -> float:
        """Return a time that no mapping on a machine beats."""
        mapped = [c for c in self.candidates if c.mapped is not None]
        better = never_slower(system, [_machine(c).system for c in mapped])
        bounds = [c.mapped.bound for c, b in zip(mapped, better, strict=True) if b and c.mapped]
        return max([least_time(self.problem.workload, system, self.problem.rules), *bounds])

    def _beaten(self, candidate: Candidate) -> bool:
        """Whether a mapped candidate is at least as good in everything, proved without mapping."""
        machine = _machine(candidate)
        least = self._least(machine.system)
        return any(
            c.mapped is not None
            and c.mapped.time <= least
            and _machine(c).price <= machine.price
            and _machine(c).power <= machine.power
            for c in self.candidates
        )

    def _map(self, wave: Sequence[Candidate]) -> None:
        known = {c.number: self.saved.take(c.number, c.point) for c in wave}
        fresh = [c for c in wave if known[c.number] is None]
        systems = [_machine(c).system for c in fresh]
        answers = dict(
            zip((c.number for c in fresh), self.mapping(self.map_one, systems), strict=True)
        )
        for candidate in wave:
            entry = known[candidate.number]
            if entry is None:
                answer = answers[candidate.number]
                self.saved.put(candidate.number, candidate.point, _plain(answer))
            else:
                answer = entry["reason"] if "reason" in entry else Mapped(**entry)
            limit = self.problem.limits.get("time", math.inf)
            if isinstance(answer, Mapped) and answer.time > limit:
                answer = "time above its limit"
            if isinstance(answer, str):
                self.candidates.append(_with(candidate, reason=answer))
            else:
                self.candidates.append(_with(candidate, mapped=answer))
        self.saved.save(now=False)

    def front(self) -> list[Candidate]:
        """Return the mapped candidates that no other beats, the fastest first."""
        mapped = [c for c in self.candidates if c.mapped is not None]
        if not mapped:
            return []
        scores = np.array([
            (c.mapped.time if c.mapped else 0.0, _machine(c).price, _machine(c).power)
            for c in mapped
        ])  # fmt: skip
        return [mapped[row] for row in pareto_rows(scores).tolist()]


def _machine(candidate: Candidate) -> Machine:
    assert candidate.machine is not None  # what has none is set aside when it is drawn
    return candidate.machine


def _with(candidate: Candidate, *, mapped: Mapped | None = None, reason: str = "") -> Candidate:
    return Candidate(
        number=candidate.number,
        choice=candidate.choice,
        point=candidate.point,
        machine=candidate.machine,
        mapped=mapped,
        reason=reason,
    )


def _plain(answer: Mapped | str) -> dict[str, Any]:
    if isinstance(answer, str):
        return {"reason": answer}
    return {name: getattr(answer, name) for name in Mapped.__dataclass_fields__}


def _nothing(candidates: Sequence[Candidate]) -> InfeasibleError:
    reasons: dict[str, int] = {}
    for candidate in candidates:
        reasons[candidate.reason] = reasons.get(candidate.reason, 0) + 1
    most = max(reasons, key=lambda r: reasons[r])
    return InfeasibleError(
        resource="machines",
        demand=1.0,
        limit=0.0,
        unit="that fit",
        where=f"{len(candidates):,} candidates (the most frequent reason: {most})",
        levers=("more area, power or memory", "looser limits", "more evaluations"),
    )
