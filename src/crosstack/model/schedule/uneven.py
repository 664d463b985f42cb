"""Stages that are alike but for the first and the last, which have an end of the model besides."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from crosstack.model.schedule.closed import pass_time
from crosstack.model.schedule.passes import Operation, Stage
from crosstack.model.schedule.pipeline import pipeline_time, stage_ends, stage_ends_of_many
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.transformer_training import Schedule

Tokens = tuple[tuple[float, float], tuple[float, float], tuple[float, float]]
NO_TOKENS: Tokens = ((0.0, 0.0), (0.0, 0.0), (0.0, 0.0))
AT_ONCE = 2**21  # passes and sends of all pipelines of many that are looked at together


@lru_cache(maxsize=4096)
def uneven_ends(
    stages: int,
    microbatches: int,
    pieces: int,
    work: tuple[float, float, float],
    ends: tuple[tuple[float, float], tuple[float, float]],
    fewer: tuple[float, float],
    send: float,
    schedule: Schedule,
    *,
    beside: bool,
    apart: bool,
    tokens: Tokens = NO_TOKENS,
    taken: float = 0.0,
) -> tuple[float, ...]:
    """When all stages are through, or each ``apart``. [s]

    Parameters
    ----------
    stages, microbatches, pieces : int
        Of the pipeline, of an iteration, of a stage. [1]
    work : tuple of float
        What the layers of a stage take forward, backward, and of that for gradients of weights. [s]
    ends : tuple of tuples
        What the first and the last stage work besides: forward, and in all. [s]
    fewer : tuple of float
        Shares of the work of a stage that the first and the last one do not have. [1]
    send : float
        From a piece to the next, on a link ``beside`` the work of stages or by themselves. [s]
    apart : bool
        Whether what each stage does next depends on when it is through.
    tokens : tuple of tuples, optional
        What of the layers of a stage, of the first and of the last end tokens take on their way,
        forward and backward. [s]
    taken : float, optional
        Share of a chip's units that communicates. [1]
    """
    forward, backward, gradients = _passes(
        stages, pieces, work, ends, fewer, send, schedule, beside=beside
    )
    passed = []
    sent = _tokens_of(tokens, len(forward), pieces)
    for there, back, weights, own in zip(forward, backward, gradients, sent, strict=True):
        layers = Operation(
            name="layers", forward=there, backward=back, weights=min(weights, back), tokens=own
        )
        passed.append(Stage(operations=(layers,), send=send if beside else 0.0, taken=taken))
    if not apart:
        return (pipeline_time(passed, microbatches, schedule, interleave=pieces),)
    if schedule is not Schedule.GPIPE:
        return tuple(stage_ends(passed, microbatches, schedule, interleave=pieces))
    sends = [stage.send for stage in passed]
    turn = pass_time(forward, sends, microbatches)
    returned = (pass_time(backward[stage:], sends, microbatches) for stage in range(len(passed)))
    return tuple(turn + each for each in returned)


def _tokens_of(tokens: Tokens, count: int, pieces: int) -> list[tuple[float, float]]:
    """Return what tokens of so many pieces take on their way, forward and backward. [s]"""
    layers, first, last = tokens
    found = [(layers[0] / pieces, layers[1] / pieces)] * count
    for at, end in ((0, first), (-1, last)):
        found[at] = found[at][0] + end[0], found[at][1] + end[1]
    return found


def uneven_ends_of_many(
    stages: int,
    microbatches: int,
    pieces: int,
    work: tuple[Any, Any, Any],
    ends: tuple[tuple[Any, Any], tuple[Any, Any]],
    fewer: tuple[float, float],
    send: Any,
    schedule: Schedule,
    *,
    beside: bool,
) -> Floats:
    """When each stage is through, of many pipelines, shape (stages, pipelines). [s]

    Parameters are those of `uneven_ends`, whose times are arrays here; not of GPipe, whose two
    directions never meet.
    """
    forward, backward, gradients = _passes(
        stages, pieces, work, ends, fewer, send, schedule, beside=beside
    )
    weights = [np.minimum(own, back) for own, back in zip(gradients, backward, strict=True)]
    rows: list[Any] = []
    for there, back, own in zip(forward, backward, weights, strict=True):
        rows += [there, back, back - own, own, send if beside else 0.0]
    times = np.stack(np.broadcast_arrays(*rows))
    many = max(AT_ONCE // (microbatches * len(rows)), 1)
    found = [
        stage_ends_of_many(times[:, at : at + many], microbatches, schedule, interleave=pieces)
        for at in range(0, times.shape[1], many)
    ]
    return np.concatenate(found, axis=1)


def _passes(
    stages: int,
    pieces: int,
    work: tuple[Any, Any, Any],
    ends: tuple[tuple[Any, Any], tuple[Any, Any]],
    fewer: tuple[float, float],
    send: Any,
    schedule: Schedule,
    *,
    beside: bool,
) -> tuple[list[Any], list[Any], list[Any]]:
    """Return what each piece takes forward, backward, and at most for gradients of weights. [s]"""
    count = stages * pieces
    sent = 0.0 if beside else send
    held = [1.0 / pieces] * count
    held[0], held[-1] = held[0] - fewer[0], held[-1] - fewer[-1]
    forward = [work[0] * share + sent for share in held[:-1]] + [work[0] * held[-1]]
    backward = [work[1] * held[0]] + [work[1] * share + sent for share in held[1:]]
    if schedule is Schedule.ZB_V:  # a chip hands on to its own second piece
        forward[stages - 1] -= sent
        backward[stages] -= sent
    for stage, (there, both) in zip((0, -1), ends, strict=True):
        forward[stage] = forward[stage] + there
        backward[stage] = backward[stage] + (both - there)
    return forward, backward, [work[2] * share for share in held]
