"""What kernels take of a temporal chip, which runs the kernels of a partition one after the other.

Each kernel has the whole chip. It takes what the clock says of the device (`KernelTime.work_time`)
or what it moves of main memory, whichever is longer, and a partition is launched once:

    D(S) = launch + sum over i in S of ( after_i + max(work_i, bytes_i(S) / bandwidth + delay_i) )

``bytes_i(S)`` are those of its operands that no kernel of S makes and of its result if some kernel
outside reads it; nothing moved takes no ``delay_i`` (`delays`). ``after_i`` is what follows alone:
the sums of a split K. The network hides behind D, or not, as the chip's `Overlap` says; where
nothing hides, the two terms of the maximum add up.

A microbatch of b sequences is one launch of each kernel: weights multiply b times as many columns,
gradients of weights add up over b times as many rows, other products are b times as many; of groups
that tokens are sent to (experts) those that get some work, on as many as come to them
(`crosstack.workload.passes.routing.touched_share`). The clock's answer is shared out over the
sequences. Kernels that the backward pass computes again run twice, with a launch of their own.

**Bounds.** D only grows with S: another kernel adds a term, and takes main memory off the others by
no more than it had to move itself. So for parts of S

    D(S) >= sum over i in S of least_i,   least_i = share_i launch + after_i + max(work_i, m_i)

with ``m_i`` the bytes that i moves in every legal partition (`Legality.may_meet`) and ``share_i``
one over the most products that a partition with product i has, 0 for other kernels. The bytes of
each tensor alone, at least those of its write or of any read of it, bound the memory of a partition
in the same way. The search adds up ``least`` and those bytes as it adds up compute and memory of a
spatial chip, and prices only the partitions that remain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from crosstack.machine.chip import Chip, Execution, Overlap
from crosstack.model.boundary import factor_order, streams_memory
from crosstack.model.caches import cache_reads
from crosstack.model.flows import Ends, read_again, read_beside, tensor_ends
from crosstack.model.kernels.attention import products_in_attention
from crosstack.model.kernels.results import results_of
from crosstack.model.legality import Legality, legality_on
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.rules import Rules
from crosstack.model.several_kernels import passes_besides
from crosstack.model.temporal_load import Run, TemporalLoad
from crosstack.model.traffic import Boundary, Traffic
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import AXIS_CODE, Bools, Floats, Ints, KernelGraph, bits
from crosstack.workload.kernels import Axis
from crosstack.workload.passes.routing import touched_share
from crosstack.workload.transformer_training import Zero
from crosstack.workload.workload import Workload

if TYPE_CHECKING:
    from crosstack.model.kernels.clock import KernelClock

M = AXIS_CODE[Axis.M]
MOST_KNOWN = 200_000  # products whose times are kept for a chip


def kernel_clock(chip: Chip, rules: Rules) -> KernelClock:
    """Return what times kernels on a chip: the rules' clock where every level says what it gives.

    A chip without such levels reaches a share of its peak, or what its cells do in their cycles.
    """
    from crosstack.model.kernels.flat import ConstantShare, SystolicCells

    if chip.levels and all(level.bandwidth for level in chip.storage):
        return rules.clock.kernels
    return SystolicCells() if chip.compute.utilization is None else ConstantShare()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Clocked:
    """What each choice of each kernel takes of a temporal chip, for one sequence; (choices,).

    ``work`` is the device's without main memory, ``after`` what follows it, ``least`` what it adds
    to any partition [s]; ``joules`` is what the memories on the chip take of all times that it runs
    [J]; ``own`` moves in any partition, ``leaving`` as well, but once where the
    kernel runs twice; ``first`` and ``second`` move if the operand's maker is in another,
    ``result`` if a reader is. [B]
    """

    work: Floats
    after: Floats
    least: Floats
    own: Floats
    leaving: Floats
    first: Floats
    second: Floats
    result: Floats
    joules: Floats

    def columns(self) -> list[Floats]:
        """Return all of them."""
        return [getattr(self, name) for name in self.__slots__]

    def again(self, times: Ints | Floats) -> Clocked:
        """Return the same of kernels that run so many times, alone every time but the first."""
        least = self.least + (times - 1) * (self.work + self.after)
        return replace(self, least=least, joules=self.joules * times)


def clocked(
    workload: Workload,
    arrays: KernelGraph,
    plan: MeshPlan,
    chip: Chip,
    rules: Rules,
    *,
    choices: tuple[Ints, Ints],
    extents: tuple[Ints, Ints, Ints],
    density: Floats,
    work: Floats,
    moved: Floats,
    cache: Floats,
    microbatch: Ints | None = None,
) -> Clocked | None:
    """Return what choices take of a temporal chip; None of a spatial one.

    Parameters
    ----------
    choices, extents : tuple of array, shape (choices,)
        Kernel and axis of each; outer x M, K and N that one chip works on. [1]
    density : array, shape (n, 3)
        See `crosstack.model.attention.density_on`. [1]
    work, moved, cache : array, shape (choices,)
        Of one sequence [FLOP], what moves besides in any partition, and what it reads of its own
        past. [B]
    microbatch : array, shape (n,), optional
        Sequences that each kernel works on at a time, instead of the plan's. [1]
    """
    if chip.execution is Execution.SPATIAL:
        return None
    row, axis = choices
    rows, depth, columns = (extent.astype(np.float64) for extent in extents)
    together = np.full(arrays.n, plan.microbatch_size) if microbatch is None else microbatch
    sequences = together[row].astype(np.float64)
    swapped, shared = factor_order(arrays)
    product = (arrays.gemm & arrays.systolic)[row]
    held = arrays.has_weight[row]
    filled = arrays.routing[row, 2]
    shapes = _shapes(arrays, row, shared[row], axis == M, (rows, depth, columns), sequences)
    table, clock = np.zeros((len(row), 6)), kernel_clock(chip, rules)
    spread = bool(np.all(np.asarray(plan.zero) >= Zero.GRADIENTS.number))
    alone = bool(np.all(np.equal(plan.data, 1)))
    results = results_of(arrays, chip, clock, plan.n_microbatches, shared=spread, alone=alone)
    rate = rules.clock.lane_rates(chip, arrays).copy()
    attended = rules.clock.attended(chip, arrays).of(row)
    counted, back = density[row], arrays.backward[row]
    for dtype, those in arrays.kernels_by_dtype:
        now = product & those[row]
        table[now] = _product_terms(clock, chip, dtype, shapes[now])
        table[now, 2:5] /= dtype.size  # of elements
        if (now & attended.inside).any():
            fused = np.flatnonzero(now & attended.inside)
            these = shapes[fused], counted[fused], back[fused], attended.of(fused)
            table[fused, 0] = products_in_attention(clock, chip, dtype, *these)
            table[fused, 1] = 0.0
        rate[those & arrays.systolic] = chip.throughput(dtype)
    skipped = counted.min(axis=1)
    table /= sequences[:, None]
    table[:, 0] *= np.where(product & attended.inside, 1.0, skipped)
    table[:, 5] *= skipped
    turned, element = swapped[row], arrays.input_element[row]
    other = np.where(turned, element[:, 0], element[:, 1])
    tall = table[:, 2] * np.where(held, arrays.weight_element[row], other)
    wide = table[:, 3] * np.where(turned, element[:, 1], element[:, 0])
    written = arrays.output_element[row] * arrays.copies[row]
    share = rows / arrays.rows[row] * (columns / arrays.columns[row])
    inputs = arrays.input_sizes[row] * (share * filled)[:, None]
    first = np.where(product, np.where(turned, tall, wide), inputs[:, 0]) * counted[:, 0]
    second = np.where(product, np.where(turned, wide, tall), inputs[:, 1]) * counted[:, 1]
    second = np.where(arrays.two_inputs[row], second, 0.0)
    made = np.where(product, table[:, 4], rows * columns * filled)
    stored = np.where(product[:, None], arrays.stored[row], 1.0)  # windows lie over one another
    first, second = first * stored[:, 0], second * stored[:, 1]
    result = made * stored[:, 2] * written * counted[:, 2]
    repeats = np.where(product, arrays.repeats[row], 1.0)
    keeps, read = cache_reads(arrays)
    own = arrays.memory_traffic[row] + moved + np.where(keeps[row], result, cache)
    own = own + (read[row, 0] + passes_besides(arrays, chip)[row]) * first + read[row, 1] * second
    leaving = np.zeros(len(row))
    if rules.traffic.weights_read:
        own = own + np.where(held, tall, 0.0)
    if rules.traffic.boundary is Boundary.MEMORY:
        streams = streams_memory(workload.placement, rules)
        opens, closes = arrays.open_inputs[row] | streams, arrays.open_output[row] | streams
        own = own + opens[:, 0] * first + opens[:, 1] * second
        # Each microbatch but the first, and each copy that shares them, adds to what is there.
        leaving = closes * result * results.wider[row]
    work, after = np.where(product, table[:, 0] * repeats, work / rate[row]), table[:, 1] * repeats
    plain = product & ~attended.inside
    work += np.where(plain, results.beside[row] * made * counted[:, 2] * repeats, 0.0)
    launching = results.launches[row] * chip.launch_overhead / sequences
    after += np.where(product, results.behind[row] * made + launching, 0.0)
    # The least of `TemporalLoad`, of tensors that join no kernels of one partition.
    legality = legality_on(arrays, chip)
    apart, launches = crossing(arrays, rules.traffic, legality)[0], _launch_shares(legality)
    always = own + leaving
    if not streams_memory(workload.placement, rules):
        always = always + apart[row, 0] * first + apart[row, 1] * second + apart[row, 2] * result
    memory = always / chip.memory_speed(spilled=plan.spilled)
    memory = np.where(memory > 0, memory + delays(arrays, chip)[row] / sequences, 0.0)
    busy = work + memory if chip.overlap is Overlap.NONE else np.maximum(work, memory)
    return Clocked(
        work=work,
        after=after,
        least=after + busy + chip.launch_overhead / sequences * launches[row],
        own=own,
        leaving=leaving,
        first=first,
        second=second,
        result=result,
        joules=np.where(product, table[:, 5], (first + second + result) * _per_byte(chip).sum())
        * repeats,
    )


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


def delays(arrays: KernelGraph, chip: Chip) -> Floats:
    """What main memory takes of each kernel beyond bytes over bandwidth, (kernels,). [s]

    Products read weights, or keys, which no cache holds until they are read again: they stream.
    What other kernels read was made just before; they wait for the first byte.
    """
    memory = chip.main_memory
    return np.where(arrays.gemm, memory.delay, memory.latency)


@lru_cache(maxsize=256)
def crossing(arrays: KernelGraph, traffic: Traffic, legality: Legality) -> tuple[Floats, Floats]:
    """Return how many tensors of each kernel cross a partition's border at least, and at most.

    Of its first and second operand and of its result, (n, 3) each; a result is as many tensors as
    it is put down apart for. At least where some kernel at the other end is never in one partition
    with it. [1]
    """
    least, most = np.zeros((arrays.n, 3)), np.zeros((arrays.n, 3))
    for ends in tensor_ends(arrays, traffic):
        most[ends.producer, 2] += 1.0
        for (reader, _), places in zip(ends.readers, ends.places, strict=True):
            most[reader, list(places)] = 1.0
            if not legality.may_meet(ends.producer, reader):
                least[reader, list(places)] = 1.0
                least[ends.producer, 2] = 1.0
    for reader, place, first in read_beside(arrays):
        most[reader, place] = 1.0
        least[reader, place] = float(not legality.may_meet(first, reader))
    return least, most


@lru_cache(maxsize=256)
def _launch_shares(legality: Legality) -> Floats:
    return np.array([legality.launch_share(i) for i in range(len(legality.joined))])


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


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Tensors:
    """Both ends of some tensors between kernels: who makes each, and who reads it.

    One entry an end, tensor by tensor, the maker first: ``rows`` is its kernel, ``parts``
    (entries, 3) which of the first and second operand and of the result it is of that kernel;
    ``starts`` has the first entry of every tensor. ``order`` sorts entries by kernel; ``masks``
    are, by kernel, those at the other end of each.
    """

    rows: Ints
    parts: Floats
    starts: Ints
    order: Ints
    masks: tuple[tuple[int, ...], ...]

    @classmethod
    def of(cls, n: int, tensors: Sequence[Ends]) -> _Tensors:
        """Return the ends of tensors between n kernels."""
        rows, parts, starts, masks = list[int](), list[tuple[float, ...]](), list[int](), []
        for ends in tensors:
            starts.append(len(rows))
            rows += [ends.producer, *(reader for reader, _ in ends.readers)]
            parts.append((0.0, 0.0, 1.0))
            parts += [(float(p.count(0)), float(p.count(1)), 0.0) for p in ends.places]
            masks += [ends.mask, *(1 << ends.producer for _ in ends.readers)]
        order = np.argsort(np.array(rows, dtype=np.int64), kind="stable")
        by_kernel: list[list[int]] = [[] for _ in range(n)]
        for entry in order.tolist():
            by_kernel[rows[entry]].append(masks[entry])
        return cls(
            rows=np.array(rows, dtype=np.int64),
            parts=np.array(parts, dtype=np.float64).reshape(-1, 3),
            starts=np.array(starts, dtype=np.int64),
            order=order,
            masks=tuple(map(tuple, by_kernel)),
        )

    def sizes(self, operands: Floats) -> Floats:
        """Bytes at every end, of operands and result by kernel, (n, 3). [B]"""
        return np.asarray((self.parts * operands[self.rows]).sum(axis=1))

    def moves(self, times: list[float]) -> tuple[tuple[tuple[int, float], ...], ...]:
        """Return ``times`` of all ends, sorted by kernel, as those of `Run`."""
        left = iter(times)
        return tuple(tuple((mask, next(left)) for mask in masks) for masks in self.masks)


@lru_cache(maxsize=256)
def _tensors(arrays: KernelGraph, traffic: Traffic, again: int) -> tuple[_Tensors, ...]:
    """Return the tensors of a graph; those between kernels ``again``; those that they read anew."""
    found = [tensor_ends(arrays, traffic)]
    found += read_again(arrays, traffic, again) if again else ()
    return tuple(_Tensors.of(arrays.n, ends) for ends in found)


@lru_cache(maxsize=256)
def _never_inside(
    arrays: KernelGraph, traffic: Traffic, again: int, legality: Legality
) -> tuple[Floats, ...]:
    """Return, for `_tensors`, 1 for ends some other end of which no legal partition holds too.

    Sorted by kernel; 0 for the others.
    """
    found = []
    for ends in _tensors(arrays, traffic, again)[:2]:
        met = [(i, mask) for i, masks in enumerate(ends.masks) for mask in masks]
        never = [not all(legality.may_meet(i, j) for j in bits(mask)) for i, mask in met]
        found.append(np.array(never, dtype=np.float64))
    return tuple(found)


def temporal_load(
    chip: Chip,
    plan: MeshPlan,
    columns: Clocked,
    arrays: KernelGraph,
    traffic: Traffic,
    legality: Legality,
    *,
    again: int = 0,
    passes: bool,
) -> tuple[TemporalLoad, tuple[float, ...], tuple[float, ...]]:
    """Return the load of a chip; bytes each tensor moves at least if it moves; time at least. [s]

    The time is what each kernel adds to the device at least, whatever partition it is in.

    Parameters
    ----------
    columns : Clocked
        One choice a kernel.
    again : int
        Mask of the kernels that run twice, in as many copies of the graph as the plan says.
        Tensors between them come twice, too.
    passes : bool
        Whether all tensors pass main memory in any case, so that nothing depends on partitions.
    """
    bandwidth = chip.memory_speed(spilled=plan.spilled)
    delay = delays(arrays, chip) / plan.microbatch_size
    hides = chip.overlap is not Overlap.NONE
    operands = np.stack([columns.first, columns.second, columns.result], axis=1)
    tensors = _tensors(arrays, traffic, again)
    never = _never_inside(arrays, traffic, again, legality)
    owns, members = [columns.own + columns.leaving], [legality.everything]
    if again:
        anew = tensors[2]
        read = anew.sizes(operands) * (anew.parts[:, 2] == 0)
        owns.append(columns.own + np.bincount(anew.rows, read, arrays.n))
        members.append(again)
    beside = [(i, 1 << first, float(operands[i, p])) for i, p, first in read_beside(arrays)]
    shares = _launch_shares(legality)
    launch = chip.launch_overhead / plan.microbatch_size
    runs, lightest, least = list[Run](), list[float](), launch * shares
    for total, ends, apart, mask in zip(owns, tensors, never, members, strict=False):
        own, always, sizes = total / bandwidth, total / bandwidth, ends.sizes(operands)
        moves: tuple[tuple[tuple[int, float], ...], ...] = ((),) * arrays.n
        if passes:
            lightest += [0.0] * len(ends.starts)
            for i, _, size in beside:
                own[i] += size / bandwidth
        elif len(sizes):
            lightest += np.minimum.reduceat(sizes, ends.starts).tolist()
            times = sizes[ends.order] / bandwidth
            moves = ends.moves(times.tolist())
            always = own + np.bincount(ends.rows[ends.order], times * apart, arrays.n)
        for i, first, size in () if passes else beside:
            moves = (*moves[:i], (*moves[i], (first, size / bandwidth)), *moves[i + 1 :])
        share = plan.again if runs else 1.0
        runs.append(Run(mask, tuple(own.tolist()), moves, share))
        memory = np.where(always > 0, always + delay, 0.0)
        # Where nothing hides, main memory is bounded on its own.
        busy = np.maximum(columns.work, memory) if hides else columns.work + memory - always
        inside = np.array([float(mask >> i & 1) for i in range(arrays.n)])
        least = least + share * (columns.after + busy) * inside
    load = TemporalLoad(
        launch=launch,
        delay=tuple(delay.tolist()),
        work=tuple(columns.work.tolist()),
        after=tuple(columns.after.tolist()),
        runs=tuple(runs),
        shares=tuple(shares.tolist()),
        hides=hides,
        legality=legality,
    )
    return load, tuple(lightest), tuple(least.tolist())
