"""What an LSTM language model keeps on a chip of every stage, and whether it fits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from crosstack.errors import InfeasibleError
from crosstack.evaluate.step_settings import StepSettings
from crosstack.mapping.strategy import KernelSplit, Strategy
from crosstack.model.memory import (
    ROWS,
    MemoryAccount,
    StageMemory,
)
from crosstack.units import format_quantity
from crosstack.workload.lstm import LstmModel

__all__ = [
    "Elements",
    "check_capacity",
    "lstm_elements",
    "lstm_memory",
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
