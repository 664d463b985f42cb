"""Workloads as dataflow graphs, and generators of known ones."""

from __future__ import annotations

from crosstack.workload.architectures import Transformer
from crosstack.workload.dlrm import dlrm, dlrm_graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.fft import fft
from crosstack.workload.hpl import hpl
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import (
    Axis,
    Collective,
    Communication,
    ComputeUnit,
    Consumer,
    Direction,
    Kernel,
    KernelKind,
    Placement,
    Tensor,
)
from crosstack.workload.llm import llm, llm_forward, llm_training
from crosstack.workload.serving import decode, prefill
from crosstack.workload.ssm import Convolution, Scan, hyena, mamba
from crosstack.workload.workload import Workload

__all__ = [
    "Axis",
    "Collective",
    "Communication",
    "ComputeUnit",
    "Consumer",
    "Convolution",
    "Direction",
    "Dtype",
    "Kernel",
    "KernelGraph",
    "KernelKind",
    "Placement",
    "Scan",
    "Tensor",
    "Transformer",
    "Workload",
    "decode",
    "dlrm",
    "dlrm_graph",
    "fft",
    "hpl",
    "hyena",
    "llm",
    "llm_forward",
    "llm_training",
    "mamba",
    "prefill",
]
