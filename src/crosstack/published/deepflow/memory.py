"""What the releases say a chip keeps: weights without gradients or optimizer, and activations.

They report it and go on, whether it fits or not.
"""

from __future__ import annotations

import math

from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.model.memory import MemoryAccount, StageMemory
from crosstack.published.deepflow.paper_memory import lstm_elements
from crosstack.workload.lstm import LstmModel
from crosstack.workload.transformer_training import TransformerTraining

__all__ = ["lstm_account", "lstm_parts_memory", "transformer_account"]


def lstm_parts_memory(
    model: LstmModel, strategy: Strategy, element_size: float
) -> dict[str, StageMemory]:
    """Return what each part of an LSTM language model takes of a chip.

    References
    ----------
    deepflow_code
    """
    return {
        name: StageMemory(
            activations=count.activations * element_size,
            weights=count.weights * element_size,
            buffers=count.buffers * element_size,
        )
        for name, count in lstm_elements(model, strategy).items()
    }


def lstm_account(model: LstmModel, strategy: Strategy, element_size: float) -> MemoryAccount:
    """Return the parts as stages; of a pipeline without the softmax, of less than four none."""
    parts = lstm_parts_memory(model, strategy, element_size)
    if strategy.lp == 1:
        whole = StageMemory(
            weights=sum(part.weights for part in parts.values()),
            activations=sum(part.activations for part in parts.values()),
            buffers=sum(part.buffers for part in parts.values()),
        )
        return MemoryAccount.of((whole,))
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
