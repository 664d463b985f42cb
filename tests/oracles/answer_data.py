"""A saved answer, field by field as ``docs/result.md`` has it."""

from __future__ import annotations

import math
from typing import Any

from crosstack.evaluate.evaluation import KernelTerms, PartitionTerms
from crosstack.evaluate.plan import Plan
from crosstack.machine.system import Parallelism
from crosstack.model.energy import Energy
from crosstack.model.memory_account import ROWS
from crosstack.model.objective import Objective
from crosstack.version import __version__

__all__ = ["answer_data"]


def answer_data(answer: Plan) -> dict[str, Any]:
    """Return what is saved of an answer."""
    e, m, c = answer.evaluation, answer.mapping, answer.certificate
    step, workload = answer.step_account(), answer.task.workload
    tokens = {"token": 1}.get(workload.item) or {"token": workload.item_length}.get(
        workload.item_part
    )
    return {
        "crosstack_version": __version__,
        "workload": answer.task.workload.name,
        "system": answer.task.system.name,
        "framework": getattr(answer.task.system.chip.framework, "name", None),
        "gradients": answer.task.workload.gradients,
        "optimizer": answer.task.workload.optimizer,
        "rules": answer.rules.name,
        "status": c.status.value,
        "time_s": e.time,
        "bound_s": c.bound if c.metric is Objective.TIME else None,
        "gap": c.gap,
        "runtime_s": c.runtime,
        "warnings": list(answer.warnings),
        "compared": None,  # no framework drives these chips
        "certificate": {
            "status": c.status.value,
            "metric": c.metric.value,
            "unit": c.metric.unit,
            "objective": c.objective,
            "bound": c.bound,
            "gap": c.gap,
            "method": c.method,
            "free": list(c.free),
            "given": list(c.given),
            "runtime_s": c.runtime,
            "stopped": None if c.stopped is None else c.stopped.value,
        },
        "utilization": e.utilization,
        "executed_flop": e.executed_work,
        "hardware_utilization": e.hardware_utilization,
        "tokens_per_s": tokens and tokens * workload.global_batch_size / e.time,
        "step": {
            "busiest_stage": step.stage,
            "spent_s": {str(name): time for name, time in step.spent},
            "compute_at_peak_s": step.at_peak,
            "bound_s": {str(name): time for name, time in step.bound if time},
            "bound_by": max(step.bound, key=lambda one: one[1])[0].value,
            "change_first": {"what": step.first[0].value, "saves_at_most_s": step.first[1]},
        },
        "throughput": e.throughput,
        "item": answer.task.workload.item,
        "workload_flop": e.work,
        "n_chips": answer.task.system.n_chips,
        "system_price_usd": e.price.total,
        "system_power_w": e.power.total,
        "price_usd": _bill(e.price),
        "power_w": _bill(e.power),
        "energy_j": None if e.energy is None else _energy(e.energy),
        "layer_time_s": e.layer_time,
        "latency_s": e.latency,
        "partition_times_s": [p.time for p in e.partitions],
        "parallelism": {
            "tp": m.degree(Parallelism.TENSOR),
            "pp": m.degree(Parallelism.PIPELINE),
            "dp": m.degree(Parallelism.DATA),
        },
        "network": [
            {"dimension": place, "size": size, "parallelism": use.value}
            for place, size, use in zip(
                m.dimensions or range(len(m.sizes)), m.sizes, m.parallelism, strict=True
            )
        ],
        "microbatch_size": m.microbatch_size,
        "n_microbatches": e.n_microbatches,
        "recompute": m.recompute.value,
        "recompute_layers": m.recompute_layers,
        "schedule": m.schedule.value,
        "interleave": m.interleave,
        "zero": m.zero,
        "context_exchange": m.context_exchange,
        "expert_tensor": m.expert_tensor,
        "overlap": m.overlap,
        "offload": list(m.offload),
        "n_tiles": m.n_tiles,
        "tile_size": -(-answer.task.workload.sequence_length // m.n_tiles),
        "layers_per_stage": e.layers_per_stage,
        "stage_time_s": e.stage_time,
        "bubble_factor": e.bubble_factor,
        "stage_transfer_time_s": e.stage_transfer_time,
        "sums_time_s": e.sums_time,
        "update_time_s": e.update_time,
        "gather_time_s": e.gather_time,
        "host_time_s": e.host_time,
        "memory_used_b": e.memory_used,
        "memory_capacity_b": _finite(e.memory_capacity),
        "memory": [
            {f"{row}_b": getattr(stage, row) for row in ROWS} | {"total_b": stage.total}
            for stage in e.memory.stages
        ],
        "memory_intensity_flop_per_b": _finite(e.memory_intensity),
        "network_intensity_flop_per_b": _finite(e.network_intensity),
        "ends": [
            {
                "name": end.name,
                "count": end.count,
                "n_tiles": end.n_tiles,
                "time_s": end.time,
                "kernels": [_kernel(k) for k in end.kernels],
                "partitions": [_partition(p) for p in end.partitions],
            }
            for end in e.ends
        ],
        "pipeline_stages": [
            {
                "number": s.number,
                "kernels": list(s.kernels),
                "partitions": list(s.partitions),
                "time_s": s.time,
                "work_time_s": s.work_time,
                "transfer_time_s": s.transfer_time,
                "bound_by": s.bound_by,
                "memory_used_b": s.memory_used,
            }
            for s in e.stages
        ],
        "partitions": [_partition(p) for p in e.partitions],
        "kernels": [
            {**_kernel(k), "pipeline_stage": None if m.stages is None else m.stages[i]}
            for i, k in enumerate(e.kernels)
        ],
    }


def _partition(p: PartitionTerms) -> dict[str, Any]:
    return {
        "number": p.number,
        "pipeline_stage": p.stage,
        "kernels": list(p.kernels),
        "time_s": p.time,
        "compute_time_s": p.compute_time,
        "memory_time_s": p.memory_time,
        "network_time_s": p.network_time,
        "launch_time_s": p.launch_time,
        "bound_by": p.bound_by,
        "memory_traffic_b": p.memory_traffic,
        "boundary_traffic_b": p.boundary_traffic,
        "sram_used_b": p.sram_used,
        "sram_capacity_b": p.sram_capacity,
        "memory_used_b": p.memory_used,
        "cores_used": p.cores_used,
    }


def _kernel(k: KernelTerms) -> dict[str, Any]:
    return {
        "name": k.name,
        "partition": k.partition,
        "sharding": str(k.sharding),
        "m": k.m,
        "k": k.k,
        "n": k.n,
        "work_flop": k.work,
        "compute_time_s": k.compute_time,
        "network_time_s": k.network_time,
        "collective": k.collective,
        "weight_size_b": k.weight_size,
        "output_tile_b": k.output_size,
        "lanes": k.lanes,
        "stages": k.stages,
        "weight_cuts": k.weight_cuts,
        "entering_b": k.entering,
        "leaving_b": k.leaving,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _bill(bill: Any) -> dict[str, float]:
    return {
        "chips": bill.chips,
        "memory": bill.memory,
        "links": bill.links,
        "switches": bill.switches,
        "total": bill.total,
    }


def _energy(energy: Energy) -> dict[str, float | str]:
    return {
        "static": energy.static,
        "compute": energy.compute,
        "on_chip": energy.on_chip,
        "memory": energy.memory,
        "network": energy.network,
        "total": energy.total,
        "basis": energy.basis.value,
    }
