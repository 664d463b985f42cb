"""Nested data as paths and values: ``partitions[0].time_s``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from crosstack.errors import InputError, Problem, did_you_mean

__all__ = ["leaves", "term_at"]

_PART = re.compile(r"\.?([^.\[\]]+)|\[(\d{1,9})\]")


def leaves(tree: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield every value that holds no others, with its path; empty collections too."""
    if isinstance(tree, dict) and tree:
        for name, value in tree.items():
            yield from leaves(value, f"{path}.{name}" if path else str(name))
    elif isinstance(tree, list) and tree:
        for i, value in enumerate(tree):
            yield from leaves(value, f"{path}[{i}]")
    else:
        yield path, tree


def term_at(tree: Any, path: str) -> float | None:
    """Return the number at a path; None where a list is shorter, or the number is null.

    Raises
    ------
    InputError
        If there is no such field, or what is there is no number.
    """
    node, at = tree, 0
    while match := _PART.match(path, at):
        at = match.end()
        if match[2] is not None:
            if not isinstance(node, list):
                raise InputError(Problem(f"keep.{path}", f"{path[: match.start()]} is no list."))
            if int(match[2]) >= len(node):
                return None
            node = node[int(match[2])]
            continue
        if not isinstance(node, dict) or match[1] not in node:
            names = list(node) if isinstance(node, dict) else []
            hint = did_you_mean(match[1], names)
            raise InputError(Problem(f"keep.{path}", f'there is no "{match[1]}".{hint}'))
        node = node[match[1]]
    if node is None:
        return None
    if at < len(path) or isinstance(node, bool) or not isinstance(node, int | float):
        raise InputError(Problem(f"keep.{path}", "leads to no number."))
    return float(node) if math.isfinite(node) else None
