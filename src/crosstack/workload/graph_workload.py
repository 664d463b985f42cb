"""A graph of operations over named axes as a workload that is mapped: a block, and how often."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable

import numpy as np

from crosstack.errors import InputError, Problem, require
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import OperationKind
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.lowering import lowered
from crosstack.workload.operations import Block, Role
from crosstack.workload.optimizer import Optimizer
from crosstack.workload.passes.routing import of_one_item
from crosstack.workload.passes.wide_gradients import GRADIENTS, with_gradients
from crosstack.workload.validation import unknown
from crosstack.workload.workload import BlockOf, End, Workload


def workload_of(
    graph: Graph,
    *,
    block: str = "",
    items: str = "",
    name: str = "graph",
    gradients: Dtype | None = None,
    optimizer: Optimizer | None = None,
) -> Workload:
    """Return the workload of a graph, with its backward pass where there is one.

    The layers are the block that repeats most; what runs before and behind it are its ends.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    block : str
        The block that is mapped alone, as many layers as it repeats; empty: all are.
    items : str
        The axis whose places are worked on one by one, or some at a time: the global batch. Empty:
        the graph is of one item.
    name : str
        For people.
    gradients, optimizer
        As of a `Workload`.

    Raises
    ------
    InputError
        If there is no such block or axis, or several blocks and none that repeats. If the graph is
        none any more when the axis of items has one place, or an operation reads more than two
        tensors.

    Notes
    -----
    Tables that are looked up in are on the chips that run an end; those of layers are data of the
    workload, on all chips together. What is handed on between layers is what the block carries.
    Places for tokens that are sent to groups, as to experts, are those for the tokens of one item.
    """
    whole, count = graph, graph.sizes.get(items, 1)
    if items:
        _check_name("items", items, graph.sizes, "axis")
        graph = of_one_item(graph, items)
    require_trained(any(b.twin for b in graph.blocks), gradients, optimizer)
    if gradients is not None:
        graph = with_gradients(graph, gradients)
    chosen, before, after = _chosen(graph, block)
    kernels = lowered(graph, chosen.name)
    ends = tuple(_end(graph, each) for each in before), tuple(_end(graph, each) for each in after)
    of = BlockOf(graph=whole, block=block, items=items)
    of_tokens = bool(items) and bool(of.token_axes)
    return Workload(
        graph=kernels,
        n_layers=graph.repeats(chosen) * chosen.layers,
        layers_in_graph=chosen.layers,
        global_batch_size=count,
        sequence_length=_tokens(graph, kernels),
        boundary_size=_size(graph, (before for before, _ in chosen.carries)),
        data_size=_size(graph, _tables(graph, chosen)),
        before=ends[0],
        after=ends[1],
        gradients=gradients,
        optimizer=optimizer,
        name=name,
        made_of=of,
        item="sequence" if of_tokens else "sample",
        item_part="token" if of_tokens else "",
    )


def require_trained(trained: bool, gradients: Dtype | None, optimizer: Optimizer | None) -> None:
    """Raise `InputError` unless gradients and an optimizer are said of what is trained alone."""
    said = {"gradients": gradients, "optimizer": optimizer}
    for name, value in said.items():
        require(trained or value is None, name, str(value), "nothing, of what is not trained")
    listed = " or ".join(GRADIENTS)
    require(gradients in (None, *GRADIENTS), "gradients", str(gradients), listed)


def _check_name(field: str, name: str, known: Collection[str], what: str) -> None:
    for problem in unknown(field, what, name, known):
        raise InputError(problem)


def _chosen(graph: Graph, block: str) -> tuple[Block, list[Block], list[Block]]:
    """Return the block of the layers, and what runs before and behind it."""
    forward = list(graph.forward_blocks)
    names = [b.name for b in forward]
    if block:
        _check_name("block", block, names, "block")
        return forward[names.index(block)], [], []
    most = max(forward, key=lambda b: (graph.repeats(b), bool(b.axis)))
    if len(forward) > 1 and not most.axis:
        message = f"left out; allowed: one of {', '.join(names)}, as none repeats."
        raise InputError(Problem("block", message))
    at = forward.index(most)
    return most, forward[:at], forward[at + 1 :]


def _end(graph: Graph, block: Block) -> End:
    """Return what runs besides the layers; a table that two blocks read is shared."""
    tables = _tables(graph, block)
    own = _weights(graph, block)
    others = (other for other in graph.forward_blocks if other.name != block.name)
    elsewhere = {tensor for other in others for tensor in _weights(graph, other)}
    return End(
        name=block.name,
        graph=lowered(graph, block.name),
        count=graph.repeats(block),
        table_size=_size(graph, tables),
        shared_size=_size(graph, own & elsewhere),
        element_size=max((graph.tensor[name].dtype.size for name in own), default=2.0),
    )


def _weights(graph: Graph, block: Block) -> set[str]:
    """Return the weights that a block reads."""
    read = {name for operation in block.operations for name in operation.reads}
    return {tensor for tensor in read if graph.tensor[tensor].role is Role.WEIGHT}


def _tables(graph: Graph, block: Block) -> set[str]:
    """Return the weights that a block looks up in, and does not multiply with."""
    read: dict[bool, set[str]] = {True: set(), False: set()}
    for operation in block.operations:
        looked_up = operation.kind is OperationKind.GATHER
        read[looked_up] |= {*(operation.reads[:1] if looked_up else operation.reads)}
    return (read[True] - read[False]) & _weights(graph, block)


def _size(graph: Graph, tensors: Iterable[str]) -> float:
    """Bytes of some tensors together. [B]"""
    return math.fsum(graph.size(tensor) for tensor in tensors)


def _tokens(graph: Graph, kernels: KernelGraph) -> int:
    """Largest extent that is cut into tiles over the kernels, at most all tokens. [1]"""
    one = np.ones_like(kernels.m)
    extents = np.stack([kernels.outer, kernels.m, kernels.k, kernels.columns, one])
    longest = int(extents[kernels.tiling, np.arange(kernels.n)].max())
    sizes = [axis.size for axis in graph.axes if axis.use is AxisUse.TOKEN]
    return min(longest, math.prod(sizes)) if sizes else longest
