"""Writing tokens as DFModel's runs write it down: what each chip reads is traffic of kernels."""

from __future__ import annotations

from dataclasses import replace

from crosstack.errors import require_whole
from crosstack.workload import serving
from crosstack.workload.architectures import Transformer
from crosstack.workload.kernels import ComputeUnit, Kernel
from crosstack.workload.workload import Workload

__all__ = ["decode"]


def decode(
    model: Transformer,
    *,
    context: int,
    tokens: int = 1,
    global_batch_size: int = 1,
    word: int = 2,
    chips: int | None = None,
) -> Workload:
    """Return one step of writing, as `crosstack.workload.serving.decode`.

    Parameters
    ----------
    model, context, tokens, global_batch_size, word
        As there.
    chips : int, optional
        Tensor-parallel chips: the weights, keys and values that each of them reads become
        `Kernel.memory_traffic`, and its part of the cache lies on the chip and in main memory. For
        rules that do not count reading weights. Keys and values are worked on in the systolic
        array, old ones too. Left out, the cache is `Kernel.cache_size`. [1]

    References
    ----------
    dfmodel_code
    """
    made = serving.decode(
        model, context=context, tokens=tokens, global_batch_size=global_batch_size, word=word
    )
    if chips is None:
        return made
    require_whole("chips", chips)
    kernels = tuple(_spread(kernel, context + tokens, chips) for kernel in made.graph.kernels)
    return replace(made, graph=made.graph.listing(kernels=kernels))


def _spread(kernel: Kernel, reach: int, chips: int) -> Kernel:
    """Write down what each of ``chips`` chips reads and keeps of a kernel."""
    if kernel.cache_size:
        kernel = replace(kernel, n=reach, unit=ComputeUnit.SYSTOLIC)
    kept = kernel.cache_size / chips
    return replace(
        kernel,
        cache_size=0.0,
        memory_traffic=(kernel.weight_size + kernel.cache_size) / chips,
        sram_extra=kept,
        memory_extra=kept,
    )
