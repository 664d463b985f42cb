"""Tokens of the experts of the fullest of several chips, where routing follows a power law.

As the measurements of layers of experts draw them (``aiconfigurator_collector``): a share for each
expert, rounded to whole tokens; no expert has a token twice, what is over goes to the emptiest
experts of every chip, and what is missing or too much is given to or taken from every chip. Experts
lie on chips in their order, and the fullest chip is timed, as the mean of a few draws.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from crosstack.workload.kernel_graph import Floats

DRAWS = 128  # more than a measurement has, of which the mean is expected [1]


@lru_cache(maxsize=4096)
def fullest_loads(tokens: int, topk: int, experts: int, ep: int, exponent: float) -> Floats:
    """Return tokens of each expert of the fullest chip, most first, as is expected. [1]

    Parameters
    ----------
    tokens, topk, experts, ep : int
        Tokens, experts of each, all experts, and chips that have them. [1]
    exponent : float
        Of the power law. [1]
    """
    shares = _power_law(tokens, topk, experts, exponent)
    every = tokens * topk
    found = np.zeros(experts // ep)
    for share in shares:
        whole = np.rint(share * every)
        chips = np.minimum(whole, tokens).reshape(ep, -1)
        chips = raised(chips, float((whole - chips.ravel()).sum()) / ep)
        missing = (every - float(chips.sum())) / ep
        chips = raised(chips, missing) if missing > 0 else -raised(-chips, -missing)
        found += np.sort(chips[chips.sum(axis=1).argmax()])[::-1]
    found /= DRAWS
    found.flags.writeable = False
    return found


def _power_law(tokens: int, topk: int, experts: int, exponent: float) -> Floats:
    """Return shares of experts, (draws, experts). [1]"""
    low, high = (1.0, 0.8 * tokens) if tokens * topk > experts else (0.01, 2.0)
    drawn = np.random.default_rng(0).random((DRAWS, experts))
    rest, most = 1 - exponent, high / low
    weights = most**drawn if rest == 0 else (1 + drawn * (most**rest - 1)) ** (1 / rest)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def raised(chips: Floats, more: float) -> Floats:
    """Return loads whose lowest are raised to one height, by ``more`` of each chip. [1]

    Parameters
    ----------
    chips : array, shape (chips, experts)
        Loads. [1]
    more : float
        What they are raised by in all, 0 or more. [1]
    """
    rising = np.sort(chips, axis=1)
    below = np.cumsum(rising, axis=1)
    count = np.arange(1, chips.shape[1] + 1)
    flooded = (count * rising - below <= more).sum(axis=1)
    height = (more + below[np.arange(len(chips)), flooded - 1]) / flooded
    return np.asarray(np.maximum(chips, height[:, None]), dtype=np.float64)
