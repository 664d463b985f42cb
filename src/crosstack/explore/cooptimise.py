"""Choices and shares together: every strategy or technology, each with the chip that suits it.

Choices are discrete and searched from outside: all are bounded, those that may win are evaluated
as they are given, then the most promising get a search of their budget, one after the other, unless
their bound says by then that they cannot win any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

import numpy as np

from crosstack.errors import CrosstackError, InfeasibleError, InputError, Problem, require_whole
from crosstack.explore.bounds import ideal_chip, time_bound
from crosstack.explore.design import Design, DesignProblem, Metric
from crosstack.explore.history import HistoryFile
from crosstack.explore.methods import Descent
from crosstack.explore.search import (
    DEFAULT_METHOD,
    SearchProgress,
    SearchResult,
    minimise,
)
from crosstack.machine.chip import Chip

__all__ = ["Choice", "ChoiceProgress", "ChoiceResult", "ChoiceStatus", "CoResult", "co_optimise"]


class ChoiceStatus(StrEnum):
    """What became of a choice.

    ``searched``: its budget was. ``pruned``: its bound proves that it cannot win, perhaps before it
    was evaluated. ``left``: evaluated at given and even shares; others were more promising.
    ``impossible``: nothing fits, or it cannot be split so, with the reason.
    """

    SEARCHED = "searched"
    PRUNED = "pruned"
    LEFT = "left"
    IMPOSSIBLE = "impossible"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One combination: what was chosen, by field, and the problem that this leaves."""

    labels: tuple[tuple[str, str], ...]
    problem: DesignProblem

    @property
    def name(self) -> str:
        """For people and files."""
        return ", ".join(f"{field}={value}" for field, value in self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceResult:
    """A choice and what is known of it.

    ``bound`` is what no design of it beats, 0 where there is none; ``first`` the better of the
    given and even shares, ``best`` the best found, both None where there was no design.
    """

    choice: Choice
    status: ChoiceStatus
    bound: float = 0.0
    first: float | None = None
    best: float | None = None
    result: SearchResult | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CoResult:
    """All choices in the order given, and the best of them."""

    results: tuple[ChoiceResult, ...]
    best: ChoiceResult
    design: Design
    point: tuple[float, ...]
    evaluations: int

    @property
    def proved(self) -> float:
        """What no design of any choice beats: the smallest bound. [unit of the objective]"""
        possible = [o.bound for o in self.results if o.status is not ChoiceStatus.IMPOSSIBLE]
        return min(possible)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceProgress:
    """Where it stands: choices done of all, the one at hand, its search, the best value so far."""

    done: int
    choices: int
    name: str
    search: SearchProgress | None
    best: float | None


@dataclass(slots=True, kw_only=True)
class _Candidate:
    """A choice on its way: what is known of it so far."""

    number: int
    choice: Choice
    bound: float = 0.0
    point: tuple[float, ...] = ()
    first: float | None = None
    status: ChoiceStatus = ChoiceStatus.LEFT
    result: SearchResult | None = None
    reason: str = ""

    @property
    def best(self) -> float | None:
        """The best value so far."""
        values = [self.first, None if self.result is None else self.result.value]
        return min((v for v in values if v is not None), default=None)

    def reported(self) -> ChoiceResult:
        """Return what is reported."""
        return ChoiceResult(
            choice=self.choice,
            status=self.status,
            bound=self.bound,
            first=self.first,
            best=self.best,
            result=self.result,
            reason=self.reason,
        )


def co_optimise(
    choices: Iterable[Choice],
    *,
    evaluations: int = 200,
    searches: int = 8,
    method: str = DEFAULT_METHOD,
    descent: Descent | None = None,
    seed: int = 0,
    key: Callable[[Choice], object] | None = None,
    file: HistoryFile | None = None,
    progress: Callable[[ChoiceProgress], None] | None = None,
) -> CoResult:
    """Return the best design of any choice.

    Parameters
    ----------
    choices : iterable of Choice
        What may be chosen; all minimise the same.
    evaluations : int
        Of each search; 1 looks at every choice at its given shares alone. [1]
    searches : int
        Choices that are searched at most, the most promising first. [1]
    method, descent, seed
        As of `crosstack.explore.search.minimise`.
    key : callable or None
        What decides the values of a choice, as plain data, where histories are saved.
    file : HistoryFile or None
        Where histories are saved and taken up from.
    progress : callable or None
        Told where it stands.

    Raises
    ------
    InputError
        If there is no choice, or none can be split so.
    InfeasibleError
        If none has a design.
    """
    require_whole("evaluations", evaluations)
    require_whole("searches", searches, minimum=0)
    every = [_Candidate(number=i, choice=choice) for i, choice in enumerate(choices)]
    if not every:
        raise InputError(Problem("choices", "there is nothing to choose from."))
    best: float | None = None
    problems: list[CrosstackError] = []
    spent = done = 0

    def tell(candidate: _Candidate, search: SearchProgress | None = None) -> None:
        if progress is not None:
            name = candidate.choice.name
            progress(
                ChoiceProgress(done=done, choices=len(every), name=name, search=search, best=best)
            )

    possible = _bounded(every, problems, tell)
    # The most promising bounds first, so that what they reach spares a look at the others.
    for candidate in sorted(possible, key=lambda c: c.bound):
        if best is not None and candidate.bound >= best:
            candidate.status = ChoiceStatus.PRUNED
            continue
        spent += _look(candidate, even=evaluations > 1)
        best = _least(best, candidate.first)
        tell(candidate)
    open_ = [c for c in possible if c.status is not ChoiceStatus.PRUNED]
    for candidate in sorted(open_, key=lambda c: (c.first is None, c.first or c.bound)):
        if best is not None and candidate.bound >= best and candidate.first != best:
            candidate.status = ChoiceStatus.PRUNED
            continue
        if done >= searches or evaluations == 1:
            continue
        done += 1
        run = partial(
            minimise,
            method=method,
            descent=descent,
            evaluations=evaluations,
            seed=seed,
            key=None if key is None else key(candidate.choice),
            file=file,
            progress=partial(tell, candidate),
        )
        _search(candidate, run, problems)
        spent += evaluations if candidate.result is None else candidate.result.evaluations
        best = _least(best, candidate.best)
    return _best([c.reported() for c in every], [c.point for c in every], problems, spent)


def _search(
    candidate: _Candidate, run: Callable[..., SearchResult], problems: list[CrosstackError]
) -> None:
    """Search the shares of a choice; problems grow."""
    problem = candidate.choice.problem
    try:
        candidate.result = run(
            problem, problem.space, start=problem.start, name=candidate.choice.name
        )
        candidate.status, candidate.reason = ChoiceStatus.SEARCHED, ""
    except InfeasibleError as error:
        problems.append(error)
        candidate.reason = str(error)
        found = candidate.first is not None
        candidate.status = ChoiceStatus.SEARCHED if found else ChoiceStatus.IMPOSSIBLE


def _least(one: float | None, other: float | None) -> float | None:
    return min((v for v in (one, other) if v is not None), default=None)


def _bounded(
    every: Sequence[_Candidate],
    problems: list[CrosstackError],
    tell: Callable[[_Candidate], None],
) -> list[_Candidate]:
    """Bound every choice and return those that are possible; ``problems`` says why others are not.

    Choices of the same chip have the same ideal one.
    """
    chips: dict[tuple[object, ...], Chip] = {}
    possible = []
    for candidate in every:
        problem = candidate.choice.problem
        same = id(problem.template), id(problem.budget), problem.held, problem.chip_area
        try:
            if problem.objective is Metric.TIME:
                if same not in chips:
                    chips[same] = ideal_chip(problem)
                candidate.bound = time_bound(problem, chips[same])
            possible.append(candidate)
        except (InfeasibleError, InputError) as error:
            problems.append(error)
            candidate.status, candidate.reason = ChoiceStatus.IMPOSSIBLE, str(error)
        tell(candidate)
    return possible


def _look(candidate: _Candidate, *, even: bool) -> int:
    """Evaluate a choice at its given shares, and at even ones; return how many that was."""
    problem = candidate.choice.problem
    points = np.stack([problem.start, problem.centre]) if even else problem.start[None, :]
    values = problem(points)
    where = int(np.argmin([value.score for value in values]))
    candidate.point = tuple(points[where].tolist())
    candidate.first = values[where].objective if values[where].feasible else None
    candidate.reason = values[where].reason
    return len(points)


def _best(
    results: Sequence[ChoiceResult],
    points: Sequence[tuple[float, ...]],
    problems: Sequence[CrosstackError],
    evaluations: int,
) -> CoResult:
    designs = [(o.best, i) for i, o in enumerate(results) if o.best is not None]
    if not designs:
        infeasible = [p for p in problems if isinstance(p, InfeasibleError)]
        if infeasible:
            raise min(infeasible, key=lambda p: p.demand / p.limit if p.limit else np.inf)
        if problems:
            raise problems[0]
        raise InfeasibleError(
            resource="budget",
            demand=1.0,
            limit=0.0,
            unit="designs",
            where="every choice at its given and at even shares",
            levers=("more evaluations", "other shares to start from", "more area or power"),
        )
    value, number = min(designs)
    winner = results[number]
    point = points[number]
    if winner.result is not None and winner.result.value <= value:
        point = winner.result.point
    return CoResult(
        results=tuple(results),
        best=winner,
        design=winner.choice.problem.design(point),
        point=point,
        evaluations=evaluations,
    )
