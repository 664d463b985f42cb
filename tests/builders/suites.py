"""The rows of the published suites, computed once for all tests of a process."""

from __future__ import annotations

from functools import cache

from crosstack.published.case import Row
from crosstack.published.runner import run_suite


@cache
def rows_of(suite: str) -> tuple[Row, ...]:
    return tuple(run_suite(suite))
