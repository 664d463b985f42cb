"""From a block of a graph of operations over named axes to the arrays that formulas compute with.

An operation becomes a kernel: ``outer`` products of M x K by K x N, or ``outer`` x M x N elements
(`crosstack.workload.loops.LoopNest.product`). The block and its twin of the backward pass are one
set of arrays; what comes from blocks before comes from outside, and what is carried from the copy
before (``join_*``).

* Operands are tensors that are no weight of a product, factor or term of a norm, mask or constant;
  the engine knows two of a kernel. An index from outside is left out where there are two others.
* Products in which one of M, N and K has no axis (taps of each channel's own, sums of products of
  two vectors, products without a sum) use no number twice: they are work in the lanes.
* A convolution is the product that its windows imply: it has the extents of that, and reads and
  makes tensors as they are stored (``stored``).
* Rows that are too long to be held on a chip are read as often as their function says.
* Data streams along the axes of tokens: a kernel is tiled where its columns have one, or what it
  adds up. What needs all of a sequence at once, or has none, is not tiled.
* Rows that are read of a table of weights, and keys and values of before, are read from main
  memory as what the kernel makes is split (``cache_size``). What puts new keys and values behind
  those works on the new ones; all of them have their place in main memory, and pass on no edge
  (``elided``).
* Some operations are no kernels of their own (`crosstack.workload.passes.merged`).
* The gradient of a weight is a sum over chips that work on different data (``periodic_size``).
  That of a table that is only looked up in is added to the rows in question, where they lie.
* A weight without the axis that a block repeats along is one for all repetitions (``sharers``).
* Tokens go to the places of experts where they are gathered there, and come back where those places
  are scattered (``exchanged``).
* Which axes are tokens of a sequence that chips may share is said of every kernel
  (`crosstack.workload.passes.context_parallel`).
* A mask is kept where the backward pass reads it. Nothing else has to be said of what is kept:
  edges to backward kernels do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import TABLE, Function, OperationKind
from crosstack.workload.kernel_graph import AXIS_CODE, Edge, Join, KernelGraph, graph_of_columns
from crosstack.workload.kernels import Axis, Collective, Communication
from crosstack.workload.loops import LoopNest, ProductAxes, union
from crosstack.workload.operations import Block, Operation, Role
from crosstack.workload.ordering import topological_order
from crosstack.workload.passes.context_parallel import ContextAxes, context_axes, context_columns
from crosstack.workload.passes.merged import Merged, appends, merged, of_before
from crosstack.workload.passes.routing import Places, places, routing_of
from crosstack.workload.sharding import PARTIAL, REPLICATED, splits

_NO_OPERAND = (Role.WEIGHT, Role.MASK, Role.CONSTANT)
# Groups of axes by name, where tokens are looked for, first to last.
TILING = {"n": Axis.N, "k": Axis.K, "m": Axis.M, "outer": Axis.OUTER}
_EXTENTS = {"outer": "outer", "m": "m", "k": "k", "columns": "n"}  # columns of arrays, by group
WorkOf = Callable[[Operation], float]


def work_of_row(operation: Operation) -> float:
    """Operations on each element that a function loops over, by its row. [FLOP]"""
    return TABLE[operation.function].work


def lowered(graph: Graph, block: str, *, work: WorkOf = work_of_row) -> KernelGraph:
    """Return the arrays of one run of a block, with its backward pass where there is one.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    block : str
        Name of a block that is no backward pass itself.
    work : callable
        Operations on each element that an operation loops over, for those that are no product.
        [FLOP]

    Raises
    ------
    InputError
        If an operation reads more than two tensors.
    """
    return _arrays(kernels_of(graph, block, work=work))


def kernels_of(
    graph: Graph, block: str, *, work: WorkOf = work_of_row
) -> tuple[LoweredKernel, ...]:
    """Return what the arrays say of every operation of a block and of its backward pass.

    Parameters and errors as `lowered`.
    """
    blocks = [graph.block(block), *(b for b in graph.blocks if b.twin == block)]
    others, spread = merged(graph, blocks, work), (places(graph), context_axes(graph))
    return tuple(
        _lowered(graph, each, operation, work, others, spread)
        for each in blocks
        for operation in each.operations
        if operation not in others
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredKernel:
    """What the arrays say of one operation of a block: ``columns`` of them, and what joins it.

    ``product`` are its axes by what they are in products, or in the elements that it works on, and
    ``extents`` how long those groups are [1]; ``splits``: how its operands and its result lie where
    the first axis of a group that may be split is. ``operands`` tells which inputs count, ``reads``
    the tensors that those lie in, ``input_sizes`` their bytes [B], ``cached`` which are keys and
    values of before, or weights that were looked up. ``appends``: whether it puts new keys and
    values behind those; ``masks`` are those that it reads. ``each`` is operations on each element
    that it makes [FLOP]; ``matrices``: whether it is a product of matrices, as of vectors no number
    is used twice.
    """

    block: Block
    nest: LoopNest
    product: ProductAxes
    splits: dict[str, tuple[str, ...]]
    extents: dict[str, int]
    operands: tuple[int, ...]
    reads: tuple[str, ...]
    input_sizes: tuple[float, ...]
    cached: tuple[bool, ...]
    appends: bool
    masks: frozenset[str]
    each: float
    matrices: bool
    columns: dict[str, Any]


def _lowered(
    graph: Graph,
    block: Block,
    operation: Operation,
    work: WorkOf,
    others: Merged,
    axes: tuple[Mapping[str, Places], ContextAxes],
) -> LoweredKernel:
    """Return what the arrays say of an operation, of which ``others`` are no kernels."""
    spread, context = axes
    nest, behind = graph.nest(block, operation), appends(graph, operation)
    operands, rows = _operands(graph, operation), _adds_rows(graph, operation)
    matrices = operation.multiplies and nest.product.uses_twice
    product = _product(nest, operands, first=behind or rows)
    extents = {g: graph.count(getattr(product, g)) for g in TILING}
    read = [operation.reads[i] for i in operands]
    cached = _cached(graph, block, operation, others)
    sizes = tuple(graph.own_size(block, tensor) for tensor in read)
    output = graph.own_size(block, operation.made)
    output = min(output, sizes[0]) if rows else output
    one = nest.work if operation.multiplies else work(operation)
    done = one * graph.count(nest.loops) + others.work.get(operation.name, 0.0)
    each = 1.0 if matrices else done / graph.count(nest.inputs[0] if rows else nest.output)
    looked_up = operation.kind is OperationKind.GATHER and nest.weights[0]
    counted = [*map(graph.counted, read), 1.0, 1.0][:2]
    masks = (name for name in operation.reads if graph.tensor[name].role is Role.MASK)
    return LoweredKernel(
        block=block,
        nest=nest,
        product=product,
        splits=_splits(graph, block, nest, product, operands),
        extents=extents,
        operands=operands,
        reads=tuple(others.lies.get(tensor, tensor) for tensor in read),
        input_sizes=sizes,
        cached=tuple(tensor in cached for tensor in read),
        appends=behind,
        masks=frozenset(masks),
        each=each,
        matrices=matrices,
        columns={
            **{column: extents[group] for column, group in _EXTENTS.items()},
            **dict.fromkeys(("systolic", "gemm"), matrices),
            **dict.fromkeys(("memory_traffic", "sram_extra", "memory_extra"), 0.0),
            "reread": (TABLE[operation.function].passes - 1) * sum(sizes),
            "stored": _stored(graph, nest, operands) if matrices else (1.0, 1.0, 1.0),
            **dict.fromkeys(("counted_inputs", "saved_input", "saved_output"), False),
            **_weight_columns(graph, block, nest, others, matrices=matrices, rows=rows),
            **_function_columns(operation, operands),
            "tiling": AXIS_CODE[_tiling(graph, nest, product)],
            "backward": block.twin != "",
            "repeats": each,
            "operations": max(1, round(each)),
            "cache_size": sum(cached.values()) + output * looked_up,
            "density": (*counted, graph.counted(operation.made)),
            "routing": routing_of(graph, nest, spread),
            **_expert_columns(graph, nest, product, spread),
            **context_columns(graph, block, nest, product, operands, context),
            "output_size": output,
            **_elements(graph, operation, read),
        },
    )


def _product(nest: LoopNest, operands: tuple[int, ...], *, first: bool) -> ProductAxes:
    """Return the axes of a product, or of the elements that an operation works on.

    ``first``: those of its first operand, otherwise of its result.
    """
    if first:
        return nest.elements(nest.inputs[operands[0]])
    if nest.operation.multiplies and not nest.product.uses_twice:
        return nest.elements(nest.output)
    return nest.product


def _cached(graph: Graph, block: Block, operation: Operation, others: Merged) -> dict[str, float]:
    """Return what an operation reads of keys and values of before, or of weights by an index. [B]

    By tensor.
    """
    return {
        tensor: graph.own_size(block, tensor)
        for tensor in dict.fromkeys(operation.reads)
        if of_before(graph, tensor)
        or (tensor in others.lies and graph.tensor[others.lies[tensor]].role is Role.WEIGHT)
    }


def _function_columns(operation: Operation, operands: tuple[int, ...]) -> dict[str, Any]:
    """Return what an operation is called, what it computes, and whether it may add up parts."""
    linear = {*operands} <= {*TABLE[operation.function].linear}
    return {
        "names": operation.name,
        "functions": operation.function.value,
        "row_wise": operation.kind in (OperationKind.REDUCTION, OperationKind.SCAN),
        "adds": operation.kind is OperationKind.ELEMENTWISE and linear,
    }


def _weight_columns(
    graph: Graph, block: Block, nest: LoopNest, others: Merged, *, matrices: bool, rows: bool
) -> dict[str, Any]:
    """Return the weight of an operation, its gradient's sum over chips, and who shares it."""
    operation = nest.operation
    of_weight = others.weights.get(operation.made, "")
    weights = [name for name, w in zip(operation.reads, nest.weights, strict=True) if w]
    own = weights[0] if matrices and len(weights) == 1 else ""
    weight, messages = own or of_weight, tuple[Communication, ...]()
    if of_weight and not rows:
        sent = graph.own_size(block, operation.made) + others.sent.get(operation.name, 0.0)
        messages = (Communication(collective=Collective.ALL_REDUCE, size=sent, periodic=True),)
    tensor = graph.tensor[own or operation.made]
    return {
        "messages": messages,
        "weight_size": graph.own_size(block, own) if own else 0.0,
        "weight_element": tensor.dtype.size,
        "weight_held": tensor.held_size,
        "weight_cast": tensor.cast_size,
        "sharers": graph.repeats(block) if weight and graph.shares(block, weight) else 1,
    }


