"""What a chip keeps in the paper and in the releases.

The releases keep weights without gradients or optimizer, and activations; they report it and go on,
whether it fits or not.
"""

from __future__ import annotations

import math
from dataclasses import replace

from crosstack.evaluate.step_settings import StepSettings
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.model.memory_account import ROWS, MemoryAccount, StageMemory
from crosstack.workload.lstm import LstmModel
from crosstack.workload.optimizer import OPTIMIZERS
from crosstack.workload.transformer_training import TransformerTraining


def lstm_parts_memory(
    model: LstmModel, strategy: Strategy, element_size: float
) -> dict[str, StageMemory]:
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
    weights = {
        "embedding": math.ceil(v / inner) * own,
        "cells": (math.ceil(2 * d / inner) + 1) * gates * held,
        "softmax": (math.ceil(d / inner) + 1) * spoken,
    }
    activations = (b * words * own, b * gates * words * held, b * words * spoken)
    buffers = (0.0, 4.5 * b * gates * held * words, 2 * b * words * spoken + b * words)
    return {
        name: StageMemory(
            weights=weights[name] * element_size,
            activations=kept * element_size,
            buffers=made * element_size,
        )
        for name, kept, made in zip(weights, activations, buffers, strict=True)
    }


def _together(*parts: StageMemory) -> StageMemory:
    """Return what one chip holds of all parts."""
    return StageMemory(**{row: sum(getattr(part, row) for part in parts) for row in ROWS})


def trained_account(
    model: LstmModel, strategy: Strategy, element_size: float, settings: StepSettings
) -> MemoryAccount:
    """Return what a model keeps on a chip of every stage while it is trained, as the paper has it.

    Parameters
    ----------
    model, strategy
        What is trained, and what spreads it.
    element_size : float
        Of weights, gradients and activations. [B]
    settings : StepSettings
        State of the optimizer.
    """
    optimizer = settings.optimizer or OPTIMIZERS["adamw"]
    embedding, cells, softmax = (
        replace(
            part,
            gradients=part.weights,
            optimizer_state=part.weights / element_size * optimizer.state,
        )
        for part in lstm_parts_memory(model, strategy, element_size).values()
    )
    match strategy.lp:
        case 1:
            return MemoryAccount.of((_together(embedding, cells, softmax),))
        case 2:
            return MemoryAccount.of((_together(embedding, cells), softmax))
        case stages:
            return MemoryAccount.of((embedding, *(cells,) * (stages - 2), softmax))


def lstm_account(model: LstmModel, strategy: Strategy, element_size: float) -> MemoryAccount:
    """Return the parts as stages; of a pipeline without the softmax, of less than four none."""
    parts = lstm_parts_memory(model, strategy, element_size)
    if strategy.lp == 1:
        return MemoryAccount.of((_together(*parts.values()),))
    if strategy.lp < 4:
        return MemoryAccount.of((StageMemory(),))
    return MemoryAccount.of((parts["embedding"], parts["cells"]))


def transformer_account(
    job: TransformerTraining, strategy: Strategy, element_size: float
) -> MemoryAccount:
    """Return what a transformer keeps on the first and the last stage.

    Activations are those of a layer with everything kept (``korthikanti2023reducing``, equation 1).

    References
    ----------
    korthikanti2023reducing, equation 1
    """
    s, model = strategy, job.model
    chips = s.kp1 * s.kp2
    weight_chips = s.kp1 if s.split is KernelSplit.CR else s.kp2
    tokens = math.ceil(job.batch / s.dp) * job.sequence
    weights = model.attention_weights + model.feed_forward_weights(model.feed_forward)
    layer = weights / weight_chips * element_size
    table = model.vocabulary * model.hidden / weight_chips * element_size
    kept = 17 + 2.5 * model.heads * job.sequence / model.hidden
    each = kept * tokens * model.hidden * element_size / chips
    loss = 2 * tokens * model.vocabulary * element_size / chips
    held = math.ceil(model.layers / s.lp)
    # Layers, embeddings and heads.
    stages = [(held, 1, 1)] if s.lp == 1 else [(held, 1, 0), (model.layers // s.lp, 0, 1)]
    return MemoryAccount.of(
        tuple(
            StageMemory(
                weights=n * layer + (tables + heads) * table,
                activations=n * each,
                logits=heads * loss,
            )
            for n, tables, heads in stages
        )
    )
