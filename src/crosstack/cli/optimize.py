"""``crosstack optimize``: the best chip, technology and strategy together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from crosstack.cli.chip import Library, library_given
from crosstack.cli.inputs import check_outputs
from crosstack.cli.outputs import Searching, show_and_write
from crosstack.errors import InputError, Problem

__all__ = ["optimize"]


def optimize(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What is given and what is free, as YAML.")
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="PATH=VALUE",
            help="Change a field first, e.g. `search.evaluations=1000`. May be repeated.",
        ),
    ] = None,
    library: Library = None,
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="Save every evaluation here while it runs; go on from what is there.",
        ),
    ] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Save the result as JSON.")
    ] = None,
    html_out: Annotated[
        Path | None, typer.Option("--html", metavar="OUT", help="Save a page of the design.")
    ] = None,
    svg_out: Annotated[
        Path | None, typer.Option("--svg", metavar="OUT", help="Save a picture of the search.")
    ] = None,
) -> None:
    """Find how to share out area, power and edge, under which technology and strategy.

    Example: `crosstack optimize examples/optimize/lstm_64.yaml --svg search.svg`
    """
    from crosstack.explore.optimize import read_optimization
    from crosstack.report.optimize_text import (
        optimum_data,
        optimum_line,
        optimum_svg,
        optimum_tables,
    )

    check_outputs(
        file, {"--history": history, "--json": json_out, "--html": html_out, "--svg": svg_out}
    )
    asked = read_optimization(file, set_ or (), library_given(library))
    if svg_out is not None and asked.evaluations == 1:
        message = "there is nothing to draw: search.evaluations is 1."
        raise InputError(Problem("--svg", message))
    with Searching(optimum_line) as update:
        found = asked.run(history=history, progress=update)
    data = optimum_data(found, asked.workload, asked.objective)
    texts = []
    if json_out is not None:
        texts.append((json_out, json.dumps(data, indent=1, allow_nan=False) + "\n"))
    if html_out is not None:
        from crosstack.report.optimum_page import optimum_html

        texts.append((html_out, optimum_html(data)))
    if svg_out is not None:
        texts.append((svg_out, optimum_svg(data)))
    show_and_write(optimum_tables(data), texts)
