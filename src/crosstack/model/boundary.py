"""What the operands and results of a graph take of the main memory.

An operand that no kernel makes comes from outside: activations of the layer before, a batch of
inputs, gradients of the layer after. A result that no kernel reads leaves. Under `Boundary.MEMORY`
a chip reads its share of the one from main memory and writes its share of the other, in whatever
partition the kernel runs, also in the only one of a stage: the copy of the graph before or after
runs another time or on another chip, and memory is where they meet. Weights, caches and what edges
carry are counted elsewhere.

* A chip reads what its part of the kernel needs: a product split along M needs the whole K x N
  factor. It writes what it holds: a product split along K is whole on every chip once it is added
  up.
* Gradients of weights (`Communication.periodic`) are sums over a microbatch. Each microbatch but
  the first adds to what is there: it reads the sum and writes it.
* A factorisation on a grid and a transform of columns (`Placement`) stream a matrix that no chip
  holds, so all of their operands and results pass main memory, edges or not. Each step of the
  factorisation also reads its M x K factor, the matrix itself, and writes it back.

A result that is read in the graph and kept for later (keys and values of a prompt) leaves nothing
behind. Two kernels that read the same operand from outside (`KernelGraph.outside`) read it twice,
as it stays on no chip from the one to the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.model.traffic import Boundary
from crosstack.workload.kernel_graph import ROUNDING, Bools, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Placement
from crosstack.workload.workload import Workload


def streams_memory(placement: Placement, rules: Rules) -> bool:
    """Whether all tensors pass main memory, as none fits on the chip from kernel to kernel."""
    streamed = placement in (Placement.GRID, Placement.COLUMNS)
    return streamed and rules.traffic.boundary is Boundary.MEMORY


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shares:
    """What one chip works on under every choice, shape (choices,).

    ``kernel``: whose choice it is; ``batch``, ``rows``, ``depth`` and ``width`` the shares of
    outer, of outer x M, of K and of N. [1]
    """

    kernel: Ints
    batch: Floats
    rows: Floats
    depth: Floats
    width: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Operands:
    """Bytes of some of each kernel's operands, by the extents they have.

    Whole, for one sequence, shape (n,): ``mn`` those of elementwise kernels, ``mk`` and ``kn``
    the factors of products, ``shared`` a K x N factor that all of ``outer`` multiply. [B]
    """

    mn: Floats
    mk: Floats
    kn: Floats
    shared: Floats

    def share(self, shares: Shares) -> Floats:
        """Bytes that one chip's part of the kernel needs under every choice. [B]"""
        row, rows, depth, width = shares.kernel, shares.rows, shares.depth, shares.width
        entering = self.mn[row] * (rows * width) + self.mk[row] * (rows * depth)
        entering += (self.kn[row] * shares.batch + self.shared[row]) * (depth * width)
        return np.asarray(entering)


def _operands(arrays: KernelGraph, sizes: Floats, matrix: Floats | None = None) -> _Operands:
    """Lay out operands of ``sizes``, shape (n, 2); ``matrix`` is an M x K factor put in. [B]"""
    swapped, _ = factor_order(arrays)
    swapped = swapped & (matrix is None)
    first, second = np.where(swapped[:, None], sizes[:, ::-1], sizes).T
    elements = arrays.input_element
    shared = _is_shared(arrays, first / np.where(swapped, elements[:, 1], elements[:, 0]))
    if matrix is not None:
        second = np.where(matrix > 0, matrix, second)

    def factor(values: Floats) -> Floats:
        return np.where(arrays.gemm, values, 0.0)

    return _Operands(
        mn=np.where(arrays.gemm, 0.0, first + second),
        mk=factor(second),
        kn=factor(np.where(shared, 0.0, first)),
        shared=factor(np.where(shared, first, 0.0)),
    )


@lru_cache(maxsize=256)
def factor_order(arrays: KernelGraph) -> tuple[Bools, Bools]:
    """Which kernels have their M x K factor first, and of which all of outer share the K x N one.

    The first operand of a product is its K x N factor unless its elements say otherwise.
    """
    kn = arrays.outer.astype(float) * arrays.k * arrays.columns
    mk = arrays.rows.astype(float) * arrays.k
    sizes = arrays.input_sizes / arrays.input_element
    apart = abs(sizes[:, 0] - kn) + abs(sizes[:, 1] - mk)
    swapped = arrays.two_inputs & (abs(sizes[:, 0] - mk) + abs(sizes[:, 1] - kn) < apart)
    return swapped, _is_shared(arrays, np.where(swapped, sizes[:, 1], sizes[:, 0]))


def _is_shared(arrays: KernelGraph, factor: Floats) -> Bools:
    """Which kernels have a K x N factor of so many elements that all of outer multiply."""
    inner = (arrays.k * arrays.columns).astype(float)
    return np.asarray(arrays.gemm & (factor <= inner * (1 + ROUNDING)))


def operand_share(arrays: KernelGraph, wanted: Bools, shares: Shares) -> Floats:
    """Bytes that one chip holds of the ``wanted`` operands of kernels, (n, 2), by choice. [B]"""
    sizes = np.where(wanted, arrays.input_sizes, 0.0)
    return _operands(arrays, sizes).share(shares)


@lru_cache(maxsize=256)
def _outside(
    arrays: KernelGraph, placement: Placement, streams: bool
) -> tuple[_Operands, Floats, Floats]:
    """Return operands from outside, a matrix that is written back, and results, (n,) each. [B]"""
    grid = streams and placement is Placement.GRID
    mk = arrays.rows.astype(float) * arrays.k * arrays.input_element[:, 1]
    matrix = np.where(arrays.two_inputs & arrays.gemm & grid, mk, 0.0)
    opens = np.where(arrays.open_inputs | streams, arrays.input_sizes, 0.0)
    made = (arrays.rows * arrays.columns).astype(float) * arrays.output_element
    result = np.where(arrays.open_output | streams, made, 0.0)
    return _operands(arrays, opens, matrix if grid else None), matrix, result


def boundary_traffic(
    workload: Workload, arrays: KernelGraph, plan: MeshPlan, shares: Shares, rules: Rules
) -> tuple[Floats, Floats]:
    """Bytes that one chip reads of operands from outside, and writes of results that leave. [B]

    By choice, for one sequence. Bytes of an operand are those of `Kernel.input_sizes`, of a result
    those of outer M N elements, each times the shares of its own extents. With b sequences a
    microbatch and n microbatches, a sequence's part of a gradient of S bytes is ``S (1 - 1/n) / b``
    read and ``S / b`` written; of one that s copies of the graph add to, ``S (1 - 1/(n s)) / b``
    read.
    """
    row, rows, depth, width = shares.kernel, shares.rows, shares.depth, shares.width
    if rules.traffic.boundary is Boundary.FREE:
        nothing = np.zeros(len(row))
        return nothing, nothing
    streams = streams_memory(workload.placement, rules)
    known = _outside(arrays, workload.placement, streams)
    operands, matrix, result = known
    entering = operands.share(shares)
    leaving = result[row] * (rows * width) + matrix[row] * (rows * depth)
    summed = (arrays.periodic_size > 0)[row]
    leaving = np.where(summed, leaving / plan.microbatch_size, leaving)
    times = plan.n_microbatches * arrays.sharers[row]
    entering += np.where(summed, leaving * (1 - 1 / times), 0.0)
    return entering, leaving
