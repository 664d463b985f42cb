"""``crosstack show``: a file, a saved result, or the libraries in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, assert_never

import typer

from crosstack.cli.chip import Library
from crosstack.cli.inputs import (
    Chips,
    Fabric,
    JsonOut,
    On,
    Saved,
    check_outputs,
    loaded_task,
    options_named,
    read_result,
    result_answer,
    saved_kind,
)
from crosstack.cli.library import show_config, show_graph, show_library, show_technology
from crosstack.cli.outputs import show, show_answer, write
from crosstack.cli.task_options import Set, SvgOut
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from crosstack.mapping.mapping import Task

__all__ = ["show_"]


def show_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE|RESULT|library|technology",
            help="Native YAML, DFModel text, what a command saved with --json, or config.json.",
        ),
    ],
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="With `technology`: which one; all if left out. With `library`: chips, nodes, "
            "networks, memories, models, technology, or one of them.",
        ),
    ] = None,
    set_: Set = None,
    on: On = None,
    chips: Chips = None,
    fabric: Fabric = None,
    svg_out: SvgOut = None,
    json_out: JsonOut = None,
    library: Library = None,
    parallel: Annotated[
        str | None,
        typer.Option(
            "--parallel",
            metavar="STRATEGY",
            help="Show the graph as a strategy such as RC-2-2-d2-p2 transforms it, step by step.",
        ),
    ] = None,
) -> None:
    """Describe the workload and the machine of a file, a saved result, or a model, in words.

    `crosstack show technology` lists technologies, `crosstack show technology hbm3` shows the
    numbers of one with their sources, and what follows from them. `crosstack show library` lists
    machines and models, `crosstack show library models` one kind of them, `crosstack show library
    h100-sxm` shows every number of one with its source. A `config.json` of the Hugging Face Hub is
    shown as a model, a graph of operations over named axes operation by operation.

    Example: `crosstack show examples/my_graph.yaml --parallel RC-2-2-d2-p2 --svg graph.svg`
    """
    of_tasks: dict[str, object] = {"--set": set_, "--svg": svg_out, "--parallel": parallel}
    if str(file) == "library":
        show_library(name, library, of_tasks, json_out)
        return
    if json_out is not None:
        raise InputError(Problem("--json", "allowed: with library alone."))
    if str(file) == "technology":
        show_technology(name, library, of_tasks)
        return
    if name is not None:
        raise InputError(
            Problem("NAME", f'got "{name}"; allowed: a name after library or technology.')
        )
    if library is not None:
        raise InputError(Problem("--library", "allowed: with technology alone."))
    if file.suffix.lower() == ".json":
        _show_result(file, of_tasks)
        return
    from crosstack.io.native import holds_graph
    from crosstack.report.svg import task_svg
    from crosstack.report.text import task_text

    check_outputs(file, {"--svg": svg_out})
    if holds_graph(file):
        options = {"--on": on, "--chips": chips, "--fabric": fabric}
        show_graph(file, set_ or [], options | {"--svg": svg_out, "--parallel": parallel})
        return
    task = loaded_task(file, set_, on, chips, fabric)
    if parallel is not None:
        _show_transformed(task, parallel, svg_out)
        return
    show(task_text(task))
    if svg_out is not None:
        write((svg_out, task_svg(task)))


def _show_result(file: Path, of_tasks: dict[str, object]) -> None:
    """Print again what was saved, or the model of a ``config.json``."""
    from crosstack.io.huggingface import is_config

    for option, given in of_tasks.items():
        if given:
            raise InputError(Problem(option, "allowed: with a workload and a machine alone."))
    tree = read_result(file)
    if is_config(tree):
        show_config(file, tree)
        return
    kind, data = saved_kind(file, tree)
    match kind:
        case Saved.MAPPING:
            show_answer(result_answer(file, data, None, None), kernels=False)
        case Saved.FRONT:
            from crosstack.report.front_text import front_tables

            show(front_tables(data))
        case Saved.OPTIMUM:
            from crosstack.report.optimize_text import optimum_tables

            show(optimum_tables(data))
        case Saved.PREDICTION:
            from crosstack.report.kernel_text import kernel_tables
            from crosstack.report.prediction_text import prediction_tables

            kernel = data.get("kernel")
            alone = kernel is not None and data["n_chips"] == 1
            show(prediction_tables(data, parts=not alone))
            if kernel is not None:
                show(kernel_tables(kernel))
        case _:
            assert_never(kind)


def _show_transformed(task: Task, parallel: str, svg_out: Path | None) -> None:
    """Print and draw a graph after every step of its transformation."""
    from crosstack.mapping.strategy import parse_strategy
    from crosstack.mapping.transform import transform
    from crosstack.report.transform_figure import transform_svg, transform_table

    with options_named({"strategy": "--parallel"}):
        strategy = parse_strategy(parallel)
        steps = transform(task.workload.graph, strategy)
    title = f"{task.workload.name} under {strategy}"
    show(transform_table(steps, title))
    if svg_out is not None:
        write((svg_out, transform_svg(steps, title)))
