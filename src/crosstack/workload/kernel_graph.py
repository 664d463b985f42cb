"""Kernels and the tensors that join them, as arrays: what formulas and the search compute with.

Kernels are numbered in listing order, edges (one per tensor and consumer) in tensor order, axes as
in `AXES`. A graph is made of a list (`kernel_graph`), or by `crosstack.workload.lowering`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require, require_whole
from crosstack.records import known_again, require_type
from crosstack.workload.dtype import Dtype, dtype_of_word
from crosstack.workload.functions import Function
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
from crosstack.workload.validation import twice, unknown

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

AXES: tuple[Axis, ...] = (Axis.OUTER, Axis.M, Axis.K, Axis.N, Axis.NONE, Axis.PARTIAL)
AXIS_CODE: dict[Axis, int] = {axis: i for i, axis in enumerate(AXES)}
ROUNDING = 1e-6  # relative: published files round sizes to about eight digits
SIZES_DISAGREE = "sizes disagree"  # how the problem of an operand begins
# Columns that are fields of a kernel, by the same name.
_SAME = (
    "outer", "m", "k", "operations", "row_wise", "memory_traffic", "cache_size", "sram_extra",
    "memory_extra", "density", "weight_size", "output_size",
)  # fmt: skip
_SAVED = {"saved_input": Saved.INPUT, "saved_output": Saved.OUTPUT, "saved_mask": Saved.MASK}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class KernelGraph:
    """The n kernels and the m edges of a graph; acyclic.

    ``names`` are unique. ``functions``: what each kernel computes, by the word of
    `crosstack.workload.functions.Function`, empty in lists, which do not say it. ``dtypes``: what
    each kernel computes with; ``input_element`` (n, 2), ``weight_element`` and ``output_element``:
    bytes of one element of its operands, of its weight and of its result, ``copies``: how often it
    writes that; ``weight_held`` and ``weight_cast``: bytes of main memory that an element of its
    weight takes in all copies that are held, and that casting it from one to the others once an
    iteration moves. [B], [1] ``rows`` is outer x M, ``repeats`` counts inputs (where
    ``counted_inputs``) times ``operations`` on each element. ``splits`` (n, 4, 3): how both
    operands and the result of a kernel lie where it is split by outer, M, K or N, as places in
    ``layouts``, names of axes; -1 where it cannot be. ``adds``: whether a kernel may add up parts
    of sums, element by element. Lists have neither. ``open_inputs`` (n, 2) tells which operands no
    edge feeds, ``outside`` (n, 2) the number of the tensor that each of those is, the same for all
    its readers, -1 where that is not known, as in lists; ``open_output`` which results no edge
    takes; ``stored`` (n, 3): elements of each operand that a product reads, and of its result, over
    those that its extents say, other than 1 where windows overlap; ``reread``: bytes of its
    operands that a kernel reads once more, wherever they are [B]; ``saved_*`` what the backward
    pass needs of a forward kernel (`Saved`); ``masked``: whether a kernel writes such a mask, or
    reads it; ``remade``: the kernel whose result one makes once more, -1 for others
    (`crosstack.model.fused_attention`); ``density`` (n, 3), ``routing`` (n, 5) as
    `Kernel.density` and `Routing`; ``messages`` what each kernel sends besides what its sharding
    causes; ``sharers`` how many copies of the graph have one weight, or one gradient of a weight
    that a kernel adds to, in common, 1 where each has its own, as in lists. ``experts`` is among
    how many groups that tokens are sent to a kernel works on the places of some, 0 if on none, as
    in lists; ``places``: which of its axes those places are, ``none`` where it adds up over them;
    ``exchanged``: whether what it makes goes from chips of tokens to those of groups or back;
    ``dispatched``: bytes of each element that goes to groups on its way, 0 as it is made [B];
    ``expert_degree``: over how many data-parallel chips groups are spread
    (`crosstack.workload.passes.expert_parallel`); ``tokens`` (n, 8), ``across`` (n, 3) and
    ``attends``: where there are tokens of sequences that ``context_degree`` chips share
    (`crosstack.workload.passes.context_parallel`), nowhere in lists. [1] ``preds`` and ``succs``
    are bit masks over kernels; ``source``, ``target``, ``operand`` and ``tensor`` are columns of
    edges, ``tensor_size`` [B] one of tensors. ``levels`` is the longest way from a kernel that
    needs nothing; ``depth`` how many tiles of a tensor an on-chip edge holds so that reconvergent
    paths do not stall: levels apart plus one (``dfmodel_code``). ``join_*``: results that one copy
    hands to the next, and the operands they become.
    """

    n: int
    dtypes: tuple[Dtype, ...]
    names: tuple[str, ...]
    functions: tuple[str, ...]
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
    masked: Bools
    remade: Ints
    density: Floats
    stored: Floats
    reread: Floats
    routing: Floats
    experts: Ints
    places: Ints
    exchanged: Bools
    tokens: Bools
    across: Bools
    attends: Bools
    messages: tuple[tuple[Communication, ...], ...]
    input_element: Floats
    weight_element: Floats
    weight_held: Floats
    weight_cast: Floats
    output_element: Floats
    copies: Ints
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
    expert_degree: int = 1
    context_degree: int = 1
    dispatched: float = 0.0
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
            values = (getattr(self, name) for name in COLUMNS)
            value = tuple(v.tobytes() if isinstance(v, np.ndarray) else v for v in values)
            object.__setattr__(self, "value", value)
            object.__setattr__(self, "digest", hash(value))
        return self.digest or 0

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the columns alone: another process has other hashes of text."""
        return _of_columns, tuple(getattr(self, name) for name in COLUMNS)

    def __repr__(self) -> str:
        joined = f"{self.n:,} kernels, {len(self.tensor_size):,} tensors"
        return f"KernelGraph({joined}, dtype={self.dtype.value!r})"

    def __len__(self) -> int:
        return self.n

    @property
    @known_again(16)
    def dtype(self) -> Dtype:
        """What most products compute with, or most kernels where there is no product."""
        products = [self.dtypes[i] for i in np.flatnonzero(self.gemm).tolist()]
        found = Counter(products or self.dtypes)
        return max(found, key=lambda each: found[each])

    @property
    @known_again(16)
    def adds_in(self) -> Dtype:
        """What parts of sums are added up in: what most kernels that are no product compute in."""
        others = [self.dtypes[i] for i in np.flatnonzero(~self.gemm).tolist()]
        found = Counter(others or self.dtypes)
        return max(found, key=lambda each: found[each])

    @property
    @known_again(16)
    def sent_element(self) -> Floats:
        """Bytes of an element of what is exchanged, on its way to groups or back, shape (n,). [B]

        What kernels gather goes to groups; what comes back is added up, and is as it is made.
        """
        gathers = np.array([name == Function.GATHER for name in self.functions], dtype=np.bool_)
        there = gathers & self.exchanged & (self.dispatched > 0)
        return np.asarray(np.where(there, self.dispatched, self.output_element))

    @property
    def word(self) -> int:
        """Bytes of one element of what most kernels make, as lists have one for all. [B]

        `InputError` where kernels compute with several types, or that is no whole number.
        """
        size, types = Counter(self.output_element.tolist()).most_common(1)[0][0], {*self.dtypes}
        require(len(types) == 1, "dtype", ", ".join(sorted(types)), "one type for all kernels")
        require(size.is_integer(), "dtype", f"{size} B", "a whole number of bytes an element")
        return int(size)

    @property
    @known_again(16)
    def kernels_by_dtype(self) -> tuple[tuple[Dtype, Bools], ...]:
        """Return the types that kernels compute with, and which kernels do, shape (n,) each."""
        types = np.array(self.dtypes, dtype=object)
        return tuple((dtype, types == dtype) for dtype in dict.fromkeys(self.dtypes))

    def computed_in(self, dtype: Dtype) -> KernelGraph:
        """Return the graph with kernels that all compute with one type, of elements as large."""
        return replace(self, dtypes=(dtype,) * self.n)

    @property
    def parameters(self) -> Floats:
        """Elements of the weight of each kernel. [1]"""
        return self.weight_size / self.weight_element

    @property
    def work(self) -> Floats:
        """Operations of each kernel for one sequence, as `Kernel.work`. [FLOP]"""
        elements = self.rows * self.columns * self.repeats * self.routing[:, 2]
        return np.asarray(elements * np.where(self.systolic, 2.0 * self.k, 1.0))

    @property
    def total_work(self) -> float:
        """Operations of all kernels for one sequence, without what is made once more. [FLOP]"""
        return float(sum(self.work[self.remade < 0].tolist()))

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
    @known_again(16)
    def index(self) -> Mapping[str, int]:
        """Number of every kernel by its name. [1]"""
        return {name: i for i, name in enumerate(self.names)}

    # ------------------------------------------------------------ as a list

    @property
    @known_again(16)
    def kernels(self) -> tuple[Kernel, ...]:
        """Kernels as a list of records."""
        return tuple(self._kernel(i) for i in range(self.n))

    @property
    @known_again(16)
    def tensors(self) -> tuple[Tensor, ...]:
        """Tensors as a list of records."""
        readers: list[list[Consumer]] = [[] for _ in self.tensor_size]
        makers = dict(zip(self.tensor.tolist(), self.source.tolist(), strict=True))
        for e, t in enumerate(self.tensor.tolist()):
            name, operand = self.names[self.target[e]], int(self.operand[e])
            readers[t].append(Consumer(kernel=name, operand=operand, elided=bool(self.elided[e])))
        return tuple(
            Tensor(producer=self.names[makers[t]], consumers=tuple(readers[t]), size=size)
            for t, size in enumerate(self.tensor_size.tolist())
        )

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

    def _kernel(self, i: int) -> Kernel:
        own = {name: getattr(self, name)[i].tolist() for name in _SAME}
        own["density"] = tuple(own["density"])
        kept = (saved for name, saved in _SAVED.items() if getattr(self, name)[i])
        kind, repeats = self.kind(i), max(1, round(float(self.repeats[i]) / own["operations"]))
        return Kernel(
            name=self.names[i],
            kind=kind,
            n=int(self.columns[i]),
            input_sizes=tuple(self.input_sizes[i, : kind.n_inputs].tolist()),
            unit=ComputeUnit.SYSTOLIC if self.systolic[i] else ComputeUnit.SIMD,
            tiling=AXES[self.tiling[i]],
            direction=Direction.BACKWARD if self.backward[i] else Direction.FORWARD,
            communications=self.messages[i],
            repeats=repeats if self.counted_inputs[i] else None,
            saved=next(kept, Saved.NOTHING),
            routing=Routing(**dict(zip(_ROUTING, self.routing[i].tolist(), strict=True))),
            **own,
        )

    def kind(self, i: int) -> KernelKind:
        """What kernel ``i`` computes and where its operands come from."""
        if self.gemm[i]:
            return KernelKind.GEMM if self.two_inputs[i] else KernelKind.GEMM_WEIGHT
        return KernelKind.ELEMENTWISE_2 if self.two_inputs[i] else KernelKind.ELEMENTWISE


