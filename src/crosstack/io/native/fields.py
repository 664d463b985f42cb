"""A file of crosstack's own, read into the record of its fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from crosstack.errors import InputError, Problem
from crosstack.io.kinds import FileKind, refuse_other_kinds
from crosstack.io.native.overrides import override
from crosstack.io.native.problems import checked
from crosstack.io.native.schema import FileModel, shown
from crosstack.io.yaml_tree import Change, Content, tree_of

Model = TypeVar("Model", bound=FileModel)


def read_fields(
    model: type[Model], kind: FileKind, content: Content, overrides: Sequence[Change] = ()
) -> Model:
    """Return what YAML of a kind holds, changed by ``path=value`` and checked field by field.

    `InputError` with every problem found, by the path of its field.
    """
    tree = tree_of(content)
    if not isinstance(tree, dict):
        allowed = f"a mapping of {', '.join(model.model_fields)}"
        raise InputError(Problem("", f"got {shown(tree)}; allowed: {allowed}."))
    refuse_other_kinds(tree, kind)
    return checked(model, override(tree, overrides, Any))
