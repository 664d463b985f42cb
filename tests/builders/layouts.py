"""What chips do between two operations of a graph that are split along axes of their own."""

from __future__ import annotations

from collections.abc import Sequence

from oracles.layout_steps import conversion

from crosstack.workload.dataflow import Graph
from crosstack.workload.kernels import Collective
from crosstack.workload.sharding import Layout, Split, splits


def split_of(graph: Graph, operation: str, along: Layout, mesh: Sequence[int]) -> Split:
    """The split of an operation along axes, one for each dimension of the mesh."""
    block, nest = next((b, n) for b, n in graph.nests() if n.operation.name == operation)
    return next(s for s in splits(graph, block, nest, mesh) if s.along == along)


def exchanged(
    graph: Graph, tensor: str, before: Layout, after: Layout, mesh: Sequence[int]
) -> list[tuple[Collective | None, int, float]]:
    """Steps from one layout of a tensor to another: what is done, on which dimension, on what.

    What is on the chips of the dimension together in bytes.
    """
    steps = conversion(
        before, after, graph.tensor[tensor].axes, mesh, graph.sizes, lambda step: step.share
    )
    return [(s.collective, s.dimension, s.share * graph.size(tensor)) for s in steps]