def _expert_columns(
    graph: Graph, nest: LoopNest, product: ProductAxes, spread: Mapping[str, Places]
) -> dict[str, Any]:
    """Return among how many groups an operation works on places of some, and along which axis.

    One that adds up over the places has none of them left.
    """
    places = next((axis for axis in nest.loops if axis in spread), "")
    groups = [axis for axis in product.outer if graph.uses[axis] is AxisUse.GROUP]
    within = next((axis for g, axis in TILING.items() if places in getattr(product, g)), Axis.NONE)
    there = bool(places) and len(groups) == 1 and places not in product.outer
    token = {*spread[places].tokens} if there else set()
    there = there and not token & {*product.m, *product.k, *product.n}
    return {
        "experts": graph.sizes[groups[0]] if there else 0,
        "places": AXIS_CODE[within],
        "exchanged": False,
    }


def _stored(graph: Graph, nest: LoopNest, operands: tuple[int, ...]) -> tuple[float, ...]:
    """Return elements that a product reads of its operands and makes over those of its extents.

    What is multiplied with every tap of a window over the result is read once for all of them.
    More than one for a result: places that no window reaches are written, too. [1]
    """
    windows = nest.operation.windows
    taps = {w.tap for w in windows}
    added = [w.tap for w in windows if w.axis in nest.output]  # part of what is added up
    read = [nest.inputs[i] for i in operands]
    extents = [graph.count(union(nest.looped(axes), added)) for axes in read]
    shares = [min(graph.count(a) / n, 1.0) for a, n in zip(read, extents, strict=True)]
    places = [axis for axis in nest.looped(nest.output) if axis in nest.output or axis not in taps]
    made = graph.count(nest.output) / graph.count(places)
    return (*shares, *[1.0] * (2 - len(shares)), made)


