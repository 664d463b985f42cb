"""One block of a served job, kernel by kernel, for many contexts at once.

The array form of `crosstack.model.partition` where every partition is one kernel, which leaves
nothing to search: rows are contexts, columns kernels. Shapes, work, bytes and collectives come from
`crosstack.model.choices`, called once for the graphs of all contexts laid end to end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from crosstack.evaluate.serving_graphs import BlockSeries
from crosstack.evaluate.serving_points import USES, ServingPoints, machine_of
from crosstack.machine.chip import Chip, Execution, Overlap
from crosstack.machine.system import System
from crosstack.model.choice_index import sharding_codes
from crosstack.model.choices import Choices, make_choices
from crosstack.model.cores import staircase
from crosstack.model.memory import copy_memory, keeps_cache
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.partition import ROUNDING, combine_arrays, network_times
from crosstack.model.rules import Rules
from crosstack.model.tiles import divisors
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.passes.routing import touched_share

__all__ = ["BlockCosts", "block_costs", "fastest_costs"]

LAID_OUT = 32  # graphs that are priced together on a temporal chip


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockCosts:
    """One run of a block for one sequence on one chip, one entry a context.

    Times in [s]: ``time``, and by what it is spent on. ``fits``: whether every kernel fits the
    SRAM; ``whole``: without cutting a weight. ``kept`` and ``cached`` [B]: what it keeps in main
    memory, once and for every sequence; ``alive`` [B]: its tensors at their most, of one sequence.
    """

    time: Floats
    compute: Floats
    memory: Floats
    network: Floats
    launch: Floats
    fits: Bools
    whole: Bools
    kept: Floats
    cached: Floats
    alive: Floats


def block_costs(
    block: BlockSeries,
    contexts: Ints,
    microbatch: Ints,
    n_tiles: Ints,
    system: System,
    plan: MeshPlan,
    rules: Rules,
) -> BlockCosts:
    """Price a block at every context, in microbatches and tiles of its own.

    ``plan`` gives the tensor-parallel chips and which memories are used; its microbatch is one
    sequence.

    Notes
    -----
    A kernel alone, with ``d`` tiles of every tensor on the chip (`Rules.unfused_depth`):
    traffic = what it reads + what it makes, SRAM = d (tiles of both) + weight; a weight that does
    not fit is cut, which rules may charge. The terms are those of
    `crosstack.model.partition.partition_cost`, to rounding.

    References
    ----------
    ko2025dfmodel (section V.B), dfmodel_code
    """
    chip, base = system.chip, block.graph
    arrays, shape = block.laid_out(contexts), (len(contexts), base.n)
    tiles, each = np.repeat(n_tiles, base.n), np.repeat(microbatch, base.n)
    index = block.index.repeated(len(contexts), len(base.source))
    choices = make_choices(block.workload, arrays, plan, tiles, rules, chip, each, index)
    codes = sharding_codes(choices.index, block.sharding * len(contexts), split=plan.tensor > 1)

    def pick(table: Any) -> Floats:
        return np.asarray(table[codes], dtype=np.float64).reshape(shape)

    weight, cache = pick(choices.weight), pick(choices.cache)
    cached = cache if block.end is None else np.where(keeps_cache(base), cache, 0.0)
    total = pick(choices.output_total)[:, block.producer]
    network = network_times(choices, codes).reshape(shape)
    none = np.zeros(arrays.n)
    held = copy_memory(
        block.workload,
        arrays,
        plan,
        rules,
        weight=weight.ravel(),
        cache=none,
        kept=none,
        again=none,
    )
    launch, fits, whole = np.zeros(shape), np.ones(shape, np.bool_), np.ones(shape, np.bool_)
    if choices.clocked is None:
        compute = _compute(block, arrays, system, choices, rules, pick)
        memory, fits, whole = _streamed(block, arrays, system, plan, choices, rules, each, pick)
        time = combine_arrays(compute, memory, network, chip.overlap)
    else:
        taken = _one_after_the_other(block, arrays, each, chip, choices, spilled=plan.spilled)
        device, compute, memory = (terms[codes].reshape(shape) for terms in taken)
        hidden = chip.overlap is Overlap.ALL
        time = np.maximum(device, network) if hidden else device + network
        launch = np.broadcast_to(chip.launch_overhead / microbatch[:, None], shape)
    return BlockCosts(
        time=time.sum(axis=1),
        compute=compute.sum(axis=1),
        memory=memory.sum(axis=1),
        network=network.sum(axis=1),
        launch=launch.sum(axis=1),
        fits=np.asarray(fits.all(axis=1)),
        whole=np.asarray((fits & whole).all(axis=1)),
        kept=held.resident.reshape(shape).sum(axis=1),
        cached=cached.sum(axis=1),
        alive=(total @ block.lives.T).max(axis=1, initial=0.0),
    )


def _streamed(
    block: BlockSeries,
    arrays: KernelGraph,
    system: System,
    plan: MeshPlan,
    choices: Choices,
    rules: Rules,
    microbatch: Ints,
    pick: Callable[[Any], Floats],
) -> tuple[Floats, Bools, Bools]:
    """Time of main memory of each kernel alone [s]; whether it fits, and with a whole weight."""
    chip, traffic = system.chip, rules.traffic
    weight = pick(choices.weight)
    shape, bandwidth = weight.shape, chip.memory_speed(spilled=plan.spilled)
    tile, total = (
        pick(table)[:, block.producer] for table in (choices.output_tile, choices.output_total)
    )
    into, out = total @ block.reads.T, total @ block.makes.T
    sram_in, cut = (traffic.unfused_depth * (tile @ side.T) for side in (block.reads, block.makes))
    cut = cut + weight + arrays.sram_extra.reshape(shape)
    cuts, fits = _weight_cuts(sram_in, cut, weight, chip.on_chip_capacity)
    into, out = into + pick(choices.entering), out + pick(choices.leaving)
    moved = into + out + (cuts - 1) * traffic.read_again(into, out)
    moved = moved + arrays.memory_traffic.reshape(shape) + pick(choices.cache)
    if traffic.weights_read:
        touched = touched_share(arrays.routing, microbatch.astype(np.float64)) / microbatch
        # The only kernel of all that a chip runs keeps its weight there.
        stays = (cuts == 1) & fits & (block.end is not None and block.graph.n == 1)
        moved = moved + np.where(stays, 0.0, weight * touched.reshape(shape))
    return moved / bandwidth, fits, cuts == 1


def _one_after_the_other(
    block: BlockSeries,
    arrays: KernelGraph,
    microbatch: Ints,
    chip: Chip,
    choices: Choices,
    *,
    spilled: bool,
) -> tuple[Floats, Floats, Floats]:
    """Time of each choice alone on a temporal chip: of the device, compute alone, memory. [s]

    As `crosstack.model.temporal.TemporalLoad.terms` of one kernel.
    """
    row, columns = choices.index.kernel, choices.clocked
    assert columns is not None
    fed, edges = np.zeros((arrays.n, 2)), ~arrays.elided
    fed[arrays.target[edges], arrays.operand[edges]] = 1.0
    made = np.tile(block.makes.sum(axis=1), arrays.n // block.graph.n)
    moved = fed[row, 0] * columns.first + fed[row, 1] * columns.second + made[row] * columns.result
    memory = (columns.own + columns.leaving + moved) / chip.memory_speed(spilled=spilled)
    waited = np.where(memory > 0, memory + chip.main_memory.latency / microbatch[row], 0.0)
    alone = columns.work + waited
    if chip.overlap is not Overlap.NONE:
        alone = np.maximum(columns.work, waited)
    launch = chip.launch_overhead / microbatch[row]
    return launch + columns.after + alone, columns.work + columns.after, memory


def _weight_cuts(
    fixed: Floats, cut: Floats, weight: Floats, capacity: float
) -> tuple[Floats, Bools]:
    """Pieces of each kernel's weight, and whether it then fits; `weight_pieces` as an array."""
    whole = fixed + cut <= capacity * (1 + ROUNDING)
    room = capacity - fixed
    pieces = np.ceil(cut / np.where(room > 0, room, np.inf))
    cuttable = ~whole & (weight > 0) & (room > 0)
    return np.where(cuttable, np.maximum(pieces, 1.0), 1.0), whole | cuttable


