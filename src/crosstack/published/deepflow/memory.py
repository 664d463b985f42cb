"""What the releases say a chip keeps: weights without gradients or optimizer, and activations.

They report it and go on, whether it fits or not.
"""

from __future__ import annotations

import math

from crosstack.evaluate.footprint import Footprint
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.workload.lstm import LstmModel
from crosstack.workload.transformer_training import TransformerTraining

__all__ = ["lstm_memory", "transformer_memory"]


def lstm_memory(model: LstmModel, strategy: Strategy, word: float) -> Footprint:
    """Return what an LSTM language model keeps on the fullest chip.

    With stages the softmax is left out, and with fewer than four everything is.

    References
    ----------
    deepflow_code
    """
    s, d, v, length = strategy, model.width, model.vocabulary, model.sequence
    cr = s.split is KernelSplit.CR
    rows, columns, inner = (1, 1, s.kp1) if cr else (s.kp1, s.kp2, 1)
    b = math.ceil(math.ceil(model.batch / s.dp) / rows)
    held = model.layers if s.lp == 1 else math.ceil(model.layers / max(s.lp - 2, 1))
    gates, words = math.ceil(model.gates * d / columns), math.ceil(v / columns)
    own = math.ceil(d / columns)
    # Each as activations, weights, what elementwise kernels keep; in words.
    parts = {
        "embedding": (b * length * own, math.ceil(v / inner) * own, 0.0),
        "cells": (
            b * gates * length * held,
            (math.ceil(2 * d / inner) + 1) * gates * held,
            4.5 * b * gates * held * length,
        ),
        "softmax": (
            b * length * words,
            (math.ceil(d / inner) + 1) * words,
            2 * b * length * words + b * length,
        ),
    }
    totals = {name: float(sum(n * word for n in part)) for name, part in parts.items()}
    piped = max(totals["embedding"], totals["cells"]) if s.lp > 3 else 0.0
    activations, weights, scratch = (
        float(sum(part[i] * word for part in parts.values())) for i in range(3)
    )
    return Footprint(
        total=sum(totals.values()) if s.lp == 1 else piped,
        weights=weights,
        activations=activations,
        scratch=scratch,
        parts=totals,
    )


def transformer_memory(model: TransformerTraining, strategy: Strategy, word: float) -> Footprint:
    """Return what a transformer keeps on the fullest chip.

    Activations are those of a layer with everything kept; see
    `crosstack.evaluate.footprint.transformer_footprint`.

    References
    ----------
    korthikanti2023reducing, equation 1
    """
    s = strategy
    chips = s.kp1 * s.kp2
    weight_chips = s.kp1 if s.split is KernelSplit.CR else s.kp2
    tokens = math.ceil(model.batch / s.dp) * model.sequence
    layer = model.layer_parameters / weight_chips * word
    table = model.vocabulary * model.hidden / weight_chips * word
    kept = 17 + 2.5 * model.heads * model.sequence / model.hidden
    each = kept * tokens * model.hidden * word / chips
    loss = 2 * tokens * model.vocabulary * word / chips
    held = math.ceil(model.layers / s.lp)
    # Layers, embeddings and heads of the stages that may be the fullest.
    stages = [(held, 1, 1)] if s.lp == 1 else [(held, 1, 0), (model.layers // s.lp, 0, 1)]
    found = [
        Footprint(
            total=n * (layer + each) + (tables + heads) * table + heads * loss,
            weights=n * layer + (tables + heads) * table,
            activations=n * each,
            scratch=heads * loss,
            parts={"layers": held * (layer + each), "embedding": table, "head": table + loss},
        )
        for n, tables, heads in stages
    ]
    return max(found, key=lambda footprint: footprint.total)