def _exchanged(kernels: Sequence[LoweredKernel], experts: Sequence[int]) -> list[bool]:
    """Return whose results go from the chips of tokens to those of experts, or back.

    What is gathered from tokens into places, and what is scattered from places to tokens.
    """
    maker = {kernel.nest.operation.made: i for i, kernel in enumerate(kernels)}
    groups = {axis for axis, use in kernels[0].nest.uses.items() if use is AxisUse.GROUP}
    found = [False] * len(kernels)
    for i, kernel in enumerate(kernels):
        kind = kernel.nest.operation.kind
        if kind is OperationKind.GATHER and experts[i]:
            found[i] |= not groups & {*kernel.nest.inputs[0]}
        if kind is OperationKind.SCATTER and not groups & {*kernel.nest.output}:
            made = maker.get(kernel.reads[0])
            if made is not None and experts[made]:
                found[made] = True
    return found


def _elements(graph: Graph, operation: Operation, read: Sequence[str]) -> dict[str, Any]:
    """Return what an operation computes with, and bytes of an element of what it reads and makes.

    Of what it reads and makes the widest floating-point type, of a mix with single precision the
    widest besides, as that is what numbers are kept in; products, rows that are added up, and
    gradients of weights, of what they read alone, whatever they are added up in. Two operands are
    told, the last one again where there are fewer.
    """
    tensor = graph.tensor[operation.made]
    made, of_weight = tensor.dtype, tensor.of and graph.tensor[tensor.of].role is Role.WEIGHT
    types = [graph.tensor[name].dtype for name in operation.reads]
    scatters = operation.kind is OperationKind.SCATTER
    alone = operation.multiplies or scatters or of_weight
    floating = [d for d in (types if alone else [*types, made]) if d.floating]
    sizes = [*(graph.tensor[name].dtype.size for name in read), made.size, made.size]
    return {
        "dtypes": max(floating or [made], key=lambda d: (d.size < Dtype.FP32.size, d.size)),
        "input_element": sizes[:2],
        "output_element": made.size,
        "copies": int(operation.parameter) if operation.function is Function.QUANTIZE else 1,
    }


