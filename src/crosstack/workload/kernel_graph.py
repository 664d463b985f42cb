"""Kernels and the tensors that join them, as arrays: what formulas and the search compute with.

Kernels are numbered in listing order, edges (one per tensor and consumer) in tensor order. Axes
are numbered as in `AXES`. A graph is made of a list of kernels (`kernel_graph`), or of operations
over named axes (`crosstack.workload.lowering`).

Source of what a kernel is: the dataflow graph of ``ko2025dfmodel`` (section III.B); here a tensor
with several readers is one tensor, where the source keeps one copy a reader.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import MOST_SHOWN, InputError, Problem, nearest, require, require_whole
from crosstack.records import known_again, require_type
from crosstack.workload.dtype import Dtype, dtype_of_word
from crosstack.workload.kernels import (
    Axis,
    Communication,
    ComputeUnit,
    Consumer,
    Direction,
    Kernel,
    KernelKind,
    Routing,
    Saved,
    Tensor,
)
from crosstack.workload.ordering import cycle_of, topological_order

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

AXES: tuple[Axis, ...] = (Axis.OUTER, Axis.M, Axis.K, Axis.N, Axis.NONE, Axis.PARTIAL)
AXIS_CODE: dict[Axis, int] = {axis: i for i, axis in enumerate(AXES)}
ROUNDING = 1e-6  # relative: published files round sizes to about eight digits
SIZES_DISAGREE = "sizes disagree"  # how the problem of an operand begins
_SAVED = (Saved.INPUT, Saved.OUTPUT, Saved.MASK)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelGraph:
    """The n kernels and the m edges of a graph; acyclic.

    ``word`` is bytes of one element, ``dtype`` what kernels compute with, ``names`` are unique.
    ``rows`` is outer x M, ``repeats`` counts inputs (where ``counted_inputs``) times ``operations``
    on each element. ``splits`` (n, 4, 3): how both operands and the result of a kernel lie where it
    is split by outer, M, K or N, as places in ``layouts``, names of axes; -1 where it cannot be.
    ``adds``: whether a kernel may add up parts of sums, element by element. Lists say neither,
    their ``splits`` are empty. ``open_inputs`` (n, 2) tells which operands no edge feeds,
    ``outside`` (n, 2) the number of the tensor that each of those is, the same for all its readers,
    -1 where that is not known, as in lists; ``open_output`` which results no edge takes;
    ``saved_*`` what the backward pass needs of a forward kernel (`Saved`); ``density`` and
    ``routing`` (n, 3) as `Kernel.density` and `Routing`; ``messages`` what each kernel sends
    besides what its sharding causes; ``sharers`` how many copies of the graph have one weight, or
    one gradient of a weight that a kernel adds to, in common, 1 where each has its own, as in
    lists. ``preds`` and ``succs`` are bit masks over kernels;
    ``source``, ``target``, ``operand`` and ``tensor`` are columns of edges, ``tensor_size`` [B] one
    of tensors. ``levels`` is the longest way from a kernel that needs nothing; ``depth`` how many
    tiles of a tensor an on-chip edge holds so that reconvergent paths do not stall: levels apart
    plus one (``dfmodel_code``). ``join_*``: results that one copy of the graph hands to the next,
    and the operands they become there.
    """

    n: int
    word: int
    dtype: Dtype
    names: tuple[str, ...]
    outer: Ints
    m: Ints
    k: Ints
    columns: Ints
    rows: Ints
    systolic: Bools
    gemm: Bools
    two_inputs: Bools
    has_weight: Bools
    open_inputs: Bools
    outside: Ints
    open_output: Bools
    tiling: Ints
    backward: Bools
    repeats: Floats
    operations: Ints
    counted_inputs: Bools
    row_wise: Bools
    splits: Ints
    layouts: tuple[str, ...]
    adds: Bools
    memory_traffic: Floats
    cache_size: Floats
    sram_extra: Floats
    memory_extra: Floats
    saved_input: Bools
    saved_output: Bools
    saved_mask: Bools
    density: Floats
    routing: Floats
    messages: tuple[tuple[Communication, ...], ...]
    weight_size: Floats
    sharers: Ints
    output_size: Floats
    input_sizes: Floats
    tensor_size: Floats
    source: Ints
    target: Ints
    operand: Ints
    tensor: Ints
    elided: Bools
    join_source: Ints
    join_target: Ints
    join_operand: Ints
    depth: Ints
    levels: tuple[int, ...]
    order: tuple[int, ...]
    preds: tuple[int, ...]
    succs: tuple[int, ...]
    periodic_size: Floats
    # All columns as one value, and its hash, once they were asked for.
    value: tuple[Any, ...] | None = field(default=None, init=False)
    digest: int | None = field(default=None, init=False)

    def __eq__(self, other: object) -> bool:
        """Whether all columns are the same; graphs that are have one value from then on."""
        if not isinstance(other, KernelGraph):
            return NotImplemented
        if self is other or (self.value is not None and self.value is other.value):
            return True
        same = hash(self) == hash(other) and self.value == other.value
        if same:
            object.__setattr__(other, "value", self.value)
        return same

    def __hash__(self) -> int:
        """Return a digest of all columns, kept: graphs are keys of what is known of them."""
        if self.digest is None:
            values = (getattr(self, name) for name in _COLUMNS)
            value = tuple(v.tobytes() if isinstance(v, np.ndarray) else v for v in values)
            object.__setattr__(self, "value", value)
            object.__setattr__(self, "digest", hash(value))
        return self.digest or 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the columns alone: another process has other hashes of text."""
        return _of_columns, tuple(getattr(self, name) for name in _COLUMNS)

    def __repr__(self) -> str:
        """Say how large it is."""
        joined = f"{self.n:,} kernels, {len(self.tensor_size):,} tensors"
        return f"KernelGraph({joined}, word={self.word}, dtype={self.dtype.value!r})"

    def __len__(self) -> int:
        """Return the number of kernels."""
        return self.n

    # ------------------------------------------------------------ work and weights

    @property
    def work(self) -> Floats:
        """Operations of each kernel for one sequence, as `Kernel.work`. [FLOP]"""
        elements = self.rows * self.columns * self.repeats * self.routing[:, 2]
        return np.asarray(elements * np.where(self.systolic, 2.0 * self.k, 1.0))

    @property
    def total_work(self) -> float:
        """Operations of all kernels for one sequence. [FLOP]"""
        return float(sum(self.work.tolist()))

    @property
    def total_weight_size(self) -> float:
        """Bytes of all weights. [B]"""
        return float(sum(self.weight_size.tolist()))

    @property
    def has_backward(self) -> bool:
        """Whether any kernel belongs to the backward pass."""
        return bool(self.backward.any())

    @property
    def shares_weights(self) -> bool:
        """Whether copies of the graph have weights in common."""
        return bool((self.sharers > 1).any())

    @property
    def index(self) -> Mapping[str, int]:
        """Number of every kernel by its name. [1]"""
        return _index(self)

    # ------------------------------------------------------------ as a list

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels as a list of records."""
        return _listed_kernels(self)

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensors as a list of records."""
        return _listed_tensors(self)

    def listing(
        self, kernels: Sequence[Kernel] | None = None, tensors: Sequence[Tensor] | None = None
    ) -> KernelGraph:
        """Return the graph with other kernels or tensors, see `kernel_graph`."""
        return kernel_graph(
            kernels=self.kernels if kernels is None else kernels,
            tensors=self.tensors if tensors is None else tensors,
            word=self.word,
            dtype=self.dtype,
        )

    def kernel(self, i: int) -> Kernel:
        """Return kernel ``i`` as a record."""
        kind, kept = self.kind(i), (self.saved_input, self.saved_output, self.saved_mask)
        saved = next((s for s, some in zip(_SAVED, kept, strict=True) if some[i]), Saved.NOTHING)
        repeats = max(1, round(float(self.repeats[i]) / int(self.operations[i])))
        return Kernel(
            name=self.names[i],
            kind=kind,
            m=int(self.m[i]),
            n=int(self.columns[i]),
            k=int(self.k[i]),
            outer=int(self.outer[i]),
            output_size=float(self.output_size[i]),
            input_sizes=tuple(self.input_sizes[i, : kind.n_inputs].tolist()),
            weight_size=float(self.weight_size[i]),
            unit=ComputeUnit.SYSTOLIC if self.systolic[i] else ComputeUnit.SIMD,
            tiling=AXES[self.tiling[i]],
            direction=Direction.BACKWARD if self.backward[i] else Direction.FORWARD,
            memory_traffic=float(self.memory_traffic[i]),
            communications=self.messages[i],
            repeats=repeats if self.counted_inputs[i] else None,
            operations=int(self.operations[i]),
            cache_size=float(self.cache_size[i]),
            sram_extra=float(self.sram_extra[i]),
            memory_extra=float(self.memory_extra[i]),
            saved=saved,
            row_wise=bool(self.row_wise[i]),
            density=tuple(self.density[i].tolist()),
            routing=Routing(**dict(zip(_ROUTING, self.routing[i].tolist(), strict=True))),
        )

    def kind(self, i: int) -> KernelKind:
        """What kernel ``i`` computes and where its operands come from."""
        if self.gemm[i]:
            return KernelKind.GEMM if self.two_inputs[i] else KernelKind.GEMM_WEIGHT
        return KernelKind.ELEMENTWISE_2 if self.two_inputs[i] else KernelKind.ELEMENTWISE


