"""Kernels and the tensors that join them, as they are listed: a record each.

A *kernel* is a node: a matrix product (``outer`` times an M x K by K x N product) or an
elementwise operation on ``outer`` x M x N elements. A *tensor* is what one kernel makes and
one or more kernels read. All sizes are bytes of the whole, unsharded tensor of one sequence.

Source of the record: the dataflow graph of ``ko2025dfmodel`` (section III.B); here a tensor
with several readers is one tensor, where the source keeps one copy a reader.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require, require_quantity
from crosstack.records import Bytes, Checked, Count, Name, require_types

MOST_ELEMENTS = 2**62  # of a tensor: they are counted in 64-bit whole numbers


class Axis(StrEnum):
    """An axis of a kernel: what a sharding or a tiling splits.

    ``partial``: no axis; the kernel adds what each chip has, parts of sums, before they are added
    up over chips. Of shardings of additions alone.
    """

    OUTER = "outer"
    M = "m"
    K = "k"
    N = "n"
    NONE = "none"
    PARTIAL = "partial"


class KernelKind(StrEnum):
    """What a kernel computes and where its operands come from."""

    GEMM_WEIGHT = "gemm_weight"
    GEMM = "gemm"
    ELEMENTWISE = "elementwise"
    ELEMENTWISE_2 = "elementwise_2"

    @property
    def n_inputs(self) -> int:
        """Number of activation operands."""
        return _KINDS[self][0]

    @property
    def is_gemm(self) -> bool:
        """Whether the kernel contracts over K."""
        return _KINDS[self][1]


_KINDS = {
    KernelKind.GEMM_WEIGHT: (1, True),
    KernelKind.GEMM: (2, True),
    KernelKind.ELEMENTWISE: (1, False),
    KernelKind.ELEMENTWISE_2: (2, False),
}


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
class Communication(Checked):
    """Communication a kernel brings with it, besides what its sharding causes.

    ``periodic`` runs over the data-parallel chips, once per iteration (the gradient
    all-reduce); otherwise it runs over the tensor-parallel chips, for every sequence, or over all
    chips of a workload whose `Placement` is not searched. ``size`` is that of the whole tensor,
    with placement ``batch`` of what one chip takes part with. [B]
    """

    collective: Collective
    size: Bytes
    periodic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Routing:
    """How tokens of one sequence are spread over the groups of a kernel, as over experts.

    ``sent`` is the chance that a token is sent to a group, 1: all go everywhere; ``tokens`` are
    those of one sequence, ``filled`` the share of its elements that they fill on average. The
    groups lie in ``nodes`` parts, of which those that a token is sent to lie in ``reached`` at
    most; 0: in any. [1]
    """

    sent: float = 1.0
    tokens: float = 1.0
    filled: float = 1.0
    nodes: float = 0.0
    reached: float = 0.0

    def __post_init__(self) -> None:
        for name in ("sent", "filled"):
            share = getattr(self, name)
            require(0 < share <= 1, name, share, "a share above 0, at most 1")
        require(self.tokens >= 1, "tokens", self.tokens, "1 or more")
        most = self.nodes
        require(0 <= self.reached <= most, "reached", self.reached, f"0 to nodes = {most:g}")


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
    density : tuple of float
        Shares of the elements of its first operand, its second, and its result that count, where a
        mask leaves out the others; a program that skips those works on the least of the three. [1]
    routing : Routing
        How tokens are spread over its groups, whose weights are read where there are any.
    """

    name: Name
    kind: KernelKind
    m: Count
    n: Count
    k: Count = 1
    outer: Count = 1
    output_size: Bytes
    input_sizes: tuple[float, ...]
    weight_size: Bytes = 0.0
    unit: ComputeUnit
    tiling: Axis = Axis.N
    direction: Direction = Direction.FORWARD
    memory_traffic: Bytes = 0.0
    communications: tuple[Communication, ...] = ()
    repeats: Count | None = None
    operations: Count = 1
    cache_size: Bytes = 0.0
    sram_extra: Bytes = 0.0
    memory_extra: Bytes = 0.0
    saved: Saved = Saved.NOTHING
    row_wise: bool = False
    density: tuple[float, float, float] = (1.0, 1.0, 1.0)
    routing: Routing = Routing()

    def __post_init__(self) -> None:
        require_types(self)
        gemm, count = self.kind.is_gemm, self.kind.n_inputs
        require(gemm or self.k == 1, "k", self.k, "1: an elementwise kernel contracts nothing")
        for axes in ("m x n", "m x k", "k x n"):
            elements = self.outer * math.prod(getattr(self, axis) for axis in axes.split(" x "))
            allowed = f"outer x {axes} below 2^62, but it is {elements:.3g}"
            require(elements < MOST_ELEMENTS, "outer", self.outer, allowed)
        inputs = self.input_sizes
        allowed = f"{count} sizes for {self.kind.value}"
        require(len(inputs) == count, "input_sizes", inputs, allowed)
        for i, size in enumerate(inputs):
            require_quantity(f"input_sizes[{i}]", size, "B")
        none = self.kind is KernelKind.GEMM_WEIGHT or self.weight_size == 0
        require(none, "weight_size", self.weight_size, "0: it has no weight")
        cut = self.tiling is not Axis.PARTIAL
        require(cut, "tiling", self.tiling, "outer, m, k, n or none")
        single = not gemm or self.operations == 1
        require(single, "operations", self.operations, "1: a product counts its own")
        forward = self.saved is Saved.NOTHING or self.direction is Direction.FORWARD
        require(forward, "saved", self.saved, "nothing, in the backward pass")
        rows = not (gemm and self.row_wise)
        require(rows, "row_wise", self.row_wise, "false: a product adds up over K")
        shares = all(0 < share <= 1 for share in self.density)
        require(shares, "density", self.density, "shares above 0, at most 1")

    @property
    def work(self) -> float:
        """Floating-point operations for one sequence: outer M N, twice K for a systolic kernel.

        All elements count, also those that a mask leaves out (``narayanan2021megatron``).
        Source: ``ko2025dfmodel``, where an elementwise kernel has one operation an element. [FLOP]
        """
        elements = float(self.outer) * self.m * self.n * (self.repeats or 1) * self.operations
        elements *= self.routing.filled
        each = {ComputeUnit.SYSTOLIC: 2.0 * self.k, ComputeUnit.SIMD: 1.0}[self.unit]
        return each * elements


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
    size: Bytes

    def __post_init__(self) -> None:
        require_types(self)
        require(len(self.consumers) > 0, "consumers", self.consumers, "at least one consumer")
