"""What products take to put down what they make: wide results, and gradients that are added up.

A clock's product makes numbers of the type that it multiplies. Results may be wider (16 bits of
products of 8, 32 of gradients), and a gradient of a weight is added to that of earlier microbatches
as its tiles are put down: what is there is read, too. Frameworks whose products do not add have a
kernel behind each that reads both and writes the sum; of a first microbatch there is none. What
data-parallel chips send, once an iteration or, of shares, in every microbatch, may be copied before
and behind (`crosstack.machine.framework.Framework.sent_passes`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from crosstack.machine.chip import Chip
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats, KernelGraph

if TYPE_CHECKING:
    from crosstack.model.kernels.clock import KernelClock


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Results:
    """What results of products take beyond those of the clock; arrays are (n,).

    ``beside`` while tiles are put down, ``behind`` in a kernel of its own, both for each number
    [s]; ``launches`` of such kernels in a microbatch; ``wider``: bytes of main memory that the
    product itself writes and reads there, for each that its result has in the end. [1]
    """

    beside: Floats
    behind: Floats
    launches: Floats
    wider: Floats


@lru_cache(maxsize=1024)
def results_of(
    arrays: KernelGraph,
    chip: Chip,
    clock: KernelClock,
    microbatches: float,
    *,
    shared: bool,
    alone: bool = False,
) -> Results:
    """Return what results of the products of a graph take. [s]

    Parameters
    ----------
    microbatches : float
        Of an iteration. [1]
    shared : bool
        Whether data-parallel chips have shares of gradients, so that those of a microbatch are
        summed and sent at once.
    alone : bool
        Whether there is no other data-parallel chip.
    """
    summed, element = arrays.periodic_size > 0, arrays.output_element
    made = np.ones(arrays.n)  # what a product writes that does not add: 16 bits or more
    for dtype, those in arrays.kernels_by_dtype:
        made[those] = max(dtype.size, Dtype.BF16.size)
    apart = summed & np.bool_(chip.framework is not None and not chip.framework.fused_sums)
    moved = np.where(apart, made, element * np.where(summed, 2, 1))
    beside = np.zeros(arrays.n)
    for dtype, those in arrays.kernels_by_dtype:
        bytes_ = moved[those]
        beside[those] = clock.result_time(chip, dtype, np.ones_like(bytes_), bytes_)
    more = np.where(apart, 0.0 if shared else 1 - 1 / microbatches, 0.0)
    passes = 0.0 if chip.framework is None or alone else chip.framework.sent_passes
    copied = summed * passes * (1.0 if shared else 1 / microbatches)
    again = 1 - 1 / (microbatches * arrays.sharers)  # each but the first adds
    return Results(
        beside=beside,
        behind=(more * (made + 2 * element) + copied * made) / chip.main_memory.speed,
        launches=more,
        wider=np.where(apart, made / element, 1 + summed * again),
    )
