"""The table of a study's points, as pages and plots take it, and how a store becomes one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require, unknown_name
from crosstack.explore.study import Bound, Goal

if TYPE_CHECKING:
    import pyarrow

__all__ = ["ANSWERED", "MOST_ON_PAGE", "StudyTable", "front", "store_table", "terms"]

Cell = float | str | None
ANSWERED = ("optimal", "feasible", "limit")
MOST_ON_PAGE = 20_000
"""Points of a page; more would open slowly. Of a larger study the front, the best and an even
share of the others are shown, and the page says so."""

_MORE_IS_BETTER = (
    "throughput",
    "utilization",
    "efficiency",
    "intensity",
    "bandwidth",
    "capacity",
    "peak",
    "yield",
)
_BREAKDOWNS = (
    (
        "Where the time goes, one layer of one sequence",
        ("compute_time", "memory_time", "network_time"),
    ),
    ("Degrees of parallelism", ("tensor", "pipeline", "data")),
)
_NO_TERMS = ("key", "status", "reason", "runtime", "model", "within")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """Points of a study, column by column.

    Parameters
    ----------
    title : str
        Of the study.
    columns : mapping
        Name to values, one for each point: numbers in SI, text, or None where there is none.
    axes : tuple of str
        Columns that were varied.
    objectives : tuple of (str, Goal)
        Columns that tell good points, the most important first.
    units : mapping
        SI unit of a column of numbers; "1" where it is left out.
    details : tuple of (str, tuple of str)
        Groups of columns of one unit that the breakdown of a point draws side by side.
    notes : tuple of str
        Sentences to stand above everything.
    total : int or None
        Points of the study where the table holds only some; None: all.
    """

    title: str
    columns: Mapping[str, Sequence[Cell]]
    axes: tuple[str, ...]
    objectives: tuple[tuple[str, Goal], ...]
    units: Mapping[str, str] = field(default_factory=dict)
    details: tuple[tuple[str, tuple[str, ...]], ...] = ()
    notes: tuple[str, ...] = ()
    total: int | None = None

    def __post_init__(self) -> None:
        """Check that columns are of one length, and that what is named is there."""
        lengths = {len(values) for values in self.columns.values()}
        require(len(lengths) <= 1, "columns", sorted(lengths), "lists of one length")
        for where, names in (
            ("axes", self.axes),
            ("objectives", tuple(name for name, _ in self.objectives)),
            ("details", tuple(name for _, group in self.details for name in group)),
        ):
            for name in names:
                if name not in self.columns:
                    raise unknown_name(where, "column is", name, self.columns)
        for name, _ in self.objectives:
            if not self.is_number(name):
                raise InputError(Problem(f"objectives.{name}", "holds text; allowed: numbers."))

    def __len__(self) -> int:
        """Return how many points there are."""
        return len(next(iter(self.columns.values()), ()))

    def is_number(self, name: str) -> bool:
        """Return whether a column holds no text."""
        return not any(isinstance(value, str) for value in self.columns[name])

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column of numbers; NaN where there is none.

        Raises
        ------
        InputError
            If there is no such column, or it holds text.
        """
        numeric = [column for column in self.columns if self.is_number(column)]
        if name not in numeric:
            raise unknown_name("column", "column of numbers is", name, numeric)
        return np.array(
            [math.nan if value is None else value for value in self.columns[name]], dtype=float
        )

    def goal(self, name: str) -> Goal:
        """Return which way a column is better: as the study says, else by what it is called."""
        found = dict(self.objectives).get(name)
        if found is not None:
            return found
        more = any(word in name for word in _MORE_IS_BETTER)
        return Goal.MAXIMUM if more else Goal.MINIMUM

    def answered(self) -> NDArray[np.bool_]:
        """Return which points have an answer that meets the constraints."""
        good = np.ones(len(self), dtype=bool)
        if "status" in self.columns:
            good &= np.array([status in ANSWERED for status in self.columns["status"]], dtype=bool)
        if "within" in self.columns:
            good &= np.array([value != "no" for value in self.columns["within"]], dtype=bool)
        return good

    def take(self, rows: Iterable[int]) -> StudyTable:
        """Return some of the points; ``total`` keeps how many there were."""
        picked = list(rows)
        columns = {name: [values[i] for i in picked] for name, values in self.columns.items()}
        return replace(self, columns=columns, total=self.total or len(self))

    def thinned(self, most: int = MOST_ON_PAGE) -> StudyTable:
        """Return at most about ``most`` points, with a note: front, best, and an even share.

        The front is that of the objectives; where there is one, its best point.
        """
        if len(self) <= most:
            return self
        kept = set(np.linspace(0, len(self) - 1, most, dtype=int).tolist())
        if self.objectives:
            kept |= set(front(self, [name for name, _ in self.objectives])[:most].tolist())
        for name, goal in self.objectives:
            values = np.where(self.answered(), self.numbers(name), math.nan)
            if not np.isnan(values).all():
                best = np.nanargmin if goal is Goal.MINIMUM else np.nanargmax
                kept.add(int(best(values)))
        note = (
            f"The study has {len(self):,} points; this page holds {len(kept):,}: the Pareto "
            "front of the objectives, the best, and an even share of the others."
        )
        found = self.take(sorted(kept))
        return replace(found, notes=(*self.notes, note))


