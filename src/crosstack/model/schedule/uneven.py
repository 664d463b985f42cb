"""Stages that are alike but for the first and the last, which have an end of the model besides."""

from __future__ import annotations

from dataclasses import dataclass
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


@dataclass(frozen=True, slots=True, kw_only=True)
class UnevenStages:
    """Stages, and what they do of a microbatch; times are numbers, or arrays of many pipelines.

    Parameters
    ----------
    stages, microbatches, pieces : int
        Of the pipeline, of an iteration, of a stage. [1]
    work : tuple of float or array
        What the layers of a stage take forward, backward, and of that for gradients of weights. [s]
    ends : tuple of tuples
        What the first and the last stage work besides: forward, and in all. [s]
    fewer : tuple of float
        Shares of the work of a stage that the first and the last one do not have. [1]
    send : float or array
        From a piece to the next, on a link ``beside`` the work of stages or by themselves. [s]
    schedule : Schedule
        The order of passes.
    tokens : tuple of tuples, optional
        What of the layers of a stage, of the first and of the last end tokens take on their way,
        forward and backward. [s]
    taken : float, optional
        Share of a chip's units that communicates. [1]
    """

    stages: int
    microbatches: int
    pieces: int
    work: tuple[Any, Any, Any]
    ends: tuple[tuple[Any, Any], tuple[Any, Any]]
    fewer: tuple[float, float]
    send: Any
    schedule: Schedule
    beside: bool
    tokens: Tokens = NO_TOKENS
    taken: float = 0.0

    @property
    def on_links(self) -> Any:
        """What a send takes of a link. [s]"""
        return self.send if self.beside else 0.0

    def passes(self) -> tuple[list[Any], list[Any], list[Any]]:
        """Return what each piece takes forward, backward, and at most for gradients of weights. [s]

        With what a stage that sends by itself takes for that.
        """
        count, work, fewer = self.stages * self.pieces, self.work, self.fewer
        sent = 0.0 if self.beside else self.send
        held = [1.0 / self.pieces] * count
        held[0], held[-1] = held[0] - fewer[0], held[-1] - fewer[-1]
        forward = [work[0] * share + sent for share in held[:-1]] + [work[0] * held[-1]]
        backward = [work[1] * held[0]] + [work[1] * share + sent for share in held[1:]]
        if self.schedule is Schedule.ZB_V:  # a chip hands on to its own second piece
            forward[self.stages - 1] -= sent
            backward[self.stages] -= sent
        for stage, (there, both) in zip((0, -1), self.ends, strict=True):
            forward[stage] = forward[stage] + there
            backward[stage] = backward[stage] + (both - there)
        return forward, backward, [work[2] * share for share in held]

    def tokens_of_pieces(self) -> list[tuple[float, float]]:
        """Return what tokens of each piece take on their way, forward and backward. [s]"""
        layers, first, last = self.tokens
        each = layers[0] / self.pieces, layers[1] / self.pieces
        found = [each] * (self.stages * self.pieces)
        for at, end in ((0, first), (-1, last)):
            found[at] = found[at][0] + end[0], found[at][1] + end[1]
        return found


@lru_cache(maxsize=4096)
def uneven_ends(of: UnevenStages, *, apart: bool) -> tuple[float, ...]:
    """When all stages of one pipeline are through, or each ``apart``. [s]

    ``apart``: what each stage does next depends on when it is through.
    """
    forward, backward, gradients = of.passes()
    how, passed = {"interleave": of.pieces}, []
    sent = of.tokens_of_pieces()
    for there, back, weights, own in zip(forward, backward, gradients, sent, strict=True):
        layers = Operation(
            name="layers", forward=there, backward=back, weights=min(weights, back), tokens=own
        )
        passed.append(Stage(operations=(layers,), send=of.on_links, taken=of.taken))
    if not apart:
        return (pipeline_time(passed, of.microbatches, of.schedule, **how),)
    if of.schedule is not Schedule.GPIPE:
        return tuple(stage_ends(passed, of.microbatches, of.schedule, **how))
    sends = [stage.send for stage in passed]
    turn = pass_time(forward, sends, of.microbatches)
    returned = (pass_time(backward[s:], sends, of.microbatches) for s in range(len(passed)))
    return tuple(turn + each for each in returned)


def uneven_ends_of_many(of: UnevenStages) -> Floats:
    """When each stage is through, of many pipelines, shape (stages, pipelines). [s]

    Not of GPipe, whose two directions never meet.
    """
    forward, backward, gradients = of.passes()
    weights = [np.minimum(own, back) for own, back in zip(gradients, backward, strict=True)]
    rows: list[Any] = []
    for there, back, own in zip(forward, backward, weights, strict=True):
        rows += [there, back, back - own, own, of.on_links]
    times = np.stack(np.broadcast_arrays(*rows))
    count, schedule = of.microbatches, of.schedule
    many = max(AT_ONCE // (count * len(rows)), 1)
    found = [
        stage_ends_of_many(times[:, at : at + many], count, schedule, interleave=of.pieces)
        for at in range(0, times.shape[1], many)
    ]
    return np.concatenate(found, axis=1)
