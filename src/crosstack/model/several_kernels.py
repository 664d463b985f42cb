"""What functions take besides where a framework computes them in several kernels.

A graph has one kernel of a loss, of a gate, of a rotation, which reads its operands and writes its
result. Frameworks may have several: each moves rows of the size of the first operand through main
memory, and may leave some of them there for the backward pass. How many those are is data
(`crosstack.machine.framework.Framework.passes` and ``keeps``). Launches are not counted anew: what
a launch takes was found with one kernel of each.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.machine.framework import counts_of
from crosstack.workload.kernel_graph import Floats, KernelGraph


@lru_cache(maxsize=256)
def passes_besides(arrays: KernelGraph, chip: Chip) -> Floats:
    """Return how often kernels move their first operand besides, (n,). [1]"""
    texts = () if chip.framework is None else chip.framework.passes
    return _counts(arrays, texts)


def kept_besides(arrays: KernelGraph, driven: Chip | None) -> Floats:
    """Return how many tensors like their results forward kernels keep besides, (n,). [1]

    ``driven``: the chip, where a framework drives it.
    """
    framework = None if driven is None else driven.framework
    return _counts(arrays, () if framework is None else framework.keeps) * ~arrays.backward


def _counts(arrays: KernelGraph, texts: tuple[str, ...]) -> Floats:
    counts = counts_of(texts)
    return np.array([counts.get(function, 0.0) for function in arrays.functions])
