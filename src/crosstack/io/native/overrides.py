"""``--set system.chip.utilization=0.8``: a file's tree is changed before it is checked."""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from typing import Any, get_origin

from crosstack.errors import InputError, Problem
from crosstack.io.kinds import FileKind, refuse_other_kinds
from crosstack.io.native.problems import checked, collecting, path_of, unknown_field
from crosstack.io.native.schema import FileModel, inside, is_model, shown
from crosstack.io.native.task_fields import TaskFile
from crosstack.io.yaml_tree import Change, Content, parse_yaml, tree_of

_PART = re.compile(r'\.?([^.\[\]"=]+)|\[(\d{1,9})\]|\["([^"]+)"\]')


def override(
    data: dict[str, Any], assignments: Sequence[Change], shape: Any = TaskFile
) -> dict[str, Any]:
    """Return the tree of a file with values replaced or added; ``data`` is not changed.

    A library name on the way (``chip: sn30``) becomes a mapping that starts from that entry; a
    section that is not there is made. `InputError` if a part of a path does not exist; names the
    nearest.

    Parameters
    ----------
    data : dict
        The tree.
    assignments : sequence of str, or of (str, value)
        ``path=value``: fields joined by dots, list entries as ``[0]``, odd names as ``["a.b"]``;
        the value is YAML, or as it is beside its path.
    shape : type
        Of the tree; `Any` leaves unknown names to the check of the format.
    """
    if not assignments:
        return data
    changed = copy.deepcopy(data)
    problems: list[Problem] = []
    for assignment in assignments:
        with collecting(problems, ""):
            path, value = _parse(assignment)
            _assign(changed, path, value, shape)
    if problems:
        raise InputError(problems)
    return changed


def read_fields(
    model: type[FileModel], kind: FileKind, content: Content, overrides: Sequence[Change] = ()
) -> FileModel:
    """Return what YAML of a kind holds, changed by ``path=value`` and checked field by field.

    `InputError` with every problem found, by the path of its field.
    """
    tree = tree_of(content)
    if not isinstance(tree, dict):
        allowed = f"a mapping of {', '.join(model.model_fields)}"
        raise InputError(Problem("", f"got {shown(tree)}; allowed: {allowed}."))
    refuse_other_kinds(tree, kind)
    return checked(model, override(tree, overrides, Any))


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


def _assign(data: dict[str, Any], path: list[str | int], value: Any, shape: Any) -> None:
    node: Any = data
    for depth, part in enumerate(path):
        inner = _check_part(node, shape, path, depth)
        if depth == len(path) - 1:
            node[part] = value
            return
        child = node[part] if isinstance(part, int) else node.get(part)
        child = node[part] = _opened(child, inner, path_of("", path[: depth + 1]))
        node, shape = child, inner


def _check_part(node: Any, shape: Any, path: list[str | int], depth: int) -> Any:
    """Return what the shape holds under ``path[depth]``; raise unless it may stand there."""
    part, here, free = path[depth], path_of("", path[:depth]), shape is Any
    message = ""
    if get_origin(shape) is list or (free and isinstance(node, list)):
        if not isinstance(part, int):
            message = f"{here} is a list; allowed: {here}[0], ..."
        elif part >= len(node):
            count = f"{len(node)} entries, numbered from 0" if node else "no entries"
            message = f"there is no such entry: {here} has {count}."
    elif isinstance(part, int):
        message = f"{here or 'the file'} is not a list."
    elif free and not isinstance(node, dict):
        message = f"{here} is {shown(node)}, not a mapping."
    elif is_model(shape) and part not in shape.model_fields:
        message = unknown_field(part, shape.model_fields)
    elif not is_model(shape) and get_origin(shape) is not dict and not free:
        message = f"{here} is a single value and has no fields."
    if message:
        raise InputError(Problem(path_of("", path[: depth + 1]), message))
    return shape if free else inside(shape, part)


def _opened(child: Any, shape: Any, path: str) -> Any:
    """Return ``child`` as something that a part can be set in."""
    if isinstance(child, str) and is_model(shape) and str in shape.alone:
        return {shape.alone[str]: child}
    is_list, is_mapping = get_origin(shape) is list, is_model(shape) or get_origin(shape) is dict
    if child is None and (is_list or is_mapping or shape is Any):
        return [] if is_list else {}
    if is_list and not isinstance(child, list):
        raise InputError(Problem(path, f"is {shown(child)}, not a list."))
    if is_mapping and not isinstance(child, dict):
        raise InputError(Problem(path, f"is {shown(child)}, not a mapping."))
    return child
