"""Which of many points no other beats."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["pareto_rows"]

Floats = NDArray[np.float64]
BLOCK = 1024  # rows compared at a time


def pareto_rows(scores: Floats) -> NDArray[np.int64]:
    """Return the rows that no other is at least as good as in every column and better in one.

    Less is better. Sorted by the first column; rows that are equal in all of them stay.
    """
    # In lexicographic order a row can be beaten only by one before it.
    order = np.lexsort(scores.T[::-1])
    front = order[:0]
    for start in range(0, len(order), BLOCK):
        block = order[start : start + BLOCK]
        block = block[~_beaten(scores[block], scores[front])]
        front = np.concatenate([front, block[~_beaten(scores[block], scores[block])]])
    return front.astype(np.int64)


def _beaten(rows: Floats, by: Floats) -> NDArray[np.bool_]:
    """Return which of ``rows`` some row of ``by`` beats."""
    no_worse = np.ones((len(rows), len(by)), dtype=bool)
    better = np.zeros((len(rows), len(by)), dtype=bool)
    for mine, other in zip(rows.T, by.T, strict=True):
        no_worse &= other <= mine[:, None]
        better |= other < mine[:, None]
    found: NDArray[np.bool_] = np.any(no_worse & better, axis=1)
    return found
