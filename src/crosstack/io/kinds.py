"""What kind of file a tree is, so that one in another's place is called by its name."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from crosstack.errors import InputError, Problem

__all__ = ["FileKind", "refuse_other_kinds"]


class FileKind(Enum):
    """What it is called, the fields that tell it, and the commands that take it."""

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
    STUDY = ("a study", {"axes", "base"}, "sweep and study show")
    CODESIGN = ("a co-design", {"chip", "workload"}, "codesign")
    SEARCH = ("a search for a chip", {"chip", "model"}, "optimize")
    CHIP = ("a chip", {"memory", "chip_area", "power"}, "chip generate, predict and trace")

    def __init__(self, words: str, fields: set[str], commands: str) -> None:
        self.words, self.fields, self.commands = words, fields, commands

    def is_of(self, tree: Mapping[str, Any]) -> bool:
        """Whether a tree has the fields that tell this kind."""
        return self.fields <= tree.keys()


def refuse_other_kinds(tree: Mapping[str, Any], kind: FileKind) -> None:
    """Raise `InputError` for a tree that is plainly another kind of file; all else is let pass.

    A line for every field that the wrong file has and the right one has not helps nobody.
    """
    if kind.is_of(tree) and "crosstack_version" not in tree:
        return
    for other in FileKind:
        if other is not kind and other.is_of(tree):
            message = f"is {other.words}, not {kind.words}; it goes with {other.commands}."
            raise InputError(Problem("", message))
