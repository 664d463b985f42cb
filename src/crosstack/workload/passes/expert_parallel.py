"""Experts spread over data-parallel chips: what one of them has of a graph, and how many may be.

Of e chips that each work on a sequence of their own, each holds 1/e of the experts and works on
the tokens that all e send to those: of e times fewer experts, e times as many places each. So the
work of a chip and what it keeps for the backward pass stay; weights of experts, their gradients and
what goes with them are 1/e, and products are of fewer and larger matrices. Source:
``lepikhin2021gshard`` (section 3.2), ``rajbhandari2022deepspeedmoe``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

import numpy as np

from crosstack.errors import require
from crosstack.workload.functions import Function
from crosstack.workload.kernel_graph import AXIS_CODE, Floats, KernelGraph
from crosstack.workload.kernels import Axis

OUTER, M, K, N = (AXIS_CODE[axis] for axis in (Axis.OUTER, Axis.M, Axis.K, Axis.N))
WHOLE = 0  # the place of a tensor that all chips have, among the layouts of a graph


def most_spread(graphs: Iterable[KernelGraph]) -> int:
    """Return over how many chips the experts of all graphs may be spread; 1 without any. [1]

    A divisor of that is allowed, too: every chip has as many.
    """
    counts = [graph.experts[graph.exchanged] for graph in graphs if graph.exchanged.any()]
    return math.gcd(*np.concatenate(counts).tolist()) if counts else 1


@lru_cache(maxsize=256)
def spread_experts(graph: KernelGraph, degree: int) -> KernelGraph:
    """Return what one of ``degree`` chips that experts are spread over has of a graph.

    Parameters
    ----------
    graph : KernelGraph
        Of chips that each have all experts, or of chips that have as few: that is returned.
    degree : int
        Chips; a divisor of the experts. [1]

    Raises
    ------
    InputError
        If the experts of a kernel do not divide.

    Notes
    -----
    An operand that kernels on places read is as large as before: 1/e of the experts times e times
    the places. A result over places that are added up, as a gradient of a weight, is 1/e.
    """
    if degree == graph.expert_degree:
        return graph
    require(graph.expert_degree == 1, "expert_degree", graph.expert_degree, "1, or as asked")
    there = graph.experts > 0
    counts = graph.experts[there].tolist()
    allowed = f"a divisor of the number of experts, {', '.join(map(str, sorted({*counts})))}"
    require(all(count % degree == 0 for count in counts), "expert_degree", degree, allowed)
    fewer = np.where(there, degree, 1)
    m, k, columns = (
        np.where(there & (graph.places == axis), extent * degree, extent)
        for axis, extent in ((M, graph.m), (K, graph.k), (N, graph.columns))
    )
    outer = graph.outer // fewer
    summed = there & (graph.places != M) & (graph.places != N)
    less = np.where(summed, degree, 1)
    made = graph.output_size / less
    inputs, tensors = graph.input_sizes.copy(), graph.tensor_size.copy()
    tensors[graph.tensor] = made[graph.source]
    inputs[graph.target, graph.operand] /= less[graph.source]
    routing = graph.routing.copy()
    routing[:, 1] *= fewer
    # What is summed beside the gradient of an expert, as those of norms, is whole on every chip.
    gradients = np.minimum(graph.periodic_size, graph.output_size) * summed
    return replace(
        graph,
        outer=outer,
        m=m,
        k=k,
        columns=columns,
        rows=outer * m,
        # Elements that are added up for each of a result.
        repeats=np.where(summed & ~graph.gemm, graph.repeats * degree, graph.repeats),
        routing=routing,
        weight_size=graph.weight_size / fewer,
        output_size=made,
        input_sizes=inputs,
        tensor_size=tensors,
        periodic_size=graph.periodic_size - (gradients - gradients / less),
        expert_degree=degree,
    )


def expert_gradients(graph: KernelGraph) -> Floats:
    """Bytes of gradients that only chips with the same experts sum, shape (n,). [B]

    None where chips each have all experts. What a kernel sums beside them all chips sum.
    """
    its = np.minimum(graph.periodic_size, graph.output_size)
    return np.asarray(its * (graph.experts > 0) * (graph.expert_degree > 1))


@lru_cache(maxsize=256)
def cut_experts(graph: KernelGraph) -> KernelGraph:
    """Return a graph whose experts each are cut over the tensor-parallel chips.

    Those chips then have a part of every expert of theirs, not all of some of them: products of
    experts are split along the width inside or what they add up over, all else along its elements
    or its places. Source: ``shoeybi2019megatron`` (section 3) of each expert,
    ``nvidia_megatron_core`` (expert tensor parallelism).

    Notes
    -----
    Places of a chip are those that its own part of the tokens is sent to: gathered from tokens that
    are split along the sequence, they are split along the places, as many of each expert on every
    chip, and scattered back the same way, with nothing sent in between.
    """
    there = graph.experts > 0
    if not (there.any() and graph.layouts):
        return graph
    splits = graph.splits.copy()
    splits[there, OUTER] = -1
    functions = np.array(graph.functions)
    gathers = there & (functions == Function.GATHER.value) & (splits[:, N, 0] == WHOLE)
    scatters = ~there & (functions == Function.SCATTER.value)
    tokens = {
        int(splits[i, N, 2])
        for i, j, operand in _edges(graph)
        if gathers[j] and not operand and not there[i] and splits[i, N, 2] > WHOLE
    }
    if len(tokens) == 1:
        (token,) = tokens
        splits[gathers & (splits[:, N, 2] >= 0), N, 0] = token
        for i, j, operand in _edges(graph):
            if scatters[j] and not operand and there[i] and splits[i, N, 2] > WHOLE:
                places = int(splits[i, N, 2])
                splits[j, N] = places, places if graph.two_inputs[j] else -1, token
    return replace(graph, splits=splits)


def _edges(graph: KernelGraph) -> Iterator[tuple[int, int, int]]:
    """Yield the maker, the reader and the operand of every edge."""
    columns = graph.source, graph.target, graph.operand
    return zip(*(column.tolist() for column in columns), strict=True)
