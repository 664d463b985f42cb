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
            active |= {
                block.operations[i].output.tensor
                for i in graph.orders[block.name]
                if _depends(block.operations[i], active)
            }
            active |= {first for first, last in block.carries if last in active}
            active |= {last for first, last in block.carries if first in active}
    return frozenset(active)


def _depends(operation: Operation, active: Container[str]) -> bool:
    derivatives = TABLE[operation.function].derivatives
    return any(
        operand.tensor in active and (i >= len(derivatives) or derivatives[i] is not None)
        for i, operand in enumerate(operation.inputs)
    )


def kept(graph: Graph) -> Mapping[str, float]:
    """Return what the backward pass reads of the forward pass: bytes by tensor.

    Weights are there anyway; what a block has to itself is kept every time it runs.
    """
    backward = [block for block in graph.blocks if block.twin]
    made = {o.output.tensor for block in backward for o in block.operations}
    found: dict[str, float] = {}
    for block in backward:
        twin = graph.block(block.twin)
        inside = {o.output.tensor for o in twin.operations} | {first for first, _ in twin.carries}
        for name in {x.tensor for o in block.operations for x in o.inputs} - made:
            tensor = graph.tensor[name]
            if tensor.role in (Role.WEIGHT, Role.GRADIENT):
                continue
            own = name in inside and twin.axis not in tensor.axes
            found[name] = graph.size(name) * (graph.repeats(twin) if own else 1)
    return found
