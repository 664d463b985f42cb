"""From a block of a graph of operations over named axes to the arrays that formulas compute with.

An operation becomes a kernel: ``outer`` products of M x K by K x N, or ``outer`` x M x N elements
(`crosstack.workload.loops.LoopNest.product`). The block and its twin of the backward pass are one
set of arrays; what comes from blocks before comes from outside, and what is carried from the copy
before (``join_*``).

* Operands are tensors that are no weight of a product, factor or term of a norm, mask or constant;
  the engine knows two of a kernel. An index from outside is left out where there are two others.
* Products in which one of M, N and K has no axis (taps of each channel's own, sums of products of
  two vectors, products without a sum) use no number twice: they are work in the lanes.
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
* What a mask of scores leaves out (later tokens, tokens behind a window) says ``density``.
* Of places for tokens that are sent to groups, as to experts, ``routing`` says how many are filled,
  and how many groups the tokens of some sequences are sent to.
* A mask is kept where the backward pass reads it. Nothing else has to be said of what is kept:
  edges to backward kernels do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import TABLE, OperationKind
from crosstack.workload.kernel_graph import AXIS_CODE, KernelGraph, edge_columns, routing_column
from crosstack.workload.kernels import Axis, Collective, Communication, Routing
from crosstack.workload.loops import LoopNest, ProductAxes
from crosstack.workload.operations import Block, Operation, Role
from crosstack.workload.ordering import topological_order
from crosstack.workload.passes.merged import Merged, appends, merged, of_before
from crosstack.workload.passes.routing import Places, places, routing_of
from crosstack.workload.sharding import PARTIAL, REPLICATED, splits

ROWS = (OperationKind.REDUCTION, OperationKind.SCAN)
_NO_OPERAND = (Role.WEIGHT, Role.MASK, Role.CONSTANT)
PLACES = ("n", "k", "m", "outer")  # where tokens are looked for, first to last
TILING = {"n": Axis.N, "k": Axis.K, "m": Axis.M, "outer": Axis.OUTER}
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
    others, spread = merged(graph, blocks, work), places(graph)
    return tuple(
        LoweredKernel.of(graph, each, operation, work, others, spread)
        for each in blocks
        for operation in each.operations
        if operation not in others
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoweredKernel:
    """What the arrays say of one operation.

    Parameters
    ----------
    block, nest
        Where it is, and what it loops over.
    dtype : Dtype
        Of what it makes.
    product : ProductAxes
        Its axes by what they are in products, or in the elements that it works on.
    splits : mapping
        By group of those axes: how its operands and its result lie where the first of the group
        that may be split is, see `crosstack.workload.sharding`.
    streams : frozenset of str
        Axes that data streams along.
    extents : mapping
        Of its groups of axes, see `crosstack.workload.loops.ProductAxes`. [1]
    operands : tuple of int
        Which of its inputs count. [1]
    reads : tuple of str
        The tensors that those lie in.
    input_sizes : tuple of float
        Bytes of those. [B]
    cached : tuple of bool
        Which of those are keys and values of before, or weights that were looked up.
    appends : bool
        Whether it puts new keys and values behind those of before.
    masks : frozenset of str
        Masks that it reads.
    output_size, weight_size, cache_size : float
        As in `KernelGraph`. [B]
    sharers : int
        As in `KernelGraph`. [1]
    density : tuple of float
        As in `KernelGraph`. [1]
    routing : Routing
        How tokens are spread over its groups.
    messages : tuple of Communication
        What it sends besides what its sharding causes.
    each : float
        Operations on each element that it makes. [FLOP]
    matrices : bool
        Whether it is a product of matrices: of vectors, no number is used twice, and lanes do it.
    """

    block: Block
    nest: LoopNest
    dtype: Dtype
    product: ProductAxes
    splits: dict[str, tuple[str, ...]]
    streams: frozenset[str]
    extents: dict[str, int]
    operands: tuple[int, ...]
    reads: tuple[str, ...]
    input_sizes: tuple[float, ...]
    cached: tuple[bool, ...]
    appends: bool
    masks: frozenset[str]
    output_size: float
    weight_size: float
    cache_size: float
    sharers: int
    density: tuple[float, float, float]
    routing: Routing
    messages: tuple[Communication, ...]
    each: float
    matrices: bool

    @classmethod
    def of(
        cls,
        graph: Graph,
        block: Block,
        operation: Operation,
        work: WorkOf,
        others: Merged,
        spread: Mapping[str, Places],
    ) -> LoweredKernel:
        """Return what the arrays say of an operation of a block.

        Parameters
        ----------
        graph, block, operation
            The operation and where it is.
        work : callable
            As `lowered`.
        others : Merged
            Operations that are no kernels of their own.
        spread : mapping
            Axes of places for tokens, see `crosstack.workload.passes.routing`.
        """
        nest, behind = graph.nest(block, operation), appends(graph, operation)
        operands = _operands(graph, operation)
        rows = _adds_rows(graph, operation)
        product, matrices = nest.product, operation.multiplies and nest.product.uses_twice
        if behind or rows:
            product = nest.elements(nest.inputs[operands[0]])
        elif operation.multiplies and not matrices:
            product = nest.elements(nest.output)
        extents = {g: graph.count(getattr(product, g)) for g in PLACES}

        def size(tensor: str) -> float:
            return graph.count(graph.own_axes(block, tensor)) * graph.tensor[tensor].dtype.size

        roles = {x.tensor: graph.tensor[x.tensor].role for x in operation.inputs}
        read = [operation.inputs[i].tensor for i in operands]
        lies = tuple(others.lies.get(tensor, tensor) for tensor in read)
        cached = {
            tensor: size(tensor)
            for tensor in roles
            if of_before(graph, tensor)
            or (tensor in others.lies and graph.tensor[others.lies[tensor]].role is Role.WEIGHT)
        }
        sizes, counted = tuple(map(size, read)), [*map(graph.counted, read), 1.0, 1.0]
        made = graph.tensor[operation.output.tensor]
        output = min(size(made.name), sizes[0]) if rows else size(made.name)
        of_weight = others.weights.get(made.name, "")
        looked_up = operation.kind is OperationKind.GATHER and nest.weights[0]
        elements = graph.count(nest.inputs[0] if rows else nest.output)
        weights = [i for i, weight in enumerate(nest.weights) if weight]
        own = matrices and len(weights) == 1
        weight = operation.inputs[weights[0]].tensor if own else of_weight
        sent = output + others.sent.get(operation.name, 0.0)
        summed = Communication(collective=Collective.ALL_REDUCE, size=sent, periodic=True)
        one = nest.work if operation.multiplies else work(operation)
        done = one * graph.count(nest.loops) + others.work.get(operation.name, 0.0)
        return cls(
            block=block,
            nest=nest,
            dtype=made.dtype,
            product=product,
            splits=_splits(graph, block, nest, product, operands),
            streams=_streams(graph),
            extents=extents,
            operands=operands,
            reads=lies,
            input_sizes=sizes,
            cached=tuple(tensor in cached for tensor in read),
            appends=behind,
            masks=frozenset(name for name, role in roles.items() if role is Role.MASK),
            output_size=output,
            cache_size=sum(cached.values()) + output * looked_up,
            weight_size=size(weight) if own else 0.0,
            sharers=graph.repeats(block) if weight and graph.shares(block, weight) else 1,
            density=(counted[0], counted[1], graph.counted(made.name)),
            routing=routing_of(graph, nest, spread),
            messages=(summed,) if of_weight and not rows else (),
            each=1.0 if matrices else done / elements,
            matrices=matrices,
        )

    @property
    def backward(self) -> bool:
        """Whether it belongs to the backward pass."""
        return self.block.twin != ""

    @property
    def adds(self) -> bool:
        """Whether it makes parts of sums of operands that are, element by element."""
        operation = self.nest.operation
        linear = {*TABLE[operation.function].linear}
        return operation.kind is OperationKind.ELEMENTWISE and {*self.operands} <= linear

    @property
    def tiling(self) -> int:
        """Place in the arrays' axes of what is cut into tiles."""
        nest, product = self.nest, self.product
        whole = nest.operation.kind is OperationKind.REDUCTION
        if whole and self.streams & {*nest.operation.over}:
            return AXIS_CODE[Axis.NONE]
        cut = (TILING[place] for place in PLACES if self.streams & {*getattr(product, place)})
        return AXIS_CODE[next(cut, Axis.NONE)]


