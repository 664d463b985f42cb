"""Complex factors of transforms as the real ones that graphs have."""

from __future__ import annotations

import numpy as np


def two_parts(z: np.ndarray) -> np.ndarray:
    """Complex numbers with real and imaginary part along a last axis."""
    return np.stack([z.real, z.imag], -1)


def real_factors(z: np.ndarray, place: int) -> np.ndarray:
    """Complex factors as real ones: parts of what comes in at a place, of what goes out last."""
    return np.stack([two_parts(z), two_parts(1j * z)], place)
