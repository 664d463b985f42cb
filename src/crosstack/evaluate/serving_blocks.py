"""One block of a served job, kernel by kernel, for many contexts at once.

The array form of `crosstack.model.partition` where every partition is one kernel, which leaves
nothing to search: rows are contexts, columns kernels. Shapes, work, bytes and collectives come from
`crosstack.model.choices`, called once for the graphs of all contexts laid end to end.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np

from crosstack.evaluate.serving_graphs import BlockSeries
from crosstack.evaluate.serving_points import USES, ServingPoints, machine_of
from crosstack.machine.chip import Execution, Overlap
from crosstack.machine.system import System
from crosstack.model.caches import keeps_cache
from crosstack.model.choice_index import sharding_codes
from crosstack.model.choices import Choices, make_choices
from crosstack.model.cores import staircase
from crosstack.model.flows import read_beside
from crosstack.model.memory import copy_memory
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.partition import ROUNDING, combine_arrays, network_times
from crosstack.model.rules import Rules
from crosstack.model.temporal import delays
from crosstack.model.tiles import divisors
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.passes.routing import touched_share

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


COLUMNS = tuple(f.name for f in fields(BlockCosts))


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
    laid = _LaidOut(block, arrays, system, plan, rules, choices, codes, each, shape)
    weight, cache = laid.pick("weight"), laid.pick("cache")
    cached = cache if block.end is None else np.where(keeps_cache(base), cache, 0.0)
    total = laid.pick("output_total")[:, block.producer]
    network = network_times(choices, codes).reshape(shape)
    sizes = dict.fromkeys(("cache", "kept", "again", "waiting"), np.zeros(arrays.n))
    held = copy_memory(block.workload, arrays, plan, rules, weight=weight.ravel(), **sizes)
    launch, fits, whole = np.zeros(shape), np.ones(shape, np.bool_), np.ones(shape, np.bool_)
    if choices.clocked is None:
        compute = laid.compute()
        memory, fits, whole = laid.streamed()
        time = combine_arrays(compute, memory, network, chip.overlap)
    else:
        device, compute, memory = laid.one_after_the_other()
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


@dataclass(frozen=True, slots=True)
class _LaidOut:
    """Graphs of many contexts end to end: the choice of each kernel, and its microbatch. [1]"""

    block: BlockSeries
    arrays: KernelGraph
    system: System
    plan: MeshPlan
    rules: Rules
    choices: Choices
    codes: Ints
    microbatch: Ints
    shape: tuple[int, int]

    def pick(self, column: str) -> Floats:
        """Return a column of the choices, by context and kernel."""
        values = getattr(self.choices, column)[self.codes]
        return np.asarray(values, dtype=np.float64).reshape(self.shape)

    def streamed(self) -> tuple[Floats, Bools, Bools]:
        """Time of main memory of each kernel alone [s]; if it fits, and if with a whole weight."""
        block, chip, traffic = self.block, self.system.chip, self.rules.traffic
        weight, depth = self.pick("weight"), traffic.unfused_depth
        tile, total = (self.pick(f"output_{name}")[:, block.producer] for name in ("tile", "total"))
        into, out = total @ block.reads.T, total @ block.makes.T
        cut = depth * (tile @ block.makes.T) + weight + self.arrays.sram_extra.reshape(self.shape)
        fixed = depth * (tile @ block.reads.T)
        cuts, fits = _weight_cuts(fixed, cut, weight, chip.on_chip_capacity)
        into, out = into + self.pick("entering"), out + self.pick("leaving")
        moved = into + out + (cuts - 1) * traffic.read_again(into, out)
        moved = moved + self.arrays.memory_traffic.reshape(self.shape) + self.pick("cache")
        if traffic.weights_read:
            sequences = self.microbatch.astype(np.float64)
            touched = touched_share(self.arrays.routing, sequences) / self.microbatch
            # The only kernel of all that a chip runs keeps its weight there.
            stays = (cuts == 1) & fits & (block.end is not None and block.graph.n == 1)
            moved = moved + np.where(stays, 0.0, weight * touched.reshape(self.shape))
        return moved / chip.memory_speed(spilled=self.plan.spilled), fits, cuts == 1

    def one_after_the_other(self) -> list[Floats]:
        """Time of each kernel alone on a temporal chip: of the device, compute alone, memory. [s]

        As `crosstack.model.temporal.TemporalLoad.terms` of one kernel.
        """
        arrays, chip, columns = self.arrays, self.system.chip, self.choices.clocked
        assert columns is not None
        row, made = self.choices.index.kernel, self.block.makes.sum(axis=1)
        fed, edges = np.zeros((arrays.n, 2)), ~arrays.elided
        fed[arrays.target[edges], arrays.operand[edges]] = 1.0
        for reader, place, _ in read_beside(self.block.graph):
            fed[reader :: self.block.graph.n, place] = 1.0
        made = np.tile(made, arrays.n // self.block.graph.n)[row]
        moved = fed[row, 0] * columns.first + fed[row, 1] * columns.second + made * columns.result
        speed, delay = chip.memory_speed(spilled=self.plan.spilled), delays(arrays, chip)[row]
        memory = (columns.own + columns.leaving + moved) / speed
        waited = np.where(memory > 0, memory + delay / self.microbatch[row], 0.0)
        alone = columns.work + waited
        if chip.overlap is not Overlap.NONE:
            alone = np.maximum(columns.work, waited)
        launch = chip.launch_overhead / self.microbatch[row]
        terms = launch + columns.after + alone, columns.work + columns.after, memory
        return [term[self.codes].reshape(self.shape) for term in terms]

    def compute(self) -> Floats:
        """Compute time of each kernel alone, with all cores. [s]"""
        chip, dtype, arrays = self.system.chip, self.block.graph.dtype, self.arrays
        clock, cores = self.rules.clock, self.system.chip.compute
        if cores.utilization is not None:
            return np.asarray(self.pick("work") / clock.reached_rate(chip, dtype))
        k = np.ceil(self.pick("k") / cores.steps_per_cycle)
        columns = self.pick("m"), k, self.pick("columns"), arrays.systolic
        extents = np.stack([column.ravel().astype(np.int64) for column in columns], axis=1)
        shapes, which = np.unique(extents, axis=0, return_inverse=True)
        cells = cores.rows, cores.columns, cores.n_units
        least = np.array(
            [
                staircase(*extent, bool(systolic), *cells).cycles[-1]
                for *extent, systolic in shapes.tolist()
            ]
        )
        cycles = least[which.ravel()] * arrays.repeats * arrays.routing[:, 2] / cores.frequency
        cycles = cycles * clock.cycles_per_step(chip, dtype, arrays.systolic)
        return np.asarray(cycles.reshape(self.shape) * self.pick("n_tiles"))


def _weight_cuts(
    fixed: Floats, cut: Floats, weight: Floats, capacity: float
) -> tuple[Floats, Bools]:
    """Pieces of each kernel's weight, and whether it then fits; `weight_pieces` as an array."""
    whole = fixed + cut <= capacity * (1 + ROUNDING)
    room = capacity - fixed
    pieces = np.ceil(cut / np.where(room > 0, room, np.inf))
    cuttable = ~whole & (weight > 0) & (room > 0)
    return np.where(cuttable, np.maximum(pieces, 1.0), 1.0), whole | cuttable


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
    cost = {name: np.empty(len(lengths)) for name in (*COLUMNS, "n_tiles")}
    for chips in np.unique(points.tensor).tolist():
        rows = np.nonzero(points.tensor == chips)[0]
        pairs = np.stack([points.context[rows], points.microbatch[rows]], axis=1)
        pairs, first, place = np.unique(pairs, axis=0, return_index=True, return_inverse=True)
        machine = machine_of(system, chips, 1, rules)
        plan = make_plan(block.workload, machine, (chips, 1), USES, 1, rules)
        assert plan is not None  # one sequence is a microbatch
        given = machine, replace(plan, spilled=spilled), rules
        for name, values in _fastest_tiles(block, pairs, lengths[rows][first], given).items():
            cost[name][rows] = values[place.ravel()]
    return cost


