"""Training that adds up gradients of weights in another type than it computes with."""

from __future__ import annotations

from dataclasses import replace

from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role

GRADIENTS = (Dtype.FP32, Dtype.BF16)
"""What gradients of weights may be kept and summed in."""


def with_gradients(graph: Graph, dtype: Dtype) -> Graph:
    """Return a training graph whose gradients of weights are numbers of a type.

    Products of activations by gradients are added up in single precision whatever they make, so
    what they make may be that (``micikevicius2018mixed``, section 3.3). Microbatches add to it, and
    chips exchange it, as it is.

    Parameters
    ----------
    graph : Graph
        Forward and backward, as `crosstack.workload.passes.backward.training` makes it.
    dtype : Dtype
        Of the gradient of every weight, and of the parts that it is a sum of.
    """
    found = {
        t.name
        for t in graph.tensors
        if t.role is Role.GRADIENT and t.of and graph.tensor[t.of].role is Role.WEIGHT
    }
    for block in reversed(graph.blocks):
        for operation in reversed(block.operations):
            if operation.made in found and operation.function is Function.ADD:
                found |= {*operation.reads}
        found |= {first for first, last in block.carries if last in found}
    tensors = (replace(t, dtype=dtype) if t.name in found else t for t in graph.tensors)
    return Graph(axes=graph.axes, tensors=tuple(tensors), blocks=graph.blocks)