def _streams(graph: Graph) -> set[str]:
    """Return the axes that tiles are cut of: those of tokens, of more than one if there are any."""
    tokens = {axis for axis, use in graph.uses.items() if use is AxisUse.TOKEN}
    return {axis for axis in tokens if graph.sizes[axis] > 1} or tokens


def _tiling(graph: Graph, nest: LoopNest, product: ProductAxes) -> Axis:
    """Return what is cut into tiles, where anything is."""
    streams = _streams(graph)
    whole = nest.operation.kind is OperationKind.REDUCTION
    if whole and streams & {*nest.operation.over}:
        return Axis.NONE
    cut = (axis for group, axis in TILING.items() if streams & {*getattr(product, group)})
    return next(cut, Axis.NONE)


def _splits(
    graph: Graph, block: Block, nest: LoopNest, product: ProductAxes, operands: tuple[int, ...]
) -> dict[str, tuple[str, ...]]:
    """Return how tensors lie where the first axis of a group that may be split is.

    Of a product no axis is split that tiles are cut of; heads beside it in the same group are.
    """
    along = {split.along[0]: split for split in splits(graph, block, nest, (1,))}
    if product.uses_twice:
        along = {axis: split for axis, split in along.items() if axis not in _streams(graph)}
    found = {}
    for group in TILING:
        axis = next((axis for axis in getattr(product, group) if axis in along), None)
        if axis is not None:
            ends = along[axis]
            found[group] = (*(ends.inputs[i][0] for i in operands), ends.output[0])
    return found


def _adds_rows(graph: Graph, operation: Operation) -> bool:
    """Whether an operation adds to the rows of a table that were looked up, and to no others."""
    of = graph.tensor[operation.made].of
    scatters = operation.kind is OperationKind.SCATTER and of != ""
    return scatters and graph.tensor[of].role is Role.WEIGHT


