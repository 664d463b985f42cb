"""``crosstack figure``, ``validate``, ``rules`` and ``space``: what is published, beside ours."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

import crosstack
from crosstack.cli import inputs
from crosstack.cli.outputs import (
    EVERY,
    asked_files,
    json_text,
    printable,
    show,
    show_and_write,
    watching,
    write,
)
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from crosstack.published.figures import Figure
    from crosstack.report.wording import Table

ALL = "all"
PICTURES = "images/figure_{}.svg"
PLOTTED = (".png", ".pdf")


def figure(
    name: str | None = None,
    output: Path | None = None,
    json_out: Path | None = None,
    csv_out: Path | None = None,
) -> None:
    """Compute a figure of a published paper again: a table, its claims and ours, a picture."""
    from crosstack.io.files import make_folder
    from crosstack.published.figures import text
    from crosstack.report.plot import save_page

    outputs = {"--output": output, "--json": json_out, "--csv": csv_out}
    if name is None:
        inputs.refuse(outputs, "allowed: with the name of a figure.")
        typer.echo(text.figure_list(), nl=False)
        return
    made = _figures_of(name, outputs)
    typer.echo("\n".join(map(text.figure_table, made)), nl=False)
    suffix = "" if output is None else output.suffix.lower()
    texts: list[tuple[Path, str]] = []
    if output is not None and suffix == ".md":
        texts += [(output.parent / PICTURES.format(item.name), _picture(item)) for item in made]
    texts += asked_files(
        (output if suffix == ".md" else None, lambda: text.figures_markdown(made, PICTURES)),
        (output if suffix == ".svg" else None, lambda: _picture(made[0])),
        (json_out, lambda: text.figure_json(made[0])),
        (csv_out, lambda: text.figure_csv(made[0])),
    )
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
        others = {option: outputs[option] for option in ("--json", "--csv")}
        inputs.refuse(others, "allowed: with the name of one figure.")
        if output is not None:
            inputs.check_suffix("--output", output, (".md",), ", as there are several figures")
    else:
        named(name)
        if output is not None:
            inputs.check_suffix("--output", output, (".svg", *PLOTTED, ".md"))
            if output.suffix.lower() in PLOTTED:
                with inputs.options_named({"plot": "--output"}):
                    needs_matplotlib()
    inputs.check_outputs(None, outputs, folders=True)
    if output is not None and output.suffix.lower() == ".md":
        inputs.check_outputs(
            None, {"--output": output.parent / PICTURES.format(name)}, folders=True
        )
    with watching(str) as update:
        step = update or silent
        return list(figures(step)) if name == ALL else [figure_named(name, step)]


def _picture(item: Figure) -> str:
    from crosstack.published.figures.text import claim_cells
    from crosstack.report.chart_figure import charts_svg

    claims = [claim_cells(row) for row in item.claims]
    missed = [f"{claim_cells(row)[0]} misses: {row.reason}." for row in item.claims if row.reason]
    return charts_svg(item.title, item.source, item.charts, claims, (*missed, *item.notes))


def space(
    *,
    file: Path,
    rules: str | None = None,
    set_: list[str] | None = None,
    machine: inputs.MachineOptions,
) -> None:
    """Count the mappings that a file leaves to choose from, decision by decision."""
    from crosstack.mapping.mapping_space import mapping_space
    from crosstack.report.strategy_text import space_table

    task = machine.task(file, set_)
    with inputs.in_file(file):
        found = mapping_space(task, inputs.rules_given(rules))
    show(space_table(found))


def rules_(
    file: Path | None = None,
    base: str = "dfmodel-readme",
    rules: str | None = None,
    set_: list[str] | None = None,
) -> None:
    """Show what each rule set counts, or what changing from one to another does to a case."""
    from crosstack.published.dfmodel import corrections as compared

    if file is None:
        typer.echo(compared.fields_markdown(), nl=False)
        return
    task = crosstack.load(file, set_ or ())
    first, last = inputs.rules_given(base) or base, inputs.rules_given(rules) or "crosstack"
    with watching() as step:
        rows = compared.corrections(task, first, last, progress=step)
    typer.echo(compared.corrections_markdown(rows), nl=False)


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

    inputs.check_outputs(None, {"--output": output})
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


def score(
    table: Path,
    on: str | None = None,
    most: int | None = None,
    output: Path | None = None,
    json_out: Path | None = None,
) -> None:
    """Hold measured kernels, collectives or steps of training against what is said of them."""
    from crosstack.io.measured_collectives import is_of_collectives
    from crosstack.io.measured_runs import is_of_runs

    inputs.check_outputs(table, {"--output": output, "--json": json_out})
    runs = is_of_runs(table)
    if not runs:
        inputs.refuse({"--most": most}, "allowed: with a table of training runs.")
    if runs:
        _score_runs(table, on, most, output, json_out)
    elif is_of_collectives(table):
        inputs.refuse({"--on": on}, "allowed: not with collectives, which say their machines.")
        _score_collectives(table, output, json_out)
    else:
        _score_kernels(table, on, output, json_out)


def _score_collectives(table: Path, output: Path | None, data: Path | None) -> None:
    from crosstack.evaluate.collective_scores import score_sets
    from crosstack.io.measured_collectives import read_collectives
    from crosstack.report.collective_text import (
        collective_table,
        collectives_data,
        collectives_shown,
    )

    found = read_collectives(table)
    scored = score_sets(found.sets)
    texts = asked_files(
        (output, lambda: _markdown(collective_table(scored))),
        (data, lambda: json_text(collectives_data(scored, found.left_out))),
    )
    show_and_write(collectives_shown(scored, found.left_out), texts)


def _score_kernels(table: Path, on: str | None, output: Path | None, data: Path | None) -> None:
    from crosstack.evaluate.kernel_scores import score_kernels
    from crosstack.io import library
    from crosstack.io.calibration import chip_on
    from crosstack.io.measured import read_kernels
    from crosstack.report.score_text import score_table, scores_data, scores_shown

    if (machine := inputs.machine_at(on)) is None:
        with inputs.options_named({"chip": "--on"}):
            chip = None if on is None else library.chip(on)
    else:
        chip = machine.calibration.chip(chip_on(machine.on))
    found = read_kernels(table, chip)
    scored = [(each.name, each.source, score_kernels(each.rows, each.chip)) for each in found.sets]
    texts = asked_files(
        (output, lambda: _markdown(score_table(scored))),
        (data, lambda: json_text(scores_data(scored, found.left_out))),
    )
    show_and_write(scores_shown(scored, found.left_out), texts)


def _score_runs(
    table: Path, on: str | None, most: int | None, output: Path | None, data: Path | None
) -> None:
    from crosstack.evaluate.run_scores import score_runs
    from crosstack.io.calibration import on_measured
    from crosstack.io.measured_runs import read_runs
    from crosstack.published.case import silent
    from crosstack.report.score_text import run_table, runs_data, runs_shown

    found = read_runs(table)
    if on is not None:
        if (machine := inputs.machine_at(on)) is None:
            allowed = "a file that crosstack calibrate saved; runs say their machines."
            raise InputError(Problem("--on", f"got {on}; allowed: {allowed}"))
        with inputs.in_file(table):
            found = on_measured(found, machine)
    with watching(lambda run: f"predicting {run}", every=EVERY) as step:
        scored = {
            source: score_runs(runs, step or silent, most=most)
            for source, runs in found.sets.items()
        }
    texts = asked_files(
        (output, lambda: _markdown(run_table(scored))),
        (data, lambda: json_text(runs_data(scored, found.left_out))),
    )
    show_and_write(runs_shown(scored, found.left_out), texts)


def _markdown(table: Table) -> str:
    from crosstack.published.case import markdown_table

    return "\n".join([*markdown_table(table.header, table.rows), ""])
