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
sequences (`crosstack.model.clocked`). Kernels that the backward pass computes again run twice, with
a launch of their own.

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

import numpy as np

from crosstack.machine.chip import Chip, Overlap
from crosstack.model.flows import Ends, read_again, read_beside, tensor_ends
from crosstack.model.legality import Legality
from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.temporal_load import Run, TemporalLoad
from crosstack.model.traffic import Traffic
from crosstack.workload.kernel_graph import Floats, Ints, KernelGraph, bits


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
def launch_shares(legality: Legality) -> Floats:
    """Return the share of a launch that each kernel brings to any partition at least, (n,). [1]"""
    return np.array([legality.launch_share(i) for i in range(len(legality.joined))])


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
    shares = launch_shares(legality)
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
