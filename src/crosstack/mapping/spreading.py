"""What tensors move between partitions at least, however a large graph is cut.

A partition S touches tensors, which hold tiles in the SRAM, and holds weights there; both fit it.
So from any kernel v of S at most the SRAM's capacity of tensors and weights is near at hand, and
what else lies around v is *parted* from it: every path to it through tensors passes one that
leaves S and enters another partition.

Parameters: s [B], what every tensor (touched) and kernel (its weight) takes of the SRAM at least;
C_v [B], the capacity, or what v takes alone; t_f [s], to move tensor f over the border of a
partition. Variables: y_v >= 0 [s/B], and for each v a set U_v of tensors and kernels around it, to
each of whose members u the amount y_v s_u is sent along a path from v.

(1) maximise 2 x sum over v of y_v (s(U_v) - C_v);
(2) what is sent through a tensor f is at most t_f.

Why that is a bound: partitions touched by a tensor that is cut take t_f each, so all together at
least what is sent through it from each of them. What is sent from v to a parted u is counted by
two of them at least, and at least s(U_v) - C_v of the weight around v is parted from it. These are
the dual solutions of the spreading metrics of `even1999fast`, of sets that are limited by what they
touch. Any solution is a bound; a good one comes from multiplicative weights (`garg2007faster`):
tensors have lengths, U_v is the ball with the least sum of s_u x distance over s(U_v) - C_v, and
lengths grow exponentially with what is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import Order, topological_chains
from crosstack.model.partition import ChipLoad, alone_sram
from crosstack.workload.kernel_graph import Floats, Ints

ROUNDS = 40  # of sending from all kernels
SOURCES = 256  # kernels from which is sent at a time, about
FRESH = [8 * 2**i for i in range(12)]  # times before which is forgotten what was sent until then
STEPS = (1.0, 0.3)  # how much the fullest tensor grows at first and later, in its logarithm
NEAR = 0.1  # balls so much worse than the best are used exp(-1) as much
CAPACITIES = 2.5  # of tensors on either side of a kernel among which its ball is looked for
CELLS = 200_000  # of one table of distances
CELLS_A_UNIT = 500  # of array operations; see `crosstack.mapping.budget`
ROUNDING = 1e-9  # relative, of sums of what is sent


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Kernels ``sources`` and what is around them, numbered in the window.

    ``tensors`` are the tensors with a kernel in the window; incidences of kernels and tensors
    are listed by tensor (``of_tensor``: its first; ``kernel``) and by kernel (``of_kernel``,
    ``tensor``), ``linked`` are the kernels that have any.
    """

    sources: Ints
    capacity: Floats
    tensors: Ints
    weight: Floats
    of_tensor: Ints
    kernel: Ints
    linked: Ints
    of_kernel: Ints
    tensor: Ints


