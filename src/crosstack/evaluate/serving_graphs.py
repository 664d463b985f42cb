"""Graphs of one job at many contexts: what they have in common, and how they change.

A job's graphs (`crosstack.workload.job.Job`) are those of its layer and of what runs before the
first layer and behind the last one. Between two contexts at which nothing else changes, such as
what a window reaches, every extent and every size is a polynomial of degree 2 at most in the
context, as attention multiplies tokens by tokens: three graphs say all others, exactly, and two
more check that they do. Where they do not, the contexts between are halved; a few have graphs of
their own each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.model.choice_index import ChoiceIndex
from crosstack.model.choices import index_of
from crosstack.model.flows import tensor_ends
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import AXIS_CODE, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Axis
from crosstack.workload.sharding import PARTIAL, REPLICATED
from crosstack.workload.workload import End, Workload

FEWEST = 6  # contexts that are worth a polynomial, which takes five graphs
ROUNDING = 1e-12  # relative, of numbers that are no whole ones
Numbers = dict[str, NDArray[Any]]
NumbersOf = Callable[[Ints], Numbers]
WorkloadAt = Callable[[int], Workload]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class BlockSeries:
    """One block of a job, the layer or an ``end``, at the contexts of a series.

    ``workload`` and ``graph`` are of one of the contexts, ``sharding`` are the axes of its kernels
    and ``index`` is where their choices are. ``numbers`` returns the arrays of a graph for many
    contexts, a row each. ``reads`` and ``makes`` tell which flow (a column) each kernel reads and
    makes, ``lives`` which live while it runs, ``producer`` who makes them.
    """

    end: End | None
    workload: Workload
    index: ChoiceIndex
    sharding: tuple[Axis, ...]
    numbers: NumbersOf
    producer: Ints
    reads: Floats
    makes: Floats
    lives: Floats

    @property
    def graph(self) -> KernelGraph:
        """The graph of one context."""
        return self.workload.graph

    @property
    def count(self) -> int:
        """How often it runs on its chip; a layer as often as its stage has layers. [1]"""
        return 1 if self.end is None else self.end.count

    @property
    def is_tiled(self) -> bool:
        """Whether tiles cut anything: some kernel has more than one place along what is cut."""
        graph = self.graph
        extents = np.stack([graph.outer, graph.m, graph.k, graph.columns, np.ones_like(graph.m)])
        return bool((extents[graph.tiling, np.arange(graph.n)] > 1).any())

    def laid_out(self, contexts: Ints) -> KernelGraph:
        """Return the arrays of the graph of every context, laid end to end."""
        count, base = len(contexts), self.graph
        numbers = self.numbers(contexts)
        joined: dict[str, Any] = {
            name: array.reshape(-1, *array.shape[2:]) for name, array in numbers.items()
        }
        sizes = _counted_sizes(joined)
        whole = joined["density"] / np.where(sizes > 0, sizes, 1.0)
        joined["density"] = np.where(sizes > 0, whole, 1.0)
        for name, array in _columns(base).items():
            if array.dtype == np.bool_:
                joined[name] = np.tile(array, (count, *[1] * (array.ndim - 1)))
        steps = dict.fromkeys(("source", "target", "join_source", "join_target"), base.n)
        for name, step in (steps | {"tensor": len(base.tensor_size)}).items():
            places = np.repeat(np.arange(count) * step, len(getattr(base, name)))
            joined[name] = joined[name] + places
        # Nobody orders them.
        unordered: dict[str, Any] = dict.fromkeys(("levels", "order", "preds", "succs"), ())
        return replace(
            base,
            n=base.n * count,
            names=base.names * count,
            functions=base.functions * count,
            dtypes=base.dtypes * count,
            messages=base.messages * count,
            **unordered,
            **joined,
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class JobSeries:
    """A job at contexts at which its graphs are alike: ``blocks`` are the layer, then the ends.

    ``workload`` is of one of the contexts. ``boundary`` returns the bytes that a layer hands to the
    next, for each of some contexts. [B]
    """

    contexts: Ints
    workload: Workload
    blocks: tuple[BlockSeries, ...]
    boundary: Callable[[Ints], Floats]


def job_series(at: WorkloadAt, contexts: Ints, rules: Rules) -> list[JobSeries]:
    """Return the graphs of a job at contexts, those that are alike together.

    Parameters
    ----------
    at : callable
        Returns the workload of a context, with the ends that count; what it said is known again.
    contexts : array of int
        Ascending, each once. [1]
    """
    smooth, alone = _pieces(at, contexts)
    found = [_series(piece, at(int(piece[0])), told, rules) for piece, told in smooth]
    alike: dict[object, list[int]] = {}
    for context in alone:
        alike.setdefault(_structure(at(context)), []).append(context)
    for some in alike.values():
        piece = np.array(some)
        found.append(_series(piece, at(some[0]), _tables(at, piece), rules))
    return found


def _series(
    contexts: Ints, workload: Workload, numbers: list[NumbersOf], rules: Rules
) -> JobSeries:
    blocks = [workload.without_ends(), *(workload.of_end(end) for end in workload.ends)]
    parts = zip((None, *workload.ends), blocks, numbers[:-1], strict=True)
    return JobSeries(
        contexts=contexts,
        workload=workload,
        blocks=tuple(_block(*part, rules) for part in parts),
        boundary=lambda some: numbers[-1](some)["boundary_size"].astype(np.float64),
    )


def _block(end: End | None, workload: Workload, numbers: NumbersOf, rules: Rules) -> BlockSeries:
    graph = workload.graph
    index, ends = index_of(workload, graph, rules), tensor_ends(graph, rules.traffic)
    reads, makes, lives = (np.zeros((graph.n, len(ends))) for _ in range(3))
    for f, one in enumerate(ends):
        readers = [reader for reader, _ in one.readers]
        makes[one.producer, f] = 1.0
        reads[readers, f] = 1.0
        lives[one.producer : max(readers) + 1, f] = 1.0
    return BlockSeries(
        end=end,
        workload=workload,
        index=index,
        sharding=serving_axes(graph, index),
        numbers=numbers,
        producer=np.array([one.producer for one in ends], dtype=np.int64),
        reads=reads,
        makes=makes,
        lives=lives,
    )


# ---------------------------------------------------------------- pieces that are alike


def _pieces(at: WorkloadAt, contexts: Ints) -> tuple[list[tuple[Ints, list[NumbersOf]]], list[int]]:
    """Return ranges of contexts with what says their numbers, and contexts by themselves."""
    smooth, alone, waiting = list[tuple[Ints, list[NumbersOf]]](), list[int](), [contexts]
    while waiting:
        piece = waiting.pop()
        told = None if len(piece) < FEWEST else _polynomials(at, piece)
        if told is not None:
            smooth.append((piece, told))
        elif len(piece) < FEWEST:
            alone += piece.tolist()
        else:
            middle = len(piece) // 2
            waiting += [piece[middle:], piece[:middle]]
    return smooth, sorted(alone)


def _polynomials(at: WorkloadAt, piece: Ints) -> list[NumbersOf] | None:
    """Return what says the numbers of every block, and of the workload, by three graphs.

    None where they do not say those in the middle of the range and at its end.
    """
    first, checked = int(piece[0]), [int(piece[-1]), int(piece[len(piece) // 2])]
    nodes = [first, first + 1, first + 2]
    structure = _structure(at(first))
    if any(_structure(at(context)) != structure for context in [*checked, *nodes[1:]]):
        return None
    three = zip(*(_numbers(at(context)) for context in nodes), strict=True)
    told = [_polynomial(first, *numbers) for numbers in three]
    same = all(
        np.allclose(said(np.array([context]))[name][0], array, rtol=ROUNDING, atol=0.0)
        for context in checked
        for said, numbers in zip(told, _numbers(at(context)), strict=True)
        for name, array in numbers.items()
    )
    return told if same else None


def _polynomial(start: int, first: Numbers, second: Numbers, third: Numbers) -> NumbersOf:
    """``f(c) = f + s (f' - f) + s (s - 1) / 2 (f'' - 2 f' + f)``, s contexts from the first."""
    slopes = {name: second[name] - first[name] for name in first}
    bends = {name: third[name] - second[name] - slopes[name] for name in first}

    def said(contexts: Ints) -> Numbers:
        found = {}
        for name, array in first.items():
            steps = (contexts - start).astype(array.dtype).reshape(-1, *[1] * array.ndim)
            values = array + steps * slopes[name]
            if bends[name].any():
                values = values + (steps * (steps - 1) // 2) * bends[name]
            found[name] = values
        return found

    return said


def _tables(at: WorkloadAt, piece: Ints) -> list[NumbersOf]:
    """Return what says the numbers of every block, and of the workload, of a few contexts."""

    def said(*each: Numbers) -> NumbersOf:
        stacked = {name: np.stack([numbers[name] for numbers in each]) for name in each[0]}

        def rows(contexts: Ints) -> Numbers:
            place = np.searchsorted(piece, contexts)
            return {name: array[place] for name, array in stacked.items()}

        return rows

    each = (_numbers(at(context)) for context in piece.tolist())
    return [said(*numbers) for numbers in zip(*each, strict=True)]


def _columns(graph: KernelGraph) -> dict[str, NDArray[Any]]:
    columns = ((f.name, getattr(graph, f.name)) for f in fields(KernelGraph))
    return {name: column for name, column in columns if isinstance(column, np.ndarray)}


def _numbers(workload: Workload) -> list[Numbers]:
    """Return the arrays of every block that hold numbers, and at last those of the workload.

    A density is there as bytes that count: those are whole numbers.
    """
    found: list[Numbers] = []
    for graph in (workload.graph, *(end.graph for end in workload.ends)):
        numbers = {name: a for name, a in _columns(graph).items() if a.dtype != np.bool_}
        numbers["density"] = np.rint(graph.density * _counted_sizes(numbers))
        found.append(numbers)
    return [*found, {"boundary_size": np.asarray(workload.boundary_size)}]


def _counted_sizes(numbers: Numbers) -> Floats:
    """Bytes of both operands and of the result of every kernel. [B]"""
    return np.concatenate([numbers["input_sizes"], numbers["output_size"][:, None]], axis=1)


def _structure(workload: Workload) -> object:
    """Return what is the same of graphs that are alike."""
    return (
        workload.n_layers,
        workload.data_size,
        _graph_structure(workload.graph),
        *(
            (end.count, end.table_size, end.shared_size, _graph_structure(end.graph))
            for end in workload.ends
        ),
    )


def _graph_structure(graph: KernelGraph) -> object:
    flags = [array.tobytes() for array in _columns(graph).values() if array.dtype == np.bool_]
    same = ("source", "target", "operand", "tensor", "splits", "tiling", "join_source")
    extents = np.stack([graph.outer, graph.m, graph.k, graph.columns])
    return (
        graph.names,
        graph.layouts,
        (extents > 1).tobytes(),  # what may be split
        *(getattr(graph, name).tobytes() for name in same),
        *flags,
    )


# ---------------------------------------------------------------- sharding


def serving_axes(graph: KernelGraph, index: ChoiceIndex) -> tuple[Axis, ...]:
    """Return the axis that each kernel is split along: as what it reads lies, where it may be.

    Kernels of several heads or experts are split by those. A product whose operand lies split along
    what it adds up over is split so, too, and makes parts of sums; one whose operand is whole has
    columns of its weight on every chip. That is the usual split of a transformer
    (``narayanan2021megatron``, section 2.3): attention by heads, the feed-forward network by its
    width, the head by words. What is left is whole on every chip.
    """
    lies = [""] * graph.n  # the layout of each result
    feeds: list[dict[int, int]] = [{} for _ in range(graph.n)]  # the maker of each operand
    edges = zip(graph.source.tolist(), graph.target.tolist(), graph.operand.tolist(), strict=True)
    for source, target, operand in edges:
        feeds[target][operand] = source
    keeps = set(graph.source[graph.elided].tolist())
    found: list[Axis] = [Axis.NONE] * graph.n
    for i in graph.order:
        read = {operand: lies[maker] for operand, maker in feeds[i].items()}
        weighs = bool(graph.has_weight[i]) or (graph.cache_size[i] > 0 and i not in keeps)
        found[i] = _axis(graph, i, index.axes(i), read, weighs=weighs)
        lies[i] = _layouts(graph, i, found[i])[2]
    return tuple(found)


def _axis(
    graph: KernelGraph, i: int, allowed: tuple[Axis, ...], read: dict[int, str], *, weighs: bool
) -> Axis:
    if Axis.OUTER in allowed:
        return Axis.OUTER
    for axis in (Axis.K, Axis.M, Axis.N):
        ends = _layouts(graph, i, axis)
        fed = [ends[operand] for operand, layout in read.items() if layout == ends[operand]]
        if axis in allowed and any(layout not in (REPLICATED, PARTIAL) for layout in fed):
            return axis
    wanted = (Axis.M, Axis.K, Axis.N, Axis.NONE) if weighs else (Axis.NONE, Axis.M, Axis.N)
    return next((axis for axis in wanted if axis in allowed), allowed[0])


def _layouts(graph: KernelGraph, i: int, axis: Axis) -> tuple[str, str, str]:
    """Return how both operands and the result of a kernel lie where it is split along an axis."""
    code = AXIS_CODE[axis]
    if code >= graph.splits.shape[1] or not len(graph.splits):
        return REPLICATED, REPLICATED, REPLICATED
    first, second, made = (
        graph.layouts[place] if place >= 0 else REPLICATED
        for place in graph.splits[i, code].tolist()
    )
    return first, second, made
