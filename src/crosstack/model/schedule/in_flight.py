"""Microbatches whose activations a stage keeps, by its schedule."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from crosstack.errors import require
from crosstack.model.schedule.closed import Counts, require_counts
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.transformer_training import Schedule


def in_flight(
    stage: ArrayLike,
    *,
    stages: Counts,
    microbatches: Counts,
    schedule: Schedule = Schedule.ONE_F_ONE_B,
    interleave: Counts = 1,
) -> Floats:
    """Microbatches whose activations a stage keeps at most, each of all layers it holds. [1]

    GPipe keeps all of them until the pipeline turns round; with one forward, one backward a stage
    keeps as many as there are stages from itself to the last; with ``interleave`` v pieces a chip
    the first of p keeps ``1 + (p - 1) / (p v)`` times as much; combined 1F1B one of a piece more.
    Under ZB-H2 stage s keeps
    ``2 (p - s) - 1``, under ZB-V each ``2 p`` of one piece of two. Where microbatches enter at both
    ends, a chip has two stages, s and ``p - 1 - s``, and keeps ``p + 1`` of them. Those whose
    gradients of weights alone are left (`Schedule.defers_weights`) are not counted. Source:
    huang2019gpipe, narayanan2021megatron (sections 2.2.1 and 2.2.2), korthikanti2023reducing,
    qi2024zero (sections 2.3 and 6), nvidia_combined_1f1b.

    Parameters
    ----------
    stage : array_like of int
        Numbers of stages on their chip, from 0. [1]
    stages, microbatches : int or array
        Chips of the pipeline, of one iteration. [1]

    Raises
    ------
    InputError
        If there is no such stage, or a number is not a whole number above 0.
    """
    for name, count in (("stages", stages), ("microbatches", microbatches)):
        require_counts(name, count)
    at = np.asarray(stage)
    inside = bool(((at >= 0) & (at < stages)).all())
    if not inside:  # arrays take long to print
        require(inside, "stage", stage, f"0 to {stages - 1}")
    last = stages - at  # stages from this one to the last
    if schedule is Schedule.GPIPE:
        return np.zeros(np.shape(last)) + microbatches
    if schedule.ends_meet and not schedule.both_ends:
        return np.zeros(np.shape(last)) + np.minimum(stages, microbatches)
    one_more = schedule is Schedule.COMBINED
    whole = np.minimum(schedule.ahead * (last - 1) + 1 + one_more, microbatches)
    if isinstance(interleave, int) and interleave == 1:
        return np.asarray(whole, dtype=float)
    pieces = 2 * last - 1 + (interleave - 1) * stages + one_more
    cut = np.minimum(pieces, interleave * microbatches) / interleave
    return np.where(np.asarray(interleave) == 1, whole, cut)
