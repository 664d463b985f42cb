"""A dataflow graph transformed by a strategy, one parallelism after the other.

The steps are those of ``ardalani2022deepflow``, section 5.1 and figure 5: the pipeline cuts the
graph into stages; data parallelism replaces every node by a ring of replicas; a kernel split
replaces every node by one more ring (CR, or either side of RC), so that RC makes a torus. New
edges, and those between stages, join different chips: *cross edges*. The result is for looking
at and for checking; times are computed in closed form.

Rows of a product are the tokens: K x N inputs are ``n`` tokens of ``k`` features here, and a weight
makes ``outer m`` features of them (`crosstack.workload.kernels`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from crosstack.errors import InputError, Problem, require, require_whole
from crosstack.mapping.strategy import KernelSplit, ParallelDimension, Strategy
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Direction, Kernel

MOST_NODES = 200_000
KP1, KP2, DP, LP = ParallelDimension


class EdgeKind(StrEnum):
    """What an edge is for; all but ``data`` are cross edges, called as their dimension."""

    DATA = "data"
    STAGE = "lp"
    REPLICA = "dp"
    ROW = "kp1"
    COLUMN = "kp2"


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperNode:
    """A kernel on a chip: the stage, and its place along the other dimensions."""

    kernel: str
    stage: int = 0
    kp1: int = 0
    kp2: int = 0
    dp: int = 0

    @property
    def chip(self) -> tuple[int, int, int, int]:
        """Place along kp1, kp2, dp and lp."""
        return self.kp1, self.kp2, self.dp, self.stage


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperEdge:
    """An edge between two nodes, by number; what passes it in a step, forward and backward. [B]"""

    source: int
    target: int
    kind: EdgeKind
    forward: float
    backward: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SuperGraph:
    """Nodes and edges after one step; ``title`` says which."""

    title: str
    nodes: tuple[SuperNode, ...]
    edges: tuple[SuperEdge, ...]


def ring_sizes(
    kernel: Kernel, word: float, strategy: Strategy, dimension: ParallelDimension, batch: int = 1
) -> tuple[float, float]:
    """Bytes that a chip sends along a ring for one kernel, forward and backward. [B]

    Notes
    -----
    With p chips a gather or scatter of S bytes sends ``S (p-1)/p``, an all-reduce twice that.
    An elementwise kernel has no collective.
    """
    p = strategy.degree(dimension)
    if p == 1 or not kernel.kind.is_gemm:
        return 0.0, 0.0
    a, b = strategy.kp1, strategy.kp2
    rows = batch * kernel.n / strategy.dp
    inner, columns = kernel.k, kernel.outer * kernel.m
    made, read = rows * columns * word, rows * inner * word
    sent = (p - 1) / p
    if dimension is DP:
        return 0.0, 2 * sent * kernel.weight_size / (a * b)
    if strategy.split is KernelSplit.CR:
        return sent * made, sent * made
    if dimension is KP1:
        return 0.0, sent * (read / 2 + made / b)
    return sent * made / a, sent * (made / a + inner * columns * word / 2)


def transform(
    graph: KernelGraph, strategy: Strategy, *, batch: int = 1, stages: Sequence[int] | None = None
) -> tuple[SuperGraph, ...]:
    """Return the graph after every step, the original first.

    Parameters
    ----------
    batch : int
        Sequences of one step. [1]
    stages : sequence of int or None
        Stage of every kernel, in listing order; None cuts the topological order evenly.

    Raises
    ------
    InputError
        If a stage does not exist, data would flow to an earlier one, the graph has kernels of a
        backward pass (edges carry that themselves), or the result is too large to write down.
    """
    require_whole("batch", batch)
    if any(kernel.direction is Direction.BACKWARD for kernel in graph.kernels):
        raise InputError(Problem("kernels", "backward ones are there; allowed: a forward graph."))
    nodes = len(graph) * strategy.n_chips // strategy.lp
    require(nodes <= MOST_NODES, "strategy", str(strategy), f"up to {MOST_NODES:,} nodes; use less")
    chosen = _stages(graph, strategy) if stages is None else tuple(stages)
    edges = tuple(
        SuperEdge(
            source=graph.index[tensor.producer],
            target=graph.index[consumer.kernel],
            kind=EdgeKind.DATA,
            forward=tensor.size * batch,
            backward=tensor.size * batch,
        )
        for tensor in graph.tensors
        for consumer in tensor.consumers
    )
    alone = tuple(SuperNode(kernel=kernel.name) for kernel in graph.kernels)
    found = [SuperGraph(title="graph", nodes=alone, edges=edges)]
    if strategy.lp > 1:
        found.append(_pipelined(found[-1], chosen, strategy))
    for dimension in (DP, KP1, KP2):
        if strategy.degree(dimension) > 1:
            sent = [ring_sizes(k, graph.word, strategy, dimension, batch) for k in graph.kernels]
            found.append(_ringed(found[-1], dimension, strategy.degree(dimension), sent))
    return tuple(found)


def _stages(graph: KernelGraph, strategy: Strategy) -> tuple[int, ...]:
    each = math.ceil(len(graph) / strategy.lp)
    place = {kernel: i // each for i, kernel in enumerate(graph.order)}
    return tuple(place[i] for i in range(len(graph)))


def _pipelined(graph: SuperGraph, stages: tuple[int, ...], strategy: Strategy) -> SuperGraph:
    """Mark the stage of every node; edges between stages become cross edges."""
    same = len(stages) == len(graph.nodes) and all(0 <= s < strategy.lp for s in stages)
    allowed = f"{len(graph.nodes)} stages from 0 to {strategy.lp - 1}"
    require(same, "stages", stages[:8], allowed)
    nodes = tuple(replace(n, stage=s) for n, s in zip(graph.nodes, stages, strict=True))
    edges = []
    for edge in graph.edges:
        first, last = stages[edge.source], stages[edge.target]
        if first > last:
            name = graph.nodes[edge.source].kernel
            message = f"{name} is in stage {first} and feeds stage {last}; data flows forward."
            raise InputError(Problem("stages", message))
        kind = EdgeKind.DATA if first == last else EdgeKind.STAGE
        edges.append(replace(edge, kind=kind))
    return SuperGraph(title=f"{strategy.lp} stages", nodes=nodes, edges=tuple(edges))


def _ringed(
    graph: SuperGraph,
    dimension: ParallelDimension,
    degree: int,
    sent: Sequence[tuple[float, float]],
) -> SuperGraph:
    """Replace every node by a ring of ``degree`` nodes, every edge by one for each of them.

    ``sent`` by kernel: what passes its ring forward and backward. [B]
    """
    count, places = len(graph.nodes), range(degree)
    marks: list[dict[str, Any]] = [{dimension.value: i} for i in places]
    nodes = tuple(replace(node, **mark) for mark in marks for node in graph.nodes)
    edges = []
    for edge in graph.edges:
        # A ring's own bytes are those of one chip already; tensors are shared out.
        share = degree if edge.kind in (EdgeKind.DATA, EdgeKind.STAGE) else 1
        part = replace(edge, forward=edge.forward / share, backward=edge.backward / share)
        for i in range(0, degree * count, count):
            edges.append(replace(part, source=edge.source + i, target=edge.target + i))
    kind = EdgeKind(dimension.value)
    for k in range(count):
        forward, backward = sent[k % len(sent)]
        for i in places if forward or backward else ():
            ends = {"source": k + i * count, "target": k + (i + 1) % degree * count}
            edges.append(SuperEdge(**ends, kind=kind, forward=forward, backward=backward))
    return SuperGraph(
        title=f"{degree} ways along {dimension.value}", nodes=nodes, edges=tuple(edges)
    )
