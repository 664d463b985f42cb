"""A dataflow graph as arrays: what the formulas and the optimiser compute with.

Kernels are numbered in listing order, edges (one per tensor and consumer) in tensor order. Axes
are numbered as in `AXES`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from crosstack.workload.graph import Axis, ComputeUnit, DataflowGraph, Direction, Kernel, Saved

__all__ = ["AXES", "AXIS_CODE", "GraphArrays", "bits", "graph_arrays"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

AXES: tuple[Axis, ...] = (Axis.OUTER, Axis.M, Axis.K, Axis.N, Axis.NONE)
AXIS_CODE: dict[Axis, int] = {axis: i for i, axis in enumerate(AXES)}
ROUNDING = 1e-6  # relative: published files round sizes to about eight digits


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)  # hashed by identity, for caches
class GraphArrays:
    """Arrays over the n kernels and the m edges of a graph.

    ``rows`` is outer x M, ``repeats`` counts inputs times operations on each element.
    ``open_inputs`` (n, 2) tells which operands no edge feeds, ``open_output`` which results no edge
    takes; ``saved_*`` what the backward pass needs of a forward kernel (`Saved`). ``preds`` and
    ``succs`` are bit masks over kernels; ``edges`` holds the columns source, target, operand and
    tensor number. ``depth`` is how many tiles of a tensor an on-chip edge holds
    so that reconvergent paths do not stall: levels apart plus one (``dfmodel_code``). ``join_*``:
    results that one copy of the graph hands to the next, and the operands they become there.
    """

    n: int
    outer: Ints
    m: Ints
    k: Ints
    columns: Ints
    rows: Ints
    systolic: Bools
    gemm: Bools
    two_inputs: Bools
    has_weight: Bools
    open_inputs: Bools
    open_output: Bools
    tiling: Ints
    backward: Bools
    repeats: Floats
    counted_inputs: Bools
    row_wise: Bools
    memory_traffic: Floats
    cache_size: Floats
    sram_extra: Floats
    memory_extra: Floats
    saved_input: Bools
    saved_output: Bools
    saved_mask: Bools
    periodic_size: Floats
    output_size: Floats
    input_sizes: Floats
    source: Ints
    target: Ints
    operand: Ints
    tensor: Ints
    elided: Bools
    depth: Ints
    join_source: Ints
    join_target: Ints
    join_operand: Ints
    preds: tuple[int, ...]
    succs: tuple[int, ...]
    order: tuple[int, ...]
    names: tuple[str, ...]

    @property
    def work(self) -> Floats:
        """Operations of each kernel for one sequence, as `Kernel.work`. [FLOP]"""
        elements = self.rows * self.columns * self.repeats
        return np.asarray(elements * np.where(self.systolic, 2.0 * self.k, 1.0))


def bits(mask: int) -> list[int]:
    """Return the positions of the bits of ``mask``, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


@lru_cache(maxsize=64)
def _by_identity(key: _Identity) -> GraphArrays:
    return _build(key.graph)


class _Identity:
    """Hash a graph by identity: hashing thousands of records by value would cost more."""

    __slots__ = ("graph",)

    def __init__(self, graph: DataflowGraph) -> None:
        self.graph = graph

    def __hash__(self) -> int:
        return id(self.graph)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Identity) and other.graph is self.graph


def graph_arrays(graph: DataflowGraph) -> GraphArrays:
    """Return the arrays of ``graph``, kept for the last 64 graphs."""
    return _by_identity(_Identity(graph))


