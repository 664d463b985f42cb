"""Pieces of a sweep: what is handed to a process, and what comes back.

A piece is one point, or many points that are answered as arrays. Every executor runs the same
pieces through `answer`, so that where a point is answered does not change its answer.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import CrosstackError, InfeasibleError
from crosstack.explore.axes import Assignment, Axis, quantity_in
from crosstack.explore.evaluators import BaseProblem, Evaluator, PointAnswer, PointAnswers, answered
from crosstack.explore.points import Points

__all__ = ["CHUNK", "Arrayed", "Group", "Job", "Piece", "Result", "answer", "arrayed", "cut"]

CHUNK = 65_536
"""Points of a piece that is answered as arrays; the same for every executor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What all pieces of a sweep have in common; goes to every process once."""

    evaluator: Evaluator
    base: BaseProblem
    keep: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Points of a piece with the same assignments but for numbers: where they are in it."""

    places: NDArray[np.int64]
    assignments: tuple[Assignment, ...]
    arrays: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Piece:
    """Numbers of points, and either what the one of them sets, or groups."""

    points: NDArray[np.int64]
    assignments: tuple[Assignment, ...] = ()
    groups: tuple[Group, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Result:
    """What came of a piece: one outcome, or many; and how long it took. [s]"""

    outcome: PointAnswer | None = None
    many: PointAnswers | None = None
    runtime: float = 0.0


def answer(job: Job, piece: Piece) -> Result:
    """Answer a piece. No exception comes out of it but an interrupt."""
    started = time.perf_counter()
    if piece.groups:
        many = _answer_groups(job, piece)
        return Result(many=many, runtime=(time.perf_counter() - started) / len(piece.points))
    try:
        outcome = answered(job.evaluator, job.base, piece.assignments, job.keep)
    except Exception as error:  # one point's bug must not end the sweep
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{where.name}, line {where.lineno}"
        outcome = PointAnswer(status="failed", reason=f"{type(error).__name__}: {error} ({place})")
    return Result(outcome=outcome, runtime=time.perf_counter() - started)


def _answer_groups(job: Job, piece: Piece) -> PointAnswers:
    n = len(piece.points)
    columns = [c.name for c in job.evaluator.columns(job.base) if c.unit is not None]
    status = np.full(n, "failed", dtype="U16")
    reason = np.full(n, None, dtype=object)
    terms = {name: np.full(n, np.nan) for name in columns}
    evaluator: Any = job.evaluator  # one with arrays: there are groups
    for group in piece.groups:
        try:
            found = evaluator.run_many(job.base, group.assignments, group.arrays)
        except InfeasibleError as error:  # the same for all of them
            status[group.places], reason[group.places] = "infeasible", str(error)
            continue
        except CrosstackError as error:
            status[group.places] = "invalid"
            reason[group.places] = "; ".join(str(error).splitlines())
            continue
        except Exception as error:
            status[group.places] = "failed"
            reason[group.places] = f"{type(error).__name__}: {error}"
            continue
        status[group.places], reason[group.places] = found.status, found.reason
        for name in columns:
            terms[name][group.places] = found.terms[name]
    return PointAnswers(status=status, reason=reason, terms=terms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrayed:
    """Axes whose numbers are arrays, by their place: fields and what each value is in them."""

    tables: Mapping[int, Mapping[str, NDArray[np.float64]]]

    @property
    def axes(self) -> frozenset[int]:
        """Places of those axes."""
        return frozenset(self.tables)


def arrayed(job: Job, points: Points) -> Arrayed:
    """Return which axes of a study the evaluator takes as arrays; none where it takes none."""
    take = getattr(job.evaluator, "array_fields", None)
    if take is None or job.keep:
        return Arrayed(tables={})
    fields = [field for axis in points.axes for field in axis.fields]
    units: Mapping[str, str] = take(job.base, fields)
    tables = {}
    for i, axis in enumerate(points.axes):
        table = _numbers(axis, points.values[i], units)
        if table is not None:
            tables[i] = table
    return Arrayed(tables=tables)


def _numbers(
    axis: Axis, values: NDArray[Any], units: Mapping[str, str]
) -> dict[str, NDArray[np.float64]] | None:
    """Return the numbers that an axis sets in every field, by value; None where it is text."""
    if not all(field in units for field in axis.fields):
        return None
    if axis.span is not None:
        good = all(axis.unit in ("", units[field]) for field in axis.fields)
        return dict.fromkeys(axis.fields, values) if good else None
    table = {field: np.empty(len(axis.choices)) for field in axis.fields}
    for k, choice in enumerate(axis.choices):
        if len(choice) != len(axis.fields):
            return None
        for field, value in choice:
            found = quantity_in(value)
            if found is None or found[1] not in ("", units[field]):
                return None
            table[field][k] = found[0]
    return table


def cut(points: Points, numbers: NDArray[np.int64], arrays: Arrayed) -> Piece:
    """Return points as a piece: one by itself, or many in groups."""
    if not arrays.tables:
        return Piece(points=numbers, assignments=tuple(points.assignments(int(numbers[0]))))
    others = [i for i in range(len(points.axes)) if i not in arrays.axes]
    chosen = points.choice[numbers]
    if others:
        _, first, group = np.unique(
            chosen[:, others], axis=0, return_index=True, return_inverse=True
        )
        group = group.reshape(-1)
    else:
        first, group = np.zeros(1, dtype=np.int64), np.zeros(len(numbers), dtype=np.int64)
    groups = []
    for k, start in enumerate(first.tolist()):
        places = np.flatnonzero(group == k)
        groups.append(
            Group(
                places=places,
                assignments=tuple(points.assignments(int(numbers[start]), others)),
                arrays={
                    field: table[chosen[places, i]]
                    for i, tables in arrays.tables.items()
                    for field, table in tables.items()
                },
            )
        )
    return Piece(points=numbers, groups=tuple(groups))
