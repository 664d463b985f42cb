"""Tables of kernels as they were measured: JSON, one row a line.

A row has ``m``, ``k``, ``n``, ``dtype`` and ``time_s``; ``gpu`` says which chip it is of,
``source`` and ``software`` from where. Other fields are for people.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstack.errors import CrosstackError, InputError, Problem
from crosstack.evaluate.scores import MeasuredProduct, Timed
from crosstack.io import library
from crosstack.io.files import read_text
from crosstack.machine.chip import Chip
from crosstack.workload.dtype import Dtype

# Names of sources, where the library has another.
GPUS = {
    "A100-SXM4-80GB": "a100-sxm-80gb",
    "A100-SXM4-40GB": "a100-sxm-40gb",
    "A100-PCIe-80GB": "a100-pcie-80gb",
    "H100-SXM5-80GB": "h100-sxm",
    "H200-SXM5-141GB": "h200-sxm",
}
DTYPES = {"fp8_block": Dtype.FP8_BLOCKS}
FRAMEWORKS = "aic"  # whose layers are timed in graphs, with casts of what they read
MOST_PROBLEMS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductSet:
    """Products that a source measured on one chip in one type."""

    gpu: str
    source: str
    dtype: Dtype
    chip: Chip
    rows: tuple[MeasuredProduct, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductTable:
    """The sets of a table, and how many rows are left out for a reason."""

    sets: tuple[ProductSet, ...]
    left_out: Mapping[str, int]


def read_products(path: Path, on: Chip | None = None) -> ProductTable:
    """Read products that were measured.

    Parameters
    ----------
    path : Path
        Of the table.
    on : Chip, optional
        That all rows are of, whatever they say; those of chips and types that the library does not
        know are left out otherwise.

    Raises
    ------
    InputError
        If the file cannot be read, or a row is not one; up to 20 problems with their lines.
    """
    found: dict[tuple[str, str, Dtype], tuple[Chip, list[MeasuredProduct]]] = {}
    left: dict[str, int] = {}
    problems: list[Problem] = []
    for where, line in lines_of(path):
        try:
            row = row_of(line, where)
            gpu, source = str(row.get("gpu", on.name if on else "")), _source(row)
            dtype, chip = _dtype(row, where), on or _chip(gpu)
            if dtype is None or chip is None or not _multiplies(chip, dtype):
                reason = gpu if chip is None else f"{row['dtype']} on {chip.name}"
                left[reason] = left.get(reason, 0) + 1
                continue
            product = _product(row, dtype, where)
        except InputError as error:
            problems += error.problems
            if len(problems) >= MOST_PROBLEMS:
                break
            continue
        found.setdefault((gpu, source, dtype), (chip, []))[1].append(product)
    if problems:
        raise InputError(problems[:MOST_PROBLEMS])
    if not found:
        raise InputError(
            Problem(str(path), "has no product of a chip that is known; allowed: one.")
        )
    sets = [
        ProductSet(gpu=gpu, source=source, dtype=dtype, chip=chip, rows=tuple(rows))
        for (gpu, source, dtype), (chip, rows) in sorted(found.items())
    ]
    return ProductTable(sets=tuple(sets), left_out=left)


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """Return where each line of a table is that has something, and the line."""
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if line.strip():
            yield f"{path}:{number}", line


def rows_of(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Return where each row of a table is, and the row; `InputError` at one that is none."""
    for where, line in lines_of(path):
        yield where, row_of(line, where)


def row_of(line: str, where: str) -> dict[str, Any]:
    """Return a row of a table, which is an object; `InputError` names where it is."""
    try:
        row = json.loads(line)
    except ValueError as error:
        raise InputError(Problem(where, f"is no JSON: {error}.")) from error
    if not isinstance(row, dict):
        raise InputError(Problem(where, "got no object; allowed: one a line."))
    return row


def _source(row: Mapping[str, Any]) -> str:
    """Return what a source is called, with the software that it measured."""
    said, software = str(row.get("source", "")).split(":")[0], row.get("software", "")
    return f"{said}: {software}" if said and software else f"{said}{software}"


def _dtype(row: Mapping[str, Any], where: str) -> Dtype | None:
    """Return the type of a row; None if there is none of that name."""
    name = row.get("dtype")
    if name is None:
        raise InputError(Problem(f"{where}: dtype", "required, but missing."))
    if name in DTYPES:
        return DTYPES[name]
    return Dtype(name) if name in list(Dtype) else None


def _chip(gpu: str) -> Chip | None:
    name = GPUS.get(gpu, gpu.lower())
    return library.chip(name) if name in library.names("chips") else None


def _multiplies(chip: Chip, dtype: Dtype) -> bool:
    """Whether a chip has a rate for a type."""
    try:
        return chip.rate(dtype) > 0
    except CrosstackError:
        return False


def _product(row: Mapping[str, Any], dtype: Dtype, where: str) -> MeasuredProduct:
    problems = []
    for name in ("m", "k", "n"):
        side = row.get(name)
        if not isinstance(side, int) or isinstance(side, bool) or side < 1:
            problems.append(Problem(f"{where}: {name}", f"got {side!r}; allowed: 1, 2, 3 ..."))
    time = row.get("time_s")
    if not isinstance(time, int | float) or isinstance(time, bool) or not 0 < time < math.inf:
        problems.append(Problem(f"{where}: time_s", f"got {time!r}; allowed: seconds, above 0."))
    if problems:
        raise InputError(problems)
    framework = _source(row).startswith(FRAMEWORKS)
    return MeasuredProduct(
        m=row["m"],
        k=row["k"],
        n=row["n"],
        dtype=dtype,
        time=float(row["time_s"]),
        timed=Timed.GRAPH if framework else Timed.LOOP,
        cast=framework and dtype.size < Dtype.BF16.size,
    )
