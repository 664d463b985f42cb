"""Time of a pass through a pipeline in closed form, and where that holds.

Events define what a schedule takes (`crosstack.model.schedule.events`): stages that do one thing at
a time, links that send one microbatch at a time each way. The longest way through them is known
for the schedules here; the tests hold every form against the events.

Stages that are all alike take ``a W + k x`` along a way: ``a`` times the work W of a stage for one
microbatch, forward and backward, and ``k`` sends of x from one stage to the next. The time is the
most of a few ways, whatever W and x are; numbers, or arrays of many pipelines.

* GPipe: stages and links are machines that all microbatches pass one after the other
  (``huang2019gpipe``); holds for any stages, see `pass_time`.
* One forward, one backward (``narayanan2021megatron``): stage s of p begins p - s microbatches
  before the first comes back. A microbatch that has gone down and come up again lets the next p
  begin, so what is sent is waited for ``p + m - 2 - ceil((m - 1) / p)`` times each way. Holds for
  stages that are alike (`training_ways`), and for any where sends take no time (`uneven_time`).
* Zero bubble H1 (``qi2024zero``): as that, but the gradients of weights of stage s wait for s more
  microbatches; see `zero_bubble_ways`.
* Interleaved, v pieces a stage, m a multiple of p: pieces begin early enough for sends to hide but
  while the pipeline fills. Holds where a send takes no longer than the forward and than the
  backward pass of a piece; elsewhere it is the time of a stage that waits until its link is free.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crosstack.errors import require, require_whole
from crosstack.workload.kernel_graph import Bools, Floats, Ints

Counts = Ints | int
Way = tuple[Any, Any]  # how often the work of a stage, and how many sends; numbers, or arrays


def longest(ways: Sequence[Way], work: Floats | float, send: Floats | float) -> Floats:
    """Time along the longest way, of ``work`` and ``send`` for one microbatch. [s]"""
    return np.asarray(np.maximum.reduce([np.asarray(a * work + k * send) for a, k in ways]))


def training_ways(
    stages: Counts,
    microbatches: Counts,
    interleave: Counts = 1,
    *,
    beside: bool = True,
    forward: Floats | float = 1 / 3,
) -> tuple[Way, ...]:
    """Ways through forward and backward passes of stages that are alike, one forward, one backward.

    With ``p`` stages and ``m`` microbatches, ``(m + p - 1) W + 2 x (p + m - 2 - ceil((m - 1)/p))``;
    where ``m - 1 = q p + 1`` a link may be waited for once instead of a stage. Sent by the stages
    themselves all but the first and the last send twice: ``x (2 (p - 1) + 2 m - 3)``. Interleaved,
    ``(m v + p - 1) W / v + 2 x (p v - 1)``, where a pass of a piece takes at least x. Interleaved
    and sent by the stages themselves, the last one is busy for ``(m v + p - 1) W / v + x (2 m v + 2
    p - 3 - m)``; of p > 2 the others send in every pass: ``x (2 m v + 2 (p - 3))`` behind two of
    the shorter passes less, or once more behind a pass of each less. Of arrays, ways that one
    pipeline does not have are shorter than its first.

    Raises `InputError` if microbatches cannot be interleaved so. Source: narayanan2021megatron,
    sections 2.2.1 and 2.2.2.

    Parameters
    ----------
    stages, microbatches, interleave : int or array
        Of the pipeline, of one iteration; pieces of every stage, spread over the model. [1]
    beside : bool
        Whether sends run beside the work of a stage, on links of their own, or take its time.
    forward : float or array
        Share of the work that is the forward pass; only sends longer than the pass of a piece
        depend on it. [1]
    """
    p, m, v = stages, microbatches, interleave
    for name, count in (("stages", p), ("microbatches", m), ("interleave", v)):
        require_counts(name, count)
    several, cut = p > 1, (p > 1) & (v > 1)
    even = not _any(cut & (m % p > 0))
    require(even, "microbatches", m, f"a multiple of {p} stages, to interleave")
    if not beside:
        return _sending_ways(p, m, v, forward)
    turn = (m - 1) % p == 1
    turn = turn & (v == 1)
    passes = m * v + p - 1
    whole = p + m - 2 - -(-(m - 1) // p)
    sends = several * 2.0 * (cut * (p * v - 1) + (1 - cut) * whole)
    ways: list[Way] = [(passes / v, sends)]
    if _any(cut | turn):
        half = passes / v * np.maximum(forward, 1 - np.asarray(forward))
        ways.append((cut * half + turn * (m + p - 2.0), sends + cut * passes + turn))
    if _any(cut):
        ways.append((0.0, sends + 2.0 * cut * passes))
    return tuple(ways)


def _sending_ways(p: Counts, m: Counts, v: Counts, forward: Floats | float) -> tuple[Way, ...]:
    """Return the ways of `training_ways` where stages send by themselves."""
    several, cut, inner = p > 1, (p > 1) & (v > 1), (p > 2) & (v > 1)
    once = 2.0 * (p - 1) + m - 1 + ((p > 2) & (m > 1)) * (m - 2)
    each = 2.0 * m * v + 2 * p - 3 - m
    passes = m * v + p - 1
    ways: list[Way] = [(passes / v, several * (cut * each + (1 - cut) * once))]
    if _any(inner):
        shorter = np.minimum(forward, 1 - np.asarray(forward))
        own = 2.0 * m * v + 2 * (p - 3)
        ways.append((inner * (passes - 2 * shorter) / v, inner * own))
        ways.append((inner * (passes - 1) / v, inner * (own + 1)))
    return tuple(ways)


def zero_bubble_ways(
    stages: Counts,
    microbatches: Counts,
    *,
    beside: bool = True,
    forward: Floats | float = 1 / 3,
    weights: Floats | float = 1 / 3,
) -> tuple[Way, ...]:
    """Ways through passes of stages that are alike, gradients of weights apart: ZB-H1.

    A pass forward takes F, one back to the inputs B, and one to the weights W. Where sends take no
    time, ``(m + p - 1) (F + B) + m W - (p - 1) min(F, B, W)`` with ``p`` stages and ``m >= p``
    microbatches. Sends beside the work are waited for along the ways down and up, and along turns
    between two stages as in `training_ways`; stages that send by themselves do so behind F and B.
    Of arrays, ways that one pipeline does not have take nothing.

    Raises `InputError` if there are fewer microbatches than stages. Source: qi2024zero, section
    2.3, whose F, B and W are of one length; other lengths and sends are held against events.

    Parameters
    ----------
    stages, microbatches : int or array
        Of the pipeline, of one iteration. [1]
    beside : bool
        Whether sends run beside the work of a stage, on links of their own, or take its time.
    forward, weights : float or array
        Shares of the work that are F, and W. [1]
    """
    p, m = stages, microbatches
    for name, count in (("stages", p), ("microbatches", m)):
        require_counts(name, count)
    require(not _any(m < p), "microbatches", m, f"at least {p}, as many as stages")
    k = p - 1
    # How often F, B and W beside once a microbatch, how often x, and whether there is such a way.
    if beside:
        turned = p + m - 2 - -(-(m - 1) // p)
        once, more = 2 * turned, turned - 2 * k
        late, up = np.maximum(more, 0), np.minimum(3 * k, once - k)
        counts = [
            (k, k, -k, np.minimum(4 * k, once), True),
            (k, k, -k - late, once, True),
            (k, 0, 0, up, True),
            (k, 0, -late, up + 2 * late, True),
            (0, k, 0, 2 * k, True),
            (k - 1, k - 1, -k - more - 1, once + 1, (m - 1) % p == 1),
        ]
    else:
        two, inner, both = p == 2, p > 2, 2 * m + 2 * p - 5
        counts = [
            (0, 0, 0, 0, p == 1),
            (1, 1, -1, m + 1, two),
            (1, 0, 0, m + 1, two),
            (0, 1, 0, m, two),
            (k, k, -k, both, inner),
            (k - 1, k, 1 - k, both, inner),
            (k, k - 1, 1 - k, both, inner),
            (k - 1, k - 1, 2 - k, both, inner),
            (k - 1, 1, 0, 2 * m + p - 2, inner),
            (1, k - 1, 0, 2 * m + p - 2, inner),
            (1, k, -1, 2 * m + p - 2, inner),
            (k, 0, 0, 2 * m + p - 3, inner),
            (0, k, 0, m + p - 2, inner),
        ]
    inputs = 1 - np.asarray(forward) - weights
    return tuple(
        (there * ((m + a) * forward + (m + b) * inputs + (m + g) * weights), there * 1.0 * sends)
        for a, b, g, sends, there in counts
        if _any(there)
    )


def _any(flags: Bools | bool) -> bool:
    return bool(flags.any()) if isinstance(flags, np.ndarray) else bool(flags)


def require_counts(name: str, counts: Counts) -> None:
    """Check that numbers are whole, and at least 1.

    Raises `InputError` if they are not.
    """
    if isinstance(counts, np.ndarray):
        good = counts.dtype.kind in "iu" and bool((counts >= 1).all())
        require(good, name, counts, "whole numbers, at least 1")
    else:
        require_whole(name, counts)


def forward_ways(stages: Counts, microbatches: Counts, *, beside: bool = True) -> tuple[Way, ...]:
    """Ways through the forward pass alone of stages that are alike.

    As `training_ways`; the slower of a stage and a link is passed by every microbatch.
    """
    p, m = np.asarray(stages, dtype=float), np.asarray(microbatches, dtype=float)
    links = np.where(p > 1, p + m - 2, 0.0)
    if not beside:
        return ((p + m - 1, links),)
    return ((p + m - 1, p - 1), (np.where(p > 1, p, p + m - 1), links))


def gpipe_ways(
    stages: Counts, microbatches: Counts, *, beside: bool = True, forward: Floats | float = 1 / 3
) -> tuple[Way, ...]:
    """Ways through all forward, then all backward passes of stages that are alike.

    Parameters as in `training_ways`. Source: huang2019gpipe.
    """
    ways = forward_ways(stages, microbatches, beside=beside)
    return tuple(
        (forward * there + (1 - forward) * back, sent + returned)
        for there, sent in ways
        for back, returned in ways
    )


def pass_time(stages: Sequence[float], sends: Sequence[float], microbatches: int) -> float:
    """Time until all microbatches have passed any stages one way, links between them. [s]

    Parameters
    ----------
    stages, sends : sequence of float
        Work of every stage for one microbatch, and every link between them, one less. [s]
    """
    machines = [*stages, *sends[: len(stages) - 1]]
    return sum(machines) + (microbatches - 1) * max(machines)


def uneven_time(forward: Sequence[float], backward: Sequence[float], microbatches: int) -> float:
    """Time of one forward, one backward through any stages that send in no time. [s]

    The longest way goes down to some stage j, ``w_j = p - 1 - j`` microbatches begun at the slowest
    stage above it, comes up to a stage k that alternates until its last forward, goes down and up
    again; or it turns at once into backward passes of the slowest stage. With w held below m:
    ``max_k (down_k + (m - 1 - w_k) (f_k + b_k) + up_k)``, and the same without what alternates.
    Source: narayanan2021megatron, section 2.2.1.

    Parameters
    ----------
    forward, backward : sequence of float
        Of every stage, for one microbatch. [s]
    """
    p, m = len(forward), microbatches
    most = 0.0
    for k in range(p):
        down = _lead(forward, backward, k, m)
        most = max(most, down + sum(backward[: k + 1]) + (m - 1) * max(backward[: k + 1]))
        if p - 1 - k < m:
            turns = (m - p + k) * (forward[k] + backward[k])
            most = max(most, down + turns + _lead(backward, forward, k, m))
    return most


def _lead(there: Sequence[float], back: Sequence[float], k: int, m: int) -> float:
    """Longest way from the first stage ``there`` to where ``back`` of stage k begins. [s]"""
    p = len(there)
    return max(
        sum(there[: j + 1]) + sum(back[k + 1 : j + 1]) + min(p - 1 - j, m - 1) * max(there[: j + 1])
        for j in range(k, p)
    )
