"""Kernels and edges as generators write them down: a line each."""

from __future__ import annotations

from collections.abc import Iterable

from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.kernels import (
    Axis,
    Collective,
    Communication,
    ComputeUnit,
    Consumer,
    Direction,
    Kernel,
    KernelKind,
    Tensor,
)

__all__ = ["MOST_KERNELS", "elementwise", "join", "product_of"]

MOST_KERNELS = 100_000  # that a generator makes: a mistyped number is no week of waiting


def elementwise(
    name: str,
    m: int,
    n: int,
    *,
    outer: int = 1,
    word: int,
    inputs: int = 1,
    direction: Direction = Direction.FORWARD,
    row_wise: bool = False,
) -> Kernel:
    """Return an elementwise kernel on ``outer`` x M x N elements of ``word`` bytes."""
    size = float(outer * m * n * word)
    return Kernel(
        name=name,
        kind=KernelKind.ELEMENTWISE if inputs == 1 else KernelKind.ELEMENTWISE_2,
        outer=outer,
        m=m,
        n=n,
        input_sizes=(size,) * inputs,
        output_size=size,
        unit=ComputeUnit.SIMD,
        direction=direction,
        row_wise=row_wise,
    )


def product_of(
    name: str,
    shape: tuple[int, int, int, int],
    *,
    word: int,
    input_sizes: tuple[float, ...],
    weight_size: float = 0.0,
    direction: Direction = Direction.FORWARD,
    weight_update: bool = False,
) -> Kernel:
    """Return a product of ``shape`` (outer, M, K, N); ``weight_update`` makes gradients.

    With a ``weight_size`` [B] the first factor is a weight.
    """
    outer, m, k, n = shape
    output = float(outer * m * n * word)
    return Kernel(
        name=name,
        kind=KernelKind.GEMM_WEIGHT if weight_size else KernelKind.GEMM,
        outer=outer,
        m=m,
        k=k,
        n=n,
        input_sizes=input_sizes,
        weight_size=weight_size,
        output_size=output,
        unit=ComputeUnit.SYSTOLIC,
        tiling=Axis.K if weight_update else Axis.N,
        direction=direction,
        communications=(
            (Communication(collective=Collective.ALL_REDUCE, size=output, periodic=True),)
            if weight_update
            else ()
        ),
    )


def join(
    kernels: list[Kernel],
    edges: Iterable[tuple[int, int, int]],
    word: int,
    dtype: Dtype | None = None,
) -> KernelGraph:
    """Return the graph of ``kernels`` with edges (producer, consumer, operand), kernels from 1."""
    readers: dict[int, list[Consumer]] = {}
    for producer, consumer, operand in edges:
        readers.setdefault(producer, []).append(
            Consumer(kernel=kernels[consumer - 1].name, operand=operand)
        )
    tensors = tuple(
        Tensor(
            producer=kernels[producer - 1].name,
            consumers=tuple(consumers),
            size=kernels[producer - 1].output_size,
        )
        for producer, consumers in sorted(readers.items())
    )
    return kernel_graph(kernels=tuple(kernels), tensors=tensors, word=word, dtype=dtype)
