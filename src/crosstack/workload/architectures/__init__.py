"""Architectures: the records from which graphs of a whole family of models are made."""

from __future__ import annotations

from crosstack.workload.architectures.counts import FlopCount, ParameterCount, mean_keys
from crosstack.workload.architectures.layer import (
    Activation,
    AttentionKind,
    Experts,
    LatentAttention,
    LayerKind,
    Norm,
    NormPlace,
    Position,
)
from crosstack.workload.architectures.transformer import Transformer

__all__ = [
    "Activation", "AttentionKind", "Experts", "FlopCount", "LatentAttention", "LayerKind", "Norm",
    "NormPlace", "ParameterCount", "Position", "Transformer", "mean_keys",
]  # fmt: skip
