"""Seeds of random problems: a few in every run, the others in the slow one."""

from __future__ import annotations

from typing import Any

import pytest


def few_and_many(few: int, many: int, first: int = 0) -> list[Any]:
    """Return the first seeds, and those from there to ``many`` for a slow run."""
    others = pytest.param(range(first + few, first + many), marks=pytest.mark.slow)
    return [range(first, first + few), others]
