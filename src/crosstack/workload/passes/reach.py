"""What a derivative reaches, and what it needs of the forward pass."""

from __future__ import annotations

from collections.abc import Container, Mapping

from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import TABLE
from crosstack.workload.operations import Operation, Role


def differentiable(graph: Graph, of: Container[Role]) -> frozenset[str]:
    """Return the tensors that depend smoothly on what comes from outside in some roles."""
    active = {t.name for t in graph.tensors if t.role in of and t.name not in graph.makers}
    for block in graph.blocks:
        before = -1
        while len(active) > before:  # once more where something active is carried
            before = len(active)
            for i in graph.orders[block.name]:
                if _depends(block.operations[i], active):
                    active.add(block.operations[i].made)
            for pair in block.carries:
                if active & {*pair}:
                    active |= {*pair}
    return frozenset(active)


def _depends(operation: Operation, active: Container[str]) -> bool:
    derivatives = TABLE[operation.function].derivatives
    return any(
        name in active and (i >= len(derivatives) or derivatives[i] is not None)
        for i, name in enumerate(operation.reads)
    )


def kept(graph: Graph) -> Mapping[str, float]:
    """Return what the backward pass reads of the forward pass: bytes by tensor.

    Weights are there anyway; what a block has to itself is kept every time it runs.
    """
    backward = [block for block in graph.blocks if block.twin]
    made = {o.made for block in backward for o in block.operations}
    found: dict[str, float] = {}
    for block in backward:
        twin = graph.block(block.twin)
        inside = {o.made for o in twin.operations} | {first for first, _ in twin.carries}
        for name in {name for o in block.operations for name in o.reads} - made:
            tensor = graph.tensor[name]
            if tensor.role not in (Role.WEIGHT, Role.GRADIENT):
                own = name in inside and twin.axis not in tensor.axes
                found[name] = graph.size(name) * (graph.repeats(twin) if own else 1)
    return found
