"""Numbers of tiles that are worth trying under a plan."""

from __future__ import annotations

from crosstack.mapping.budget import CALL
from crosstack.mapping.search_node import SearchState
from crosstack.model.choices import make_choices
from crosstack.model.mesh_plan import MeshPlan
from crosstack.workload.kernel_graph import Floats, KernelGraph


def _tile_counts(state: SearchState, plan: MeshPlan) -> list[int]:
    """Numbers of tiles to try on the tensor-parallel chips of a plan, most first: least SRAM.

    For every extent that is tiled, the fewest tiles of each length; see `Decisions`.
    """
    constraints, length = state.constraints, state.workload.sequence_length
    if state.temporal:  # a kernel has the whole chip, and tiles of its own
        return [1]
    if constraints.n_tiles is not None:
        return [constraints.n_tiles]
    decisions = state.rules.decisions
    counts = decisions.tile_counts(length, _tiled_extents(plan.graph(state.arrays), plan.tensor))
    if constraints.tile_size is not None:
        counts = decisions.counts_of_size(counts, -(-length // constraints.tile_size))
    return [int(c) for c in counts[::-1]]


def _tiled_extents(arrays: KernelGraph, n_chips: int) -> set[int]:
    """Extents that tiles cut, on one chip."""
    extents: set[int] = set()
    for axis, whole in ((2, arrays.k), (3, arrays.columns), (0, arrays.rows), (1, arrays.rows)):
        tiled = whole[arrays.tiling == axis]
        extents.update(tiled.tolist())
        if axis < 2:  # rows may be sharded too
            extents.update((-(-tiled // n_chips)).tolist())
    return extents


def useful_tiles(state: SearchState, plan: MeshPlan) -> list[int]:
    """Numbers of tiles that no larger number beats in every respect, most first.

    All that depends on the number of tiles grows with work and output, which the plan enters by
    its tensor-parallel degree, and by over how many chips experts and sequences are spread, alone.
    """
    key = plan.tensor, plan.expert, plan.expert_tensor, plan.context, plan.context_exchange
    if key in state.useful_tiles:
        return state.useful_tiles[key]
    tiles = _tile_counts(state, plan)
    if state.system.chip.compute.utilization is not None:
        kept: list[tuple[int, list[Floats]]] = []
        for number, count in enumerate(tiles):
            if state.budget.spend(CALL) and kept:
                kept += [(left, []) for left in tiles[number:]]
                break
            o = make_choices(state.workload, state.arrays, plan, count, state.rules)
            terms = [o.work, o.output_tile, o.output_total, o.weight]
            if not any(
                all((a <= b).all() for a, b in zip(better, terms, strict=True))
                for _, better in kept
            ):
                kept.append((count, terms))
        tiles = [count for count, _ in kept]
    state.useful_tiles[key] = tiles
    return tiles