def _fastest_tiles(
    block: BlockSeries, pairs: Ints, lengths: Ints, given: tuple[System, MeshPlan, Rules]
) -> dict[str, Floats]:
    """Price a block at rows of (context, microbatch) with the number of tiles that is fastest.

    Tiles of equal length add no work, but may add cycles, so more of them pay only where a kernel
    does not fit or a weight has to be cut: a length is done when neither is so.
    """
    left, n_tiles = np.arange(len(lengths)), np.ones_like(lengths)
    best: dict[str, Floats] = {}
    while len(left):
        values = _priced(block, pairs[left], n_tiles, given) | {"n_tiles": n_tiles.astype(float)}
        if not best:
            best = values
        else:
            more = values["fits"] - best["fits"][left]
            better = (more > 0) | ((more == 0) & (values["time"] < best["time"][left]))
            for name, column in values.items():
                best[name][left[better]] = column[better]
        open_ = (values["whole"] == 0) & (n_tiles < lengths[left])
        left, tried = left[open_], n_tiles[open_].tolist()
        pieces = zip(lengths[left].tolist(), tried, strict=True)
        n_tiles = np.array(
            [next(d for d in divisors(length) if d > few) for length, few in pieces], np.int64
        )
    return best


def _priced(
    block: BlockSeries, pairs: Ints, n_tiles: Ints, given: tuple[System, MeshPlan, Rules]
) -> dict[str, Floats]:
    """Return columns of `BlockCosts` of (context, microbatch), in so many tiles each."""
    # What a temporal chip may fuse is asked of all pairs of kernels that are laid end to end.
    most = LAID_OUT if given[0].chip.execution is Execution.TEMPORAL else len(pairs)
    found = []
    for first in range(0, len(pairs), most):
        contexts, microbatch = pairs[first : first + most].T
        tiles = n_tiles[first : first + most]
        found.append(block_costs(block, contexts, microbatch, tiles, *given))
    return {
        name: np.concatenate([getattr(one, name) for one in found]).astype(float)
        for name in COLUMNS
    }
