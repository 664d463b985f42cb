"""Where the choices of every kernel are: ragged lists, and a table for every edge.

A kernel may be split over the tensor-parallel chips along some of its axes; those are its choices.
See `crosstack.model.choices`.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.workload.kernel_graph import AXES, AXIS_CODE, Bools, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Axis, Placement

OUTER, M, K, N, NONE, PARTIAL = (AXIS_CODE[a] for a in AXES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChoiceIndex:
    """Where the choices of a kernel and the table of an edge are in the columns.

    ``start``: kernel i has the choices ``start[i]`` up to ``start[i + 1]`` [1]; ``kernel``,
    ``axis``: whose choice it is, and along which of `AXES` that splits it; ``source``, ``target``:
    kernels at both ends of every edge; ``edge_start``: edge e has the entries ``edge_start[e]`` up
    to ``edge_start[e + 1]``, row by row: the choices of its source, and for each those of its
    target [1]; ``edge``, ``before``, ``after``: the edge of an entry, and the choices of its source
    and of its target.
    """

    start: Ints
    kernel: Ints
    axis: Ints
    source: Ints
    target: Ints
    edge_start: Ints
    edge: Ints
    before: Ints
    after: Ints

    @classmethod
    def of(cls, *, counts: Ints, axis: Ints, source: Ints, target: Ints) -> ChoiceIndex:
        """Return the index of kernels with ``counts`` choices each, along the axes ``axis``."""
        start = np.concatenate([[0], np.cumsum(counts)])
        width = counts[target]
        edge_start = np.concatenate([[0], np.cumsum(counts[source] * width)])
        edge = np.repeat(np.arange(len(source)), np.diff(edge_start))
        place = np.arange(edge_start[-1]) - edge_start[edge]
        return cls(
            start=start,
            kernel=np.repeat(np.arange(len(counts)), counts),
            axis=axis,
            source=source,
            target=target,
            edge_start=edge_start,
            edge=edge,
            before=start[source[edge]] + place // width[edge],
            after=start[target[edge]] + place % width[edge],
        )

    @property
    def n(self) -> int:
        """Kernels. [1]"""
        return len(self.start) - 1

    def domains(self) -> tuple[tuple[int, ...], ...]:
        """Return all choices of every kernel."""
        ends = self.start.tolist()
        return tuple(tuple(range(a, b)) for a, b in itertools.pairwise(ends))

    def entries(self, codes: Ints) -> Ints:
        """Return the entry of every edge where kernel i takes the choice ``codes[i]``."""
        rows = codes[self.source] - self.start[self.source]
        columns = codes[self.target] - self.start[self.target]
        return np.asarray(self.edge_start[:-1] + rows * self._widths + columns)

    def table(self, e: int, rows: Sequence[int] | Ints, columns: Sequence[int] | Ints) -> Ints:
        """Return the entries of edge ``e`` between some choices of its ends, as a table."""
        own, other = (
            np.asarray(choices, dtype=np.int64) - self.start[kernel]
            for choices, kernel in ((rows, self.source[e]), (columns, self.target[e]))
        )
        width = self.start[self.target[e] + 1] - self.start[self.target[e]]
        return np.asarray((self.edge_start[e] + own * width)[:, None] + other)

    @property
    def _widths(self) -> Ints:
        return np.asarray(self.start[self.target + 1] - self.start[self.target])

    def inside(self, domains: Sequence[Sequence[int]]) -> Bools:
        """Whether each choice is among those left to its kernel."""
        kept = np.zeros(len(self.kernel), dtype=np.bool_)
        for domain in domains:
            kept[list(domain)] = True
        return kept

    def least(self, column: Floats, kept: Bools) -> Floats:
        """Return the least value of every kernel over the choices that are ``kept``."""
        low = np.minimum.reduceat(np.where(kept, column, np.inf), self.start[:-1])
        return np.asarray(low.astype(column.dtype))

    def least_edges(self, column: Floats, kept: Bools) -> Floats:
        """Return the least value of every edge over the choices that are ``kept``."""
        if not len(self.source):
            return np.zeros(0)
        both = kept[self.before] & kept[self.after]
        return np.asarray(np.minimum.reduceat(np.where(both, column, np.inf), self.edge_start[:-1]))

    def most(self, column: Floats) -> Floats:
        """Return the largest value of every edge."""
        if not len(self.source):
            return np.zeros(0)
        return np.asarray(np.maximum.reduceat(column, self.edge_start[:-1]))

    def axes(self, i: int) -> tuple[Axis, ...]:
        """Return the axes that kernel ``i`` may be split along."""
        return tuple(AXES[a] for a in self.axis[self.start[i] : self.start[i + 1]])

    def repeated(self, count: int, n_edges: int) -> ChoiceIndex:
        """Return the index of ``count`` graphs laid end to end, each like this one's.

        ``n_edges`` are inside one of them; the others are joins, and come after the edges of all.
        [1]
        """

        def each(ends: Ints) -> Ints:
            parts = (ends[:n_edges], ends[n_edges:])
            steps = np.arange(count)[:, None] * self.n
            return np.concatenate([(part + steps).ravel() for part in parts])

        return ChoiceIndex.of(
            counts=np.tile(np.diff(self.start), count),
            axis=np.tile(self.axis, count),
            source=each(self.source),
            target=each(self.target),
        )

    def sharding(self, codes: Ints) -> tuple[Axis, ...]:
        """Return the axes of one choice a kernel."""
        return tuple(AXES[a] for a in self.axis[codes].tolist())

    def codes(self, sharding: Sequence[Axis]) -> Ints:
        """Return the choice of every kernel that splits it along an axis; -1 where none does."""
        wanted = np.array([AXIS_CODE[axis] for axis in sharding], dtype=np.int64)
        found = np.full(self.n, -1, dtype=np.int64)
        places = np.nonzero(self.axis == wanted[self.kernel])[0]
        found[self.kernel[places]] = places
        return found


def _sums(arrays: KernelGraph, makes: Bools) -> Bools:
    """Which additions may add up parts of sums before they are added up over chips, shape (n,).

    Where parts of two products meet, such as gradients of what several kernels read, and on the
    way there. What anything but additions reads as well is added up for those in any case.
    """
    makers: list[list[int]] = [[] for _ in range(arrays.n)]
    readers: list[list[int]] = [[] for _ in range(arrays.n)]
    columns = arrays.source, arrays.target, arrays.elided
    for i, j, elided in zip(*(column.tolist() for column in columns), strict=True):
        if not elided:
            makers[j].append(i)
            readers[i].append(j)
    stays = [bool(some) and all(arrays.adds[j] for j in some) for some in readers]
    parts = makes.astype(np.int64)  # of products, that a kernel makes or may add up
    for i in arrays.order:
        if arrays.adds[i]:
            parts[i] = sum(parts[j] for j in makers[i] if stays[j])
    found = arrays.adds & (parts > 1)
    for i in reversed(arrays.order):
        if arrays.adds[i] and parts[i] == 1 and stays[i]:
            found[i] = found[readers[i]].any()
    return np.asarray(found)


def _allowed(arrays: KernelGraph, placement: Placement, named: bool) -> Bools:
    """Which of `AXES` each kernel may be split along, shape (n, axes).

    None but ``none`` where the workload's `Placement` says how the chips split it. Otherwise:

    A batched kernel is split along its batch; no axis of extent 1, none that is tiled; a kernel
    with a weight is always split, where it can be. Source: ``dfmodel_code``. By names of axes, rows
    that are looked at as a whole are not split, kernels without a weight along tokens, too, and
    products along what lies beside the tokens that tiles are cut of, as heads that share a key.
    """
    n = arrays.n
    allowed = np.ones((n, len(AXES)), dtype=np.bool_)
    allowed[:, PARTIAL] = False
    if placement is not Placement.SEARCHED:
        allowed[:, :NONE] = False
        return allowed
    extents = np.stack([arrays.outer, arrays.m, arrays.k, arrays.columns], axis=1)
    allowed[:, :NONE] = extents > 1
    allowed[~arrays.gemm, K] = False
    if named and arrays.layouts:
        allowed[:, :NONE] &= arrays.splits[:, :, 2] >= 0
        tiled = np.zeros(n, dtype=np.bool_)
    else:
        tiled = arrays.tiling != NONE
    allowed[np.nonzero(tiled)[0], arrays.tiling[tiled]] = False
    allowed[arrays.has_weight, NONE] = False
    batched = allowed[:, OUTER].copy()
    allowed[batched, 1:] = False
    allowed[~allowed.any(axis=1), NONE] = True
    if named:
        allowed[:, PARTIAL] = _sums(arrays, allowed[:, K])
    return allowed


@lru_cache(maxsize=64)
def choice_index(
    arrays: KernelGraph,
    placement: Placement = Placement.SEARCHED,
    *,
    named: bool = False,
    joined: bool = False,
) -> ChoiceIndex:
    """Return the choices of every kernel of a graph, in the order of `AXES`.

    Parameters
    ----------
    named : bool
        Whether kernels that have names of axes are split by those, and additions among them may
        have parts of sums (`crosstack.model.traffic.Traffic.traces_layouts`).
    joined : bool
        Whether the joins between one copy of the graph and the next are edges, too, after all
        others.
    """
    kernel, axis = np.nonzero(_allowed(arrays, placement, named))
    counts = np.bincount(kernel, minlength=arrays.n)
    source, target = arrays.source, arrays.target
    if joined:
        source = np.concatenate([source, arrays.join_source])
        target = np.concatenate([target, arrays.join_target])
    columns = (np.asarray(x, dtype=np.int64).tobytes() for x in (counts, axis, source, target))
    return _index(*columns)


@lru_cache(maxsize=64)
def _index(counts: bytes, axis: bytes, source: bytes, target: bytes) -> ChoiceIndex:
    """Return an index, one record for all graphs whose choices are alike: those of some experts."""
    columns = (np.frombuffer(column, dtype=np.int64) for column in (counts, axis, source, target))
    return ChoiceIndex.of(**dict(zip(("counts", "axis", "source", "target"), columns, strict=True)))


def axis_names(arrays: KernelGraph, i: int) -> dict[Axis, str]:
    """Return what each way to split kernel ``i`` is called: an axis of a tensor, where it is one.

    Of what it makes, or else of what it reads: parts of sums are split along no other.
    """
    names: dict[Axis, str] = {axis: axis for axis in AXES}
    if arrays.layouts:
        for axis, (first, second, made) in zip(AXES, arrays.splits[i].tolist(), strict=False):
            own = [arrays.layouts[end] for end in (made, first, second) if end > 1]
            if own and own[0] not in names.values():
                names[axis] = own[0]
    return names


def named_axis(arrays: KernelGraph, i: int, name: str) -> Axis | None:
    """Return the way to split kernel ``i`` that has a name, or is written so; None: there is none.

    See `axis_names`; a place (``outer``, ``m``, ``k``, ``n``) may stand for its axis.
    """
    names = axis_names(arrays, i)
    by_name = {called: axis for axis, called in reversed(names.items())}
    return by_name.get(name) or next((axis for axis in names if name == axis), None)


def sharding_codes(index: ChoiceIndex, sharding: Sequence[Axis], *, split: bool) -> Ints:
    """Return the choice of every kernel; -1 where no choice splits it along its axis.

    Where nothing is ``split``, as one chip has all of it, any axis is the first choice.
    """
    codes = index.codes(sharding)
    return codes if split else np.where(codes < 0, index.start[:-1], codes)
