"""How many layers each stage of a pipeline holds.

Stages hold as many, but where the number of stages does not divide that of layers some places stay
empty. The first stages hold one more than the others. What runs before the first layer and behind
the last one takes time as layers do, so that stages with ends leave such places empty first, as
many as their ends take in operations: embedding and head stand in them (``grattafiori2024llama3``,
section 3.3.2). Every stage holds a layer at least.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from crosstack.machine.system import System
from crosstack.model.attention import work_done
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.workload import End, Workload

if TYPE_CHECKING:
    from crosstack.model.mesh_plan import MeshPlan
    from crosstack.model.rules import Rules


@lru_cache(maxsize=64)
def _ends_in_layers(workload: Workload, system: System, rules: Rules) -> tuple[float, float]:
    """Return how many layers take as long at the chip's peaks as each end of a model. [1]"""
    chip, traffic = system.chip, rules.traffic

    def least(ends: Iterable[End]) -> float:
        each = (
            end.count * rules.clock.least_time(chip, work_done(end.graph, chip, traffic))
            for end in ends
        )
        return sum(each)

    layer = rules.clock.least_time(chip, work_done(workload.graph, chip, traffic))
    if not layer:
        return 0.0, 0.0
    return least(workload.before) / layer, least(workload.after) / layer


def spared_layers(
    workload: Workload, system: System, rules: Rules, pipeline: int
) -> tuple[int, int]:
    """Return how many layers less than the fullest the first and the last stage hold. [1]

    For training with ends, whose stages are timed one by one; else none.
    """
    copies = workload.graph_repetitions
    each = -(-copies // pipeline)
    empty = each * pipeline - copies
    if not (workload.training and workload.ends and pipeline > 1 and empty > 0):
        return 0, 0
    before, behind = _ends_in_layers(workload, system, rules)
    most = range(min(empty, each - 1, math.ceil(before)) + 1)
    pairs = [(some, min(empty - some, each - 1, math.ceil(behind))) for some in most]
    first, last = min(pairs, key=lambda pair: _longer(before - pair[0], behind - pair[1]))
    # As even as can be: the last stage is one of those that hold fewer.
    left = (copies - each + first) // (pipeline - 1)
    return first, max(last, each - left)


def chip_layers(plan: MeshPlan, chip: Any) -> Floats:
    """Layers on chips of a pipeline: of a stage, or of two where microbatches enter at both ends.

    [1]
    """
    own = layers_of(plan, chip)
    if not plan.schedule.both_ends:
        return own
    return np.asarray(own + layers_of(plan, np.asarray(plan.pipeline) - 1 - chip))


def _longer(*ends: float) -> list[float]:
    """Return what ends take that the places they stand in do not, the longest first. [1]"""
    return sorted((max(end, 0.0) for end in ends), reverse=True)


def layers_of(plan: MeshPlan, stage: Any) -> Floats:
    """Layers that stages of a plan hold, or of arrays of plans. [1]"""
    p, most = np.asarray(plan.pipeline), np.asarray(plan.layers_per_stage)
    each, longer = divmod(plan.graph_repetitions, p)
    count = each + (np.asarray(stage) < longer).astype(float)
    first, last = plan.spared
    fewer = np.asarray(first) + last > 0
    if fewer.any():
        inner = np.maximum(p - 2, 1)
        each, longer = divmod(plan.graph_repetitions - 2 * most + first + last, inner)
        own = each + (np.asarray(stage) <= longer)
        own = np.where(np.equal(stage, p - 1), most - last, own)
        count = np.where(fewer, own, count)
    return np.asarray(np.where(np.equal(stage, 0), most - first, count))
