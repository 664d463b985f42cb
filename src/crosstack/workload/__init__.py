"""Workloads as dataflow graphs."""

from __future__ import annotations

from crosstack.workload.architectures import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind
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
from crosstack.workload.workload import Workload

__all__ = [
    "Axis", "Collective", "Communication", "ComputeUnit", "Consumer", "Direction", "Dtype", "Job",
    "JobKind", "Kernel", "KernelGraph", "KernelKind", "Placement", "Tensor", "Transformer",
    "Workload",
]  # fmt: skip
