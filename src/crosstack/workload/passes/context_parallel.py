"""Sequences spread over chips: what one of them has of a graph, and how many may be.

Of c chips that share a sequence, each works on 1/c of its tokens in all that looks at a token at a
time; weights are whole on each. Attention needs the keys and values of all tokens, for which there
are two ways:

* a chip keeps the queries of its own tokens, and keys and values come to it, all at once
  (``grattafiori2024llama3``, section 3.3.2) or block by block in a ring (``liu2024ringattention``);
* the chips change to heads (``jacobs2023ulysses``): each has 1/c of them, of all tokens.

Under a causal mask later tokens see more keys. A sequence is cut into 2 c pieces, of which each
chip has one from the front and its mirror from the back, so that all have as much work
(``grattafiori2024llama3``); what each has is then the mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from crosstack.errors import require
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import OperationKind
from crosstack.workload.kernel_graph import Bools, KernelGraph
from crosstack.workload.loops import LoopNest, ProductAxes
from crosstack.workload.operations import Block
from crosstack.workload.passes.routing import places
from crosstack.workload.transformer_training import ContextExchange

ENDS = 3  # columns of `KernelGraph.tokens` behind those of groups: two operands and the result
PIECES = 2  # of a sequence that a chip has, so that all see as many keys


@dataclass(frozen=True, slots=True)
class ContextAxes:
    """The axis of tokens of a graph that chips may share, and what goes with it.

    ``tokens`` are that axis and those of places that experts have for its tokens; ``keys`` what
    attention calls it where every token looks at all. Empty where chips cannot share a sequence.
    """

    tokens: frozenset[str] = frozenset()
    keys: frozenset[str] = frozenset()


NO_CONTEXT = ContextAxes()


def context_axes(graph: Graph) -> ContextAxes:
    """Return the axes of a graph that chips which share a sequence split.

    None where tokens are worked on one after the other or one at a time, windows run over them,
    others were read before, or nothing looks at all of them.
    """
    carried = [b.carries[0][0] for b in graph.blocks if b.carries and not b.twin]
    own = {axis for name in carried for axis in graph.tensor[name].axes}
    tokens = [a for a in own if graph.uses[a] is AxisUse.TOKEN and graph.sizes[a] > 1]
    if len(tokens) != 1:
        return NO_CONTEXT
    token, keys = tokens[0], set[str]()
    for block, nest in graph.nests():
        operation = nest.operation
        windows = {name for w in operation.windows for name in (w.axis, w.at, w.tap)}
        in_order = operation.kind is OperationKind.SCAN and token in operation.over
        if token in windows or in_order:
            return NO_CONTEXT
        for names, stored in _views(graph, block, nest):
            new = {*names} - {*stored}
            if token in stored and token not in names:
                if len(new) != 1:
                    return NO_CONTEXT
                keys |= new
    places_of = {axis for axis, found in places(graph).items() if token in found.tokens}
    return ContextAxes(frozenset({token, *places_of}), frozenset(keys)) if keys else NO_CONTEXT


def _views(graph: Graph, block: Block, nest: LoopNest) -> list[tuple[tuple[str, ...], ...]]:
    """Return how an operation calls the axes of its operands and result, and how those do."""
    ends = (*nest.operation.inputs, nest.operation.output)
    stored = (graph.own_axes(block, end.tensor) for end in ends)
    return list(zip((*nest.inputs, nest.output), stored, strict=True))


def context_columns(
    graph: Graph,
    block: Block,
    nest: LoopNest,
    product: ProductAxes,
    operands: tuple[int, ...],
    axes: ContextAxes,
) -> dict[str, object]:
    """Return where tokens that chips share are in an operation, as columns of `KernelGraph`.

    ``tokens`` are told of outer, M, K, N, both operands and the result, and last whether it adds up
    over them and none of those has any; ``across``: which of operands and result have all tokens
    instead, as keys; ``attends``: whether it works on keys.
    """
    groups = (product.outer, product.m, product.k, product.n)
    views = _views(graph, block, nest)
    ends = [views[i] for i in operands]
    ends += [((), ())] * (ENDS - 1 - len(ends)) + [views[-1]]
    lies = [bool(axes.tokens & {*some}) for some in groups]
    added = not any(lies) and bool(axes.tokens & {*nest.loops})
    return {
        "tokens": [*lies, *(bool(axes.tokens & {*names}) for names, _ in ends), added],
        "across": [
            bool(axes.tokens & {*stored}) and not axes.tokens & {*names} for names, stored in ends
        ],
        "attends": bool(axes.keys & {*nest.loops}),
    }


def most_context(graph: KernelGraph) -> bool:
    """Whether chips may share the sequences of a graph: it attends to tokens."""
    return bool(graph.across.any())


def heads_of(graph: KernelGraph) -> int:
    """Heads that chips which share a sequence may have parts of: the fewest of a kernel. [1]"""
    return int(graph.outer[graph.attends].min()) if graph.attends.any() else 1


@lru_cache(maxsize=256)
def crosses(graph: KernelGraph) -> Bools:
    """Whose results go from chips of tokens to chips of heads, or back, shape (n,)."""
    found = np.zeros(graph.n, dtype=np.bool_)
    border = graph.attends[graph.source] != graph.attends[graph.target]
    found[graph.source[border]] = True
    # A result that later kernels read as it was made went there before.
    return np.asarray(found & (graph.tokens[:, 6] | graph.across[:, 2]))


@lru_cache(maxsize=256)
def spread_context(graph: KernelGraph, degree: int, exchange: ContextExchange) -> KernelGraph:
    """Return what one of ``degree`` chips that share a sequence has of a graph.

    Parameters
    ----------
    graph : KernelGraph
        Of chips that each have whole sequences, or of so many that share them: that is returned.
    degree : int
        Chips. [1]
    exchange : ContextExchange
        How attention comes to keys and values.

    Notes
    -----
    An operand or a result that is read or made along keys is as large as before. What is added up
    over tokens, as the gradient of a weight, is a part of a sum.
    """
    if degree == graph.context_degree:
        return graph
    require(graph.context_degree == 1, "context_degree", graph.context_degree, "1, or as asked")
    lies = graph.tokens.copy()
    if exchange is ContextExchange.ULYSSES:
        lies[graph.attends] = False
        for heads in (0, 4, 5, 6):  # outer, and all tensors
            lies[graph.attends, heads] = True
    by = np.where(lies, degree, 1)
    outer, m, k, columns = (
        -(-extent // by[:, i])
        for i, extent in enumerate((graph.outer, graph.m, graph.k, graph.columns))
    )
    made = graph.output_size / by[:, 6]
    inputs, tensors = graph.input_sizes / by[:, 4:6], graph.tensor_size.copy()
    tensors[graph.tensor] = (graph.output_size / np.where(graph.across[:, 2], degree, by[:, 6]))[
        graph.source
    ]
    there = lies[:, 4:].any(axis=1)
    routing = graph.routing.copy()
    routing[:, 1] = np.where(routing[:, 0] < 1, routing[:, 1] / degree, routing[:, 1])
    return replace(
        graph,
        outer=outer,
        m=m,
        k=k,
        columns=columns,
        rows=outer * m,
        repeats=np.where(lies[:, 7] & ~graph.gemm, graph.repeats / degree, graph.repeats),
        routing=routing,
        cache_size=graph.cache_size / np.where(there, degree, 1),
        output_size=made,
        input_sizes=inputs,
        tensor_size=tensors,
        context_degree=degree,
    )
