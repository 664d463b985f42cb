"""The columns of a store, with their units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Column", "Layout", "arrow", "columns_as"]

Column = tuple[str, str | None]


def arrow() -> Any:
    """Return pyarrow with its Parquet reader, or say what to install.

    Raises `InputError` where it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError:
        message = "needs pyarrow; install crosstack[explore]."
        raise InputError(Problem("store", message)) from None
    return pyarrow


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Columns of a store: name and unit; the unit is None for text."""

    columns: tuple[Column, ...]

    @property
    def axes(self) -> tuple[str, ...]:
        """Columns that were varied: they stand between the key and the status."""
        names = [name for name, _ in self.columns]
        return tuple(names[names.index("key") + 1 : names.index("status")])

    @classmethod
    def of(cls, axes: Sequence[Column], terms: Sequence[Column]) -> Layout:
        """Return the columns of a study: what is varied, and what comes out."""
        text: list[Column] = [("status", None), ("reason", None)]
        columns = [("key", None), *axes, *text, *terms, ("runtime", "s"), ("model", None)]
        return cls(columns=tuple(columns))

    def schema(self) -> pyarrow.Schema:
        """Return the columns as pyarrow's schema; units are metadata of the fields."""
        pa = arrow()
        return pa.schema(
            [
                pa.field(name, pa.string())
                if unit is None
                else pa.field(name, pa.float64(), metadata={"unit": unit})
                for name, unit in self.columns
            ]
        )


def columns_as(values: Mapping[str, Any], layout: Layout) -> pyarrow.Table:
    """Return columns of numbers and text as a table of a store; NaN is null."""
    pa = arrow()
    found = [
        pa.array(
            values[name] if unit is None else np.asarray(values[name], dtype=float),
            pa.string() if unit is None else pa.float64(),
            from_pandas=True,
        )
        for name, unit in layout.columns
    ]
    return pa.Table.from_arrays(found, schema=layout.schema())