def _compute(
    block: BlockSeries,
    arrays: KernelGraph,
    system: System,
    choices: Choices,
    rules: Rules,
    pick: Callable[[Any], Floats],
) -> Floats:
    """Compute time of each kernel alone, with all cores. [s]"""
    chip, dtype = system.chip, block.graph.dtype
    if chip.compute.utilization is not None:
        return np.asarray(pick(choices.work) / rules.clock.reached_rate(chip, dtype))
    m, cells = pick(choices.m), (chip.compute.rows, chip.compute.columns, chip.compute.n_units)
    k = np.ceil(pick(choices.k) / chip.compute.steps_per_cycle)
    columns = m, k, pick(choices.columns), arrays.systolic
    extents = np.stack([column.ravel().astype(np.int64) for column in columns], axis=1)
    shapes, which = np.unique(extents, axis=0, return_inverse=True)
    least = np.array(
        [
            staircase(*extent, bool(systolic), *cells).cycles[-1]
            for *extent, systolic in shapes.tolist()
        ]
    )
    cycles = least[which.ravel()] * arrays.repeats * arrays.routing[:, 2] / chip.compute.frequency
    cycles = cycles * rules.clock.cycles_per_step(chip, dtype, arrays.systolic)
    return np.asarray(cycles.reshape(m.shape) * pick(choices.n_tiles))


