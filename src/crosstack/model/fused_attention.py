"""Attention as one kernel in both directions: its backward pass makes scores once more.

Where a chip has a program for attention, the forward kernel keeps neither scores nor weights: the
backward one multiplies queries with keys and takes the softmax again, block by block, beside the
four products of the gradients (``dao2022flashattention``, algorithm 4). In a graph these are
kernels of the backward pass of their own (`KernelGraph.remade`), which what reads scores or weights
there reads instead, so that neither is kept until then, and they are fused and timed as all others.
They are no work of the model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import numpy as np

from crosstack.machine.chip import Chip, Execution
from crosstack.machine.framework import Fusion
from crosstack.model.attention import attentions
from crosstack.workload.kernel_graph import Edge, KernelGraph, bits, neighbours
from crosstack.workload.subgraph import graph_of_rows
from crosstack.workload.workload import Workload

SAVED = "saved_input", "saved_output", "saved_mask"
ONCE_MORE = "again"  # how the name of what is made once more ends


def as_run(workload: Workload, chip: Chip, *, fuses: bool = True) -> Workload:
    """Return a workload as a chip runs it: with scores made once more, or as they are kept.

    Parameters
    ----------
    fuses : bool
        Whether several kernels may be one at all.
    """
    fused = fuses and chip.execution is Execution.TEMPORAL and Fusion.ATTENTION in chip.fused
    return _with_graphs(workload, remade) if fused else as_kept(workload)


def as_kept(workload: Workload) -> Workload:
    """Return a workload whose backward pass reads what the forward pass kept."""
    return _with_graphs(workload, plain)


def as_mapped(workload: Workload, chip: Chip, kernels: int) -> Workload:
    """Return a workload as a mapping of so many kernels has it: kept where that has none anew."""
    return as_run(workload, chip, fuses=kernels != plain(workload.graph).n)


def _with_graphs(workload: Workload, of: Callable[[KernelGraph], KernelGraph]) -> Workload:
    if not workload.training:
        return workload
    ends = [replace(end, graph=of(end.graph)) for end in workload.ends]
    graph, count = of(workload.graph), len(workload.before)
    if graph == workload.graph and ends == [*workload.ends]:
        return workload
    return replace(workload, graph=graph, before=tuple(ends[:count]), after=tuple(ends[count:]))


@lru_cache(maxsize=256)
def remade(graph: KernelGraph) -> KernelGraph:
    """Return a graph whose backward pass makes anew what it reads of the inside of attentions.

    The same one where it reads nothing of it, as after this.
    """
    inside = _read_inside(graph)
    if not inside:
        return graph
    new = {old: graph.n + place for place, old in enumerate(inside)}
    edges: list[Edge] = []
    for i, j, operand, elided in _edges(graph):
        if graph.backward[j] and i in new:
            edges.append((new[i], j, operand, 0, elided))
            continue
        edges.append((i, j, operand, 0, elided))
        if j in new:
            edges.append((new.get(i, i), new[j], operand, 0, elided))
    kept = [*range(graph.n), *inside]
    found = graph_of_rows(graph, kept, edges, _behind(graph, new, edges))
    again, numbers = np.arange(found.n) >= graph.n, np.array([-1] * graph.n + inside)
    return replace(
        found,
        names=(*graph.names, *(f"{graph.names[i]}_{ONCE_MORE}" for i in inside)),
        backward=graph.backward[kept] | again,
        remade=np.where(again, numbers, found.remade),
        **{name: getattr(found, name) & ~again for name in SAVED},
        # Keys come from other chips for the products of the gradients, which read them as well.
        across=found.across & ~again[:, None],
    )


def _behind(graph: KernelGraph, new: dict[int, int], edges: list[Edge]) -> list[tuple[int, int]]:
    """Return what is made once more behind the gradient of the attention's result.

    One kernel does all of it then; before, nobody needs it.
    """
    made, first = {*new.values()}, {new[i] for i in new if not {*_read_by(graph, i)} & {*new}}
    after: list[tuple[int, int]] = []
    for start in sorted(first):
        own, border = {start}, {start}  # what this attention makes once more
        while border:
            border = {j for i, j, *_ in edges if i in border and j in made} - own
            own |= border
        readers = {j for i, j, *_ in edges if i in own and j < graph.n and graph.gemm[j]}
        gradients = {i for i, j, *_ in edges if j in readers and i not in made}
        after += [(i, start) for i in sorted(gradients) if graph.backward[i]]
    return after


def _read_by(graph: KernelGraph, kernel: int) -> list[int]:
    """Return the kernels whose results one reads."""
    return [int(i) for i in graph.source[graph.target == kernel]]


@lru_cache(maxsize=256)
def plain(graph: KernelGraph) -> KernelGraph:
    """Return a graph in which nothing is made once more: the backward pass reads what was kept."""
    if (graph.remade < 0).all():
        return graph
    first = {i: int(old) if old >= 0 else i for i, old in enumerate(graph.remade)}
    edges = [
        (first[i], j, operand, 0, elided)
        for i, j, operand, elided in _edges(graph)
        if first[j] == j
    ]
    return graph_of_rows(graph, np.flatnonzero(graph.remade < 0).tolist(), edges)


def _read_inside(graph: KernelGraph) -> list[int]:
    """Return forward kernels inside attentions that the backward pass reads, or that they need."""
    reads, _ = neighbours(graph.n, (edge[:2] for edge in _edges(graph)))
    wanted = sum({1 << i for i, j, *_ in _edges(graph) if graph.backward[j]})
    found = 0
    for first, held in attentions(graph):
        if graph.backward[first.bit_length() - 1]:
            continue
        inner = sum(1 << i for i in bits(held) if first >> i & 1 or not graph.gemm[i])
        border = inner & wanted
        while border:
            found |= border
            border = sum({1 << i for j in bits(border) for i in bits(reads[j] & inner)}) & ~found
    return bits(found)


def _edges(graph: KernelGraph) -> list[tuple[int, int, int, bool]]:
    columns = graph.source, graph.target, graph.operand, graph.elided
    return list(zip(*(column.tolist() for column in columns), strict=True))
