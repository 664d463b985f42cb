"""What a training step keeps in the main memory of one chip, and whether that fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crosstack.errors import InfeasibleError
from crosstack.evaluate.step_settings import StepSettings
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.units import format_quantity
from crosstack.workload.lstm import LstmModel
from crosstack.workload.transformer_training import (
    Exchange,
    Recompute,
    Schedule,
    TransformerTraining,
)

__all__ = [
    "Footprint",
    "check_capacity",
    "lstm_footprint",
    "scores_do_not_fit",
    "transformer_footprint",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Bytes on the fullest chip, by what they are, and by the part of the model. [B]

    ``weights`` with gradients and the optimizer's state; ``activations`` kept for the backward
    pass; ``scratch``, what elementwise kernels keep.
    """

    total: float
    weights: float
    activations: float
    scratch: float
    parts: dict[str, float]


def check_capacity(
    footprint: Footprint,
    capacity: float,
    where: str,
    instead: Callable[[], Mapping[str, Footprint]] = dict,
) -> None:
    """Refuse a step that does not fit; ``instead`` names other ways to run it.

    Raises
    ------
    InfeasibleError
        Naming the memory, what is needed and what would make it fit.
    """
    if footprint.total <= capacity:
        return
    ratio = footprint.total / capacity
    ways = tuple(
        f"{name}, {format_quantity(other.total, 'B', like=capacity)} a chip"
        for name, other in instead().items()
        if other.total < footprint.total
    )
    raise InfeasibleError(
        resource="main memory",
        demand=footprint.total,
        limit=capacity,
        unit="B",
        where=where,
        levers=(
            *ways,
            f"{math.ceil(ratio)} times the chips for kernel or pipeline parallelism",
            "more data-parallel chips or a smaller batch, for activations of "
            + format_quantity(footprint.activations + footprint.scratch, "B", like=capacity),
            f"memory of {format_quantity(footprint.total, 'B', like=capacity)} a chip",
        ),
    )


