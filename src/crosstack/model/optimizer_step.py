"""What an iteration of training ends with: gradients are summed, weights updated and sent round.

The chips that hold the same layers of different data sum their gradients once an iteration, each
layer's as a *bucket* of its own, while the backward pass of the last microbatch goes on, or behind
it. All chips know the norm of all gradients before one updates its weights, so the slowest sum is
waited for. Where each chip updates a part of the weights (``rajbhandari2020zero``), they are sent
round then, before the first microbatch of the next iteration needs them or beside it.

All are *paths* of `crosstack.model.iteration`: times the work W of a stage for one microbatch, and
seconds beside it; of each group of them the longest counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Path = tuple[Any, Any]  # how often the work of a stage [1], and beside it [s]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerStep:
    """What stages do once an iteration; numbers, or arrays of many pipelines.

    ``sums`` is how long the gradients of all layers of a stage take, ``first`` and ``last`` those
    of what the first and the last stage have besides, the last one's with the first one's where
    they are one; ``update`` is the update of the slowest stage, ``gather`` sending round the
    weights of all layers of a stage, ``before`` and ``behind`` those of its ends [s].
    ``overlapped``: whether layers are summed while others run backward, ``ahead``: whether they are
    sent round while others run forward; else all at once, and nothing runs meanwhile.
    """

    sums: Any = 0.0
    first: Any = 0.0
    last: Any = 0.0
    update: Any = 0.0
    gather: Any = 0.0
    before: Any = 0.0
    behind: Any = 0.0
    overlapped: bool = True
    ahead: bool = True

    @property
    def summed(self) -> Any:
        """How long all sums take. [s]"""
        return self.sums + self.first + self.last


NO_STEP = OptimizerStep()


def summing_paths(
    step: OptimizerStep,
    *,
    stages: Any,
    layers: Any,
    pieces: Any,
    held: Any,
    taken: float,
    backward: Any,
    lead: Any,
    sent: Any,
    ended: Any,
) -> tuple[Path, ...]:
    """Return how long after the last backward pass gradients are summed.

    The first stage is through last. Its first bucket can be sent once one layer of the last
    microbatch is through; each other piece of a stage is through p passes of a piece earlier at
    least, so that is the longest it takes. While buckets are summed beside passes, those have a
    share ``1 - x`` of the chip and take ``x`` times as long more.

    What another stage is late, so is the first one. So the others sum the last piece behind their
    last pass, which ends earlier by a pass each, and other pieces when the first stage does, all
    slowed at the same time (``nvidia_megatron_core``, its aligned launch of sums).

    Parameters
    ----------
    stages, layers, pieces : int or array
        Of the pipeline, of a stage, of a stage. [1]
    held : float or array
        Share of those layers that the first stage has. [1]
    taken : float
        x, the share of a chip's units that sums take. [1]
    backward : float or array
        Share of the work of a stage that the backward pass is. [1]
    lead : float or array
        Share of it that is the first layer of a piece to run backward, of layers that never take
        less than those before. [1]
    sent : float or array
        What sends take from the last stage to the first, behind the last one's pass. [s]
    ended : float or array
        What the first stage works in its last pass behind its layers. [s]
    """
    one = backward / pieces  # a pass of a piece
    early = (stages - 1) * one
    if not step.overlapped:
        return (0.0, step.sums + step.first), (-early, step.sums + step.last - sent)
    alone = np.equal(stages, 1)
    begun, before = held * one - lead, (pieces - 1) * stages * one
    own, bucket = held * step.sums, step.sums / layers
    heads = (step.last - step.first) * alone
    return (
        (0.0, bucket + step.first + taken * (own - bucket + heads)),
        (-begun, own / pieces + step.first - ended + taken * (own - own / pieces)),
        (-begun - before, own + step.first - ended),
        (
            -np.where(alone, begun, np.maximum(early, before)),
            own * alone + step.sums * (1 - alone) + step.last - np.where(alone, ended, sent),
        ),
    )


def gathering_paths(
    step: OptimizerStep,
    *,
    stages: Any,
    layers: Any,
    pieces: Any,
    held: Any,
    taken: float,
    forward: Any,
    begun: Any,
    sent: Any,
) -> tuple[Path, ...]:
    """Return how long the first microbatch waits for weights.

    The first stage begins with its own first layer, and needs those of its first piece by the last
    layer of that; a later piece, and the head, is reached once all stages before are passed. All
    chips are sent theirs at the same time, and what runs meanwhile has ``1 - x`` of each.

    Parameters
    ----------
    stages, layers, pieces, held, taken
        As `summing_paths`. [1]
    forward : float or array
        Share of the work of a stage that the forward pass is. [1]
    begun : float or array
        What the first stage works on a microbatch before its layers. [s]
    sent : float or array
        Sending a microbatch from one piece to the next. [s]
    """
    one = forward / pieces
    reached = stages * pieces * one, begun + (stages * pieces - 1) * sent  # the head
    if not step.ahead:
        last = (stages - 1) * one, (begun + (stages - 1) * sent) * (stages > 1)
        one_stage = step.behind * (stages == 1)
        return (
            (0.0, step.gather + step.before + one_stage),
            (-last[0], step.gather + step.behind - last[1]),
        )
    within, bucket = one * (1 - pieces / layers), step.gather / layers
    own, heads = held * step.gather, step.behind * np.equal(stages, 1)
    return (
        (0.0, step.before + bucket + taken * (own - bucket + heads)),
        (
            -within,
            step.before + step.gather / pieces - begun + taken * (own - own / pieces),
        ),
        (
            -within - (pieces - 1) * stages * one,
            step.before + step.gather - begun - (pieces - 1) * stages * sent,
        ),
        (-reached[0], step.before * (stages == 1) + step.gather + step.behind - reached[1]),
    )
