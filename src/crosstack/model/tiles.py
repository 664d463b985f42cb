"""Numbers of tiles that a sequence is cut into."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

MOST_TRIED = 1_000_000  # candidates for a prime factor at once


@lru_cache(maxsize=4096)
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of ``number`` in ascending order."""
    found, left, start, count = [1], number, 2, 1000
    while start * start <= left:
        # A prime near 2^53 has 10^8 candidates below its root.
        tried = np.arange(start, min(start + count, math.isqrt(left) + 1), dtype=np.int64)
        for prime in tried[left % tried == 0].tolist():  # ascending, so what still divides is prime
            power, before = 1, list(found)
            while left % prime == 0:
                left //= prime
                power *= prime
                found += [d * power for d in before]
        start, count = start + count, MOST_TRIED
    if left > 1:
        found += [d * left for d in found]
    return tuple(sorted(found))


def tile_counts(
    length: int, *, most: int | None = None
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Numbers of tiles worth trying for a sequence of ``length``, ascending, up to ``most``.

    Of all counts that give the same tile length ceil(length / count), the smallest: more tiles of
    that length only add work.
    """
    most = length if most is None else min(most, length)
    root = math.isqrt(length)
    short = np.arange(-(-length // most), root + 1, dtype=np.int64)
    long = -(-length // np.arange(1, min(root + 1, most) + 1, dtype=np.int64))
    return np.unique(-(-length // np.unique(np.concatenate([short, long]))))