def _build(graph: DataflowGraph) -> GraphArrays:
    kernels = graph.kernels
    n = len(kernels)
    edges = [
        (graph.index[tensor.producer], graph.index[c.kernel], c.operand, t, c.elided)
        for t, tensor in enumerate(graph.tensors)
        for c in tensor.consumers
    ]
    preds, succs = [0] * n, [0] * n
    for source, target, *_ in edges:
        preds[target] |= 1 << source
        succs[source] |= 1 << target
    table = np.array([e[:4] for e in edges], dtype=np.int64).reshape(-1, 4)
    levels = np.array(graph.levels, dtype=np.int64)

    def ints(values: list[int]) -> Ints:
        return np.array(values, dtype=np.int64)

    def reals(values: list[float]) -> Floats:
        return np.array(values, dtype=np.float64)

    outer, m = ints([x.outer for x in kernels]), ints([x.m for x in kernels])
    inputs = np.zeros((n, 2))
    open_inputs = np.zeros((n, 2), dtype=np.bool_)
    for i, kernel in enumerate(kernels):
        inputs[i, : len(kernel.input_sizes)] = kernel.input_sizes
        open_inputs[i, : len(kernel.input_sizes)] = True
    open_inputs[table[:, 1], table[:, 2]] = False
    joins = _joins(kernels, open_inputs, succs)
    return GraphArrays(
        n=n,
        outer=outer,
        m=m,
        k=ints([x.k for x in kernels]),
        columns=ints([x.n for x in kernels]),
        rows=outer * m,
        systolic=np.array([x.unit is ComputeUnit.SYSTOLIC for x in kernels]),
        gemm=np.array([x.kind.is_gemm for x in kernels]),
        two_inputs=np.array([x.kind.n_inputs == 2 for x in kernels]),
        has_weight=np.array([x.weight_size > 0 for x in kernels]),
        open_inputs=open_inputs,
        open_output=np.array([not readers for readers in succs]),
        tiling=ints([AXIS_CODE[x.tiling] for x in kernels]),
        backward=np.array([x.direction is Direction.BACKWARD for x in kernels]),
        repeats=reals([float((x.repeats or 1) * x.operations) for x in kernels]),
        counted_inputs=np.array([x.repeats is not None for x in kernels]),
        row_wise=np.array([x.row_wise for x in kernels]),
        memory_traffic=reals([x.memory_traffic for x in kernels]),
        cache_size=reals([x.cache_size for x in kernels]),
        sram_extra=reals([x.sram_extra for x in kernels]),
        memory_extra=reals([x.memory_extra for x in kernels]),
        saved_input=np.array([x.saved is Saved.INPUT for x in kernels]),
        saved_output=np.array([x.saved is Saved.OUTPUT for x in kernels]),
        saved_mask=np.array([x.saved is Saved.MASK for x in kernels]),
        periodic_size=reals([sum(c.size for c in x.communications if c.periodic) for x in kernels]),
        output_size=reals([x.output_size for x in kernels]),
        input_sizes=inputs,
        source=table[:, 0].copy(),
        target=table[:, 1].copy(),
        operand=table[:, 2].copy(),
        tensor=table[:, 3].copy(),
        elided=np.array([e[4] for e in edges], dtype=np.bool_),
        depth=levels[table[:, 1]] - levels[table[:, 0]] + 1,
        join_source=joins[:, 0],
        join_target=joins[:, 1],
        join_operand=joins[:, 2],
        preds=tuple(preds),
        succs=tuple(succs),
        order=graph.order,
        names=tuple(x.name for x in kernels),
    )


def _joins(kernels: tuple[Kernel, ...], open_inputs: Bools, succs: list[int]) -> Ints:
    """Return (producer, reader, operand) of what one copy of a graph hands to the next.

    A result that no kernel reads becomes the operands of the same direction and bytes that none
    makes, but for its own kernel's. Sums over the batch, as gradients of weights, stay.
    """
    found = []
    for i, maker in enumerate(kernels):
        if succs[i] or any(c.periodic for c in maker.communications):
            continue
        for j, operand in np.argwhere(open_inputs).tolist():
            size, reader = kernels[j].input_sizes[operand], kernels[j]
            same = abs(size - maker.output_size) <= ROUNDING * size
            if same and i != j and reader.direction is maker.direction:
                found.append((i, j, operand))
    return np.array(found, dtype=np.int64).reshape(-1, 3)
