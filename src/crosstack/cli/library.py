"""``show`` of what is known by name: the library, technologies, and models from their files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crosstack.cli.chip import library_given
from crosstack.cli.inputs import in_file
from crosstack.cli.outputs import asked_files, json_text, show, show_and_write
from crosstack.errors import InputError, Problem

__all__ = ["show_config", "show_graph", "show_library", "show_technology"]


def show_library(
    name: str | None, library: Path | None, of_files: dict[str, object], json_out: Path | None
) -> None:
    """Print what is in the library, what is of one kind, or one entry with its sources."""
    from crosstack.report.library_data import library_data
    from crosstack.report.library_text import LISTS, library_list, library_tables

    if name == "technology":
        if json_out is not None:
            raise InputError(Problem("--json", "allowed: with what is no technology."))
        show_technology(None, library, of_files)
        return
    for option, given in (of_files | {"--library": library}).items():
        if given:
            raise InputError(Problem(option, "allowed: with a file alone."))
    listed = name is None or name in LISTS
    tables = library_list(name) if listed else library_tables(str(name))
    show_and_write(tables, asked_files((json_out, lambda: json_text(library_data(name)))))


def show_technology(name: str | None, library: Path | None, of_files: dict[str, object]) -> None:
    """Print one technology, or the names of all."""
    from crosstack.report.technology_text import technology_list, technology_tables

    for option, given in of_files.items():
        if given:
            raise InputError(Problem(option, "allowed: with a file alone."))
    known = library_given(library)
    show(technology_list(known) if name is None else technology_tables(known, name))


def show_graph(file: Path, changes: Sequence[str], of_tasks: dict[str, object]) -> None:
    """Print a graph of operations over named axes."""
    from crosstack.io.native import read_graph
    from crosstack.report.graph_text import graph_tables

    for option, given in of_tasks.items():
        if given:
            raise InputError(Problem(option, "allowed: with a workload and a machine alone."))
    show(graph_tables(file.stem, read_graph(file, changes)))


def show_config(file: Path, tree: dict[str, Any]) -> None:
    """Print the model of a ``config.json``."""
    from crosstack.io.huggingface import transformer_of
    from crosstack.report.model_text import model_tables

    with in_file(file):
        model = transformer_of(tree)
    show(model_tables(model.name, model))
