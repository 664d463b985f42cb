"""The options that commands on a task share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["File", "HtmlOut", "Kernels", "Rules", "Set", "SvgOut"]

File = Annotated[Path, typer.Argument(metavar="FILE", help="Native YAML or DFModel text.")]
Rules = Annotated[
    str | None,
    typer.Option(
        "--rules",
        metavar="NAME|FILE",
        help="What is counted: crosstack (default), dfmodel-readme, dfmodel-e2, dfmodel-e3b, "
        "dfmodel-e4, dfmodel-e5, or a YAML file of rules.",
    ),
]
Set = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a field before the file is checked, e.g. "
        "`system.network[0].bandwidth=450GB/s`. May be repeated.",
    ),
]
HtmlOut = Annotated[
    Path | None, typer.Option("--html", metavar="OUT", help="Save a page with figures and tables.")
]
SvgOut = Annotated[
    Path | None,
    typer.Option("--svg", metavar="OUT", help="Save a picture: graph, partitions, machine."),
]
Kernels = Annotated[bool, typer.Option("--kernels", help="Print the table of kernels too.")]
