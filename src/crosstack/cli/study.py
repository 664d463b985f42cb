"""``crosstack study``: start or run a study, look at it, draw and export what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, assert_never

import typer

from crosstack.cli.inputs import (
    Saved,
    check_outputs,
    in_file,
    options_named,
    read_result,
    saved_kind,
)
from crosstack.cli.outputs import YAML_SUFFIXES, check_suffix, printable, show, tell_damage, write
from crosstack.cli.sweep import (
    DaskOption,
    JobsOption,
    ResumeOption,
    TimeoutOption,
    run_and_show,
)
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    import pyarrow

    from crosstack.charts import HeatMap, LineChart
    from crosstack.explore.question import StudyQuestion
    from crosstack.explore.study import Study

__all__ = ["study_app"]

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

StorePath = Annotated[
    Path, typer.Argument(metavar="STORE", help="The directory of a sweep's results.")
]
StudyOption = Annotated[
    Path | None,
    typer.Option(
        "--study",
        metavar="STUDY",
        help="Points, constraints and objectives of this study; otherwise all points, and what "
        "the last sweep was asked.",
    ),
]

TEMPLATE = """\
# A study: every combination of the axes, around one base problem.
# crosstack study show {name}    what it asks; crosstack sweep {name}    run it
base: {base}
evaluate: {evaluator}                   # map: search and prove; mapping: price a given mapping;
                                # predict: time of a training step; chip: chips from budgets
options: {{}}                     # of the evaluator, such as time_limit: 60 (seconds a point)

axes:
{axes}
# other axes: {{presets: {{slow: {{PATH: VALUE, PATH: VALUE}}, fast: ...}}}}, fields by name;
#             {{zip: {{PATH: [1, 2], PATH: [3, 4]}}}}, fields that change together

objectives: {objectives}
# constraints: {{price: {{max: 20000000}}}}
# sample: {{method: sobol, count: 256}}     # draw the ranges together instead of all combinations
"""
TASK_AXES = """\
  memory:                       # the column in the results
    path: system.memory.bandwidth
    log_range: {from: 100 GB/s, to: 3200 GB/s, count: 6}
  use:
    path: system.chip.utilization
    values: [0.5, 0.7, 0.9]
"""
CHIP_AXES = """\
  chip_area:
    range: {from: 400 mm^2, to: 800 mm^2, step: 100 mm^2}
  node: [N7, N5]
