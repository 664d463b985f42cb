"""A loss at the end of a graph that has none."""

from __future__ import annotations

from builders.named_models import probed
from crosstack.workload.dataflow import Graph
from crosstack.workload.draft import Draft


def with_loss(graph: Graph, result: str) -> Graph:
    """The graph, and the sum of a result times numbers from outside."""
    draft = Draft(
        dtype=graph.tensor[result].dtype,
        axes=[*graph.axes],
        tensors=dict(graph.tensor),
        blocks=[*graph.blocks],
    )
    probed(draft, result, " ".join(graph.tensor[result].axes))
    return draft.graph()
