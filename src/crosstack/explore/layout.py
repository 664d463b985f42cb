"""The columns of a store: as a schema, as the text of ``store.json``, and as parts have them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    import pyarrow

__all__ = ["Column", "Layout", "arrow", "columns_as", "sealed", "unsealed"]

FORMAT = 1
NEEDED = ("key", "status")  # every row has them
Column = tuple[str, str | None]


def arrow() -> Any:
    """Return pyarrow with its Parquet reader, or say what to install."""
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

    @classmethod
    def of_schema(cls, schema: pyarrow.Schema) -> Layout | None:
        """Return the columns that a schema of `schema` says; None for any other."""
        pa = arrow()
        columns: list[Column] = []
        for field in schema:
            unit = (field.metadata or {}).get(b"unit")
            if field.type == pa.string() and unit is None:
                columns.append((field.name, None))
            elif field.type == pa.float64() and unit is not None:
                columns.append((field.name, unit.decode()))
            else:
                return None
        return cls._checked(columns)

    def text(self) -> str:
        """Return the text of ``store.json``."""
        return sealed({"format": FORMAT, "columns": [list(c) for c in self.columns]})

    @classmethod
    def of_text(cls, text: str) -> Layout | None:
        """Return the columns that ``store.json`` says; None where it is damaged.

        Raises
        ------
        ValueError
            If it is sound and of another format.
        """
        data = unsealed(text)
        if data is None or set(data) != {"format", "columns"}:
            return None
        if data["format"] != FORMAT:
            raise ValueError(data["format"])
        try:
            pairs = [(name, unit) for name, unit in data["columns"]]
        except (TypeError, ValueError):
            return None
        good = all(isinstance(n, str) and isinstance(u, str | None) for n, u in pairs)
        return cls._checked(pairs) if good else None

    @classmethod
    def _checked(cls, columns: list[Column]) -> Layout | None:
        names = [name for name, _ in columns]
        good = len(set(names)) == len(names) and set(NEEDED) <= set(names)
        if not good or any(unit for name, unit in columns if name in NEEDED):
            return None
        return cls(columns=tuple(columns)) if names.index("key") < names.index("status") else None


def columns_as(values: Mapping[str, Any], layout: Layout) -> pyarrow.Table:
    """Return columns of numbers and text as a table of a store; NaN is null."""
    pa = arrow()
    schema = layout.schema()
    found = []
    for f in schema:
        value = values[f.name]
        if isinstance(value, pa.Array):
            found.append(value)
        elif pa.types.is_float64(f.type):
            found.append(pa.array(np.asarray(value, dtype=float), f.type, from_pandas=True))
        else:
            found.append(pa.array(value, f.type, from_pandas=True))
    return pa.Table.from_arrays(found, schema=schema)


def sealed(data: Mapping[str, Any]) -> str:
    """Return data as JSON that `unsealed` tells from what a disk made of it."""
    return json.dumps({**data, "check": _check(data)}, indent=1, sort_keys=True) + "\n"


def unsealed(text: str) -> dict[str, Any] | None:
    """Return what `sealed` was given, or None; JSON without a check is taken as it is."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    check = data.pop("check", None)
    return data if check in (None, _check(data)) else None


def _check(data: Mapping[str, Any]) -> str:
    text = json.dumps(data, sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x}"
