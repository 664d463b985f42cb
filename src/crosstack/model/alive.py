"""Main memory of tensors between kernels while they are alive, of one sequence."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosstack.model.partition import ChipLoad
from crosstack.workload.kernel_graph import bits


def live_size(load: ChipLoad, before: int, inside: int) -> float:
    """Main-memory bytes of one sequence's tensors while partition ``inside`` runs. [B]

    ``before`` is the mask of kernels that have run. A tensor lives from the partition that makes
    it to the last that reads it, unless it never leaves a partition. Those that are kept for the
    backward pass are counted apart.
    """
    reached = before | inside
    return sum(
        flow.held
        for flow in load.flows
        if reached >> flow.producer & 1
        and flow.mask & ~before
        and not (inside >> flow.producer & 1 and not flow.mask & ~inside)
    )


def live_sizes(load: ChipLoad, partitions: Sequence[int]) -> list[float]:
    """Return the `live_size` of every partition of a whole sequence. [B]"""
    number = {i: p for p, inside in enumerate(partitions) for i in bits(inside)}
    alive = np.zeros(len(partitions))
    for flow in load.flows:
        first = number[flow.producer]
        last = max(number[reader] for reader, _ in flow.readers)
        if last > first:
            alive[first : last + 1] += flow.held
    return [float(size) for size in alive]


def least_live(load: ChipLoad) -> float:
    """Main-memory bytes of one sequence's tensors that are alive at least at some time. [B]

    Whatever the partitions of a temporal chip: while a kernel runs, what it reads of kernels that
    are never in one partition with it, and its result where a reader never is. Nothing is known of
    a spatial one.
    """
    if load.temporal is None:
        return 0.0
    meets, alive = load.temporal.legality.may_meet, [0.0] * load.n
    for flow in load.flows:
        apart = {reader for reader, _ in flow.readers if not meets(flow.producer, reader)}
        for kernel in apart | {flow.producer} if apart else ():
            alive[kernel] += flow.held
    return max(alive, default=0.0)
