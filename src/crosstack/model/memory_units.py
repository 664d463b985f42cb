"""Cores and on-chip memory units dealt out together.

Where a chip's memory comes in units, a tensor that is on the chip takes whole ones: enough for its
bytes, one for each lane group of the cores that make it, and enough to take what they make in every
cycle. With ``a`` x ``b`` cores of ``h`` stages each, a product of depth K makes ``a b h / K`` rows
of lanes a cycle. Weights and tensors from outside take what their bytes need.

Source: ``dfmodel_code``, the rules of its place-and-route mode. Where units lie is not decided
here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from crosstack.model.cores import deals
from crosstack.workload.kernel_graph import Floats, Ints, bits

if TYPE_CHECKING:
    from crosstack.model.partition import ChipLoad

Dealt = tuple[tuple[int, int, int], ...]  # (kernel, lanes, stages)
ROUNDING = 1e-12  # relative, of bytes against units


def units_for(size: float, unit: float) -> int:
    """Whole units that ``size`` bytes take. [1]"""
    return math.ceil(size / unit * (1 - ROUNDING))


def assign_memory_units(
    load: ChipLoad, inside: int, cores: Mapping[int, tuple[int, int]] | None = None
) -> tuple[float, Dealt | None, float, bool]:
    """Deal cores so that the slowest kernel of a partition is as fast as cores and units allow.

    Returns compute time [s], deal or None, bytes of the units taken [B], and whether it fits;
    ``cores`` are lanes and stages of each kernel instead of the best deal.

    Exact: for a time T every kernel has a set of deals that reach it; those of several kernels are
    added up, keeping the ones that no other beats in both cores and units. T is found by bisection
    over the times that some kernel can take.
    """
    unit = load.unit or math.inf
    members = bits(inside)
    made: dict[int, list[float]] = {i: [] for i in members}
    fixed = 0
    for f in {f for i in members for f in load.flows_of[i]}:
        flow = load.flows[f]
        if inside >> flow.producer & 1:
            depths = [depth for reader, depth in flow.readers if inside >> reader & 1]
            depths += [load.stream_depth] if flow.mask & ~inside else []
            made[flow.producer].append(max(depths) * flow.tile)
        else:
            fixed += units_for(load.stream_depth * flow.tile, unit)
    fixed += sum(units_for(load.sram[i], unit) for i in members)
    n_units = round(load.sram_capacity / unit)
    if load.staircases is None:
        used = fixed + sum(units_for(size, unit) for sizes in made.values() for size in sizes)
        return sum(load.compute[i] for i in members), None, used * unit, used <= n_units
    if cores is not None:
        return _given(load, members, cores, made, fixed, n_units)
    dealt = [deals(load.shapes[i], load.lanes, load.stages, load.n_cores) for i in members]
    needs = [
        _needs(load.shapes[i], a, b, load.stages, made[i], unit)
        for i, (a, b, _) in zip(members, dealt, strict=True)
    ]
    times = [cycles * load.cycle_time[i] for i, (_, _, cycles) in zip(members, dealt, strict=True)]
    steps = np.unique(np.concatenate(times)) if members else np.zeros(1)
    low, high, best = 0, len(steps), None
    while low < high:
        middle = (low + high) // 2
        found = _fit(dealt, needs, times, float(steps[middle]), load.n_cores, n_units - fixed)
        if found is None:
            low = middle + 1
        else:
            high, best = middle, found
    if best is None:
        return math.inf, None, load.sram_capacity, False
    chosen, used = best
    picked = tuple(
        (i, int(a[c]), int(b[c])) for i, (a, b, _), c in zip(members, dealt, chosen, strict=True)
    )
    return float(steps[low]), picked, (fixed + used) * unit, True


def _given(
    load: ChipLoad,
    members: list[int],
    cores: Mapping[int, tuple[int, int]],
    made: Mapping[int, list[float]],
    fixed: int,
    n_units: int,
) -> tuple[float, Dealt | None, float, bool]:
    unit, time, used, spent = load.unit or math.inf, 0.0, fixed, 0
    for i in members:
        a, b = cores[i]
        time, spent = max(time, load.cycles(i, a, b) * load.cycle_time[i]), spent + a * b
        used += int(_needs(load.shapes[i], a, b, load.stages, made[i], unit))
    dealt = tuple((i, *cores[i]) for i in members)
    return time, dealt, used * unit, used <= n_units and spent <= load.n_cores


def _needs(
    shape: tuple[int, int, int, bool],
    a: Ints | int,
    b: Ints | int,
    stages: int,
    sizes: Sequence[float],
    unit: float,
) -> Ints:
    """Units that the tensors a kernel makes take on a x b cores. [1]"""
    _, k, _, systolic = shape
    rate = np.maximum(a, -(-a * b * stages // k) if systolic else a)
    needs = np.zeros(np.shape(a), dtype=np.int64)
    for size in sizes:
        needs = needs + np.maximum(rate, units_for(size, unit))
    return needs


def _fit(
    deals: list[tuple[Ints, Ints, Floats]],
    needs: list[Ints],
    times: list[Floats],
    limit: float,
    n_cores: int,
    n_units: int,
) -> tuple[list[int], int] | None:
    """Return a deal a kernel that keeps ``limit`` [s], and the units taken; None without one."""
    cores, units = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    history: list[tuple[Ints, Ints]] = []
    for (a, b, _), need, time in zip(deals, needs, times, strict=True):
        good = np.nonzero(time <= limit)[0]
        if not len(good):
            return None
        spent, taken = (a * b)[good], need[good]
        kept = _undominated(spent, taken)
        good, spent, taken = good[kept], spent[kept], taken[kept]
        all_cores = (cores[:, None] + spent[None, :]).ravel()
        all_units = (units[:, None] + taken[None, :]).ravel()
        fits = np.nonzero((all_cores <= n_cores) & (all_units <= n_units))[0]
        fits = fits[_undominated(all_cores[fits], all_units[fits])]
        if not len(fits):
            return None
        history.append((fits // len(good), good[fits % len(good)]))
        cores, units = all_cores[fits], all_units[fits]
    place = int(np.argmin(units))
    used, chosen = int(units[place]), []
    for before, option in reversed(history):
        chosen.append(int(option[place]))
        place = int(before[place])
    return chosen[::-1], used


def _undominated(cores: Ints, units: Ints) -> Ints:
    """Places that no other beats in both, by cores."""
    order = np.lexsort((units, cores))
    least = np.minimum.accumulate(units[order])
    kept = np.ones(len(order), dtype=np.bool_)
    kept[1:] = least[1:] < least[:-1]
    return np.asarray(order[kept])
