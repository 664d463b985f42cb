"""Search a space of shares for the point with the smallest value, by any method, in one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InfeasibleError, InputError, Problem, require_whole
from crosstack.explore.history import Evaluated, History, HistoryFile, key_of
from crosstack.explore.methods import Descent, Request, method_named
from crosstack.explore.simplex import SimplexSpace
from crosstack.version import __version__

__all__ = ["DEFAULT_METHOD", "Evaluator", "SearchProgress", "SearchResult", "Value", "minimise"]

Floats = NDArray[np.float64]
DEFAULT_METHOD = "cma-es"  # benchmarks/searches.py
PENALTY = 1e30  # what is not a design is worse than every design, by how far it is from one


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What a point is worth: its ``objective``, or by what factor it fails to be a design.

    ``excess`` is 0 for a design, demand over limit less 1 where something does not fit, infinite
    where there is no telling. ``reason`` says what fails.
    """

    objective: float = 0.0
    excess: float = 0.0
    reason: str = ""

    @property
    def feasible(self) -> bool:
        """Whether the point is a design."""
        return not self.reason

    @property
    def score(self) -> float:
        """What a method minimises: finite, and above `PENALTY` for what is no design."""
        return self.objective if self.feasible else PENALTY * (1 + min(self.excess, 1e6))


class Evaluator(Protocol):
    """Values of many points at once; ``probes`` may share out more than there is."""

    def __call__(self, points: Floats, *, probes: bool) -> Sequence[Value]:
        """Return one value a row."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchProgress:
    """Where a search stands: evaluations, how many there may be, the best value so far."""

    done: int
    allowed: int
    best: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best point, and how it was found.

    ``reused`` evaluations were taken from a saved history. ``runtime`` is that of this run. [s]
    """

    space: SimplexSpace
    point: tuple[float, ...]
    value: float
    history: History
    method: str
    seed: int
    reused: int
    runtime: float

    @property
    def evaluations(self) -> int:
        """All that the search has asked for. [1]"""
        return len(self.history.evaluated)

    @property
    def shares(self) -> dict[str, float]:
        """The best point by the names of its shares. [1]"""
        return dict(zip(self.space.names, self.point, strict=True))


def minimise(
    evaluate: Evaluator,
    space: SimplexSpace,
    *,
    start: Sequence[float] | Floats,
    method: str = DEFAULT_METHOD,
    descent: Descent | None = None,
    evaluations: int = 200,
    seed: int = 0,
    key: object = None,
    file: HistoryFile | None = None,
    name: str = "search",
    progress: Callable[[SearchProgress], None] | None = None,
    target: float | None = None,
) -> SearchResult:
    """Return the best point that a method finds within a number of evaluations.

    Parameters
    ----------
    evaluate : Evaluator
        Gives the values of points; the same for the same points.
    space : SimplexSpace
        Where to look.
    start : array_like
        The first point. [1]
    method : str
        ``cma-es``, ``gradient`` or ``random``; see `crosstack.explore.methods`.
    descent : Descent or None
        How ``gradient`` goes down, else as the public tool.
    evaluations : int
        Points that may be evaluated; a method may end before. [1]
    seed : int
        Of all that is drawn; the same seed finds the same. [1]
    key : object
        What ``evaluate`` depends on, as plain data: a saved history is taken up only under the
        same key.
    file : HistoryFile or None
        Where the history is saved while the search runs, and taken up from.
    name : str
        Of the search in the file.
    progress : callable or None
        Told where the search stands, now and then.
    target : float or None
        A value that is good enough to stop at.

    Raises
    ------
    InputError
        If the method is not known, a number is out of range, or the file holds something else.
    InfeasibleError
        If no point was a design: what the nearest one lacks.
    """
    begun = time.perf_counter()
    require_whole("evaluations", evaluations)
    require_whole("seed", seed, minimum=0)
    first = space.check(np.asarray(start, dtype=float), "start")
    asking = method_named(method, descent)(space, first, seed)
    asked = {"problem": key, "method": method, "seed": seed, "start": first.tolist()}
    whole_key = _whole_key(space, asked, descent)
    files = file or HistoryFile(None)
    saved = files.history(name, whole_key, space.names).evaluated[:evaluations]
    rounds = _Rounds(evaluate, History(key=whole_key, names=space.names), saved, files)
    request: Request | None = next(asking)
    while request is not None and rounds.done < evaluations:
        scores = rounds.scores(request, evaluations - rounds.done)
        files.put(name, rounds.history, now=False)
        if progress is not None:
            best_yet = rounds.best if rounds.best < PENALTY else None
            progress(SearchProgress(done=rounds.done, allowed=evaluations, best=best_yet))
        if len(scores) < len(request.points) or (target is not None and rounds.best <= target):
            break
        try:
            request = asking.send(scores)
        except StopIteration:  # there is nothing left to ask
            request = None
    asking.close()
    files.put(name, rounds.history)
    winner = rounds.history.best
    if winner is None:
        raise _nothing(rounds.reasons)
    return SearchResult(
        space=space,
        point=winner.point,
        value=winner.value,
        history=rounds.history,
        method=method,
        seed=seed,
        reused=len(saved),
        runtime=time.perf_counter() - begun,
    )


def _whole_key(space: SimplexSpace, asked: dict[str, object], descent: Descent | None) -> str:
    """Return a hash of what is asked, of whom, and in which version."""
    totals = [group.total for group in space.groups]
    whole = {"version": __version__, "names": space.names, "totals": totals, **asked}
    return key_of(whole if descent is None else {**whole, "descent": asdict(descent)})


class _Rounds:
    """Points as they are asked for, a round at a time: those saved before, then fresh ones."""

    def __init__(
        self, evaluate: Evaluator, history: History, saved: list[Evaluated], file: HistoryFile
    ) -> None:
        self.evaluate = evaluate
        self.history = history
        self.saved = saved
        self.file = file
        self.reasons: dict[str, float] = {}
        self.best = np.inf

    @property
    def done(self) -> int:
        """Points so far."""
        return len(self.history.evaluated)

    def scores(self, request: Request, most: int) -> Floats:
        """Return the scores of the points of a request, of so many at most."""
        points = request.points[:most]
        old = self.saved[self.done :][: len(points)]
        if any(e.point != tuple(p) for e, p in zip(old, points.tolist(), strict=False)):
            message = "the history does not follow from its own start."
            raise InputError(Problem(str(self.file.path), message))
        self.history.evaluated += old
        fresh = points[len(old) :]
        found = self.evaluate(fresh, probes=request.probes) if len(fresh) else ()
        for point, value in zip(fresh, found, strict=True):
            if value.reason:
                lack = self.reasons.get(value.reason, np.inf)
                self.reasons[value.reason] = min(value.excess, lack)
            self.history.evaluated.append(
                Evaluated(
                    point=tuple(point.tolist()),
                    value=value.score,
                    feasible=value.feasible,
                    probe=request.probes,
                )
            )
        scores = np.array([e.value for e in old] + [value.score for value in found])
        if not request.probes:
            self.best = min(self.best, float(scores.min()))
        return scores


def _nothing(reasons: dict[str, float]) -> InfeasibleError:
    """Say what the nearest point lacks."""
    reason = min(reasons, key=lambda r: reasons[r], default="nothing was evaluated anew")
    return InfeasibleError(
        resource="budget",
        demand=1 + min(reasons.get(reason, 0.0), 1e6),
        limit=1.0,
        unit="of what there is",
        where=f"every design that was tried (the nearest: {reason})",
        levers=("more area, power or memory", "another strategy", "more evaluations"),
    )
