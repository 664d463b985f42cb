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
from crosstack.explore.pareto import pareto_rows
from crosstack.explore.study import Bound, Goal
from crosstack.units import UNITS, format_quantity

if TYPE_CHECKING:
    import pyarrow

    from crosstack.explore.question import StudyQuestion
    from crosstack.explore.store import Store

Cell = float | str | None
ANSWERED = ("optimal", "feasible", "limit")
MOST_ON_PAGE = 20_000
"""Points of a page; more would open slowly. Of a larger study the front, the best and an even
share of the others are shown, and the page says so."""

_MORE_IS_BETTER = (
    "throughput", "utilization", "efficiency", "intensity",
    "bandwidth", "capacity", "peak", "yield",
)  # fmt: skip
_BREAKDOWNS = (
    (
        "Where the time goes, one layer of one item",
        ("compute_time", "memory_time", "network_time", "launch_time"),
    ),
    ("A step of the busiest stage", ("busy_time", "idle_time")),
    ("Degrees of parallelism", ("tensor", "pipeline", "data")),
    ("Memory of a chip", ("memory_used", "memory_capacity")),
    ("Memory of a chip", ("memory_used", "memory.capacity")),
)
_OF_LEVELS = (("Capacity of each memory", ".capacity"), ("Bandwidth of each memory", ".bandwidth"))
_NO_TERMS = ("key", "status", "reason", "runtime", "model", "within")


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyTable:
    """Points of a study, column by column: numbers in SI, or text; None where there is none."""

    title: str
    columns: Mapping[str, Sequence[Cell]]
    axes: tuple[str, ...]  # columns that were varied
    objectives: tuple[tuple[str, Goal], ...]  # that tell good points, the most important first
    units: Mapping[str, str] = field(default_factory=dict)  # of numbers; "1" where it is left out
    details: tuple[tuple[str, tuple[str, ...]], ...] = ()  # columns that a point shows together
    notes: tuple[str, ...] = ()  # sentences above everything
    total: int | None = None  # points of the study where the table holds only some

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
        return np.array(self.columns[name], dtype=float)  # of None: NaN

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
        """Return at most about ``most`` points, with a note that says which; see `shares`."""
        if len(self) <= most:
            return self
        kept = shares(self, most)
        return replace(self.take(kept), notes=(*self.notes, _thinned_note(len(self), len(kept))))


def as_arrow(table: StudyTable) -> pyarrow.Table:
    """Return the points as a pyarrow table; units are metadata of its fields."""
    from crosstack.explore.layout import Layout, columns_as

    def unit_of(name: str) -> str | None:
        empty = all(value is None for value in table.columns[name])
        number = name in table.units if empty else table.is_number(name)
        return table.units.get(name, "1") if number else None

    columns = tuple((name, unit_of(name)) for name in table.columns)
    values = {
        name: [math.nan if v is None and unit is not None else v for v in table.columns[name]]
        for name, unit in columns
    }
    return columns_as(values, Layout(columns=columns))


def front(table: StudyTable, names: Sequence[str]) -> NDArray[np.int64]:
    """Return the answered points that no other beats in all of the columns ``names``.

    Sorted by the first column; of points that are equal in all columns the first stays.
    """
    signs = np.array([1.0 if table.goal(name) is Goal.MINIMUM else -1.0 for name in names])
    scores = signs * np.stack([table.numbers(name) for name in names], axis=1)
    rows = np.flatnonzero(table.answered() & ~np.isnan(scores).any(axis=1))
    found = rows[pareto_rows(scores[rows])]
    first = np.ones(len(found), dtype=bool)  # equal points follow one another
    first[1:] = (np.diff(scores[found], axis=0) != 0).any(axis=1)
    return found[first]


