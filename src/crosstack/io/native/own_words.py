"""What is wrong with a task, in the words of the native file that it was read from."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.native.overrides import override
from crosstack.io.native.ready_made import READY_MADE, RELEASES
from crosstack.io.native.task_fields import GRAPH_SECTION, as_task, is_graph
from crosstack.io.yaml_tree import parse_yaml
from crosstack.mapping.mapping import Task

_GRAPH = "workload.graph"
_KERNEL = re.compile(r"workload\.graph\.kernels\[(\d+)\](?:\.(.+))?")
_CONSUMER = re.compile(r"workload\.graph\.tensors\[(\d+)\]\.consumers\[(\d+)\](.*)")
_PART = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def in_own_words(
    error: InputError, task: Task, text: str, overrides: Sequence[str] = ()
) -> InputError:
    """Return the error of a task, read from ``text`` and changed, with the fields of its file.

    Kernels and tensors of a generated workload are in no file: they are said to be the
    generator's. A field that the file leaves to its default is said to be left out.
    """
    read: Any = parse_yaml(text)
    if "workload" not in read and is_graph(read):
        plain = (_own(problem, task, as_task(read)) for problem in error.problems)
        return InputError(p.at(p.path.removeprefix(GRAPH_SECTION)) for p in plain)
    tree = override(read, overrides)
    return InputError(_own(problem, task, tree) for problem in error.problems)


def _own(problem: Problem, task: Task, tree: dict[str, Any]) -> Problem:
    if problem.path.startswith(_GRAPH):
        return _of_graph(problem, task, tree["workload"])
    generator = _generator(tree["workload"])
    path, inside = problem.path, f"workload.{generator}."
    if generator is not None and path.startswith("workload."):
        path = inside + path.removeprefix("workload.")
    if _stands(tree, path):
        return problem.at(path)
    if path.startswith(inside):  # what the generator makes of its other fields
        name, path = path.removeprefix(inside), inside.removesuffix(".")
        return Problem(path, f"its {name}: {problem.message}", problem.count)
    return Problem(path, f"left out; {problem.message}", problem.count)


def _generator(workload: dict[str, Any]) -> str | None:
    sections = (*READY_MADE, "graph")
    section = next((name for name in sections if workload.get(name) is not None), None)
    return f"{section}.{next(iter(workload[section]))}" if section in RELEASES else section


def _of_graph(problem: Problem, task: Task, workload: dict[str, Any]) -> Problem:
    generator, graph = _generator(workload), task.workload.graph
    kernel, consumer = _KERNEL.match(problem.path), _CONSUMER.match(problem.path)
    if generator is not None:
        name = f"kernel {graph.kernels[int(kernel[1])].name!r}" if kernel else ""
        what = ", ".join(part for part in (name, kernel and kernel[2]) if part)
        said = f"its {what}: {problem.message}" if what else problem.message
        return Problem(f"workload.{generator}", said, problem.count)
    if consumer is None or workload.get("tensors") is not None:
        return problem.at(problem.path.replace(_GRAPH, "workload", 1))
    reader = graph.tensors[int(consumer[1])].consumers[int(consumer[2])]
    kernel_path = f"workload.kernels[{graph.index[reader.kernel]}]"
    return problem.at(f"{kernel_path}.inputs[{reader.operand}]{consumer[3]}")


def _stands(tree: Any, path: str) -> bool:
    """Return whether a field is written down; what a name of the library stands for is."""
    for name, number in _PART.findall(path):
        if isinstance(tree, str):
            return True
        part = int(number) if number else name
        if isinstance(tree, list) if number else isinstance(tree, dict):
            if number and part >= len(tree):
                return False
            tree = tree[part] if number else tree.get(part)
        if tree is None:
            return False
    return True
