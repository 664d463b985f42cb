"""``crosstack study``: start or run a study, look at it, draw and export what came of it."""

from __future__ import annotations

import os
from dataclasses import asdict
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

import typer

from crosstack.cli import inputs
from crosstack.cli.options import add_commands
from crosstack.cli.outputs import printable, show, tell_damage, write
from crosstack.cli.saved import read_result, saved_result
from crosstack.cli.sweep import RunOptions
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    import pyarrow

    from crosstack.charts import HeatMap, LineChart
    from crosstack.explore.question import StudyQuestion


study_app = typer.Typer(
    no_args_is_help=True,
    help="Start or run a study, look at it, draw and export what came of it.\n\n"
    "A study is a YAML file: a base problem, axes of what is varied (values, ranges, samples), "
    "objectives and constraints. A sweep of it fills a store, a directory with a database of "
    "a row a point. `study run` has published studies ready.\n\n"
    "In this order: `crosstack study init study.yaml --base FILE`, edit it, "
    "`crosstack study show study.yaml`, `crosstack sweep study.yaml`, "
    "`crosstack study show study.store`, `crosstack report study.store -o study.html`",
)


def init(file: Path, base: Path) -> None:
    """Write a study to start from."""
    from crosstack.io.files import read_text
    from crosstack.io.yaml_tree import parse_yaml

    inputs.check_suffix("FILE", file, inputs.YAML_SUFFIXES)
    inputs.check_outputs(base, {"FILE": file})
    if file.exists():
        raise InputError(Problem(str(file), "is there already; allowed: a new file."))
    text = read_text(base)
    with inputs.in_file(base):
        tree = parse_yaml(text) if base.suffix.lower() in inputs.YAML_SUFFIXES else None
    chip = isinstance(tree, dict) and "workload" not in tree
    start = files("crosstack.cli").joinpath(f"study_of_{'chips' if chip else 'task'}.yaml")
    given = {"name": file, "base": os.path.relpath(base, file.parent)}
    write((file, Template(start.read_text("utf-8")).substitute(given)))


def run(*, name: str | None = None, run: RunOptions) -> None:
    """Run a published design space that comes with crosstack, and hold it against its paper."""
    from crosstack.published.studies import built_in, claims_text, study_list

    if name is None:
        given = {f"--{option}": value for option, value in asdict(run).items()}
        inputs.refuse(given, "allowed: with the name of a study.")
        typer.echo(study_list(), nl=False)
        return
    if Path(name).suffix.lower() in inputs.YAML_SUFFIXES:
        message = f"is a study of your own; crosstack sweep {printable(name)} runs it."
        raise InputError(Problem(printable(name), message))
    chosen = built_in(name)
    table = run.run(chosen.make(), Path(f"{name}.store"), name)
    typer.echo("\n" + claims_text(chosen, table.to_pylist()), nl=False)


def show_(file: Path, study: Path | None = None, top: int = 5) -> None:
    """Show what a study asks, or how many points came out how and which are the best."""
    from crosstack.report.study_text import results_tables, study_tables

    if top < 1:
        raise InputError(Problem("--top", f"got {top}; allowed: 1 or more."))
    if file.is_dir():
        table, asked = _results(file, study)
        show(results_tables(table, asked, top))
        return
    inputs.refuse({"--study": study}, "allowed: with a store alone.")
    from crosstack.explore.points import expand
    from crosstack.explore.run import check_study
    from crosstack.explore.study import read_study
    from crosstack.published.studies import STUDIES

    known = None if file.exists() else STUDIES.get(str(file))  # it comes with crosstack
    chosen = read_study(file) if known is None else known.make()
    with inputs.in_file(file):
        check_study(chosen)
        show(study_tables(chosen, expand(chosen)))


def plot(
    *,
    store: Path,
    x: str,
    y: str,
    output: Path,
    value: str | None = None,
    by: str | None = None,
    front: bool = False,
    paper: bool = False,
    study: Path | None = None,
) -> None:
    """Draw a term over an axis, one term over another, or a heat map of two axes."""
    from crosstack.report.chart_figure import charts_svg
    from crosstack.report.plot import SUFFIXES, save_plot
    from crosstack.report.study_chart import heat_map, line_chart

    inputs.check_outputs(None, {"--output": output})
    inputs.check_suffix("--output", output, SUFFIXES)
    if value is not None:
        inputs.refuse({"--by": by, "--front": front}, "given with --value; allowed: one of them.")
    table, asked = _results(store, study)
    with inputs.in_file(store):
        chart: HeatMap | LineChart
        if value is not None:
            chart = heat_map(table, asked, x=x, y=y, value=value)
        else:
            chart = line_chart(table, asked, x=x, y=y, by=by, front=front)
    if paper or output.suffix.lower() != ".svg":
        with inputs.options_named({"plot": "--output"}):
            save_plot(chart, output)
        typer.echo(f"wrote {printable(str(output))}")
        return
    words = f"{table.num_rows:,} points around {Path(asked.base).name}"
    write((output, charts_svg(asked.name, words, [chart], [], [])))


def export(store: Path, output: Path, study: Path | None = None) -> None:
    """Write all rows of a store as one file: points, or the machines or choices of a search."""
    inputs.check_outputs(store, {"--output": output})
    inputs.check_suffix("--output", output, (".csv", ".json", ".parquet"))
    from crosstack.explore.tables import write_table

    if store.is_file():
        inputs.refuse({"--study": study}, "allowed: with a store alone.")
        table = _searched(store)
    else:
        table, _ = _results(store, study, everything=True)
    write_table(table, output)
    typer.echo(f"wrote {printable(str(output))}: {table.num_rows:,} points")


def _searched(result: Path) -> pyarrow.Table:
    """Return the machines or the choices of a search that was saved."""
    from crosstack.report.pages.study_table import as_arrow

    found = saved_result(result, read_result(result))
    if found.study is None:
        message = "allowed: a store, or what codesign or optimize saved with --json."
        raise InputError(Problem(str(result), message))
    return as_arrow(found.study())


def _results(
    path: Path, study: Path | None, *, everything: bool = False
) -> tuple[pyarrow.Table, StudyQuestion]:
    """Return the rows of a store and what was asked of them; ``everything``: old versions', too."""
    from crosstack.explore.points import expand
    from crosstack.explore.question import question_in, question_of
    from crosstack.explore.store import Store
    from crosstack.explore.study import read_study
    from crosstack.explore.tables import current

    store = Store.open(path)
    if study is None:
        asked = question_in(store)
        table = store.table()
        tell_damage(store)
        kept = table if everything else current(table, asked)
        if kept.num_rows < table.num_rows:
            others = table.num_rows - kept.num_rows
            message = f"{others:,} points that another version of crosstack answered are left out"
            typer.echo(f"crosstack: {message}", err=True)
        return kept, asked
    chosen = read_study(study)
    with inputs.in_file(study):
        table = store.table(expand(chosen).keys)
    tell_damage(store)
    return table, question_of(chosen)


add_commands(study_app, "study", init, run, show_, plot, export)
