"""Layouts of tensors between kernels: what each choice makes, what each needs, and what changes.

A product that is split along K leaves sums that are not yet added up; so a tensor is whole on every
chip, split by its rows (M or the batch) or its columns (N), or *partial*. Of operations over named
axes, rows and columns are the axes of the tensor that kernels split. Additions may add such parts
as they are, so that the sum of several products is added up over chips once; what is whole or split
they add as a part, with zeros on the other chips. What a reader needs follows from its own choice.
Between the two lies a change of layout (`crosstack.model.collectives.layouts`), paid by the kernel
that makes the tensor.

Readers that need a tensor in the same layout share a change, and who has it whole cuts what else is
needed for nothing: what a kernel pays is a table over sets of layouts. Sets are numbers, one bit a
layout. Where the backward pass runs kernels again, they need what they read a second time. What is
gathered and kept split is gathered once more in the backward pass, hidden behind a product
(``korthikanti2023reducing``, section 4.2.2): that is not counted. Joins between one copy of a graph
and the next are edges like any other, but for the order that kernels run in. Keys and values of
tokens before lie as their readers are split, and are gathered whole for one that reads all of them.

Sources: ``xu2021gspmd`` (layouts and what lies between them), ``korthikanti2023reducing`` (an
all-reduce as a reduce-scatter here and an all-gather there), ``dfmodel_code`` (what kernels need).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.model.boundary import factor_order
from crosstack.model.choice_index import ChoiceIndex
from crosstack.model.collectives import NOTHING
from crosstack.model.collectives.layouts import Layout, LayoutChange
from crosstack.model.expert_cut import inside_experts
from crosstack.model.memory import computed_again
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.traffic import Traffic
from crosstack.workload.kernel_graph import AXIS_CODE, Bools, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Axis

OUTER, K = AXIS_CODE[Axis.OUTER], AXIS_CODE[Axis.K]
LAYOUTS = (Layout.REPLICATED, Layout.ROWS, Layout.COLUMNS, Layout.PARTIAL)
REPLICATED, ROWS, COLUMNS, PARTIAL = range(4)
SETS = 8  # of layouts that readers may need: any but partial
_PRODUCED = np.array([ROWS, ROWS, REPLICATED, COLUMNS, REPLICATED, PARTIAL])
# What a consumer needs, by its own sharding (outer, M, K, N, none, partial).
_NEEDED = np.array([
    (ROWS, ROWS, REPLICATED, COLUMNS, REPLICATED, PARTIAL),  # elementwise
    (ROWS, REPLICATED, ROWS, COLUMNS, REPLICATED, REPLICATED),  # first operand
    (ROWS, ROWS, COLUMNS, REPLICATED, REPLICATED, REPLICATED),  # second operand
    (ROWS, ROWS, COLUMNS, ROWS, REPLICATED, REPLICATED),  # tiled along the contraction
])  # fmt: skip


# Every set of layouts that readers may need, by its number.
LAYOUT_SETS = tuple(
    frozenset(LAYOUTS[bit] for bit in range(3) if number >> bit & 1) for number in range(SETS)
)


def changes_by_set(
    changes: Mapping[tuple[Layout, frozenset[Layout]], LayoutChange],
) -> dict[tuple[int, int], LayoutChange]:
    """Return changes by the places of what is made and of what is needed."""
    return {
        (LAYOUTS.index(start), LAYOUT_SETS.index(ends)): change
        for (start, ends), change in changes.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Edges:
    """What is known of edges before a plan.

    ``produced`` is the place among layouts of what each choice makes; ``need`` what each entry of
    an edge has to change it into, as a set of one, 0 where nothing is to be done. ``read`` tells
    which kernels make something that is read.
    """

    produced: Ints
    need: Ints
    read: Bools


@lru_cache(maxsize=256)
def edges_of(arrays: KernelGraph, index: ChoiceIndex, traffic: Traffic) -> Edges:
    """Return what the edges of a graph, and its joins, ask for."""
    joins = len(index.source) - len(arrays.source)
    operand = np.concatenate([traffic.operands(arrays), arrays.join_operand[:joins]])
    elided = np.concatenate([arrays.elided, np.zeros(joins, dtype=np.bool_)])
    source, target = index.source, index.target
    tiled, product = arrays.tiling[target] == K, arrays.gemm[target]
    reader = np.where(product, np.where(tiled, 3, np.where(operand == 1, 2, 1)), 0)
    produced, axis = _PRODUCED[index.axis], index.axis[index.after]
    needed = _NEEDED[reader[index.edge], axis]
    if traffic.traces_layouts and arrays.layouts:
        produced, needed = _by_name(arrays, index, operand)
    elif traffic.traces_layouts:
        # What all of a batch multiply has no batch to be split along: tokens projected by heads.
        second, factor = factor_order(arrays)
        shared = factor[target] & (operand == second[target]) & (arrays.outer[source] == 1)
        needed = np.where(shared[index.edge] & (axis == OUTER), REPLICATED, needed)
        sums = arrays.gemm[index.kernel] & (index.axis == K)
        produced = np.where(sums, PARTIAL, produced)
    made = produced[index.before]
    # What is whole, or split, is the one part of a sum that is not zero.
    settled = (made == needed) | (made == REPLICATED) | (needed == PARTIAL)
    # Keys and values of before lie in main memory as readers split them; who reads all gathers all.
    passes = traffic.traces_layouts & (needed == REPLICATED)
    change = ~settled & (passes | ~elided[index.edge])
    need = np.where(change, 1 << needed, 0)
    read = np.bincount(source[~elided], minlength=arrays.n) > 0
    return _edges(*(column.tobytes() for column in (produced, need, read)))


@lru_cache(maxsize=256)
def _edges(produced: bytes, need: bytes, read: bytes) -> Edges:
    """Return edges, one record for all graphs whose edges are alike: those of some experts each."""
    return Edges(
        produced=np.frombuffer(produced, dtype=np.int64),
        need=np.frombuffer(need, dtype=np.int64),
        read=np.frombuffer(read, dtype=np.bool_),
    )


def _by_name(arrays: KernelGraph, index: ChoiceIndex, operand: Ints) -> tuple[Ints, Ints]:
    """Return what choices make and what entries need of kernels that have names of axes.

    The first axes that choices split a tensor along are its rows and its columns, of which no
    kernel splits more than two; what is needed along another is gathered, and cut.
    """
    # Numbers of `layouts` begin with what is whole, and parts of sums.
    ends = np.concatenate([arrays.splits, np.zeros((arrays.n, 2, 3), dtype=np.int64)], axis=1)
    ends[:, AXIS_CODE[Axis.PARTIAL]] = 1
    made = ends[index.kernel, index.axis, 2]
    maker, reader = index.source[index.edge], index.kernel[index.after]
    asked = np.maximum(ends[reader, index.axis[index.after], operand[index.edge]], 0)
    place = np.full((arrays.n, len(arrays.layouts)), REPLICATED)
    place[:, 1] = PARTIAL
    left: list[list[int]] = [[ROWS, COLUMNS] for _ in range(arrays.n)]
    kernels = np.concatenate([index.kernel, maker]).tolist()
    names = np.concatenate([made, asked]).tolist()
    for i, name in dict.fromkeys(zip(kernels, names, strict=True)):
        if name > 1 and left[i]:
            place[i, name] = left[i].pop(0)
    return place[index.kernel, made], place[maker, asked]


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of what one kernel makes: of ``size`` [B], sent ``together`` with as many. [1]

    ``times``: how often a copy of the graph makes it, below 1 where only some copies do. [1]
    """

    kernel: int
    start: Layout
    ends: frozenset[Layout]
    size: float
    together: float
    times: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversions:
    """What changes of layout take under a plan.

    ``index``: where choices and entries are; ``edges``: what choices make and readers need;
    ``size``: bytes of the tensor that is changed [B]; ``together``: sequences whose tensors are
    sent as one [1]; ``table``: time to have what a choice makes in every set of layouts [s];
    ``first``, ``again``: whether an edge is read the first time, and when kernels run a second
    time; ``share``: copies of the graph that run kernels a second time, of all [1]; ``shared``:
    whether readers share a change.
    """

    index: ChoiceIndex
    edges: Edges
    size: Floats
    together: Floats
    table: Floats
    first: Bools
    again: Bools
    shared: bool
    share: float = 1.0

    @property
    def passes(self) -> tuple[tuple[Bools, float], ...]:
        """Return edges that are read together, and how often a copy of the graph does that. [1]

        A copy that runs nothing again reads all of them the first time.
        """
        found = ((self.first, self.share), (self.again, self.share))
        if self.share == 1:
            return found
        return ((np.ones_like(self.first), 1 - self.share), *found)

    @property
    def unread_time(self) -> Floats:
        """Time to add up sums that nobody reads, shape (choices,). [s]"""
        unread = (self.edges.produced == PARTIAL) & ~self.edges.read[self.index.kernel]
        return np.asarray(np.where(unread, self.table[:, 0], 0.0))

    @property
    def edge_time(self) -> Floats:
        """Time of every entry of an edge on its own, shape (entries,). [s]"""
        alone = self.table[self.index.before, self.edges.need]
        passes = np.sum([times * read for read, times in self.passes], axis=0)
        return np.asarray(np.where(self.edges.need > 0, alone, 0.0) * passes[self.index.edge])

    def needs(self, codes: Ints) -> list[Ints]:
        """Return what readers need of each kernel, as sets: in every one of `passes`."""
        need, found = self.edges.need[self.index.entries(codes)], []
        for read, _ in self.passes:
            sets = np.zeros(self.index.n, dtype=np.int64)
            np.bitwise_or.at(sets, self.index.source[read], need[read])
            found.append(sets)
        return found

    def passed_on(self, codes: Ints) -> Bools:
        """Which kernels make parts of sums that readers add as they are, shape (n,)."""
        added_up = np.any(np.array(self.needs(codes)) > 0, axis=0) | ~self.edges.read
        return np.asarray((self.edges.produced[codes] == PARTIAL) & ~added_up)

    def times(self, codes: Ints) -> Floats:
        """Time that changing what each kernel makes takes, where kernel i has ``codes[i]``. [s]"""
        if self.shared:
            total = np.zeros(self.index.n)
            for sets, (_, times) in zip(self.needs(codes), self.passes, strict=True):
                total += times * np.where(sets > 0, self.table[codes, sets], 0.0)
            return total
        return self._by_maker(self.edge_time[self.index.entries(codes)])

    def _by_maker(self, time: Floats) -> Floats:
        total = np.bincount(self.index.source, weights=time, minlength=self.index.n)
        return np.asarray(total, dtype=np.float64)

    def made(self, codes: Ints) -> Iterator[Change]:
        """Yield every change that is made where kernel i has ``codes[i]``."""
        unread = np.flatnonzero((self.edges.produced[codes] == PARTIAL) & ~self.edges.read)
        pairs = [(i, 0, 1.0) for i in unread.tolist()]
        if self.shared:
            for sets, (_, times) in zip(self.needs(codes), self.passes, strict=True):
                pairs += [(i, int(sets[i]), times) for i in np.flatnonzero(sets).tolist()]
        else:
            need = self.edges.need[self.index.entries(codes)]
            for read, times in self.passes:
                paid = np.flatnonzero((need > 0) & read).tolist()
                pairs += [(int(self.index.source[e]), int(need[e]), times) for e in paid]

        for i, number, times in pairs:
            code = codes[i]
            yield Change(
                kernel=i,
                start=LAYOUTS[self.edges.produced[code]],
                ends=LAYOUT_SETS[number],
                size=float(self.size[code]),
                together=float(self.together[code]),
                times=times,
            )

    # ------------------------------------------------------------ bounds

    def least(self, kept: Bools) -> Floats:
        """Time that each kernel's changes take at least, over the choices that are ``kept``. [s]"""
        time = self.index.least_edges(self.edge_time, kept)
        if not self.shared:
            return self._by_maker(time)
        least = np.zeros(self.index.n)
        np.maximum.at(least, self.index.source, time)  # only the largest is sure
        return least

    def pairwise(self) -> Floats:
        """Return costs of entries whose sum is no more than all changes take. [s]"""
        if not self.shared:
            return self.edge_time
        sharers = np.bincount(self.index.source, minlength=self.index.n)[self.index.source]
        return np.asarray(self.edge_time / sharers[self.index.edge])

    def by_what_others_need(self) -> list[Floats]:
        """Return costs of entries such that what is no dearer in all of them never costs more.

        One for every set that other readers may need: what a choice's change adds depends on it.
        Where no change is shared, each kind of change on its own.
        """
        if not self.shared:
            whole = self.edges.need == 1 << REPLICATED
            return [self.edge_time * whole, self.edge_time * ~whole]
        kinds = (0, 1 << ROWS, 1 << COLUMNS, 1 << ROWS | 1 << COLUMNS, 1 << REPLICATED)
        needs = [self.edges.need | others for others in kinds]
        return [np.where(need > 0, self.table[self.index.before, need], 0.0) for need in needs]


