"""What functions take besides where a framework computes them in several kernels.

A graph has one kernel of a loss, of a gate, of a rotation, which reads its operands and writes its
result. Frameworks may have several: each moves rows of the size of the first operand through main
memory, and may leave some of them there for the backward pass. How many those are is data
(`crosstack.machine.framework.Framework.passes` and ``keeps``). Launches are not counted anew, as
what a launch takes was found with one kernel of each, but for those that every expert has.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.machine.framework import EXPERT_BIAS, EXPERT_BIAS_GRADIENT, counts_of
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import Floats, KernelGraph, bits

# Kernels of one expert where biases are added apart: a product and a sum, and backward a product
# and a sum over tokens for the bias, a product and a sum over elements for the weight
# (``nvidia_megatron_experts``).
EACH = {EXPERT_BIAS: 2, EXPERT_BIAS_GRADIENT: 4}


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


def launches_of_biases(arrays: KernelGraph, chip: Chip) -> dict[int, int]:
    """Return which kernels add biases of experts apart, and how many each expert has of them."""
    passes = () if chip.framework is None else chip.framework.passes
    if not EACH.keys() & counts_of(passes).keys():
        return {}
    return {i: EACH[word] for i, word in _expert_biases(arrays)}


def _counts(arrays: KernelGraph, texts: tuple[str, ...]) -> Floats:
    counts = counts_of(texts)
    words = list(arrays.functions)
    if EACH.keys() & counts.keys():
        for i, word in _expert_biases(arrays):
            words[i] = word
    return np.array([counts.get(word, 0.0) for word in words])


def _expert_biases(arrays: KernelGraph) -> Iterator[tuple[int, str]]:
    """Yield which kernels add a bias to what experts make, or make the gradient that it gets.

    What experts make is weighted and sent back to tokens, so it is read by a product element by
    element that a scatter reads; its gradient is what tokens gave, times the weight.
    """
    functions, there = arrays.functions, arrays.experts > 0

    def read_by(i: int, *words: Function) -> bool:
        return any(functions[j] in words for j in bits(arrays.succs[i]))

    weighted = {
        i for i in range(arrays.n)
        if functions[i] == Function.MULTIPLY and there[i] and read_by(i, Function.SCATTER)
    }  # fmt: skip
    added = [
        i for i in range(arrays.n)
        if functions[i] == Function.ADD and there[i] and not arrays.two_inputs[i]
        and weighted & {*bits(arrays.succs[i])}
    ]  # fmt: skip
    yield from ((i, EXPERT_BIAS) for i in added)
    if not added:
        return
    for i in range(arrays.n):
        sent = any(functions[j] == Function.GATHER for j in bits(arrays.preds[i]))
        used = read_by(i, Function.PRODUCT, Function.QUANTIZE)
        if arrays.backward[i] and functions[i] == Function.MULTIPLY and there[i] and sent and used:
            yield i, EXPERT_BIAS_GRADIENT
