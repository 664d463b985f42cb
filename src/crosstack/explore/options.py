"""Options of a study: what they may be, and the rules that they say, whole or by single fields."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem, did_you_mean
from crosstack.explore.axes import Assignment
from crosstack.explore.evaluators import BaseProblem, Column
from crosstack.io.files import read_text
from crosstack.io.rules import rules_in
from crosstack.io.study_file import Goal
from crosstack.io.yaml_tree import parse_yaml
from crosstack.model.rules import Rules, require_parts, rules_named

__all__ = ["FileEvaluator", "known_options", "rules_of", "split_options"]

OPTIONS = "options."
RULE = "rules."
FILES = (".yaml", ".yml")


def rules_of(options: Mapping[str, Any], parts: tuple[str, ...]) -> Rules | None:
    """Return the rules that options say: a set, or one with fields changed; None: they say none.

    Raises
    ------
    InputError
        If there are none such, or they lack some of ``parts``.
    """
    given = options.get("rules")
    changed = {k.removeprefix(RULE): v for k, v in options.items() if k.startswith(RULE)}
    try:
        if not changed and not isinstance(given, dict):
            return None if given is None else rules_named(str(given), parts)
        tree = given if isinstance(given, dict) else {} if given is None else {"base": given}
        found = rules_in({**tree, **changed}, "study")
    except InputError as error:
        inside = any(problem.path != "rules" for problem in error.problems)
        raise error.under("options.rules" if inside else "options") from None
    try:
        return require_parts(found, parts)
    except InputError as error:
        raise error.under("options") from None


def with_rules(given: dict[str, Any], folder: Path, parts: tuple[str, ...]) -> dict[str, Any]:
    """Return options with a file of rules read, and check them."""
    rules = given.get("rules")
    if isinstance(rules, str) and rules.lower().endswith(FILES):
        try:
            tree = parse_yaml(read_text(folder / rules))
        except InputError as error:
            raise error.under("options.rules") from None
        name = Path(rules).stem
        given = {**given, "rules": {"name": name, **tree} if isinstance(tree, dict) else tree}
    rules_of(given, parts)
    return given


def split_options(
    base: BaseProblem, assignments: Sequence[Assignment]
) -> tuple[list[Assignment], dict[str, Any]]:
    """Return what changes the base itself, and the options with what the others change."""
    fields = [(path, value) for path, value in assignments if not path.startswith(OPTIONS)]
    changed = {
        path.removeprefix(OPTIONS): value for path, value in assignments if path.startswith(OPTIONS)
    }
    return fields, {**base.options, **changed}


def known_options(given: Iterable[str], allowed: Sequence[str]) -> None:
    """Raise `InputError` for an option that an evaluator does not have."""
    problems = []
    for name in given:
        if name not in allowed:
            hint = did_you_mean(name, allowed)
            message = f"no such option.{hint} Allowed: {', '.join(allowed) or 'none'}."
            problems.append(Problem(f"options.{name}", message))
    if problems:
        raise InputError(problems)


def check_options(assignments: Sequence[Assignment], allowed: Sequence[str]) -> None:
    """Raise `InputError` for an assignment to an option that is none; fields of rules may be."""
    names = [path.removeprefix(OPTIONS) for path, _ in assignments if path.startswith(OPTIONS)]
    known_options([name for name in names if not name.startswith(RULE)], allowed)


@dataclass(frozen=True, slots=True)
class FileEvaluator:
    """What evaluators of a file have in common.

    Parameters
    ----------
    name : str
        What a study file calls it.
    allowed : tuple of str
        Its options.
    parts : tuple of str
        Of the rules that it needs.
    units : mapping of str to str or None
        Terms that it gives, and their units; None: text.
    objectives : tuple of (str, Goal)
        Columns that tell good points, where the study names none.
    """

    name: str
    allowed: tuple[str, ...]
    parts: tuple[str, ...]
    units: Mapping[str, str | None]
    objectives: tuple[tuple[str, Goal], ...] = (("time", Goal.MINIMUM),)

    def options(self, given: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Return the study's options, checked, with what they name read from ``folder``."""
        known_options(given, self.allowed)
        return with_rules(given, folder, self.parts)

    def columns(self, base: BaseProblem) -> tuple[Column, ...]:
        """Return the terms it gives."""
        return tuple(Column(name=n, unit=u) for n, u in self.units.items())

    def tree(self, base: BaseProblem) -> Any:
        """Return the base as nested mappings and lists, for paths and keys."""
        return base.content

    def check(self, base: BaseProblem, assignments: Sequence[Assignment]) -> None:
        """Raise `InputError` if a path leads nowhere."""
        check_options(assignments, self.allowed)
        fields, options = split_options(base, assignments)
        rules_of(options, self.parts)
        self.check_fields(base, fields, options)

    def check_fields(
        self, base: BaseProblem, fields: Sequence[Assignment], options: dict[str, Any]
    ) -> None:
        """Raise `InputError` if a path leads nowhere in the base."""
