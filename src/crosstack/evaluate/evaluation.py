"""The evaluation of a mapping: every term by name."""

from __future__ import annotations

from dataclasses import dataclass, field

from crosstack.machine.prices import Bill
from crosstack.model.energy import Energy
from crosstack.model.memory_account import MemoryAccount
from crosstack.model.schedule.layer import TERMS, KernelRun
from crosstack.records import brief

__all__ = ["TERMS", "EndTerms", "Evaluation", "KernelTerms", "PartitionTerms", "StageTerms"]

# How a saved answer calls a field (`crosstack.records.plain`): by its name with its unit, but for
# a few.
S, B, FLOP = ({"unit": unit} for unit in ("s", "b", "flop"))
USD, W, J, INTENSITY = ({"unit": unit} for unit in ("usd", "w", "j", "flop_per_b"))


def _called(key: str | None) -> dict[str, str | None]:
    return {"key": key}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTerms:
    """One kernel on one tensor-parallel chip, for one sequence and one layer.

    ``sharding`` is what it is split along (`crosstack.model.choice_index.axis_names`), ``work``
    [FLOP], ``compute_time`` [s] (with all cores where utilization is given, with its own ``lanes``
    x ``stages`` cores otherwise), ``network_time`` [s] of its collectives and of the layout
    conversions of the tensor it makes, ``collective`` naming them, ``weight_size`` [B] and
    ``output_size`` [B] of one tile on one chip; ``weight_cuts`` times its weight is cut to fit. [1]
    ``entering`` is what it reads of operands that no kernel of the graph makes, ``leaving`` what it
    writes of results that none reads (`crosstack.model.boundary`). [B]
    """

    name: str
    partition: int
    sharding: str
    m: int
    k: int
    n: int
    work: float = field(metadata=FLOP)
    compute_time: float = field(metadata=S)
    network_time: float = field(metadata=S)
    collective: str
    weight_size: float = field(metadata=B)
    output_size: float = field(metadata=_called("output_tile_b"))
    lanes: int | None
    stages: int | None
    weight_cuts: int
    entering: float = field(default=0.0, metadata=B)
    leaving: float = field(default=0.0, metadata=B)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionTerms:
    """One partition, for one sequence and one layer; ``number`` is the mapping's.

    Times in [s]; ``memory_traffic`` is of one chip, one sequence, ``boundary_traffic`` what of it
    enters or leaves the graph [B]; ``sram_used`` and ``memory_used`` are the demand while it
    runs. [B] ``launch_time`` is what a temporal chip takes before its kernels start. ``bound_by``
    is the longest of ``compute``, ``memory``, ``network`` and ``launch``; ``stage`` the pipeline
    stage, None where stages hold whole copies of the graph. ``kernel_runs`` are its kernels on a
    temporal chip, one after the other, each time that they run.
    """

    number: int
    stage: int | None = field(default=None, metadata=_called("pipeline_stage"))
    kernels: tuple[str, ...]
    time: float = field(metadata=S)
    compute_time: float = field(metadata=S)
    memory_time: float = field(metadata=S)
    network_time: float = field(metadata=S)
    launch_time: float = field(default=0.0, metadata=S)
    bound_by: str
    memory_traffic: float = field(metadata=B)
    boundary_traffic: float = field(default=0.0, metadata=B)
    sram_used: float = field(metadata=B)
    sram_capacity: float = field(metadata=B)
    memory_used: float = field(metadata=B)
    cores_used: int | None
    kernel_runs: tuple[KernelRun, ...] = field(default=(), metadata=_called(None))

    @property
    def terms(self) -> dict[str, float]:
        """The times it is made of, by name. [s]"""
        return {term: getattr(self, f"{term}_time") for term in TERMS}


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
    time: float = field(metadata=S)
    work_time: float = field(metadata=S)
    transfer_time: float = field(metadata=S)
    bound_by: str
    memory_used: float = field(metadata=B)


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTerms:
    """What runs ``count`` times before or behind the layers, for one sequence, each time.

    ``time`` is of its partitions [s]; kernels and partitions as those of a layer, but that
    ``memory_used`` is of what is alive alone.
    """

    name: str
    count: int
    n_tiles: int
    time: float = field(metadata=S)
    kernels: tuple[KernelTerms, ...]
    partitions: tuple[PartitionTerms, ...]


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
    sums_time, update_time, gather_time : float
        Of summing gradients, updating weights and sending them round once an iteration, what no
        other work hides; part of ``time``. [s]
    time : float
        One iteration. [s]
    latency : float
        One microbatch, from the first layer to the last, nothing else in its way. [s]
    work : float
        FLOP of the model in one iteration on all chips; all scores of attention count, also those
        that a mask leaves out (``chowdhery2022palm``, ``narayanan2021megatron``); what chips do is
        the work of the kernels. [FLOP]
    utilization : float
        That over what all chips could do at their peak: *model FLOP utilization*, MFU
        (``chowdhery2022palm``). [1]
    executed_work : float
        FLOP that chips execute: what runs again counts again, what a chip skips of a mask does not,
        what several chips do alike counts for each. [FLOP]
    hardware_utilization : float
        That over what all chips could do at their peak: *hardware FLOP utilization*, HFU
        (``chowdhery2022palm``, appendix B; ``korthikanti2023reducing``, section 6.3). [1]
    throughput : float
        Items of the batch per second. [1/s]
    memory_used, memory_capacity : float
        Main memory of one chip, at most; capacity may be infinite. [B]
    memory : MemoryAccount
        What that is used for, by stage; ``memory_used`` is its peak.
    host_memory : MemoryAccount or None
        What a chip has in the memory of its host, by stage; None where it has nothing there.
    price, power : Bill
        With their parts. [USD], [W]
    energy : Energy or None
        Of one iteration, with its parts; None where a power that it needs is not given. [J]
    memory_intensity, network_intensity : float
        FLOP per byte moved to and from main memory, and per byte of collectives; infinite where
        nothing moves. [FLOP/B]
    stages : tuple
        Terms of the stages that hold one copy of the graph; empty where a stage holds whole copies.
    ends : tuple
        Terms of what runs before the first layer and behind the last one.
    host_time : float
        What the host takes to launch a layer, for one microbatch, which chips wait for where it is
        longer than the layer itself; 0 where no framework drives them. [s]
    """

    kernels: tuple[KernelTerms, ...]
    partitions: tuple[PartitionTerms, ...]
    layer_time: float = field(metadata=S)
    layers_per_stage: int
    n_stages: int = field(metadata=_called(None))
    n_microbatches: int
    stage_time: float = field(metadata=S)
    bubble_factor: float
    stage_transfer_time: float = field(metadata=S)
    sums_time: float = field(metadata=S)
    update_time: float = field(metadata=S)
    gather_time: float = field(metadata=S)
    time: float = field(metadata=S)
    latency: float = field(metadata=S)
    work: float = field(metadata=_called("workload_flop"))
    utilization: float
    executed_work: float = field(metadata=_called("executed_flop"))
    hardware_utilization: float
    throughput: float
    memory_used: float = field(metadata=B)
    memory_capacity: float = field(metadata=B)
    memory: MemoryAccount
    price: Bill = field(metadata=USD)
    power: Bill = field(metadata=W)
    energy: Energy | None = field(metadata=J)
    memory_intensity: float = field(metadata=INTENSITY)
    network_intensity: float = field(metadata=INTENSITY)
    stages: tuple[StageTerms, ...] = field(default=(), metadata=_called("pipeline_stages"))
    ends: tuple[EndTerms, ...] = ()
    host_time: float = field(default=0.0, metadata=S)
    host_memory: MemoryAccount | None = field(default=None, metadata=_called(None))

    __repr__ = brief
