"""``crosstack codesign``: chips, their number and the mapping together, as a Pareto front."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from crosstack.cli.chip import Library, library_given
from crosstack.cli.inputs import JsonOut, SearchSet, check_jobs, check_outputs
from crosstack.cli.outputs import Searching, asked_files, json_text, show_and_write

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
    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="Save every mapping here while it runs; go on from what is there.",
        ),
    ] = None,
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
    from crosstack.explore.read_codesign import read_codesign
    from crosstack.report.front_text import front_data, front_line, front_svg, front_tables
    from crosstack.report.pages.front_page import front_html

    check_jobs(jobs)
    check_outputs(
        file, {"--history": history, "--json": json_out, "--html": html_out, "--svg": svg_out}
    )
    asked = read_codesign(file, set_ or (), library_given(library))
    with Searching(front_line) as update:
        found = asked.run(jobs=jobs, history=history, progress=update)
    data = front_data(found)
    texts = asked_files(
        (json_out, lambda: json_text(data)),
        (html_out, lambda: front_html(data)),
        (svg_out, lambda: front_svg(data)),
    )
    show_and_write(front_tables(data, reused=found.reused), texts)
