"""What a kernel clock says of every choice on a chip that runs kernels one after the other.

The terms of `crosstack.model.temporal`: work on the device, what follows it, bytes that a kernel
moves in any partition and those that it moves where an operand or its result passes a border.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from crosstack.machine.chip import Chip, Execution, Overlap
from crosstack.model.boundary import factor_order, streams_memory
from crosstack.model.caches import cache_reads
from crosstack.model.kernels.attention import products_in_attention
from crosstack.model.kernels.results import Results, results_of
from crosstack.model.legality import legality_on
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.model.several_kernels import passes_besides
from crosstack.model.shards import M, Shards
from crosstack.model.temporal import Clocked, crossing, delays, launch_shares
from crosstack.model.traffic import Boundary
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph
from crosstack.workload.passes.routing import touched_share
from crosstack.workload.transformer_training import Zero
from crosstack.workload.workload import Workload

if TYPE_CHECKING:
    from crosstack.model.kernels.clock import KernelClock

MOST_KNOWN = 200_000  # products whose times are kept for a chip


def kernel_clock(chip: Chip, rules: Rules) -> KernelClock:
    """Return what times kernels on a chip: the rules' clock where every level says what it gives.

    A chip without such levels reaches a share of its peak, or what its cells do in their cycles.
    """
    from crosstack.model.kernels.flat import ConstantShare, SystolicCells

    if chip.levels and all(level.bandwidth for level in chip.storage):
        return rules.clock.kernels
    return SystolicCells() if chip.compute.utilization is None else ConstantShare()


def clocked(
    workload: Workload,
    shards: Shards,
    plan: MeshPlan,
    chip: Chip,
    rules: Rules,
    *,
    moved: Floats,
    cache: Floats,
    microbatch: Ints | None = None,
) -> Clocked | None:
    """Return what choices take of a temporal chip; None of a spatial one.

    Parameters
    ----------
    moved, cache : array, shape (choices,)
        What moves besides in any partition, and what each reads of its own past. [B]
    microbatch : array, shape (n,), optional
        Sequences that each kernel works on at a time, instead of the plan's. [1]
    """
    if chip.execution is Execution.SPATIAL:
        return None
    graph, row = shards.graph, shards.index.kernel
    together = np.full(graph.n, plan.microbatch_size) if microbatch is None else microbatch
    timing = _Timing(
        workload=workload,
        shards=shards,
        plan=plan,
        chip=chip,
        rules=rules,
        sequences=together[row].astype(np.float64),
    )
    products, results = timing.products(), timing.results()
    operands = timing.operands(products)
    own, leaving = timing.moves_always(products, operands, moved, cache, results.wider[row])
    work, after = timing.device_times(products, results)
    first, second, result = operands
    on_chip = (first + second + result) * _per_byte(chip).sum()
    return Clocked(
        work=work,
        after=after,
        least=timing.least(work, after, own + leaving, operands),
        own=own,
        leaving=leaving,
        first=first,
        second=second,
        result=result,
        joules=np.where(products.there, products.joules, on_chip) * timing.repeats(products),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Products:
    """What the clock says of products for one sequence, 0 of other kernels; (choices,).

    ``there``: which choices are of products, ``fused`` of such in attentions that are one kernel.
    ``work`` and ``after`` as of `Clocked`, each time [s]; ``tall`` and ``wide`` are what the M x K
    and the K x N factor move if all of them count [B], ``made`` elements of the result that do
    [1]; ``joules`` on the chip [J].
    """

    there: Bools
    fused: Bools
    work: Floats
    after: Floats
    tall: Floats
    wide: Floats
    made: Floats
    joules: Floats


Operands = tuple[Floats, Floats, Floats]
"""Bytes of the first and the second operand and of the result, (choices,) each. [B]"""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Timing:
    """What is timed: shards on a chip, of ``sequences`` at a time, shape (choices,). [1]"""

    workload: Workload
    shards: Shards
    plan: MeshPlan
    chip: Chip
    rules: Rules
    sequences: Floats

    @property
    def row(self) -> Ints:
        """Whose choice each is."""
        return self.shards.index.kernel

    @property
    def counted(self) -> Floats:
        """Shares of operands and result that count, (choices, 3). [1]"""
        return np.asarray(self.shards.density[self.row])

    @property
    def clock(self) -> KernelClock:
        """What times products."""
        return kernel_clock(self.chip, self.rules)

    @property
    def extents(self) -> tuple[Floats, Floats, Floats]:
        """Outer x M, K and N of one sequence on the chip. [1]"""
        rows, depth, columns = self.shards.extents.astype(np.float64)
        return rows, depth, columns

    @property
    def held(self) -> Bools:
        """Which have a weight."""
        return np.asarray(self.shards.graph.has_weight[self.row])

    def results(self) -> Results:
        """Return what results of products take besides, by kernel."""
        plan = self.plan
        shared = bool(np.all(np.asarray(plan.zero) >= Zero.GRADIENTS.number))
        alone = bool(np.all(np.equal(plan.data, 1)))
        chips = {"shared": shared, "alone": alone}
        return results_of(self.shards.graph, self.chip, self.clock, plan.n_microbatches, **chips)

    def products(self) -> _Products:
        """Return what the clock says of products."""
        graph, chip, clock, row = self.shards.graph, self.chip, self.clock, self.row
        there = (graph.gemm & graph.systolic)[row]
        swapped, shared = factor_order(graph)
        cut = self.shards.index.axis == M
        shapes = _shapes(graph, row, shared[row], cut, self.extents, self.sequences)
        attended = self.rules.clock.attended(chip, graph).of(row)
        counted, back = self.counted, graph.backward[row]
        table = np.zeros((len(row), 6))
        for dtype, those in graph.kernels_by_dtype:
            now = there & those[row]
            table[now] = _product_terms(clock, chip, dtype, shapes[now])
            table[now, 2:5] /= dtype.size  # of elements
            if (now & attended.inside).any():
                inside = np.flatnonzero(now & attended.inside)
                these = shapes[inside], counted[inside], back[inside], attended.of(inside)
                table[inside, 0] = products_in_attention(clock, chip, dtype, *these)
                table[inside, 1] = 0.0
        skipped, fused = counted.min(axis=1), there & attended.inside
        table /= self.sequences[:, None]
        turned, element = swapped[row], graph.input_element[row]
        other = np.where(turned, element[:, 0], element[:, 1])
        return _Products(
            there=there,
            fused=fused,
            work=table[:, 0] * np.where(fused, 1.0, skipped),
            after=table[:, 1],
            tall=table[:, 2] * np.where(self.held, graph.weight_element[row], other),
            wide=table[:, 3] * np.where(turned, element[:, 1], element[:, 0]),
            made=table[:, 4],
            joules=table[:, 5] * skipped,
        )

    def repeats(self, products: _Products) -> Floats:
        """Return how often a kernel runs, of products; others tell all that they do at once. [1]"""
        return np.where(products.there, self.shards.graph.repeats[self.row], 1.0)

    def operands(self, products: _Products) -> Operands:
        """Return bytes of operands, and of the result, that pass borders. [B]"""
        graph, row, there, counted = self.shards.graph, self.row, products.there, self.counted
        rows, _, columns = self.extents
        turned, filled = factor_order(graph)[0][row], graph.routing[row, 2]
        tall, wide = products.tall, products.wide
        share = rows / graph.rows[row] * (columns / graph.columns[row])
        inputs = graph.input_sizes[row] * (share * filled)[:, None]
        first = np.where(there, np.where(turned, tall, wide), inputs[:, 0]) * counted[:, 0]
        second = np.where(there, np.where(turned, wide, tall), inputs[:, 1]) * counted[:, 1]
        second = np.where(graph.two_inputs[row], second, 0.0)
        stored = np.where(there[:, None], graph.stored[row], 1.0)  # windows lie over one another
        written = graph.output_element[row] * graph.copies[row]
        made = self._made(products)
        result = made * stored[:, 2] * written * counted[:, 2]
        return first * stored[:, 0], second * stored[:, 1], result

    def _made(self, products: _Products) -> Floats:
        """Return elements of the result. [1]"""
        rows, _, columns = self.extents
        filled = self.shards.graph.routing[self.row, 2]
        return np.where(products.there, products.made, rows * columns * filled)

    def moves_always(
        self,
        products: _Products,
        operands: Operands,
        moved: Floats,
        cache: Floats,
        wider: Floats,
    ) -> tuple[Floats, Floats]:
        """Return `Clocked.own` and `Clocked.leaving`. [B]

        ``moved`` and ``cache`` as of `clocked` [B]; ``wider`` as of `Results`, by choice. [1]
        """
        graph, row, rules = self.shards.graph, self.row, self.rules
        first, second, result = operands
        keeps, read = cache_reads(graph)
        besides = passes_besides(graph, self.chip)[row]
        own = graph.memory_traffic[row] + moved + np.where(keeps[row], result, cache)
        own = own + (read[row, 0] + besides) * first + read[row, 1] * second
        leaving = np.zeros(len(row))
        if rules.traffic.weights_read:
            own = own + np.where(self.held, products.tall, 0.0)
        if rules.traffic.boundary is Boundary.MEMORY:
            streams = streams_memory(self.workload.placement, rules)
            opens, closes = graph.open_inputs[row] | streams, graph.open_output[row] | streams
            own = own + opens[:, 0] * first + opens[:, 1] * second
            # Each microbatch but the first, and each copy that shares them, adds to what is there.
            leaving = closes * result * wider
        return own, leaving

    def device_times(self, products: _Products, results: Results) -> tuple[Floats, Floats]:
        """Return `Clocked.work` and `Clocked.after`. [s]"""
        chip, graph, row, there = self.chip, self.shards.graph, self.row, products.there
        repeats, made = self.repeats(products), self._made(products)
        rate = self.rules.clock.lane_rates(chip, graph).copy()
        for dtype, those in graph.kernels_by_dtype:
            rate[those & graph.systolic] = chip.throughput(dtype)
        work = np.where(there, products.work * repeats, self.shards.work / rate[row])
        beside = results.beside[row] * made * self.counted[:, 2] * repeats
        work += np.where(there & ~products.fused, beside, 0.0)
        launching = results.launches[row] * chip.launch_overhead / self.sequences
        after = products.after * repeats
        after += np.where(there, results.behind[row] * made + launching, 0.0)
        return work, after

    def least(self, work: Floats, after: Floats, always: Floats, operands: Operands) -> Floats:
        """Return `Clocked.least`: that of `TemporalLoad`, of tensors that join no kernels. [s]

        ``work`` and ``after`` are those of the device [s], ``always`` moves in any partition. [B]
        """
        chip, graph, row, rules = self.chip, self.shards.graph, self.row, self.rules
        legality = legality_on(graph, chip)
        apart, launches = crossing(graph, rules.traffic, legality)[0], launch_shares(legality)
        if not streams_memory(self.workload.placement, rules):
            first, second, result = operands
            always = always + apart[row, 0] * first + apart[row, 1] * second
            always = always + apart[row, 2] * result
        memory = always / chip.memory_speed(spilled=self.plan.spilled)
        delay = delays(graph, chip)[row] / self.sequences
        memory = np.where(memory > 0, memory + delay, 0.0)
        busy = work + memory if chip.overlap is Overlap.NONE else np.maximum(work, memory)
        return np.asarray(after + busy + chip.launch_overhead / self.sequences * launches[row])


def _shapes(
    arrays: KernelGraph,
    row: Ints,
    alone: Bools,
    cut: Bools,
    extents: tuple[Floats, Floats, Floats],
    sequences: Floats,
) -> Floats:
    """Return M, K, N and batch of a microbatch, (choices, 4). [1]

    Those ``alone`` are one product; of those ``cut`` a chip has a part of the rows of each.
    """
    rows, depth, columns = extents
    held, summed = arrays.has_weight[row], (arrays.periodic_size > 0)[row]
    several = np.where(cut, arrays.outer[row], np.maximum(rows / arrays.m[row], 1.0))
    batch = np.where(alone, 1.0, several)
    # Groups that have tokens, of the slowest chip one at least, with those of all over their share.
    touched = touched_share(arrays.routing[row], sequences)
    each = sequences * arrays.routing[row, 2] / touched
    sides = (
        rows / batch * np.where(alone, touched, 1.0),
        np.where(summed, each, 1.0) * depth,
        np.where(held, each, 1.0) * columns,
        np.where(held | summed, np.maximum(touched * batch, 1.0), sequences * batch),
    )
    return np.stack(sides, axis=-1)


def _per_byte(chip: Chip) -> Floats:
    """Return what a byte takes of every level on a chip. [J/B]"""
    return np.array([8 * level.energy_per_bit for level in chip.levels])


def _product_terms(clock: KernelClock, chip: Chip, dtype: Dtype, shapes: Floats) -> Floats:
    """Return work and what follows [s], bytes of A, B and C, joules on the chip, (products, 6).

    Parameters
    ----------
    shapes : array, shape (products, 4)
        M, K, N and batch. [1]
    """
    known, keys = _known(clock, chip, dtype), list(map(tuple, shapes.tolist()))
    new = [key for key in dict.fromkeys(keys) if key not in known]
    if len(known) + len(new) > MOST_KNOWN:
        known.clear()
        new = list(dict.fromkeys(keys))
    for start in range(0, len(new), clock.shapes_at_once):
        part = new[start : start + clock.shapes_at_once]
        found = clock.products(chip, dtype, *np.array(part, dtype=np.float64).T)
        nothing = np.zeros_like(found.work_time)
        through = [found.traffic.get(level.name, nothing) for level in chip.levels]
        joules = np.stack(through, axis=-1) @ _per_byte(chip) if through else nothing
        terms = np.column_stack([found.work_time, found.reduction_time, found.operands, joules])
        known.update(zip(part, map(tuple, terms.tolist()), strict=True))
    return np.array([known[key] for key in keys], dtype=np.float64).reshape(-1, 6)


@lru_cache(maxsize=256)
def _known(
    clock: KernelClock, chip: Chip, dtype: Dtype
) -> dict[tuple[float, ...], tuple[float, ...]]:
    """Terms of the products of a chip that were timed before."""
    return {}
