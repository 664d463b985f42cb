"""Which axes of a graph are places that groups have for tokens sent to them, as experts have.

Nothing has to say so: places are selected among tokens by what each sends to each group, and that
is a scatter of what it sends to the few that it chose, or the greatest of a row. Where a group
takes tokens of its own choice, all groups are always full, unless each has places for all tokens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from crosstack.workload.axes import Axes, AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.kernels import Routing
from crosstack.workload.loops import LoopNest
from crosstack.workload.operations import Operation


@dataclass(frozen=True, slots=True, kw_only=True)
class Places:
    """What an axis of places is for: ``tokens``, each sent to a group with chance ``sent``. [1]

    ``nodes`` and ``reached`` as of `crosstack.workload.kernels.Routing`.
    """

    tokens: Axes
    sent: float
    nodes: float = 0.0
    reached: float = 0.0


def places(graph: Graph) -> dict[str, Places]:
    """Return the axes of places of a graph."""
    found: dict[str, Places] = {}
    for block in graph.blocks:
        for operation in block.operations:
            if operation.function is not Function.SELECT:
                continue
            nest = graph.nest(block, operation)
            new = [axis for axis in nest.output if axis not in nest.inputs[0]]
            sent = _sent(graph, operation)
            of_tokens = all(graph.uses[axis] is AxisUse.TOKEN for axis in operation.over)
            all_go = graph.count(new) == graph.count(operation.over)  # none is left out
            if of_tokens and (sent < 1 or all_go):
                most = _reached(graph, operation) if operation.parameter else 0.0
                own = {"nodes": operation.parameter, "reached": most} if most else {}
                found |= {axis: Places(tokens=operation.over, sent=sent, **own) for axis in new}
    return found


def _sent(graph: Graph, operation: Operation) -> float:
    """Chance that a token is sent to a group; 1 where groups choose. [1]"""
    name = operation.inputs[0].tensor
    while name in graph.makers:
        block, maker = graph.makers[name]
        match maker.function:
            case Function.TOP_K:
                return min(maker.parameter / graph.count(maker.over), 1.0)
            case Function.SCATTER:
                chosen = graph.count(graph.names(block, maker.inputs[1]))
                return min(chosen / graph.count(graph.names(block, maker.output)), 1.0)
            case _ if maker.multiplies or not maker.inputs:
                break
        name = maker.inputs[0].tensor
    return 1.0


def _reached(graph: Graph, operation: Operation) -> float:
    """Return in how many parts the groups that a token chose lie at most; 0: any. [1]"""
    name = operation.inputs[0].tensor
    while name in graph.makers:
        maker = graph.makers[name][1]
        if maker.function is Function.SCATTER:
            chosen = graph.makers.get(maker.inputs[1].tensor)
            return chosen[1].parameter if chosen else 0.0
        if maker.multiplies or not maker.inputs:
            break
        name = maker.inputs[0].tensor
    return 0.0


def routing_of(graph: Graph, nest: LoopNest, found: Mapping[str, Places]) -> Routing:
    """Return how the tokens of a kernel are spread; all go everywhere where it has no places.

    Parameters
    ----------
    graph, nest
        The graph, and the operation.
    found : mapping
        See `places`.

    Notes
    -----
    Of ``ceil(T sent)`` places of a group, T tokens fill ``T sent`` on average; where there are more
    (a capacity above an even share), all are worked on (``shazeer2017moe``).
    """
    axis = next((axis for axis in nest.loops if axis in found), "")
    if not axis:
        return Routing()
    own = found[axis]
    tokens, sent = graph.count(own.tokens), own.sent
    even, size = tokens * sent, graph.sizes[axis]
    filled = even / size if size == math.ceil(even) else 1.0
    limits = {"nodes": own.nodes, "reached": own.reached}
    return Routing(sent=sent, tokens=float(tokens), filled=filled, **limits)


def touched_share(routing: Floats, sequences: Floats | float) -> Floats:
    """Share of the groups of kernels that tokens of some sequences of a microbatch reach. [1]

    ``routing`` is that of `KernelGraph`, shape (..., 5).

    Notes
    -----
    ``1 - (1 - k/E)^(b s)``: each of b s tokens is sent to k of E groups, any as likely as the
    others, so that it leaves one alone with chance 1 - k/E. 1 where all go everywhere. Loads are as
    even as a router that is trained for it makes them (``shazeer2017moe``).
    """
    return np.asarray(1.0 - (1.0 - routing[..., 0]) ** (routing[..., 1] * sequences))


def of_one_item(graph: Graph, items: str) -> Graph:
    """Return a graph with one place along the axis of items, and places for its tokens."""
    ratio = graph.sizes[items]
    sizes = {items: 1}
    for axis, found in places(graph).items():
        if items in found.tokens:
            sizes[axis] = -(-graph.sizes[axis] // ratio)
    axes = (replace(axis, size=sizes.get(axis.name, axis.size)) for axis in graph.axes)
    return replace(graph, axes=tuple(axes))
