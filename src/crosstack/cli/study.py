"""``crosstack study``: start a study, look at it, draw and export what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstack.cli.inputs import check_outputs, in_file
from crosstack.cli.outputs import YAML_SUFFIXES, check_suffix, printable, show, write
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from crosstack.explore.views import Asked

__all__ = ["study_app"]

study_app = typer.Typer(
    no_args_is_help=True, help="Start a study, look at it, draw and export what came of it."
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


@study_app.command("show")
def show_(
    file: Annotated[Path, typer.Argument(metavar="STUDY|STORE", help="A study, or its results.")],
    study: StudyOption = None,
    top: Annotated[int, typer.Option("--top", metavar="N", help="Rows of each table.")] = 5,
) -> None:
    """Show what a study asks, or how many points came out how and which are the best.

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
    from crosstack.explore.study import read_study

    chosen = read_study(file)
    with in_file(file):
        show(study_tables(chosen, expand(chosen)))


@study_app.command("plot")
def plot(
    store: StorePath,
    x: Annotated[str, typer.Option("--x", metavar="COLUMN", help="Along the horizontal.")],
    y: Annotated[
        str, typer.Option("--y", metavar="COLUMN", help="Along the vertical; rows of a heat map.")
    ],
    output: Annotated[
        Path, typer.Option("-o", "--output", metavar="OUT", help="A picture (.svg).")
    ],
    value: Annotated[
        str | None,
        typer.Option("--value", metavar="COLUMN", help="A heat map of this over two axes."),
    ] = None,
    by: Annotated[
        str | None, typer.Option("--by", metavar="COLUMN", help="A series for each of its values.")
    ] = None,
    study: StudyOption = None,
) -> None:
    """Draw a term over an axis, one term over another, or a heat map of two axes.

    Example: `crosstack study plot study.store --x memory --y time --by link -o time.svg`
    """
    from crosstack.explore.pictures import heat_map, line_chart
    from crosstack.report.charts_page import charts_svg

    check_outputs(None, {"--output": output})
    check_suffix("--output", output, (".svg",))
    if value is not None and by is not None:
        raise InputError(Problem("--by", "given with --value; allowed: one of them."))
    table, asked = _results(store, study)
    with in_file(store):
        if value is not None:
            chart = heat_map(table, asked, x=x, y=y, value=value)
        else:
            chart = line_chart(table, asked, x=x, y=y, by=by)
    words = f"{table.num_rows:,} points around {Path(asked.base).name}"
    write((output, charts_svg(asked.name, words, [chart], [], [])))


@study_app.command("export")
def export(
    store: StorePath,
    output: Annotated[
        Path,
        typer.Option("-o", "--output", metavar="OUT", help="A .csv, .json or .parquet file."),
    ],
    study: StudyOption = None,
) -> None:
    """Write all rows of a store as one file.

    Example: `crosstack study export study.store -o study.csv`
    """
    check_outputs(None, {"--output": output})
    check_suffix("--output", output, (".csv", ".json", ".parquet"))
    from crosstack.explore.views import write_table

    table, _ = _results(store, study)
    write_table(table, output)
    typer.echo(f"wrote {printable(str(output))}: {table.num_rows:,} points")


def _results(path: Path, study: Path | None) -> tuple[Any, Asked]:
    """Return the rows of a store and what was asked of them."""
    from crosstack.explore.points import expand
    from crosstack.explore.store import Store
    from crosstack.explore.study import read_study
    from crosstack.explore.views import asked_in, asked_of

    store = Store.open(path)
    if study is None:
        return store.table(), asked_in(store)
    chosen = read_study(study)
    with in_file(study):
        return store.table(expand(chosen).keys), asked_of(chosen)
