"""Time of collective communication on one dimension of the network.

Every function takes the bytes of the **whole** tensor, the number of chips, the bandwidth of one
link in one direction and the latency of one hop, and returns seconds; arrays broadcast. One chip
takes no time. Additions are ignored, so every time is a lower bound.

References: ``thakur2005`` for the step counts (reduce-scatter and all-gather as rings),
``ko2025dfmodel`` for the published variants, which differ in factors named here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.errors import InputError, Problem, require
from crosstack.machine.system import DimensionKind

__all__ = [
    "all_gather_time",
    "all_reduce_time",
    "all_to_all_time",
    "broadcast_time",
    "point_to_point_time",
    "reduce_scatter_time",
    "slowest_cut",
    "steps",
]

Float = NDArray[np.float64]


def _check(n_chips: int, bandwidth: float) -> None:
    require(n_chips >= 1, "n_chips", n_chips, "a whole number of chips, at least 1")
    require(bandwidth > 0, "bandwidth", bandwidth, "bytes per second, above 0")


def unknown_kind(kind: DimensionKind) -> InputError:
    """Return the error for a kind of dimension that no formula here knows."""
    known = f"{DimensionKind.RING}, {DimensionKind.SWITCH} or {DimensionKind.FULLY_CONNECTED}"
    return InputError(Problem("network.kind", f"got {kind}; allowed under these rules: {known}."))


def steps(kind: DimensionKind, n_chips: int) -> int:
    """Hops that follow one another in a reduce-scatter or all-gather: p - 1, or 1 when all meet.

    Source: ``thakur2005``; on a fully connected dimension every pair has its own link. [1]
    """
    match kind:
        case DimensionKind.FULLY_CONNECTED:
            return min(n_chips - 1, 1)
        case DimensionKind.RING | DimensionKind.SWITCH:
            return n_chips - 1
        case _:
            raise unknown_kind(kind)


def all_gather_time(
    kind: DimensionKind,
    size: ArrayLike,
    *,
    n_chips: int,
    bandwidth: float,
    latency: float = 0.0,
) -> Float:
    """Time for an all-gather of a tensor of ``size`` bytes, of which each chip holds 1/p.

    Parameters
    ----------
    kind : DimensionKind
        How the chips are joined.
    size : array_like
        Bytes of the gathered tensor. [B]
    n_chips : int
        Chips, >= 1. [1]
    bandwidth, latency : float
        Of one link, one direction. [B/s], [s]

    Raises
    ------
    InputError
        If ``n_chips < 1`` or ``bandwidth <= 0``.

    Notes
    -----
    Ring and switch: ``(p-1) (alpha + n / (p beta))``; fully connected: ``alpha + n / (p beta)``,
    as every chip sends its share to all others at once.

    References
    ----------
    thakur2005
    """
    _check(n_chips, bandwidth)
    rounds = steps(kind, n_chips)
    return np.asarray(rounds * (latency + np.asarray(size, float) / n_chips / bandwidth))


def reduce_scatter_time(
    kind: DimensionKind,
    size: ArrayLike,
    *,
    n_chips: int,
    bandwidth: float,
    latency: float = 0.0,
) -> Float:
    """Time for a reduce-scatter of ``size`` bytes a chip: the mirror of `all_gather_time`.

    Parameters, errors and source as there.
    """
    return all_gather_time(kind, size, n_chips=n_chips, bandwidth=bandwidth, latency=latency)


def all_reduce_time(
    kind: DimensionKind,
    size: ArrayLike,
    *,
    n_chips: int,
    bandwidth: float,
    latency: float = 0.0,
    halves: int = 2,
) -> Float:
    """Time for an all-reduce of ``size`` bytes a chip: reduce-scatter, then all-gather.

    Parameters as `all_gather_time`.

    Parameters
    ----------
    halves : int
        2 counts both halves; 1 counts one, as some releases of DFModel do.

    References
    ----------
    thakur2005; for ``halves``: dfmodel_code
    """
    require(halves in (1, 2), "halves", halves, "1 or 2")
    half = reduce_scatter_time(kind, size, n_chips=n_chips, bandwidth=bandwidth, latency=latency)
    return halves * half


def all_to_all_time(
    kind: DimensionKind,
    size: ArrayLike,
    *,
    n_chips: int,
    bandwidth: float,
    latency: float = 0.0,
    pair_shares: bool = True,
) -> Float:
    """Time for an all-to-all that re-lays a tensor of ``size`` bytes, each chip holding 1/p.

    Parameters as `all_gather_time`.

    Parameters
    ----------
    pair_shares : bool
        True: each pair exchanges ``size / p^2``. False: DFModel's count, ``size`` for each pair
        across the bisection (`dfmodel_code`); larger by up to p^2.

    Notes
    -----
    Ring: ``p^2/8`` pair messages cross each link of the bisection both ways (odd p:
    ``(p^2 - 1)/8``). Switch: each chip sends p - 1 pair messages through its link. Fully
    connected: each link carries one.

    References
    ----------
    dally2004 for the bisection, thakur2005 for the pairwise exchange
    """
    _check(n_chips, bandwidth)
    if n_chips == 1:
        return np.zeros_like(np.asarray(size, float))
    hops, load = steps(kind, n_chips), 1.0
    match kind:
        case DimensionKind.RING:
            hops, load = n_chips // 2, (n_chips**2 // 4) / 2 if pair_shares else n_chips**2 / 8
        case DimensionKind.SWITCH:
            load = n_chips - 1 if pair_shares else n_chips / 4
        case DimensionKind.FULLY_CONNECTED:
            pass
        case _:
            raise unknown_kind(kind)
    message = np.asarray(size, float)
    message = message / n_chips**2 if pair_shares else message
    return np.asarray(hops * latency + load * message / bandwidth)


def broadcast_time(
    kind: DimensionKind,
    size: ArrayLike,
    *,
    n_chips: int,
    bandwidth: float,
    latency: float = 0.0,
) -> Float:
    """Time for one chip to send ``size`` bytes to all others.

    Parameters, errors as `all_gather_time`.

    Notes
    -----
    Ring and switch: a pipelined chain, ``(p-1) alpha + n / beta``, which never takes longer than
    a scatter, then an all-gather: ``2 (p-1) (alpha + n / (p beta))`` (``thakur2005``). Fully
    connected: one step.
    """
    _check(n_chips, bandwidth)
    if n_chips == 1:
        return np.zeros_like(np.asarray(size, float))
    return np.asarray(steps(kind, n_chips) * latency + np.asarray(size, float) / bandwidth)


def point_to_point_time(size: ArrayLike, *, bandwidth: float, latency: float = 0.0) -> Float:
    """Time for one chip to send ``size`` bytes to a neighbour: ``alpha + n / beta``."""
    _check(1, bandwidth)
    return np.asarray(latency + np.asarray(size, float) / bandwidth)


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
    dfmodel_code; the physical count is `all_to_all_time`
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
            links = _links_cut(kind, size, ring_links)
        slowest = max(slowest, pairs / (bandwidth * links))
    return slowest if n_chips > 1 else 0.0


def _links_cut(kind: DimensionKind, size: int, ring_links: int) -> float:
    match kind:
        case DimensionKind.RING:
            return float(ring_links)
        case DimensionKind.SWITCH:
            return float(size)
        case DimensionKind.FULLY_CONNECTED:
            return size**2 / 4
        case _:
            raise unknown_kind(kind)