def scores_do_not_fit(
    model: TransformerTraining,
    strategy: Strategy,
    word: float,
    capacity: float,
    settings: StepSettings | None = None,
) -> InfeasibleError | None:
    """Return the error of a step whose attention scores alone exceed a chip's memory, or None.

    Notes
    -----
    The scores of one layer and microbatch, ``sequences heads s^2`` words over the chips of a kernel
    split, are written and read again; of as many microbatches as a chip works on at a time. A
    kernel that keeps none of them (``dao2022flashattention``) is not modelled, so no step of such a
    length can be timed.

    References
    ----------
    dao2022flashattention
    """
    chips = strategy.kp1 * strategy.kp2
    batch = max(1, math.ceil(model.batch / strategy.dp) // model.microbatches)
    batch *= _at_once(model, settings or StepSettings())
    each = model.heads * float(model.sequence) ** 2 * word / chips  # of one sequence
    demand = batch * each
    if demand <= capacity:
        return None
    levers = []
    if each <= capacity:
        levers.append(
            f"more microbatches: at most {int(capacity / each)} of {batch} sequences at a time"
        )
    wider = chips * 2 ** math.ceil(math.log2(demand / capacity))
    if model.heads % wider == 0:
        levers.append(f"heads over {wider} chips, such as RC-1-{wider}-d1-p1")
    shorter = math.isqrt(int(model.sequence**2 * capacity / demand))
    held = format_quantity(demand, "B", like=capacity)
    return InfeasibleError(
        resource="main memory",
        demand=demand,
        limit=capacity,
        unit="B",
        where=f"keeping the attention scores of {model.name} under {strategy}, {batch} x "
        f"{model.heads:,} heads x {model.sequence:,} x {model.sequence:,} tokens over {chips} "
        f"chip{'s' * (chips > 1)} (fused attention, which keeps none, is not modelled),",
        levers=(*levers, f"sequences of at most {shorter:,} tokens", f"memory of {held} a chip"),
    )


def lstm_footprint(
    model: LstmModel, strategy: Strategy, word: float, settings: StepSettings
) -> Footprint:
    """Return what an LSTM language model keeps on the fullest chip.

    Notes
    -----
    Embedding, cells and softmax keep their outputs (``B S D``, ``B S G D L``, ``B S V``), their
    weights (``V D``, ``(2 D + 1) G D L``, ``(D + 1) V``) and what elementwise kernels make (4.5
    words a gate; ``2 B S V + B S``). RC splits the batch by kp1 and outputs by kp2, CR the rows of
    weights by kp1. Stages hold the embedding, the layers evenly, and the softmax.

    References
    ----------
    deepflow_code
    """
    s = strategy
    b = math.ceil(model.batch / s.dp)
    rows, columns, inner = 1, 1, 1
    if s.split is KernelSplit.RC:
        rows, columns = s.kp1, s.kp2
    else:
        inner = s.kp1
    b = math.ceil(b / rows)
    held = model.layers
    if s.lp > 1:
        held = math.ceil(model.layers / (s.lp - 2 if s.lp > 2 else 1))
    d, g, v = model.width, model.gates, model.vocabulary
    per_weight = 2 * word + settings.optimizer_bytes
    wide, words = math.ceil(g * d / columns), math.ceil(v / columns)
    columns_d, length = math.ceil(d / columns), model.sequence
    # Each as activations, weights, scratch.
    cells = (
        b * wide * length * held * word,
        (math.ceil(2 * d / inner) + 1) * wide * held * per_weight,
        4.5 * b * wide * held * length * word,
    )
    softmax = (
        b * length * words * word,
        (math.ceil(d / inner) + 1) * words * per_weight,
        (2 * b * length * words + b * length) * word,
    )
    table = math.ceil(v / inner) * columns_d
    embedding = (b * length * columns_d * word, table * per_weight, 0.0)
    parts = {"embedding": embedding, "cells": cells, "softmax": softmax}
    totals = {name: float(sum(part)) for name, part in parts.items()}
    if s.lp == 1:
        total = sum(totals.values())
    elif s.lp == 2:
        total = max(totals["embedding"] + totals["cells"], totals["softmax"])
    else:
        total = max(totals.values())
    return Footprint(
        total=total,
        activations=float(sum(part[0] for part in parts.values())),
        weights=float(sum(part[1] for part in parts.values())),
        scratch=float(sum(part[2] for part in parts.values())),
        parts=totals,
    )


def _at_once(model: TransformerTraining, settings: StepSettings) -> int:
    """Return the microbatches that a chip works on at a time. [1]"""
    return min(settings.kernels_at_once, model.microbatches)


def transformer_footprint(
    model: TransformerTraining, strategy: Strategy, word: float, settings: StepSettings
) -> Footprint:
    """Return what a transformer keeps on the fullest chip.

    Notes
    -----
    A layer keeps ``s b h (17 + 2.5 a s / h)`` words of a batch of b for its backward pass, spread
    over the chips of a kernel split, but that every chip has 5 of the 17 where products are paired
    and tokens are not spread; without those of attention, ``17 s b h``, or with its input alone,
    ``s b h``, where the rest is computed again, one layer of one microbatch at a time. GPipe keeps
    all microbatches until the pipeline turns round. With one forward, one backward a stage keeps as
    many as there are stages from itself to the last; interleaved v-fold, the first of p keeps
    ``1 + (p - 1) / (p v)`` times as much. A chip that runs k kernels at a time begins k - 1 more.
    The head keeps its output and the loss's, two words for each token of each position. Embedding
    and head are on the first and the last stage.

    References
    ----------
    korthikanti2023reducing, equations 1, 2 and 4, for activations; huang2019gpipe and
    narayanan2021megatron for microbatches
    """
    s = strategy
    chips = s.kp1 * s.kp2
    batch = math.ceil(model.batch / s.dp)
    tokens = batch * model.sequence
    held = math.ceil(model.layers / s.lp)  # by the first stage; the last may have one less
    per_weight = 2 * word + settings.optimizer_bytes
    # Rows of RC hold every weight of their column.
    weight_chips = s.kp1 if s.split is KernelSplit.CR else s.kp2
    layer = model.layer_parameters / weight_chips * per_weight
    ends = model.vocabulary * model.hidden / weight_chips * per_weight
    attention = 2.5 * model.heads * model.sequence / model.hidden
    # Words of a token and unit of width, times chips where every chip has them.
    every = chips if model.exchange is Exchange.PAIRED else 1
    others = 5 * every + 12
    # What is kept, and what there is of one layer while it is computed again.
    kept, anew = {
        Recompute.NONE: (others + attention, 0.0),
        Recompute.ATTENTION: (others, attention),
        Recompute.FULL: (every, others + attention),
    }[model.recompute]
    wide = tokens * model.hidden * word / chips
    at_once = _at_once(model, settings)
    each, again = kept * wide, anew * wide / model.microbatches * at_once
    head = 2 * tokens * model.vocabulary * word / chips
    if model.schedule is Schedule.ONE_F_ONE_B:  # the last stage turns every microbatch round
        head *= at_once / model.microbatches

    m, v = model.microbatches, model.interleave

    def flying(stages_on: int) -> float:
        """Return which part of the microbatches a stage keeps; ``stages_on`` counts itself."""
        if model.schedule is Schedule.GPIPE:
            return 1.0
        if v == 1:
            return min(stages_on + at_once - 1, m) / m
        return min(2 * stages_on - 1 + (v - 1) * s.lp + at_once - 1, v * m) / (v * m)

    parts = {
        "layers": held * (layer + each * flying(s.lp)) + again,
        "embedding": ends,
        "head": ends + head,
    }
    # Layers, embeddings, heads and stages from there on, of the stages that may be the fullest.
    few = model.layers // s.lp
    stages = [(held, 1, 1, 1)] if s.lp == 1 else [(held, 1, 0, s.lp), (few, 0, 1, 1)]
    found = [
        Footprint(
            total=n * (layer + each * flying(on)) + again + (tables + heads) * ends + heads * head,
            weights=n * layer + (tables + heads) * ends,
            activations=n * each * flying(on) + again,
            scratch=heads * head,
            parts=parts,
        )
        for n, tables, heads, on in stages
    ]
    return max(found, key=lambda footprint: footprint.total)
