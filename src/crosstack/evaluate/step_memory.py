"""What a training step keeps in the main memory of a chip of every stage, and whether it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from crosstack.errors import InfeasibleError
from crosstack.evaluate.step_settings import StepSettings
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.model.memory import (
    ROWS,
    MemoryAccount,
    StageMemory,
    in_flight,
    training_account,
)
from crosstack.units import format_quantity
from crosstack.workload.architectures import NormPlace, Transformer
from crosstack.workload.lstm import LstmModel
from crosstack.workload.transformer_training import (
    Exchange,
    Recompute,
    Schedule,
    TransformerTraining,
)

__all__ = [
    "Elements",
    "check_capacity",
    "lstm_elements",
    "lstm_memory",
    "scores_do_not_fit",
    "transformer_memory",
]


def check_capacity(
    account: MemoryAccount,
    capacity: float,
    where: str,
    instead: Callable[[], Mapping[str, MemoryAccount]] = dict,
) -> None:
    """Refuse a step that does not fit; ``instead`` names other ways to run it.

    Raises
    ------
    InfeasibleError
        Naming the memory, what is needed and what would make it fit.
    """
    if account.peak <= capacity:
        return
    fullest = account.stage(account.fullest)
    kept = fullest.activations + fullest.logits + fullest.buffers
    ways = tuple(
        f"{name}, {format_quantity(other.peak, 'B', like=capacity)} a chip"
        for name, other in instead().items()
        if other.peak < account.peak
    )
    raise InfeasibleError(
        resource="main memory",
        demand=account.peak,
        limit=capacity,
        unit="B",
        where=where,
        levers=(
            *ways,
            f"{math.ceil(account.peak / capacity)} times the chips for kernel or pipeline "
            "parallelism",
            "more data-parallel chips or a smaller batch, for activations of "
            + format_quantity(kept, "B", like=capacity),
            f"memory of {format_quantity(account.peak, 'B', like=capacity)} a chip",
        ),
    )


def scores_do_not_fit(
    job: TransformerTraining,
    strategy: Strategy,
    element_size: float,
    capacity: float,
    settings: StepSettings | None = None,
) -> InfeasibleError | None:
    """Return the error of a step whose attention scores alone exceed a chip's memory, or None.

    Notes
    -----
    The scores of one layer and microbatch, ``sequences heads s^2`` elements over the chips of a
    kernel split, are written and read again; of as many microbatches as a chip works on at a time.
    A kernel that keeps none of them (``dao2022flashattention``) is not modelled, so no step of such
    a length can be timed.

    References
    ----------
    dao2022flashattention
    """
    chips = strategy.kp1 * strategy.kp2
    batch = max(1, math.ceil(job.batch / strategy.dp) // job.microbatches)
    batch *= _at_once(job, settings or StepSettings())
    each = job.model.heads * float(job.sequence) ** 2 * element_size / chips  # of one sequence
    demand = batch * each
    if demand <= capacity:
        return None
    levers = []
    if each <= capacity:
        levers.append(
            f"more microbatches: at most {int(capacity / each)} of {batch} sequences at a time"
        )
    wider = chips * 2 ** math.ceil(math.log2(demand / capacity))
    if job.model.heads % wider == 0:
        levers.append(f"heads over {wider} chips, such as RC-1-{wider}-d1-p1")
    shorter = math.isqrt(int(job.sequence**2 * capacity / demand))
    held = format_quantity(demand, "B", like=capacity)
    return InfeasibleError(
        resource="main memory",
        demand=demand,
        limit=capacity,
        unit="B",
        where=f"keeping the attention scores of {job.name} under {strategy}, {batch} x "
        f"{job.model.heads:,} heads x {job.sequence:,} x {job.sequence:,} tokens over {chips} "
        f"chip{'s' * (chips > 1)} (fused attention, which keeps none, is not modelled),",
        levers=(*levers, f"sequences of at most {shorter:,} tokens", f"memory of {held} a chip"),
    )


def lstm_memory(
    model: LstmModel, strategy: Strategy, element_size: float, settings: StepSettings
) -> MemoryAccount:
    """Return what an LSTM language model keeps on a chip of every stage.

    Parameters
    ----------
    model : LstmModel
        What is trained.
    strategy : Strategy
        What spreads it.
    element_size : float
        Of weights, gradients and activations. [B]
    settings : StepSettings
        State of the optimizer.

    Notes
    -----
    `lstm_elements` counts them.
    """
    parts = {
        name: StageMemory(
            **_state(count.weights, element_size, settings),
            activations=count.activations * element_size,
            buffers=count.buffers * element_size,
        )
        for name, count in lstm_elements(model, strategy).items()
    }
    embedding, cells, softmax = (parts[name] for name in ("embedding", "cells", "softmax"))
    match strategy.lp:
        case 1:
            return MemoryAccount.of((_together(embedding, cells, softmax),))
        case 2:
            return MemoryAccount.of((_together(embedding, cells), softmax))
        case stages:
            return MemoryAccount.of((embedding, *(cells,) * (stages - 2), softmax))


@dataclass(frozen=True, slots=True, kw_only=True)
class Elements:
    """Numbers that a part of a model keeps: of weights, outputs and elementwise kernels. [1]"""

    weights: float
    activations: float
    buffers: float = 0.0


def lstm_elements(model: LstmModel, strategy: Strategy) -> dict[str, Elements]:
    """Return what embedding, cells and softmax of an LSTM keep on a chip of their stage.

    Notes
    -----
    Outputs are ``B S D``, ``B S G D L``, ``B S V``, weights ``V D``, ``(2 D + 1) G D L``,
    ``(D + 1) V``, and what elementwise kernels make 4.5 elements a gate; ``2 B S V + B S``. RC
    splits the batch by kp1 and outputs by kp2, CR the rows of weights by kp1. Stages hold the
    embedding, the layers evenly, and the softmax.

    References
    ----------
    deepflow_code
    """
    s, d, v, words = strategy, model.width, model.vocabulary, model.sequence
    rows, columns, inner = (1, 1, s.kp1) if s.split is KernelSplit.CR else (s.kp1, s.kp2, 1)
    b = math.ceil(math.ceil(model.batch / s.dp) / rows)
    held = model.layers if s.lp == 1 else math.ceil(model.layers / max(s.lp - 2, 1))
    gates, spoken = math.ceil(model.gates * d / columns), math.ceil(v / columns)
    own = math.ceil(d / columns)
    return {
        "embedding": Elements(weights=math.ceil(v / inner) * own, activations=b * words * own),
        "cells": Elements(
            weights=(math.ceil(2 * d / inner) + 1) * gates * held,
            activations=b * gates * words * held,
            buffers=4.5 * b * gates * held * words,
        ),
        "softmax": Elements(
            weights=(math.ceil(d / inner) + 1) * spoken,
            activations=b * words * spoken,
            buffers=2 * b * words * spoken + b * words,
        ),
    }


def _state(weights: float, element_size: float, settings: StepSettings) -> dict[str, float]:
    """Return what a number of weights takes while they are trained. [B]"""
    size = weights * element_size
    return {
        "weights": size,
        "gradients": size,
        "optimizer_state": weights * settings.optimizer_bytes,
    }


def _together(*parts: StageMemory) -> StageMemory:
    """Return what one chip holds of all parts."""
    return StageMemory(**{row: sum(getattr(part, row) for part in parts) for row in ROWS})


def _at_once(job: TransformerTraining, settings: StepSettings) -> int:
    """Return the microbatches that a chip works on at a time. [1]"""
    return min(settings.kernels_at_once, job.microbatches)


def transformer_memory(
    job: TransformerTraining, strategy: Strategy, element_size: float, settings: StepSettings
) -> MemoryAccount:
    """Return what a transformer keeps on a chip of every stage.

    Parameters
    ----------
    job : TransformerTraining
        What is trained.
    strategy : Strategy
        What spreads it.
    element_size : float
        Of weights, gradients and activations. [B]
    settings : StepSettings
        State of the optimizer, and kernels at a time.

    Notes
    -----
    Weights are those of `Transformer.parameters`, spread over the chips of a kernel split but for
    norms; a chip has at least one head of keys and values. Embedding and head are on the first and
    the last stage; a tied table is on both, once where they are one.

    `_kept` says what a layer keeps for its backward pass; without what attention computes again, or
    with its input alone, the rest is there for one layer of one microbatch at a time (of as many as
    a chip works on). `crosstack.model.memory.in_flight` says how many microbatches a stage keeps.
    The head keeps its output and the loss's, two elements for each token of each position.

    References
    ----------
    korthikanti2023reducing, equations 1, 2 and 4
    """
    s, m = strategy, job.microbatches
    chips = s.kp1 * s.kp2
    tokens = math.ceil(job.batch / s.dp) * job.sequence / m  # of a microbatch
    entrance, others, attention = _kept(job, s)
    kept, anew = {
        Recompute.NONE: (others + attention, 0.0),
        Recompute.ATTENTION: (others, attention),
        Recompute.FULL: (entrance, others + attention),
    }[job.recompute]
    share = tokens * element_size / chips
    at_once = _at_once(job, settings)
    # The last stage turns every microbatch round as it comes, or keeps all.
    turned = at_once if job.schedule is Schedule.ONE_F_ONE_B else m
    layer, table, head = _weights(job.model, s)
    ends = [StageMemory()] * s.lp
    ends[0] = StageMemory(**_state(table, element_size, settings))
    last = StageMemory(
        **_state(head, element_size, settings), logits=2 * share * job.model.vocabulary * turned
    )
    ends[-1] = _together(ends[-1], last)
    each, longer = divmod(job.model.layers, s.lp)
    return training_account(
        StageMemory(**_state(layer, element_size, settings), activations=kept * share),
        layers=[each + (stage < longer) for stage in range(s.lp)],
        flying=in_flight(
            np.arange(s.lp),
            stages=s.lp,
            microbatches=m,
            schedule=job.schedule,
            interleave=job.interleave,
            at_once=at_once,
        ).tolist(),
        again=anew * share * at_once,
        besides=ends,
    )


def _weights(model: Transformer, s: Strategy) -> tuple[float, float, float]:
    """Return the weights on a chip of one layer, of the embedding, and of the head. [1]"""
    # Rows of RC hold every weight of their column.
    chips = s.kp1 if s.split is KernelSplit.CR else s.kp2
    count, layers = model.parameters, model.layers
    copies = max(chips - model.kv_heads, 0)
    copied = 2 * copies * model.head_size * (model.hidden + model.qkv_bias)
    norms = count.norms / layers  # the last one with those of layers
    layer = ((count.attention + count.feed_forward) / layers + copied) / chips + norms
    head = count.head
    if model.tied and s.lp > 1:
        head = model.vocabulary * (model.embedding or model.hidden)
    return layer, count.embedding / chips, head / chips


def _kept(job: TransformerTraining, s: Strategy) -> tuple[float, float, float]:
    """Return what a layer keeps of a token: its input, all but attention's, attention's. [1]

    Elements, times the chips of a kernel split where all of them have one.

    Notes
    -----
    The inputs of norms and of the first products, and half an element a mask of dropout, a place of
    the width each: on every chip where products are paired and tokens are not spread. Queries, keys
    and values, before their norm too if they have one, and the weighted values; what goes into the
    activation and into the second product, and with a gate both factors: a share each. Of each
    score two elements and a mask. With two norms, heads that fill the width and ``f = 4 h`` that is
    ``s b h (34 + 5 a s / h)`` bytes of two-byte elements.
    """
    model = job.model
    every = s.kp1 * s.kp2 if job.exchange is Exchange.PAIRED else 1
    norms = {NormPlace.BOTH: 4, NormPlace.SHARED: 1}.get(model.norms, 2)
    first = 1 if model.norms is NormPlace.SHARED else 2
    heads, keys = model.heads * model.head_size, 2 * model.kv_heads * model.head_size
    normed = heads + keys / 2 if model.qk_norm else 0.0
    inside = (4 if model.gated else 2) * model.feed_forward
    others = (norms + first + 1) * model.hidden * every + 2 * heads + keys + normed + inside
    return float(model.hidden * every), others, 2.5 * model.heads * job.sequence
