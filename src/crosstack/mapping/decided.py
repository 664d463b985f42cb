"""What a plan decides of a mapping: all but its kernels."""

from __future__ import annotations

from typing import Any

from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.schedule.allowed import layers_again
from crosstack.workload.transformer_training import ZEROS


def decided(plan: MeshPlan) -> dict[str, Any]:
    """Return what a plan decides, by the fields of a mapping (`crosstack.mapping.mapping`)."""
    return {
        "sizes": plan.sizes,
        "parallelism": plan.parallelism,
        "dimensions": plan.dimensions,
        "microbatch_size": plan.microbatch_size,
        "recompute": plan.recompute,
        "recompute_layers": layers_again(plan),
        "schedule": plan.schedule,
        "interleave": plan.interleave,
        "zero": ZEROS[plan.zero],
        "context_exchange": plan.context_exchange,
        "expert_tensor": plan.expert_tensor,
        "overlap": plan.hidden,
        "offload": plan.offloaded.kinds,
    }
