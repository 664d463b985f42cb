"""``crosstack codesign``: chips, their number and the mapping together, as a Pareto front."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosstack.cli.chip import Library, library_given
from crosstack.cli.inputs import JsonOut, SearchSet, check_outputs, options_named
from crosstack.cli.outputs import asked_files, json_text, show_and_write
from crosstack.cli.sweep import (
    DaskOption,
    ResumeOption,
    StoreOption,
    TimeoutOption,
    check_resume,
    searching,
)

__all__ = ["codesign"]


def codesign(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Workload, chip, choices and prices, as YAML.")
    ],
    set_: SearchSet = None,
    library: Library = None,
    jobs: Annotated[
        int, typer.Option("--jobs", metavar="N", help="Processes that map; the answer is the same.")
    ] = 1,
    store: StoreOption = None,
    resume: ResumeOption = False,
    timeout: TimeoutOption = None,
    dask: DaskOption = None,
    json_out: JsonOut = None,
    html_out: Annotated[
        Path | None, typer.Option("--html", metavar="OUT", help="Save a page to explore.")
    ] = None,
    svg_out: Annotated[
        Path | None, typer.Option("--svg", metavar="OUT", help="Save a picture of the front.")
    ] = None,
) -> None:
    """Generate chips, map a workload on machines of them, and keep what nothing else beats.

    The front is that of throughput, price and power; every machine on it has a mapping with its
    proof.

    Example: `crosstack codesign examples/codesign/llama3_decode.yaml --jobs 2 --svg front.svg`
    """
    from crosstack.explore.read_codesign import codesign as run
    from crosstack.report.front_text import front_data, front_svg, front_tables
    from crosstack.report.pages.front_page import front_html

    check_outputs(file, {"--json": json_out, "--html": html_out, "--svg": svg_out})
    check_resume(store, resume=resume)
    named = {"jobs": "--jobs", "timeout": "--timeout", "dask": "--dask"}
    with searching(store) as update, options_named(named):
        found = run(
            file,
            set_ or (),
            library=library_given(library),
            jobs=jobs,
            store=store,
            resume=resume,
            timeout=timeout,
            dask=dask,
            progress=update,
        )
    data = front_data(found)
    texts = asked_files(
        (json_out, lambda: json_text(data)),
        (html_out, lambda: front_html(data)),
        (svg_out, lambda: front_svg(data)),
    )
    show_and_write(front_tables(data, reused=found.reused), texts)
