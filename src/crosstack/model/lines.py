"""What a byte of every collective costs on a group of network dimensions.

A collective takes a fixed time and a time per byte, whatever is sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import assert_never

from crosstack.machine.system import Dimension, DimensionKind, Parallelism
from crosstack.model.collectives import (
    all_gather_time,
    all_reduce_time,
    all_to_all_time,
    broadcast_time,
    point_to_point_time,
    steps,
    unknown_kind,
)
from crosstack.model.parts import LatencyRule
from crosstack.model.rules import Rules
from crosstack.workload.graph import Collective

__all__ = [
    "Group",
    "Line",
    "all_reduce_cost",
    "all_reduce_halves",
    "domain_all_reduce",
    "latency_charged",
    "line_over",
    "tensor_collectives",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A time that grows with the bytes moved: ``fixed`` [s] + ``per_byte`` [s/B] x bytes."""

    fixed: float = 0.0
    per_byte: float = 0.0


Cost = Callable[[Dimension, int, float, float], float]
Group = list[tuple[Dimension, int]]


def all_reduce_halves(rules: Rules) -> dict[DimensionKind, int]:
    """Halves of an all-reduce that ``rules`` count on each kind of dimension. [1]"""
    known = DimensionKind.RING, DimensionKind.SWITCH, DimensionKind.FULLY_CONNECTED
    return {kind: _halves(kind, rules) for kind in known}


def _halves(kind: DimensionKind, rules: Rules) -> int:
    match kind:
        case DimensionKind.FULLY_CONNECTED:
            return rules.collectives.full_all_reduce_halves
        case DimensionKind.RING | DimensionKind.SWITCH:
            return rules.collectives.ring_all_reduce_halves
        case _:
            raise unknown_kind(kind)


def latency_charged(rules: Rules, *, kernel: bool) -> Callable[[Dimension], float]:
    """Latency of one hop where ``rules`` charge it for every step of a collective."""
    match rules.collectives.latency:
        case LatencyRule.ALL:
            charged = True
        case LatencyRule.KERNEL:
            charged = kernel
        case LatencyRule.NONE | LatencyRule.ALL_REDUCE:  # the latter by hops of its own
            charged = False
        case _:
            assert_never(rules.collectives.latency)
    return lambda dimension: dimension.hop_latency if charged else 0.0


def all_reduce_cost(halves: dict[DimensionKind, int]) -> Cost:
    """All-reduce on one dimension with so many halves on each kind of it."""
    return lambda d, p, size, latency: float(
        all_reduce_time(
            d.kind, size, n_chips=p, bandwidth=d.bandwidth, latency=latency, halves=halves[d.kind]
        )
    )


def line_over(
    group: Group,
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


def domain_all_reduce(
    uses: list[tuple[Dimension, int, Parallelism]],
    use: Parallelism,
    domain: int,
    within: Line,
    rules: Rules,
) -> Line:
    """All-reduce of ``use`` in high-bandwidth domains, then across them.

    Of p chips, d share a domain: ``halves ((d-1) / (d b0) + (p/d - 1) / (p b))`` a byte, with
    ``b0`` the bandwidth of dimension 0 and ``b`` that of the use's own dimension, or of the next
    where that is dimension 0. ``within`` has the latency where it is not charged by step. Sources:
    ``dfmodel_code`` (there each use has a whole domain), ``wang2023railonly``.
    """
    places = [i for i, (_, _, u) in enumerate(uses) if u is use]
    chips = math.prod(uses[i][1] for i in places)
    if chips == 1:
        return within
    inner = (
        1
        if rules.collectives.domain_for_each
        else math.prod(size for _, size, _ in uses[: places[0]])
    )
    shared = min(max(domain // inner, 1), chips)
    fast, slow = uses[0][0], uses[min(max(places[-1], 1), len(uses) - 1)][0]
    halves = rules.collectives.domain_halves
    per_byte = (shared - 1) / (shared * fast.bandwidth)
    per_byte += (chips / shared - 1) / (chips * slow.bandwidth)
    fixed = within.fixed
    if rules.collectives.latency is LatencyRule.ALL:
        hops = (shared - 1) * fast.hop_latency + (-(-chips // shared) - 1) * slow.hop_latency
        fixed = halves * hops
    return Line(fixed=fixed, per_byte=halves * per_byte)


def tensor_collectives(group: Group, rules: Rules) -> dict[Collective, Line]:
    """Price of every collective among the chips of ``group``, inner dimensions first."""
    halves = all_reduce_halves(rules)
    chips = math.prod(size for _, size in group)
    everywhere = latency_charged(rules, kernel=False)

    def gather(d: Dimension, p: int, size: float, latency: float) -> float:
        return float(
            all_gather_time(d.kind, size, n_chips=p, bandwidth=d.bandwidth, latency=latency)
        )

    def exchange(d: Dimension, p: int, size: float, latency: float) -> float:
        held = size * p / chips if rules.collectives.all_to_all_pair_shares else size
        return float(
            all_to_all_time(
                d.kind,
                held,
                n_chips=p,
                bandwidth=d.bandwidth,
                latency=latency,
                pair_shares=rules.collectives.all_to_all_pair_shares,
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

    reduce = line_over(group, all_reduce_cost(halves), latency_charged(rules, kernel=True))
    if rules.collectives.latency is LatencyRule.ALL_REDUCE:
        hops = sum(2 * steps(DimensionKind.RING, p) * d.hop_latency for d, p in group)
        reduce = Line(fixed=hops, per_byte=reduce.per_byte)
    gathered = line_over(group, gather, everywhere)
    return {
        Collective.ALL_REDUCE: reduce,
        Collective.ALL_GATHER: gathered,
        Collective.REDUCE_SCATTER: gathered,
        Collective.ALL_TO_ALL: line_over(group, exchange, everywhere, shrinks=False),
        Collective.BROADCAST: line_over(group, spread, everywhere, shrinks=False),
        Collective.POINT_TO_POINT: line_over(group, send, everywhere, shrinks=False),
    }
