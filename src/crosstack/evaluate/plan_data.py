"""Parts of an answer as plain data: what a mapping decides, the plans next to it, a front."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from crosstack.evaluate.evaluation import Evaluation, KernelTerms
from crosstack.evaluate.memory_front import MemoryFront
from crosstack.evaluate.next_plans import RankedStrategies, decided_otherwise
from crosstack.mapping.mapping import Mapping
from crosstack.model.memory_account import ROWS, MemoryAccount
from crosstack.records import plain

if TYPE_CHECKING:
    from crosstack.evaluate.plan import Plan

__all__ = ["front_data", "general_data", "next_plans_data", "stages_data"]

_SAVED_OF_KERNEL = ("name", "partition", "sharding", "lanes", "stages")


def stages_data(account: MemoryAccount) -> list[dict[str, float]]:
    """Return an account of memory by stage. [B]"""
    return [
        {f"{row}_b": getattr(stage, row) for row in (*ROWS, "total")} for stage in account.stages
    ]


def general_data(mapping: Mapping) -> dict[str, Any]:
    """Return what a mapping decides for the whole graph, as a saved answer has it."""
    places = mapping.dimensions or range(len(mapping.sizes))
    uses = zip(places, mapping.sizes, mapping.parallelism, strict=True)
    return {
        "network": [
            {"dimension": i, "size": size, "parallelism": use.value} for i, size, use in uses
        ],
        "microbatch_size": mapping.microbatch_size,
        "recompute": mapping.recompute.value,
        "recompute_layers": mapping.recompute_layers,
        "schedule": mapping.schedule.value,
        "interleave": mapping.interleave,
        "zero": mapping.zero.value,
        "context_exchange": mapping.context_exchange.value,
        "expert_tensor": mapping.expert_tensor,
        "overlap": None if mapping.overlap is None else plain(mapping.overlap),
        "offload": plain(mapping.offload),
        "n_tiles": mapping.n_tiles,
    }


def _decisions(mapping: Mapping, found: Evaluation) -> dict[str, Any]:
    """Return a mapping as `mapping_from_dict` reads it, and no more."""

    def rows(kernels: Iterable[KernelTerms]) -> list[dict[str, Any]]:
        return [{name: getattr(one, name) for name in _SAVED_OF_KERNEL} for one in kernels]

    kernels = rows(found.kernels)
    for kernel, stage in zip(kernels, mapping.stages or (), strict=False):
        kernel["pipeline_stage"] = stage
    ends = [
        {"name": end.name, "n_tiles": end.n_tiles, "kernels": rows(end.kernels)}
        for end in found.ends
    ]
    return general_data(mapping) | {"kernels": kernels, "ends": ends}


def next_plans_data(answer: Plan, ranked: RankedStrategies) -> dict[str, Any]:
    """Return the plans next to this one, each as a mapping to evaluate with what it trades."""
    own, rows = answer.evaluation, []
    for number, (mapping, found) in enumerate(ranked.found):
        row = _decisions(mapping, found) | {
            "time_s": found.time,
            "bound_s": ranked.bounds[number] if ranked.bounds else 0.0,
            "slower_by": found.time / own.time - 1,
            "utilization": found.utilization,
            "memory_used_b": found.memory_used,
            "more_memory_b": found.memory_used - own.memory_used,
            "differs": {
                one.decision: {"here": plain(one.here), "there": plain(one.there)}
                for one in decided_otherwise(answer.mapping, mapping)
            },
        }
        rows.append(row)
    left = ranked.left if math.isfinite(ranked.left) else None  # none is left out
    counts = {"strategies": ranked.total, "blocks": ranked.blocks}
    return {**counts, "left_bound_s": left, "plans": rows}


def front_data(answer: Plan, front: MemoryFront) -> dict[str, Any]:
    """Return the front, each point as a mapping to evaluate with how sure it is."""
    capacity = answer.evaluation.memory_capacity
    rows = [
        _decisions(point.mapping, point.evaluation)
        | {
            "time_s": point.evaluation.time,
            "value": point.value,
            "bound": point.bound,
            "least": point.least,
            "memory_used_b": point.memory,
            "memory_free_b": capacity - point.memory if math.isfinite(capacity) else None,
        }
        for point in front.points
    ]
    said = {"metrics": list(front.metrics), "exact": front.exact, "searches": front.searches}
    return {**said, "least_memory_b": front.least_memory, "points": rows}