_ROUTING = tuple(f.name for f in fields(Routing))
COLUMNS = tuple(f.name for f in fields(KernelGraph) if f.init)
_KINDS: dict[Any, type] = {"Ints": np.int64, "Floats": np.float64, "Bools": np.bool_}
_ARRAYS = {f.name: _KINDS[f.type] for f in fields(KernelGraph) if f.type in _KINDS}


def _of_columns(*columns: Any) -> KernelGraph:
    return KernelGraph(**dict(zip(COLUMNS, columns, strict=True)))


def bits(mask: int) -> list[int]:
    """Return the positions of the bits of ``mask``, ascending."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def neighbours(n: int, pairs: Iterable[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return masks of the kernels right before each of n, and right behind it, of all pairs."""
    preds, succs = [0] * n, [0] * n
    for i, j in pairs:
        preds[j] |= 1 << i
        succs[i] |= 1 << j
    return tuple(preds), tuple(succs)


Edge = tuple[int, int, int, int, bool]  # maker, reader, operand, tensor, elided
Join = tuple[int, int, int]  # maker, reader, operand


def graph_of_columns(
    kernels: Mapping[str, Any],
    inputs: Sequence[Sequence[float]],
    edges: Sequence[Edge],
    joins: Sequence[Join],
    order: tuple[int, ...],
    levels: tuple[int, ...],
    outside: Sequence[Sequence[str | None]] | None = None,
    **more: Any,
) -> KernelGraph:
    """Return a graph of the columns of its kernels, and of its edges.

    Parameters
    ----------
    kernels : mapping
        Columns but those that follow from the rest, as sequences; with ``routing``, records.
    inputs : sequence
        Bytes of the operands of every kernel. [B]
    edges, joins, order, levels
        See `KernelGraph` and `crosstack.workload.ordering.topological_order`.
    outside : sequence, optional
        Names of operands of every kernel, None of one that no kernel makes nor hands over.
    more : Any
        Fields of the graph besides.
    """
    n, table = len(inputs), np.array([e[:4] for e in edges], dtype=np.int64).reshape(-1, 4)
    sizes, unfed = np.zeros((n, 2)), np.zeros((n, 2), dtype=np.bool_)
    for i, own in enumerate(inputs):
        sizes[i, : len(own)] = own
        unfed[i, : len(own)] = True if outside is None else [x is not None for x in outside[i]]
    unfed[table[:, 1], table[:, 2]] = False
    numbers: dict[str | None, int] = {}
    unmade = np.full((n, 2), -1, dtype=np.int64)
    for i, place in np.argwhere(unfed).tolist() if outside else ():
        unmade[i, place] = numbers.setdefault(outside[i][place], len(numbers))  # type: ignore[index]
    preds, succs = neighbours(n, (edge[:2] for edge in edges))
    spread = [[getattr(one, name) for name in _ROUTING] for one in kernels["routing"]]
    columns = {**kernels, "routing": spread}
    found: dict[str, Any] = {
        name: np.array(columns[name], _ARRAYS[name]) for name in columns if name in _ARRAYS
    }
    messages, level = kernels["messages"], np.array(levels, dtype=np.int64)
    periodic = [sum((c.size for c in some if c.periodic), 0.0) for some in messages]
    source, target, operand, tensor = (column.copy() for column in table.T)
    starts, ends, places = np.array(joins, dtype=np.int64).reshape(-1, 3).T.copy()
    return KernelGraph(
        **{**columns, **found, **more},
        n=n,
        rows=found["outer"] * found["m"],
        has_weight=found["weight_size"] > 0,
        two_inputs=np.array([len(own) == 2 for own in inputs], dtype=np.bool_),
        periodic_size=np.array(periodic),
        input_sizes=sizes,
        open_inputs=unfed,
        outside=unmade,
        open_output=~np.isin(np.arange(n), source),
        source=source,
        target=target,
        operand=operand,
        tensor=tensor,
        elided=np.array([e[4] for e in edges], dtype=np.bool_),
        join_source=starts,
        join_target=ends,
        join_operand=places,
        order=order,
        levels=levels,
        depth=level[target] - level[source] + 1,
        preds=preds,
        succs=succs,
        remade=np.full(n, -1),
    )


