"""The rules that a study's options say: ``rules``, and ``rules.FIELD`` for single fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crosstack.errors import InputError
from crosstack.explore.axes import Assignment
from crosstack.explore.evaluators import check_options
from crosstack.io.files import read_text
from crosstack.io.rules import rules_in
from crosstack.io.yaml_tree import parse_yaml
from crosstack.model.rules import Rules, require_parts, rules_named

__all__ = ["check_rule_options", "rules_of", "with_rules"]

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


def check_rule_options(assignments: Sequence[Assignment], allowed: Sequence[str]) -> None:
    """Raise `InputError` for an assignment to an option that is none; fields of rules may be."""
    whole = [(path, v) for path, v in assignments if not path.startswith(f"options.{RULE}")]
    check_options(whole, allowed)