def front(table: StudyTable, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the answered points that no other beats in all of the columns ``names``.

    Sorted by the first column; of points that are equal in all columns the first stays.
    """
    signs = [1.0 if table.goal(name) is Goal.MINIMUM else -1.0 for name in names]
    scores = np.stack(
        [sign * table.numbers(name) for sign, name in zip(signs, names, strict=True)], axis=1
    )
    rows = np.flatnonzero(table.answered() & ~np.isnan(scores).any(axis=1))
    # In lexicographic order a point can be beaten only by one before it.
    order = rows[np.lexsort(scores[rows].T[::-1])]
    kept: list[int] = []
    best = np.empty((0, len(names)))
    for row in order.tolist():
        if not (best <= scores[row]).all(axis=1).any():
            kept.append(row)
            best = np.vstack([best, scores[row]])
    return np.array(kept, dtype=np.int64)


def store_table(path: str | Path) -> StudyTable:
    """Return the finished points of a store, asked what its last sweep was.

    Raises
    ------
    InputError
        If there is no store at ``path``, or no sweep has used it.
    """
    from crosstack.explore.store import Store
    from crosstack.explore.views import asked_in

    store = Store.open(path)
    asked = asked_in(store)
    table = store.table()
    columns: dict[str, Sequence[Cell]] = {
        name: _cells(table.column(name)) for name in table.column_names
    }
    notes = []
    if asked.bounds:
        columns["within"] = _within(table, asked.bounds)
        notes.append(f"Constraints: {'; '.join(bound.words for bound in asked.bounds)}.")
    return StudyTable(
        title=asked.name,
        columns=columns,
        axes=asked.axes,
        objectives=asked.objectives,
        units={name: unit for name, unit in store.layout.columns if unit is not None},
        details=tuple((t, group) for t, group in _BREAKDOWNS if set(group) <= set(columns)),
        notes=tuple(notes),
    )


def terms(table: StudyTable) -> list[str]:
    """Return the columns that came out, in their order: neither varied nor about the run."""
    return [name for name in table.columns if name not in (*table.axes, *_NO_TERMS)]


def _cells(column: pyarrow.ChunkedArray) -> list[Cell]:
    """Return values; what is not finite is none."""
    return [
        None if isinstance(value, float) and not math.isfinite(value) else value
        for value in column.to_pylist()
    ]


def _within(table: pyarrow.Table, bounds: Sequence[Bound]) -> list[Cell]:
    """Return yes or no for points with an answer."""
    from crosstack.explore.views import within

    held = within(table, bounds).tolist()
    answered = table.column("status").to_pylist()
    return [
        None if status not in ANSWERED else "yes" if good else "no"
        for good, status in zip(held, answered, strict=True)
    ]
