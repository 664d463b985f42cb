"""How the chips of a network are used: degrees, microbatches and what a byte on the network costs.

A plan fixes the size and the parallelism of every network dimension and the microbatch size. It
prices every collective once, as a fixed time and a time per byte.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from crosstack.model.rules import LatencyRule, ModelRules, StageTransfers
from crosstack.system.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    broadcast_time,
    point_to_point_time,
    steps,
)
from crosstack.system.system import Dimension, DimensionKind, Parallelism, System
from crosstack.workload.graph import Collective, Workload

__all__ = ["Line", "Plan", "divisors", "make_plan", "tile_counts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A time that grows with the bytes moved: ``fixed`` [s] + ``per_byte`` [s/B] x bytes."""

    fixed: float = 0.0
    per_byte: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Degrees and collective prices of one use of the network.

    ``tensor``, ``pipeline`` and ``data`` are chips per parallelism; ``layers_per_stage`` counts
    repetitions of the graph. ``stage_transfer`` is the time that passing one sequence's
    activations to the next stage takes, before sharding. [s]
    """

    sizes: tuple[int, ...]
    parallelism: tuple[Parallelism, ...]
    microbatch_size: int
    tensor: int
    pipeline: int
    data: int
    n_microbatches: int
    layers_per_stage: int
    collectives: dict[Collective, Line]
    periodic: Line
    stage_transfer: Line
    transfers_per_iteration: float


def make_plan(
    workload: Workload,
    system: System,
    sizes: tuple[int, ...],
    parallelism: tuple[Parallelism, ...],
    microbatch_size: int,
    rules: ModelRules,
) -> Plan | None:
    """Return the plan, or None if the batch does not divide into microbatches.

    Parameters
    ----------
    sizes, parallelism : tuple
        Of every network dimension, innermost first.
    microbatch_size : int
        Sequences a chip works on at a time. [1]
    """
    groups = {
        use: [
            (dimension, size)
            for dimension, size, p in zip(system.network, sizes, parallelism, strict=True)
            if p is use
        ]
        for use in Parallelism
    }
    degree = {use: math.prod(size for _, size in group) for use, group in groups.items()}
    data = degree[Parallelism.DATA]
    if workload.global_batch_size % (data * microbatch_size):
        return None
    tensor_group = groups[Parallelism.TENSOR]
    halves = {
        kind: rules.full_all_reduce_halves
        if kind is DimensionKind.FULLY_CONNECTED
        else rules.ring_all_reduce_halves
        for kind in DimensionKind
    }
    pipeline_group = groups[Parallelism.PIPELINE]
    each_microbatch = rules.stage_transfers is StageTransfers.MICROBATCH
    pipelined = degree[Parallelism.PIPELINE] > 1 or (bool(pipeline_group) and not each_microbatch)
    directions = 2 if workload.training else (1 if each_microbatch else 0)
    transfer = Line()
    if pipelined and directions:
        slowest = min(d.bandwidth for d, _ in pipeline_group)
        hop = max(d.latency for d, _ in pipeline_group) if each_microbatch else 0.0
        size = workload.boundary_size * directions
        transfer = Line(
            fixed=directions * hop,
            per_byte=float(point_to_point_time(size, bandwidth=slowest)),
        )
    return Plan(
        sizes=sizes,
        parallelism=parallelism,
        microbatch_size=microbatch_size,
        tensor=degree[Parallelism.TENSOR],
        pipeline=degree[Parallelism.PIPELINE],
        data=data,
        n_microbatches=workload.global_batch_size // (data * microbatch_size),
        layers_per_stage=-(-workload.graph_repetitions // degree[Parallelism.PIPELINE]),
        collectives=_tensor_collectives(tensor_group, halves, rules),
        periodic=_line(groups[Parallelism.DATA], _all_reduce(halves), _latency(rules, False)),
        stage_transfer=transfer,
        transfers_per_iteration=float(workload.n_layers),
    )


Cost = Callable[[Dimension, int, float, float], float]


def _latency(rules: ModelRules, kernel: bool) -> Callable[[Dimension], float]:
    """Latency of one hop where ``rules`` charge it for every step of a collective."""
    charged = rules.latency is LatencyRule.ALL or (kernel and rules.latency is LatencyRule.KERNEL)
    return lambda dimension: dimension.latency if charged else 0.0


def _all_reduce(halves: dict[DimensionKind, int]) -> Cost:
    return lambda d, p, size, latency: float(
        all_reduce_time(
            d.kind, size, n_chips=p, bandwidth=d.bandwidth, latency=latency, halves=halves[d.kind]
        )
    )


def _line(
    group: list[tuple[Dimension, int]],
    cost: Cost,
    latency: Callable[[Dimension], float],
    *,
    shrinks: bool = True,
) -> Line:
    """Cost of a collective over a hierarchy of dimensions, as a fixed and a per-byte time.

    Inner dimensions come first and, where the collective ``shrinks`` what is left (reduce-scatter
    and its mirror), outer ones move 1/p of it (``rashidi2020astrasim``).
    """
    fixed = per_byte = 0.0
    share = 1.0
    for dimension, size in group:
        hop = latency(dimension)
        fixed += cost(dimension, size, 0.0, hop)
        per_byte += cost(dimension, size, 1.0, 0.0) * share
        if shrinks:
            share /= size
    return Line(fixed=fixed, per_byte=per_byte)


def _tensor_collectives(
    group: list[tuple[Dimension, int]], halves: dict[DimensionKind, int], rules: ModelRules
) -> dict[Collective, Line]:
    chips = math.prod(size for _, size in group)
    everywhere = _latency(rules, False)

    def gather(d: Dimension, p: int, size: float, latency: float) -> float:
        return float(
            all_gather_time(d.kind, size, n_chips=p, bandwidth=d.bandwidth, latency=latency)
        )

    def exchange(d: Dimension, p: int, size: float, latency: float) -> float:
        held = size * p / chips if rules.all_to_all_pair_shares else size
        return float(
            all_to_all_time(
                d.kind,
                held,
                n_chips=p,
                bandwidth=d.bandwidth,
                latency=latency,
                pair_shares=rules.all_to_all_pair_shares,
            )
        )

    def spread(d: Dimension, p: int, size: float, latency: float) -> float:
        return float(
            broadcast_time(d.kind, size, n_chips=p, bandwidth=d.bandwidth, latency=latency)
        )

    def send(d: Dimension, p: int, size: float, latency: float) -> float:
        if p == 1:
            return 0.0
        return float(point_to_point_time(size, bandwidth=d.bandwidth, latency=latency))

    reduce = _line(group, _all_reduce(halves), _latency(rules, True))
    if rules.latency is LatencyRule.ALL_REDUCE:
        hops = sum(2 * steps(DimensionKind.RING, p) * d.latency for d, p in group)
        reduce = Line(fixed=hops, per_byte=reduce.per_byte)
    gathered = _line(group, gather, everywhere)
    return {
        Collective.ALL_REDUCE: reduce,
        Collective.ALL_GATHER: gathered,
        Collective.REDUCE_SCATTER: gathered,
        Collective.ALL_TO_ALL: _line(group, exchange, everywhere, shrinks=False),
        Collective.BROADCAST: _line(group, spread, everywhere, shrinks=False),
        Collective.POINT_TO_POINT: _line(group, send, everywhere, shrinks=False),
    }


@lru_cache(maxsize=256)
def divisors(number: int) -> tuple[int, ...]:
    """Return the divisors of ``number`` in ascending order."""
    found, left, prime = [1], number, 2
    while prime * prime <= left:
        power, before = 1, list(found)
        while left % prime == 0:
            left //= prime
            power *= prime
            found += [d * power for d in before]
        prime += 1 if prime == 2 else 2
    if left > 1:
        found += [d * left for d in found]
    return tuple(sorted(found))


def tile_counts(length: int, *, divide: bool) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Numbers of tiles worth trying for a sequence of ``length``, ascending.

    With ``divide`` the divisors of ``length``; otherwise, of all counts that give the same tile
    length ceil(length / count), the smallest: more tiles of that length only add work.
    """
    if divide:
        return np.array(divisors(length), dtype=np.int64)
    root = math.isqrt(length)
    short = np.arange(1, root + 1, dtype=np.int64)
    long = -(-length // np.arange(1, root + 2, dtype=np.int64))
    return np.unique(-(-length // np.unique(np.concatenate([short, long]))))
