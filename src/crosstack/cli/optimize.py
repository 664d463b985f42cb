"""``crosstack optimize``: the best chip, technology and strategy together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosstack.cli.chip import Library, library_given
from crosstack.cli.inputs import JsonOut, SearchSet, check_outputs
from crosstack.cli.outputs import asked_files, json_text, show_and_write
from crosstack.cli.sweep import ResumeOption, StoreOption, check_resume, searching
from crosstack.errors import InputError, Problem

__all__ = ["optimize"]


def optimize(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="What is given and what is free, as YAML.")
    ],
    set_: SearchSet = None,
    library: Library = None,
    store: StoreOption = None,
    resume: ResumeOption = False,
    json_out: JsonOut = None,
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
        optimum_svg,
        optimum_tables,
    )
    from crosstack.report.optimum_page import optimum_html

    check_outputs(file, {"--json": json_out, "--html": html_out, "--svg": svg_out})
    asked = read_optimization(file, set_ or (), library_given(library))
    if svg_out is not None and asked.evaluations == 1:
        message = "there is nothing to draw: search.evaluations is 1."
        raise InputError(Problem("--svg", message))
    check_resume(store, resume=resume)
    with searching(store) as update:
        found = asked.run(store=store, resume=resume, progress=update)
    data = optimum_data(found, asked.workload, asked.objective)
    texts = asked_files(
        (json_out, lambda: json_text(data)),
        (html_out, lambda: optimum_html(data)),
        (svg_out, lambda: optimum_svg(data)),
    )
    show_and_write(optimum_tables(data), texts)
