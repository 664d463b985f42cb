"""``crosstack rules``: what rule sets count, and what each of their fields changes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

import crosstack
from crosstack.cli.inputs import rules_given
from crosstack.cli.outputs import Searching
from crosstack.cli.task_options import Rules, Set

__all__ = ["rules_"]


def rules_(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="Native YAML or DFModel text.")
    ] = None,
    base: Annotated[
        str, typer.Option("--base", metavar="NAME|FILE", help="The rules to start from.")
    ] = "dfmodel-readme",
    rules: Rules = None,
    set_: Set = None,
) -> None:
    """Show what each rule set counts, or what changing from one to another does to a case.

    `crosstack rules` compares the fields of all sets; `crosstack rules FILE` puts each field of
    --rules (default: crosstack) into --base, optimises again, and prints a Markdown table.
    """
    from crosstack.published.dfmodel.corrections import (
        corrections,
        corrections_markdown,
        fields_markdown,
    )

    if file is None:
        typer.echo(fields_markdown(), nl=False)
        return
    task = crosstack.load(file, set_ or ())
    with Searching() as step:
        rows = corrections(
            task, rules_given(base) or base, rules_given(rules) or "crosstack", progress=step
        )
    typer.echo(corrections_markdown(rows), nl=False)
