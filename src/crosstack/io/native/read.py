"""Reads a native YAML file: text, tree, overrides, shape, records; all problems in one error."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from crosstack.errors import MOST_SHOWN, InputError, Problem
from crosstack.io.files import of_file
from crosstack.io.kinds import FileKind, refuse_other_kinds
from crosstack.io.native.overrides import override
from crosstack.io.native.problems import collecting, unknown_fields, unknown_kernel, validate
from crosstack.io.native.read_system import read_system
from crosstack.io.native.read_workload import read_workload
from crosstack.io.native.schema import FileModel, shown
from crosstack.io.native.task_fields import FIELDS, GRAPH_SECTION, TaskFile, as_task, is_graph
from crosstack.io.yaml_tree import Change, Content, parse_yaml, tree_of
from crosstack.machine.system import System
from crosstack.mapping.degrees import Degrees
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.choice_index import axis_names, named_axis
from crosstack.model.rules import rules_named
from crosstack.workload.passes.expert_parallel import cut_experts
from crosstack.workload.workload import Workload


def read_task(content: Content, source: str, overrides: Sequence[Change] = ()) -> Task:
    """Return the task that a native YAML file holds.

    `InputError` with every problem found, one line each: ``FILE: path: what is wrong``.

    Parameters
    ----------
    content : str or dict
        The file's text, or its tree.
    source : str
        What to call the file in errors.
    overrides : sequence of str, or of (str, value)
        See `crosstack.io.native.override`.
    """
    with of_file(source):
        tree = tree_of(content)
        if not isinstance(tree, dict):
            allowed = f"a mapping of {', '.join(TaskFile.model_fields)}"
            raise InputError(Problem("", f"got {shown(tree)}; allowed: {allowed}."))
        if "workload" not in tree and is_graph(tree):
            return _task_of_graph({"name": Path(source).stem, **tree}, overrides)
        refuse_other_kinds(tree, FileKind.TASK)
        return task_of(override(tree, overrides))


def _task_of_graph(tree: dict[str, Any], overrides: Sequence[Change]) -> Task:
    """Return the task of a graph with a machine beside it, or given by an override."""
    try:
        whole = override(as_task(tree), [_inside(change) for change in overrides])
        if "system" not in whole:
            message = "required, but missing: a section, or --on and a machine of the library."
            raise InputError(Problem("system", message))
        return task_of(whole)
    except InputError as error:
        plain = (p.at(p.path.removeprefix(GRAPH_SECTION)) for p in error.problems)
        raise InputError(plain) from None


def _inside(change: Change) -> Change:
    """Return an override of a graph's field as one of the task that the graph becomes."""
    path = change if isinstance(change, str) else change[0]
    if re.split(r"[.\[=]", path, maxsplit=1)[0] in TaskFile.model_fields:
        return change
    inside = f"{GRAPH_SECTION}{path}"
    return inside if isinstance(change, str) else (inside, change[1])


def read_system_alone(text: str, source: str) -> System | None:
    """Return the system of a native file without a workload; None where there is a workload.

    `InputError` says every problem as ``FILE: path: what is wrong``.
    """
    with of_file(source):
        tree = parse_yaml(text)
        if not isinstance(tree, dict) or "workload" in tree or "system" not in tree:
            return None
        problems = unknown_fields([name for name in tree if name != "system"], ("system",))
        file = validate(FIELDS["system"], tree["system"], "system", problems)
        system = None if file is None else read_system(file, problems)
        if problems:
            raise InputError(problems)
        return system


def task_of(tree: dict[str, Any]) -> Task:
    """Return the task in a parsed file; problems are paths in it, without the file's name.

    Raises `InputError` with every problem.
    """
    given = {name: value for name, value in tree.items() if value is not None}
    problems: list[Problem] = []
    head = validate(FIELDS["head"], given, "", problems)
    # Section by section, so that a slip in one does not hide what is wrong in another.
    sections: dict[str, Any] = {
        name: validate(FIELDS[name], given[name], name, problems)
        for name in ("workload", "system", "constraints")
        if name in given
    }
    file = sections.get("workload")
    workload = file and read_workload(file, head.name if head else None, problems)
    sums = file and file.accumulator
    file = sections.get("system")
    system = file and read_system(file, problems)
    if sums and workload and system:
        with collecting(problems, ""):
            chip = system.chip.adding_in(sums, workload.graph.dtype)
            system = replace(system, chip=chip)
    constraints = _constraints(sections.get("constraints"), workload, problems)
    rules = head.rules if head else None
    if rules is not None:
        with collecting(problems, ""):
            rules_named(rules)
    if problems or workload is None or system is None:
        raise InputError(problems)
    return Task(workload=workload, system=system, constraints=constraints, rules=rules)


def _unknown_axes(sharding: tuple[tuple[str, str], ...], workload: Workload) -> Iterator[Problem]:
    arrays = workload.graph
    graphs = arrays, cut_experts(arrays)  # which of both it is of, degrees say
    for kernel, along in sharding:
        i = arrays.index.get(kernel)
        if i is not None and all(named_axis(graph, i, along) is None for graph in graphs):
            allowed = ", ".join(axis_names(arrays, i).values())
            message = f"got {along!r}; allowed: {allowed}."
            yield Problem(f"constraints.sharding.{kernel}", message)


def _constraints(
    file: FileModel | None, workload: Workload | None, problems: list[Problem]
) -> Constraints:
    if file is None:
        return Constraints()
    values = {
        name: tuple((getattr(file, name) or {}).items()) for name in ("partitions", "sharding")
    }
    for name, given in values.items():
        kernels = dict(given) if workload is None else workload.graph.index
        for i, (kernel, _) in enumerate(given):
            if kernel not in kernels:
                message = unknown_kernel(kernel, kernels, hint=i < MOST_SHOWN)
                problems.append(Problem(f"constraints.{name}.{kernel}", message))
    if workload is not None:
        problems.extend(_unknown_axes(values["sharding"], workload))
    degrees = Degrees() if file.degrees is None else file.degrees.record(Degrees)
    overlap = None if file.overlap is None else tuple(file.overlap)
    said = {"degrees": degrees, "overlap": overlap, "offload": tuple(file.offload or ())}
    with collecting(problems, "constraints"):
        return file.record(Constraints, **said, **values)
    return Constraints()
