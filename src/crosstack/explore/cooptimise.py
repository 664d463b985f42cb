"""Choices and shares together: every strategy or technology, each with the chip that suits it.

Choices are discrete and searched from outside: all are bounded, those that may win are evaluated
as they are given, then the most promising get a search of their budget, one after the other, unless
their bound says by then that they cannot win any more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial
from typing import Any

import numpy as np

from crosstack.errors import CrosstackError, InfeasibleError, InputError, Problem, require_whole
from crosstack.explore.bounds import ideal_chip, time_bound
from crosstack.explore.design import Design, Metric
from crosstack.explore.methods import Descent
from crosstack.explore.progress import Meter, Tell
from crosstack.explore.recorded import Choice, Recorded
from crosstack.explore.search import DEFAULT_METHOD, SearchResult, minimise
from crosstack.explore.trials import Trials
from crosstack.machine.chip import Chip

__all__ = ["ChoiceResult", "ChoiceStatus", "CoResult", "co_optimise"]


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
class ChoiceResult:
    """A choice and what is known of it.

    ``bound`` is what no design of it beats, 0 where there is none; ``point`` the better of the
    given and even shares, ``first`` what it is worth, None where it is no design.
    """

    choice: Choice
    status: ChoiceStatus = ChoiceStatus.LEFT
    bound: float = 0.0
    point: tuple[float, ...] = ()
    first: float | None = None
    result: SearchResult | None = None
    reason: str = ""

    @property
    def best(self) -> float | None:
        """The best that is known; None where there is no design."""
        return _least(self.first, None if self.result is None else self.result.value)


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


def co_optimise(
    choices: Iterable[Choice],
    *,
    evaluations: int = 200,
    searches: int = 8,
    method: str = DEFAULT_METHOD,
    descent: Descent | None = None,
    seed: int = 0,
    trials: Trials | None = None,
    progress: Tell | None = None,
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
    trials : Trials or None
        Where evaluations are remembered, and taken up from.
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
    every = [ChoiceResult(choice=choice) for choice in choices]
    if not every:
        raise InputError(Problem("choices", "there is nothing to choose from."))
    trials = trials or Trials()
    looks = 2 if evaluations > 1 else 1  # at a choice before it is searched
    longest = evaluations if evaluations > 1 else 0
    most = looks * len(every) + min(searches, len(every)) * longest
    standing = _Standing(every, Meter(progress), most)
    possible = _bounded(standing)
    # The most promising bounds first, so that what they reach spares a look at the others.
    for i in sorted(possible, key=lambda i: every[i].bound):
        standing.left -= looks
        if not standing.pruned(i):
            evaluate = Recorded.of(every[i].choice, trials)
            standing.take(i, _looked(every[i], evaluate, even=looks == 2), looks)
            standing.tell(i)
    open_ = [i for i in possible if every[i].status is not ChoiceStatus.PRUNED]
    done, standing.left = 0, min(searches, len(open_)) * longest
    options = {"method": method, "descent": descent, "evaluations": evaluations, "seed": seed}
    for i in sorted(
        open_, key=lambda i: (every[i].first is None, every[i].first or every[i].bound)
    ):
        if standing.pruned(i) or done >= searches or evaluations == 1:
            continue
        done += 1
        standing.tell(i)
        evaluate, told = Recorded.of(every[i].choice, trials), partial(standing.tell, i)
        found = _searched(every[i], standing.problems, evaluate=evaluate, progress=told, **options)
        made = evaluations if found.result is None else found.result.evaluations
        standing.take(i, found, made)
        standing.left -= evaluations
    return _best(every, standing.problems, standing.spent)


class _Standing:
    """What is known of ``every`` choice, and where the search of them stands.

    ``problems`` are why some are impossible, ``best`` the best value so far [unit of the
    objective], ``spent`` and ``left`` evaluations made and to come. [1]
    """

    def __init__(self, every: list[ChoiceResult], meter: Meter, left: int) -> None:
        self.every, self.meter = every, meter
        self.problems: list[CrosstackError] = []
        self.best: float | None = None
        self.spent, self.left = 0, left

    def tell(self, i: int, more: int = 0, value: float | None = None) -> None:
        """Show where it stands at a choice, of whose search ``more`` evaluations are made."""
        counts = Counter(c.status.value for c in self.every if c.status is not ChoiceStatus.LEFT)
        done, at = self.spent + more, self.every[i].choice.name
        total = max(self.spent + self.left, done)
        self.meter.show(done, total, counts=counts, at=at, best=_least(self.best, value))

    def pruned(self, i: int) -> bool:
        """Whether a choice cannot win any more; its result then says so."""
        choice = self.every[i]
        beaten = self.best is not None and choice.bound >= self.best and choice.first != self.best
        if beaten:
            self.every[i] = replace(choice, status=ChoiceStatus.PRUNED)
        return beaten

    def take(self, i: int, found: ChoiceResult, made: int) -> None:
        """Take what so many evaluations found of a choice."""
        self.every[i] = found
        self.spent += made
        self.best = _least(self.best, found.best)


def _searched(
    candidate: ChoiceResult, problems: list[CrosstackError], **options: Any
) -> ChoiceResult:
    """Search the shares of a choice; problems grow."""
    problem = candidate.choice.problem
    try:
        result = minimise(space=problem.free.space, start=problem.free.start, **options)
    except InfeasibleError as error:
        problems.append(error)
        found = candidate.first is not None
        status = ChoiceStatus.SEARCHED if found else ChoiceStatus.IMPOSSIBLE
        return replace(candidate, status=status, reason=str(error))
    return replace(candidate, status=ChoiceStatus.SEARCHED, result=result, reason="")


def _least(one: float | None, other: float | None) -> float | None:
    return min((v for v in (one, other) if v is not None), default=None)


def _bounded(standing: _Standing) -> list[int]:
    """Bound every choice; return which are possible, ``problems`` says why others are not.

    Choices of the same chip have the same ideal one.
    """
    chips: dict[tuple[object, ...], Chip] = {}
    possible, every = [], standing.every
    for i, candidate in enumerate(every):
        problem, free = candidate.choice.problem, candidate.choice.problem.free
        same = id(free.template), id(free.budget), free.held, free.chip_area
        try:
            if problem.objective is Metric.TIME:
                if same not in chips:
                    chips[same] = ideal_chip(problem)
                every[i] = replace(candidate, bound=time_bound(problem, chips[same]))
            possible.append(i)
        except (InfeasibleError, InputError) as error:
            standing.problems.append(error)
            every[i] = replace(candidate, status=ChoiceStatus.IMPOSSIBLE, reason=str(error))
        standing.tell(i)
    return possible


def _looked(candidate: ChoiceResult, evaluate: Recorded, *, even: bool) -> ChoiceResult:
    """Evaluate a choice at its given shares, and at even ones."""
    free = candidate.choice.problem.free
    points = np.stack([free.start, free.centre]) if even else free.start[None, :]
    values = evaluate(points)
    where = int(np.argmin([value.score for value in values]))
    value = values[where]
    return replace(
        candidate,
        point=tuple(points[where].tolist()),
        first=value.objective if value.feasible else None,
        reason=value.reason,
    )


def _best(
    results: Sequence[ChoiceResult], problems: Sequence[CrosstackError], evaluations: int
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
    searched = winner.result is not None and winner.result.value <= value
    point = winner.result.point if winner.result is not None and searched else winner.point
    return CoResult(
        results=tuple(results),
        best=winner,
        design=winner.choice.problem.design(point),
        point=point,
        evaluations=evaluations,
    )
