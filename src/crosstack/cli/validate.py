"""``crosstack validate``: published and measured figures beside ours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import typer

from crosstack.cli.inputs import check_outputs
from crosstack.cli.outputs import EVERY, watching


class Style(StrEnum):
    """How `validate` prints."""

    TABLE = "table"
    JSON = "json"
    MARKDOWN = "md"


def validate(
    suite: str | None = None, style: Style = Style.TABLE, output: Path | None = None
) -> None:
    """Run the published cases and print both numbers side by side."""
    from crosstack.io.files import write_atomically
    from crosstack.published.case import Row, silent
    from crosstack.published.runner import SUITES, report_rows, run_suite, suite_summary

    check_outputs(None, {"--output": output})
    rows: list[Row] = []
    for name in SUITES if suite is None else (suite,):
        with watching(lambda case: f"running suite {case}", every=EVERY) as step:
            new = run_suite(name, step or silent)
        if style is Style.TABLE:
            typer.echo(("\n" if rows else "") + report_rows(new), nl=False)
        else:
            typer.echo(f"{name}: {suite_summary(name, new)}", err=True)
        rows += new
    text = report_rows(rows, style.value)
    if style is not Style.TABLE:
        typer.echo(text, nl=False)
    if output is not None:
        write_atomically(output, text)
    if not all(row.holds for row in rows):
        raise typer.Exit(1)
