"""A workload as a dataflow graph: kernels joined by tensors.

A *kernel* is a node: a matrix product (``outer`` times an M x K by K x N product) or an
elementwise operation on ``outer`` x M x N elements. A *tensor* is what one kernel makes and
one or more kernels read. All sizes are bytes of the whole, unsharded tensor of one sequence.

Source of the record: the dataflow graph of ``ko2025dfmodel`` (section III.B); here a tensor
with several readers is one tensor, where the source keeps one copy a reader.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from crosstack.errors import (
    MOST_SHOWN,
    InputError,
    Problem,
    nearest,
    require,
    require_quantity,
    require_whole,
)
from crosstack.records import brief, require_types
from crosstack.workload.dtype import Dtype, dtype_of_word

__all__ = [
    "Axis",
    "Collective",
    "Communication",
    "ComputeUnit",
    "Consumer",
    "DataflowGraph",
    "Direction",
    "Kernel",
    "KernelKind",
    "Placement",
    "Saved",
    "Tensor",
    "Workload",
]

SIZES_DISAGREE = "sizes disagree"  # how the problem of an operand begins
LONGEST_SEQUENCE = 2**28  # it is cut into tiles of twice the root of that many lengths
MOST_ELEMENTS = 2**62  # of a tensor: they are counted in 64-bit whole numbers


class Axis(StrEnum):
    """An axis of a kernel: what a sharding or a tiling splits."""

    OUTER = "outer"
    M = "m"
    K = "k"
    N = "n"
    NONE = "none"


class KernelKind(StrEnum):
    """What a kernel computes and where its operands come from."""

    GEMM_WEIGHT = "gemm_weight"
    GEMM = "gemm"
    ELEMENTWISE = "elementwise"
    ELEMENTWISE_2 = "elementwise_2"

    @property
    def n_inputs(self) -> int:
        """Number of activation operands."""
        match self:
            case KernelKind.GEMM | KernelKind.ELEMENTWISE_2:
                return 2
            case KernelKind.GEMM_WEIGHT | KernelKind.ELEMENTWISE:
                return 1
            case _:
                assert_never(self)

    @property
    def is_gemm(self) -> bool:
        """Whether the kernel contracts over K."""
        match self:
            case KernelKind.GEMM | KernelKind.GEMM_WEIGHT:
                return True
            case KernelKind.ELEMENTWISE | KernelKind.ELEMENTWISE_2:
                return False
            case _:
                assert_never(self)


class ComputeUnit(StrEnum):
    """Which part of a core runs the kernel: the systolic array (2 FLOP a cell) or its lanes."""

    SYSTOLIC = "systolic"
    SIMD = "simd"


class Direction(StrEnum):
    """Forward or backward pass."""

    FORWARD = "forward"
    BACKWARD = "backward"


class Saved(StrEnum):
    """What the derivative of a forward kernel needs of it, besides what edges name.

    A backward kernel of a graph may read the gradient alone, although the derivative of its
    function needs an operand (GeLU, a norm), the result (softmax), or which elements were left out
    (dropout, one byte an element). Source: ``korthikanti2023reducing``, section 4.1.
    """

    NOTHING = "nothing"
    INPUT = "input"
    OUTPUT = "output"
    MASK = "mask"


class Collective(StrEnum):
    """A communication pattern among the chips of one parallelism."""

    ALL_REDUCE = "all_reduce"
    ALL_GATHER = "all_gather"
    REDUCE_SCATTER = "reduce_scatter"
    ALL_TO_ALL = "all_to_all"
    BROADCAST = "broadcast"
    POINT_TO_POINT = "point_to_point"


class Placement(StrEnum):
    """How a workload lies on the chips of the network.

    ``searched``: parallelism and sharding are decided by the mapping. The others are how a
    published algorithm is written down, so nothing is left to decide: ``batch``, every chip works
    on a batch of its own and all chips exchange what `Communication` says (recommendation models);
    ``grid``, the chips form rows and columns that split M and K (``dongarra2003linpack``), the last
    dimension of the network being the columns; ``columns``, all chips split N (a transform of
    columns, then of rows). Source: ``dfmodel_code``.
    """

    SEARCHED = "searched"
    BATCH = "batch"
    GRID = "grid"
    COLUMNS = "columns"


@dataclass(frozen=True, slots=True, kw_only=True)
class Communication:
    """Communication a kernel brings with it, besides what its sharding causes.

    ``periodic`` runs over the data-parallel chips, once per iteration (the gradient
    all-reduce); otherwise it runs over the tensor-parallel chips, for every sequence, or over all
    chips of a workload whose `Placement` is not searched. ``size`` is that of the whole tensor,
    with placement ``batch`` of what one chip takes part with. [B]
    """

    collective: Collective
    size: float
    periodic: bool = False

    def __post_init__(self) -> None:
        """Check the size."""
        require_types(self)
        require_quantity("size", self.size, "B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One kernel of the graph, whole (unsharded), for one sequence.

    Sizes in bytes say which tensors belong together and are checked against one another; what is
    held and moved follows from the extents and the graph's ``word`` (``ko2025dfmodel``).

    Parameters
    ----------
    name : str
        Unique in the graph.
    kind : KernelKind
        Operands: weight and input, two inputs, or elementwise on one or two inputs.
    outer, m, k, n : int
        Loop extents; ``k`` is 1 for elementwise kernels. [1]
    output_size : float
        Bytes of the tensor it makes. [B]
    input_sizes : tuple of float
        Bytes of each activation operand, in order. [B]
    weight_size : float
        Bytes of the weight of a ``gemm_weight`` kernel. [B]
    unit : ComputeUnit
        Where it runs.
    tiling : Axis
        The axis that is cut into tiles as data streams through the chip.
    direction : Direction
        Forward or backward pass.
    memory_traffic : float
        Main-memory bytes that each chip moves for it besides tensors and weights, whatever the
        sharding. [B]
    communications : tuple of Communication
        Extra communication (gradient all-reduce, all-to-all of embeddings, ...).
    repeats : int or None
        How many inputs it processes per sequence; kernels that set it never share a partition
        with kernels that do not. [1]
    operations : int
        Floating-point operations on each element of an elementwise kernel. [1]
    cache_size : float
        Bytes that it reads from main memory for every sequence, and that stay there for all of
        them: keys and values of the tokens before. Whole; split like what it makes. [B]
    sram_extra, memory_extra : float
        Bytes that each chip holds for it on the chip and in main memory besides tensors and
        weights, whatever the sharding. [B]
    saved : Saved
        What the backward pass needs of a forward kernel, besides what edges name; without a
        backward pass nothing is kept.
    row_wise : bool
        Whether a result needs a whole row of an operand (a norm, a softmax, a scan), so that no
        tile of it can be finished alone; of elementwise kernels.
    """

    name: str
    kind: KernelKind
    m: int
    n: int
    k: int = 1
    outer: int = 1
    output_size: float
    input_sizes: tuple[float, ...]
    weight_size: float = 0.0
    unit: ComputeUnit
    tiling: Axis = Axis.N
    direction: Direction = Direction.FORWARD
    memory_traffic: float = 0.0
    communications: tuple[Communication, ...] = ()
    repeats: int | None = None
    operations: int = 1
    cache_size: float = 0.0
    sram_extra: float = 0.0
    memory_extra: float = 0.0
    saved: Saved = Saved.NOTHING
    row_wise: bool = False

    def __post_init__(self) -> None:
        """Check every field; see `InputError`."""
        require_types(self)
        require(isinstance(self.name, str) and self.name.strip() != "", "name", self.name, "a name")
        for axis in ("outer", "m", "k", "n"):
            require_whole(axis, getattr(self, axis))
        if not self.kind.is_gemm:
            require(self.k == 1, "k", self.k, "1: an elementwise kernel contracts nothing")
        for axes in ("m x n", "m x k", "k x n"):
            elements = self.outer * math.prod(getattr(self, axis) for axis in axes.split(" x "))
            allowed = f"outer x {axes} below 2^62, but it is {elements:.3g}"
            require(elements < MOST_ELEMENTS, "outer", self.outer, allowed)
        require(
            len(self.input_sizes) == self.kind.n_inputs,
            "input_sizes",
            self.input_sizes,
            f"{self.kind.n_inputs} sizes for {self.kind.value}",
        )
        for i, size in enumerate(self.input_sizes):
            require_quantity(f"input_sizes[{i}]", size, "B")
        sizes = ("output_size", "weight_size", "memory_traffic", "cache_size")
        for name in (*sizes, "sram_extra", "memory_extra"):
            require_quantity(name, getattr(self, name), "B")
        if self.kind is not KernelKind.GEMM_WEIGHT:
            require(self.weight_size == 0, "weight_size", self.weight_size, "0: it has no weight")
        if self.repeats is not None:
            require_whole("repeats", self.repeats)
        require_whole("operations", self.operations)
        single = not self.kind.is_gemm or self.operations == 1
        require(single, "operations", self.operations, "1: a product counts its own")
        forward = self.saved is Saved.NOTHING or self.direction is Direction.FORWARD
        require(forward, "saved", self.saved, "nothing, in the backward pass")
        rows = not (self.kind.is_gemm and self.row_wise)
        require(rows, "row_wise", self.row_wise, "false: a product adds up over K")

    @property
    def work(self) -> float:
        """Floating-point operations for one sequence: outer M N, twice K for a systolic kernel.

        Source: ``ko2025dfmodel``, where an elementwise kernel has one operation an element. [FLOP]
        """
        elements = float(self.outer) * self.m * self.n * (self.repeats or 1) * self.operations
        match self.unit:
            case ComputeUnit.SYSTOLIC:
                return 2.0 * elements * self.k
            case ComputeUnit.SIMD:
                return elements
            case _:
                assert_never(self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumer:
    """One reader of a tensor: the kernel, and which of its operands the tensor is (0 or 1).

    ``elided`` marks a connection whose bytes are accounted for elsewhere (a key-value cache
    that is charged as `Kernel.memory_traffic`); it still orders the kernels. Any number of those
    may share an operand, besides the one tensor that feeds it.
    """

    kernel: str
    operand: int = 0
    elided: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """What ``producer`` makes and every consumer reads; ``size`` bytes, whole. [B]"""

    producer: str
    consumers: tuple[Consumer, ...]
    size: float

    def __post_init__(self) -> None:
        """Check the size and that somebody reads it."""
        require_types(self)
        require_quantity("size", self.size, "B")
        require(len(self.consumers) > 0, "consumers", self.consumers, "at least one consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataflowGraph:
    """Kernels and the tensors that join them; acyclic.

    Parameters
    ----------
    kernels : tuple of Kernel
        In listing order, any order.
    tensors : tuple of Tensor
        One per producer that has readers.
    word : int
        Bytes of one element. [B]
    dtype : Dtype or None
        What kernels compute with; None: what fills the word, see
        `crosstack.workload.dtype.dtype_of_word`.

    Attributes
    ----------
    work : float
        Floating-point operations of all kernels for one sequence; derived. [FLOP]
    weight_size : float
        Bytes of all weights; derived. [B]
    has_backward : bool
        Whether any kernel belongs to the backward pass; derived.

    Raises
    ------
    InputError
        With every problem found: duplicate names, readers that do not exist, sizes that
        disagree, a cycle.
    """

    kernels: tuple[Kernel, ...]
    tensors: tuple[Tensor, ...]
    word: int
    dtype: Dtype | None = None
    index: Mapping[str, int] = field(init=False, repr=False, compare=False)
    order: tuple[int, ...] = field(init=False, repr=False, compare=False)
    levels: tuple[int, ...] = field(init=False, repr=False, compare=False)
    work: float = field(init=False, repr=False, compare=False)
    weight_size: float = field(init=False, repr=False, compare=False)
    has_backward: bool = field(init=False, repr=False, compare=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check the graph and derive the topological order."""
        require_types(self)
        require(len(self.kernels) > 0, "kernels", len(self.kernels), "at least one kernel")
        require_whole("word", self.word, what="bytes")
        index: dict[str, int] = {}
        problems: list[Problem] = []
        for i, kernel in enumerate(self.kernels):
            if kernel.name in index:
                first = index[kernel.name]
                problems.append(
                    Problem(
                        f"kernels[{i}].name",
                        f"duplicate kernel name {kernel.name!r}; kernels[{first}] has it already.",
                    )
                )
            index.setdefault(kernel.name, i)
        problems.extend(self._tensor_problems(index))
        if problems:
            raise InputError(problems)
        object.__setattr__(self, "index", index)
        order, levels = self._topological_order(index)
        object.__setattr__(self, "order", order)
        object.__setattr__(self, "levels", levels)
        kernels = self.kernels
        back = any(kernel.direction is Direction.BACKWARD for kernel in kernels)
        object.__setattr__(self, "work", sum(kernel.work for kernel in kernels))
        object.__setattr__(self, "weight_size", sum(kernel.weight_size for kernel in kernels))
        object.__setattr__(self, "has_backward", back)

    def _tensor_problems(self, index: Mapping[str, int]) -> list[Problem]:
        problems: list[Problem] = []
        producers: set[str] = set()
        fed: dict[tuple[str, int], str] = {}

        def unknown(path: str, name: str) -> None:
            # Looking for the nearest of thousands of names takes a while.
            close = nearest(name, index) if len(problems) < MOST_SHOWN else []
            hint = f" Nearest: {', '.join(repr(c) for c in close)}." if close else ""
            problems.append(Problem(path, f"no kernel is called {name!r}.{hint}"))

        for t, tensor in enumerate(self.tensors):
            path = f"tensors[{t}]"
            if tensor.producer not in index:
                unknown(f"{path}.producer", tensor.producer)
                continue
            if tensor.producer in producers:
                problems.append(
                    Problem(f"{path}.producer", f"{tensor.producer!r} already makes a tensor.")
                )
            producers.add(tensor.producer)
            made = self.kernels[index[tensor.producer]].output_size
            if not _same_size(tensor.size, made):
                problems.append(
                    Problem(
                        f"{path}.size",
                        f"got {tensor.size:.17g} B, but {tensor.producer!r} makes {made:.17g} B.",
                    )
                )
            for c, consumer in enumerate(tensor.consumers):
                where = f"{path}.consumers[{c}]"
                if consumer.kernel not in index:
                    unknown(where, consumer.kernel)
                    continue
                reader = self.kernels[index[consumer.kernel]]
                if not 0 <= consumer.operand < reader.kind.n_inputs:
                    allowed = "0" if reader.kind.n_inputs == 1 else "0 or 1"
                    problems.append(
                        Problem(
                            f"{where}.operand",
                            f"got {consumer.operand}; allowed for {reader.name!r}: {allowed}.",
                        )
                    )
                    continue
                place = (consumer.kernel, consumer.operand)
                if not consumer.elided and place in fed:
                    problems.append(
                        Problem(
                            where,
                            f"operand {consumer.operand} of {reader.name!r} is already what "
                            f"{fed[place]!r} makes; allowed: one tensor an operand.",
                        )
                    )
                if not consumer.elided:
                    fed.setdefault(place, tensor.producer)
                if not _same_size(reader.input_sizes[consumer.operand], tensor.size):
                    problems.append(
                        Problem(
                            where,
                            f"{SIZES_DISAGREE}: {tensor.producer!r} makes {tensor.size:.17g} B, "
                            f"operand {consumer.operand} of {reader.name!r} is "
                            f"{reader.input_sizes[consumer.operand]:.17g} B.",
                        )
                    )
        return problems

    def _topological_order(
        self, index: Mapping[str, int]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        n = len(self.kernels)
        successors: list[list[int]] = [[] for _ in range(n)]
        waiting = [0] * n
        for tensor in self.tensors:
            source = index[tensor.producer]
            for consumer in tensor.consumers:
                target = index[consumer.kernel]
                successors[source].append(target)
                waiting[target] += 1
        levels = [0] * n
        ready = [i for i in range(n) if waiting[i] == 0]
        order: list[int] = []
        for i in ready:  # grows while it runs: Kahn's algorithm
            order.append(i)
            for j in successors[i]:
                levels[j] = max(levels[j], levels[i] + 1)
                waiting[j] -= 1
                if waiting[j] == 0:
                    ready.append(j)
        if len(order) < n:
            names = _one_cycle(successors, {i for i in range(n) if waiting[i] > 0})
            loop = " -> ".join(self.kernels[i].name for i in names)
            raise InputError(Problem("tensors", f"the graph has a cycle: {loop}."))
        return tuple(order), tuple(levels)

    def __len__(self) -> int:
        """Return the number of kernels."""
        return len(self.kernels)

    @property
    def compute_dtype(self) -> Dtype:
        """What kernels compute with, said or by the word."""
        return self.dtype or dtype_of_word(self.word)


def _same_size(a: float, b: float) -> bool:
    # Published files round sizes to about eight digits.
    return abs(a - b) <= 1e-6 * max(abs(a), abs(b))


def _one_cycle(successors: list[list[int]], left: set[int]) -> list[int]:
    """Return the nodes of one cycle among ``left`` (every one of them has a predecessor there)."""
    predecessor = {j: i for i in left for j in successors[i] if j in left}
    node, seen = next(iter(sorted(left))), []
    while node not in seen:
        seen.append(node)
        node = predecessor[node]
    loop = [node, *reversed(seen[seen.index(node) :])]
    return loop


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A dataflow graph and how often it runs.

    Parameters
    ----------
    graph : DataflowGraph
        One layer (``layers_in_graph`` layers), one sequence.
    n_layers : int
        Layers of the model; a whole multiple of ``layers_in_graph``. [1]
    layers_in_graph : int
        Layers that ``graph`` spells out. [1]
    global_batch_size : int
        Sequences of one iteration over all chips. [1]
    sequence_length : int
        Extent that is cut into tiles. [1]
    boundary_size : float
        Bytes that one layer hands to the next, for one sequence, one direction. [B]
    placement : Placement
        How it lies on the chips.
    data_size : float
        Bytes that all chips together keep in main memory besides weights: embedding tables, the
        matrix that is factorised, the points that are transformed. [B]
    name : str
        For people.
    item : str
        What reports call one of the global batch: sequence, sample, matrix.
    item_part : str
        What they call one of the ``sequence_length`` that an item has, such as token; empty where
        that has no name.
    """

    graph: DataflowGraph
    n_layers: int = 1
    layers_in_graph: int = 1
    global_batch_size: int = 1
    sequence_length: int = 1
    boundary_size: float = 0.0
    placement: Placement = Placement.SEARCHED
    data_size: float = 0.0
    name: str = "workload"
    item: str = field(default="sample", compare=False)
    item_part: str = field(default="", compare=False)

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check counts and sizes."""
        require_types(self)
        require(bool(self.item), "item", self.item, "a word, such as sample")
        for name in ("n_layers", "layers_in_graph", "global_batch_size", "sequence_length"):
            require_whole(name, getattr(self, name))
        length, allowed = self.sequence_length, f"up to 2^28, {LONGEST_SEQUENCE}"
        require(length <= LONGEST_SEQUENCE, "sequence_length", length, allowed)
        require(
            self.n_layers % self.layers_in_graph == 0,
            "n_layers",
            self.n_layers,
            f"a multiple of layers_in_graph = {self.layers_in_graph}",
        )
        require_quantity("boundary_size", self.boundary_size, "B")
        require_quantity("data_size", self.data_size, "B")

    @property
    def graph_repetitions(self) -> int:
        """How many times ``graph`` stands in the model. [1]"""
        return self.n_layers // self.layers_in_graph

    @property
    def work(self) -> float:
        """Floating-point operations of one iteration. [FLOP]"""
        return self.graph.work * self.graph_repetitions * self.global_batch_size

    @property
    def training(self) -> bool:
        """Whether the graph has a backward pass."""
        return self.graph.has_backward
