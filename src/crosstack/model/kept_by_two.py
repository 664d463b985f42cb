"""What chips keep that have two stages, or two pieces of one, the first and the last among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crosstack.model.mesh_plan import MeshPlan
from crosstack.model.schedule.in_flight import in_flight
from crosstack.model.stage_layers import layers_of
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.transformer_training import Schedule


def kept_by_two(plan: MeshPlan, kept: Any, waiting: Any, chip: ArrayLike) -> Floats:
    """What chips keep of one sequence, but for what is computed again. [B]

    Parameters
    ----------
    kept, waiting : float or array
        What a layer keeps until its backward pass, and for gradients of weights. [B]
    chip : array_like of int
        Numbers of chips in their pipeline. [1]
    """
    if plan.schedule.both_ends:
        return _of_two_stages(plan, kept, waiting, chip)
    return _of_two_pieces(plan, kept, waiting, chip)


def _of_two_stages(plan: MeshPlan, kept: Any, waiting: Any, chip: ArrayLike) -> Floats:
    """What chips keep of microbatches that enter at both ends. [B]

    Chip r of the first half keeps ``p - r`` microbatches of its first stage and ``r + 1`` of the
    other one; in the end gradients of weights of ``r + 1`` wait, while ``p / 2 - 1 - r`` are to
    come back to the first stage, each counted as of the fullest stage. Source: the order of
    `crosstack.model.schedule.dual.dual_order`; p + 1 of both, as deepseek2024v3 has it (table 2).
    """
    main, late, waits = _counts_of_two_stages(plan, chip)
    return np.asarray(np.maximum(kept * main, waiting * waits + kept * late))


def _counts_of_two_stages(plan: MeshPlan, chip: ArrayLike) -> tuple[Any, Any, Any]:
    """Layers, times microbatches, that chips keep something of in `_of_two_stages`. [1]

    In the main of an iteration; and in the end, of those to come back and those that wait.
    """
    p, half = np.asarray(plan.pipeline), np.asarray(plan.pipeline) // 2
    place = np.minimum(chip, p - 1 - np.asarray(chip))
    other = p - 1 - place
    main = layers_of(plan, place) * (other + 1) + layers_of(plan, other) * (place + 1)
    return main, plan.layers_per_stage * (half - 1 - place), plan.layers_per_stage * (place + 1)


def kept_slope(plan: MeshPlan, kept: Any, waiting: Any, chip: ArrayLike) -> Any:
    """How much more chips keep at least for each byte more that a layer keeps. [1]

    Of microbatches that enter at both ends; parameters as `kept_by_two`, which is the larger of two
    lines of ``kept``: that of the larger one.
    """
    main, late, waits = _counts_of_two_stages(plan, chip)
    return np.where(kept * main >= waiting * waits + kept * late, main, late)


def _of_two_pieces(plan: MeshPlan, kept: Any, waiting: Any, chip: ArrayLike) -> Floats:
    """What chips keep under ZB-V. [B]

    With two pieces of half of its layers each, ``2 p`` microbatches of one of them; in the end chip
    r has ``p - r`` that are to come back to its first piece, and ``2 r`` gradients of weights wait.
    One of the former becomes one of the latter. Source: the order of
    `crosstack.model.schedule.zero_bubble.v_order`; p of both, as qi2024zero has it (section 6).
    """
    p, place, half = np.asarray(plan.pipeline), np.asarray(chip), plan.layers_per_stage / 2
    most = np.maximum(2 * p * kept, (p - place) * kept + 2 * place * waiting)
    return np.asarray(half * (most + np.maximum(waiting - kept, 0.0)))


def microbatches_kept(plan: MeshPlan, stage: ArrayLike) -> Floats:
    """Microbatches whose backward pass stages of a plan keep activations for, at most. [1]

    See `in_flight`.
    """
    schedule, size = plan.schedule, {"stages": plan.pipeline, "microbatches": plan.n_microbatches}
    return in_flight(stage, **size, schedule=schedule, interleave=plan.interleave)


def kept_of_end(plan: MeshPlan, *, is_last: bool) -> Any:
    """Microbatches that the first or the last end of a model keeps something of. [1]

    Under ZB-V one chip has both: those that are forward in its first piece, and the one that turns
    round.
    """
    if plan.schedule is not Schedule.ZB_V:
        return microbatches_kept(plan, plan.pipeline - 1 if is_last else 0)
    return 1.0 if is_last else 2 * np.asarray(plan.pipeline) - 1.0
