"""All sets of kernels that may be a partition, where few fit the SRAM together.

A partition that no tensor holds together is as good as one for each of its pieces, in what it
moves, and each piece fits if the whole does. So connected sets are enough. Each is listed once:
it grows from the first of its kernels by one that shares a tensor with it, and those that were
passed over stay out (as `redelmeier1981counting` counts polyominoes). What a tensor takes of the
SRAM at least only grows with the set, so one that does not fit at that is not grown.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import Order, topological_chains
from crosstack.mapping.series_parallel import least_sram, moved_again
from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints

MOST_SETS = 3_000_000
EARLY = 20_000  # sets more than the share of first kernels that are done, before it is too many
ROOTS = 16  # first kernels taken together
STRIDE = 8  # groups of them between one and the next, so that a dense place is found early
ROWS = 2_048  # sets grown at once
CELLS_A_UNIT = 500  # of array operations; see `crosstack.mapping.budget`
ROUNDING = 1e-9  # relative, of sums of SRAM

FREE, NEAR, IN, OUT = range(4)  # a kernel: unknown to a set, beside it, in it, or out for good


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """Sets of kernels in the order of their first ones, by places in ``sequence``.

    ``places[start[k]:start[k + 1]]`` are those of set k, ascending; ``moved`` is what its tensors
    move. [s]
    """

    sequence: Ints
    start: Ints
    places: Ints
    moved: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensors:
    """Tensors by number, the last one none: SRAM of a tile [B], time to move [s], kernels [1].

    ``least`` is how many tiles a tensor takes at least where it is touched, ``others`` in a
    partition that does not make it. [1]
    """

    tile: Floats
    time: Floats
    kernels: Ints
    least: Ints
    others: int

    def of(self, f: Ints, count: Any, made: Bools, deep: Any) -> tuple[Floats, Floats, Floats]:
        """What tensors take of a set however it grows, what they take [B], and move [s].

        ``count`` of the kernels of each are in the set, ``made`` whether its maker is, ``deep`` how
        deep those read it that are.
        """
        some, whole = count > 0, made & (count == self.kernels[f])
        deepest = np.where(whole, deep, np.maximum(deep, self.others))
        tile = some * self.tile[f]
        least = tile * np.maximum(self.least[f], made * deep)
        sram = tile * np.where(made, deepest, self.others)
        return least, sram, np.asarray((some & ~whole) * self.time[f])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Window:
    """Kernels that may be with the first ones, and their tensors, numbered in the window.

    ``at`` are their places; ``tensor`` (kernels, most) the tensors of each, ``makes`` whether it
    makes it and ``depth`` how deep it reads it; ``beside`` which kernels share a tensor.
    """

    at: Ints
    tensors: _Tensors
    tensor: Ints
    makes: Bools
    depth: NDArray[np.int32]
    beside: Bools
    sram: Floats
    capacity: float


@dataclass(slots=True)
class _Sets:
    """Some sets of a window: state of each kernel; kernels inside, maker and depth by tensor.

    ``least`` is the SRAM that each takes however it grows, ``sram`` what it takes [B], ``moved``
    what it moves. [s]
    """

    state: NDArray[np.int8]
    count: NDArray[np.int32]
    made: Bools
    deep: NDArray[np.int32]
    least: Floats
    sram: Floats
    moved: Floats

    def some(self, rows: slice | Ints | Bools) -> _Sets:
        """Return some of them."""
        return _Sets(*(getattr(self, name)[rows] for name in self.__slots__))


def list_partitions(
    load: ChipLoad, order: Order, *, budget: Budget, most: int = MOST_SETS
) -> Listed | None:
    """Return all connected sets of kernels that fit the SRAM; None if there are too many.

    Parameters
    ----------
    most : int
        Sets above which there are too many. [1]
    budget : Budget
        What is left to spend; None once it is spent.
    """
    sequence = np.array(topological_chains(order)[1])
    graph = _Graph(load, sequence)
    groups = [range(a, min(a + ROOTS, load.n)) for a in range(0, load.n, ROOTS)]
    found: dict[int, list[tuple[Ints, Ints, Floats]]] = {}
    count = done = 0
    for first in range(STRIDE):
        for number in range(first, len(groups), STRIDE):
            done += len(groups[number])
            found[number] = []
            for some in _grown(graph, groups[number], budget):
                found[number].append(some)
                count += len(some[0])
                if count > most * done / load.n + EARLY or budget.over():
                    return None
    each = [some for number in sorted(found) for some in found[number]]
    size, places, moved = (np.concatenate(column) for column in zip(*each, strict=True))
    start = np.concatenate([[0], np.cumsum(size)])
    rank = np.argsort(places[start[:-1]], kind="stable")
    cells = np.repeat(start[rank] - np.concatenate([[0], np.cumsum(size[rank])[:-1]]), size[rank])
    return Listed(
        sequence=sequence,
        start=np.concatenate([[0], np.cumsum(size[rank])]),
        places=places[cells + np.arange(len(places))],
        moved=moved[rank],
    )


class _Graph:
    """Kernels by place, their tensors, and what either takes at least."""

    def __init__(self, load: ChipLoad, sequence: Ints) -> None:
        self.load, n = load, load.n
        place = np.empty(n, dtype=np.int64)
        place[sequence] = np.arange(n)
        self.flows = [
            (int(place[flow.producer]), {int(place[r]): d for r, d in flow.readers})
            for flow in load.flows
        ]
        self.flows_of = [load.flows_of[i] for i in sequence.tolist()]
        self.capacity = load.sram_capacity * (1 + ROUNDING)
        self.sram = [load.sram[i] for i in sequence.tolist()]
        self.touched = [
            flow.tile * min(load.stream_depth, *(d for _, d in flow.readers)) for flow in load.flows
        ]
        self.moved = [flow.moved / load.bandwidth for flow in load.flows]
        self.alone, self.cut = [], list[bool]()
        for i in sequence.tolist():
            moved = sum(self.moved[f] for f in load.flows_of[i])
            self.alone.append(moved + moved_again(load, i))
            self.cut.append(least_sram(load, i) > self.capacity)

    def around(self, roots: range) -> list[int]:
        """Return the places, roots first, of what fits the SRAM with one of them on some way."""
        near = {root: self.sram[root] for root in roots if not self.cut[root]}
        waiting = [(taken, root) for root, taken in near.items()]
        while waiting:
            taken, here = heapq.heappop(waiting)
            if taken > near[here]:
                continue
            for f in self.flows_of[here]:
                producer, readers = self.flows[f]
                for there in (producer, *readers):
                    more = taken + self.touched[f] + self.sram[there]
                    inside = roots.start <= there and more <= self.capacity
                    if inside and not self.cut[there] and more < near.get(there, np.inf):
                        near[there] = more
                        heapq.heappush(waiting, (more, there))
        return sorted(near)

    def window(self, at: list[int]) -> _Window:
        """Return the tables of kernels at these places."""
        load, number = self.load, {place: k for k, place in enumerate(at)}
        flows = sorted({f for place in at for f in self.flows_of[place]})
        index = {f: k for k, f in enumerate(flows)}
        most = max(len(self.flows_of[place]) for place in at)
        tensor = np.full((len(at), most), len(flows))
        makes, depth = np.zeros((2, *tensor.shape), dtype=np.int32)
        beside = np.zeros((len(at), len(at)), dtype=np.bool_)
        for k, place in enumerate(at):
            for column, f in enumerate(self.flows_of[place]):
                producer, readers = self.flows[f]
                tensor[k, column] = index[f]
                makes[k, column] = producer == place
                depth[k, column] = readers.get(place, 0)
                beside[k, [number[i] for i in (producer, *readers) if i in number]] = True
        deepest = [max(self.flows[f][1].values()) for f in flows]
        return _Window(
            at=np.array(at),
            tensors=_Tensors(
                tile=np.array([load.flows[f].tile for f in flows] + [0.0]),
                time=np.array([self.moved[f] for f in flows] + [0.0]),
                kernels=np.array([1 + len(self.flows[f][1]) for f in flows] + [0]),
                least=np.array([min(load.stream_depth, d) for d in deepest] + [0]),
                others=load.stream_depth,
            ),
            tensor=tensor,
            makes=makes > 0,
            depth=depth,
            beside=beside,
            sram=np.array([self.sram[place] for place in at]),
            capacity=self.capacity,
        )


def _grown(graph: _Graph, roots: range, budget: Budget) -> Iterator[tuple[Ints, Ints, Floats]]:
    """Yield sets whose first kernel is one of ``roots``: sizes, places, what is moved. [s]

    A kernel alone is one whatever it takes, as its weight may be cut.
    """
    alone = [graph.alone[root] for root in roots]
    yield np.ones(len(roots), dtype=np.int64), np.array(roots, dtype=np.int32), np.array(alone)
    at = graph.around(roots)
    if not at:
        return
    window = graph.window(at)
    waiting = [_none_yet(window, [k for k, place in enumerate(at) if place in roots])]
    while waiting:
        sets = waiting.pop()
        if len(sets.least) > ROWS:
            waiting.append(sets.some(slice(ROWS, None)))
            sets = sets.some(slice(ROWS))
        sets = _one_more(window, sets, budget)
        if budget.over():
            return
        if len(sets.least):
            waiting.append(sets)
            inside = sets.state == IN
            size = inside.sum(axis=1)
            fit = (sets.sram <= window.capacity) & (size > 1)
            kernels = np.nonzero(inside[fit])[1]
            yield size[fit], window.at[kernels].astype(np.int32), sets.moved[fit]


def _none_yet(window: _Window, roots: list[int]) -> _Sets:
    """Return sets of no kernels, to which but a root may be added; those before it are out."""
    n, tensors = len(window.at), len(window.tensors.tile)
    state = np.full((len(roots), n), FREE, dtype=np.int8)
    for row, root in enumerate(roots):
        state[row, :root] = OUT
        state[row, root] = NEAR
    shape = len(roots), tensors
    return _Sets(
        state=state,
        count=np.zeros(shape, dtype=np.int32),
        made=np.zeros(shape, dtype=np.bool_),
        deep=np.zeros(shape, dtype=np.int32),
        least=np.zeros(len(roots)),
        sram=np.zeros(len(roots)),
        moved=np.zeros(len(roots)),
    )


def _one_more(window: _Window, sets: _Sets, budget: Budget) -> _Sets:
    """Return all sets with one of the kernels near them; those before it are out for good."""
    row, kernel = np.nonzero(sets.state == NEAR)
    budget.spend(CALL + (10 * len(row) * window.tensor.shape[1]) // CELLS_A_UNIT)
    least, sram, moved = sets.least[row], sets.sram[row], sets.moved[row]
    least, sram = least + window.sram[kernel], sram + window.sram[kernel]
    tensors, after = window.tensors, list[tuple[Ints, Any, Bools, Any]]()
    for column in range(window.tensor.shape[1]):
        f = window.tensor[kernel, column]
        count, made, deep = sets.count[row, f], sets.made[row, f], sets.deep[row, f]
        more, makes = count + 1, made | window.makes[kernel, column]
        deeper = np.maximum(deep, window.depth[kernel, column])
        was, now = tensors.of(f, count, made, deep), tensors.of(f, more, makes, deeper)
        least, sram = least + now[0] - was[0], sram + now[1] - was[1]
        moved = moved + now[2] - was[2]
        after.append((f, more, makes, deeper))
    kept = np.flatnonzero(least <= window.capacity)
    budget.spend(6 * len(kept) * len(window.at) // CELLS_A_UNIT)
    row, kernel, every = row[kept], kernel[kept], np.arange(len(kept))
    grown = sets.some(row)
    grown.least, grown.sram, grown.moved = least[kept], sram[kept], moved[kept]
    state = grown.state
    state[(state == NEAR) & (np.arange(len(window.at)) < kernel[:, None])] = OUT
    state[(state == FREE) & window.beside[kernel]] = NEAR
    state[every, kernel] = IN
    for f, more, makes, deeper in after:
        at = every, f[kept]
        grown.count[at], grown.made[at], grown.deep[at] = more[kept], makes[kept], deeper[kept]
    return grown