def _splits(
    graph: Graph, block: Block, nest: LoopNest, product: ProductAxes, operands: tuple[int, ...]
) -> dict[str, tuple[str, ...]]:
    """Return how operands and result lie where each group of axes is split.

    Parameters
    ----------
    graph, block, nest
        The operation and where it is.
    product : ProductAxes
        Its groups of axes.
    operands : tuple of int
        Which of its inputs count. [1]
    """
    along = {split.along[0]: split for split in splits(graph, block, nest, (1,))}
    found = {}
    for group in PLACES:
        axis = next((axis for axis in getattr(product, group) if axis in along), None)
        if axis is not None:
            ends = along[axis]
            found[group] = (*(ends.inputs[i][0] for i in operands), ends.output[0])
    return found


def _adds_rows(graph: Graph, operation: Operation) -> bool:
    """Whether an operation adds to the rows of a table that were looked up, and to no others."""
    made = graph.tensor[operation.output.tensor]
    scatters = operation.kind is OperationKind.SCATTER and made.of != ""
    return scatters and graph.tensor[made.of].role is Role.WEIGHT


def _streams(graph: Graph) -> frozenset[str]:
    """Return the axes that data streams along: of tokens, and if there is one, of more than one."""
    tokens = frozenset(axis for axis, use in graph.uses.items() if use is AxisUse.TOKEN)
    return frozenset(axis for axis in tokens if graph.sizes[axis] > 1) or tokens


