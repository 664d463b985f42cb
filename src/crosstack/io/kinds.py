"""What kind of file a tree is, so that one in another's place is called by its name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from crosstack.errors import InputError, Problem


class FileKind(Enum):
    """Name, the fields that tell a file of it, the commands that take one; the first that fits."""

    MAPPED = (
        "what crosstack map saved",
        {"crosstack_version", "certificate"},
        "show, explain, report, and --mapping of evaluate",
    )
    PREDICTED = (
        "what crosstack predict saved",
        {"crosstack_version", "strategy"},
        "show and report",
    )
    TASK = ("a task", {"workload", "system"}, "map, evaluate, explain, space, show and convert")
    GRAPH = ("a graph", {"axes", "tensors"}, "show, and with a machine whatever a task goes with")
    STUDY = ("a study", {"axes", "base"}, "sweep and study show")
    CODESIGN = ("a co-design", {"chip", "workload", "choices"}, "codesign")
    SEARCH = ("a search for a chip", {"chip", "model"}, "optimize")
    RULES = ("rules", {"base"}, "--rules")
    CHIP = ("a chip", {"memory", "chip_area", "power"}, "chip generate, predict and trace")

    def __init__(self, words: str, fields: set[str], commands: str) -> None:
        self.words, self.fields, self.commands = words, fields, commands


def refuse_other_kinds(tree: Mapping[str, Any], kind: FileKind) -> None:
    """Raise `InputError` for a tree that is plainly another kind of file; all else is let pass.

    A line for every field that the wrong file has and the right one has not helps nobody.
    """
    found = next((other for other in FileKind if other.fields <= tree.keys()), kind)
    if found is not kind:
        message = f"is {found.words}, not {kind.words}; it goes with {found.commands}."
        raise InputError(Problem("", message))
