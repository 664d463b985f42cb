"""Collectives as the releases of DFModel count them, dimension by dimension.

Every time is a line over the bytes of the whole tensor. They depart from `LeastTime`
(`crosstack.model.collectives`): some releases count one half of an all-reduce, an all-to-all sends
the whole tensor between each pair, and nothing but an all-reduce pays latency, if that does. Rings
use the links of one direction. Of an all-reduce in high-bandwidth domains, each parallelism has a
whole domain to itself and one half is counted; gradients of recommendation models are bytes added
to nanoseconds; panels of a factorisation go at the bandwidth of the second dimension and rows at
that of the first, each only if the other side of the grid has several chips.

Sources: ``dfmodel_code``, ``ko2025dfmodel``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import assert_never

from crosstack.errors import InputError, Problem, require
from crosstack.machine.system import Dimension, DimensionKind, Parallelism
from crosstack.model.collectives import (
    NOTHING,
    AffineTime,
    Changes,
    ConcaveTime,
    Extent,
    Layout,
    LayoutChange,
    LeastTime,
    NetworkUse,
    neighbour_link,
)
from crosstack.model.parts import check_fields
from crosstack.records import meaning
from crosstack.workload.kernels import Collective, Placement

NANOSECOND_RATE = 1e9  # bytes that are counted as nanoseconds [B/s]
Chips = Sequence[tuple[Dimension, int]]


class LatencyRule(StrEnum):
    """Which collectives pay link latency.

    ``none``: nobody (releases E1 to E3). ``all_reduce``: 2 (p-1) hops for each all-reduce of a
    kernel (E4). ``kernel``: halves x steps for each all-reduce of a kernel (E5).
    """

    NONE = "none"
    ALL_REDUCE = "all_reduce"
    KERNEL = "kernel"


class ExchangeRule(StrEnum):
    """How an all-to-all among all chips of a workload that is not searched is counted.

    The slowest cut of the network, see `slowest_cut`: ``one_way`` with one link a ring and n^2/4
    pairs (E2), ``all_pairs`` with two links a ring and n (n-1)/2 pairs (E3a to E4), ``two_way``
    with two links a ring and n^2/4 pairs (E5).
    """

    ONE_WAY = "one_way"
    ALL_PAIRS = "all_pairs"
    TWO_WAY = "two_way"


_HALVES = {
    "ring_all_reduce_halves": (1, 2),
    "full_all_reduce_halves": (1, 2),
    "gradient_halves": (0, 1, 2),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseCollectives(LeastTime):
    """What a release counts; the defaults are those of E3a, the README's."""

    ring_all_reduce_halves: int = field(
        default=2,
        metadata=meaning(
            "2 counts reduce-scatter and all-gather on rings and switches (E2, E3a, and E4 "
            "on with ``separate_rs_ag_for_ar``); 1 counts one (E3b, and E4 on without). [1]"
        ),
    )
    full_all_reduce_halves: int = field(
        default=1, metadata=meaning("The same on fully connected dimensions: 1 up to E4. [1]")
    )
    latency: LatencyRule = field(
        default=LatencyRule.NONE, metadata=meaning("Which collectives pay link latency.")
    )
    gradient_halves: int = field(
        default=0,
        metadata=meaning(
            "Halves of the gradient all-reduce: 1 or 2 where they are counted otherwise "
            "than those of any other all-reduce (one run compared with Megatron-LM), 0 "
            "where not. [1]"
        ),
    )
    exchange: ExchangeRule = field(
        default=ExchangeRule.ALL_PAIRS,
        metadata=meaning("How all chips exchange everything with each other."),
    )

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self, _HALVES)

    @property
    def share_dimensions(self) -> bool:
        """A dimension serves one parallelism (``ko2025dfmodel``, IV.C)."""
        return False

    @property
    def spreads_experts(self) -> bool:
        """Experts are split over tensor-parallel chips at most."""
        return False

    @property
    def shares_sequences(self) -> bool:
        """A sequence is on the chips that split its tensors."""
        return False

    @property
    def once_a_microbatch(self) -> bool:
        """Every sequence pays for latency."""
        return False

    def kernels(self, network: NetworkUse) -> dict[Collective, ConcaveTime]:
        """Return what collectives among the tensor-parallel chips take."""
        given = network.all_reduce
        require(given is None, "system.all_reduce", str(given or ""), "none under these rules")
        found = self._among(network.used_for(Parallelism.TENSOR))
        reduce = found[Collective.ALL_REDUCE]
        if network.domain_size is not None:
            reduce = _in_domains(network, Parallelism.TENSOR, network.domain_size, reduce)
        found[Collective.ALL_REDUCE] = reduce
        return {collective: ConcaveTime((line,)) for collective, line in found.items()}

    def neighbours(self, network: NetworkUse) -> list[tuple[float, float]]:
        """Return the links to the next stage; what arrives takes nothing."""
        stages = network.used_for(Parallelism.PIPELINE)
        return [
            neighbour_link(Extent(dimension=dimension.plain, size=size, members=size))
            for dimension, size in stages
        ]

    def changes(self, network: NetworkUse) -> Changes:
        """Return an all-gather to a whole tensor, and an all-to-all to any other layout.

        Sums are added up where they are made.
        """
        lines = self.kernels(network)
        found: dict[tuple[Layout, frozenset[Layout]], LayoutChange] = {}
        for start in (Layout.ROWS, Layout.COLUMNS):
            other = Layout.COLUMNS if start is Layout.ROWS else Layout.ROWS
            gather, exchange = Collective.ALL_GATHER, Collective.ALL_TO_ALL
            for way, ends in (
                ((gather,), {Layout.REPLICATED}),
                ((exchange,), {other}),
                ((gather, exchange), {Layout.REPLICATED, other}),
            ):
                total = sum((lines[c] for c in way), NOTHING)
                change = LayoutChange(ways=((way, total),), lines=total)
                found[start, frozenset(ends)] = found[start, frozenset({*ends, start})] = change
        return found

    def gradients(self, network: NetworkUse) -> ConcaveTime:
        """Return what summing gradients among the data-parallel chips takes."""
        line = self._all_reduce(network.used_for(Parallelism.DATA), self.gradient_halves)
        if network.domain_size is not None:
            line = _in_domains(network, Parallelism.DATA, network.domain_size, line)
        return ConcaveTime((line,))

    def placed(
        self, network: NetworkUse, placement: Placement
    ) -> tuple[dict[Collective, ConcaveTime], ConcaveTime]:
        """Return the same of a workload that brings its placement; domains are not looked at."""
        chips = list(zip(network.dimensions, network.sizes, strict=True))
        n_chips = math.prod(network.sizes)
        found = self._among(chips)
        # A pair of n chips exchanges 1/n^2 of a whole tensor, 1/n of what one chip takes part with.
        each = placement is Placement.BATCH
        pair = self._slowest_pair(chips) / (n_chips if each else n_chips**2)
        found[Collective.ALL_TO_ALL] = AffineTime(per_byte=pair)
        gradients = NOTHING
        if placement is Placement.BATCH and n_chips > 1:
            gradients = ConcaveTime(
                (AffineTime(per_byte=self.ring_all_reduce_halves / NANOSECOND_RATE),)
            )
        if placement is Placement.GRID:
            found |= _grid(chips)
        return {collective: ConcaveTime((line,)) for collective, line in found.items()}, gradients

    def _halves(self, kind: DimensionKind) -> float:
        ring = self.ring_all_reduce_halves
        return _by_kind(kind, ring=ring, switch=ring, full=self.full_all_reduce_halves)

    def _all_reduce(self, chips: Chips, halves: int = 0) -> AffineTime:
        """All-reduce without latency; ``halves`` on every dimension, 0: as each kind has."""

        def cost(d: Dimension, p: int) -> float:
            return (halves or self._halves(d.kind)) * _gathered(d, p)

        return AffineTime(per_byte=_over(chips, cost, shrinks=True))

    def _hops(self, chips: Chips) -> float:
        """Latency of an all-reduce of a kernel. [s]"""
        match self.latency:
            case LatencyRule.NONE:
                return 0.0
            case LatencyRule.ALL_REDUCE:
                return sum(2 * (p - 1) * d.hop_latency for d, p in chips)
            case LatencyRule.KERNEL:
                halves = self._halves
                return sum(halves(d.kind) * _steps(d.kind, p) * d.hop_latency for d, p in chips)
            case _:
                assert_never(self.latency)

    def _among(self, chips: Chips) -> dict[Collective, AffineTime]:
        """Return what every collective among some chips takes."""
        reduce = AffineTime(fixed=self._hops(chips), per_byte=self._all_reduce(chips).per_byte)
        gathered = AffineTime(per_byte=_over(chips, _gathered, shrinks=True))
        whole = AffineTime(per_byte=_over(chips, _sent, shrinks=False))
        return {
            Collective.ALL_REDUCE: reduce,
            Collective.ALL_GATHER: gathered,
            Collective.REDUCE_SCATTER: gathered,
            Collective.ALL_TO_ALL: AffineTime(per_byte=_over(chips, _exchanged, shrinks=False)),
            Collective.BROADCAST: whole,
            Collective.POINT_TO_POINT: whole,
        }

    def _slowest_pair(self, chips: Chips) -> float:
        ring_links, all_pairs = {
            ExchangeRule.ONE_WAY: (1, False),
            ExchangeRule.ALL_PAIRS: (2, True),
            ExchangeRule.TWO_WAY: (2, False),
        }[self.exchange]
        return slowest_cut(
            [d.kind for d, _ in chips],
            [size for _, size in chips],
            [d.bandwidth for d, _ in chips],
            ring_links=ring_links,
            all_pairs=all_pairs,
        )


