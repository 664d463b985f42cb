"""What a sweep found, as tables: rows that meet the constraints, the best, the Pareto front."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.explore.layout import arrow
from crosstack.explore.pareto import pareto_rows
from crosstack.explore.question import StudyQuestion
from crosstack.explore.study import Bound, Goal
from crosstack.io.csv_text import csv_text
from crosstack.io.files import write_atomically, writing

if TYPE_CHECKING:
    import pyarrow

__all__ = [
    "as_frame",
    "best",
    "current",
    "number_column",
    "pareto",
    "within",
    "write_table",
]

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]


def as_frame(table: pyarrow.Table, kind: str) -> Any:
    """Return a pyarrow table as ``pandas``, ``polars`` or ``arrow``.

    Raises
    ------
    InputError
        For another kind, or one that is not installed.
    """
    if kind == "arrow":
        return table
    if kind not in ("pandas", "polars"):
        raise InputError(Problem("table", f"got {kind!r}; allowed: pandas, polars, arrow."))
    try:
        if kind == "pandas":
            import pandas  # noqa: F401

            return table.to_pandas()
        import polars

        return polars.from_arrow(table)
    except ImportError:
        raise InputError(Problem("table", f"needs {kind}; pip install {kind}.")) from None


def write_table(table: pyarrow.Table, path: Path) -> None:
    """Write rows as CSV, JSON (a list of objects) or Parquet, by the suffix; never half of them.

    Numbers keep every bit; what is not there is empty in CSV and null in JSON, as infinity is.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        with writing(path) as temporary:
            arrow().parquet.write_table(table, temporary, compression="zstd")
        return
    rows = table.to_pylist()
    if suffix == ".json":
        clean = [{name: _finite(value) for name, value in row.items()} for row in rows]
        write_atomically(path, json.dumps(clean, indent=1, allow_nan=False) + "\n")
        return
    write_atomically(path, csv_text(table.column_names, [list(row.values()) for row in rows]))


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def number_column(table: pyarrow.Table, name: str) -> Floats:
    """Return a column of numbers; NaN where there is none.

    Raises
    ------
    InputError
        If there is no such column, or it holds text.
    """
    numbers = [f.name for f in table.schema if str(f.type) == "double"]
    if name not in numbers:
        raise unknown_name(name, "column of numbers is", name, numbers)
    found: Floats = table.column(name).to_numpy(zero_copy_only=False).astype(float)
    return found


def within(table: pyarrow.Table, bounds: Sequence[Bound]) -> Bools:
    """Return which rows have an answer that meets every constraint."""
    answered = table.column("status").to_pylist()
    good = np.array([status in ("optimal", "feasible", "limit") for status in answered], dtype=bool)
    for bound in bounds:
        values = number_column(table, bound.column)
        low = -math.inf if bound.minimum is None else bound.minimum
        high = math.inf if bound.maximum is None else bound.maximum
        with np.errstate(invalid="ignore"):
            good &= (values >= low) & (values <= high)
    return good


def best(table: pyarrow.Table, objective: tuple[str, Goal], among: Bools) -> NDArray[np.int64]:
    """Return the rows ``among`` that have a value, the best first."""
    name, goal = objective
    values = number_column(table, name)
    rows = np.flatnonzero(among & ~np.isnan(values))
    sign = 1.0 if goal is Goal.MINIMUM else -1.0
    found: NDArray[np.int64] = rows[np.argsort(sign * values[rows], kind="stable")]
    return found


def pareto(
    table: pyarrow.Table, objectives: Sequence[tuple[str, Goal]], among: Bools
) -> NDArray[np.int64]:
    """Return the rows ``among`` that no other is at least as good as in all objectives and better.

    Sorted by the first objective. Rows that are equal in all of them stay.
    """
    columns = []
    for name, goal in objectives:
        values = number_column(table, name)
        columns.append(values if goal is Goal.MINIMUM else -values)
    scores = np.stack(columns, axis=1)
    rows = np.flatnonzero(among & ~np.isnan(scores).any(axis=1))
    return rows[pareto_rows(scores[rows])]


def current(table: pyarrow.Table, asked: StudyQuestion) -> pyarrow.Table:
    """Return the rows that the model of the last sweep answered.

    Those of another version of crosstack, on the same points, stay in the store beside them.
    """
    if not asked.model or "model" not in table.column_names:
        return table
    models = table.column("model").to_numpy(zero_copy_only=False)
    kept = models == asked.model
    return table if kept.all() else table.take(arrow().array(np.flatnonzero(kept)))
