"""Collectives as they were measured, beside what is said of them.

See `crosstack.evaluate.scores` of errors.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from crosstack.evaluate.scores import ONE_EFFICIENCY, Score
from crosstack.machine.chip import Chip
from crosstack.machine.system import Parallelism, System
from crosstack.model.collectives import LeastTime, NetworkUse, least
from crosstack.model.collectives.group import axes_of
from crosstack.model.collectives.own_kernels import MOST, OwnKernel, own_all_reduce
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats
from crosstack.workload.kernels import Collective

# Borders of the classes of sizes, of what a rank has or gets. [B]
SIZES = (2**16, 2**20, 2**24)
ALL = "all"


class Library(StrEnum):
    """What runs a collective: NCCL, or a kernel that a framework has of its own.

    Those of ``vLLM``, eager, are launched one by one by its host.
    """

    NCCL = "NCCL"
    TENSORRT_LLM = "TensorRT-LLM"
    VLLM = "vLLM"
    VLLM_EAGER = "vLLM, eager"


OWN = {
    Library.TENSORRT_LLM: OwnKernel.SENDS,
    Library.VLLM: OwnKernel.READS,
    Library.VLLM_EAGER: OwnKernel.READS,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCollective:
    """A collective of ``ranks`` chips as it was measured. [1], [s]

    ``size`` is what a rank has, before or after, whichever is more. [B]
    """

    collective: Collective
    ranks: int
    size: int
    time: float
    library: Library = Library.NCCL

    @property
    def on_the_bus(self) -> float:
        """Bytes that leave, and reach, a rank at least. [B]"""
        once = self.size * (self.ranks - 1) / self.ranks
        return 2 * once if self.collective is Collective.ALL_REDUCE else once


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveSet:
    """Collectives that were measured among so many chips of one machine, called ``gpu``."""

    gpu: str
    system: System
    rows: tuple[MeasuredCollective, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveScore:
    """Scores of collectives: ours, by size (None: no rows), of bytes over bandwidth alone."""

    ours: Score
    by_size: tuple[Score | None, ...]
    line: Score


def collectives_said(rows: Sequence[MeasuredCollective], system: System) -> Floats:
    """Return what is said of collectives among all chips of a system. [s]"""
    degrees = tuple(level.size or 1 for level in system.network)
    network = NetworkUse.of(system, degrees, (Parallelism.TENSOR,) * len(degrees), Dtype.BF16)
    lines = LeastTime().kernels(replace(network, arrival=replace(network.arrival, own=False)))
    times = np.zeros(len(rows))
    for i, row in enumerate(rows):
        whole = row.ranks if row.collective is Collective.ALL_TO_ALL else 1  # of all ranks
        times[i] = lines[row.collective].time(whole * row.size)
        kernel = OWN.get(row.library) if len(system.network) == 1 else None
        if kernel is not None and row.size <= MOST:
            (axis,) = axes_of(*network.extents(Parallelism.TENSOR))
            kept = network.arrival.per_byte(1 / row.ranks)
            own = least(own_all_reduce(axis, kernel, kept))
            times[i] = min(times[i], own.time(row.size))
        if row.library is Library.VLLM_EAGER:
            times[i] = _launched(row, times[i], system.chip)
    return times


def _launched(row: MeasuredCollective, time: float, chip: Chip) -> float:
    """Return the time of an all-reduce that a host launches, if it takes ``time`` in a graph. [s]

    A kernel of its own reads a buffer that others know, into which the tensor is copied before:
    two launches, where the library takes one. The host may be the slower.
    """
    if row.size > MOST:
        return max(time, chip.launch_overhead)
    copied = 2 * row.size / chip.main_memory.speed
    return max(time + copied, 2 * chip.launch_overhead)


def line_said(rows: Sequence[MeasuredCollective], system: System) -> Floats:
    """Return what the bytes take at one share of the links' bandwidth, after a launch. [s]"""
    reached = ONE_EFFICIENCY * min(level.bandwidth for level in system.network)
    return np.array([system.chip.launch_overhead + row.on_the_bus / reached for row in rows])


def _score(
    rows: Sequence[MeasuredCollective], said: Sequence[float], line: Sequence[float]
) -> CollectiveScore:
    """Return the scores of rows, with what is said of each. [s]"""
    measured, ours = np.array([row.time for row in rows]), np.array(said)
    classes = np.searchsorted(SIZES, [row.size for row in rows], side="right")
    parts = [np.flatnonzero(classes == number) for number in range(len(SIZES) + 1)]
    return CollectiveScore(
        ours=Score.of(ours, measured),
        by_size=tuple(Score.of(ours[i], measured[i]) if i.size else None for i in parts),
        line=Score.of(np.array(line), measured),
    )


def score_sets(sets: Sequence[CollectiveSet]) -> dict[tuple[str, str, str], CollectiveScore]:
    """Score rows by machine, library and collective, each machine's rows of a library together.

    The names of a score are those three, the last ``all`` where it is of several collectives.
    """
    found: dict[tuple[str, str, str], list[tuple[MeasuredCollective, float, float]]] = {}
    for each in sets:
        said, line = collectives_said(each.rows, each.system), line_said(each.rows, each.system)
        for row, ours, plain in zip(each.rows, said, line, strict=True):
            for what in (row.collective.value, ALL):
                of = found.setdefault((each.gpu, row.library.value, what), [])
                of.append((row, float(ours), float(plain)))
    kinds = Counter(names[:2] for names in found)  # one more than a library has of collectives
    kept = {names: of for names, of in found.items() if names[2] != ALL or kinds[names[:2]] > 2}
    return {names: _score(*zip(*of, strict=True)) for names, of in sorted(kept.items())}
