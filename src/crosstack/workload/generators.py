"""Workloads of ready-made graphs over named axes that are no transformers; for those see `Job`."""

from __future__ import annotations

from dataclasses import replace

from crosstack.records import require_type
from crosstack.workload.dlrm_graph import recommendation_graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.fft_graph import fourier_graph
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.passes.backward import training as trained
from crosstack.workload.ssm_graph import Convolution, hyena_graph, mamba_graph
from crosstack.workload.workload import Workload

__all__ = ["dlrm", "fft", "hyena", "mamba"]


def dlrm(
    *,
    width: int,
    n_bottom: int,
    n_top: int,
    n_tables: int,
    rows: int,
    embedding_size: int,
    samples: int,
    pooled_rows: int = 1,
    training: bool = True,
    dtype: Dtype = Dtype.BF16,
    name: str = "dlrm",
) -> Workload:
    """Return a recommendation model on ``samples`` samples of one iteration.

    Parameters
    ----------
    width, n_bottom, n_top, n_tables, rows, embedding_size, samples, pooled_rows, dtype
        As `crosstack.workload.dlrm_graph.recommendation_graph`.
    training : bool
        With the backward pass, which is derived.
    name : str
        For people.
    """
    require_type("training", training, bool)
    graph = recommendation_graph(
        width=width, n_bottom=n_bottom, n_top=n_top, n_tables=n_tables, rows=rows,
        embedding_size=embedding_size, samples=samples, pooled_rows=pooled_rows, dtype=dtype,
    )  # fmt: skip
    graph = trained(graph, "loss") if training else graph
    return workload_of(graph, items="sample", name=name)


def fft(*, length: int, radix: int = 2, dtype: Dtype = Dtype.FP32, name: str = "fft") -> Workload:
    """Return a Fourier transform; ``length`` and ``radix`` as `fft_graph.fourier_graph`."""
    graph = fourier_graph(length=length, radix=radix, dtype=dtype)
    return replace(workload_of(graph, name=name), item="transform")


def mamba(
    *,
    hidden: int,
    sequence: int,
    layers: int = 1,
    batch: int = 1,
    state_size: int = 16,
    expansion: int = 2,
    filter_size: int = 4,
    step_rank: int | None = None,
    dtype: Dtype = Dtype.BF16,
    name: str = "mamba",
) -> Workload:
    """Return a model of Mamba blocks, forward.

    Parameters
    ----------
    hidden, sequence, layers, batch, state_size, expansion, filter_size, step_rank, dtype
        As `crosstack.workload.ssm_graph.mamba_graph`.
    name : str
        For people.
    """
    graph = mamba_graph(
        hidden=hidden, sequence=sequence, layers=layers, batch=batch, state_size=state_size,
        expansion=expansion, filter_size=filter_size, step_rank=step_rank, dtype=dtype,
    )  # fmt: skip
    return workload_of(graph, block="layers", items="batch", name=name)


def hyena(
    *,
    hidden: int,
    sequence: int,
    layers: int = 1,
    batch: int = 1,
    convolution: Convolution = Convolution.FFT_GEMM,
    state_size: int = 16,
    filter_size: int = 3,
    dtype: Dtype = Dtype.BF16,
    name: str = "hyena",
) -> Workload:
    """Return a model of Hyena operators, forward.

    Parameters
    ----------
    hidden, sequence, layers, batch, convolution, state_size, filter_size, dtype
        As `crosstack.workload.ssm_graph.hyena_graph`.
    name : str
        For people.
    """
    graph = hyena_graph(
        hidden=hidden, sequence=sequence, layers=layers, batch=batch, convolution=convolution,
        state_size=state_size, filter_size=filter_size, dtype=dtype,
    )  # fmt: skip
    return workload_of(graph, block="layers", items="batch", name=name)
