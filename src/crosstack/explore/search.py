"""Search a space of shares for the point with the smallest value, by any method, in one call."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InfeasibleError, require_whole
from crosstack.explore.methods import Descent, Request, method_named
from crosstack.explore.simplex import SimplexSpace

__all__ = ["DEFAULT_METHOD", "Evaluated", "Evaluator", "SearchResult", "Value", "minimise"]

Floats = NDArray[np.float64]
DEFAULT_METHOD = "cma-es"  # benchmarks/searches.py
PENALTY = 1e30  # what is not a design is worse than every design, by how far it is from one


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """What a point is worth: its ``objective``, or by what factor it fails to be a design.

    ``excess`` is 0 for a design, demand over limit less 1 where something does not fit, infinite
    where there is no telling. ``reason`` says what fails. ``terms`` are what else is known of it.
    """

    objective: float = 0.0
    excess: float = 0.0
    reason: str = ""
    terms: Mapping[str, float] = field(default_factory=dict)

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
class Evaluated:
    """One point and its score; ``feasible`` says whether it is a design, ``probe`` if not one."""

    point: tuple[float, ...]
    value: float
    feasible: bool
    probe: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The best point, and every point in the order it was asked for. ``runtime`` [s]."""

    space: SimplexSpace
    point: tuple[float, ...]
    value: float
    evaluated: tuple[Evaluated, ...]
    method: str
    seed: int
    runtime: float

    @property
    def evaluations(self) -> int:
        """All that the search has asked for. [1]"""
        return len(self.evaluated)

    @property
    def best_values(self) -> tuple[float, ...]:
        """The best value after every evaluation; infinite before the first design."""
        values = [e.value if e.feasible and not e.probe else math.inf for e in self.evaluated]
        return tuple(itertools.accumulate(values, min))

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
    progress: Callable[[int, float | None], None] | None = None,
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
    progress : callable or None
        Told now and then how many points were evaluated, and the best value so far.
    target : float or None
        A value that is good enough to stop at.

    Raises
    ------
    InputError
        If the method is not known, or a number is out of range.
    InfeasibleError
        If no point was a design: what the nearest one lacks.
    """
    begun = time.perf_counter()
    require_whole("evaluations", evaluations)
    require_whole("seed", seed, minimum=0)
    first = space.check(np.asarray(start, dtype=float), "start")
    asking = method_named(method, descent)(space, first, seed)
    evaluated: list[Evaluated] = []
    lacking: dict[str, float] = {}
    best: float | None = None
    request: Request | None = next(asking)
    while request is not None and len(evaluated) < evaluations:
        points = request.points[: evaluations - len(evaluated)]
        found = evaluate(points, probes=request.probes)
        for point, value in zip(points, found, strict=True):
            if value.reason:
                lacking[value.reason] = min(value.excess, lacking.get(value.reason, math.inf))
            one = Evaluated(
                point=tuple(point.tolist()),
                value=value.score,
                feasible=value.feasible,
                probe=request.probes,
            )
            evaluated.append(one)
            if one.feasible and not one.probe and (best is None or one.value < best):
                best = one.value
        if progress is not None:
            progress(len(evaluated), best)
        good_enough = target is not None and best is not None and best <= target
        if len(points) < len(request.points) or good_enough:
            break
        try:
            request = asking.send(np.array([value.score for value in found]))
        except StopIteration:  # there is nothing left to ask
            request = None
    asking.close()
    if best is None:
        raise _nothing(lacking)
    winner = next(e for e in evaluated if e.feasible and not e.probe and e.value == best)
    return SearchResult(
        space=space,
        point=winner.point,
        value=winner.value,
        evaluated=tuple(evaluated),
        method=method,
        seed=seed,
        runtime=time.perf_counter() - begun,
    )


def _nothing(reasons: dict[str, float]) -> InfeasibleError:
    """Say what the nearest point lacks."""
    reason = min(reasons, key=lambda r: reasons[r], default="nothing was a design")
    return InfeasibleError(
        resource="budget",
        demand=1 + min(reasons.get(reason, 0.0), 1e6),
        limit=1.0,
        unit="of what there is",
        where=f"every design that was tried (the nearest: {reason})",
        levers=("more area, power or memory", "another strategy", "more evaluations"),
    )
