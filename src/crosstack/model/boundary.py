"""What the operands and results of a graph take of the main memory.

A graph says of its tensors who makes and who reads them. An operand that no kernel makes comes from
outside: activations of the layer before, a batch of inputs, gradients of the layer after. A result
that no kernel reads leaves. Under `Boundary.MEMORY` a chip reads its share of the one from main
memory and writes its share of the other, in whatever partition the kernel runs, also in the only
one of a stage: the copy of the graph before or after runs another time or on another chip, and
memory is where they meet. Each operand counts on its own; weights, caches and what edges carry are
counted elsewhere.

* A chip reads what its part of the kernel needs: a product split along M needs the whole K x N
  factor. It writes what it holds: a product split along K is whole on every chip once it is added
  up.
* Gradients of weights (`Communication.periodic`) are sums over a microbatch. Each microbatch but
  the first adds to what is there: it reads the sum and writes it.
* A factorisation on a grid and a transform of columns (`Placement`) stream a matrix that no chip
  holds, so all of their operands and results pass main memory, edges or not. Each step of the
  factorisation also reads its M x K factor, the matrix itself, and writes it back.

What the record cannot say is not counted: a result that is read in the graph and kept for later
(keys and values of a prompt) leaves nothing behind, and two kernels that read the same operand from
outside read it twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.model.arrays import AXIS_CODE, Floats, GraphArrays, Ints
from crosstack.model.parts import Boundary
from crosstack.model.plan import Plan
from crosstack.model.rules import Rules
from crosstack.workload.graph import Axis, Placement, Workload

__all__ = ["boundary_traffic", "streams_memory"]

OUTER = AXIS_CODE[Axis.OUTER]
ROUNDING = 1e-6  # relative: published files round sizes to about eight digits


def streams_memory(placement: Placement, rules: Rules) -> bool:
    """Whether all tensors pass main memory, as none fits on the chip from kernel to kernel."""
    streamed = placement in (Placement.GRID, Placement.COLUMNS)
    return streamed and rules.traffic.boundary is Boundary.MEMORY


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Outside:
    """Bytes of each kernel's operands from outside, by the extents they have, and of its result.

    Whole, for one sequence, shape (n,): ``mn`` those of elementwise kernels, ``mk`` and ``kn``
    the factors of products, ``shared`` a K x N factor that all of ``outer`` multiply; ``matrix``
    the M x K factor where it is written back. [B]
    """

    mn: Floats
    mk: Floats
    kn: Floats
    shared: Floats
    matrix: Floats
    result: Floats


@lru_cache(maxsize=64)
def _outside(arrays: GraphArrays, word: float, placement: Placement, streams: bool) -> _Outside:
    batch, inner = arrays.outer.astype(float), (arrays.k * arrays.columns).astype(float)
    kn, mk = batch * inner * word, arrays.rows.astype(float) * arrays.k * word
    sizes = arrays.input_sizes
    # The first operand of a product is its K x N factor unless its bytes say otherwise.
    apart = abs(sizes[:, 0] - kn) + abs(sizes[:, 1] - mk)
    swapped = arrays.two_inputs & (abs(sizes[:, 0] - mk) + abs(sizes[:, 1] - kn) < apart)
    grid = streams and placement is Placement.GRID
    swapped &= not grid
    opens = np.where(arrays.open_inputs | streams, sizes, 0.0)
    first, second = np.where(swapped[:, None], opens[:, ::-1], opens).T
    matrix = np.where(arrays.two_inputs & grid, mk, 0.0)
    shared = arrays.gemm & (first <= inner * word * (1 + ROUNDING))
    made = (arrays.rows * arrays.columns).astype(float) * word

    def factor(values: Floats) -> Floats:
        return np.where(arrays.gemm, values, 0.0)

    return _Outside(
        mn=np.where(arrays.gemm, 0.0, first + second),
        mk=factor(np.where(matrix > 0, matrix, second)),
        kn=factor(np.where(shared, 0.0, first)),
        shared=factor(np.where(shared, first, 0.0)),
        matrix=factor(matrix),
        result=np.where(arrays.open_output | streams, made, 0.0),
    )


def boundary_traffic(
    workload: Workload,
    arrays: GraphArrays,
    plan: Plan,
    choices: tuple[Ints, Ints],
    shares: tuple[Floats, Floats, Floats],
    rules: Rules,
) -> tuple[Floats, Floats]:
    """Bytes that one chip reads of operands from outside, and writes of results that leave. [B]

    Parameters
    ----------
    choices : tuple of array, shape (choices,)
        Of every choice its kernel, and the axis that it splits.
    shares : tuple of array, shape (choices,)
        Of outer x M, of K and of N that one chip works on. [1]

    Returns
    -------
    (entering, leaving), shape (choices,), for one sequence

    Notes
    -----
    Bytes of an operand are those of `Kernel.input_sizes`, of a result outer M N words, each times
    the shares of its own extents. With b sequences a microbatch and n microbatches, a sequence's
    part of a gradient of S bytes is ``S (1 - 1/n) / b`` read and ``S / b`` written.
    """
    row, axis = choices
    if rules.traffic.boundary is Boundary.FREE:
        nothing = np.zeros(len(row))
        return nothing, nothing
    streams = streams_memory(workload.placement, rules)
    outside = _outside(arrays, float(workload.graph.word), workload.placement, streams)
    rows, depth, width = shares
    batches = -(-arrays.outer // plan.tensor) / arrays.outer
    batch = np.where(axis == OUTER, batches[row], 1.0)
    matrix = rows * depth
    entering = outside.mn[row] * (rows * width) + outside.mk[row] * matrix
    entering += (outside.kn[row] * batch + outside.shared[row]) * (depth * width)
    leaving = outside.result[row] * (rows * width) + outside.matrix[row] * matrix
    summed = (arrays.periodic_size > 0)[row]
    leaving = np.where(summed, leaving / plan.microbatch_size, leaving)
    entering += np.where(summed, leaving * (1 - 1 / plan.n_microbatches), 0.0)
    return entering, leaving
