"""Tokens on their way to experts in numbers of fewer bits than what is worked on.

What is gathered from tokens into places of experts is sent in a type of its own, forward, and so is
the gradient of what they come to, backward; what comes back from experts is added up and is sent as
it is made. So ``deepseek2024v3`` (section 3.3.3): activations before the up projections of experts,
and gradients before their down projections, are quantized before they are dispatched, while both
combines stay in BF16. Numbers that share a scale are sent with their share of it.

Nothing but what is sent differs: casts are where products read (`quantized`), of what has come.
"""

from __future__ import annotations

from dataclasses import replace

from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Operation
from crosstack.workload.passes.routing import places

# What tokens are sent in where a recipe says so by itself; others send what layers work on.
OF_RECIPE = {Dtype.FP8_BLOCKS: Dtype.FP8_BLOCKS}
DISPATCHES = (Dtype.BF16, Dtype.FP8, Dtype.MXFP8, Dtype.FP8_BLOCKS)


def dispatched(graph: Graph, dtype: Dtype) -> Graph:
    """Return a graph whose tokens go to experts in a type.

    Parameters
    ----------
    graph : Graph
        Forward and backward.
    dtype : Dtype
        What is sent; nothing changes where that is as large as what is made.

    References
    ----------
    deepseek2024v3
    """
    spread = {*places(graph)}

    def sent(operation: Operation) -> Operation:
        made = graph.tensor[operation.made]
        gathers = operation.function is Function.GATHER and spread & {*made.axes}
        if not gathers or dtype.size >= made.dtype.size:
            return operation
        return replace(operation, parameter=dtype.size)

    blocks = (
        replace(block, operations=tuple(sent(operation) for operation in block.operations))
        for block in graph.blocks
    )
    return replace(graph, blocks=tuple(blocks))
