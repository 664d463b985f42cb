"""Small graphs to count by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crosstack.workload.kernel_graph import KernelGraph, kernel_graph
from crosstack.workload.kernels import (
    ComputeUnit,
    Consumer,
    Direction,
    Kernel,
    KernelKind,
    Saved,
    Tensor,
)

BACK = Direction.BACKWARD


def product_and_function(
    readers: Mapping[str, Sequence[tuple[str, int]]],
    *,
    saved: Saved,
    **changes: object,
) -> KernelGraph:
    """A product and a function of it, forward and backward; 64 B a tensor, 32 B of weight.

    ``readers`` says which kernel reads what each kernel makes, and as which operand; what nobody
    makes comes from outside. ``changes`` are of every kernel.
    """
    weight: dict[str, object] = {
        "kind": KernelKind.GEMM_WEIGHT, "k": 4, "weight_size": 32.0, "unit": ComputeUnit.SYSTOLIC,
    }  # fmt: skip
    update: dict[str, object] = {
        "kind": KernelKind.GEMM, "k": 8, "n": 4, "output_size": 32.0,
        "input_sizes": (64.0, 64.0), "unit": ComputeUnit.SYSTOLIC,
    }  # fmt: skip
    usual: dict[str, object] = {
        "kind": KernelKind.ELEMENTWISE, "m": 4, "n": 8, "output_size": 64.0,
        "input_sizes": (64.0,), "unit": ComputeUnit.SIMD, **changes,
    }  # fmt: skip
    fields: dict[str, dict[str, object]] = {
        "product": weight,
        "function": {"saved": saved},
        "function_back": {"direction": BACK},
        "product_back": {"direction": BACK, **weight},
        "update": {"direction": BACK, **update},
    }
    return kernel_graph(
        kernels=tuple(Kernel(name=name, **(usual | own)) for name, own in fields.items()),  # type: ignore[arg-type]
        tensors=tuple(
            Tensor(
                producer=producer,
                consumers=tuple(Consumer(kernel=name, operand=operand) for name, operand in to),
                size=64.0,
            )
            for producer, to in readers.items()
        ),
        word=2,
    )
