"""The Sobol sequence: points that fill a cube more evenly than random ones.

Primitive polynomials and initial direction numbers are those of ``joe2008sobol`` (new-joe-kuo-6),
dimensions 2 to 21; the first dimension is the van der Corput sequence. Point i is made from the
Gray code of i (``bratley1988sobol``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import require, require_whole

__all__ = ["MOST_DIMENSIONS", "sobol"]

BITS = 32
# Degree, coefficients of the polynomial between the first and the last, initial numbers.
_NUMBERS = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
    (5, 11, (1, 1, 5, 1, 1)),
    (5, 13, (1, 1, 1, 3, 11)),
    (5, 14, (1, 3, 5, 5, 31)),
    (6, 1, (1, 3, 3, 9, 7, 49)),
    (6, 13, (1, 1, 1, 15, 21, 21)),
    (6, 16, (1, 3, 1, 13, 27, 49)),
    (6, 19, (1, 1, 1, 15, 7, 5)),
    (6, 22, (1, 3, 1, 15, 13, 25)),
    (6, 25, (1, 1, 5, 5, 19, 61)),
    (7, 1, (1, 3, 7, 11, 23, 15, 103)),
    (7, 4, (1, 3, 7, 13, 13, 15, 69)),
)
MOST_DIMENSIONS = len(_NUMBERS) + 1


def sobol(count: int, dimensions: int, *, seed: int = 0) -> NDArray[np.float64]:
    """Return the first points of the sequence, shape (count, dimensions), in [0, 1).

    Parameters
    ----------
    count, dimensions : int
        At most 2^32 points, at most `MOST_DIMENSIONS`. [1]
    seed : int
        0: the sequence as it is, from the origin on. Otherwise every dimension is shifted by its
        own random bits (a digital shift, which keeps the points as even).

    Raises
    ------
    InputError
        For more than there are.
    """
    require_whole("count", count, minimum=0)
    require(count <= 2**BITS, "count", count, f"at most 2^{BITS}")
    allowed = f"1 to {MOST_DIMENSIONS}"
    require(1 <= dimensions <= MOST_DIMENSIONS, "dimensions", dimensions, allowed)
    gray = np.arange(count, dtype=np.uint64)
    gray ^= gray >> np.uint64(1)
    points = np.empty((count, dimensions))
    shifts = np.random.default_rng(seed).integers(0, 2**BITS, dimensions, dtype=np.uint64)
    for d in range(dimensions):
        digits = np.zeros(count, dtype=np.uint64)
        for bit, direction in enumerate(_directions(d)):
            digits ^= np.where(gray >> np.uint64(bit) & np.uint64(1), np.uint64(direction), 0)
        if seed:
            digits ^= shifts[d]
        points[:, d] = digits / 2.0**BITS
    return points


def _directions(dimension: int) -> list[int]:
    """Return the direction numbers of a dimension, from 0, as `BITS`-bit fractions."""
    if dimension == 0:
        return [1 << (BITS - 1 - i) for i in range(BITS)]
    degree, coefficients, initial = _NUMBERS[dimension - 1]
    numbers = [m << (BITS - 1 - i) for i, m in enumerate(initial)]
    for i in range(degree, BITS):
        new = numbers[i - degree] ^ numbers[i - degree] >> degree
        for k in range(1, degree):
            if coefficients >> (degree - 1 - k) & 1:
                new ^= numbers[i - k]
        numbers.append(new)
    return numbers