def _operands(graph: Graph, operation: Operation) -> tuple[int, ...]:
    """Return which inputs count as operands of the kernel, two at most."""
    names = operation.reads
    roles = [graph.tensor[name].role for name in names]
    read = [i for i, role in enumerate(roles) if role not in _NO_OPERAND]
    if appends(graph, operation):
        return tuple(i for i in read if not of_before(graph, names[i]))
    if len(read) > 2:
        read = [i for i in read if names[i] in graph.makers or roles[i] is not Role.INDEX]
    if len(read) > 2:
        message = f"reads {len(read)} tensors; allowed: two besides weights and masks."
        raise InputError(Problem(operation.name, message))
    return tuple(read)


# ---------------------------------------------------------------- arrays


def _arrays(kernels: Sequence[LoweredKernel]) -> KernelGraph:
    edges, joins = _edges_and_joins(kernels)
    order, levels = topological_order(len(kernels), [edge[:2] for edge in edges])
    columns: dict[str, Any] = {
        name: tuple(kernel.columns[name] for kernel in kernels) for name in kernels[0].columns
    }
    columns["exchanged"] = _exchanged(kernels, columns["experts"])
    later = {name for kernel in kernels if kernel.block.twin for name in kernel.masks}
    columns["masked"] = [bool(k.masks & later) for k in kernels]
    columns["saved_mask"] = [bool(k.masks & later) and not k.block.twin for k in kernels]
    makers = {tensor: maker for maker, _, _, tensor, _ in edges}
    named = {name for kernel in kernels for ends in kernel.splits.values() for name in ends}
    layouts = (REPLICATED, PARTIAL, *sorted(named - {REPLICATED, PARTIAL}))
    table = np.full((len(kernels), len(TILING), 3), -1, dtype=np.int64)
    for i, kernel in enumerate(kernels):
        for group, (*inputs, output) in kernel.splits.items():
            row = table[i, AXIS_CODE[TILING[group]]]
            row[: len(inputs)], row[2] = [*map(layouts.index, inputs)], layouts.index(output)
    made = graph_of_columns(
        columns,
        [kernel.input_sizes for kernel in kernels],
        edges,
        joins,
        order,
        levels,
        [
            [None if known else name for name, known in zip(k.reads, k.cached, strict=True)]
            for k in kernels
        ],
        tensor_size=np.array([columns["output_size"][makers[t]] for t in range(len(makers))]),
        splits=table,
        layouts=layouts,
    )
    return replace(made, dispatched=_dispatched(kernels, columns["exchanged"]))


def _dispatched(kernels: Sequence[LoweredKernel], exchanged: Sequence[bool]) -> float:
    """Return bytes of an element that goes to experts, 0 where it is as it is made. [B]

    The parameter of what gathers tokens for them (`crosstack.workload.passes.dispatched`).
    """
    made = (kernel.nest.operation for kernel, sent in zip(kernels, exchanged, strict=True) if sent)
    return max((each.parameter for each in made if each.function is Function.GATHER), default=0.0)


def _edges_and_joins(kernels: Sequence[LoweredKernel]) -> tuple[list[Edge], list[Join]]:
    """Return edges by maker, then by reader, and what a block hands on to its next run.

    What a kernel hands to itself, as a sum over times, stays in the layout that it has.
    """
    maker = {kernel.nest.operation.made: i for i, kernel in enumerate(kernels)}
    reads = [
        (j, place, tensor)
        for j, kernel in enumerate(kernels)
        for place, tensor in enumerate(kernel.reads)
    ]
    found = sorted((maker[tensor], j, place) for j, place, tensor in reads if tensor in maker)
    numbers = {source: t for t, source in enumerate(dict.fromkeys(i for i, *_ in found))}
    edges = [(i, j, place, numbers[i], kernels[i].appends) for i, j, place in found]
    joins = sorted(
        (maker[after], j, place)
        for j, place, tensor in reads
        for before, after in kernels[j].block.carries
        if tensor == before and maker[after] != j
    )
    return edges, joins
