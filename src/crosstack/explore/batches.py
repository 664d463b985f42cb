"""Batches of a sweep: what is handed to a process, and what comes back.

A batch is one point, or many points that are answered as arrays. Every executor runs the same
batches through `answer`, so that where a point is answered does not change its answer.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from crosstack.explore.axes import Assignment, Axis, quantity_in
from crosstack.explore.evaluators import (
    BaseProblem,
    Evaluator,
    PointAnswer,
    PointAnswers,
    answered,
    refused,
)
from crosstack.explore.points import Points

__all__ = [
    "CHUNK", "Alike", "Arrayed", "Batch", "Common", "answer", "arrayed", "cut",
]  # fmt: skip

CHUNK = 65_536
"""Points of a batch that is answered as arrays; the same for every executor."""
Arrayed: TypeAlias = "Mapping[int, Mapping[str, NDArray[np.float64]]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What all batches of a sweep have in common; goes to every process once."""

    evaluator: Evaluator
    base: BaseProblem
    keep: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alike:
    """Points of a batch with the same assignments but for numbers: where they are in it."""

    places: NDArray[np.int64]
    assignments: tuple[Assignment, ...]
    arrays: Mapping[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """Numbers of points, and either what the one of them sets, or those that are alike."""

    points: NDArray[np.int64]
    assignments: tuple[Assignment, ...] = ()
    groups: tuple[Alike, ...] = ()


def answer(common: Common, batch: Batch) -> PointAnswer | PointAnswers:
    """Plan a batch. No exception comes out of it but an interrupt."""
    started = time.perf_counter()
    if batch.groups:
        many = _answer_groups(common, batch)
        return replace(many, runtime=(time.perf_counter() - started) / len(batch.points))
    one = answered(common.evaluator, common.base, batch.assignments, common.keep)
    return replace(one, runtime=time.perf_counter() - started)


def _answer_groups(common: Common, batch: Batch) -> PointAnswers:
    n = len(batch.points)
    columns = common.evaluator.columns(common.base)
    status = np.full(n, "failed", dtype="U16")
    reason = np.full(n, None, dtype=object)
    terms: dict[str, NDArray[Any]] = {
        c.name: np.full(n, None, dtype=object) if c.unit is None else np.full(n, np.nan)
        for c in columns
    }
    evaluator: Any = common.evaluator  # one with arrays: there are groups
    for group in batch.groups:
        at = group.places
        try:
            found = evaluator.run_many(common.base, group.assignments, group.arrays)
        except Exception as error:  # the same for all of them
            one = refused(error)
            status[at], reason[at] = one.status, one.reason
            continue
        status[at], reason[at] = found.status, found.reason
        for name, values in terms.items():
            values[at] = found.terms[name]
    return PointAnswers(status=status, reason=reason, terms=terms)


def arrayed(common: Common, points: Points) -> Arrayed:
    """Return the axes that an evaluator takes as arrays, by their place; none where it takes none.

    Each with its fields and what every value is in them.
    """
    take = getattr(common.evaluator, "array_fields", None)
    if take is None or common.keep:
        return {}
    fields = [field for axis in points.axes for field in axis.fields]
    units: Mapping[str, str] = take(common.base, fields)
    tables = {}
    for i, axis in enumerate(points.axes):
        table = _numbers(axis, points.values[i], units)
        if table is not None:
            tables[i] = table
    return tables


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


def cut(points: Points, numbers: NDArray[np.int64], arrays: Arrayed) -> Batch:
    """Return points as a batch: one by itself, or many in groups."""
    if not arrays:
        return Batch(points=numbers, assignments=tuple(points.assignments(int(numbers[0]))))
    others = [i for i in range(len(points.axes)) if i not in arrays]
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
            Alike(
                places=places,
                assignments=tuple(points.assignments(int(numbers[start]), others)),
                arrays={
                    field: table[chosen[places, i]]
                    for i, tables in arrays.items()
                    for field, table in tables.items()
                },
            )
        )
    return Batch(points=numbers, groups=tuple(groups))
