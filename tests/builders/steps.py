"""Training steps of shapes that tests make up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

from crosstack.workload.architectures import Activation, Norm, Transformer
from crosstack.workload.transformer_training import TransformerTraining


def plain(*, hidden, heads, layers=1, feed_forward=None, vocabulary=1, name="plain"):
    """Return the shape of a GPT without biases, its table and its head apart."""
    return Transformer(
        hidden=hidden, heads=heads, kv_heads=heads, head_size=hidden // heads, layers=layers,
        feed_forward=feed_forward or 4 * hidden, vocabulary=vocabulary, context=2048, gated=False,
        activation=Activation.GELU, norm=Norm.LAYER, name=name,
    )  # fmt: skip


def reshaped(job: TransformerTraining, **shape) -> TransformerTraining:
    """Return the same step of a model of another shape."""
    return replace(job, model=replace(job.model, **shape))


def counted(times):
    """Return rules by which kernels take what ``times`` says, for programs of releases."""
    kernels = SimpleNamespace(times=lambda chip, dtype: times)
    return SimpleNamespace(clock=SimpleNamespace(kernels=kernels))