# ---------------------------------------------------------------- a byte on one dimension [s/B]


def _by_kind(kind: DimensionKind, *, ring: float, switch: float, full: float) -> float:
    """Return what a kind of dimension has; an `InputError` for one that no release knows."""
    known = {
        DimensionKind.RING: ring,
        DimensionKind.SWITCH: switch,
        DimensionKind.FULLY_CONNECTED: full,
    }
    if kind not in known:
        names = f"{DimensionKind.RING}, {DimensionKind.SWITCH} or {DimensionKind.FULLY_CONNECTED}"
        message = f"got {kind}; allowed under these rules: {names}."
        raise InputError(Problem("network.kind", message))
    return known[kind]


def _steps(kind: DimensionKind, chips: int) -> float:
    """Hops of a reduce-scatter or all-gather: p - 1, or 1 where all meet. [1]"""
    return _by_kind(kind, ring=chips - 1, switch=chips - 1, full=min(chips - 1, 1))


def _gathered(dimension: Dimension, chips: int) -> float:
    return _steps(dimension.kind, chips) * (1.0 / chips / dimension.bandwidth)


def _exchanged(dimension: Dimension, chips: int) -> float:
    """The whole tensor for each pair across the middle."""
    if chips == 1:
        return 0.0
    load = _by_kind(dimension.kind, ring=chips**2 / 8, switch=chips / 4, full=1.0)
    return load / dimension.bandwidth


