"""The evaluation of a mapping: every term by name."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.machine.prices import Bill
from crosstack.model.energy import Energy
from crosstack.model.memory import MemoryAccount
from crosstack.records import brief
from crosstack.workload.graph import Axis

__all__ = ["Evaluation", "KernelTerms", "PartitionTerms", "StageTerms"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTerms:
    """One kernel on one tensor-parallel chip, for one sequence and one layer.

    ``work`` [FLOP], ``compute_time`` [s] (with all cores where utilization is given, with its own
    ``lanes`` x ``stages`` cores otherwise), ``network_time`` [s] of its collectives and of the
    layout conversions of the tensor it makes, ``collective`` naming them, ``weight_size`` [B] and
    ``output_size`` [B] of one tile on one chip; ``weight_cuts`` times its weight is cut to fit. [1]
    ``entering`` is what it reads of operands that no kernel of the graph makes, ``leaving`` what it
    writes of results that none reads (`crosstack.model.boundary`). [B]
    """

    name: str
    partition: int
    sharding: Axis
    m: int
    k: int
    n: int
    work: float
    compute_time: float
    network_time: float
    collective: str
    weight_size: float
    output_size: float
    lanes: int | None
    stages: int | None
    weight_cuts: int
    entering: float = 0.0
    leaving: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTerms:
    """One partition, for one sequence and one layer; ``number`` is the mapping's.

    Times in [s]; ``memory_traffic`` is of one chip, one sequence, ``boundary_traffic`` what of it
    enters or leaves the graph [B]; ``sram_used`` and ``memory_used`` are the demand while it
    runs. [B] ``bound_by`` is ``compute``, ``memory`` or
    ``network``; ``stage`` the pipeline stage, None where stages hold whole copies of the graph.
    """

    number: int
    kernels: tuple[str, ...]
    compute_time: float
    memory_time: float
    network_time: float
    time: float
    bound_by: str
    memory_traffic: float
    sram_used: float
    sram_capacity: float
    memory_used: float
    cores_used: int | None
    stage: int | None = None
    boundary_traffic: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTerms:
    """One pipeline stage that holds a part of the graph, for one microbatch.

    ``partitions`` are numbers. ``work_time`` is that of its partitions, ``transfer_time`` of what
    it sends on, ``time`` of both; times in [s]. ``bound_by`` is ``work`` or ``transfer``, the
    longer; ``memory_used`` what one of its chips needs at most. [B]
    """

    number: int
    kernels: tuple[str, ...]
    partitions: tuple[int, ...]
    work_time: float
    transfer_time: float
    time: float
    bound_by: str
    memory_used: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """What a mapping costs.

    Parameters
    ----------
    kernels, partitions : tuple
        Terms of one layer for one sequence on one chip.
    layer_time : float
        Sum over the partitions. [s]
    layers_per_stage, n_stages, n_microbatches : int
        Of the pipeline. [1]
    stage_time : float
        One stage, one microbatch, with the transfer to the next stage where it does not hide. [s]
    bubble_factor : float
        1 + the share of time the pipeline idles. [1]
    stage_transfer_time : float
        Passing activations between stages: for one microbatch under rules that pay every
        microbatch, for the whole iteration otherwise; the longest where stages differ. [s]
    time : float
        One iteration. [s]
    latency : float
        One microbatch, from the first layer to the last, nothing else in its way. [s]
    work : float
        FLOP of one iteration on all chips. [FLOP]
    utilization : float
        Of the peak of all chips. [1]
    throughput : float
        Items of the batch per second. [1/s]
    memory_used, memory_capacity : float
        Main memory of one chip, at most; capacity may be infinite. [B]
    memory : MemoryAccount
        What that is used for, by stage; ``memory_used`` is its peak.
    price, power : Bill
        With their parts. [USD], [W]
    energy : Energy or None
        Of one iteration, with its parts; None where a power that it needs is not given. [J]
    memory_intensity, network_intensity : float
        FLOP per byte moved to and from main memory, and per byte of collectives; infinite where
        nothing moves. [FLOP/B]
    stages : tuple
        Terms of the stages that hold one copy of the graph; empty where a stage holds whole copies.
    """

    kernels: tuple[KernelTerms, ...]
    partitions: tuple[PartitionTerms, ...]
    layer_time: float
    layers_per_stage: int
    n_stages: int
    n_microbatches: int
    stage_time: float
    bubble_factor: float
    stage_transfer_time: float
    time: float
    latency: float
    work: float
    utilization: float
    throughput: float
    memory_used: float
    memory_capacity: float
    memory: MemoryAccount
    price: Bill
    power: Bill
    energy: Energy | None
    memory_intensity: float
    network_intensity: float
    stages: tuple[StageTerms, ...] = ()

    __repr__ = brief
