"""All sequences of partitions of a small graph, and random ones that fit."""

from __future__ import annotations

import math

import numpy as np


def prices(load, brute_step) -> np.ndarray:
    """Cost of every set of kernels, infinite where it does not fit; shape (2^n,). [s]"""
    found = np.full(1 << load.n, math.inf)
    for mask in range(1, 1 << load.n):
        cost, fits = brute_step(load, {i for i in range(load.n) if mask >> i & 1})
        found[mask] = cost if fits else math.inf
    return found


def least_of_all(preds, price: np.ndarray) -> float:
    """The shortest way from no kernel to all of them. [s]"""
    every = np.arange(1 << len(preds))
    closed = np.array([all(preds[i] & ~m == 0 for i in range(len(preds)) if m >> i & 1)
                       for m in every.tolist()])  # fmt: skip
    best = np.full(len(every), math.inf)
    best[0] = 0.0
    for mask in np.nonzero(closed)[0].tolist():  # a set comes after those inside it
        if math.isfinite(best[mask]):
            onward = every[closed & (every & mask == mask) & (every != mask)]
            best[onward] = np.minimum(best[onward], best[mask] + price[onward ^ mask])
    return float(best[-1])


def random_times(preds, price: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Costs of random sequences that fit; shape (count,). [s]

    Kernels run in a random order that respects the graph, and a partition ends at random, or where
    the next kernel does not fit beside those that it holds.
    """
    n = len(preds)
    ready = [[i for i in range(n) if not m >> i & 1 and preds[i] & ~m == 0] for m in range(1 << n)]
    choices = np.array([(some + [0] * n)[:n] for some in ready])
    many = np.array([len(some) for some in ready])
    done, inside, taken = (np.zeros(count, dtype=kind) for kind in (int, int, float))
    ends = rng.random((count, 1)) * rng.random((count, n)) < 0.3
    for step in range(n):
        kernel = choices[done, (rng.random(count) * many[done]).astype(int)]
        grown = inside | 1 << kernel
        apart = (ends[:, step] | ~np.isfinite(price[grown])) & (inside > 0)
        taken += np.where(apart, price[inside], 0.0)
        inside = np.where(apart, 1 << kernel, grown)
        done |= 1 << kernel
    return taken + price[inside]
