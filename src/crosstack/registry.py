"""What is known by name, and made when it is first asked for: rule sets, graphs that files name.

Upper packages say what they have; lower ones look it up here. Nothing is imported to know a name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["RELEASED_GRAPHS", "RULE_SETS", "RULE_VARIANTS", "VIEWS", "register_rules"]

RULE_SETS: dict[str, Callable[[], Any]] = {}
"""Name of a rule set, and what loads it."""
RULE_VARIANTS: set[str] = set()
"""Names among them that are not listed: variants of one that is."""
RELEASED_GRAPHS: dict[str, Callable[[], Mapping[str, Callable[..., Any]]]] = {}
"""Section of a native file that names a graph of a release, and what loads their makers by name."""
VIEWS: dict[str, Callable[[Any], str]] = {}
"""How an answer is said in a few lines (``text``) and drawn for notebooks (``html``)."""


def register_rules(name: str, loader: Callable[[], Any], *, variant: bool = False) -> None:
    """Make a rule set known by a name; ``loader`` is called when it is first asked for.

    ``variant``: of a set that is listed; not listed itself.
    """
    RULE_SETS[name] = loader
    if variant:
        RULE_VARIANTS.add(name)
