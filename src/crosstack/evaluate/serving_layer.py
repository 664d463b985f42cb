"""One layer of a served transformer, kernel by kernel, for many contexts at once.

The array form of `crosstack.model.partition` where every partition is one kernel, which leaves
nothing to search: rows are contexts, columns kernels. Shapes, work, bytes and collectives come from
`crosstack.model.options`, called once for the graphs of all contexts laid end to end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from crosstack.chip.chip import Overlap
from crosstack.model.arrays import AXIS_CODE, Bools, Floats, GraphArrays, Ints, graph_arrays
from crosstack.model.options import Options, allowed_axes, make_options
from crosstack.model.partition import (
    ROUNDING,
    flow_shapes,
    memory_kept,
    network_times,
    staircase,
)
from crosstack.model.plan import Plan
from crosstack.model.rules import ModelRules, WeightCuts
from crosstack.system.system import System
from crosstack.workload.graph import Axis, Workload

__all__ = ["LayerCosts", "Stack", "layer_costs", "serving_axes", "stack"]

# The usual split of a transformer (``narayanan2021megatron``, section 2.3): attention by heads,
# the feed-forward network by its width, the products back to the model's width along K.
_ALONG = {"PROJ_GEMM": Axis.K, "FFN1": Axis.K} | dict.fromkeys(
    ("FFN0", "FFN_Gate", "SiLU", "Gate", "GeLU"), Axis.M
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Graphs of one model that differ in their context alone, as arrays laid end to end.

    ``codes`` are the axes of one graph's kernels, ``reads`` and ``makes`` tell which flow (a
    column) each kernel reads and makes, ``lives`` which live while it runs, ``producer`` who makes
    them.
    """

    workload: Workload
    arrays: GraphArrays
    n_graphs: int
    n_kernels: int
    codes: Ints
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
    fits: Bools
    whole: Bools
    kept: Floats
    cached: Floats
    alive: Floats


def serving_axes(arrays: GraphArrays) -> Ints:
    """Return the axis that each kernel is split along, as a column of `AXES`.

    Batched kernels by their heads, the feed-forward network by its width, `PROJ_GEMM` and `FFN1`
    along K; what is left is whole on every chip, or split by rows where it has a weight.
    """
    allowed = allowed_axes(arrays)
    codes = []
    for name, row in zip(arrays.names, allowed, strict=True):
        wanted = (Axis.OUTER, _ALONG.get(name, Axis.NONE), Axis.NONE, Axis.M, Axis.K, Axis.N)
        codes.append(next(AXIS_CODE[axis] for axis in wanted if row[AXIS_CODE[axis]]))
    return np.array(codes, dtype=np.int64)


def stack(workloads: list[Workload], rules: ModelRules) -> Stack:
    """Lay the graphs of ``workloads`` end to end; they differ in extents and sizes alone."""
    each = [graph_arrays(workload.graph) for workload in workloads]
    first = each[0]
    shapes, _ = flow_shapes(first, rules.fan_out_copies)
    reads, makes, lives = (np.zeros((first.n, len(shapes))) for _ in range(3))
    for f, (producer, readers, _) in enumerate(shapes):
        last = max(reader for reader, _ in readers)
        makes[producer, f] = 1.0
        reads[[reader for reader, _ in readers], f] = 1.0
        lives[producer : last + 1, f] = 1.0
    return Stack(
        workload=workloads[0],
        arrays=_end_to_end(each),
        n_graphs=len(each),
        n_kernels=first.n,
        codes=serving_axes(first),
        producer=np.array([producer for producer, *_ in shapes], dtype=np.int64),
        reads=reads,
        makes=makes,
        lives=lives,
    )


def _end_to_end(each: list[GraphArrays]) -> GraphArrays:
    """Concatenate every array; kernels and tensors of later graphs are numbered on."""
    tensors = int(each[0].tensor.max()) + 1
    joined = {
        field.name: np.concatenate([getattr(arrays, field.name) for arrays in each])
        for field in fields(GraphArrays)
        if isinstance(getattr(each[0], field.name), np.ndarray)
    }
    for name, step in (("source", each[0].n), ("target", each[0].n), ("tensor", tensors)):
        joined[name] += np.repeat(np.arange(len(each)) * step, len(each[0].source))
    n = each[0].n * len(each)
    nothing: tuple[int, ...] = ()
    names = each[0].names * len(each)
    return GraphArrays(n=n, preds=nothing, succs=nothing, order=nothing, names=names, **joined)