def least_moved(
    load: ChipLoad, order: Order, *, of_use: Callable[[float], bool], budget: Budget
) -> float:
    """Return a lower bound on the time that tensors move between partitions. [s]

    Parameters
    ----------
    of_use : callable
        Whether a bound of so much would be of any use. [s]
    budget : Budget
        What is left to spend; the best so far comes back once it is spent.
    """
    time = np.array([flow.moved for flow in load.flows]) / load.bandwidth
    used = time > 0
    if load.temporal is not None or not used.any():
        return 0.0
    windows, every = list(_windows(load, order)), -(-load.n // SOURCES)
    length = np.where(used, 1 / np.where(used, time, 1.0) / used.sum(), np.inf)
    benefit, through, best, ratio, reach = 0.0, np.zeros(len(time)), 0.0, math.inf, 0.0
    for number in range(ROUNDS * every):
        if number in FRESH:  # what was sent along worse lengths
            benefit, through = 0.0, np.zeros(len(time))
        gained, more, least = 0.0, np.zeros(len(time)), math.inf
        for window in windows:
            found = _send(window, length, ratio, slice(number % every, None, every), budget)
            gained, least = gained + found[0], min(least, found[2])
            more[window.tensors] += found[1]
        if not gained or (budget.over() and best):
            break
        share = more[used] / time[used]
        step = STEPS[number >= FRESH[0]] / float(share.max())
        benefit, through, ratio = benefit + gained * step, through + more * step, least
        # Lengths scaled to a ratio of 1 solve the problem of the metric: more is not to be had.
        reach = max(reach, 2 / least) if number % every else 2 / least
        length[used] *= np.exp(step * share)
        length[used] /= float((length[used] * time[used]).sum())
        best = max(best, 2 * benefit / float((through[used] / time[used]).max()))
        if number % every == every - 1 and not of_use(reach):
            break
    return best * (1 - ROUNDING)


def _windows(load: ChipLoad, order: Order) -> Iterator[_Window]:
    """Yield the kernels in the order of their levels, some at a time, with what is around them."""
    n, depth = load.n, load.stream_depth
    sequence = np.array(topological_chains(order)[1])
    place = np.empty(n, dtype=np.int64)
    place[sequence] = np.arange(n)
    deepest = [max(d for _, d in flow.readers) for flow in load.flows]
    touched = np.array(
        [flow.tile * min(depth, d) for flow, d in zip(load.flows, deepest, strict=True)]
    )
    held = np.array(load.sram)
    around = held.copy()
    np.add.at(around, [flow.producer for flow in load.flows], touched)
    up_to = np.concatenate([[0.0], np.cumsum(around[sequence])])
    capacity = np.maximum(load.sram_capacity, [alone_sram(load, i) for i in range(n)])
    capacity = capacity * (1 + ROUNDING)
    flow_of = np.array([f for i in range(n) for f in load.flows_of[i]], dtype=np.int64)
    kernel_of = np.repeat(np.arange(n), [len(f) for f in load.flows_of])
    first = 0
    while first < n:
        reach = CAPACITIES * float(capacity[sequence[first]])
        low = int(np.searchsorted(up_to, up_to[first] - reach))
        last, high = first, first
        while last < n and (last == first or (last - first) * (high - low) < CELLS):
            last = min(n, last + 16)
            high = min(n, int(np.searchsorted(up_to, up_to[last] + reach)))
        inside = (place[kernel_of] >= low) & (place[kernel_of] < high)
        tensors, tensor = np.unique(flow_of[inside], return_inverse=True)
        kernel = place[kernel_of[inside]] - low
        by_tensor, by_kernel = np.argsort(tensor, kind="stable"), np.argsort(kernel, kind="stable")
        linked, of_kernel = np.unique(kernel[by_kernel], return_index=True)
        yield _Window(
            sources=np.arange(first, last) - low,
            capacity=capacity[sequence[first:last]],
            tensors=tensors,
            weight=np.concatenate([touched[tensors], held[sequence[low:high]]]),
            of_tensor=np.searchsorted(tensor[by_tensor], np.arange(len(tensors))),
            kernel=kernel[by_tensor],
            linked=linked,
            of_kernel=of_kernel,
            tensor=tensor[by_kernel],
        )
        first = last


def _send(
    window: _Window, lengths: Floats, reference: float, some: slice, budget: Budget
) -> tuple[float, Floats, float]:
    """Send from some sources of a window what is best along these lengths.

    Returns the benefit [s], what is sent through each tensor of the window [s], up to a common
    factor, and the least ratio of lengths to benefit. [1/s]
    """
    length, weight = lengths[window.tensors], window.weight
    sources, capacity = window.sources[some], window.capacity[some]
    none = 0.0, np.zeros(len(length)), math.inf
    if not len(sources):
        return none
    to_tensor, to_kernel = _distances(window, length, sources, budget)
    distance = np.concatenate([to_tensor, to_kernel], axis=1)
    rank = np.argsort(distance, axis=1)
    near = np.take_along_axis(distance, rank, axis=1)
    sizes = weight[rank]
    costs = np.cumsum(np.where(sizes > 0, near * np.maximum(sizes, 1e-300), 0.0), axis=1)
    parted = np.cumsum(sizes, axis=1) - capacity[:, None]
    ratios = np.where(parted > 0, costs / np.where(parted > 0, parted, 1.0), np.inf)
    ends, rows = ratios.argmin(axis=1), np.arange(len(sources))
    ratio, benefit = ratios[rows, ends], parted[rows, ends]
    least = float(ratio.min())
    if math.isinf(least):
        return none
    good = np.isfinite(ratio)
    worse = np.where(good, ratio, least) / min(least, reference) - 1
    amount = np.where(good, np.exp(-worse / NEAR) / np.where(good, benefit, 1.0), 0.0)
    sent = np.zeros(distance.shape)
    inside = np.arange(distance.shape[1])[None, :] <= ends[:, None]
    np.put_along_axis(sent, rank, inside * sizes * amount[:, None], axis=1)
    through = _through(window, length, sources, (to_tensor, to_kernel), sent)
    return float((amount * benefit).sum()), through, least


def _distances(
    window: _Window, length: Floats, sources: Ints, budget: Budget
) -> tuple[Floats, Floats]:
    """Return lengths of the tensors on the way from sources to tensors, and to kernels.

    Shapes (sources, tensors) and (sources, kernels); the last tensor of a way to a tensor, which is
    itself, does not count.
    """
    rows, kernels = len(sources), len(window.weight) - len(window.tensors)
    to_kernel = np.full((rows, kernels), np.inf)
    to_kernel[np.arange(rows), sources] = 0.0
    while True:
        budget.spend(CALL + 2 * rows * len(window.kernel) // CELLS_A_UNIT)
        to_tensor = np.minimum.reduceat(to_kernel[:, window.kernel], window.of_tensor, axis=1)
        behind = (to_tensor + length)[:, window.tensor]
        shorter = np.minimum.reduceat(behind, window.of_kernel, axis=1)
        if not (shorter < to_kernel[:, window.linked]).any():
            return to_tensor, to_kernel
        to_kernel[:, window.linked] = np.minimum(to_kernel[:, window.linked], shorter)


def _through(
    window: _Window,
    length: Floats,
    sources: Ints,
    distances: tuple[Floats, Floats],
    sent: Floats,
) -> Floats:
    """Return what passes each tensor when ``sent`` goes to tensors and kernels by shortest ways."""
    to_tensor, to_kernel = distances
    rows, kernels = to_kernel.shape
    tensors, everyone = len(length), np.arange(len(sources))
    # The kernel before each tensor on the way, and the tensor before each kernel.
    counts = np.diff(np.append(window.of_tensor, len(window.kernel)))
    here = to_kernel[:, window.kernel] == np.repeat(to_tensor, counts, axis=1)
    before = np.maximum.reduceat(np.where(here, window.kernel, -1), window.of_tensor, axis=1)
    counts = np.diff(np.append(window.of_kernel, len(window.tensor)))
    behind = (to_tensor + length)[:, window.tensor]
    here = behind == np.repeat(to_kernel[:, window.linked], counts, axis=1)
    entered = np.full((rows, kernels), -1)
    entered[:, window.linked] = np.maximum.reduceat(
        np.where(here, window.tensor, -1), window.of_kernel, axis=1
    )
    through = np.zeros(tensors)

    def arrive(row: Ints, at: Ints, amount: Floats) -> Floats:
        """Add up what arrives at kernels; what has come to its source is there."""
        cells = np.bincount(row * kernels + at, weights=amount, minlength=rows * kernels)
        found: Floats = cells.reshape(rows, kernels).astype(np.float64)
        found[everyone, sources] = 0.0
        return found

    row, tensor = np.nonzero(sent[:, :tensors])
    waiting = sent[:, tensors:] + arrive(row, before[row, tensor], sent[row, tensor])
    waiting[everyone, sources] = 0.0
    while True:
        row, kernel = np.nonzero(waiting)
        if not len(row):
            return through
        tensor, amount = entered[row, kernel], waiting[row, kernel]
        through += np.bincount(tensor, weights=amount, minlength=tensors)
        waiting = arrive(row, before[row, tensor], amount)
