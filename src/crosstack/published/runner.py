"""Run suites of published cases and print both numbers side by side."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from importlib.resources import files
from statistics import median
from typing import Any

from crosstack.errors import InputError, Problem, did_you_mean
from crosstack.io.yaml_tree import parse_yaml
from crosstack.published.case import Progress, Row, markdown_table, run_case, run_each, silent
from crosstack.published.dfmodel.runs import dfmodel_cases
from crosstack.published.figures import figure_rows
from crosstack.published.measured import measured_rows
from crosstack.published.measured_steps import errors_in_words, step_rows
from crosstack.published.memory import memory_rows
from crosstack.published.models import model_rows

# A suite is a function that runs its cases, tells each before it runs it, and returns their rows.
SUITES: dict[str, Callable[[Progress], Sequence[Row]]] = {
    "dfmodel": lambda progress: run_each(dfmodel_cases(), run_case, progress),
    "models": model_rows,
    "memory": memory_rows,
    "measured": measured_rows,
    "steps": step_rows,
    "figures": lambda progress: figure_rows(progress=progress),
}


# What a suite holds and where its tolerances come from.
ABOUT: Any = parse_yaml(files(__package__).joinpath("suites.yaml").read_text(encoding="utf-8"))


def run_suite(name: str | None = None, progress: Progress = silent) -> list[Row]:
    """Run one suite, or all of them; ``progress`` is told every suite and case that comes next.

    Raises
    ------
    InputError
        If there is no such suite.
    """
    if name is not None and name not in SUITES:
        hint = did_you_mean(name, SUITES)
        raise InputError(
            Problem("--suite", f'no suite is called "{name}".{hint} Allowed: {", ".join(SUITES)}.')
        )
    names = [name] if name is not None else list(SUITES)
    rows: list[Row] = []
    for suite in names:
        progress(suite)
        rows += SUITES[suite](_under(suite, progress))
    return rows


def _under(suite: str, progress: Progress) -> Progress:
    """Return what tells a case under the name of its suite."""
    return lambda case: progress(f"{suite}: {case}")


def report_rows(rows: Sequence[Row], style: str = "table") -> str:
    """Return the rows as text: ``table``, ``json`` or ``md``."""
    if style == "json":
        dicts = [
            {**asdict(row), "error": row.error, "modelled_error": row.modelled_error}
            for row in rows
        ]
        return json.dumps(dicts, indent=2) + "\n"
    by_suite: dict[str, list[Row]] = {}
    for row in rows:
        by_suite.setdefault(row.suite, []).append(row)
    return (_markdown if style == "md" else _table)(by_suite)


# What a suite says of its rows beside how many hold.
SUMMED: dict[str, Callable[[Sequence[Row]], str]] = {"steps": errors_in_words}


def suite_summary(suite: str, rows: Sequence[Row]) -> str:
    """Say in a sentence or three how the rows of a suite fared."""
    missed = [row for row in rows if not row.holds]
    errors = [abs(row.error) for row in rows if row.sense == "equal"]
    text = f"{len(rows) - len(missed)} of {len(rows)} checks hold."
    if missed:
        explained = sum(bool(row.reason) for row in missed)
        verb = "misses" if len(missed) == 1 else "miss"
        text += f" {len(missed)} {verb}, {explained} of them for a stated reason."
    if errors:
        text += (
            f" Of {len(errors)} equalities the median error is {median(errors):.1e}, the worst "
            f"{max(errors):.1e}."
        )
    if suite in SUMMED:
        text += f" {SUMMED[suite](rows)}"
    return text


def _verdict(row: Row) -> str:
    return "holds" if row.holds else "MISSES"


def _why(row: Row) -> str:
    return row.reason or "not known, this miss is new"


def _table(by_suite: Mapping[str, Sequence[Row]]) -> str:
    lines: list[str] = []
    for suite, rows in by_suite.items():
        last = None
        for row in rows:
            if row.case != last:
                lines.append(f"{row.case}  [{row.rules}; {row.source}]")
                last = row.case
            name = f"{row.quantity} [{row.unit}]"
            lines.append(
                f"  {name:<18} published {row.published:>18.12g}  ours {row.ours:>18.12g}  "
                f"{row.error:>+8.1e}  {row.sense:<8}  {_verdict(row)}"
            )
            if row.modelled_error is not None:
                lines.append(f"    the source's own model: {row.modelled_error:+.1e}")
            if not row.holds:
                lines.append(f"    why: {_why(row)}")
        lines += ["", f"{suite}: {suite_summary(suite, rows)}", ""]
    return "\n".join(lines)


HEADER = (
    "case", "rules", "quantity", "published", "ours", "error", "wanted", "status", "verdict",
    "source",
)  # fmt: skip


def _markdown(by_suite: Mapping[str, Sequence[Row]]) -> str:
    lines = [
        "# Validation",
        "",
        "Published numbers and ours, side by side. Written by `crosstack validate --format md`;",
        "do not edit.",
        "",
        "*equal*: within the tolerance, relative. *at most*, *at least*: the published run stopped",
        "before it proved anything, or sharding ties were broken otherwise, so it may be beaten.",
        "*status* is `given` where a published mapping is evaluated, otherwise that of the search;",
        "`optimal` is a proof. *error* is ours over the published number, less one. A row outside",
        "its tolerance MISSES, whether the reason is known or not; the exit code is then 1.",
    ]
    for suite, rows in by_suite.items():
        about = ABOUT[suite].split("\n") if suite in ABOUT else ()
        lines += ["", f"## {suite}", "", *about, suite_summary(suite, rows), ""]
        lines += _markdown_table(rows)
        missed = dict.fromkeys((row.case, _why(row)) for row in rows if not row.holds)
        notes = dict.fromkeys((row.case, row.note) for row in rows if row.note)
        for title, texts in (("Why rows miss:", missed), ("Notes:", notes)):
            if texts:
                lines += ["", title, "", *(f"- {case}: {text}." for case, text in texts)]
    return "\n".join(lines) + "\n"


def _markdown_table(rows: Sequence[Row]) -> list[str]:
    """Return the table of a suite, with the source's own model where one of its rows has it."""
    modelled = any(row.modelled is not None for row in rows)
    table = []
    for row in rows:
        cells = [
            row.case, row.rules, f"{row.quantity} [{row.unit}]", f"{row.published:.12g}",
            f"{row.ours:.12g}", f"{row.error:+.1e}", f"{row.sense} ({row.tolerance:.0e})",
            row.status, _verdict(row), row.source,
        ]  # fmt: skip
        if row.modelled_error is not None:
            cells += [f"{row.modelled:.12g}", f"{row.modelled_error:+.1e}"]
        elif modelled:
            cells += ["", ""]
        table.append(cells)
    return markdown_table((*HEADER, "source's model", "its error") if modelled else HEADER, table)
