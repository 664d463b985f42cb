"""What tensors move between partitions at least, if all sets that may be one are listed.

Sets and parameters: kernels i, connected sets S of them that fit the SRAM
(`crosstack.mapping.listing`), and c_S [s], what the tensors of each move.
Variables: x_S, how much of S is a partition; prices y_i of kernels. [s]

(1) minimise the sum of c_S x_S, where each kernel is in one set: the sum of x_S with i in S is 1;
(2) its dual: maximise the sum of y_i, where those of no set add up to more than c_S.

A partition is a set of connected ones, so any prices that keep to (2) are a bound: set
partitioning with columns of which few are looked at (``barnhart1998branch``). What a few sets allow
is found by an interior-point method (``mehrotra1992implementation``), and sets whose prices exceed
them join in. What is too much in the end is taken off the price of the first kernel of each set: of
the sets of a partition no two have the same one.

Kernels are numbered along the graph, so a set has near ones, and what is to be solved, a sum over
sets of products of their kernels, has blocks on its diagonal and beside it only.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import Order
from crosstack.mapping.listing import list_partitions
from crosstack.mapping.merging import packed_partitions
from crosstack.mapping.series_parallel import LeastMoved
from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import Floats, Ints

ROUNDS = 20  # of looking for sets whose prices exceed what they move
FIRST, MORE = 8, 6  # sets with the same first kernel that are looked at first, and more in a round
CLOSE = 1e-3  # relative; how near the best prices are enough
STEPS = 30  # of the interior-point method
GAPS = (1e-2, 1e-2, 1e-3)  # relative, at which it stops, in turn and from there on
BORDER = 0.98  # of the way to where a variable would be 0
LEAST_LEFT = 0.1  # of each cost, over their mean, at the start
MOST_CELLS = 4_000_000  # of the blocks of its matrix
LEAST_USED = 0.01  # of a set that is tried as a partition
CELLS_A_UNIT, SUMS_A_UNIT = 500, 10_000  # array operations; those of products of matrices
ROUNDING = 1e-9  # relative


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Sets: ``kernels[start[k]:start[k + 1]]`` are those of set k, which moves ``moved``. [s]"""

    n: int
    start: Ints
    kernels: Ints
    moved: Floats

    @property
    def sizes(self) -> Ints:
        """Kernels of each. [1]"""
        return np.diff(self.start)

    @property
    def first(self) -> Ints:
        """The first kernel of each."""
        return np.asarray(self.kernels[self.start[:-1]])

    def worth(self, price: Floats) -> Floats:
        """Sum of the prices of the kernels of each. [s]"""
        return np.asarray(np.add.reduceat(price[self.kernels], self.start[:-1]))

    def share(self, amount: Floats) -> Floats:
        """Sum over each kernel's sets. [1]"""
        each = np.repeat(amount, self.sizes)
        return np.asarray(np.bincount(self.kernels, weights=each, minlength=self.n), dtype=float)

    def some(self, which: Ints) -> Columns:
        """Return some of them."""
        sizes = self.sizes[which]
        start = np.concatenate([[0], np.cumsum(sizes)])
        cells = np.repeat(self.start[which] - start[:-1], sizes) + np.arange(start[-1])
        return Columns(n=self.n, start=start, kernels=self.kernels[cells], moved=self.moved[which])


def least_moved_of_sets(load: ChipLoad, order: Order, *, budget: Budget) -> LeastMoved:
    """Return a lower bound on what tensors move where sets that fit are few, and partitions.

    ``budget`` is what is left to spend.
    """
    if load.temporal is not None:
        return LeastMoved()
    listed = list_partitions(load, order, budget=budget)
    if listed is None:
        return LeastMoved()
    columns = Columns(n=load.n, start=listed.start, kernels=listed.places, moved=listed.moved)
    moved, chosen, used = dearest(columns, budget)
    rank = np.argsort(-used, kind="stable")
    wanted = columns.some(chosen[rank[used[rank] > LEAST_USED]])
    kernels = listed.sequence[wanted.kernels].tolist()
    masks = [
        sum(1 << i for i in kernels[a:b]) for a, b in itertools.pairwise(wanted.start.tolist())
    ]
    return LeastMoved(moved, packed_partitions(load, order, masks, budget=budget))


