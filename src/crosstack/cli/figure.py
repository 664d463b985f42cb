"""``crosstack figure`` and ``crosstack space``: published figures, and how many mappings."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import crosstack
from crosstack.cli.inputs import check_outputs, in_file, rules_given
from crosstack.cli.outputs import check_suffix, show, write
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from crosstack.validation.figures import Figure

__all__ = ["figure", "space"]

ALL = "all"
PICTURES = "images/figure_{}.svg"


def figure(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Which figure; `all` of them; a list if left out."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="A picture (.svg), or a page (.md) with its pictures in the folder images "
            "beside it.",
        ),
    ] = None,
    json_out: Annotated[
        Path | None, typer.Option("--json", metavar="OUT", help="Save points and claims as JSON.")
    ] = None,
    csv_out: Annotated[
        Path | None, typer.Option("--csv", metavar="OUT", help="Save the points as CSV.")
    ] = None,
) -> None:
    """Compute a figure of a published paper again: a table, its claims and ours, a picture.

    Examples: `crosstack figure`, `crosstack figure table6 -o table6.svg` and
    `crosstack figure all -o docs/figures.md`
    """  # fmt: skip
    from crosstack.validation.figures import text

    outputs = {"--output": output, "--json": json_out, "--csv": csv_out}
    if name is None:
        for option, path in outputs.items():
            if path is not None:
                raise InputError(Problem(option, "allowed: with the name of a figure."))
        typer.echo(text.figure_list(), nl=False)
        return
    made = _made(name, outputs)
    for k, item in enumerate(made):
        typer.echo(("\n" if k else "") + text.figure_table(item), nl=False)
    texts: list[tuple[Path, str]] = []
    if output is not None and output.suffix.lower() == ".md":
        texts += [(output.parent / PICTURES.format(item.name), _picture(item)) for item in made]
        texts.append((output, text.figures_markdown(made, PICTURES)))
    elif output is not None:
        texts.append((output, _picture(made[0])))
    if json_out is not None:
        texts.append((json_out, text.figure_json(made[0])))
    if csv_out is not None:
        texts.append((csv_out, text.figure_csv(made[0])))
    write(*texts)


def _made(name: str, outputs: dict[str, Path | None]) -> list[Figure]:
    """Check what is asked for, then compute it."""
    from crosstack.validation.figures import figure_named, figures, named

    output = outputs["--output"]
    if name == ALL:
        for option in ("--json", "--csv"):
            if outputs[option] is not None:
                raise InputError(Problem(option, "allowed: with the name of one figure."))
        if output is not None:
            check_suffix("--output", output, (".md",), ", as there are several figures")
    else:
        named(name)
        if output is not None:
            check_suffix("--output", output, (".svg", ".md"))
    check_outputs(None, outputs)
    if output is not None and output.suffix.lower() == ".md":
        folder = (output.parent / PICTURES).parent
        if not folder.is_dir():
            raise InputError(Problem(f"--output {output}", f"there is no directory {folder}."))
    with _computing() as step:
        return list(figures(step)) if name == ALL else [figure_named(name, step)]


@contextmanager
def _computing() -> Iterator[Callable[[str], None]]:
    """Show what is computed, on a terminal, while it runs."""
    if not sys.stderr.isatty():
        yield lambda step: None
        return
    from rich.console import Console

    with Console(stderr=True).status("computing") as status:
        yield status.update


def _picture(item: Figure) -> str:
    from crosstack.report.charts_page import charts_svg
    from crosstack.validation.figures.text import claim_cells

    claims = [claim_cells(row) for row in item.claims]
    missed = [f"{claim_cells(row)[0]} misses: {row.reason}." for row in item.claims if row.reason]
    return charts_svg(item.title, item.source, item.charts, claims, (*missed, *item.notes))


def space(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Native YAML or DFModel text.")],
    rules: Annotated[
        str | None, typer.Option("--rules", metavar="NAME|FILE", help="What is counted.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field; may be repeated."),
    ] = None,
) -> None:
    """Count the mappings that a file leaves to choose from, decision by decision.

    Example: `crosstack space examples/gpt3_1t_sn30.yaml`
    """
    from crosstack.mapping.mapping_space import mapping_space
    from crosstack.report.space_text import space_table

    task = crosstack.load(file, set_ or ())
    with in_file(file):
        found = mapping_space(task, rules_given(rules))
    show(space_table(found))
