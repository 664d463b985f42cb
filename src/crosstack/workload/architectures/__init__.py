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
from crosstack.workload.architectures.residual import ResidualNetwork
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.architectures.unet import UNet

ImageModel = ResidualNetwork | UNet
Model = Transformer | ImageModel

__all__ = [
    "Activation", "AttentionKind", "Experts", "FlopCount", "ImageModel", "LatentAttention",
    "LayerKind", "Model", "Norm", "NormPlace", "ParameterCount", "Position", "ResidualNetwork",
    "Transformer", "UNet", "mean_keys",
]  # fmt: skip
