"""The best cut of an order of kernels into partitions.

Along an order, a partition is a *segment*: kernels from one place to another. What a tensor moves
and takes of the SRAM is the same in all segments that begin and end between the same two of its
kernels. So it is added to a rectangle of a table of all segments, by where they begin (rows) and
where they end (columns), and sums along both sides give the terms of all, by the formulas of
`crosstack.model.partition.partition_cost`. A tensor that is made at place p and read at
r_1 < r_2 < ... adds to segments from a to e:

* what enters, and two tiles of it, for ``p, r_(i-1) < a <= r_i <= e``: once for each reader that
  may be the first inside, as that one alone is;
* what leaves, and as many tiles, for ``a <= p <= e``; tiles for deeper readers for ``a <= p`` and
  ``r_i <= e``, each what it needs beyond those before it;
* what does not leave after all, taken off again for ``a <= p`` and all readers at e or before.

Then the least cost up to each place is found from those before it (Bellman's recursion for the
shortest path through a graph without cycles), so it is that of all cuts of the order whose segments
were tried.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np

from crosstack.mapping.budget import CALL, DEAL, UNLIMITED, Budget
from crosstack.mapping.steps import least_compute
from crosstack.model.alive import live_size
from crosstack.model.partition import ROUNDING, ChipLoad, combine_arrays, partition_cost
from crosstack.workload.kernel_graph import Bools, Floats, Ints

__all__ = ["Segments", "segment"]

SHORTEST_REACH = 32
MOST_EXTENSIONS = 2_000_000  # of all partitions tried along one order
STEP, ROW = 20, 6  # units of work of a partition that is priced, and of a row; see `Budget`
CELLS_A_UNIT = 200  # of array operations
ROWS = 128  # kernels at which partitions begin that are looked at together
WIDTH = 64  # kernels of a partition at first
TERMS = "network", "data", "own_memory", "weight_time", "sram"  # fields of loads that add up


def segment(
    load: ChipLoad, sequence: Sequence[int], *, budget: Budget = UNLIMITED
) -> tuple[tuple[float, tuple[int, ...]] | None, bool]:
    """Cut one topological order into partitions; see `Segments.cut`."""
    return Segments(load).cut(sequence, budget=budget)


@dataclass(frozen=True, slots=True, eq=False)
class _Rectangles:
    """What tensors add to segments from one of ``first`` to ``last`` that end at ``end`` or later.

    Places in an order, ``last`` included, shape (rectangles,); ``moved`` [B], ``sram`` that they
    take [B], and ``spare``: what of it they may give back where the segment grows [B].
    """

    first: Ints
    last: Ints
    end: Ints
    moved: Floats
    sram: Floats
    spare: Floats

    def tables(self, low: int, rows: int, columns: int) -> tuple[Floats, Floats, Floats]:
        """Return the sums of moved, of SRAM and of spare bytes, shape (rows, columns) each. [B]

        Of segments from place ``low`` plus the row to ``low`` plus the column.
        """
        near = (self.first < low + rows) & (self.last >= low) & (self.end < low + columns)
        first, end = np.maximum(self.first[near], low) - low, self.end[near] - low
        behind = self.last[near] + 1 - low
        goes = behind < rows
        cells = np.concatenate([first * columns + end, behind[goes] * columns + end[goes]])

        def table(values: Floats) -> Floats:
            values = values[near]
            each = np.concatenate([values, -values[goes]])
            sums = np.bincount(cells, weights=each, minlength=rows * columns)
            return np.asarray(sums.reshape(rows, columns).cumsum(axis=0).cumsum(axis=1))

        return table(self.moved), table(self.sram), table(self.spare)


@dataclass(frozen=True, slots=True, eq=False)
class _Along:
    """What tensors and kernels add to segments of an order of ``n`` kernels.

    ``sums`` are those of terms of all kernels before each place, shape (n + 1,), by their names in
    `ChipLoad`: in [s], ``sram`` in [B].
    """

    n: int
    rectangles: _Rectangles
    sums: dict[str, Floats]

    def sum(self, name: str, low: int, rows: int, columns: int) -> Floats:
        """Return the sums of a term in segments, shape (rows, columns), as `_Rectangles.tables`."""
        sums = self.sums[name]
        until = sums[None, low + 1 : low + 1 + columns]
        return np.asarray(until - sums[low : low + rows, None], dtype=float)


@dataclass(frozen=True, slots=True, eq=False)
class _Block:
    """What segments that begin in a block of places cost, by where they begin and end. [s]

    Row k are those that begin at the k-th place of the block, column k those that end there;
    ``reach`` is of how many kernels, at most, those of each row may be of use. [1]
    """

    cost: Floats
    reach: Ints


class _Path:
    """The least cost up to each place of an order [s], and where the last partition begins.

    ``masks`` are the kernels before each place, ``longest`` is how many a partition may have [1];
    ``exact``: whether none that may be of use was left out.
    """

    def __init__(self, sequence: Sequence[int]) -> None:
        n = len(sequence)
        self.masks = list(accumulate((1 << i for i in sequence), initial=0))
        self.longest, self.exact = max(SHORTEST_REACH, MOST_EXTENSIONS // n), True
        self.best, self.before = np.full(n + 1, math.inf), np.zeros(n + 1, dtype=np.int64)
        self.best[0] = 0.0

    def stop(self) -> None:
        """Leave kernels alone from now on."""
        self.longest, self.exact = 1, False

    def step(self, start: int, cost: Floats, end: int | None = None) -> None:
        """Take partitions from ``start`` to ``end`` and behind where that costs less."""
        end = start + 1 if end is None else end
        reached, there = self.best[start] + cost, slice(end, end + len(cost))
        better = reached < self.best[there]
        np.copyto(self.best[there], reached, where=better)
        np.copyto(self.before[there], start, where=better)

    def found(self) -> tuple[float, tuple[int, ...]] | None:
        """Return the least cost of all [s], and its partitions."""
        end = len(self.best) - 1
        if math.isinf(self.best[end]):
            return None
        partitions = list[int]()
        while end:
            start = int(self.before[end])
            partitions.append(self.masks[end] & ~self.masks[start])
            end = start
        return float(self.best[-1]), tuple(reversed(partitions))


class Segments:
    """Cuts orders of the kernels of one load, or of some of them.

    ``binds``: whether tensors between partitions may fill main memory. ``plain``: whether sums tell
    what a partition costs, to rounding; else they bound it, and it is priced by itself.
    """

    def __init__(self, load: ChipLoad) -> None:
        self.load, flows = load, load.flows
        self.terms = {name: np.array(getattr(load, name), dtype=float) for name in TERMS}
        self.terms["compute"] = least_compute(load)
        self.producer = np.array([flow.producer for flow in flows], dtype=np.int64)
        self.moved = np.array([flow.moved for flow in flows], dtype=float)
        self.tile = np.array([flow.tile for flow in flows], dtype=float)
        self.readers = np.array([len(flow.readers) for flow in flows], dtype=np.int64)
        every = [(f, r, d) for f, flow in enumerate(flows) for r, d in flow.readers]
        self.flow, self.reader, self.depth = np.array(every, dtype=np.int64).reshape(-1, 3).T
        self.deepest = np.zeros(len(flows), dtype=np.int64)
        np.maximum.at(self.deepest, self.flow, self.depth)
        self.binds = sum(flow.held for flow in flows) > load.memory_limit
        plain = load.staircases is None and load.unit is None and load.temporal is None
        self.plain = plain and not (load.unmixed or self.binds)
        self.each = STEP if load.unit is None or load.staircases is None else DEAL
        self.alone: dict[int, float] = {}

    def cut(
        self, sequence: Sequence[int], *, budget: Budget = UNLIMITED
    ) -> tuple[tuple[float, tuple[int, ...]] | None, bool]:
        """Cut one topological order into partitions; None if some kernel does not fit.

        Also returns whether every cut was tried, so that the best is exact for this order.

        Stops growing a partition when its SRAM is full whatever buffers it may give back, when the
        chip runs nothing that holds it as one, and on long orders after `MOST_EXTENSIONS` / n
        kernels, `SHORTEST_REACH` at least.
        """
        n, path, low, width = len(sequence), _Path(sequence), 0, WIDTH
        along = self._along(np.array(sequence, dtype=np.int64))
        while low < n:
            block, width = self._block(path, along, low, width, budget)
            if budget.spend(ROW * len(block.cost)):
                path.stop()
            for row, reach in enumerate(block.reach.tolist()):
                start, ends = low + row, min(reach, path.longest)
                path.exact = path.exact and not ends == path.longest < n - start
                cost = block.cost[row, row : row + ends]
                if self.plain:
                    path.step(start, cost)
                elif path.best[start] < math.inf and not self._priced(path, start, cost, budget):
                    path.stop()
            low += len(block.cost)
        return path.found(), path.exact

    def _priced(self, path: _Path, start: int, least: Floats, budget: Budget) -> bool:
        """Price partitions from ``start`` on where cores, units, directions or memory decide.

        ``least`` is what they cost at least, from one kernel on, shape (ends,) [s]. Returns whether
        there was work left for all.
        """
        load, masks = self.load, path.masks
        room = load.memory_limit * (1 + ROUNDING)
        for end, cost_at_least in enumerate(least.tolist(), start=start + 1):
            spent = budget.spend(self.each)
            if spent and end > start + 1:
                return False
            if path.best[start] + cost_at_least >= path.best[end]:
                continue
            inside = masks[end] & ~masks[start]
            cost = partition_cost(load, inside)
            if cost.fits and (not self.binds or live_size(load, masks[start], inside) <= room):
                path.step(start, np.array([cost.cost]), end)
        return True

    def _along(self, order: Ints) -> _Along:
        """Return what tensors and kernels add to sets along an order."""
        sums = {name: np.append(0.0, np.cumsum(term[order])) for name, term in self.terms.items()}
        return _Along(len(order), self._rectangles(order), sums)

    def _rectangles(self, order: Ints) -> _Rectangles:
        """Return what tensors add to segments of an order; the cases are those of the module."""
        place = np.full(self.load.n, -1)
        place[order] = np.arange(len(order))
        made, at = place[self.producer], place[self.reader]
        inside = np.flatnonzero(at >= 0)
        inside = inside[np.lexsort((at[inside], self.flow[inside]))]
        flow, at, depth = self.flow[inside], at[inside], self.depth[inside]
        first = np.append(True, flow[1:] != flow[:-1])[: len(flow)]  # reader of a tensor
        before = np.where(first, made[flow], np.roll(at, 1))
        two, tile = self.load.stream_depth, self.tile
        # Deepest reader so far, of each tensor on its own.
        span = int(self.deepest.max(initial=0)) + two + 1
        deep = np.maximum.accumulate(flow * span + np.maximum(depth, two)) - flow * span
        shallower = np.where(first, two, np.roll(deep, 1))
        own = np.flatnonzero((made >= 0)[flow])
        makes = np.flatnonzero(made >= 0)
        last = np.full(len(made), -1)
        np.maximum.at(last, flow, at)
        count = np.bincount(flow, minlength=len(made))
        whole = np.flatnonzero((made >= 0) & (count == self.readers))
        spare = np.maximum(two - self.deepest, 0) * tile
        none = np.zeros
        shrinks = (self.deepest - np.maximum(self.deepest, two)) * tile
        return _Rectangles(
            first=np.concatenate([before + 1, none(len(makes) + len(own) + len(whole), int)]),
            last=np.concatenate([at, made[makes], made[flow[own]], made[whole]]),
            end=np.concatenate([at, made[makes], at[own], last[whole]]),
            moved=np.concatenate(
                [self.moved[flow], self.moved[makes], none(len(own)), -self.moved[whole]]
            ),
            sram=np.concatenate(
                [
                    two * tile[flow],
                    two * tile[makes],
                    (deep - shallower)[own] * tile[flow[own]],
                    shrinks[whole],
                ]
            ),
            spare=np.concatenate([none(len(flow)), spare[makes], none(len(own)), -spare[whole]]),
        )

    def _block(
        self, path: _Path, along: _Along, low: int, width: int, budget: Budget
    ) -> tuple[_Block, int]:
        """Return segments that begin at ``low`` or behind, and how wide the next ones may be.

        All that may fit are among them, but of more kernels than ``path`` may have in one: what the
        SRAM holds, less what may be given back, only grows with the place where a segment ends.
        """
        load, n = self.load, len(path.masks) - 1
        room, rows = load.sram_capacity * (1 + ROUNDING), min(ROWS, n - low)
        while True:
            columns = min(rows + width, n - low)
            budget.spend(CALL + rows * columns // CELLS_A_UNIT)
            moved, sram, spare = along.rectangles.tables(low, rows, columns)
            taken = sram + along.sum("sram", low, rows, columns)
            grows = taken - spare <= room
            if load.temporal is not None:
                grows &= self._legal(path.masks, low, rows, columns)
            if width >= path.longest or low + columns == n or not grows[:, -1].any():
                break
            width = 2 * width
        cost = self._cost(along, moved, low, rows, columns)
        every = np.arange(rows)
        one = cost[every, every]
        if self.plain:
            one = np.array([self._alone(path.masks, low + row) for row in range(rows)])
        cost[taken > room] = math.inf
        cost[every, every] = one
        reach = (grows & (np.arange(columns) > every[:, None])).sum(axis=1) + 1
        return _Block(cost, reach), width

    def _cost(self, along: _Along, moved: Floats, low: int, rows: int, columns: int) -> Floats:
        """Return what segments cost that move so many bytes, or at least; see `Segments`. [s]"""
        load, shape = self.load, (low, rows, columns)
        network, data = along.sum("network", *shape), along.sum("data", *shape)
        network = np.maximum(network, data) if load.network_takes_maximum else network + data
        weights = along.sum("weight_time", *shape)
        if load.resident_alone and low == 0 and along.n == columns == load.n:
            weights[0, -1] = 0.0
        memory = moved / load.bandwidth + along.sum("own_memory", *shape) + weights
        cost = combine_arrays(along.sum("compute", *shape), memory, network, load.overlap)
        return cost + load.memory_price * memory + load.network_price * network

    def _legal(self, masks: Sequence[int], low: int, rows: int, columns: int) -> Bools:
        """Whether segments, or larger ones, may be one on a chip that runs kernels one by one."""
        assert self.load.temporal is not None
        may_grow = self.load.temporal.legality.may_grow
        legal = np.zeros((rows, columns), dtype=np.bool_)
        for row in range(rows):
            end = row
            while end < columns and may_grow(masks[low + end + 1] & ~masks[low + row]):
                end += 1
            legal[row, row:end] = True
        return legal

    def _alone(self, masks: Sequence[int], place: int) -> float:
        """Return what a partition of one kernel costs, whose weight may be cut; kept. [s]"""
        inside = masks[place + 1] & ~masks[place]
        if inside not in self.alone:
            cost = partition_cost(self.load, inside)
            self.alone[inside] = cost.cost if cost.fits else math.inf
        return self.alone[inside]
