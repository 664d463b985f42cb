"""``crosstack figure`` and ``crosstack space``: published figures, and how many mappings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstack.cli.inputs import (
    Chips,
    Counted,
    Fabric,
    On,
    check_outputs,
    in_file,
    loaded_task,
    options_named,
    rules_given,
)
from crosstack.cli.outputs import Searching, check_suffix, printable, show, write
from crosstack.cli.task_options import File
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from crosstack.published.figures import Figure

__all__ = ["figure", "space"]

ALL = "all"
PICTURES = "images/figure_{}.svg"
PLOTTED = (".png", ".pdf")


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
            help="A picture (.svg, .png or .pdf), or a page (.md) with its pictures in the folder "
            "images beside it; directories are made.",
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

    An .svg holds the claims, too; a .png or .pdf is drawn by matplotlib, of the extra
    `crosstack[plot]`.

    Examples: `crosstack figure`, `crosstack figure table6 -o table6.svg` and
    `crosstack figure all -o docs/figures.md`
    """  # fmt: skip
    from crosstack.io.files import make_folder
    from crosstack.published.figures import text
    from crosstack.report.plot import save_page

    outputs = {"--output": output, "--json": json_out, "--csv": csv_out}
    if name is None:
        for option, path in outputs.items():
            if path is not None:
                raise InputError(Problem(option, "allowed: with the name of a figure."))
        typer.echo(text.figure_list(), nl=False)
        return
    made = _figures_of(name, outputs)
    for k, item in enumerate(made):
        typer.echo(("\n" if k else "") + text.figure_table(item), nl=False)
    texts: list[tuple[Path, str]] = []
    suffix = "" if output is None else output.suffix.lower()
    if output is not None and suffix == ".md":
        texts += [(output.parent / PICTURES.format(item.name), _picture(item)) for item in made]
        texts.append((output, text.figures_markdown(made, PICTURES)))
    elif output is not None and suffix == ".svg":
        texts.append((output, _picture(made[0])))
    if json_out is not None:
        texts.append((json_out, text.figure_json(made[0])))
    if csv_out is not None:
        texts.append((csv_out, text.figure_csv(made[0])))
    for path in (*(path for path, _ in texts), *([output] if output is not None else [])):
        make_folder(path)
    write(*texts)
    if output is not None and suffix in PLOTTED:
        save_page(made[0].title, made[0].charts, output)
        typer.echo(f"wrote {printable(str(output))}")


def _figures_of(name: str, outputs: dict[str, Path | None]) -> list[Figure]:
    """Check what is asked for, then compute it."""
    from crosstack.published.case import silent
    from crosstack.published.figures import figure_named, figures, named
    from crosstack.report.plot import needs_matplotlib

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
            check_suffix("--output", output, (".svg", *PLOTTED, ".md"))
            if output.suffix.lower() in PLOTTED:
                with options_named({"plot": "--output"}):
                    needs_matplotlib()
    check_outputs(None, outputs, folders=True)
    if output is not None and output.suffix.lower() == ".md":
        check_outputs(None, {"--output": output.parent / PICTURES.format(name)}, folders=True)
    with Searching(str) as update:
        step = update or silent
        return list(figures(step)) if name == ALL else [figure_named(name, step)]


def _picture(item: Figure) -> str:
    from crosstack.published.figures.text import claim_cells
    from crosstack.report.charts_page import charts_svg

    claims = [claim_cells(row) for row in item.claims]
    missed = [f"{claim_cells(row)[0]} misses: {row.reason}." for row in item.claims if row.reason]
    return charts_svg(item.title, item.source, item.charts, claims, (*missed, *item.notes))


def space(
    file: File,
    rules: Counted = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="PATH=VALUE", help="Change a field; may be repeated."),
    ] = None,
    on: On = None,
    chips: Chips = None,
    fabric: Fabric = None,
) -> None:
    """Count the mappings that a file leaves to choose from, decision by decision.

    Example: `crosstack space examples/gpt3_1t_sn30.yaml`
    """
    from crosstack.mapping.mapping_space import mapping_space
    from crosstack.report.space_text import space_table

    task = loaded_task(file, set_, on, chips, fabric)
    with in_file(file):
        found = mapping_space(task, rules_given(rules))
    show(space_table(found))
