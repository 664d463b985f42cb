"""Fusion of graphs with too many order ideals to list: good sequences and a true bound.

Weight updates can run at any time after their inputs exist, so each layer of a training graph
multiplies the number of ideals by up to 64. Without such *deferrable* kernels (those nobody reads)
few remain. Dropping kernels never makes a best sequence slower, so the optimum without them is a
bound; with a *trigger* for each (core kernels after which it runs at once) the shortest path over
the ideals of the rest is exact; and single kernels are moved to other partitions while that helps,
whose partitions give new triggers.

Very long graphs fall back to cutting topological orders into segments, also exactly
(`crosstack.mapping.segments`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_
from typing import Any

import numpy as np

from crosstack.mapping.budget import DEAL, Budget
from crosstack.mapping.ideals import IdealTables, Order, make_order
from crosstack.mapping.slots import Slots
from crosstack.mapping.steps import Deferred, least_compute, least_memory_time
from crosstack.model.alive import live_sizes
from crosstack.model.flows import Flow
from crosstack.model.partition import PER_KERNEL, ChipLoad, PartitionCost, partition_cost
from crosstack.workload.kernel_graph import Bools, bits

STEP = 20  # units of work of one kernel more in a partition, see `Budget`


@dataclass(frozen=True, slots=True, kw_only=True)
class Core:
    """A load without its deferrable kernels; ``kernels`` maps its numbers to the load's."""

    load: ChipLoad
    order: Order
    kernels: tuple[int, ...]
    deferrable: tuple[int, ...]

    def slots(self, slots: Slots | None) -> Slots | None:
        """Return which partition numbers the core's kernels may have."""
        if slots is None:
            return None
        first, last = (tuple(x[i] for i in self.kernels) for x in (slots.first, slots.last))
        return Slots(count=slots.count, first=first, last=last)


def core_of(load: ChipLoad, order: Order) -> Core:
    """Return the load without kernels that nobody reads and that nothing has to follow."""
    deferrable = tuple(i for i in range(load.n) if not order.succs[i] and order.preds[i])
    kernels = tuple(i for i in range(load.n) if order.succs[i] or not order.preds[i])
    small, small_order = sub_load(load, order, kernels)
    return Core(load=small, order=small_order, kernels=kernels, deferrable=deferrable)


def sub_load(load: ChipLoad, order: Order, kernels: tuple[int, ...]) -> tuple[ChipLoad, Order]:
    """Return the load and order of some kernels alone, numbered as listed.

    Tensors that nobody among them makes or reads are left out.
    """
    number = {kernel: i for i, kernel in enumerate(kernels)}

    def shrink(mask: int) -> int:
        return sum(1 << number[i] for i in bits(mask) if i in number)

    flows: list[Flow] = []
    touching: list[list[int]] = [[] for _ in kernels]
    for flow in load.flows:
        readers = tuple((number[r], depth) for r, depth in flow.readers if r in number)
        if not readers or flow.producer not in number:
            continue
        mask = sum(1 << r for r, _ in readers)
        producer = number[flow.producer]
        flows.append(replace(flow, producer=producer, readers=readers, mask=mask, least=flow.moved))
        for kernel in {producer, *(r for r, _ in readers)}:
            touching[kernel].append(len(flows) - 1)

    def pick(values: Any) -> tuple[Any, ...]:
        return tuple(values[i] for i in kernels)

    terms: dict[str, Any] = {name: pick(getattr(load, name)) for name in PER_KERNEL}
    small = replace(
        load,
        n=len(kernels),
        names=pick(load.names),
        preds=tuple(map(shrink, pick(load.preds))),
        succs=tuple(map(shrink, pick(load.succs))),
        order=tuple(number[i] for i in load.order if i in number),
        staircases=None if load.staircases is None else pick(load.staircases),
        shapes=pick(load.shapes),
        flows=tuple(flows),
        flows_of=tuple(tuple(f) for f in touching),
        backward=shrink(load.backward),
        unmixed=tuple(map(shrink, load.unmixed)),
        temporal=None if load.temporal is None else load.temporal.of(kernels),
        **terms,
    )
    return small, make_order(tuple(shrink(order.preds[i]) for i in kernels))


def waits_for(order: Order, kernels: Sequence[int], i: int) -> int:
    """Mask of those among ``kernels`` that kernel ``i`` waits for, through others or not."""
    inside = sum(1 << k for k in kernels)
    found, border = 0, order.preds[i]
    while border:
        found |= border & inside
        further = 0
        for before in bits(border & ~inside):
            further |= order.preds[before]
        border = further & ~found
    return found


