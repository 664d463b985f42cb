"""A graph run on the chips of a mesh, each with what it has: do splits and conversions add up?

Every chip holds arrays of the whole size, with NaN where it has nothing. For its part of an
operation it looks at its part of every operand; what it looks at must be there.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from crosstack.workload.dataflow import Graph
from crosstack.workload.operations import Block, Operation
from crosstack.workload.sharding import PARTIAL, REPLICATED, Layout, Split
from oracles.interpreter import Array, _Run
from oracles.layout_steps import LayoutStep, conversion

Chips = dict[tuple[int, ...], Array]


def part(
    size: int, layout: Sequence[str], axis: str, mesh: Sequence[int], at: Sequence[int]
) -> range:
    """Return the places of an axis that the chip at a place of the mesh has."""
    found = range(size)
    for splits_it, ways, i in zip(layout, mesh, at, strict=True):
        if splits_it == axis:
            each = -(-len(found) // ways)
            found = found[i * each : (i + 1) * each]
    return found


class Sharded(_Run):
    """The values of a graph of blocks that run once, by chip; ``values`` are put together again."""

    def __init__(
        self,
        graph: Graph,
        values: Mapping[str, Array],
        chosen: Mapping[str, Split],
        mesh: Sequence[int],
    ) -> None:
        self.mesh, self.chosen = tuple(mesh), chosen
        self.places = list(itertools.product(*map(range, mesh)))
        self.chips: dict[str, Chips] = {
            name: {at: np.asarray(value, float) for at in self.places}
            for name, value in values.items()
        }
        self.layouts: dict[str, Layout] = {name: (REPLICATED,) * len(mesh) for name in values}
        super().__init__(graph, values)

    def _block(self, block: Block) -> None:
        for i in self.graph.orders[block.name]:
            self._operation(block, block.operations[i])

    def _operation(self, block: Block, operation: Operation) -> None:
        split, nest = self.chosen[operation.name], self.graph.nest(block, operation)
        read = [
            self._converted(x.tensor, layout)
            for x, layout in zip(operation.inputs, split.inputs, strict=True)
        ]
        made: Chips = {}
        name = operation.output.tensor
        for at in self.places:
            looked = [
                self._looked_at(chips[at], axes, split.along, at, operation.name)
                for chips, axes in zip(read, nest.inputs, strict=True)
            ]
            with np.errstate(all="ignore"):
                result = self._masked(block, operation, self._compute(nest, looked))
            made[at] = self._kept(result, self.graph.tensor[name].axes, split.output, at)
        self.chips[name], self.layouts[name] = made, split.output
        self.values[name] = self._converted(name, (REPLICATED,) * len(self.mesh))[self.places[0]]

    def _looked_at(
        self, x: Array, axes: tuple[str, ...], along: Layout, at: tuple[int, ...], name: str
    ) -> Array:
        x = x.reshape(self._shape(axes)).copy()
        for i, axis in enumerate(axes):
            mine = part(x.shape[i], along, axis, self.mesh, at)
            np.moveaxis(x, i, 0)[[p for p in range(x.shape[i]) if p not in mine]] = 0.0
        assert not np.isnan(x).any(), f"{name} looks at what the chip has not"
        return x

    def _kept(self, x: Array, axes: tuple[str, ...], layout: Layout, at: tuple[int, ...]) -> Array:
        x = x.astype(float)
        for i, axis in enumerate(axes):
            mine = part(x.shape[i], layout, axis, self.mesh, at)
            np.moveaxis(x, i, 0)[[p for p in range(x.shape[i]) if p not in mine]] = np.nan
        return x

    # ------------------------------------------------------------ conversions

    def _converted(self, name: str, wanted: Layout) -> Chips:
        axes, chips, layout = self.graph.tensor[name].axes, self.chips[name], self.layouts[name]
        steps = conversion(layout, wanted, axes, self.mesh, self.graph.sizes, lambda s: s.share)
        for step in steps:
            layout = (*layout[: step.dimension], step.after, *layout[step.dimension + 1 :])
            chips = {
                at: self._kept(self._step(chips, step, at), axes, layout, at) for at in self.places
            }
        assert layout == wanted
        return chips

    def _step(self, chips: Chips, step: LayoutStep, at: tuple[int, ...]) -> Array:
        """What a chip finds with all chips along one dimension."""
        d = step.dimension
        row = [chips[(*at[:d], i, *at[d + 1 :])] for i in range(self.mesh[d])]
        if step.collective is None:
            return chips[at]
        if step.before == PARTIAL:
            return np.sum(row, axis=0)
        found = np.full_like(row[0], np.nan)
        for other in row:
            found = np.where(np.isnan(found), other, found)
        return found