def layer_costs(
    stacked: Stack, system: System, plan: Plan, n_tiles: int, rules: ModelRules, *, spilled: bool
) -> LayerCosts:
    """Price one layer of every graph of ``stacked`` under ``plan``, ``n_tiles`` tiles each.

    Notes
    -----
    A kernel alone, with ``d`` tiles of every tensor on the chip (`ModelRules.unfused_depth`):
    traffic = what it reads + what it makes, SRAM = d (tiles of both) + weight; a weight that does
    not fit is cut, which rules may charge. The terms are those of
    `crosstack.model.partition.partition_cost`, to rounding.

    References
    ----------
    ko2025dfmodel (section V.B), dfmodel_code
    """
    chip = system.chip
    arrays, shape = stacked.arrays, (stacked.n_graphs, stacked.n_kernels)
    options = make_options(stacked.workload, arrays, plan, n_tiles, rules)
    codes = np.tile(stacked.codes, stacked.n_graphs)
    rows = np.arange(arrays.n)

    def pick(table: Any) -> Floats:
        return np.asarray(table[rows, codes], dtype=np.float64).reshape(shape)

    bandwidth = system.memory.speed(spilled=spilled)
    weight, cache = pick(options.weight), pick(options.cache)
    tile, total = (
        pick(table)[:, stacked.producer] for table in (options.output_tile, options.output_total)
    )
    into, out = total @ stacked.reads.T, total @ stacked.makes.T
    depth = rules.unfused_depth
    sram_in, cut = depth * (tile @ stacked.reads.T), depth * (tile @ stacked.makes.T)
    cut = cut + weight + arrays.sram_extra.reshape(shape)
    cuts, fits = _weight_cuts(sram_in, cut, weight, chip.memory_capacity)
    again = {WeightCuts.FREE: np.zeros(shape), WeightCuts.INPUTS: into, WeightCuts.ALL: into + out}
    traffic = into + out + (cuts - 1) * again[rules.weight_cuts]
    memory = (traffic + arrays.memory_traffic.reshape(shape) + cache) / bandwidth
    if rules.weights_read:
        memory = memory + weight / bandwidth / plan.microbatch_size
    compute = _compute(stacked, system, options, pick)
    network = network_times(arrays, options, codes, rules).reshape(shape)
    kept = memory_kept(stacked.workload, arrays, weight.ravel(), rules).reshape(shape)
    return LayerCosts(
        time=_together(compute, memory, network, chip.overlap).sum(axis=1),
        compute=compute.sum(axis=1),
        memory=memory.sum(axis=1),
        network=network.sum(axis=1),
        fits=np.asarray(fits.all(axis=1)),
        whole=np.asarray((fits & (cuts == 1)).all(axis=1)),
        kept=kept.sum(axis=1),
        cached=cache.sum(axis=1),
        alive=(total @ stacked.lives.T).max(axis=1),
    )


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
    stacked: Stack, system: System, options: Options, pick: Callable[[Any], Floats]
) -> Floats:
    """Compute time of each kernel alone, with all cores. [s]"""
    chip, arrays = system.chip, stacked.arrays
    if chip.utilization is not None:
        return np.asarray(pick(options.work) / (chip.utilization * chip.peak_throughput))
    extents = np.stack(
        [
            *(pick(t).ravel().astype(np.int64) for t in (options.m, options.k, options.columns)),
            arrays.systolic.astype(np.int64),
        ],
        axis=1,
    )
    shapes, which = np.unique(extents, axis=0, return_inverse=True)
    least = np.array(
        [
            staircase(m, k, n, bool(systolic), chip.lanes, chip.stages, chip.n_cores).cycles[-1]
            for m, k, n, systolic in shapes.tolist()
        ]
    )
    cycles = least[which.ravel()] * arrays.repeats / chip.frequency
    return np.asarray(cycles.reshape(stacked.n_graphs, -1) * pick(options.n_tiles))


def _together(compute: Floats, memory: Floats, network: Floats, overlap: Overlap) -> Floats:
    """`crosstack.model.partition.combine` of arrays. [s]"""
    if overlap is Overlap.NONE:
        return compute + memory + network
    both = np.maximum(compute, memory)
    return np.maximum(both, network) if overlap is Overlap.ALL else both + network
