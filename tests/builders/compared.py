"""A workload as kernels with extents and over named axes: what is the same of each kernel."""

from __future__ import annotations

from crosstack.workload.kernel_graph import KernelGraph

Fact = tuple[int, int, int, int, float, bool, float, float]


def facts(arrays: KernelGraph) -> dict[str, Fact]:
    """By kernel: outer, M, K and N, work, whether it has a weight, bytes made and of the cache."""
    columns = (
        arrays.outer, arrays.m, arrays.k, arrays.columns, arrays.work, arrays.has_weight,
        arrays.output_size, arrays.cache_size,
    )  # fmt: skip
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return dict(zip(arrays.names, rows, strict=True))


def work_of(arrays: KernelGraph, *names: str) -> float:
    """Work of some kernels; of all that begin so, where a name ends in a star."""
    return sum(
        work
        for kernel, work in zip(arrays.names, arrays.work.tolist(), strict=True)
        if any(kernel == n or (n.endswith("*") and kernel.startswith(n[:-1])) for n in names)
    )


def edges_of(arrays: KernelGraph) -> set[tuple[str, str]]:
    """Who makes what for whom."""
    ends = zip(arrays.source, arrays.target, strict=True)
    return {(arrays.names[i], arrays.names[j]) for i, j in ends}
