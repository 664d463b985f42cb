"""What pydantic found wrong, in crosstack's words: the path, what came, what is allowed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

from pydantic import ValidationError

from crosstack.errors import MOST_SHOWN, InputError, Problem, did_you_mean, nearest
from crosstack.io.native.schema import FileModel, fields_of, inside, is_model, shown

MOST_KEPT = 1000  # problems that pydantic is asked to list; it takes long over more


@contextmanager
def collecting(problems: list[Problem], path: str) -> Iterator[None]:
    """Append the problems of an `InputError` raised inside to ``problems``, under ``path``."""
    try:
        yield
    except InputError as error:
        problems.extend(error.under(path).problems)


def validate(
    model: type[FileModel], value: object, path: str, problems: list[Problem]
) -> FileModel | None:
    """Return ``value`` as a ``model``; None, with ``problems`` longer, if it is not one."""
    try:
        return model.model_validate(value)
    except ValidationError as error:
        found = error
    unknown: list[Problem] = []
    if found.error_count() > MOST_KEPT:
        # Said first and taken out, so that what is left is listed quickly.
        few = _without_unknown(value, model, path, unknown)
        if unknown:
            problems.extend(unknown)
            validate(model, few, path, problems)
            return None
    problems.extend(_translate(found, model, path))
    return None


def checked(model: type[FileModel], value: object, path: str = "") -> FileModel:
    """Return ``value`` as a ``model``; `InputError` with every problem if it is not one."""
    problems: list[Problem] = []
    found = validate(model, value, path, problems)
    if found is None:
        raise InputError(problems)
    return found


def _without_unknown(value: Any, model: Any, path: str, problems: list[Problem]) -> Any:
    """Return a tree without the fields that do not exist, each of which becomes a problem."""
    if isinstance(value, list):
        inner = inside(model, 0)
        return [
            _without_unknown(item, inner, f"{path}[{i}]", problems) for i, item in enumerate(value)
        ]
    if not isinstance(value, dict) or not is_model(model):
        return value
    known = fields_of(model)
    problems.extend(unknown_fields([name for name in value if name not in known], known, path))
    return {
        name: _without_unknown(item, inside(model, name), path_of(path, [name]), problems)
        for name, item in value.items()
        if name in known
    }


def path_of(prefix: str, location: Iterable[str | int]) -> str:
    """Return ``system.network[1].size`` for ``("network", 1, "size")`` under ``system``."""
    path = prefix
    for part in location:
        if part == "[key]":  # of pydantic: what is wrong is the name before it
            continue
        dot = "." if path else ""
        path += f"[{part}]" if isinstance(part, int) else f"{dot}{part}"
    return path


def unknown_field(name: object, allowed: Iterable[str]) -> str:
    """Return the message for a field that does not exist."""
    names = list(allowed)
    hint = did_you_mean(name, names)
    return f"unknown field.{hint} Allowed: {', '.join(names)}."


def unknown_fields(names: Sequence[str], allowed: Iterable[str], path: str = "") -> list[Problem]:
    """Return a problem for each of the first fields that do not exist, and one for the others.

    Looking for the nearest of many takes long, and nobody reads past a few.
    """
    known = list(allowed)
    found = [
        Problem(path_of(path, [name]), unknown_field(name, known)) for name in names[:MOST_SHOWN]
    ]
    left = len(names) - len(found)
    if left > 0:
        found.append(Problem(path, f"{left:,} more unknown fields.", count=left))
    return found


def unknown_kernel(name: str, kernels: Iterable[str], *, hint: bool = True) -> str:
    """Return the message for a kernel that does not exist; looking for the nearest is slow."""
    found = nearest(name[:100], kernels) if hint else []
    close = ", ".join(f'"{kernel}"' for kernel in found)
    return f'no kernel is called "{name}".' + (f" Nearest: {close}." if close else "")


def _translate(error: ValidationError, root: type[FileModel], prefix: str) -> list[Problem]:
    found = error.errors(include_url=False)
    # A misspelt field also leaves the field it stands for missing: one mistake, one line.
    meant = {
        (item["loc"][:-1], name)
        for item in found
        if item["type"] == "extra_forbidden"
        for name in nearest(item["loc"][-1], _fields(root, item["loc"][:-1]), 1)
    }
    return [
        problem
        for item in found
        if item["type"] != "missing" or (item["loc"][:-1], item["loc"][-1]) not in meant
        for problem in _problems(item, root, prefix)
    ]


def _problems(item: Any, root: type[FileModel], prefix: str) -> Iterable[Problem]:
    location, kind = item["loc"], item["type"]
    path = path_of(prefix, location)
    cause = item.get("ctx", {}).get("error")
    if isinstance(cause, InputError):
        return cause.under(path).problems
    if kind == "extra_forbidden":
        message = unknown_field(location[-1], _fields(root, location[:-1]))
    elif kind == "missing":
        message = "required, but missing."
    elif kind == "list_type":
        message = f"got {shown(item['input'])}; allowed: a list."
    elif kind in ("model_type", "model_attributes_type", "dict_type"):
        model = _model_at(root, location)
        name = "a name from the library, or " if model and "library" in model.model_fields else ""
        of = f" of {', '.join(fields_of(model))}" if model else " of names"
        message = f"got {shown(item['input'])}; allowed: {name}a mapping{of}."
    else:
        message = f"got {shown(item['input'])}; {item['msg']}."
    return [Problem(path, message)]


def _fields(root: type[FileModel], location: Iterable[str | int]) -> list[str]:
    model = _model_at(root, location)
    return [] if model is None else list(fields_of(model))


def _model_at(root: type[FileModel], location: Iterable[str | int]) -> type[FileModel] | None:
    """Return the model of the mapping at ``location``, None where there is none."""
    here = reduce(inside, location, root)
    return here if is_model(here) else None
