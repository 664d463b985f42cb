"""Workloads as dataflow graphs, and generators of known ones."""

from __future__ import annotations

from crosstack.workload.graph import (
    Axis,
    Collective,
    Communication,
    ComputeUnit,
    Consumer,
    DataflowGraph,
    Direction,
    Kernel,
    KernelKind,
    Tensor,
    Workload,
)
from crosstack.workload.llm import llm, llm_forward, llm_training

__all__ = [
    "Axis",
    "Collective",
    "Communication",
    "ComputeUnit",
    "Consumer",
    "DataflowGraph",
    "Direction",
    "Kernel",
    "KernelKind",
    "Tensor",
    "Workload",
    "llm",
    "llm_forward",
    "llm_training",
]
