"""Along which axes an operation may be split over a mesh of chips, and how its tensors lie then.

A mesh has dimensions of some chips each. On every dimension an operation is split along one of the
axes that it runs over, or done by all chips alike, or it works on parts of a sum: a *split*. A
tensor is split along one of its axes there, whole, or *partial*: what the chips have is still to be
added up. An axis that is split over several dimensions is cut by the first of them, each part by
the next.

What a split needs and makes follows from the names of axes alone:

* an operand is split along the axis where it has it, and whole where it has not;
* so is the result; where the axis is added up, it is partial;
* rows that are looked at as a whole, places of a scan or of a rotation, and axes that windows run
  over are not split; a table may be split along what it is gathered by: chips without the entry
  find zero, and the result is partial (``shoeybi2019megatron``, its embedding);
* what is linear in operands that are partial makes something partial.

Source of the idea: ``xu2021gspmd``.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from crosstack.workload.axes import Axes
from crosstack.workload.dataflow import Graph
from crosstack.workload.functions import TABLE, OperationKind, Result
from crosstack.workload.loops import LoopNest, union
from crosstack.workload.operations import Block

REPLICATED, PARTIAL = "", "+"
Layout = tuple[str, ...]  # by dimension of the mesh: an axis, `REPLICATED` or `PARTIAL`


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """What an operation is split along on every dimension of a mesh, and how its tensors lie then.

    Layouts name axes as tensors do, ``along`` as the operation does.
    """

    along: Layout
    inputs: tuple[Layout, ...]
    output: Layout


def splits(graph: Graph, block: Block, nest: LoopNest, mesh: Sequence[int]) -> tuple[Split, ...]:
    """Return all ways to split an operation over a mesh, the whole operation on every chip first.

    Parameters
    ----------
    graph, block, nest
        The operation and where it is.
    mesh : sequence of int
        Chips of every dimension. [1]
    """
    ends = (*nest.operation.inputs, nest.operation.output)
    seen = tuple(
        _stored(graph.own_axes(block, x.tensor), axes, graph.sizes)
        for x, axes in zip(ends, (*nest.inputs, nest.output), strict=True)
    )
    allowed = [REPLICATED, *_axes(nest, graph.sizes)]
    if TABLE[nest.operation.function].linear:
        allowed.append(PARTIAL)
    found = (
        _split(graph, nest, along, mesh, seen)
        for along in itertools.product(allowed, repeat=len(mesh))
    )
    return tuple(split for split in found if split is not None)


def _axes(nest: LoopNest, sizes: Mapping[str, int]) -> Iterator[str]:
    """Yield the axes that an operation may be split along."""
    operation = nest.operation
    windows = {name for w in operation.windows for name in (w.axis, w.at, w.tap)}
    kept = {*windows, *operation.over} - {*_added(nest)}
    loops = nest.loops
    if operation.kind is OperationKind.GATHER and len(operation.over) == 1:
        loops, kept = (*loops, *operation.over), kept - {*operation.over}
    if operation.kind is OperationKind.CONCATENATION:  # a part has other places than the whole
        parts, whole = nest.parts
        kept |= {*union(whole, *parts)} - ({*whole} & {*union(*parts)})
    for axis in loops:
        if axis not in kept and sizes[axis] > 1:
            yield axis


def _added(nest: LoopNest) -> Axes:
    """Return the axes that are added up, of an operation that adds up over any."""
    kind, row = nest.operation.kind, TABLE[nest.operation.function]
    sums = nest.operation.multiplies or kind is OperationKind.SCATTER
    means = kind is OperationKind.REDUCTION and row.result is Result.REDUCES and bool(row.linear)
    if not (sums or means):
        return ()
    windows = {name for w in nest.operation.windows for name in (w.at, w.tap)}
    result = nest.looped(nest.output)
    return tuple(axis for axis in nest.loops if axis not in result and axis not in windows)


# By axis that an operation sees: the one of the tensor behind it, and whether they are the same.
Stored = Mapping[str, tuple[str, bool]]


def _stored(own: Axes, seen: Axes, sizes: Mapping[str, int]) -> Stored:
    """Return the axes of a tensor behind those that an operation sees.

    Where they are not the same under another name, the one begins the other, so that equal parts of
    the one are equal parts of the other.
    """
    if [sizes[a] for a in own] == [sizes[a] for a in seen]:
        return {name: (axis, True) for name, axis in zip(seen, own, strict=True)}
    own, seen = (tuple(a for a in axes if sizes[a] > 1) for axes in (own, seen))
    found: dict[str, tuple[str, bool]] = {}
    i = j = 0
    while i < len(own) and j < len(seen):
        ends = [i + 1, j + 1]
        counts = [sizes[own[i]], sizes[seen[j]]]
        while counts[0] != counts[1]:
            short = int(counts[0] > counts[1])
            counts[short] *= sizes[(own, seen)[short][ends[short]]]
            ends[short] += 1
        found[seen[j]] = own[i], ends == [i + 1, j + 1]
        i, j = ends
    return found


def _split(
    graph: Graph, nest: LoopNest, along: Layout, mesh: Sequence[int], seen: Sequence[Stored]
) -> Split | None:
    """Return what a split means for every tensor; None where the result cannot lie like that."""
    ways = {
        axis: math.prod(n for other, n in zip(along, mesh, strict=True) if other == axis)
        for axis in along
    }
    several = {axis for axis in ways if along.count(axis) > 1} - {REPLICATED, PARTIAL}
    if any(ways[axis] > graph.sizes[axis] for axis in several):
        return None  # not every chip would have a part
    linear = TABLE[nest.operation.function].linear
    layouts = []
    for place, (axes, stored) in enumerate(zip((*nest.inputs, nest.output), seen, strict=True)):
        result = place == len(nest.inputs)
        layout = []
        for axis in along:
            if axis == REPLICATED:
                own: str | None = REPLICATED
            elif axis == PARTIAL:
                own = PARTIAL if result or place in linear else REPLICATED
            elif axis not in axes:
                own = PARTIAL if result else REPLICATED
            else:
                own, same = stored.get(axis, (None, False))
                uneven = own and any(graph.sizes[a] % ways[axis] for a in (own, axis))
                own = None if uneven and not same else own
            if own is None and result:
                return None
            layout.append(own or REPLICATED)
        layouts.append(tuple(layout))
    return Split(along=along, inputs=tuple(layouts[:-1]), output=layouts[-1])
