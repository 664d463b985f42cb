"""Kernels and edges as generators write them down: a line each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from crosstack.io.dfmodel.vocabulary import is_row_wise
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.kernels import (
    Axis,
    Collective,
    Communication,
    ComputeUnit,
    Consumer,
    Kernel,
    KernelKind,
    Tensor,
)
from crosstack.workload.workload import Workload

MOST_KERNELS = 100_000  # that a generator makes: a mistyped number is no week of waiting


def elementwise(
    name: str,
    m: int,
    n: int,
    *,
    outer: int = 1,
    word: int,
    inputs: int = 1,
    row_wise: bool = False,
    **more: Any,
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
        row_wise=row_wise,
        **more,
    )


def product_of(
    name: str,
    shape: tuple[int, int, int, int],
    *,
    word: int,
    input_sizes: tuple[float, ...],
    weight_size: float = 0.0,
    weight_update: bool = False,
    **more: Any,
) -> Kernel:
    """Return a product of ``shape`` (outer, M, K, N); ``weight_update`` makes gradients.

    With a ``weight_size`` [B] the first factor is a weight.
    """
    outer, m, k, n = shape
    output = float(outer * m * n * word)
    summed = Communication(collective=Collective.ALL_REDUCE, size=output, periodic=True)
    usual: dict[str, Any] = {
        "kind": KernelKind.GEMM_WEIGHT if weight_size else KernelKind.GEMM,
        "tiling": Axis.K if weight_update else Axis.N,
        "communications": (summed,) if weight_update else (),
    }
    return Kernel(
        name=name,
        outer=outer,
        m=m,
        k=k,
        n=n,
        input_sizes=input_sizes,
        weight_size=weight_size,
        output_size=output,
        unit=ComputeUnit.SYSTOLIC,
        **usual | more,
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


class Chain:
    """Kernels and edges of a layer on ``length`` tokens, by name, as they are written down."""

    def __init__(self, length: int, word: int) -> None:
        self.length, self.word = length, word
        self.kernels: list[Kernel] = []
        self.place: dict[str, int] = {}
        self.edges: list[tuple[int, int, int]] = []

    def add(self, kernel: Kernel, *reads: str) -> None:
        """Append a kernel that reads what the named kernels make, in order of its operands."""
        if reads:
            kernel = replace(kernel, input_sizes=tuple(map(self.size_of, reads)))
        self.kernels.append(kernel)
        number = self.place[kernel.name] = len(self.kernels)
        self.edges += [(self.place[name], number, i) for i, name in enumerate(reads)]

    def size_of(self, name: str) -> float:
        """Return what a kernel makes. [B]"""
        return self.kernels[self.place[name] - 1].output_size

    def point(
        self, name: str, width: int, *reads: str, length: int | None = None, **more: Any
    ) -> None:
        """Add an elementwise kernel on ``width`` x ``length`` numbers, else those of a token."""
        more = {"inputs": max(len(reads), 1), "row_wise": is_row_wise(name)} | more
        n = self.length if length is None else length
        self.add(elementwise(name, width, n, word=self.word, **more), *reads)

    def project(self, name: str, shape: tuple[int, int, int], read: str, **more: Any) -> None:
        """Add a projection of ``shape`` (outer, M, K) with a weight; see `product_of`."""
        outer, m, k = shape
        more = {"weight_size": float(outer * m * k * self.word)} | more
        self.multiply(name, (*shape, self.length), read, **more)

    def multiply(
        self, name: str, shape: tuple[int, int, int, int], *reads: str, **more: Any
    ) -> None:
        """Add a product of two tensors; see `product_of`."""
        sizes = tuple(map(self.size_of, reads))
        self.add(product_of(name, shape, word=self.word, input_sizes=sizes, **more), *reads)

    def graph(self) -> KernelGraph:
        """Return the graph of what was added."""
        return join(self.kernels, self.edges, self.word)

    def workload(self, hidden: int, graph: KernelGraph | None = None, **more: Any) -> Workload:
        """Return layers of what was added, or of a graph made of it, that pass on ``hidden``."""
        return Workload(
            graph=graph or self.graph(),
            sequence_length=self.length,
            boundary_size=float(hidden * self.length * self.word),
            **more,
        )
