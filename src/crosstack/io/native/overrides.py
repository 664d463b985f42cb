"""``--set system.chip.utilization=0.8``: changes to a file's tree before it is checked."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any, get_origin

from crosstack.errors import InputError, Problem
from crosstack.io.native.problems import path_of, unknown_field
from crosstack.io.native.schema import inside, is_model, shown
from crosstack.io.native.task_fields import TaskFile
from crosstack.io.yaml_tree import Change, parse_yaml

_PART = re.compile(r'\.?([^.\[\]"=]+)|\[(\d{1,9})\]|\["([^"]+)"\]')


def override(data: dict[str, Any], assignments: Sequence[Change]) -> dict[str, Any]:
    """Return the tree of a file with values replaced or added; ``data`` is not changed.

    ``assignments`` are ``path=value``: fields joined by dots, list entries as ``[0]``, odd names as
    ``["a.b"]``; the value is YAML, or as it is beside its path. A library name on the way
    (``chip: sn30``) becomes a mapping that starts from that entry; a section that is not there is
    made. `InputError` if a part of a path does not exist; names the nearest.
    """
    if not assignments:
        return data
    changed = copy.deepcopy(data)
    problems: list[Problem] = []
    for assignment in assignments:
        try:
            path, value = _parse(assignment)
            _assign(changed, path, value)
        except InputError as error:
            problems.extend(error.problems)
    if problems:
        raise InputError(problems)
    return changed


def override_freely(data: dict[str, Any], assignments: Sequence[Change]) -> dict[str, Any]:
    """Return the tree of a file of another format, changed as by `override`.

    Mappings that are not there are made; unknown names are left to the check of the format.
    `InputError` if an assignment is none, or a path leads through a value.
    """
    changed = copy.deepcopy(data)
    for assignment in assignments:
        path, value = _parse(assignment)
        node: Any = changed
        for depth, part in enumerate(path):
            here = path_of("", path[: depth + 1])
            if isinstance(part, int) and not (isinstance(node, list) and part < len(node)):
                raise InputError(Problem(here, "there is no such entry."))
            if isinstance(part, str) and not isinstance(node, dict):
                above = path_of("", path[:depth])
                raise InputError(Problem(here, f"{above} is {shown(node)}, not a mapping."))
            if depth == len(path) - 1:
                node[part] = value
            elif isinstance(part, str) and node.get(part) is None:
                node[part] = {}
            node = node[part]
    return changed


def _parse(change: Change) -> tuple[list[str | int], Any]:
    parts: list[str | int] = []
    at = 0
    assignment = change if isinstance(change, str) else f"{change[0]}="
    while match := _PART.match(assignment, at):
        number, name = match[2], match[1] or match[3]
        parts.append(int(number) if number else name.strip())
        at = match.end()
    if not parts or assignment[at : at + 1] != "=":
        message = "allowed: PATH=VALUE, such as system.chip.utilization=0.8."
        raise InputError(Problem("", f"got {shown(assignment)}; {message}"))
    if not isinstance(change, str):
        return parts, change[1]
    try:
        return parts, parse_yaml(assignment[at + 1 :])
    except InputError as error:
        message = "; ".join(str(problem) for problem in error.problems)
        raise InputError(Problem(path_of("", parts), message)) from None


def _assign(data: dict[str, Any], path: list[str | int], value: Any) -> None:
    node: Any = data
    schema: Any = TaskFile
    for depth, part in enumerate(path):
        inner = _check_part(node, schema, path, depth)
        if depth == len(path) - 1:
            node[part] = value
            return
        child = node[part] if isinstance(part, int) else node.get(part)
        child = node[part] = _opened(child, inner, path_of("", path[: depth + 1]))
        node, schema = child, inner


def _check_part(node: Any, schema: Any, path: list[str | int], depth: int) -> Any:
    """Return what the schema holds under ``path[depth]``; raise unless it may stand there."""
    part, here = path[depth], path_of("", path[:depth])
    message = ""
    if get_origin(schema) is list:
        if not isinstance(part, int):
            message = f"{here} is a list; allowed: {here}[0], ..."
        elif part >= len(node):
            count = f"{len(node)} entries, numbered from 0" if node else "no entries"
            message = f"there is no such entry: {here} has {count}."
    elif isinstance(part, int):
        message = f"{here or 'the file'} is not a list."
    elif is_model(schema) and part not in schema.model_fields:
        message = unknown_field(part, schema.model_fields)
    elif not is_model(schema) and get_origin(schema) is not dict:
        message = f"{here} is a single value and has no fields."
    if message:
        raise InputError(Problem(path_of("", path[: depth + 1]), message))
    return inside(schema, part)


def _opened(child: Any, schema: Any, path: str) -> Any:
    """Return ``child`` as something that a part can be set in."""
    if isinstance(child, str) and is_model(schema) and str in schema.alone:
        return {schema.alone[str]: child}
    is_list, is_mapping = get_origin(schema) is list, is_model(schema) or get_origin(schema) is dict
    if child is None and (is_list or is_mapping):
        return [] if is_list else {}
    if is_list and not isinstance(child, list):
        raise InputError(Problem(path, f"is {shown(child)}, not a list."))
    if is_mapping and not isinstance(child, dict):
        raise InputError(Problem(path, f"is {shown(child)}, not a mapping."))
    return child
