"""What every benchmark of a single answer does: run it again and again, and print how long."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

TIMES = 7


def print_machine() -> None:
    """Print what the benchmark runs on."""
    processor = platform.processor() or platform.machine()
    print(f"{processor}, Python {platform.python_version()}, numpy {np.__version__}")


def measure(
    name: str,
    run: Callable[[], object],
    times: int = TIMES,
    *,
    count: int | None = None,
    unit: str = "points",
    limit: float | None = None,
) -> None:
    """Print median, fastest and slowest of ``times`` runs; one before them does not count.

    Parameters
    ----------
    count, unit : int or None, str
        How many of what one run answers; None: it is one answer.
    limit : float or None
        What the median is to stay below. [s]
    """
    run()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        run()
        taken.append(time.perf_counter() - start)
    middle = statistics.median(taken)
    line = f"{name:<58} {middle:9.5f} s ({min(taken):.5f} to {max(taken):.5f}, {times} times)"
    if count is not None:
        line += f"; {count / middle:,.0f} {unit}/s"
    if limit is not None:
        line += f"; limit {limit:g} s, {'holds' if middle <= limit else 'MISSES'}"
    print(line)
