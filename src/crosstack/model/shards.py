"""What one chip has of every kernel under every choice: extents, tiles, work and sizes.

A choice splits one axis of a kernel over the tensor-parallel chips (`crosstack.model.choices`);
what is left is cut into tiles along another one.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from crosstack.model.boundary import Shares
from crosstack.model.choice_index import ChoiceIndex
from crosstack.model.mesh_plan import MeshPlan
from crosstack.workload.kernel_graph import AXES, AXIS_CODE, Bools, Floats, Ints, KernelGraph

OUTER, M, K, N, NONE, SUMS = (AXIS_CODE[a] for a in AXES)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Spread:
    """What is known of every choice before a plan.

    ``extents``, ``splits`` and ``tiles`` are of outer x M, of K and of N, shape (3, choices): the
    kernel's [1], and which of them the choice splits, and tiles cut; ``untiled``: none is.
    ``held``: whether it has a weight; ``factor``: operations on a number that is multiplied, 0 of
    kernels that multiply none [1]; ``summed``: whether its chips make parts of a sum, ``reduced``
    what of its result goes over the network by the published byte objective [B].
    """

    extents: Ints
    splits: Bools
    tiles: Bools
    untiled: Bools
    held: Bools
    factor: Floats
    summed: Bools
    reduced: Floats

    @property
    def elements(self) -> Floats:
        """Elements of the whole result. [1]"""
        return np.asarray((self.extents[0] * self.extents[2]).astype(np.float64))


@lru_cache(maxsize=256)
def spread_of(graph: KernelGraph, index: ChoiceIndex) -> Spread:
    """Return what is known of the choices of a graph, which a chip has, before a plan."""
    row, axis = index.kernel, index.axis
    tiling = graph.tiling[row]
    summed = graph.gemm[row] & (axis == K)
    exchanged = graph.exchanged[row] & (graph.expert_degree > 1)
    return Spread(
        extents=np.stack([graph.rows[row], graph.k[row], graph.columns[row]]),
        splits=np.stack([(axis == OUTER) | (axis == M), axis == K, axis == N]),
        tiles=np.stack([(tiling == OUTER) | (tiling == M), tiling == K, tiling == N]),
        untiled=tiling == NONE,
        held=graph.has_weight[row],
        factor=np.where(graph.systolic[row], 2.0, 0.0),
        summed=summed,
        reduced=np.where(summed | (axis == SUMS) | exchanged, graph.output_size[row], 0.0),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shards:
    """What one chip has of every kernel, for one sequence, under every choice; (choices,).

    ``graph``: what a chip of the plan has of one; ``index``: whose choices, along which axes;
    ``shares``: what of each extent a chip has. ``whole`` are outer x M, K and N on a chip, and
    ``extents`` those of one of ``n_tiles`` tiles, shape (3, choices) [1]; ``density``, shape
    (n, 3), what of operands and result counts, see `crosstack.model.attention.density_on` [1].
    """

    graph: KernelGraph
    index: ChoiceIndex
    spread: Spread
    shares: Shares
    whole: Ints
    extents: Ints
    n_tiles: Ints
    density: Floats

    @property
    def elements(self) -> Ints:
        """Elements of the result. [1]"""
        return np.asarray(self.whole[0] * self.whole[2])

    @property
    def part(self) -> Floats:
        """The share of the whole result that those are. [1]"""
        return np.asarray(self.elements / self.spread.elements)

    @property
    def work(self) -> Floats:
        """Operations, but for what the chip skips. [FLOP]"""
        m, k, columns = self.extents
        row, factor = self.index.kernel, self.spread.factor
        each = np.where(factor > 0, factor * k, 1.0)
        work = m.astype(np.float64) * columns * each * self.n_tiles * self.graph.repeats[row]
        filled = self.graph.routing[:, 2]
        return np.asarray(work * (self.density.min(axis=1) * filled)[row])

    @property
    def weight(self) -> Floats:
        """What stays of the weight, if it has one. [B]"""
        held = np.where(self.spread.held, self.whole[0] * self.whole[1], 0)
        return np.asarray(held * self.graph.weight_element[self.index.kernel])

    @property
    def output_tile(self) -> Floats:
        """What one tile makes. [B]"""
        made = (self.extents[0] * self.extents[2]).astype(np.float64)
        return np.asarray(made * self.graph.output_element[self.index.kernel])

    @property
    def output_total(self) -> Floats:
        """What all tiles make; one that is tiled along K adds up: its output leaves once. [B]"""
        return np.asarray(self.output_tile * np.where(self.spread.tiles[1], 1, self.n_tiles))


def make_shards(
    graph: KernelGraph, plan: MeshPlan, index: ChoiceIndex, n_tiles: int | Ints, density: Floats
) -> Shards:
    """Return what one chip of a plan has of a graph.

    Parameters
    ----------
    graph : KernelGraph
        That of such a chip (`MeshPlan.graph`).
    n_tiles : int or array
        Tiles a sequence, of all kernels or each. [1]
    density : array, shape (n, 3)
        As of `Shards`. [1]
    """
    row, spread = index.kernel, spread_of(graph, index)
    parts = np.asarray(n_tiles, dtype=np.int64)
    parts = parts[row] if parts.ndim else np.broadcast_to(parts, row.shape)
    whole, shares = cut_extents(graph, spread, index, plan)
    return Shards(
        graph=graph,
        index=index,
        spread=spread,
        shares=shares,
        whole=whole,
        extents=np.where(spread.tiles, -(-whole // parts), whole),
        n_tiles=np.where(spread.untiled, 1, parts),
        density=density,
    )


def cut_extents(
    graph: KernelGraph, spread: Spread, index: ChoiceIndex, plan: MeshPlan
) -> tuple[Ints, Shares]:
    """Return the extents that a chip has under every choice, (3, choices), and their shares. [1]"""
    row, cut = index.kernel, spread.extents
    ways: Any = plan.tensor
    batches = (-(-graph.outer // plan.tensor) / graph.outer)[row]
    batch = np.where(index.axis == OUTER, batches, 1.0)
    if plan.split != (1, 1, 1):
        cut = -(-cut // np.array(plan.split)[:, None])
    if plan.cut_over is not None:  # a group has some of the experts, and its chips cut those
        of_experts, groups = (graph.experts > 0)[row], plan.cut_over.groups
        fewer = np.where(of_experts, groups, 1)
        cut = np.stack([cut[0] // fewer, cut[1], cut[2]])
        ways, batch = np.where(of_experts, plan.cut_over.chips, ways), batch / fewer
    cut = np.where(spread.splits, -(-cut // ways), cut)
    rows, depth, width = cut / spread.extents
    return cut, Shares(kernel=row, batch=batch, rows=rows, depth=depth, width=width)
