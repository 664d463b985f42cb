"""Stores that other processes write while a test looks at them."""

from __future__ import annotations

from pathlib import Path

from crosstack.explore.store import DATABASE, Store

__all__ = ["points_in"]


def points_in(place: Path) -> int:
    """Return how many points a store holds; 0 where it is not made yet."""
    made = (place / DATABASE).is_file() and (place / DATABASE).stat().st_size > 0
    return Store.open(place).count() if made else 0
