"""The joint bound for training graphs whose directions may share partitions.

Published training graphs order few backward kernels after forward ones, so forward and backward
may run side by side and the order ideals are nearly pairs of ideals of the two directions: too
many to list with their layouts. But a partition is a step of each direction, and its terms and its
SRAM are the sums of both steps', so the steps of each direction are priced once and combined as
outer sums, where the backward kernels' inputs have run. Tensors that
forward kernels make for backward ones leave and enter main memory unless both ends share the
partition: a product of two small tables.

The path and its bound are those of `crosstack.mapping.joint`; states are pairs of states.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import reduce
from operator import or_

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.budget import CALL, Budget
from crosstack.mapping.ideals import IdealTables, Order, enumerate_ideals, make_tables
from crosstack.mapping.large_graphs import core_of, sub_load, waits_for
from crosstack.mapping.layouts import WEIGHTS, Excess, LayoutChoices, Layouts, make_layouts
from crosstack.mapping.steps import (
    TOLERANCE,
    Steps,
    least_compute,
    least_memory_time,
    never_hidden,
    scarcest,
)
from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import Bools, Floats, Ints, bits

MOST_STATES = 2_000_000  # pairs of states
INSIDE, OUTSIDE = 1, 2  # of a group that partitions lie inside or outside


@dataclass(frozen=True, slots=True)
class _Rows:
    """Steps of a part from one ideal, by profile at both ends; staying is a step.

    ``start``: profile before; ``target``: state after (over all ideals), ascending, with the
    first row of each in ``first``; ``ideal``: that each row leads to. ``base`` (rows, weighings),
    ``compute``, ``memory`` and ``network`` in [s], ``sram`` [B]; ``sides`` (rows, groups) tells
    which side of each group the kernels lie on. ``touch`` and ``whole`` (rows, tensors) count
    tensors between the directions: made and kept by no reader of the own direction, or read, and
    read by all who wait. ``done`` counts those that the own direction is done with: made, and read
    by all of it, some of it here.
    """

    start: Ints
    target: Ints
    first: Ints
    ideal: Ints
    base: Floats
    compute: Floats
    memory: Floats
    network: Floats
    sram: Floats
    sides: Ints
    touch: Floats
    whole: Floats
    done: Floats


@dataclass(frozen=True, slots=True)
class _Across:
    """A tensor from forward kernels to backward ones; its ``time`` to leave or enter. [s]

    Masks over the kernels of each direction: ``made``, ``kept`` (its forward readers), ``read``
    (its backward readers), ``late`` (what its readers left out wait for). ``never``: some reader
    is in another partition in any case.
    """

    made: int
    kept: int
    read: int
    late: int
    never: bool
    time: float


@dataclass(frozen=True, slots=True)
class _Direction:
    """A direction; ``needs``: of the resource that fills up, by ideal. [s]"""

    tables: IdealTables
    layouts: Layouts
    offsets: Ints
    needs: Floats
    rows: list[_Rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """Both directions of a load, by ideal of each: what fills up [s], and what is allowed.

    ``between``: the time of the tensors across; ``entering``: of those that only kernels left out
    read. [s]
    """

    load: ChipLoad
    parts: tuple[_Direction, _Direction]
    fill: Floats
    allowed: Bools
    between: Floats
    entering: Floats
    by_memory: bool


def two_directions_bound(
    load: ChipLoad,
    order: Order,
    choices: LayoutChoices,
    *,
    limit: float,
    budget: Budget,
    most_ideals: int = 2_000,
) -> float | None:
    """Bound the time of any partitions under any of the choices; None where that cannot be told.

    For graphs whose directions may share partitions. Infinite where nothing is below ``limit``.
    Kernels that nobody reads, and then those that only such kernels read, count by the scarcer of
    compute and memory, at price 1 (`crosstack.mapping.fusion.core_steps`).
    """
    mixed = 0 < load.backward < load.everything and load.backward not in load.unmixed
    if not mixed or load.staircases is not None or load.network_takes_maximum:
        return None
    if load.temporal is not None:  # partitions are no sums of those of each direction
        return None
    if load.resident_alone:
        if sum(load.sram) <= load.sram_capacity:
            return None  # all in one partition would keep its weights
        load = replace(load, resident_alone=False)
    kernels = tuple(range(load.n))
    for _ in range(2):
        inner, inner_order = sub_load(load, order, kernels)
        kernels = tuple(kernels[k] for k in core_of(inner, inner_order).kernels)
    left_out = sorted(set(range(load.n)) - set(kernels))
    by_memory = scarcest(load, left_out) == (0.0, 1.0)
    pair = _make_pair(load, order, kernels, choices, most_ideals, by_memory=by_memory)
    if pair is None:
        return None
    needs, other = least_compute(load)[left_out], least_memory_time(load)[left_out]
    if by_memory:
        needs, other = other, needs
    work, extra = float(needs.sum()), never_hidden(load, left_out)
    if load.overlap is Overlap.NONE:
        extra += float(other.sum())
    found = _path(pair, limit - work - extra, budget)
    return None if found is None else found + work + extra


def _make_pair(
    load: ChipLoad,
    order: Order,
    kernels: tuple[int, ...],
    choices: LayoutChoices,
    most: int,
    *,
    by_memory: bool,
) -> _Pair | None:
    """Return both directions of the kernels that are not left out; None where that is too much."""
    left_out = sorted(set(range(load.n)) - set(kernels))
    small, small_order = sub_load(load, order, kernels)
    choices = choices.of(kernels)
    groups = tuple(bits(small.everything & ~small.backward)), tuple(bits(small.backward))
    across = _tensors_across(load, order, kernels, groups)
    tied = any((small.backward >> i ^ small.backward >> j) & 1 for i, j in choices.agree)
    if across is None or tied or not all(groups):
        return None
    parts = []
    for side, group in enumerate(groups):
        own, own_order = sub_load(small, small_order, group)
        ideals = enumerate_ideals(own_order, most=most)
        if ideals is None:
            return None
        tables = make_tables(ideals, own.n, own.flows)
        layouts = make_layouts(own, tables, choices.of(group))
        if layouts is None:
            return None
        steps = Steps(own, tables)
        offsets = np.concatenate([[0], np.cumsum(layouts.n_profiles)])
        rows = [_rows(steps, layouts, offsets, j, across, side) for j in range(len(tables.masks))]
        needs = tables.member @ least_memory_time(own) if by_memory else steps.compute
        parts.append(_Direction(tables, layouts, offsets, needs, rows))
    first, second = parts
    if float(first.offsets[-1]) * float(second.offsets[-1]) > MOST_STATES:
        return None
    least = least_memory_time(load) if by_memory else least_compute(load)
    needed = [waits_for(order, kernels, i) for i in left_out]
    waits = np.array([[mask >> k & 1 for k in kernels] for mask in needed], dtype=np.int64)
    waits = waits.reshape(len(left_out), len(kernels))
    ready = [
        (waits[:, list(group)] @ ~part.tables.member.T == 0).astype(float)
        for part, group in zip(parts, groups, strict=True)
    ]
    fill = ready[0].T @ (least[left_out][:, None] * ready[1])
    between = np.array([tensor.time for tensor in across])
    # What only kernels left out read enters a partition, unless they share one with another end.
    entering = between * [by_memory and not tensor.read for tensor in across]
    return _Pair(
        load=small,
        parts=(first, second),
        fill=fill + entering.sum(),
        allowed=_allowed(small, groups, first.tables, second.tables),
        between=between,
        entering=entering,
        by_memory=by_memory,
    )


def _tensors_across(
    load: ChipLoad,
    order: Order,
    kernels: tuple[int, ...],
    groups: tuple[tuple[int, ...], tuple[int, ...]],
) -> list[_Across] | None:
    """Tensors from forward to backward kernels; None where some go the other way.

    A reader left out may still share the partition, once all it waits for is there.
    """
    place = {kernels[k]: p for group in groups for p, k in enumerate(group)}
    backward, apart = load.backward, load.backward in load.unmixed
    behind = [kernels[k] for k in groups[1]]
    found = []
    for flow in load.flows:
        there = [r for r, _ in flow.readers if (backward >> r ^ backward >> flow.producer) & 1]
        if not there or flow.producer not in place:
            continue
        if backward >> flow.producer & 1:
            return None
        gone = [r for r in there if r not in place]
        needed = reduce(or_, (waits_for(order, kernels, r) for r in gone), 0)
        kept = [r for r, _ in flow.readers if r not in there and r in place]
        found.append(
            _Across(
                made=1 << place[flow.producer],
                kept=sum(1 << place[r] for r in kept),
                read=sum(1 << place[r] for r in there if r in place),
                late=sum(1 << p for p, k in enumerate(behind) if needed >> k & 1),
                never=bool(gone) and apart,
                time=flow.moved / load.bandwidth,
            )
        )
    return found


def _rows(
    steps: Steps, layouts: Layouts, offsets: Ints, j: int, across: list[_Across], side: int
) -> _Rows:
    """Price every step from ideal ``j``, staying first."""
    load, masks, count = steps.load, steps.tables.masks, layouts.n_profiles[j]
    weights, every = np.array(WEIGHTS[load.overlap]), np.arange(count)
    between = np.array([tensor.time for tensor in across])
    start, target, base = [every], [offsets[j] + every], [np.zeros((count, len(weights)))]
    # Of all rows of a step: its terms, its sides of groups, and what it has of tensors.
    stays = np.array([_ends(t, 0, masks[j], side) for t in across]).reshape(-1, 3).T
    alike = [np.tile(np.concatenate([np.zeros(4 + len(load.unmixed)), *stays]), (count, 1))]
    terms = steps.terms(j, math.inf) if j < len(masks) - 1 else None
    if terms is not None and len(terms.to):
        excess = Excess(steps, layouts, j, every, weights)
        linear = np.stack([terms.compute, terms.memory, terms.network], axis=1) @ weights.T
        for position, to in enumerate(terms.to.tolist()):
            added = excess.to(to)
            p, q = np.nonzero(np.isfinite(added[:, :, 0]))
            inside = masks[to] & ~masks[j]
            ends = np.array([_ends(t, inside, masks[to], side) for t in across]).reshape(-1, 3).T
            start.append(p)
            target.append(offsets[to] + q)
            # Made: leaves unless every reader is here. Read: enters.
            moved = float(ends[0 if side else 1] @ between)
            base.append(linear[position] + added[p, q] + weights[:, 1] * moved)
            # A kernel alone may cut its weight; it then leaves no room beside it.
            sram = min(float(terms.sram[position]), load.sram_capacity)
            memory = terms.memory[position] + moved
            one = [terms.compute[position], memory, terms.network[position], sram]
            lies = [
                (INSIDE if inside & group else 0) | (OUTSIDE if inside & ~group else 0)
                for group in load.unmixed
            ]
            alike.append(np.tile(np.concatenate([one, lies, *ends]), (len(p), 1)))
    by = np.argsort(np.concatenate(target), kind="stable")
    reached = np.concatenate(target)[by]
    first = np.nonzero(np.concatenate([[True], reached[1:] != reached[:-1]]))[0]
    columns = np.concatenate(alike)[by].T
    sides = columns[4 : 4 + len(load.unmixed)]
    touch, whole, done = columns[4 + len(sides) :].reshape(3, len(across), len(by))
    return _Rows(
        start=np.concatenate(start)[by],
        target=reached[first],
        first=first,
        ideal=np.searchsorted(offsets, reached, side="right") - 1,
        base=np.concatenate(base)[by],
        compute=columns[0],
        memory=columns[1],
        network=columns[2],
        sram=columns[3],
        sides=sides.T.astype(np.int64),
        touch=np.ascontiguousarray(touch.T),
        whole=np.ascontiguousarray(whole.T),
        done=np.ascontiguousarray(done.T),
    )


def _ends(tensor: _Across, inside: int, after: int, side: int) -> tuple[float, float, float]:
    """Return what a step has of a tensor: (made, and leaves, done with) or (read, by all)."""
    if side == 0:
        made, own = bool(inside & tensor.made), tensor.made | tensor.kept
        done = bool(inside & own) and not own & ~after
        return float(made), float(made and not tensor.kept & ~inside), float(done)
    every = not tensor.read & ~inside and not tensor.late & ~after and not tensor.never
    return float(bool(inside & tensor.read)), float(every), 0.0


def _path(pair: _Pair, limit: float, budget: Budget) -> float | None:
    """Shortest path over pairs of states below ``limit``; None once the budget is spent. [s]"""
    load, (first, second) = pair.load, pair.parts
    best = np.full((int(first.offsets[-1]), int(second.offsets[-1])), math.inf)
    best[0, 0] = 0.0
    rest = (first.needs[-1] - first.needs)[:, None] + second.needs[-1] - second.needs
    for a, one in enumerate(first.rows):
        from_a = slice(first.offsets[a], first.offsets[a + 1])
        for b, two in enumerate(second.rows):
            if not pair.allowed[a, b]:
                continue
            now = best[from_a, second.offsets[b] : second.offsets[b + 1]]
            if not float(now.min()) + rest[a, b] < limit:
                continue
            if budget.spend(CALL + one.compute.size * two.compute.size // 50):
                return None
            taken = _taken(pair, one, two) + now[one.start][:, two.start]
            ends = np.ix_(one.ideal, two.ideal)
            taken[~pair.allowed[ends]] = math.inf
            taken[one.sram[:, None] + two.sram > load.sram_capacity * (1 + TOLERANCE)] = math.inf
            for group in range(one.sides.shape[1]):
                mixed = one.sides[:, group, None] | two.sides[:, group]
                taken[mixed == INSIDE | OUTSIDE] = math.inf
            taken = np.minimum.reduceat(taken, one.first, axis=0)
            taken = np.minimum.reduceat(taken, two.first, axis=1)
            where = np.ix_(one.target, two.target)
            best[where] = np.minimum(best[where], taken)
    return float(best[first.offsets[-2] :, second.offsets[-2] :].min())


def _taken(pair: _Pair, one: _Rows, two: _Rows) -> Floats:
    """Return what partitions of both directions take at least, less what fills them up. [s]"""
    load = pair.load
    weights = np.array(WEIGHTS[load.overlap])
    compute, network = one.compute[:, None] + two.compute, one.network[:, None] + two.network
    # What both ends of a tensor across share a partition for neither enters nor leaves.
    shared = (one.touch * pair.between) @ two.touch.T + (one.whole * pair.between) @ two.whole.T
    memory = one.memory[:, None] + two.memory - shared
    taken = compute.copy()
    for w, weight in enumerate(weights[:, 1]):
        heavier = one.base[:, w, None] + two.base[:, w] - weight * shared
        np.maximum(taken, heavier, out=taken)
    if load.overlap is not Overlap.NONE:
        idle = taken - (memory if pair.by_memory else compute)
        if load.overlap is not Overlap.ALL:
            idle -= network
        taken -= np.minimum(np.maximum(idle, 0.0), pair.fill[np.ix_(one.ideal, two.ideal)])
        enters = one.done * pair.entering
        taken += enters.sum(axis=1)[:, None] - enters @ two.whole.T
    taken += load.memory_price * memory
    return np.asarray(taken + load.network_price * network)


def _allowed(
    load: ChipLoad,
    groups: tuple[tuple[int, ...], tuple[int, ...]],
    first: IdealTables,
    second: IdealTables,
) -> Bools:
    """Whether the inputs of backward kernels that have run have run, by ideal of each direction."""
    ahead, behind = groups
    needed = np.array([[load.preds[k] >> i & 1 for i in ahead] for k in behind], dtype=np.int64)
    missing = ~first.member
    return np.asarray((missing.astype(np.int64) @ needed.T @ second.member.T.astype(np.int64)) == 0)
