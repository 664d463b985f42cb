"""The designs of a choice as trials: none that is known already is evaluated again."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crosstack.explore.design import DesignProblem, Metric
from crosstack.explore.evaluators import PointAnswer, Terms
from crosstack.explore.keys import stated
from crosstack.explore.search import Value
from crosstack.explore.trials import Trials

__all__ = ["EXCESS", "Choice", "Recorded"]

Floats = NDArray[np.float64]
EXCESS = "excess"  # the column of `Value.excess`


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One combination: what was chosen, by field, and the problem that this leaves."""

    labels: tuple[tuple[str, str], ...]
    problem: DesignProblem

    @property
    def name(self) -> str:
        """For people and files."""
        return ", ".join(f"{field}={value}" for field, value in self.labels)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The values of a choice; points that there are trials of are not evaluated again."""

    choice: Choice
    trials: Trials
    template: str  # files name technologies: this is what the library says of them

    @classmethod
    def of(cls, choice: Choice, trials: Trials) -> Recorded:
        """Return the values of a choice."""
        return cls(choice, trials, stated(choice.problem.free.template))

    def __call__(self, points: Floats, *, probes: bool = False) -> list[Value]:
        """Return the value of every point."""
        problem, trials = self.choice.problem, self.trials
        labels, names = self.choice.labels, problem.free.space.names
        keys = trials.keys(labels, names, points, probes=probes, template=self.template)
        known = {key: trials.recall(key) for key in dict.fromkeys(keys)}
        fresh = [i for i, key in enumerate(keys) if known[key] is None]
        if fresh:
            begun = time.perf_counter()
            found = problem(points[fresh], probes=probes)
            each = (time.perf_counter() - begun) / len(fresh)
            new = {
                keys[i]: (points[i].tolist(), _answer(value, probes=probes), each)
                for i, value in zip(fresh, found, strict=True)
            }
            trials.record(labels, names, new)
            known |= {key: answer for key, (_, answer, _) in new.items()}
        return [_value(known[key], problem.objective) for key in keys]


def _answer(value: Value, *, probes: bool) -> PointAnswer:
    """Return what a store holds of a value."""
    excess = value.excess if math.isfinite(value.excess) else None
    status = "probe" if probes else "feasible" if value.feasible else "infeasible"
    terms: Terms = {**{m.value: None for m in Metric}, **value.terms, EXCESS: excess}
    return PointAnswer(status=status, reason=value.reason or None, terms=terms)


def _value(answer: PointAnswer | None, objective: Metric) -> Value:
    """Return the value that `_answer` was given."""
    assert answer is not None  # known, or evaluated just now
    if answer.reason is None:
        return Value(objective=float(answer.terms[objective] or 0.0))
    excess = answer.terms[EXCESS]
    return Value(excess=math.inf if excess is None else float(excess), reason=answer.reason)
