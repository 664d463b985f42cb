"""Workloads of ready-made graphs over named axes that are no transformers; for those see `Job`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crosstack.records import require_type
from crosstack.workload.dlrm_graph import recommendation_graph
from crosstack.workload.fft_graph import fourier_graph
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.passes.backward import training as trained
from crosstack.workload.ssm_graph import hyena_graph, mamba_graph
from crosstack.workload.workload import Workload


def dlrm(*, training: bool = True, name: str = "dlrm", **shape: Any) -> Workload:
    """Return a recommendation model, with its derived backward pass if it is in ``training``.

    ``shape`` as `crosstack.workload.dlrm_graph.recommendation_graph`.

    Raises `InputError` if a number is not a whole number above 0.
    """
    require_type("training", training, bool)
    graph = recommendation_graph(**shape)
    graph = trained(graph, "loss") if training else graph
    return workload_of(graph, items="sample", name=name)


def fft(*, name: str = "fft", **shape: Any) -> Workload:
    """Return a Fourier transform; ``shape`` as `crosstack.workload.fft_graph.fourier_graph`.

    Raises `InputError` if the length is no square of a power of the radix.
    """
    return replace(workload_of(fourier_graph(**shape), name=name), item="transform")


def mamba(*, name: str = "mamba", **shape: Any) -> Workload:
    """Return a model of Mamba blocks; ``shape`` as `crosstack.workload.ssm_graph.mamba_graph`.

    Raises `InputError` as that does.
    """
    return workload_of(mamba_graph(**shape), block="layers", items="batch", name=name)


def hyena(*, name: str = "hyena", **shape: Any) -> Workload:
    """Return one of Hyena operators; ``shape`` as `crosstack.workload.ssm_graph.hyena_graph`.

    Raises `InputError` as that does.
    """
    return workload_of(hyena_graph(**shape), block="layers", items="batch", name=name)
