"""One layer of a served transformer, kernel by kernel, for many contexts at once.

The array form of `crosstack.model.partition` where every partition is one kernel, which leaves
nothing to search: rows are contexts, columns kernels. Shapes, work, bytes and collectives come from
`crosstack.model.choices`, called once for the graphs of all contexts laid end to end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.machine.chip import Chip, Overlap
from crosstack.machine.system import System
from crosstack.model.choice_index import choice_index
from crosstack.model.choices import Choices, make_choices
from crosstack.model.cores import staircase
from crosstack.model.flows import flow_shapes
from crosstack.model.memory import copy_memory
from crosstack.model.partition import ROUNDING, combine_arrays, network_times
from crosstack.model.plan import Plan
from crosstack.model.rules import Rules
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.kernels import Axis
from crosstack.workload.workload import Workload

__all__ = ["Family", "LayerCosts", "family", "laid_out", "layer_costs", "serving_axes"]

# The usual split of a transformer (``narayanan2021megatron``, section 2.3): attention by heads,
# the feed-forward network by its width, the products back to the model's width along K.
_ALONG = {"PROJ_GEMM": Axis.K, "FFN1": Axis.K} | dict.fromkeys(
    ("FFN0", "FFN_Gate", "SiLU", "Gate", "GeLU"), Axis.M
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Graphs of one model that differ in their context alone.

    ``workload`` and ``arrays`` are those of a context of 1, ``slopes`` and ``bends`` how an array
    changes with the context: ``f(1) + (c - 1) slope + (c - 1) (c - 2) / 2 bend``. ``codes`` are
    the axes of the kernels; ``reads`` and ``makes`` tell which flow (a column) each kernel reads
    and makes, ``lives`` which live while it runs, ``producer`` who makes them.
    """

    workload: Workload
    arrays: KernelGraph
    slopes: dict[str, NDArray[Any]]
    bends: dict[str, NDArray[Any]]
    sharding: tuple[Axis, ...]
    producer: Ints
    reads: Floats
    makes: Floats
    lives: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerCosts:
    """One layer of one sequence on one chip, one entry a context.

    Times in [s]: ``time``, and by what it is spent on. ``fits``: whether every kernel fits the
    SRAM; ``whole``: without cutting a weight. ``kept`` and ``cached`` [B]: what a layer keeps in
    main memory, once and for every sequence; ``alive`` [B]: its tensors at their most, of one
    sequence.
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


def serving_axes(arrays: KernelGraph) -> tuple[Axis, ...]:
    """Return the axis that each kernel is split along.

    Batched kernels by their heads, the feed-forward network by its width, `PROJ_GEMM` and `FFN1`
    along K; what is left is whole on every chip, or split by rows where it has a weight.
    """
    index = choice_index(arrays)
    found = []
    for i, name in enumerate(arrays.names):
        wanted = (Axis.OUTER, _ALONG.get(name, Axis.NONE), Axis.NONE, Axis.M, Axis.K, Axis.N)
        found.append(next(axis for axis in wanted if axis in index.axes(i)))
    return tuple(found)


def family(made: Callable[[int], Workload], rules: Rules) -> Family:
    """Return the graphs that ``made`` makes of a context.

    Every extent and every size is a polynomial in the context, of degree 2 at most (attention
    multiplies tokens by tokens), so three of them say all others, exactly.
    """
    first, second, third = (made(context).graph for context in (1, 2, 3))
    slopes, bends = {}, {}
    for name in _numbers(first):
        one, two, three = (getattr(arrays, name) for arrays in (first, second, third))
        slopes[name], bends[name] = two - one, three - 2 * two + one
    shapes, _ = flow_shapes(first, rules.traffic)
    reads, makes, lives = (np.zeros((first.n, len(shapes))) for _ in range(3))
    for f, (producer, readers, _) in enumerate(shapes):
        last = max(reader for reader, _ in readers)
        makes[producer, f] = 1.0
        reads[[reader for reader, _ in readers], f] = 1.0
        lives[producer : last + 1, f] = 1.0
    return Family(
        workload=made(1),
        arrays=first,
        slopes=slopes,
        bends=bends,
        sharding=serving_axes(first),
        producer=np.array([producer for producer, *_ in shapes], dtype=np.int64),
        reads=reads,
        makes=makes,
        lives=lives,
    )


def _numbers(arrays: KernelGraph) -> list[str]:
    """Return the names of the arrays that hold numbers; flags are the same in every context."""
    each = {f.name: getattr(arrays, f.name) for f in fields(KernelGraph)}
    return [
        name
        for name, array in each.items()
        if isinstance(array, np.ndarray) and array.dtype != np.bool_
    ]


def laid_out(graphs: Family, contexts: Ints) -> KernelGraph:
    """Return the arrays of the graph of every context, laid end to end."""
    count, base = len(contexts), graphs.arrays
    joined: dict[str, Any] = {}
    for field in fields(KernelGraph):
        array = getattr(base, field.name)
        if not isinstance(array, np.ndarray):
            continue
        if field.name not in graphs.slopes:
            joined[field.name] = np.tile(array, (count, *[1] * (array.ndim - 1)))
            continue
        steps = (contexts - 1).astype(array.dtype).reshape(-1, *[1] * array.ndim)
        slope, bend = graphs.slopes[field.name], graphs.bends[field.name]
        values = array + steps * slope
        if bend.any():
            values = values + (steps * (steps - 1) // 2) * bend
        joined[field.name] = values.reshape(-1, *array.shape[1:])
    tensors = int(base.tensor.max()) + 1
    for name, step in (("source", base.n), ("target", base.n), ("tensor", tensors)):
        joined[name] += np.repeat(np.arange(count) * step, len(base.source))
    for name in ("join_source", "join_target"):
        joined[name] += np.repeat(np.arange(count) * base.n, len(base.join_source))
    return replace(
        base,
        n=base.n * count,
        names=base.names * count,
        messages=base.messages * count,
        levels=(),  # nobody orders them
        order=(),
        preds=(),
        succs=(),
        **joined,
    )


def layer_costs(
    graphs: Family,
    contexts: Ints,
    microbatch: Ints,
    n_tiles: Ints,
    system: System,
    plan: Plan,
    rules: Rules,
    *,
    spilled: bool,
) -> LayerCosts:
    """Price one layer at every context, in microbatches and tiles of its own.

    ``plan`` gives the tensor-parallel chips; its microbatch is one sequence.

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
    chip = system.chip
    arrays, shape = laid_out(graphs, contexts), (len(contexts), graphs.arrays.n)
    tiles = np.repeat(n_tiles, graphs.arrays.n)
    each = np.repeat(microbatch, graphs.arrays.n)
    choices = make_choices(graphs.workload, arrays, plan, tiles, rules, chip, each)
    codes = choices.index.codes(graphs.sharding * len(contexts))

    def pick(table: Any) -> Floats:
        return np.asarray(table[codes], dtype=np.float64).reshape(shape)

    bandwidth = system.chip.memory_speed(spilled=spilled)
    weight, cache = pick(choices.weight), pick(choices.cache)
    tile, total = (
        pick(table)[:, graphs.producer] for table in (choices.output_tile, choices.output_total)
    )
    into, out = total @ graphs.reads.T, total @ graphs.makes.T
    depth = rules.traffic.unfused_depth
    sram_in, cut = depth * (tile @ graphs.reads.T), depth * (tile @ graphs.makes.T)
    cut = cut + weight + arrays.sram_extra.reshape(shape)
    cuts, fits = _weight_cuts(sram_in, cut, weight, chip.on_chip_capacity)
    into, out = into + pick(choices.entering), out + pick(choices.leaving)
    traffic = into + out + (cuts - 1) * rules.traffic.read_again(into, out)
    memory = (traffic + arrays.memory_traffic.reshape(shape) + cache) / bandwidth
    if rules.traffic.weights_read:
        memory = memory + weight / bandwidth / microbatch[:, None]
    compute = _compute(graphs, arrays, system, choices, rules, pick)
    network = network_times(choices, codes).reshape(shape)
    none = np.zeros(arrays.n)
    held = copy_memory(
        graphs.workload,
        arrays,
        plan,
        rules,
        weight=weight.ravel(),
        cache=none,
        kept=none,
        again=none,
    )
    kept = held.resident.reshape(shape)
    time, launch = combine_arrays(compute, memory, network, chip.overlap), np.zeros(shape)
    if choices.clocked is not None:
        taken = _one_after_the_other(graphs, arrays, each, chip, choices, spilled=spilled)
        device, compute, memory = (terms[codes].reshape(shape) for terms in taken)
        hidden = chip.overlap is Overlap.ALL
        time = np.maximum(device, network) if hidden else device + network
        fits, cuts = np.ones(shape, dtype=np.bool_), np.ones(shape)
        launch = np.broadcast_to(chip.launch_overhead / microbatch[:, None], shape)
    return LayerCosts(
        time=time.sum(axis=1),
        compute=compute.sum(axis=1),
        memory=memory.sum(axis=1),
        network=network.sum(axis=1),
        launch=launch.sum(axis=1),
        fits=np.asarray(fits.all(axis=1)),
        whole=np.asarray((fits & (cuts == 1)).all(axis=1)),
        kept=kept.sum(axis=1),
        cached=cache.sum(axis=1),
        alive=(total @ graphs.lives.T).max(axis=1),
    )


def _one_after_the_other(
    graphs: Family,
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
    made = np.tile(graphs.makes.sum(axis=1), arrays.n // graphs.arrays.n)
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
    graphs: Family,
    arrays: KernelGraph,
    system: System,
    choices: Choices,
    rules: Rules,
    pick: Callable[[Any], Floats],
) -> Floats:
    """Compute time of each kernel alone, with all cores. [s]"""
    chip, dtype = system.chip, graphs.workload.graph.dtype
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
    cycles = least[which.ravel()] * arrays.repeats / chip.compute.frequency
    cycles = cycles * rules.clock.cycles_per_step(chip, dtype, arrays.systolic)
    return np.asarray(cycles.reshape(m.shape) * pick(choices.n_tiles))