"""


@study_app.command("init")
def init(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The study to write.")],
    base: Annotated[
        Path,
        typer.Option("--base", metavar="FILE", help="The problem to vary, or a chip file."),
    ],
) -> None:
    """Write a study to start from.

    Example: `crosstack study init study.yaml --base examples/gpt3_1t_sn30.yaml`
    """
    import os

    from crosstack.io.files import read_text
    from crosstack.io.yaml_tree import parse_yaml

    check_suffix("FILE", file, YAML_SUFFIXES)
    check_outputs(base, {"FILE": file})
    if file.exists():
        raise InputError(Problem(str(file), "is there already; allowed: a new file."))
    tree: Any = None
    if base.suffix.lower() in YAML_SUFFIXES:
        with in_file(base):
            tree = parse_yaml(read_text(base))
    else:
        read_text(base)
    chip = isinstance(tree, dict) and "workload" not in tree
    text = TEMPLATE.format(
        name=file,
        base=os.path.relpath(base, file.parent),
        evaluator="chip" if chip else "map",
        axes=CHIP_AXES if chip else TASK_AXES,
        objectives="{peak_throughput: max}" if chip else "{time: min, price: min}",
    )
    write((file, text))


@study_app.command("run")
def run(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Which study; a list of them if left out."),
    ] = None,
    jobs: JobsOption = None,
    store: Annotated[
        Path | None,
        typer.Option("--store", metavar="DIR", help="Where results go; NAME.store if left out."),
    ] = None,
    resume: ResumeOption = False,
    timeout: TimeoutOption = None,
    dask: DaskOption = None,
) -> None:
    """Run a published design space that comes with crosstack, and hold it against its paper.

    Every point is mapped with a proof, or says its gap. Then the paper's claims are printed
    beside ours, with the reason where they differ. The store is one of a sweep: `crosstack study
    show|plot|export`, `crosstack report` and `crosstack explore` read it.

    Examples: `crosstack study run` and `crosstack study run dfmodel-dse --jobs 2`
    """
    from crosstack.published.studies import built_in, claims_text, study_list

    if name is None:
        given = {"--jobs": jobs, "--store": store, "--resume": resume or None}
        for option, value in {**given, "--timeout": timeout, "--dask": dask}.items():
            if value is not None:
                raise InputError(Problem(option, "allowed: with the name of a study."))
        typer.echo(study_list(), nl=False)
        return
    if Path(name).suffix.lower() in YAML_SUFFIXES:
        message = f"is a study of your own; crosstack sweep {printable(name)} runs it."
        raise InputError(Problem(printable(name), message))
    chosen = built_in(name)
    table = run_and_show(
        chosen.make(),
        store or Path(f"{name}.store"),
        jobs=jobs,
        resume=resume,
        timeout=timeout,
        dask=dask,
        source=name,
    )
    typer.echo("\n" + claims_text(chosen, table.to_pylist()), nl=False)


@study_app.command("show")
def show_(
    file: Annotated[Path, typer.Argument(metavar="STUDY|STORE", help="A study, or its results.")],
    study: StudyOption = None,
    top: Annotated[int, typer.Option("--top", metavar="N", help="Rows of each table.")] = 5,
) -> None:
    """Show what a study asks, or how many points came out how and which are the best.

    A study that comes with crosstack goes by its name (`crosstack study run` lists them).

    Examples: `crosstack study show study.yaml` and `crosstack study show study.store`
    """
    from crosstack.report.study_text import results_tables, study_tables

    if top < 1:
        raise InputError(Problem("--top", f"got {top}; allowed: 1 or more."))
    if file.is_dir():
        table, asked = _results(file, study)
        show(results_tables(table, asked, top))
        return
    if study is not None:
        raise InputError(Problem("--study", "allowed: with a store alone."))
    from crosstack.explore.points import expand
    from crosstack.explore.run import check_study
    from crosstack.explore.study import read_study

    chosen = read_study(file) if file.exists() else _built_in(file) or read_study(file)
    with in_file(file):
        check_study(chosen)
        show(study_tables(chosen, expand(chosen)))


def _built_in(name: Path) -> Study | None:
    """Return the study of that name that comes with crosstack, if there is one."""
    from crosstack.published.studies import STUDIES

    found = STUDIES.get(str(name))
    return None if found is None else found.make()


@study_app.command("plot")
def plot(
    store: StorePath,
    x: Annotated[str, typer.Option("--x", metavar="COLUMN", help="Along the horizontal.")],
    y: Annotated[
        str, typer.Option("--y", metavar="COLUMN", help="Along the vertical; rows of a heat map.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="A picture (.svg, .png or .pdf).")
    ],
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="COLUMN", help="A heat map of this over two axes."),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMN", help="A series for each of its values.")
    ] = None,
    front: Annotated[
        bool, typer.Option("--front", help="Draw the Pareto front of two objectives, too.")
    ] = False,
    paper: Annotated[
        bool, typer.Option("--paper", help="One column wide; .png and .pdf always are.")
    ] = False,
    study: StudyOption = None,
) -> None:
    """Draw a term over an axis, one term over another, or a heat map of two axes.

    Pictures for papers are drawn by matplotlib, of the extra `crosstack[plot]`.

    Examples: `crosstack study plot study.store --x memory --y time --by link -o time.svg` and
    `crosstack study plot study.store --x price --y time --front -o front.png`
    """
    from crosstack.report.charts_page import charts_svg
    from crosstack.report.plot import SUFFIXES, save_plot
    from crosstack.report.study_chart import heat_map, line_chart

    check_outputs(None, {"--output": output})
    check_suffix("--output", output, SUFFIXES)
    for option, given in (("--by", by), ("--front", front or None)):
        if value is not None and given is not None:
            raise InputError(Problem(option, "given with --value; allowed: one of them."))
    table, asked = _results(store, study)
    with in_file(store):
        chart: HeatMap | LineChart
        if value is not None:
            chart = heat_map(table, asked, x=x, y=y, value=value)
        else:
            chart = line_chart(table, asked, x=x, y=y, by=by, front=front)
    if paper or output.suffix.lower() != ".svg":
        with options_named({"plot": "--output"}):
            save_plot(chart, output)
        typer.echo(f"wrote {printable(str(output))}")
        return
    words = f"{table.num_rows:,} points around {Path(asked.base).name}"
    write((output, charts_svg(asked.name, words, [chart], [], [])))


@study_app.command("export")
def export(
    store: Annotated[
        Path,
        typer.Argument(
            metavar="STORE|RESULT",
            help="The directory of a sweep's results, or what `codesign` or `optimize` saved with "
            "--json.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="OUT", help="A .csv, .json or .parquet file."),
    ],
    study: StudyOption = None,
) -> None:
    """Write all rows of a store as one file: points, or the machines or choices of a search.

    Examples: `crosstack study export study.store -o study.csv` and
    `crosstack study export front.json -o front.parquet`
    """
    check_outputs(store, {"--output": output})
    check_suffix("--output", output, (".csv", ".json", ".parquet"))
    from crosstack.explore.tables import write_table

    if store.is_file():
        if study is not None:
            raise InputError(Problem("--study", "allowed: with a store alone."))
        table = _searched(store)
    else:
        table, _ = _results(store, study, everything=True)
    write_table(table, output)
    typer.echo(f"wrote {printable(str(output))}: {table.num_rows:,} points")


def _searched(result: Path) -> pyarrow.Table:
    """Return the machines or the choices of a search that was saved."""
    from crosstack.report.optimum_page import optimum_study
    from crosstack.report.pages.front_page import front_study
    from crosstack.report.pages.study_table import as_arrow

    kind, data = saved_kind(result, read_result(result))
    match kind:
        case Saved.FRONT:
            return as_arrow(front_study(data))
        case Saved.OPTIMUM:
            return as_arrow(optimum_study(data))
        case Saved.MAPPING | Saved.PREDICTION:
            message = "allowed: a store, or what codesign or optimize saved with --json."
            raise InputError(Problem(str(result), message))
        case _:
            assert_never(kind)


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
    with in_file(study):
        table = store.table(expand(chosen).keys)
    tell_damage(store)
    return table, question_of(chosen)