def conversions_of(
    graph: KernelGraph,
    plan: MeshPlan,
    index: ChoiceIndex,
    traffic: Traffic,
    *,
    size: Floats,
    together: Ints,
) -> Conversions:
    """Return what changes of layout take.

    What runs again makes its result a second time: only then do backward kernels read it. Joins
    are read once, as what enters a copy of the graph is kept.

    Parameters
    ----------
    size : array, shape (choices,)
        What each makes of which the layout changes. [B]
    together : array, shape (choices,)
        Sequences a message. [1]
    """
    edges, twice = edges_of(graph, index, traffic), computed_again(graph, plan.recompute)
    source, target = index.source, index.target
    edge = np.arange(len(source)) < len(graph.source)
    later = twice[source] & graph.backward[target] & edge
    among, groups = np.ones((1, len(size)), dtype=np.bool_), [plan.changes]
    if plan.cut_over is not None:  # what stays with the chips of a group is as much less
        inside = inside_experts(graph)[index.kernel]
        among, groups = np.stack([~inside, inside]), [plan.changes, plan.cut_over.changes]
        size = np.where(inside, size / plan.cut_over.groups, size)
    table, times = np.zeros((len(size), SETS)), dict[int, Floats]()
    for those, changes in zip(among, groups, strict=True):
        for (start, number), change in changes_by_set(changes).items():
            line = change.lines
            if line is not NOTHING:
                if id(line) not in times:
                    times[id(line)] = line.time(size, together=together)
                rows = np.flatnonzero(those & (edges.produced == start))
                table[rows, number] = times[id(line)][rows]
    return Conversions(
        index=index,
        edges=edges,
        size=size,
        together=together.astype(float),
        table=table,
        first=~later,
        again=(twice[target] & edge) | later,
        shared=traffic.shares_conversions,
        share=plan.again if twice.any() else 1.0,
    )