def _sent(dimension: Dimension, chips: int) -> float:
    """To all others along a chain, or to one."""
    return 0.0 if chips == 1 else 1.0 / dimension.bandwidth


def _over(chips: Chips, cost: Callable[[Dimension, int], float], *, shrinks: bool) -> float:
    """Time of a byte over all dimensions; where it ``shrinks``, outer ones move 1/p of it."""
    total, share = 0.0, 1.0
    for dimension, size in chips:
        total += cost(dimension, size) * share
        if shrinks:
            share /= size
    return total


# ---------------------------------------------------------------- over several dimensions


def _in_domains(
    network: NetworkUse, use: Parallelism, domain: int, within: AffineTime
) -> AffineTime:
    """All-reduce in high-bandwidth domains, then across them; latency as ``within``.

    Of p chips, d share a domain: ``(d-1) / (d b0) + (p/d - 1) / (p b)`` a byte, with ``b0`` the
    bandwidth of dimension 0 and ``b`` that of the use's own dimension, or of the next where that
    is dimension 0.
    """
    chips = network.degree(use)
    if chips == 1:
        return within
    last = max(i for i, p in enumerate(network.parallelism) if p is use)
    shared = min(max(domain, 1), chips)
    fast = network.dimensions[0]
    slow = network.dimensions[min(max(last, 1), len(network.dimensions) - 1)]
    per_byte = (shared - 1) / (shared * fast.bandwidth)
    per_byte += (chips / shared - 1) / (chips * slow.bandwidth)
    return AffineTime(fixed=within.fixed, per_byte=per_byte)


def _grid(chips: Chips) -> dict[Collective, AffineTime]:
    """Panel broadcast and row exchange, each if the other side of the grid has several chips."""
    rows, columns = math.prod(size for _, size in chips[:-1]), chips[-1][1]
    second = chips[min(1, len(chips) - 1)][0].bandwidth
    spread = 1 / rows / second if rows > 1 else 0.0
    send = 1 / columns / chips[0][0].bandwidth if columns > 1 else 0.0
    return {
        Collective.BROADCAST: AffineTime(per_byte=spread),
        Collective.POINT_TO_POINT: AffineTime(per_byte=send),
    }


def slowest_cut(
    kinds: Sequence[DimensionKind],
    sizes: Sequence[int],
    bandwidths: Sequence[float],
    *,
    ring_links: int,
    all_pairs: bool,
) -> float:
    """Time for each pair of chips to exchange one byte, as the published tool counts it. [s/B]

    Parameters
    ----------
    kinds, sizes, bandwidths : sequence
        Of every dimension, innermost first. [1], [B/s]
    ring_links : int
        Links of a ring that a cut goes through: 1 or 2. [1]
    all_pairs : bool
        Whether n (n-1)/2 messages cross the cut of n chips, or n^2/4.

    Notes
    -----
    The largest over the dimensions j of ``pairs / (beta_j links_j)``. A switch of s chips counts
    s links, a fully connected group s^2/4, a ring ``ring_links``; ``pairs`` are those of the chips
    up to and including dimension j. Where all dimensions are rings, pairs are those of all n chips
    and dimension j of d counts ``ring_links n / s_(d-1-j)`` links: the tool pairs the bandwidth of
    a dimension with the cut of its mirror image, which is the same on equal sides.

    References
    ----------
    dfmodel_code; the physical count is in `crosstack.model.collectives.algorithms`
    """
    n_chips = math.prod(sizes)
    torus = all(kind is DimensionKind.RING for kind in kinds)
    slowest = 0.0
    for j, (kind, size, bandwidth) in enumerate(zip(kinds, sizes, bandwidths, strict=True)):
        reached = n_chips if torus else math.prod(sizes[: j + 1])
        pairs = reached * (reached - 1) / 2 if all_pairs else reached**2 / 4
        if torus:
            links = float(ring_links * n_chips // sizes[len(sizes) - 1 - j])
        else:
            links = _by_kind(kind, ring=ring_links, switch=size, full=size**2 / 4)
        slowest = max(slowest, pairs / (bandwidth * links))
    return slowest if n_chips > 1 else 0.0