def make_deferred(
    load: ChipLoad, order: Order, core: Core, tables: IdealTables, prices: tuple[float, float]
) -> Deferred:
    """Return the kernels left out of a core, whose ideals ``tables`` hold.

    ``prices`` are those of a second of compute and of memory.
    """
    number, gone = {kernel: i for i, kernel in enumerate(core.kernels)}, set(core.deferrable)
    compute, memory = least_compute(load), least_memory_time(load)

    def have_run(kernels: Iterable[int]) -> Bools:
        """Which ideals hold all of these that are in the core."""
        inside = [number[k] for k in kernels if k in number]
        return np.asarray(tables.member[:, inside].all(axis=1))

    fill, moved = np.zeros((2, len(tables.masks)))
    for i in core.deferrable:
        ready = have_run(bits(order.preds[i]))
        fill += ready * compute[i]
        moved += ready * memory[i]
    made, waits, times = list[Bools](), list[Bools](), list[float]()
    for flow in load.flows:
        late = [r for r, _ in flow.readers if r in gone]
        if flow.producer not in number or not late:
            continue
        made.append(tables.member[:, number[flow.producer]])
        done = made[-1] & have_run(r for r, _ in flow.readers)
        # A group that partitions do not mix may part them for good.
        if not any(
            (group >> flow.producer ^ group >> r) & 1 for group in load.unmixed for r in late
        ):
            waited = reduce(or_, (waits_for(order, core.kernels, r) for r in late))
            done &= ~have_run(bits(waited))
        waits.append(done)
        times.append(flow.moved / load.bandwidth)
    shape, time = (len(times), len(tables.masks)), np.array(times)
    has_run = np.array(made, dtype=np.bool_).reshape(shape).T
    return Deferred(
        compute=fill,
        memory=moved + has_run @ time,
        compute_price=prices[0],
        memory_price=prices[1],
        made=has_run,
        waits=np.array(waits, dtype=np.bool_).reshape(shape).T,
        time=time,
    )


def triggered_masks(
    core: Core, order: Order, tables: IdealTables, triggers: dict[int, int]
) -> list[int]:
    """Return core ideals, those of ``tables``, with every deferrable kernel that they trigger."""
    inside = np.zeros((len(tables.masks), order.n), dtype=np.bool_)
    inside[:, core.kernels] = tables.member
    ready = {i: inside[:, list(bits(need))].all(axis=1) for i, need in triggers.items()}
    for i, holds in ready.items():
        inside[:, i] = holds
    rows = np.packbits(inside, axis=1, bitorder="little")
    return [*(int.from_bytes(row.tobytes(), "little") for row in rows), (1 << order.n) - 1]


# ---------------------------------------------------------------- moving single kernels


def improve(
    load: ChipLoad,
    order: Order,
    partitions: Sequence[int],
    movable: Sequence[int],
    *,
    budget: Budget,
) -> tuple[float, tuple[int, ...]]:
    """Move single kernels, in the order of ``movable``, while that shortens the sequence."""
    masks = list(partitions)
    costs = [partition_cost(load, mask) for mask in masks]
    each = STEP if load.unit is None or load.staircases is None else DEAL
    binds = sum(flow.held for flow in load.flows) > load.memory_limit
    moved = True
    while moved and not budget.over():
        moved = False
        for i in movable:
            if budget.spend(len(masks) * each):
                break
            here = next(p for p, mask in enumerate(masks) if mask >> i & 1)
            if masks[here] == 1 << i:
                continue
            choice = _best_move(load, order, masks, costs, i, here)
            if choice is None:
                continue
            there, grown, without = choice
            trial = list(masks)
            trial[here] &= ~(1 << i)
            trial[there] |= 1 << i
            if binds and max(live_sizes(load, trial)) > load.memory_limit * (1 + 1e-12):
                continue
            masks, moved = trial, True
            costs[here], costs[there] = without, grown
    kept = [(mask, cost) for mask, cost in zip(masks, costs, strict=True) if mask]
    return sum(cost.cost for _, cost in kept), tuple(mask for mask, _ in kept)


def _best_move(
    load: ChipLoad, order: Order, masks: list[int], costs: list[PartitionCost], i: int, here: int
) -> tuple[int, PartitionCost, PartitionCost] | None:
    """Return where kernel ``i`` is best moved to from ``here``, if anywhere that saves.

    The partition, what that costs with it, and what its own costs without it.
    """
    without = partition_cost(load, masks[here] & ~(1 << i))
    if not without.fits:
        return None
    lowest, highest = _room(order, masks, i)
    gain = costs[here].cost - without.cost
    choice, chosen = None, gain * 1e-9
    for there in range(lowest, highest + 1):
        if there == here:
            continue
        grown = partition_cost(load, masks[there] | 1 << i)
        better = gain - (grown.cost - costs[there].cost)
        if grown.fits and better > chosen + 1e-12 * costs[there].cost:
            choice, chosen = (there, grown, without), better
    return choice


def _room(order: Order, masks: Sequence[int], i: int) -> tuple[int, int]:
    lowest, highest = 0, len(masks) - 1
    for p, mask in enumerate(masks):
        if mask & order.preds[i]:
            lowest = p
        if mask & order.succs[i]:
            highest = p
            break
    return lowest, highest


def triggers_from(core: Core, order: Order, partitions: Sequence[int] = ()) -> dict[int, int]:
    """Return a trigger per deferrable kernel: its inputs, or the core kernels that ran with it."""
    triggers = {i: order.preds[i] for i in core.deferrable}
    inside_core = sum(1 << k for k in core.kernels)
    for mask in partitions:
        for i in core.deferrable:
            if mask >> i & 1:
                triggers[i] |= mask & inside_core
    return triggers
