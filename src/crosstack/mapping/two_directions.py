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
    first row of each in ``first``. ``base`` (rows, weighings), ``compute``, ``memory`` and
    ``network`` in [s], ``sram`` [B]; ``sides`` (rows, groups) tells which side of each group the
    kernels lie on. ``touch`` and ``whole`` (rows, tensors) count tensors between the directions:
    made and kept by no reader of the own direction, or read, and read by all who wait. ``done``
    counts those that the own direction is done with: made, and read by all of it, some of it here.
    """

    start: Ints
    target: Ints
    first: Ints
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
    small, small_order = sub_load(load, order, kernels)
    choices = choices.of(kernels)
    groups = tuple(bits(small.everything & ~small.backward)), tuple(bits(small.backward))
    across = _tensors_across(load, order, kernels, groups)
    tied = any((small.backward >> i ^ small.backward >> j) & 1 for i, j in choices.agree)
    if across is None or tied or not all(groups):
        return None
    by_memory = scarcest(load, left_out) == (0.0, 1.0)
    parts = []
    for side, group in enumerate(groups):
        part = _make_direction(
            small, small_order, choices, group, across, side, most_ideals, by_memory=by_memory
        )
        if part is None:
            return None
        parts.append(part)
    first, second = parts
    if float(first.offsets[-1]) * float(second.offsets[-1]) > MOST_STATES:
        return None
    needs = least_memory_time(load) if by_memory else least_compute(load)
    work, extra = float(needs[left_out].sum()), never_hidden(load, left_out)
    if load.overlap is Overlap.NONE:
        other = least_compute(load) if by_memory else least_memory_time(load)
        extra += float(other[left_out].sum())
    needed = [waits_for(order, kernels, i) for i in left_out]
    waits = np.array([[mask >> k & 1 for k in kernels] for mask in needed], dtype=np.int64)
    waits = waits.reshape(len(left_out), len(kernels))
    ready = [
        (waits[:, list(group)] @ ~part.tables.member.T == 0).astype(float)
        for part, group in zip(parts, groups, strict=True)
    ]
    fill = ready[0].T @ (needs[left_out][:, None] * ready[1])
    between = np.array([tensor.time for tensor in across])
    # What only kernels left out read enters a partition, unless they share one with another end.
    entering = between * [by_memory and not tensor.read for tensor in across]
    fill += entering.sum()
    order_kept = _allowed(small, groups, first.tables, second.tables)
    found = _path(
        small,
        first,
        second,
        fill,
        order_kept,
        between,
        entering,
        limit - work - extra,
        budget,
        by_memory=by_memory,
    )
    return None if found is None else found + work + extra


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
    waits = dict.fromkeys(range(load.n), 0)
    for i in set(range(load.n)) - set(kernels):
        needed = waits_for(order, kernels, i)
        waits[i] = sum(1 << p for p, k in enumerate(groups[1]) if needed >> kernels[k] & 1)
    found = []
    for flow in load.flows:
        there = [r for r, _ in flow.readers if (backward >> r ^ backward >> flow.producer) & 1]
        if not there or flow.producer not in place:
            continue
        if backward >> flow.producer & 1:
            return None
        kept = [r for r, _ in flow.readers if r not in there and r in place]
        late = 0
        for r in there:
            late |= waits[r]
        gone = [r for r in there if r not in place]
        found.append(
            _Across(
                made=1 << place[flow.producer],
                kept=sum(1 << place[r] for r in kept),
                read=sum(1 << place[r] for r in there if r in place),
                late=late,
                never=bool(gone) and apart,
                time=flow.moved / load.bandwidth,
            )
        )
    return found


def _make_direction(
    load: ChipLoad,
    order: Order,
    choices: LayoutChoices,
    kernels: tuple[int, ...],
    across: list[_Across],
    side: int,
    most: int,
    *,
    by_memory: bool,
) -> _Direction | None:
    small, small_order = sub_load(load, order, kernels)
    ideals = enumerate_ideals(small_order, most=most)
    if ideals is None:
        return None
    tables = make_tables(ideals, small.n, small.flows)
    layouts = make_layouts(small, tables, choices.of(kernels))
    if layouts is None:
        return None
    steps = Steps(small, tables)
    offsets = np.concatenate([[0], np.cumsum(layouts.n_profiles)])
    rows = [_rows(steps, layouts, offsets, j, across, side) for j in range(len(tables.masks))]
    needs = tables.member @ least_memory_time(small) if by_memory else steps.compute
    return _Direction(tables, layouts, offsets, needs, rows)


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
    reached = np.concatenate(target)
    by = np.argsort(reached, kind="stable")
    reached = reached[by]
    first = np.nonzero(np.concatenate([[True], reached[1:] != reached[:-1]]))[0]
    columns = np.concatenate(alike)[by].T
    sides = columns[4 : 4 + len(load.unmixed)]
    touch, whole, done = columns[4 + len(sides) :].reshape(3, len(across), len(by))
    return _Rows(
        start=np.concatenate(start)[by],
        target=reached[first],
        first=first,
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


def _path(
    load: ChipLoad,
    first: _Direction,
    second: _Direction,
    fill: Floats,
    allowed: Bools,
    between: Floats,
    entering: Floats,
    limit: float,
    budget: Budget,
    *,
    by_memory: bool,
) -> float | None:
    """Shortest path over pairs of states below ``limit``; None once the budget is spent. [s]"""
    best = np.full((int(first.offsets[-1]), int(second.offsets[-1])), math.inf)
    best[0, 0] = 0.0
    capacity = load.sram_capacity * (1 + TOLERANCE)
    weights = np.array(WEIGHTS[load.overlap])
    rest = (first.needs[-1] - first.needs)[:, None] + second.needs[-1] - second.needs
    n_first, n_second = len(first.rows), len(second.rows)
    ideals = [_ideals(part) for part in (first, second)]
    for a in range(n_first):
        one = first.rows[a]
        from_a = slice(first.offsets[a], first.offsets[a + 1])
        for b in range(n_second):
            if not allowed[a, b]:
                continue
            now = best[from_a, second.offsets[b] : second.offsets[b + 1]]
            if not float(now.min()) + rest[a, b] < limit:
                continue
            two = second.rows[b]
            if budget.spend(CALL + one.compute.size * two.compute.size // 50):
                return None
            compute = one.compute[:, None] + two.compute
            taken = compute.copy()
            # What both ends of a tensor across share a partition for neither enters nor leaves.
            shared = (one.touch * between) @ two.touch.T + (one.whole * between) @ two.whole.T
            for w, weight in enumerate(weights[:, 1]):
                heavier = one.base[:, w, None] + two.base[:, w] - weight * shared
                np.maximum(taken, heavier, out=taken)
            ends = np.ix_(ideals[0][a], ideals[1][b])
            if load.overlap is not Overlap.NONE:
                busy = one.memory[:, None] + two.memory - shared if by_memory else compute
                idle = taken - busy
                if load.overlap is not Overlap.ALL:
                    idle -= one.network[:, None] + two.network
                taken -= np.minimum(np.maximum(idle, 0.0), fill[ends])
                enters = one.done * entering
                taken += enters.sum(axis=1)[:, None] - enters @ two.whole.T
            taken += load.memory_price * (one.memory[:, None] + two.memory - shared)
            taken += load.network_price * (one.network[:, None] + two.network)
            taken[~allowed[ends]] = math.inf
            taken[one.sram[:, None] + two.sram > capacity] = math.inf
            for group in range(one.sides.shape[1]):
                mixed = one.sides[:, group, None] | two.sides[:, group]
                taken[mixed == INSIDE | OUTSIDE] = math.inf
            taken += now[one.start][:, two.start]
            taken = np.minimum.reduceat(taken, one.first, axis=0)
            taken = np.minimum.reduceat(taken, two.first, axis=1)
            where = np.ix_(one.target, two.target)
            best[where] = np.minimum(best[where], taken)
    return float(best[first.offsets[-2] :, second.offsets[-2] :].min())


def _ideals(part: _Direction) -> list[Ints]:
    """Return the ideal that each row of each ideal leads to."""
    found = []
    for rows in part.rows:
        ideal = np.searchsorted(part.offsets, rows.target, side="right") - 1
        found.append(np.repeat(ideal, np.diff(np.append(rows.first, len(rows.start)))))
    return found


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
