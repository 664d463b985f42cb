"""Sections of a native file that are a whole workload, by name, and what makes them of its fields.

Who re-creates a release registers its graphs; nothing here knows them.
"""

from __future__ import annotations

from collections.abc import Callable

from crosstack.workload.workload import Workload

__all__ = ["GENERATORS", "register_generator"]

GENERATORS: dict[str, Callable[..., Workload]] = {}


def register_generator(section: str, make: Callable[..., Workload]) -> None:
    """Make a workload known by the name of its section."""
    GENERATORS[section] = make