def dearest(columns: Columns, budget: Budget) -> tuple[float, Ints, Floats]:
    """Return the most that prices of kernels add up to [s], sets, and how much of each is used.

    ``budget`` is what is left to spend; 0 where it does not suffice for any.
    """
    first, sizes = columns.first, columns.sizes
    active = sizes == 1
    active[_foremost(first, columns.moved / sizes, FIRST)] = True
    best, chosen, used = 0.0, np.zeros(0, dtype=np.int64), np.zeros(0)
    for number in range(ROUNDS):
        those = np.flatnonzero(active)
        solved = _solve(columns.some(those), GAPS[min(number, len(GAPS) - 1)], budget)
        if solved is None:
            break
        amount, price = solved
        budget.spend(CALL + 3 * len(columns.kernels) // CELLS_A_UNIT)
        excess = columns.worth(price) - columns.moved
        taken = np.zeros(columns.n)
        np.maximum.at(taken, first, excess)
        bound = float(price.sum() - taken.sum())
        if bound > best:
            best, chosen, used = bound, those, amount
        if taken.sum() <= CLOSE * abs(float(price.sum())) or budget.over():
            break
        bad = np.flatnonzero(excess > ROUNDING * columns.moved)
        active[bad[_foremost(first[bad], -excess[bad] / sizes[bad], MORE)]] = True
    return best * (1 - ROUNDING), chosen, used


def _foremost(group: Ints, value: Floats, most: int) -> Ints:
    """Return which of each ``group`` have the least ``value``, at most so many of each."""
    rank = np.lexsort((value, group))
    ordered = group[rank]
    return np.asarray(rank[np.arange(len(rank)) - np.searchsorted(ordered, ordered) < most])


class _Matrix:
    """The sum over sets of a weight times the products of their kernels, in blocks."""

    def __init__(self, columns: Columns) -> None:
        sizes, n = columns.sizes, columns.n
        span = int((columns.kernels[columns.start[1:] - 1] - columns.first).max())
        self.size = min(max(span, 1), n)
        self.n, self.blocks = n, -(-n // self.size)
        each = np.repeat(sizes, sizes)
        one = np.repeat(columns.kernels, each)
        along = np.arange(len(one)) - np.repeat(np.cumsum(each) - each, each)
        self.set = np.repeat(np.repeat(np.arange(len(sizes)), sizes), each)
        other = columns.kernels[columns.start[:-1][self.set] + along]
        kept = other // self.size <= one // self.size  # below the diagonal, in blocks
        one, other, self.set = one[kept], other[kept], self.set[kept]
        block, before = one // self.size, other // self.size
        self.cell = ((2 * block + (before < block)) * self.size + one % self.size) * self.size
        self.cell += other % self.size

    @property
    def cells(self) -> int:
        """Entries of all blocks. [1]"""
        return 2 * self.blocks * self.size**2

    @property
    def work(self) -> int:
        """Units of work to invert it, see `crosstack.mapping.budget`."""
        sums = 8 * self.blocks * self.size**3
        return CALL * self.blocks + len(self.cell) // CELLS_A_UNIT + sums // SUMS_A_UNIT

    def inverse(self, weight: Floats) -> Callable[[Floats], Floats]:
        """Return a function that solves for a right side."""
        size, blocks, n = self.size, self.blocks, self.n
        table = np.bincount(self.cell, weights=weight[self.set], minlength=self.cells)
        table = table.reshape(blocks, 2, size, size)
        last = np.arange(n - (blocks - 1) * size, size)
        table[-1, 0, last, last] = 1.0  # beyond the last kernel
        inverse, lower = np.empty((2, blocks, size, size))
        for k in range(blocks):
            here = table[k, 0]
            if k:
                lower[k] = table[k, 1] @ inverse[k - 1]
                here = here - lower[k] @ table[k, 1].T
            inverse[k] = np.linalg.inv(here)

        def solve(right: Floats) -> Floats:
            rows = np.zeros((blocks, size))
            rows.reshape(-1)[:n] = right
            for k in range(1, blocks):
                rows[k] -= lower[k] @ rows[k - 1]
            rows = (inverse @ rows[:, :, None])[:, :, 0]
            for k in range(blocks - 2, -1, -1):
                rows[k] -= lower[k + 1].T @ rows[k + 1]
            return np.asarray(rows.reshape(-1)[:n])

        return solve


def _solve(columns: Columns, gap: float, budget: Budget) -> tuple[Floats, Floats] | None:
    """Return how much of each set is used, and prices of kernels [s], to a relative ``gap``.

    None where there is no time or memory for it.
    """
    matrix = _Matrix(columns)
    if matrix.cells > MOST_CELLS:
        return None
    scale = float(columns.moved.mean()) or 1.0
    at = _Point(columns, columns.moved / scale)
    for _ in range(STEPS):
        if budget.spend(matrix.work):
            return None
        at.residuals()
        if at.near(gap):
            break
        solve = matrix.inverse(at.x / at.s)
        at.move(solve)
    return at.x, at.y * scale


class _Point:
    """How much ``x`` of each set is used, prices ``y``, and what they leave ``s`` of each cost.

    Costs are over their mean. ``lacking`` and ``slack`` are what the equations miss.
    """

    def __init__(self, columns: Columns, cost: Floats) -> None:
        self.columns, self.cost = columns, cost
        often = columns.share(np.ones(len(cost)))[columns.kernels]
        self.x = 1 / np.maximum.reduceat(often, columns.start[:-1])
        self.y, self.s = np.zeros(columns.n), np.maximum(cost, LEAST_LEFT)

    def residuals(self) -> None:
        """Find what the equations miss."""
        self.lacking = 1 - self.columns.share(self.x)
        self.slack = self.cost - self.columns.worth(self.y) - self.s

    def near(self, gap: float) -> bool:
        """Whether this is near enough the best, relative to it."""
        far = float(self.x @ self.s) >= gap * max(float(self.cost @ self.x), gap)
        return not far and float(np.abs(self.slack).max()) < gap * gap

    def move(self, solve: Callable[[Floats], Floats]) -> None:
        """Go as far as no variable falls below 0: where products of x and s are equal, and less."""
        x, s, mean = self.x, self.s, float(self.x @ self.s) / len(self.x)
        dx, _, ds = self._step(solve, -x * s)
        ahead = (x + _longest(x, dx) * dx) @ (s + _longest(s, ds) * ds) / len(x)
        target = (float(ahead) / mean) ** 3 * mean - x * s - dx * ds
        dx, dy, ds = self._step(solve, target)
        a, b = BORDER * _longest(x, dx), BORDER * _longest(s, ds)
        self.x, self.y, self.s = x + a * dx, self.y + b * dy, s + b * ds

    def _step(
        self, solve: Callable[[Floats], Floats], target: Floats
    ) -> tuple[Floats, Floats, Floats]:
        """Return the changes of x, y and s that change their products by ``target``."""
        columns, weight = self.columns, self.x / self.s
        dy = solve(self.lacking - columns.share(target / self.s - weight * self.slack))
        ds = self.slack - columns.worth(dy)
        return target / self.s - weight * ds, dy, ds


def _longest(value: Floats, step: Floats) -> float:
    """Return how much of a step leaves all values above 0, at most all of it."""
    down = step < 0
    return min(1.0 / BORDER, float((-value[down] / step[down]).min(initial=np.inf)))