def _operands(graph: Graph, operation: Operation) -> tuple[int, ...]:
    """Return which inputs count as operands of the kernel, two at most."""
    roles = [graph.tensor[x.tensor].role for x in operation.inputs]
    read = [i for i, role in enumerate(roles) if role not in _NO_OPERAND]
    if appends(graph, operation):
        return tuple(i for i in read if not of_before(graph, operation.inputs[i].tensor))
    if len(read) > 2:
        inside = [operation.inputs[i].tensor in graph.makers for i in range(len(roles))]
        read = [i for i in read if inside[i] or roles[i] is not Role.INDEX]
    if len(read) > 2:
        message = f"reads {len(read)} tensors; allowed: two besides weights and masks."
        raise InputError(Problem(operation.name, message))
    return tuple(read)


def _edges(kernels: Sequence[LoweredKernel]) -> list[tuple[int, int, int, int]]:
    """Return (maker, reader, operand, tensor), by maker, then by reader."""
    maker = {k.nest.operation.output.tensor: i for i, k in enumerate(kernels)}
    found = sorted(
        (maker[tensor], j, place)
        for j, kernel in enumerate(kernels)
        for place, tensor in enumerate(kernel.reads)
        if tensor in maker
    )
    numbers = {source: t for t, source in enumerate(dict.fromkeys(i for i, *_ in found))}
    return [(i, j, place, numbers[i]) for i, j, place in found]


def _joins(kernels: Sequence[LoweredKernel]) -> list[tuple[int, int, int]]:
    """Return (maker, reader, operand) of what a block hands on to the next time that it runs.

    What a kernel hands to itself, as a sum over times, stays in the layout that it has.
    """
    maker = {k.nest.operation.output.tensor: i for i, k in enumerate(kernels)}
    return sorted(
        (maker[after], j, place)
        for j, kernel in enumerate(kernels)
        for place, tensor in enumerate(kernel.reads)
        for before, after in kernel.block.carries
        if tensor == before and maker[after] != j
    )


def _arrays(kernels: Sequence[LoweredKernel]) -> KernelGraph:
    n, edges = len(kernels), _edges(kernels)
    joins = np.array(_joins(kernels), dtype=np.int64).reshape(-1, 3)
    order, levels = topological_order(n, [(i, j) for i, j, *_ in edges])
    table = np.array(edges, dtype=np.int64).reshape(-1, 4)
    dtype = _dtype(kernels)
    made = dict(table[:, [3, 0]].tolist())  # the maker of every tensor
    output_size = np.array([x.output_size for x in kernels])
    return KernelGraph(
        n=n,
        word=int(dtype.size),
        dtype=dtype,
        **_extents(kernels),
        **_operand_arrays(kernels, table),
        **_costs(kernels),
        **_split_arrays(kernels),
        **_flags(kernels),
        output_size=output_size,
        tensor_size=output_size[[made[t] for t in range(len(made))]],
        open_output=~np.isin(np.arange(n), table[:, 0]),
        source=table[:, 0].copy(),
        target=table[:, 1].copy(),
        operand=table[:, 2].copy(),
        tensor=table[:, 3].copy(),
        elided=np.array([kernels[i].appends for i, *_ in edges], dtype=np.bool_),
        join_source=joins[:, 0].copy(),
        join_target=joins[:, 1].copy(),
        join_operand=joins[:, 2].copy(),
        order=order,
        names=tuple(kernel.nest.operation.name for kernel in kernels),
        **edge_columns(table[:, 0], table[:, 1], levels),
    )