_ROUTING = tuple(f.name for f in fields(Routing))
_COLUMNS = tuple(f.name for f in fields(KernelGraph) if f.init)


@known_again(16)
def _index(graph: KernelGraph) -> Mapping[str, int]:
    return {name: i for i, name in enumerate(graph.names)}


@known_again(16)
def _listed_kernels(graph: KernelGraph) -> tuple[Kernel, ...]:
    return tuple(graph.kernel(i) for i in range(graph.n))


@known_again(16)
def _listed_tensors(graph: KernelGraph) -> tuple[Tensor, ...]:
    readers: list[list[Consumer]] = [[] for _ in graph.tensor_size]
    makers = [0] * len(readers)
    for e, t in enumerate(graph.tensor.tolist()):
        makers[t] = int(graph.source[e])
        name, operand = graph.names[graph.target[e]], int(graph.operand[e])
        readers[t].append(Consumer(kernel=name, operand=operand, elided=bool(graph.elided[e])))
    return tuple(
        Tensor(producer=graph.names[i], consumers=tuple(some), size=float(size))
        for i, some, size in zip(makers, readers, graph.tensor_size, strict=True)
    )


def _of_columns(*columns: Any) -> KernelGraph:
    return KernelGraph(**dict(zip(_COLUMNS, columns, strict=True)))


