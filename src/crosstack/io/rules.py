"""Reads rules from a YAML file: a rule set by name, and the fields of its parts that differ.

``{base: dfmodel-readme, name: mine, weights_read: true}`` is the README's rules of DFModel with
weights read from main memory. ``base`` is ``crosstack`` unless given; ``name`` is the file's.
"""

from __future__ import annotations

import os
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_type_hints

from pydantic import create_model

from crosstack.errors import InputError, Problem
from crosstack.io.files import of_file, read_text
from crosstack.io.kinds import FileKind, refuse_other_kinds
from crosstack.io.native.problems import collecting, validate
from crosstack.io.native.schema import FileModel, Flag, Index, Text, one_of, quantity
from crosstack.io.yaml_tree import Tree, parse_yaml
from crosstack.model.rules import Rules, is_known, require_parts, rule_names, rules_named

FILES = (".yaml", ".yml")
_KINDS: dict[type, Any] = {
    bool: Flag,
    int: Index,
    float: Annotated[float, quantity("B")],
    str: Text,
}


@cache
def rules_file(base: Rules) -> type[FileModel]:
    """Return the shape of a rules file: the fields of the parts of ``base``, each optional."""
    shape: dict[str, Any] = {"base": (Text, "crosstack"), "name": (Text, None)}
    for _, part in base.parts():
        if not is_dataclass(part):
            continue
        hints = get_type_hints(type(part))
        for item in fields(part):
            hint = hints[item.name]
            if isinstance(hint, type) and issubclass(hint, StrEnum):
                shape.setdefault(item.name, (Annotated[hint, one_of(hint)], None))
            elif hint in _KINDS:
                shape.setdefault(item.name, (_KINDS[hint], None))
    return create_model("RulesFile", __base__=FileModel, **shape)


def read_rules(path: str | Path) -> Rules:
    """Return the rules that a YAML file holds.

    It has ``base`` (a rule set to start from, `crosstack.model.rules.rules_named`), ``name`` and
    fields of the parts of that set. `InputError` says all: ``FILE: field: what is wrong``.
    """
    text = read_text(path)
    with of_file(path):
        return rules_in(parse_yaml(text), Path(path).stem)


def rules_at(given: str, parts: tuple[str, ...] = (), folder: Path = Path()) -> Rules:
    """Return the rules that a name or the path of a YAML file says; they have ``parts``.

    `InputError` if there are none, or they lack a part.
    """
    path = folder / given
    like_file = path.suffix.lower() in FILES or os.sep in given or path.exists()
    if given and like_file and not is_known(given):
        found = read_rules(path)
        with of_file(path):
            return require_parts(found, parts)
    return rules_named(given, parts)


def _own_fields(tree: Tree, shape: type[FileModel], problems: list[Problem]) -> Tree:
    """Return a tree without the fields that only other rule sets have; each becomes a problem."""
    if not isinstance(tree, dict):
        return tree
    kept = dict(tree)
    for field in [name for name in tree if name not in shape.model_fields]:
        having = [name for name in rule_names() if rules_named(name).part_with(str(field))]
        if having:
            message = f"these rules have no such field; it is one of base {', '.join(having)}."
            problems.append(Problem(str(field), message))
            del kept[field]
    return kept


def rules_in(tree: Tree, name: str) -> Rules:
    """Return the rules that the content of a file holds; ``name``: where it gives none.

    Raises `InputError` with every problem.
    """
    if isinstance(tree, dict):
        refuse_other_kinds(tree, FileKind.RULES)
    problems: list[Problem] = []
    named = tree.get("base", "crosstack") if isinstance(tree, dict) else "crosstack"
    base = rules_named("crosstack")
    if isinstance(named, str):
        try:
            base = rules_named(named)
        except InputError as error:
            problems.extend(Problem("base", problem.message) for problem in error.problems)
    shape = rules_file(base)
    file = validate(shape, _own_fields(tree, shape, problems), "", problems)
    if file is None:
        raise InputError(problems)
    given = {"name": name, **file.given()}
    given.pop("base", None)
    if is_known(given["name"].partition("+")[0]):  # results say their rules by name alone
        taken = f'"{given["name"]}" is a built-in rule set; allowed: a name of its own.'
        problems.append(Problem("name", taken))
    with collecting(problems, ""):
        base = base.changed(**given)
    if problems:
        raise InputError(problems)
    return base
