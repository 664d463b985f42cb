"""A matrix times a column: the kernel that libraries fall back on.

Stored by rows, a row of the K x 1 operand is one word, too short for asynchronous copies, which
need 4, 8 or 16 bytes (``nvidia_cuda_guide``). So nothing is loaded ahead: every step waits for main
memory. A row times a matrix has no such operand.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crosstack.chip.hierarchy import ChipHierarchy, Scope
from crosstack.chip.kernel_rules import KernelRules
from crosstack.chip.systolic import fill_and_drain_cycles
from crosstack.chip.waves import Schedules

__all__ = ["vector_schedules"]

Floats = NDArray[np.float64]


def vector_schedules(
    chip: ChipHierarchy, m: Floats, k: Floats, n: Floats, rules: KernelRules
) -> Schedules:
    """Return how products with one column run; `Schedules` says what is in it.

    Parameters
    ----------
    chip : ChipHierarchy
        With bundles and a bandwidth at every level.
    m, k, n : ndarray, shape (shapes,)
        Products of M x K by K x N, N 1. [1]
    rules : KernelRules
        ``vector_rows`` and ``vector_step``, the share of a block.

    Returns
    -------
    Schedules
        With times in [s] and traffic in [B], launch excluded.

    Notes
    -----
    A block has ``vector_rows`` rows of the matrix and as many columns, all but one empty; it takes
    ``vector_step`` bytes of each row a step. A step waits for main memory, is written to the
    bundle's memory and read back, and fills the arrays:
    ``steps (memory latency + 2 bundle latency + fill) + blocks 2 rows^2 K / rate of a bundle``.
    The blocks of a bundle wait together, as many as its registers hold sums of. The kernel takes
    the longer of that and of the slowest level, each moving the matrix once.

    References
    ----------
    nvidia_cuda_guide; ardalani2022deepflow, 6.1
    """
    compute, memory, word = chip.compute, chip.main_memory, chip.word
    rows = float(rules.vector_rows)
    blocks = np.ceil(m / rows)
    most = np.ceil(blocks / compute.n_bundles)
    wide = rules.vector_step / word
    steps = np.ceil(k / wide)

    of_bundle = [level for level in chip.levels[:-1] if level.scope is not Scope.CHIP]
    local = of_bundle[-1].latency if of_bundle else 0.0
    held = min((level.capacity for level in of_bundle), default=0.0) / compute.n_bundles
    sums = rows * rows * rules.accumulator_word
    resident = max(held * rules.accumulator_share // sums, 1.0)
    depth = np.ceil(k / compute.depth) * compute.depth
    each = 2 * rows * rows * depth / (compute.throughput / compute.n_bundles)
    trip = memory.latency + 2 * local + fill_and_drain_cycles(compute) / compute.frequency
    waiting = np.ceil(most / resident) * steps * trip
    computing = most * each

    read = (m + blocks) * k * word  # every block reads the vector again
    once, out = (m + 1) * k * word, m * word
    traffic, level_times, tiles = [], [], []
    for level in chip.levels[:-1]:
        if level.scope is Scope.CHIP:
            traffic.append(read + out + (1 - 1 / level.partitions) * (once + out))
        elif level.scope is Scope.UNIT:
            traffic.append(2 * m * k * word)
        else:
            traffic.append(2 * read)
        level_times.append(traffic[-1] / level.bandwidth)
        tiles.append(np.stack([np.minimum(m, rows), np.full_like(m, wide), n], axis=-1))
    traffic.append(once + out)
    level_times.append(traffic[-1] / memory.bandwidth)
    tiles.append(np.stack([m, k, n], axis=-1))
    slowest = np.maximum.reduce(level_times) + memory.latency
    return Schedules(
        time=np.maximum(waiting + computing, slowest),
        compute_time=computing,
        waiting_time=waiting,
        reduction_time=np.zeros_like(m),
        split=np.ones_like(m),
        n_tiles=blocks,
        reuse_shape=(np.minimum(m, rows), k, n),
        traffic=tuple(traffic),
        level_times=tuple(level_times),
        tiles=tuple(tiles),
    )
