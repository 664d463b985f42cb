"""How many cores a kernel gets, and what that costs in cycles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.workload.kernel_graph import Floats, Ints


@dataclass(frozen=True, slots=True)
class Staircase:
    """Fewest cores for each reachable number of cycles: cores ascending, cycles descending."""

    cores: Ints
    cycles: Floats
    lanes: Ints
    stages: Ints


@lru_cache(maxsize=4096)
def staircase(
    m: int, k: int, n: int, systolic: bool, lanes: int, stages: int, n_cores: int
) -> Staircase:
    """Return the cycles of one tile against the cores a kernel gets, those of `deals` that count.

    Parameters
    ----------
    m, k, n : int
        Extents of one tile on one chip. [1]
    systolic : bool
        Systolic kernels split M over lanes and N over stages; elementwise ones M over lanes.
    lanes, stages, n_cores : int
        Of the chip. [1]
    """
    side_a, side_b, cycles = deals((m, k, n, systolic), lanes, stages, n_cores)
    cores = side_a * side_b
    order = np.lexsort((cycles, cores))
    best = np.minimum.accumulate(cycles[order])
    chosen = order[np.concatenate([[True], best[1:] < best[:-1]])]
    return Staircase(cores[chosen], cycles[chosen], side_a[chosen], side_b[chosen])


@lru_cache(maxsize=1024)
def deals(
    shape: tuple[int, int, int, bool], lanes: int, stages: int, n_cores: int
) -> tuple[Ints, Ints, Floats]:
    """Return a, b and the cycles of every deal of a x b cores that gives a new number of rounds.

    ``cycles = ceil(m / (a lanes)) ceil(n / (b stages)) k`` (elementwise: b = 1,
    ``ceil(m / (a lanes)) n``). Source: ``dfmodel_code``.

    Parameters
    ----------
    shape : tuple
        m, k, n of a tile [1], and whether the kernel is systolic.
    lanes, stages, n_cores : int
        Of the chip. [1]
    """
    m, k, n, systolic = shape
    a = _fewest(m, lanes, n_cores)
    b = _fewest(n, stages, n_cores) if systolic else np.ones(1, dtype=np.int64)
    side_a, side_b = np.repeat(a, len(b)), np.tile(b, len(a))
    rounds, each = -(-m // (side_a * lanes)), n
    if systolic:
        rounds, each = rounds * -(-n // (side_b * stages)), k
    kept = side_a * side_b <= n_cores
    return side_a[kept], side_b[kept], rounds[kept].astype(float) * each


def _fewest(extent: int, cells: int, n_cores: int) -> Ints:
    """Core counts along one side that each give a new number of steps, ascending."""
    most = min(n_cores, -(-extent // cells))
    counts = np.arange(1, most + 1, dtype=np.int64)
    rounds = -(-extent // (counts * cells))
    return np.asarray(counts[np.concatenate([[True], rounds[1:] < rounds[:-1]])])


def deal_cores(
    stairs: list[tuple[int, Staircase, float]], n_cores: int
) -> tuple[float, tuple[tuple[int, int, int], ...]] | None:
    """Deal whole cores to kernels so that the slowest is as fast as possible, exactly.

    Of (kernel, staircase, seconds per cycle) it returns (time, ((kernel, lanes, stages), ...)), or
    None if there are fewer cores than kernels. The fewest cores that reach a time T fall as T
    grows, so T is found by bisection over the times that some kernel can take.
    """
    if sum(int(s.cores[0]) for _, s, _ in stairs) > n_cores:
        return None
    if len(stairs) == 1:
        return _deal_one(*stairs[0], n_cores)
    times = [s.cycles * scale for _, s, scale in stairs]
    steps = np.unique(np.concatenate(times))

    def picks(limit: float) -> list[int] | None:
        total, chosen = 0, []
        for (_, s, _), taken in zip(stairs, times, strict=True):
            # taken falls, so count how many are still above the limit
            i = len(taken) - int(np.searchsorted(taken[::-1], limit, side="right"))
            if i == len(taken):
                return None
            total += int(s.cores[i])
            if total > n_cores:
                return None
            chosen.append(i)
        return chosen

    low, high = 0, len(steps) - 1
    while low < high:
        middle = (low + high) // 2
        if picks(float(steps[middle])) is None:
            low = middle + 1
        else:
            high = middle
    chosen = picks(float(steps[low]))
    if chosen is None:
        return None
    dealt = tuple(
        (kernel, int(s.lanes[i]), int(s.stages[i]))
        for (kernel, s, _), i in zip(stairs, chosen, strict=True)
    )
    return float(steps[low]), dealt


def _deal_one(
    kernel: int, stair: Staircase, scale: float, n_cores: int
) -> tuple[float, tuple[tuple[int, int, int], ...]]:
    """Return what `deal_cores` does of a kernel alone: the fewest cores that take the least."""
    taken = stair.cycles[: int(np.searchsorted(stair.cores, n_cores, side="right"))] * scale
    i = int(taken.argmin())
    return float(taken[i]), ((kernel, int(stair.lanes[i]), int(stair.stages[i])),)
