"""How much of each column brings most, where all together fit.

Columns k bring b_k and fill a_ik of every row i. Variables: how much z_k >= 0 of each is taken.
(1) maximise the sum of b_k z_k; (2) in no row the sum of a_ik z_k is more than 1.

By an interior-point method (``mehrotra1992implementation``): at every point z, over what it fills
of the fullest row, keeps to (2), so the search may end anywhere.
"""

from __future__ import annotations

import numpy as np

from crosstack.mapping.budget import CALL, Budget
from crosstack.workload.kernel_graph import Floats

STEPS = 40
CLOSE = 1e-3  # relative; how near the best is enough
BORDER = 0.95  # of the way to where a variable would be 0
CENTRE = 0.2  # of the mean product of pairs that is aimed at
SUMS_A_UNIT = 50_000  # of products of matrices; see `crosstack.mapping.budget`


def most_packed(brings: Floats, fills: Floats, budget: Budget) -> float:
    """Return the most that columns bring together.

    Parameters
    ----------
    brings : ndarray, shape (columns,)
        What each brings, above 0.
    fills : ndarray, shape (columns, rows)
        What each fills of every row; of some row something.
    budget : Budget
        What is left to spend; what was found until then comes back.
    """
    fullest = fills.max(axis=1, keepdims=True)
    filled = fills / fullest  # so that one of each fills a row
    worth = brings / fullest[:, 0]
    scale = float(worth.max())
    worth = worth / scale
    columns, rows = filled.shape
    taken, room = np.full(columns, 1 / columns), np.full(rows, 1.0)  # z, and what is left of rows
    price, spare = (
        np.full(rows, 1 / rows),
        np.full(columns, 1.0),
    )  # of rows, and over what it brings
    best = 0.0
    for _ in range(STEPS):
        used = taken @ filled
        best = max(best, float(worth @ taken) / max(float(used.max()), 1e-300))
        lacking, excess = 1 - used - room, worth - filled @ price + spare
        mean = float(taken @ spare + room @ price) / (rows + columns)
        if best >= (1 - CLOSE) * float(price.sum()) and np.abs(excess).max() < CLOSE:
            break
        if budget.spend(CALL + columns**2 * (rows + columns) // SUMS_A_UNIT):
            break
        centre = CENTRE * mean
        weight = price / room
        behind = (centre - room * price - price * lacking) / room
        matrix = (filled * weight) @ filled.T
        matrix[np.arange(columns), np.arange(columns)] += spare / taken
        right = (centre - taken * spare) / taken + excess - filled @ behind
        more = np.linalg.solve(matrix, right)
        d_price = behind + weight * (more @ filled)
        d_room, d_spare = lacking - more @ filled, filled @ d_price - excess
        one = min(longest(taken, more), longest(room, d_room), 1.0)
        other = min(longest(price, d_price), longest(spare, d_spare), 1.0)
        taken, room = taken + one * more, room + one * d_room
        price, spare = price + other * d_price, spare + other * d_spare
    return best * scale


def longest(value: Floats, step: Floats) -> float:
    """Return how much of a step leaves all values above 0, nearly."""
    down = step < 0
    return BORDER * float((-value[down] / step[down]).min(initial=np.inf))
