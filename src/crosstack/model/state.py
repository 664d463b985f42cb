"""Weights, gradients and the optimizer's state: what a chip holds of them, and what its host does.

The first thing that data-parallel chips share is the optimizer's state, the next gradients, the
last weights; of routed experts, chips with the same ones. Source: ``rajbhandari2020zero``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.offload import NOT_OFFLOADED


def state_held(
    plan: MeshPlan,
    weights: Any,
    gradients: Any,
    optimizer_state: Any,
    *experts: Any,
) -> tuple[Any, Any, Any]:
    """Return what a chip holds of sizes of weights, of gradients and of the optimizer's state. [B]

    Parameters
    ----------
    weights, gradients, optimizer_state : float or array
        Of a chip that shares nothing. [B]
    experts : float or array
        What of each of those is of routed experts that fewer chips have; left out: nothing. [B]
    """
    sizes, parts = (weights, gradients, optimizer_state), experts or (0.0, 0.0, 0.0)
    held = [
        plan.shared(stage, size, part)
        for stage, size, part in zip((3, 2, 1), sizes, parts, strict=True)
    ]
    return held[0], held[1], held[2] * plan.offloaded.state_kept(plan.layers_per_stage)


def state_away(plan: MeshPlan, *sizes: Any) -> Any:
    """Bytes of the optimizer's state on the host, with the gradients that it updates with. [B]

    ``sizes`` are those of `state_held`, all on the chip of a plan that offloads none of it.
    """
    if not plan.offloaded.state:
        return 0.0
    state = state_held(replace(plan, offloaded=NOT_OFFLOADED), *sizes)[2]
    if not plan.offloaded.gradients:
        return state
    parts = sizes[3:] or (0.0, 0.0, 0.0)
    return state + plan.shared(1, sizes[1], parts[1])
