"""Published cases as parameters: one that is known to miss has to keep missing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def with_known_misses(cases: Iterable[Any]) -> list[Any]:
    """Return cases by their names; one with a reason is expected to fail for it."""
    return [
        pytest.param(
            case,
            id=case.name,
            marks=[pytest.mark.xfail(strict=True, reason=case.reason)] if case.reason else [],
        )
        for case in cases
    ]
