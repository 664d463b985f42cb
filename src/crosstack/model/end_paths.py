"""Paths through an iteration whose first and last stage differ from others, or enter at both ends.

No iteration takes less; with one forward, one backward it takes as long as its events do
(`crosstack.model.schedule.uneven`), from both ends too (`crosstack.model.schedule.dual`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.model.optimizer_step import Path
from crosstack.model.schedule.closed import training_ways, zero_bubble_ways
from crosstack.model.schedule.dual import together
from crosstack.model.stages import Pipeline
from crosstack.workload.kernel_graph import Ints
from crosstack.workload.transformer_training import Schedule


def end_paths(pipeline: Pipeline) -> tuple[Path, ...]:
    """Return paths through an iteration whose first and last stage work longer than others.

    Stages and links that all pass one way are machines (`crosstack.model.schedule.closed`): of a
    forward pass, and of GPipe each way, one path leads through each kind of machine as often as
    there are microbatches. With one forward, one backward: all of the last stage, between the way
    down and the way up; the way of stages that are alike, which passes the first stage at least
    once; and all of the first stage.
    """
    p, m, x = pipeline.stages, pipeline.microbatches, pipeline.transfer
    (first, begun), (last, ended) = pipeline.first, pipeline.last
    beside, one = pipeline.overlap is Overlap.ALL, p == 1
    if not pipeline.training:
        return tuple(_one_way(p, m, 1.0, x, (begun, ended), beside=beside))
    send, share, fewer = x / 2, pipeline.forward, pipeline.fewer
    if pipeline.schedule is Schedule.COMBINED:
        return combined_paths(pipeline)
    if pipeline.schedule.by_events:
        return waiting_paths(pipeline)
    if pipeline.schedule is Schedule.GPIPE:
        down = _one_way(p, m, share, send, (first, last), fewer, beside=beside)
        back = ended - last, begun - first
        up = _one_way(p, m, 1 - share, send, back, fewer[::-1], beside=beside)
        return tuple((a + c, b + d) for a, b in down for c, d in up)
    sends = 2 * (p - 1) + (0 if beside else 1 - one) * (m - 1)
    if pipeline.schedule.defers_weights:
        return _zero_bubble_ends(pipeline, sends * send)
    v, (less, least) = pipeline.interleave, fewer
    alike = training_ways(p, m, v, beside=beside, forward=share)
    return (
        *((work, sent * send + begun) for work, sent in _between(pipeline, alike)),
        *_turning(pipeline),
        (m * (1 - least) + (p - 1) / v - less, begun + m * ended + sends * send),
        (m * (1.0 - less), m * (begun + one * ended)),
    )


def _between(pipeline: Pipeline, alike: Iterable[Path]) -> Iterable[Path]:
    """Return the ways of stages that are ``alike``, with their sends, or that between others.

    The second stage, once the first one, that holds fewer layers, has handed on, and before that
    is handed back to; of two stages, which both have an end, nothing.
    """
    if not pipeline.uneven:
        return alike
    p, m, less = pipeline.stages, pipeline.microbatches, pipeline.fewer[0]
    other = np.asarray(pipeline.fewer[0]) + pipeline.fewer[1] > 0
    some, handed = np.asarray(p) > 2, 1 - np.asarray(less)
    if pipeline.schedule.defers_weights:  # whose weights' gradients may be left for later
        handed = handed * pipeline.forward
    own = some * (m + handed)
    return [(np.where(other, own, a), np.where(other, 0.0, b)) for a, b in alike]


def _turning(pipeline: Pipeline) -> tuple[Path, ...]:
    """Return the way of stages of which some hold fewer layers, one forward, one backward.

    The second stage begins ``p - 1`` microbatches before the first comes back, then takes one
    forward, one backward; all stages are passed before that and behind it, where there are as many
    microbatches as stages. See `crosstack.model.schedule.closed.uneven_time`.
    """
    if not pipeline.uneven:
        return ()
    p, m, send = pipeline.stages, pipeline.microbatches, pipeline.transfer / 2
    (_, begun), (_, ended), (less, least) = pipeline.first, pipeline.last, pipeline.fewer
    some = (np.asarray(p) > 2) & (np.asarray(m) >= p) & (np.asarray(less) + least > 0)
    work, sends = m + p - 1 - less - 2 * least, 4 * p - 6
    return ((some * work, some * (begun + 2 * ended + sends * send)),)


def _zero_bubble_ends(pipeline: Pipeline, sent: Any) -> tuple[Path, ...]:
    """Return the paths of `end_paths` where gradients of weights wait.

    Every path begins with the first pass forward. All of the last stage but its last gradients of
    weights, of as many microbatches as there are stages, is between the way down and the way up,
    which takes ``sent`` [s] and ends with those of the first stage; or all of it is behind the way
    down.
    """
    p, m, share = pipeline.stages, pipeline.microbatches, pipeline.forward
    (first, begun), (_, ended), (less, least) = pipeline.first, pipeline.last, pipeline.fewer
    beside, one, k = pipeline.overlap is Overlap.ALL, p == 1, p - 1
    weights, send = pipeline.weight_gradients, pipeline.transfer / 2
    alike = zero_bubble_ways(p, m, beside=beside, forward=share, weights=weights)
    down, own = k + (0 if beside else 1 - one) * m, m * (1 - least)
    ways = (k - less) * (1 - weights) + weights * (1 - less - p * (1 - least))
    return (
        *((work, times * send + first) for work, times in _between(pipeline, alike)),
        (own + ways, begun + m * ended + sent),
        (own + (k - less) * share, first * (1 - one) + m * ended + down * send),
        (m * (1.0 - less), m * (begun + one * ended)),
    )


def waiting_paths(pipeline: Pipeline) -> tuple[Path, ...]:
    """Return paths through an iteration under ZB-H2 and ZB-V, with ends or without.

    All of the chip that a microbatch reaches last before it comes up again, behind the way down;
    the same until its last backward pass, then the way up; all of the first chip; and under ZB-V,
    where that has both ends, what it does from where the first microbatch is back there. See
    `crosstack.model.schedule.zero_bubble` for who has which pieces and what waits at the end.
    """
    p, m, share = pipeline.stages, pipeline.microbatches, pipeline.forward
    (first, begun), (_, ended), (less, least) = pipeline.first, pipeline.last, pipeline.fewer
    weights, send = pipeline.weight_gradients, pipeline.transfer / 2
    inputs, k, v = 1 - share - weights, p - 1, pipeline.schedule.pieces or 1
    here = (1 - least, ended) if v == 1 else (1.0, 0.0)  # of the last chip: its layers, its end
    kept = m - (2 * p - 1) / v  # gradients of weights before the last pass to the inputs
    down, way = (k - less) / v, k * send
    own = m * here[0], m * here[1]
    until = here[0] * (m * (share + inputs) + kept * weights)
    ends = begun + (ended if v > 1 else (np.asarray(p) == 1) * ended)
    return (
        (own[0] + down * share, first + own[1] + way),
        (until + down * (share + inputs) + (1 - less) / v * weights, begun + own[1] + 2 * way),
        (m * (1.0 - less), m * ends + (v > 1) * (2 * way - 2 * k * first)),
    )


def dual_paths(pipeline: Pipeline) -> tuple[Path, ...]:
    """Return paths through an iteration whose microbatches enter at both ends.

    Of m microbatches and p stages, each chip runs m passes forward and m backward, of either of its
    stages half. The first chip, which has the first and the last stage, runs each forward pass
    together with a backward pass at best. A chip in the middle begins once the first microbatch is
    there, runs p + 1 passes each way by themselves, of which p are counted, and ends with p / 2
    gradients of weights; what it hands back before those goes up to the first chip. No pair takes
    less than `crosstack.model.schedule.dual.together` says, and two passes by themselves no less
    than a pair; who does what when is `crosstack.model.schedule.dual.dual_order`.
    """
    p, m, share = pipeline.stages, pipeline.microbatches, pipeline.forward
    (first, begun), (_, ended), (less, least) = pipeline.first, pipeline.last, pipeline.fewer
    weights, send = pipeline.weight_gradients, pipeline.transfer / 2
    both, behind = begun + ended, pipeline.first_tokens[1] + pipeline.last_tokens[1]
    few, most = pipeline.tokens
    own = 2.0 - less - least
    tokens = own * few + behind, own * most + behind
    ends = together((own, both), tokens, pipeline.taken)
    some = np.asarray(p) > 2
    down, up = some * (p / 2 - 1 - less), some * (p / 2) * weights
    way = some * (p / 2 - 1) * send
    ways = (
        (down * share, some * first + way),
        (down * (1 - weights) - up, some * begun + 2 * way),
    )
    inner = together((1.0, 0.0), (few, most), pipeline.taken)
    return (
        *((m / 2 * a, m / 2 * b) for a, b in ends),
        *(
            ((m - p) * a + p * some + c, (m - p) * b * some + d)
            for a, b in ((some * a, b) for a, b in inner)
            for c, d in ways
        ),
    )


def combined_paths(pipeline: Pipeline) -> tuple[Path, ...]:
    """Return paths through an iteration of combined 1F1B, with ends or without.

    All of the last chip, between the way down and the way up, which runs some passes by themselves
    and the others in pairs; and all of the first chip. Of one stage they are what an iteration
    takes. Stages hold as many layers each.
    """
    p, m, v = pipeline.stages, pipeline.microbatches, pipeline.interleave
    (_, begun), (_, ended), (few, most) = pipeline.first, pipeline.last, pipeline.tokens
    one, hidden, beside = np.equal(p, 1), 1.0 - pipeline.taken, pipeline.overlap is Overlap.ALL
    send, total = pipeline.transfer / 2 * (1 - one), np.asarray(m) * v
    alone = np.minimum((v - 1) * p + 1, total)
    pairs, before = total - alone, np.minimum(alone + 2 * (p - 1), total)
    # The last chip has the head's passes in all pairs but one, of one stage the embedding's too.
    every = ended + one * begun
    tokens = pipeline.last_tokens[1] + one * pipeline.first_tokens[1]
    way, sent = begun * (1 - one), 2 * (p - 1) * send
    if not beside:  # of the last chip, all passes but those forward through its last piece
        sent = (2 * total - m + 2 * p - 3) * send
    paired, least = np.minimum(m - 1, pairs), pairs * few / v
    first = m * begun - hidden * ((total - before) * most / v + m * pipeline.first_tokens[1])
    # Of work that leaves out tokens on their way, passes by themselves take them besides.
    own = hidden * np.maximum(few - most, 0.0) / v
    way, first = way + (alone + p - 1) * own, first + before * own
    return (
        (
            (total + p - 1) / v,
            way + m * every + sent - hidden * (pairs * most / v + paired * tokens),
        ),
        (
            (alone + p - 1 + pairs / (1.0 + hidden)) / v,
            way + (m - paired + paired / (1.0 + hidden)) * every + sent / (1.0 + hidden),
        ),
        ((alone + p - 1) / v, way + (m - paired) * every + least + paired * tokens * one),
        (m * (1.0 - one), first * (1 - one)),
    )


def _one_way(
    stages: Ints | int,
    microbatches: Ints | int,
    share: Any,
    send: Any,
    ends: tuple[float, float],
    fewer: tuple[Any, Any] = (0.0, 0.0),
    *,
    beside: bool,
) -> list[Path]:
    """Return the paths of a pass in one direction: all machines once, one of them each time.

    ``share`` of the work of a stage is in this pass [1]; ``send`` is from a stage to the next,
    ``ends`` what the first and the last stage of the pass work besides [s], ``fewer`` shares of the
    work that they do not have. [1]
    """
    p, more = stages, microbatches - 1
    work, extra = (p - sum(fewer)) * share, sum(ends) + (p - 1) * send
    sent, both = send * (p > 1), ends[0] + (p == 1) * ends[1]
    first, last = (share * (1 - less) for less in fewer)
    if beside:
        slow = [(first, both), (last, ends[1]), (0.0, sent), (share * (p > 2), 0.0)]
    else:  # a stage sends by itself, all but the last of the pass
        slow = [(first, both + sent), (last, ends[1]), (share * (p > 2), send * (p > 2))]
    return [(work + more * a, extra + more * b) for a, b in slow]