def shares(table: StudyTable, most: int) -> list[int]:
    """Return which points stand for all: front, best of each objective, even share of the others.

    The front is that of all objectives together; of one with more than half of ``most`` points
    an even share.
    """
    kept: set[int] = set()
    if table.objectives:
        found = front(table, [name for name, _ in table.objectives])
        kept |= set(_evenly(found, most // 2))
    good = table.answered()
    for name, goal in table.objectives:
        values = np.where(good, table.numbers(name), math.nan)
        if not np.isnan(values).all():
            best = np.nanargmin if goal is Goal.MINIMUM else np.nanargmax
            kept.add(int(best(values)))
    kept |= set(_evenly(np.arange(len(table)), most - len(kept)))
    return sorted(kept)


def _evenly(rows: NDArray[np.int64], most: int) -> list[int]:
    if len(rows) > most:
        rows = rows[np.linspace(0, len(rows) - 1, most, dtype=int)]
    found: list[int] = rows.tolist()
    return found


def _thinned_note(total: int, kept: int) -> str:
    return (
        f"The study has {total:,} points; this page holds {kept:,}: the Pareto front of the "
        "objectives, the best, and an even share of the others."
    )


def store_table(place: Store | str | Path, most: int = MOST_ON_PAGE) -> StudyTable:
    """Return the finished points of a store, asked what its last sweep was.

    Of more than ``most`` points those that stand for all; see `shares`. What is damaged stands in
    the notes.

    Raises
    ------
    InputError
        If there is no store.
    """
    from crosstack.explore.question import question_in
    from crosstack.explore.store import Store
    from crosstack.explore.tables import current

    store = place if isinstance(place, Store) else Store.open(place)
    asked = question_in(store)
    table = current(store.table(), asked)
    total = table.num_rows
    units = {name: unit for name, unit in store.layout.columns if unit is not None}
    notes = [f"{name} {wrong}." for name, wrong in store.damage.items()]
    if asked.bounds:
        held = "; ".join(_bound_words(bound, units.get(bound.column, "")) for bound in asked.bounds)
        notes.append(f"Constraints: {held}.")
    if total > most:  # thinned before its cells become objects
        judged = _columns(table, asked, ("status", *(name for name, _ in asked.objectives)))
        scout = StudyTable(title="", columns=judged, axes=(), objectives=asked.objectives)
        kept = shares(scout, most)
        table = table.take(kept)
        notes.append(_thinned_note(total, len(kept)))
    columns = _columns(table, asked, table.column_names)
    return StudyTable(
        title=asked.name,
        columns=columns,
        axes=asked.axes,
        objectives=asked.objectives,
        units=units,
        details=_breakdowns([name for name in columns if name not in asked.axes]),
        notes=tuple(notes),
        total=total,
    )


def _columns(
    table: pyarrow.Table, asked: StudyQuestion, names: Sequence[str]
) -> dict[str, Sequence[Cell]]:
    """Return columns, and whether the constraints are met where there are some."""
    from crosstack.explore.tables import within

    columns: dict[str, Sequence[Cell]] = {
        name: finite_cells(table.column(name).to_pylist()) for name in names
    }
    if asked.bounds:
        held = zip(table.column("status").to_pylist(), within(table, asked.bounds), strict=True)
        columns["within"] = [
            None if status not in ANSWERED else "yes" if good else "no" for status, good in held
        ]
    return columns


def unit_of(table: pyarrow.Table, name: str) -> str:
    """Return the unit of a column; empty of text."""
    unit: bytes = (table.schema.field(name).metadata or {}).get(b"unit") or b""
    return unit.decode()


def quantity_words(value: float | None, unit: str, digits: int = 6) -> str:
    """Return a number as people write it; ``digits`` where its unit has no prefixes."""
    if value is None:
        return ""
    return format_quantity(value, unit) if unit in UNITS else f"{value:.{digits}g}"


def _bound_words(bound: Bound, unit: str) -> str:
    limits = (("at least", bound.minimum), ("at most", bound.maximum))
    words = [f"{side} {quantity_words(v, unit)}" for side, v in limits if v is not None]
    return f"{bound.column} {' and '.join(words)}"


def _breakdowns(names: Sequence[str]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the columns that a point's breakdown draws side by side, of those that came out."""
    found: list[tuple[str, tuple[str, ...]]] = []
    found += [(title, group) for title, group in _BREAKDOWNS if set(group) <= set(names)]
    for title, suffix in _OF_LEVELS:
        group = tuple(name for name in names if name.endswith(suffix))
        if len(group) > 1:
            found.append((title, group))
    return tuple(found)


def terms(table: StudyTable) -> list[str]:
    """Return the columns that came out, in their order: neither varied nor about the run."""
    return [name for name in table.columns if name not in (*table.axes, *_NO_TERMS)]


def finite_cells(values: Iterable[Cell]) -> list[Cell]:
    """Return values; what is not finite is none."""
    return [None if isinstance(v, float) and not math.isfinite(v) else v for v in values]
