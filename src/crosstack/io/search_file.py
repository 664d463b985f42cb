"""What ``crosstack codesign`` and ``crosstack optimize`` saved, read back and checked.

Which fields there are is in ``search.yaml``.
"""

from __future__ import annotations

import math
from importlib.resources import files
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, PlainValidator, create_model

from crosstack.errors import InputError, Problem
from crosstack.io.native.problems import validate
from crosstack.io.native.schema import Count, FileModel, Index, Text, number, shown
from crosstack.io.yaml_tree import parse_yaml


def _signed(value: object) -> float:
    """Return a finite number, perhaps below 0."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < math.inf:
        return float(value)
    raise InputError(Problem("", f"got {shown(value)}; allowed: a finite number."))


class ReadFields(FileModel):
    """A mapping of which only some fields are read."""

    model_config = ConfigDict(extra="ignore", frozen=True)


_TREE: Any = parse_yaml(files(__package__).joinpath("search.yaml").read_text(encoding="utf-8"))
_SHAPES: dict[str, Any] = {
    "text": Text,
    "count": Count,
    "index": Index,
    "amount": Annotated[float, number("1")],
    "size": Annotated[float, number("1", above_zero=True)],
    "signed": Annotated[float, PlainValidator(_signed)],
}


def _shape(tree: Any) -> Any:
    """Return the type of what ``search.yaml`` says of a field."""
    if isinstance(tree, list):
        listed: Any = list.__class_getitem__(_shape(tree[0]))
        return Annotated[listed, Field(min_length=1)] if "some" in tree else listed
    if isinstance(tree, str):
        if " | " in tree:
            return Literal[tuple(tree.split(" | "))]
        name = tree.removesuffix("?")
        if name not in _SHAPES:
            _SHAPES[name] = _shape(_TREE[name])
        return _SHAPES[name] if name == tree else _SHAPES[name] | None
    if "names" in tree:
        return dict.__class_getitem__((str, _shape(tree["names"])))
    base = ReadFields if "others" in tree else FileModel
    whole = _TREE[tree["like"]] | tree if "like" in tree else tree
    fields: dict[str, Any] = {
        k: (_shape(v), ...) for k, v in whole.items() if k not in ("others", "like")
    }
    return create_model("Saved", __base__=base, **fields)


def is_front(data: dict[str, Any]) -> bool:
    """Whether a saved result is that of ``crosstack codesign``."""
    return "front" in data


def is_optimum(data: dict[str, Any]) -> bool:
    """Whether a saved result is that of ``crosstack optimize``."""
    return "choices" in data and "front" not in data


def check_front(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved front as it was written.

    `InputError` if fields are missing, unknown or of another kind, or contradict one another.
    """
    problems: list[Problem] = []
    found = validate(_shape("front"), data, "", problems)
    if found is not None:
        for name, machines in (("front", found.front), ("dominated", found.dominated)):
            for i, machine in enumerate(machines):
                if list(machine.choice) != list(found.choices):
                    problems.append(_other(f"{name}[{i}].choice", found.choices))
    if problems:
        raise InputError(problems)
    return data


def check_optimum(data: dict[str, Any]) -> dict[str, Any]:
    """Return a saved best design as it was written; `InputError` as of `check_front`."""
    problems: list[Problem] = []
    found = validate(_shape("optimum"), data, "", problems)
    if found is not None:
        for i, choice in enumerate(found.choices):
            if list(choice.choice) != list(found.choice):
                problems.append(_other(f"choices[{i}].choice", found.choice))
        if found.choice not in [choice.choice for choice in found.choices]:
            problems.append(Problem("choice", "is none of the choices; allowed: one of them."))
        if set(found.given_shares) != set(found.shares):
            problems.append(_other("given_shares", found.shares))
    if problems:
        raise InputError(problems)
    return data


def _other(path: str, fields: dict[str, Any]) -> Problem:
    return Problem(path, f"has other fields; allowed: {', '.join(fields) or 'none'}.")
