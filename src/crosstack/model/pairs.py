"""Stages whose passes run together, while tokens are on their way to experts: what each takes."""

from __future__ import annotations

from typing import Any

from crosstack.machine.chip import Overlap
from crosstack.model.schedule.dual import DualWork, dual_through
from crosstack.model.schedule.uneven import Tokens
from crosstack.model.stages import Pipeline


def token_times(pipeline: Pipeline) -> Tokens:
    """Return what tokens take on their way, of a stage and of both ends, there and back. [s]"""
    whole, share = float(pipeline.tokens[1]), float(pipeline.tokens_forward)
    (first, both), (last, all_) = pipeline.first_tokens, pipeline.last_tokens
    ends = (float(first), float(both - first)), (float(last), float(all_ - last))
    return (whole * share, whole * (1 - share)), *ends


def from_both_ends(pipeline: Pipeline, work: float) -> float:
    """Time of an iteration whose microbatches enter at both ends. [s]

    Chips sum gradients when they are through, as both of their stages are at the same time; those
    of the ends, which the first chip has, come last. ``work`` is that of the fullest stage on a
    microbatch. [s]
    """
    step = pipeline.step
    through = dual_through(dual_work(pipeline, work), int(pipeline.microbatches))
    summed = [end + float(step.sums) for end in through]
    summed[0] += float(step.first)
    return max(summed) + float(step.update) + float(step.gather + step.before)


def dual_work(pipeline: Pipeline, work: float) -> DualWork:
    """Return what stages whose chips have two each do, of a pipeline of one plan. [s]"""
    share, (there, returned) = float(pipeline.forward), token_times(pipeline)[0]
    (first, begun), (last, ended) = pipeline.first, pipeline.last
    send, beside = float(pipeline.transfer) / 2, pipeline.overlap is Overlap.ALL
    own = 0.0 if beside else send  # a stage that sends by itself works on that, too

    def stage(
        fewer: Any, ends: tuple[Any, Any], sent: tuple[Any, Any], *, on: bool, back: bool
    ) -> tuple[float, ...]:
        """Forward, backward, and of that for weights; tokens forward, backward. [s]"""
        held = 1 - float(fewer)
        return (
            held * work * share + float(ends[0]) + own * on,
            held * work * (1 - share) + float(ends[1] - ends[0]) + own * back,
            held * work * float(pipeline.weight_gradients),
            held * there + float(sent[0]),
            held * returned + float(sent[1] - sent[0]),
        )

    return DualWork(
        stages=int(pipeline.stages),
        first=stage(pipeline.fewer[0], (first, begun), pipeline.first_tokens, on=True, back=False),
        inner=stage(0.0, (0.0, 0.0), (0.0, 0.0), on=True, back=True),
        last=stage(pipeline.fewer[1], (last, ended), pipeline.last_tokens, on=False, back=True),
        send=send * beside,
        taken=pipeline.taken,
    )
