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
    whole_key = key_of(
        {
            "version": __version__,
            "problem": key,
            "names": space.names,
            "totals": [group.total for group in space.groups],
            "method": method,
            "seed": seed,
            "start": first.tolist(),
        }
        | ({} if descent is None else {"descent": asdict(descent)})
    )
    files = file or HistoryFile(None)
    saved = files.history(name, whole_key, space.names).evaluated[:evaluations]
    history = History(key=whole_key, names=space.names)
    reasons: dict[str, float] = {}
    best = np.inf
    request: Request | None = next(asking)
    while request is not None and len(history.evaluated) < evaluations:
        points = request.points[: evaluations - len(history.evaluated)]
        old = saved[len(history.evaluated) :][: len(points)]
        known = [entry.value for entry in old]
        if any(e.point != tuple(p) for e, p in zip(old, points.tolist(), strict=False)):
            raise InputError(
                Problem(str(files.path), "the history does not follow from its own start.")
            )
        history.evaluated += old
        fresh = points[len(old) :]
        found = evaluate(fresh, probes=request.probes) if len(fresh) else ()
        for point, value in zip(fresh, found, strict=True):
            if value.reason:
                reasons[value.reason] = min(value.excess, reasons.get(value.reason, np.inf))
            history.evaluated.append(
                Evaluated(
                    point=tuple(point.tolist()),
                    value=value.score,
                    feasible=value.feasible,
                    probe=request.probes,
                )
            )
        scores = np.array(known + [value.score for value in found])
        if not request.probes:
            best = min(best, float(scores.min()))
        files.put(name, history, now=False)
        if progress is not None:
            best_yet = best if best < PENALTY else None
            progress(
                SearchProgress(done=len(history.evaluated), allowed=evaluations, best=best_yet)
            )
        if len(scores) < len(request.points) or (target is not None and best <= target):
            break
        try:
            request = asking.send(scores)
        except StopIteration:  # there is nothing left to ask
            request = None
    asking.close()
    files.put(name, history)
    winner = history.best
    if winner is None:
        raise _nothing(reasons)
    return SearchResult(
        space=space,
        point=winner.point,
        value=winner.value,
        history=history,
        method=method,
        seed=seed,
        reused=len(saved),
        runtime=time.perf_counter() - begun,
    )


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