def bits(mask: int) -> list[int]:
    """Return the positions of the bits of ``mask``, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


# ---------------------------------------------------------------- from a list


def kernel_graph(
    *,
    kernels: Sequence[Kernel],
    tensors: Sequence[Tensor],
    word: int,
    dtype: Dtype | None = None,
) -> KernelGraph:
    """Return the graph of kernels and tensors that are listed.

    Parameters
    ----------
    kernels : sequence of Kernel
        In listing order, any order.
    tensors : sequence of Tensor
        One per producer that has readers.
    word : int
        Bytes of one element. [B]
    dtype : Dtype or None
        What kernels compute with; None: what fills the word, see
        `crosstack.workload.dtype.dtype_of_word`.

    Raises
    ------
    InputError
        With every problem found: duplicate names, readers that do not exist, sizes that
        disagree, a cycle.
    """
    require_type("kernels", kernels, tuple[Kernel, ...])
    require_type("tensors", tensors, tuple[Tensor, ...])
    require_type("dtype", dtype, Dtype | None)
    require(len(kernels) > 0, "kernels", len(kernels), "at least one kernel")
    require_whole("word", word, what="bytes")
    index: dict[str, int] = {}
    problems: list[Problem] = []
    for i, kernel in enumerate(kernels):
        if kernel.name in index:
            first = index[kernel.name]
            message = f"duplicate kernel name {kernel.name!r}; kernels[{first}] has it already."
            problems.append(Problem(f"kernels[{i}].name", message))
        index.setdefault(kernel.name, i)
    problems.extend(_tensor_problems(kernels, tensors, index))
    if problems:
        raise InputError(problems)
    edges = [
        (index[tensor.producer], index[c.kernel], c.operand, t, c.elided)
        for t, tensor in enumerate(tensors)
        for c in tensor.consumers
    ]
    pairs = [edge[:2] for edge in edges]
    order, levels = topological_order(len(kernels), pairs)
    if len(order) < len(kernels):
        loop = " -> ".join(kernels[i].name for i in cycle_of(len(kernels), pairs, order))
        raise InputError(Problem("tensors", f"the graph has a cycle: {loop}."))
    table = np.array([e[:4] for e in edges], dtype=np.int64).reshape(-1, 4)
    inputs, unfed = _operands(kernels, table)
    joins = _joins(kernels, unfed, {edge[0] for edge in edges})
    return KernelGraph(
        n=len(kernels),
        word=word,
        dtype=dtype or dtype_of_word(word),
        **_columns(kernels),
        input_sizes=inputs,
        open_inputs=unfed,
        outside=np.full(unfed.shape, -1, dtype=np.int64),
        open_output=~np.isin(np.arange(len(kernels)), table[:, 0]),
        tensor_size=np.array([tensor.size for tensor in tensors], dtype=np.float64),
        source=table[:, 0].copy(),
        target=table[:, 1].copy(),
        operand=table[:, 2].copy(),
        tensor=table[:, 3].copy(),
        elided=np.array([e[4] for e in edges], dtype=np.bool_),
        join_source=joins[:, 0].copy(),
        join_target=joins[:, 1].copy(),
        join_operand=joins[:, 2].copy(),
        order=order,
        **edge_columns(table[:, 0], table[:, 1], levels),
    )


def routing_column(some: Iterable[Routing]) -> Floats:
    """Return the column of a graph that says how tokens are spread."""
    return np.array([[getattr(x, name) for name in _ROUTING] for x in some], dtype=np.float64)


def edge_columns(source: Ints, target: Ints, levels: tuple[int, ...]) -> dict[str, Any]:
    """Return the columns of a graph that follow from its edges and the level of every kernel.

    Parameters
    ----------
    source, target : ndarray of int, shape (edges,)
        Kernels that an edge joins. [1]
    levels : tuple of int
        See `KernelGraph`. [1]
    """
    preds, succs = [0] * len(levels), [0] * len(levels)
    for i, j in zip(source.tolist(), target.tolist(), strict=True):
        preds[j] |= 1 << i
        succs[i] |= 1 << j
    level = np.array(levels, dtype=np.int64)
    depth = level[target] - level[source] + 1
    return {"levels": levels, "depth": depth, "preds": tuple(preds), "succs": tuple(succs)}


def _columns(kernels: Sequence[Kernel]) -> dict[str, Any]:
    def ints(values: Iterable[int]) -> Ints:
        return np.array(tuple(values), dtype=np.int64)

    def reals(values: Iterable[float]) -> Floats:
        return np.array(tuple(values), dtype=np.float64)

    def bools(values: Iterable[bool]) -> Bools:
        return np.array(tuple(values), dtype=np.bool_)

    outer, m = ints(x.outer for x in kernels), ints(x.m for x in kernels)
    return {
        "names": tuple(x.name for x in kernels),
        "outer": outer,
        "m": m,
        "k": ints(x.k for x in kernels),
        "columns": ints(x.n for x in kernels),
        "rows": outer * m,
        "systolic": bools(x.unit is ComputeUnit.SYSTOLIC for x in kernels),
        "gemm": bools(x.kind.is_gemm for x in kernels),
        "two_inputs": bools(x.kind.n_inputs == 2 for x in kernels),
        "has_weight": bools(x.weight_size > 0 for x in kernels),
        "tiling": ints(AXIS_CODE[x.tiling] for x in kernels),
        "backward": bools(x.direction is Direction.BACKWARD for x in kernels),
        "repeats": reals(float((x.repeats or 1) * x.operations) for x in kernels),
        "operations": ints(x.operations for x in kernels),
        "counted_inputs": bools(x.repeats is not None for x in kernels),
        "row_wise": bools(x.row_wise for x in kernels),
        "splits": np.zeros((0, 4, 3), dtype=np.int64),
        "layouts": (),
        "adds": bools(False for _ in kernels),
        "memory_traffic": reals(x.memory_traffic for x in kernels),
        "cache_size": reals(x.cache_size for x in kernels),
        "sram_extra": reals(x.sram_extra for x in kernels),
        "memory_extra": reals(x.memory_extra for x in kernels),
        "saved_input": bools(x.saved is Saved.INPUT for x in kernels),
        "saved_output": bools(x.saved is Saved.OUTPUT for x in kernels),
        "saved_mask": bools(x.saved is Saved.MASK for x in kernels),
        "density": np.array([x.density for x in kernels], dtype=np.float64),
        "routing": routing_column(x.routing for x in kernels),
        "messages": tuple(x.communications for x in kernels),
        "periodic_size": reals(
            sum(c.size for c in x.communications if c.periodic) for x in kernels
        ),
        "weight_size": reals(x.weight_size for x in kernels),
        "sharers": ints(1 for _ in kernels),
        "output_size": reals(x.output_size for x in kernels),
    }


def _operands(kernels: Sequence[Kernel], table: Ints) -> tuple[Floats, Bools]:
    """Return bytes of every operand, and which of them no edge feeds."""
    sizes = np.zeros((len(kernels), 2))
    unfed = np.zeros((len(kernels), 2), dtype=np.bool_)
    for i, kernel in enumerate(kernels):
        sizes[i, : len(kernel.input_sizes)] = kernel.input_sizes
        unfed[i, : len(kernel.input_sizes)] = True
    unfed[table[:, 1], table[:, 2]] = False
    return sizes, unfed


def _joins(kernels: Sequence[Kernel], open_inputs: Bools, taken: set[int]) -> Ints:
    """Return (producer, reader, operand) of what one copy of a graph hands to the next.

    A result that no kernel reads becomes the operands of the same direction and bytes that none
    makes, but for its own kernel's. Sums over the batch, as gradients of weights, stay.
    """
    found = []
    for i, maker in enumerate(kernels):
        if i in taken or any(c.periodic for c in maker.communications):
            continue
        for j, operand in np.argwhere(open_inputs).tolist():
            size, reader = kernels[j].input_sizes[operand], kernels[j]
            same = abs(size - maker.output_size) <= ROUNDING * size
            if same and i != j and reader.direction is maker.direction:
                found.append((i, j, operand))
    return np.array(found, dtype=np.int64).reshape(-1, 3)


# ---------------------------------------------------------------- checks


def _same_size(a: float, b: float) -> bool:
    return abs(a - b) <= ROUNDING * max(abs(a), abs(b))


def _tensor_problems(
    kernels: Sequence[Kernel], tensors: Sequence[Tensor], index: Mapping[str, int]
) -> list[Problem]:
    problems: list[Problem] = []
    producers: set[str] = set()
    fed: dict[tuple[str, int], str] = {}

    def unknown(path: str, name: str) -> None:
        # Looking for the nearest of thousands of names takes a while.
        close = nearest(name, index) if len(problems) < MOST_SHOWN else []
        hint = f" Nearest: {', '.join(repr(c) for c in close)}." if close else ""
        problems.append(Problem(path, f"no kernel is called {name!r}.{hint}"))

    for t, tensor in enumerate(tensors):
        path, maker = f"tensors[{t}]", tensor.producer
        if maker not in index:
            unknown(f"{path}.producer", maker)
            continue
        if maker in producers:
            problems.append(Problem(f"{path}.producer", f"{maker!r} already makes a tensor."))
        producers.add(maker)
        made = kernels[index[maker]].output_size
        if not _same_size(tensor.size, made):
            message = f"got {tensor.size:.17g} B, but {maker!r} makes {made:.17g} B."
            problems.append(Problem(f"{path}.size", message))
        for c, consumer in enumerate(tensor.consumers):
            where = f"{path}.consumers[{c}]"
            if consumer.kernel not in index:
                unknown(where, consumer.kernel)
                continue
            reader = kernels[index[consumer.kernel]]
            problems += _reader_problems(where, reader, consumer, tensor, fed)
            if not consumer.elided:
                fed.setdefault((consumer.kernel, consumer.operand), maker)
    return problems


def _reader_problems(
    where: str,
    reader: Kernel,
    consumer: Consumer,
    tensor: Tensor,
    fed: Mapping[tuple[str, int], str],
) -> Iterator[Problem]:
    operand, maker = consumer.operand, tensor.producer
    if not 0 <= operand < reader.kind.n_inputs:
        allowed = "0" if reader.kind.n_inputs == 1 else "0 or 1"
        message = f"got {operand}; allowed for {reader.name!r}: {allowed}."
        yield Problem(f"{where}.operand", message)
        return
    first = fed.get((consumer.kernel, operand))
    if not consumer.elided and first is not None:
        message = f"operand {operand} of {reader.name!r} is already what {first!r} makes"
        yield Problem(where, f"{message}; allowed: one tensor an operand.")
    size = reader.input_sizes[operand]
    if not _same_size(size, tensor.size):
        message = f"{SIZES_DISAGREE}: {maker!r} makes {tensor.size:.17g} B, "
        yield Problem(where, f"{message}operand {operand} of {reader.name!r} is {size:.17g} B.")