def _dtype(kernels: Sequence[LoweredKernel]) -> Dtype:
    """Return what kernels compute with: the type of what products make, if there are any."""
    products = [k for k in kernels if k.matrices]
    found = Counter(k.dtype for k in products or kernels)
    dtype = max(found, key=lambda each: found[each])
    if dtype.size < 1:
        raise InputError(Problem("dtype", f"got {dtype.value}; allowed: whole bytes an element."))
    return dtype


def _extents(kernels: Sequence[LoweredKernel]) -> dict[str, Any]:
    outer, m, k, n = (
        np.array([x.extents[g] for x in kernels], dtype=np.int64) for g in ("outer", "m", "k", "n")
    )
    tiling = np.array([x.tiling for x in kernels], dtype=np.int64)
    return {"outer": outer, "m": m, "k": k, "columns": n, "rows": outer * m, "tiling": tiling}


def _operand_arrays(kernels: Sequence[LoweredKernel], table: np.ndarray) -> dict[str, Any]:
    n = len(kernels)
    sizes, unfed = np.zeros((n, 2)), np.zeros((n, 2), dtype=np.bool_)
    for i, kernel in enumerate(kernels):
        count = len(kernel.operands)
        sizes[i, :count] = kernel.input_sizes
        unfed[i, :count] = [not cached for cached in kernel.cached]
    unfed[table[:, 1], table[:, 2]] = False
    numbers: dict[str, int] = {}
    outside = np.full((n, 2), -1, dtype=np.int64)
    for i, place in np.argwhere(unfed).tolist():
        outside[i, place] = numbers.setdefault(kernels[i].reads[place], len(numbers))
    two = np.array([len(kernel.operands) == 2 for kernel in kernels])
    return {"input_sizes": sizes, "open_inputs": unfed, "outside": outside, "two_inputs": two}


def _split_arrays(kernels: Sequence[LoweredKernel]) -> dict[str, Any]:
    named = {name for kernel in kernels for ends in kernel.splits.values() for name in ends}
    layouts = (REPLICATED, PARTIAL, *sorted(named - {REPLICATED, PARTIAL}))
    number = {name: i for i, name in enumerate(layouts)}
    table = np.full((len(kernels), len(PLACES), 3), -1, dtype=np.int64)
    for i, kernel in enumerate(kernels):
        for group, (*inputs, output) in kernel.splits.items():
            row = table[i, AXIS_CODE[TILING[group]]]
            row[: len(inputs)], row[2] = [number[name] for name in inputs], number[output]
    return {"splits": table, "layouts": layouts}


def _costs(kernels: Sequence[LoweredKernel]) -> dict[str, Any]:
    nothing = np.zeros(len(kernels))
    return {
        "repeats": np.array([x.each for x in kernels]),
        "cache_size": np.array([x.cache_size for x in kernels]),
        "operations": np.array([max(1, round(x.each)) for x in kernels], dtype=np.int64),
        "weight_size": np.array([x.weight_size for x in kernels]),
        "sharers": np.array([x.sharers for x in kernels], dtype=np.int64),
        "density": np.array([x.density for x in kernels]),
        "routing": routing_column(x.routing for x in kernels),
        "messages": tuple(x.messages for x in kernels),
        "periodic_size": np.array([sum((c.size for c in x.messages), 0.0) for x in kernels]),
        "memory_traffic": nothing,
        "sram_extra": nothing,
        "memory_extra": nothing,
    }


def _flags(kernels: Sequence[LoweredKernel]) -> dict[str, Any]:
    nothing = np.zeros(len(kernels), dtype=np.bool_)
    multiplies = np.array([kernel.matrices for kernel in kernels])
    backward = np.array([kernel.backward for kernel in kernels])
    later = frozenset(name for kernel in kernels if kernel.backward for name in kernel.masks)
    return {
        "systolic": multiplies,
        "gemm": multiplies.copy(),
        "has_weight": np.array([kernel.weight_size > 0 for kernel in kernels]),
        "backward": backward,
        "counted_inputs": nothing,
        "row_wise": np.array([kernel.nest.operation.kind in ROWS for kernel in kernels]),
        "adds": np.array([kernel.adds for kernel in kernels]),
        "saved_input": nothing,
        "saved_output": nothing,
        "saved_mask": np.array([bool(kernel.masks & later) for kernel in kernels]) & ~backward,
    }
