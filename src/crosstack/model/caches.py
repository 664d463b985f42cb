"""Caches of earlier tokens in a graph: who adds to them, who reads them."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from crosstack.model.flows import read_beside
from crosstack.workload.kernel_graph import Bools, Floats, KernelGraph


@lru_cache(maxsize=256)
def keeps_cache(arrays: KernelGraph) -> Bools:
    """Which kernels put something behind a cache that others read, shape (n,).

    Others that read one read rows of a table, which is in main memory once.
    """
    keeps = np.zeros(arrays.n, dtype=np.bool_)
    keeps[arrays.source[arrays.elided]] = True
    return keeps & (arrays.cache_size > 0)


@lru_cache(maxsize=256)
def cache_reads(arrays: KernelGraph) -> tuple[Bools, Floats]:
    """Which kernels add to a cache that others read, (n,), and operands that are one, (n, 2).

    Of several readers the first; the others read it where that is in another partition.
    """
    keeps, read = keeps_cache(arrays), np.zeros((arrays.n, 2))
    kept = arrays.elided & keeps[arrays.source]
    read[arrays.target[kept], arrays.operand[kept]] = 1.0
    for reader, place, _ in read_beside(arrays):
        read[reader, place] = 0.0
    return keeps, read
