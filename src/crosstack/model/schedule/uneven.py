"""Stages that are alike but for the first and the last, which have an end of the model besides."""

from __future__ import annotations

from functools import lru_cache

from crosstack.model.schedule.closed import pass_time
from crosstack.model.schedule.passes import Operation, Stage
from crosstack.model.schedule.pipeline import pipeline_time, stage_ends
from crosstack.workload.transformer_training import Schedule


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
    """
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
        forward[stage] += there
        backward[stage] += both - there
    passed = []
    for there, back, share in zip(forward, backward, held, strict=True):
        weights = min(work[2] * share, back)
        layers = Operation(name="layers", forward=there, backward=back, weights=weights)
        passed.append(Stage(operations=(layers,), send=send if beside else 0.0))
    if not apart:
        return (pipeline_time(passed, microbatches, schedule, interleave=pieces),)
    if schedule is not Schedule.GPIPE:
        return tuple(stage_ends(passed, microbatches, schedule, interleave=pieces))
    sends = [stage.send for stage in passed]
    turn = pass_time(forward, sends, microbatches)
    returned = (pass_time(backward[stage:], sends, microbatches) for stage in range(count))
    return tuple(turn + each for each in returned)
