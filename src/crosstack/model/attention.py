"""Attention in a graph, found by its structure: what is fused, computed again, and left out."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, reduce
from operator import or_

import numpy as np

from crosstack.machine.chip import Chip, Execution
from crosstack.machine.framework import Fusion
from crosstack.model.traffic import Traffic
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats, KernelGraph
from crosstack.workload.workload import Workload


def density_on(arrays: KernelGraph, chip: Chip | None, traffic: Traffic) -> Floats:
    """Shares of each kernel's operands and result that a chip works on and moves, (n, 3). [1]

    A chip that fuses attention has programs that skip blocks which a mask leaves out: they neither
    compute nor move them, so work and bytes grow with the share s that counts
    (``dao2022flashattention``, proposition 4; ``dao2023flashattention2``, section 3.1). Blocks at
    the border of a mask count as the elements that they have. The same holds of a kernel of an
    attention that runs alone. Chips without such programs compute all and mask then, and so does a
    pipeline of a spatial chip, which is as wide as the last row needs.
    """
    skips = traffic.skips_masked and chip is not None and chip.execution is Execution.TEMPORAL
    if skips and chip is not None and Fusion.ATTENTION in chip.fused:
        return arrays.density
    return np.ones_like(arrays.density)


@lru_cache(maxsize=256)
def work_done(
    arrays: KernelGraph, chip: Chip, traffic: Traffic, *, forward: bool = False
) -> dict[Dtype, float]:
    """Operations of a graph that a chip does not skip, by what they compute with. [FLOP]

    ``forward``: of its forward pass alone.
    """
    work = arrays.work * density_on(arrays, chip, traffic).min(axis=1)
    if forward:
        work = work * ~arrays.backward
    return {dtype: float(work[those].sum()) for dtype, those in arrays.kernels_by_dtype}


def iteration_work(workload: Workload, chip: Chip, traffic: Traffic) -> dict[Dtype, float]:
    """Operations of an iteration that chips do not skip, of layers and ends, by type. [FLOP]"""
    runs = [(workload.graph_repetitions, workload.graph)]
    runs += [(end.count, end.graph) for end in workload.ends]
    found: dict[Dtype, float] = {}
    for count, graph in runs:
        for dtype, work in work_done(graph, chip, traffic).items():
            found[dtype] = found.get(dtype, 0.0) + count * work
    return {dtype: work * workload.global_batch_size for dtype, work in found.items()}


@lru_cache(maxsize=256)
def attention_core(arrays: KernelGraph) -> Bools:
    """Forward kernels of attention proper, shape (n,): those of all `attentions`.

    Scores, what is done to them, and weighted values: what selective recomputation
    (``korthikanti2023reducing``) computes again.
    """
    return in_attentions(arrays) & ~arrays.backward


@lru_cache(maxsize=256)
def in_attentions(arrays: KernelGraph) -> Bools:
    """Kernels of all `attentions`, forward and backward, shape (n,)."""
    inside = reduce(or_, (held for _, held in attentions(arrays)), 0)
    return np.array([bool(inside >> i & 1) for i in range(arrays.n)], dtype=np.bool_)


@lru_cache(maxsize=256)
def attentions(arrays: KernelGraph) -> tuple[tuple[int, int], ...]:
    """Return the attentions of a graph, each as masks of its first products and of all its kernels.

    One is a product of two tensors, elementwise kernels of as many elements of which one needs
    whole rows, and the products of as many heads and of the same direction that read what comes
    behind that one. Kernels between that no such product needs do not count. Those that have
    elementwise kernels in common are one: in a backward pass what makes the weights once more, and
    what comes to their gradient. Source: dao2022flashattention.
    """
    elements = arrays.rows * arrays.columns
    after: list[list[int]] = [[] for _ in range(arrays.n)]
    for i, j, elided in zip(arrays.source, arrays.target, arrays.elided, strict=True):
        if not elided:
            after[int(i)].append(int(j))
    pairs = arrays.gemm & arrays.two_inputs & (arrays.periodic_size == 0)
    found: list[tuple[int, int]] = []
    inner = sum(1 << i for i in np.flatnonzero(~arrays.gemm).tolist())
    for first in np.nonzero(pairs)[0].tolist():
        alike = arrays.backward == arrays.backward[first]
        between = alike & ~arrays.gemm & (elements == elements[first])
        last = alike & pairs & (arrays.outer == arrays.outer[first])
        chain = _reached(after, [first], between)
        normed = [i for i in chain if arrays.row_wise[i]]
        behind = {*normed, *_reached(after, normed, between)}
        ends = {j for j in _read(after, behind) if last[j] and j != first}
        needed = [i for i in chain if ends & _read(after, {i, *_reached(after, [i], between)})]
        if ends:
            begins, held = 1 << first, sum(1 << i for i in {first, *needed, *ends})
            met = [pair for pair in found if pair[1] & held & inner]
            found = [pair for pair in found if pair not in met]
            found.append(reduce(lambda a, b: (a[0] | b[0], a[1] | b[1]), met, (begins, held)))
    return tuple(found)


def _read(after: list[list[int]], kernels: set[int]) -> set[int]:
    """Return the kernels that read what some of ``kernels`` make."""
    return {j for i in kernels for j in after[i]}


def _reached(after: list[list[int]], starts: Sequence[int], through: Bools) -> set[int]:
    """Return the kernels that ``starts`` lead to, by way of kernels that ``through`` allows."""
    found: set[int] = set()
    waiting = list(starts)
    while waiting:
        for j in after[waiting.pop()]:
            if through[j] and j not in found:
                found.add(j)
                waiting.append(j)
    return found
