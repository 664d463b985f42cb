"""Numbers that are frozen: rows of a file hold every value as text that loses no bit.

A row is what one question gives under one set of rules. A test computes the rows of a *case* again
and compares them with those in ``FAMILY.json``, to 1e-9; with ``--update-golden`` it writes them.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import crosstack

HERE = Path(__file__).resolve().parent
CLOSE = 1e-9  # relative
Value = float | int | str | None

ABOUT = {
    "published": "Rows of `crosstack validate` but for the figures: ours, by case and quantity.",
    "evaluations": "Mappings of mappings.json, priced under every rule set, or why one is refused.",
    "commands": "What commands say by default: mappings, predictions, serving, chips, searches.",
    "recorded": "Recorded runs of DeepFlow, computed again under the rules of its releases: ours.",
    "products": "The products of docs/roofline.md, predicted for the A100 they were measured on.",
    "design_space": "DFModel's 320 points: 80 systems of 1,024 chips, each with four workloads.",
    "figures": "What `crosstack figure` prints: points, claims and published runs; ours.",
}


@dataclass(frozen=True, kw_only=True)
class Row:
    """The values of one question under one set of rules."""

    name: str
    rules: str
    values: dict[str, Value]


def frozen(value: Value) -> Value:
    """Return a float as hexadecimal text, anything else as it is."""
    return value.hex() if isinstance(value, float) else value


def thawed(value: Value) -> Value:
    """Return what `frozen` was given."""
    if isinstance(value, str) and value.lstrip("-").startswith(("0x", "inf", "nan")):
        with contextlib.suppress(ValueError):
            return float.fromhex(value)
    return value


def same(ours: Value, known: Value) -> bool:
    """Return whether two values are the same, numbers to `CLOSE`; 0 is 0 alone."""
    if isinstance(known, float) and isinstance(ours, float | int):
        both_absent = math.isnan(known) and math.isnan(ours)
        return both_absent or math.isclose(ours, known, rel_tol=CLOSE)
    return ours == known


def differences(row: Row, known: dict[str, Value]) -> Iterator[str]:
    """Say which values of a row are not the known ones."""
    for name in sorted({*row.values, *known}):
        if name not in known or name not in row.values:
            yield f"{name}: {'new' if name not in known else 'gone'}"
            continue
        ours, before = row.values[name], thawed(known[name])
        if not same(ours, before):
            numbers = isinstance(ours, float) and isinstance(before, float) and before
            by = f" ({ours / before - 1:+.3e})" if numbers else ""
            yield f"{name}: was {before!r}, is {ours!r}{by}"


def renewed(row: Row, known: dict[str, Value]) -> dict[str, Value]:
    """Return the values to write: those that are known and the same as they were, others fresh."""
    return {
        name: known[name] if name in known and same(value, thawed(known[name])) else frozen(value)
        for name, value in row.values.items()
    }


def rows_in(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text())["rows"] if path.exists() else []


def write(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    """Change the rows of a file; tests that run beside this one wait."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        rows = sorted(
            change(rows_in(path)), key=lambda row: (row["case"], row["name"], row["rules"])
        )
        lines = ",\n".join(json.dumps(row, sort_keys=True) for row in rows)
        about = json.dumps(ABOUT[path.stem])
        by = json.dumps(f"crosstack {crosstack.__version__}")
        path.write_text(f'{{"about": {about},\n"written_by": {by},\n"rows": [\n{lines}\n]}}\n')
    finally:
        os.close(folder)


class Golden:
    """Compares rows with the files of a folder, or writes them there."""

    def __init__(self, folder: Path, *, update: bool) -> None:
        self.folder, self.update = folder, update

    def check(self, family: str, case: str, rows: Sequence[Row]) -> None:
        """Compare all rows of a case, or replace them."""
        path = self.folder / f"{family}.json"
        ours = {(row.name, row.rules): row for row in rows}
        assert len(ours) == len(rows), "two rows have one name"
        known = {
            (row["name"], row["rules"]): row["values"]
            for row in rows_in(path)
            if row["case"] == case
        }
        if self.update:  # values that are the same stay to the last bit
            fresh = [
                {
                    "case": case,
                    "name": row.name,
                    "rules": row.rules,
                    "values": renewed(row, known.get((row.name, row.rules), {})),
                }
                for row in rows
            ]
            write(path, lambda old: [row for row in old if row["case"] != case] + fresh)
            return
        wrong = [
            f"{name} [{rules}]: {'new' if (name, rules) in ours else 'gone'}"
            for name, rules in sorted(ours.keys() ^ known.keys())
        ]
        wrong += [
            f"{name} [{rules}]: {difference}"
            for (name, rules), row in ours.items()
            if (name, rules) in known
            for difference in differences(row, known[name, rules])
        ]
        assert not wrong, "\n".join([f"{family}.json, {case}:", *wrong])

    def check_cases(self, family: str, cases: Sequence[str]) -> None:
        """Compare which cases a file has, or drop those that nothing computes any more."""
        path = self.folder / f"{family}.json"
        if self.update:
            write(path, lambda old: [row for row in old if row["case"] in cases])
            return
        assert {row["case"] for row in rows_in(path)} == set(cases)


@pytest.fixture(scope="session")
def golden(pytestconfig: pytest.Config) -> Golden:
    return Golden(HERE, update=pytestconfig.getoption("--update-golden"))


@pytest.fixture(scope="session")
def row() -> type[Row]:
    return Row


@pytest.fixture(scope="session")
def task_named() -> Callable[..., crosstack.Task]:
    """Return a function from the name of an example, or of a file in tasks/, to what it holds."""

    def load(name: str, overrides: Sequence[str] = ()) -> crosstack.Task:
        example = HERE.parents[1] / "examples" / f"{name}.yaml"
        own = HERE / "tasks" / f"{name}.yaml"
        return crosstack.load(own if own.exists() else example, overrides)

    return load


@pytest.fixture(scope="session")
def run() -> Callable[..., str]:
    """Return a function that runs a command and returns why it ended without an answer, if so.

    ``refusals`` are the exit codes that are allowed beside those of an answer.
    """
    from crosstack.cli.main import main

    def call(*arguments: object, refusals: Sequence[int] = ()) -> str:
        err = io.StringIO()
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(err),
            pytest.raises(SystemExit) as stop,
        ):
            main([str(argument) for argument in arguments])
        code = stop.value.code or 0
        assert code in (0, 4, *refusals), err.getvalue()
        return err.getvalue().partition(" What would")[0] if code in refusals else ""

    return call
