"""The choices of every operation by the names of its axes, and what each costs on one chip.

The choices that a search sees (`crosstack.model.choices`) split one axis of each group over one
dimension; here a choice is any split over the dimensions of a mesh (`crosstack.workload.sharding`),
and an entry of an edge is the cheapest conversion from what one choice makes to what the other
needs, step by step (`oracles.layout_steps`). What is added up over chips is added up on edges: with
the conversion that follows, so that a reduce-scatter is one of the answers; only what leaves the
graph is added up where it is made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from crosstack.model.choice_index import ChoiceIndex
from crosstack.workload.axes import Axes
from crosstack.workload.dataflow import Graph
from crosstack.workload.kernel_graph import AXIS_CODE, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Axis
from crosstack.workload.lowering import TILING, LoweredKernel
from crosstack.workload.operations import Block
from crosstack.workload.sharding import PARTIAL, REPLICATED, Layout, Split, splits
from oracles.layout_steps import Conversion, LayoutStep, conversion
from oracles.sharded import part

__all__ = ["AxisChoices", "StepTime", "axis_choices"]

StepTime = Callable[[LayoutStep, float], float]  # of a step, for a tensor of some bytes [s]
_CODES = {"outer": Axis.OUTER, "m": Axis.M, "k": Axis.K, "n": Axis.N, "": Axis.NONE}


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisChoices:
    """Costs of every choice, shape (choices,), and of every entry of an edge, shape (entries,).

    ``splits``: what each choice is. ``m``, ``k``, ``columns``, ``n_tiles``, ``work``,
    ``output_tile``, ``output_total`` and ``weight`` as in `crosstack.model.choices.Choices`;
    ``network_time`` [s] adds up what leaves the graph. ``edge_kind`` is a place in
    ``conversions``, of which the first is none; ``edge_time`` [s] is without limit where nothing
    leads from one layout to the other.
    """

    index: ChoiceIndex
    splits: tuple[Split, ...]
    m: Ints
    k: Ints
    columns: Ints
    n_tiles: Ints
    work: Floats
    output_tile: Floats
    output_total: Floats
    weight: Floats
    network_time: Floats
    edge_kind: Ints
    edge_time: Floats
    conversions: tuple[Conversion, ...]


def axis_choices(
    graph: Graph,
    kernels: Sequence[LoweredKernel],
    arrays: KernelGraph,
    *,
    mesh: Sequence[int],
    step_time: StepTime,
    n_tiles: int = 1,
) -> AxisChoices:
    """Return the choices of some operations on a mesh of chips.

    Parameters
    ----------
    graph : Graph
        The whole graph.
    kernels, arrays
        What it is lowered to, see `crosstack.workload.lowering`.
    mesh : sequence of int
        Chips of every dimension. [1]
    step_time : callable
        Time of a step of a conversion for bytes of a whole tensor. [s]
    n_tiles : int
        Tiles of what streams. [1]
    """
    compiled = _Compiled(graph=graph, mesh=tuple(mesh), step_time=step_time)
    made = {kernel.nest.operation.output.tensor for kernel in kernels}
    found = [compiled.choices(kernel, made) for kernel in kernels]
    index = _index(kernels, found, arrays)
    chosen = tuple(split for some in found for split in some)
    rows = [
        compiled.row(kernels[i], int(arrays.tiling[i]), split, n_tiles)
        for i, split in zip(index.kernel.tolist(), chosen, strict=True)
    ]
    columns = {name: np.array([row[name] for row in rows]) for name in rows[0]}
    kinds, times = compiled.edges(kernels, arrays, index, chosen)
    return AxisChoices(
        index=index,
        splits=chosen,
        network_time=np.array(
            [
                compiled.added_up(kernels[i], split.output) if arrays.open_output[i] else 0.0
                for i, split in zip(index.kernel.tolist(), chosen, strict=True)
            ]
        ),
        edge_kind=kinds,
        edge_time=times,
        conversions=tuple(compiled.conversions),
        **columns,
    )


def _index(
    kernels: Sequence[LoweredKernel], found: Sequence[Sequence[Split]], arrays: KernelGraph
) -> ChoiceIndex:
    codes = [
        AXIS_CODE[_CODES[_place(kernel, split)]]
        for kernel, some in zip(kernels, found, strict=True)
        for split in some
    ]
    return ChoiceIndex.of(
        counts=np.array([len(some) for some in found], dtype=np.int64),
        axis=np.array(codes, dtype=np.int64),
        source=arrays.source,
        target=arrays.target,
    )


def _place(kernel: LoweredKernel, split: Split) -> str:
    """Return the group of the first axis that is split; empty: none."""
    groups = ("outer", "m", "k", "n")
    named = [
        next((group for group in groups if axis in getattr(kernel.product, group)), "")
        for axis in split.along
    ]
    return next((place for place in named if place), "")


@dataclass(slots=True, kw_only=True)
class _Compiled:
    """What is known of a mesh, and conversions so far."""

    graph: Graph
    mesh: tuple[int, ...]
    step_time: StepTime
    conversions: list[Conversion] = field(default_factory=lambda: [()])
    known: dict[tuple[Layout, Layout, str], tuple[int, float]] = field(default_factory=dict)

    def choices(self, kernel: LoweredKernel, made: set[str]) -> tuple[Split, ...]:
        """Return the splits of an operation; what comes from outside is not partial."""
        operation = kernel.nest.operation
        outside = [i for i, x in enumerate(operation.inputs) if x.tensor not in made]
        return tuple(
            split
            for split in splits(self.graph, kernel.block, kernel.nest, self.mesh)
            if not any(PARTIAL in split.inputs[i] for i in outside)
        )

    def count(self, axes: Axes, along: Layout) -> int:
        """Elements of something with these axes on the chip that has most. [1]"""
        first = (0,) * len(self.mesh)
        sizes = self.graph.sizes
        return math.prod(len(part(sizes[a], along, a, self.mesh, first)) for a in axes)

    def row(
        self, kernel: LoweredKernel, tiling: int, split: Split, n_tiles: int
    ) -> dict[str, float]:
        """Return what a choice costs: a number for every column."""
        nest, along = kernel.nest, split.along
        groups = {g: self.count(getattr(kernel.product, g), along) for g in TILING}
        whole = {"m": groups["outer"] * groups["m"], "k": groups["k"], "columns": groups["n"]}
        cut = {Axis.OUTER: "m", Axis.M: "m", Axis.K: "k", Axis.N: "columns"}
        codes = {AXIS_CODE[axis]: name for axis, name in cut.items()}
        tiles = n_tiles if tiling in codes else 1
        tile = {n: -(-v // tiles) if codes.get(tiling) == n else v for n, v in whole.items()}
        each = 2.0 * tile["k"] if kernel.matrices else kernel.each
        if nest.operation.multiplies and not kernel.matrices:  # what is added up may be split
            each *= self.count(nest.loops, along) / self.graph.count(nest.loops)
            each *= math.prod(kernel.extents.values()) / math.prod(groups.values())
        size = self.graph.tensor[nest.operation.output.tensor].dtype.size
        output = float(tile["m"] * tile["columns"]) * size
        return {
            **tile,
            "n_tiles": tiles,
            "work": float(tile["m"]) * tile["columns"] * each * tiles,
            "output_tile": output,
            "output_total": output * (1 if codes.get(tiling) == "k" else tiles),
            "weight": self._weight(kernel, along),
        }

    def _weight(self, kernel: LoweredKernel, along: Layout) -> float:
        """Bytes that a chip has of the weight of a product. [B]"""
        nest, found = kernel.nest, 0.0
        if kernel.matrices and sum(nest.weights) == 1:
            i = nest.weights.index(True)
            size = self.graph.tensor[nest.operation.inputs[i].tensor].dtype.size
            found = self.count(nest.inputs[i], along) * size
        return found

    # ------------------------------------------------------------ conversions

    def added_up(self, kernel: LoweredKernel, layout: Layout) -> float:
        """Time to add up everywhere what is still parts of sums. [s]"""
        end = tuple(REPLICATED if axis == PARTIAL else axis for axis in layout)
        return self.converted(layout, end, kernel.nest.operation.output.tensor, kernel.block)[1]

    def converted(self, start: Layout, end: Layout, tensor: str, block: Block) -> tuple[int, float]:
        """Return the place of the cheapest conversion of a tensor, and its time. [s]"""
        key = (start, end, tensor)
        if key not in self.known:
            self.known[key] = self._converted(start, end, tensor, block)
        return self.known[key]

    def _converted(
        self, start: Layout, end: Layout, tensor: str, block: Block
    ) -> tuple[int, float]:
        if start == end:
            return 0, 0.0
        sums = zip(start, end, strict=True)
        if any(after == PARTIAL != before for before, after in sums):
            return 0, math.inf
        axes = self.graph.own_axes(block, tensor)
        size = self.graph.count(axes) * self.graph.tensor[tensor].dtype.size

        def time(step: LayoutStep) -> float:
            return self.step_time(step, size)

        way = conversion(start, end, axes, self.mesh, self.graph.sizes, time)
        if way not in self.conversions:
            self.conversions.append(way)
        spent = sum(time(step) for step in way if step.collective)
        return self.conversions.index(way), spent

    def edges(
        self,
        kernels: Sequence[LoweredKernel],
        arrays: KernelGraph,
        index: ChoiceIndex,
        chosen: Sequence[Split],
    ) -> tuple[Ints, Floats]:
        """Return the conversion of every entry of every edge, and its time. [s]"""
        entries = []
        operands = arrays.operand.tolist()
        for e, before, after in zip(
            index.edge.tolist(), index.before.tolist(), index.after.tolist(), strict=True
        ):
            reader = kernels[int(index.kernel[after])]
            i = reader.operands[operands[e]]
            tensor = reader.nest.operation.inputs[i].tensor
            ends = chosen[before].output, chosen[after].inputs[i]
            entries.append(self.converted(*ends, tensor, reader.block))
        kinds = np.array([kind for kind, _ in entries], dtype=np.int64)
        return kinds, np.array([time for _, time in entries], dtype=np.float64)