# ---------------------------------------------------------------- from a list


def kernel_graph(
    *, kernels: Sequence[Kernel], tensors: Sequence[Tensor], word: int, dtype: Dtype | None = None
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
    index = {kernel.name: i for i, kernel in reversed([*enumerate(kernels)])}
    problems = [*twice("kernel", ((f"kernels[{i}]", k.name) for i, k in enumerate(kernels)))]
    problems += _tensor_problems(kernels, tensors, index)
    if problems:
        raise InputError(problems)
    edges: list[Edge] = [
        (index[tensor.producer], index[c.kernel], c.operand, t, c.elided)
        for t, tensor in enumerate(tensors)
        for c in tensor.consumers
    ]
    pairs = [edge[:2] for edge in edges]
    order, levels = topological_order(len(kernels), pairs)
    if len(order) < len(kernels):
        loop = " -> ".join(kernels[i].name for i in cycle_of(len(kernels), pairs, order))
        raise InputError(Problem("tensors", f"the graph has a cycle: {loop}."))
    return graph_of_columns(
        _columns(kernels) | _elements(len(kernels), word, dtype or dtype_of_word(word)),
        [kernel.input_sizes for kernel in kernels],
        edges,
        _joins(kernels, edges),
        order,
        levels,
        tensor_size=np.array([tensor.size for tensor in tensors], dtype=np.float64),
        splits=np.zeros((0, 4, 3), dtype=np.int64),
        layouts=(),
    )


def _elements(n: int, word: int, dtype: Dtype) -> dict[str, Any]:
    """Return the columns of kernels that compute with one type, of elements of one size [B]."""
    return {
        "dtypes": (dtype,) * n,
        "input_element": [(word, word)] * n,
        **{name: [word] * n for name in ("weight_element", "weight_held", "output_element")},
        "weight_cast": [0.0] * n,
        "copies": [1] * n,
    }


# What kernels of a list say nothing of.
_UNSAID = {
    "functions": "", "stored": (1.0, 1.0, 1.0), "reread": 0.0, "adds": False, "attends": False,
    "masked": False,
    "exchanged": False, "tokens": (False,) * 8, "across": (False,) * 3, "experts": 0, "sharers": 1,
    "places": AXIS_CODE[Axis.NONE],
}  # fmt: skip


def _columns(kernels: Sequence[Kernel]) -> dict[str, Any]:
    same = {name: [getattr(kernel, name) for kernel in kernels] for name in _SAME}
    saved = {name: [x.saved is kind for x in kernels] for name, kind in _SAVED.items()}
    unsaid = {name: (value,) * len(kernels) for name, value in _UNSAID.items()}
    return same | saved | unsaid | _said(kernels)


def _said(kernels: Sequence[Kernel]) -> dict[str, Any]:
    return {
        "names": tuple(x.name for x in kernels),
        "columns": [x.n for x in kernels],
        "systolic": [x.unit is ComputeUnit.SYSTOLIC for x in kernels],
        "gemm": [x.kind.is_gemm for x in kernels],
        "tiling": [AXIS_CODE[x.tiling] for x in kernels],
        "backward": [x.direction is Direction.BACKWARD for x in kernels],
        "repeats": [float((x.repeats or 1) * x.operations) for x in kernels],
        "counted_inputs": [x.repeats is not None for x in kernels],
        "routing": [x.routing for x in kernels],
        "messages": tuple(x.communications for x in kernels),
    }


def _joins(kernels: Sequence[Kernel], edges: Sequence[Edge]) -> list[Join]:
    """Return what one copy of a graph hands to the next.

    A result that no kernel reads becomes the operands of the same direction and bytes that none
    makes, but for its own kernel's. Sums over the batch, as gradients of weights, stay.
    """
    taken, fed = {edge[0] for edge in edges}, {edge[1:3] for edge in edges}
    given = [
        (i, kernel)
        for i, kernel in enumerate(kernels)
        if i not in taken and not any(c.periodic for c in kernel.communications)
    ]
    free = [
        (j, operand, size, reader.direction)
        for j, reader in enumerate(kernels)
        for operand, size in enumerate(reader.input_sizes)
        if (j, operand) not in fed
    ]
    return [
        (i, j, operand)
        for i, maker in given
        for j, operand, size, direction in free
        if i != j
        and direction is maker.direction
        and abs(size - maker.output_size) <= ROUNDING * size
    ]


# ---------------------------------------------------------------- checks


def _same_size(a: float, b: float) -> bool:
    return abs(a - b) <= ROUNDING * max(abs(a), abs(b))


def _tensor_problems(
    kernels: Sequence[Kernel], tensors: Sequence[Tensor], index: Mapping[str, int]
) -> list[Problem]:
    problems: list[Problem] = []
    producers: set[str] = set()
    fed: dict[tuple[str, int], str] = {}
    for t, tensor in enumerate(tensors):
        path, maker = f"tensors[{t}]", tensor.producer
        if maker not in index:
            problems += unknown(f"{path}.producer", "kernel", maker, index, len(problems))
            continue
        if maker in producers:
            problems.append(Problem(f"{path}.producer", f"{maker!r} already makes a tensor."))
        producers.add(maker)
        made = kernels[index[maker]].output_size
        if not _same_size(tensor.size, made):
            message = f"got {tensor.size:.17g} B, but {maker!r} makes {made:.17g} B."
            problems.append(Problem(f"{path}.size", message))
        for c, consumer in enumerate(tensor.consumers):
            where, key = f"{path}.consumers[{c}]", (consumer.kernel, consumer.operand)
            if consumer.kernel not in index:
                problems += unknown(where, "kernel", consumer.kernel, index, len(problems))
                continue
            reader, first = kernels[index[consumer.kernel]], fed.get(key, "")
            problems += _reader_problems(where, reader, consumer, tensor, first)
            if not consumer.elided:
                fed.setdefault(key, maker)
    return problems


def _reader_problems(
    where: str, reader: Kernel, consumer: Consumer, tensor: Tensor, first: str
) -> Iterator[Problem]:
    """Yield what is wrong with a reader of a tensor, of which ``first`` feeds the operand."""
    operand, maker = consumer.operand, tensor.producer
    if not 0 <= operand < reader.kind.n_inputs:
        allowed = "0" if reader.kind.n_inputs == 1 else "0 or 1"
        message = f"got {operand}; allowed for {reader.name!r}: {allowed}."
        yield Problem(f"{where}.operand", message)
        return
    if not consumer.elided and first:
        message = f"operand {operand} of {reader.name!r} is already what {first!r} makes"
        yield Problem(where, f"{message}; allowed: one tensor an operand.")
    size = reader.input_sizes[operand]
    if not _same_size(size, tensor.size):
        message = f"{SIZES_DISAGREE}: {maker!r} makes {tensor.size:.17g} B, "
        yield Problem(where, f"{message}operand {operand} of {reader.name!r} is {size:.17g} B.")