# ---------------------------------------------------------------- tiles


def fastest_costs(
    block: BlockSeries,
    points: ServingPoints,
    lengths: Ints,
    system: System,
    rules: Rules,
    *,
    spilled: bool,
) -> dict[str, Floats]:
    """Return columns of `BlockCosts`, and ``n_tiles``, of every point with its fastest tiles.

    Points that share tensor-parallel chips are priced together.

    Parameters
    ----------
    lengths : array of int
        Tokens that run through the block at every point. [1]
    spilled : bool
        Whether the second memory is used.
    """
    lengths = lengths if block.is_tiled else np.ones_like(lengths)
    names = (*(f.name for f in fields(BlockCosts)), "n_tiles")
    cost = {name: np.empty(len(lengths)) for name in names}
    for chips in np.unique(points.tensor).tolist():
        rows = np.nonzero(points.tensor == chips)[0]
        pairs = np.stack([points.context[rows], points.microbatch[rows]], axis=1)
        pairs, first, place = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        plan = _tensor_plan(block, system, rules, chips, spilled=spilled)
        price = _pricer(block, pairs, machine_of(system, chips, 1), plan, rules)
        for name, values in _fastest_tiles(price, lengths[rows][first]).items():
            cost[name][rows] = values[place.ravel()]
    return cost


def _tensor_plan(
    block: BlockSeries, system: System, rules: Rules, chips: int, *, spilled: bool
) -> MeshPlan:
    machine = machine_of(system, chips, 1)
    plan = make_plan(block.workload, machine, (chips, 1), USES, 1, rules)
    assert plan is not None  # one sequence is a microbatch
    return replace(plan, spilled=spilled)


def _pricer(
    block: BlockSeries, pairs: Ints, machine: System, plan: MeshPlan, rules: Rules
) -> Callable[[Ints, Ints], BlockCosts]:
    """Return what prices a block for rows of (context, microbatch), in so many tiles each."""
    # What a temporal chip may fuse is asked of all pairs of kernels that are laid end to end.
    most = LAID_OUT if machine.chip.execution is Execution.TEMPORAL else len(pairs)

    def price(rows: Ints, n_tiles: Ints) -> BlockCosts:
        found = []
        for first in range(0, len(rows), most):
            contexts, microbatch = pairs[rows[first : first + most]].T
            tiles = n_tiles[first : first + most]
            found.append(block_costs(block, contexts, microbatch, tiles, machine, plan, rules))
        names = (f.name for f in fields(BlockCosts))
        joined = {name: np.concatenate([getattr(one, name) for one in found]) for name in names}
        return BlockCosts(**joined)

    return price


def _fastest_tiles(price: Callable[[Ints, Ints], BlockCosts], lengths: Ints) -> dict[str, Floats]:
    """Price one block at every length with the number of tiles that is fastest.

    Tiles of equal length add no work, but may add cycles, so more of them pay only where a kernel
    does not fit or a weight has to be cut: a length is done when neither is so.
    """
    left, n_tiles = np.arange(len(lengths)), np.ones_like(lengths)
    best: dict[str, Floats] = {}
    while len(left):
        found = price(left, n_tiles)
        values = {f.name: getattr(found, f.name).astype(float) for f in fields(found)}
        values["n_tiles"] = n_tiles.astype(float)
        if not best:
            best = values
        else:
            more = values["fits"] - best["fits"][left]
            better = (more > 0) | ((more == 0) & (values["time"] < best["time"][left]))
            for name, column in values.items():
                best[name][left[better]] = column[better]
        open_ = (values["whole"] == 0) & (n_tiles < lengths[left])
        left, n_tiles = left[open_], n_tiles[open_]
        n_tiles = np.array(
            [
                next(d for d in divisors(length) if d > tried)
                for length, tried in zip(lengths[left].tolist(), n_tiles.tolist(), strict=True)
            ],
            dtype=np.int64,
        )
    return best
