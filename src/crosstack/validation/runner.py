"""Run suites of published cases and print both numbers side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from crosstack.errors import InputError, Problem, nearest
from crosstack.validation.case import Case, Row, run_case
from crosstack.validation.dfmodel import dfmodel_cases

__all__ = ["SUITES", "report_rows", "run_suite"]

SUITES: dict[str, Callable[[], list[Case]]] = {"dfmodel": dfmodel_cases}


def run_suite(name: str | None = None) -> list[Row]:
    """Run one suite, or all of them.

    Raises
    ------
    InputError
        If there is no such suite.
    """
    if name is not None and name not in SUITES:
        close = nearest(name, SUITES, 1)
        hint = f' Did you mean "{close[0]}"?' if close else ""
        raise InputError(
            Problem("--suite", f'no suite is called "{name}".{hint} Allowed: {", ".join(SUITES)}.')
        )
    names = [name] if name is not None else list(SUITES)
    return [row for suite in names for case in SUITES[suite]() for row in run_case(case, suite)]


def report_rows(rows: Sequence[Row], style: str = "table") -> str:
    """Return the rows as text: ``table``, ``json`` or ``md``."""
    if style == "json":
        dicts = [{**asdict(row), "error": row.error} for row in rows]
        return json.dumps(dicts, indent=2) + "\n"
    if style == "md":
        return _markdown(rows)
    return _table(rows)


def _summary(rows: Sequence[Row]) -> str:
    held = sum(row.holds for row in rows)
    errors = sorted(abs(row.error) for row in rows if row.sense == "equal")
    if not errors:
        return f"{held} of {len(rows)} checks hold."
    return (
        f"{held} of {len(rows)} checks hold. Of {len(errors)} equalities the median error is "
        f"{errors[len(errors) // 2]:.1e}, the worst {errors[-1]:.1e}."
    )


def _cells(row: Row) -> list[str]:
    return [
        row.case,
        row.rules,
        f"{row.quantity} [{row.unit}]",
        f"{row.published:.12g}",
        f"{row.ours:.12g}",
        f"{row.error:+.1e}",
        f"{row.sense} ({row.tolerance:.0e})",
        row.status,
        "holds" if row.holds else "MISSES",
    ]


HEADER = (
    "case", "rules", "quantity", "published", "ours", "error", "wanted", "status", "verdict",
)  # fmt: skip


def _table(rows: Sequence[Row]) -> str:
    lines: list[str] = []
    last = ""
    for row in rows:
        cells = _cells(row)
        if row.case != last:
            lines.append(f"{row.case}  [{row.rules}; {row.source}]")
            last = row.case
        lines.append(
            f"  {cells[2]:<18} published {cells[3]:>18}  ours {cells[4]:>18}  {cells[5]:>8}  "
            f"{row.sense:<8}  {cells[8]}"
        )
    return "\n".join([*lines, "", _summary(rows), ""])


def _markdown(rows: Sequence[Row]) -> str:
    lines = [
        "# Validation",
        "",
        "Published numbers and ours, side by side. Written by `crosstack validate --format md`;",
        "do not edit.",
        "",
        "*equal*: within the tolerance, relative. *at most*, *at least*: the published run stopped",
        "before it proved anything, or sharding ties were broken otherwise, so it may be beaten.",
        "*status* is `given` where a published mapping is evaluated, otherwise that of the search;",
        "`optimal` is a proof.",
        "",
        _summary(rows),
        "",
        "| " + " | ".join((*HEADER, "source")) + " |",
        "|" + "---|" * (len(HEADER) + 1),
    ]
    lines += ["| " + " | ".join([*_cells(row), row.source]) + " |" for row in rows]
    notes = dict.fromkeys((row.case, row.note) for row in rows if row.note)
    if notes:
        lines += ["", "Notes:", ""]
        lines += [f"- {case}: {note}." for case, note in notes]
    return "\n".join(lines) + "\n"
