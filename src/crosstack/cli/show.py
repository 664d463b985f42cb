"""``crosstack show``: a file, a saved result, or the libraries in words."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from crosstack.cli import inputs, outputs
from crosstack.cli.chip import library_given
from crosstack.cli.saved import read_result, saved_result

if TYPE_CHECKING:
    from crosstack.mapping.mapping import Task


def show_(
    *,
    file: Path,
    name: str | None = None,
    set_: list[str] | None = None,
    machine: inputs.MachineOptions,
    svg_out: Path | None = None,
    json_out: Path | None = None,
    library: Path | None = None,
    given: str | None = None,
) -> None:
    """Describe the workload and the machine of a file, a saved result, or a model, in words."""
    of_tasks: dict[str, object] = {"--set": set_, "--svg": svg_out, "--given": given}
    if str(file) == "library" and name != "technology":
        inputs.refuse(of_tasks | {"--library": library}, "allowed: with a file alone.")
        _show_library(name, json_out)
        return
    if str(file) in ("library", "technology"):
        what = "library alone" if str(file) == "technology" else "what is no technology"
        inputs.refuse({"--json": json_out}, f"allowed: with {what}.")
        inputs.refuse(of_tasks, "allowed: with a file alone.")
        _show_technology(name if str(file) == "technology" else None, library)
        return
    inputs.refuse({"--json": json_out}, "allowed: with library alone.")
    inputs.refuse({"NAME": name}, f'got "{name}"; allowed: a name after library or technology.')
    inputs.refuse({"--library": library}, "allowed: with technology alone.")
    if file.suffix.lower() == ".json":
        inputs.refuse(of_tasks, "allowed: with a workload and a machine alone.")
        _show_result(file)
        return
    from crosstack.io.native import holds_graph, read_graph
    from crosstack.report.model_text import graph_tables
    from crosstack.report.svg import task_svg
    from crosstack.report.text import task_text

    inputs.check_outputs(file, {"--svg": svg_out})
    if holds_graph(file):
        others: dict[str, object] = {
            "--on": machine.on,
            "--chips": machine.chips,
            "--fabric": machine.fabric,
        }
        options = {"--svg": svg_out, "--given": given}
        inputs.refuse(others | options, "allowed: with a workload and a machine alone.")
        outputs.show(graph_tables(file.stem, read_graph(file, set_ or [])))
        return
    task = machine.task(file, set_)
    if given is not None:
        _show_transformed(task, given, svg_out)
        return
    outputs.show(task_text(task))
    outputs.write(*outputs.asked_files((svg_out, lambda: task_svg(task))))


def _show_library(name: str | None, json_out: Path | None) -> None:
    """Print what is in the library, what is of one kind, or one entry with its sources."""
    from crosstack.report import library_text as text

    listed = name is None or name in text.LISTED
    tables = text.library_list(name) if listed else text.library_tables(str(name))
    texts = outputs.asked_files((json_out, lambda: outputs.json_text(text.library_data(name))))
    outputs.show_and_write(tables, texts)


def _show_technology(name: str | None, library: Path | None) -> None:
    """Print one technology, or the names of all."""
    from crosstack.report.library_text import technology_list, technology_tables

    known = library_given(library)
    outputs.show(technology_list(known) if name is None else technology_tables(known, name))


def _show_result(file: Path) -> None:
    """Print again what was saved, or the model of a ``config.json``."""
    from crosstack.io.huggingface import is_config, transformer_of

    tree = read_result(file)
    if is_config(tree):
        from crosstack.report.model_text import model_tables

        with inputs.in_file(file):
            model = transformer_of(tree)
        outputs.show(model_tables(model.name, model))
        return
    outputs.show(saved_result(file, tree).tables())


def _show_transformed(task: Task, given: str, svg_out: Path | None) -> None:
    """Print and draw a graph after every step of its transformation."""
    from crosstack.mapping.strategy import parse_strategy
    from crosstack.mapping.transform import transform
    from crosstack.report.transform_figure import transform_svg, transform_table

    with inputs.options_named({"strategy": "--given"}):
        strategy = parse_strategy(given)
        steps = transform(task.workload.graph, strategy)
    title = f"{task.workload.name} under {strategy}"
    outputs.show(transform_table(steps, title))
    outputs.write(*outputs.asked_files((svg_out, lambda: transform_svg(steps, title))))
