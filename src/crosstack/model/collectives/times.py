"""The time of a collective over the bytes it works on: the least of a few lines.

Each algorithm takes a fixed time and a time per byte; the faster one is taken for every size. So
the time grows with the size and is concave: a bound from a smaller size, or from a sum over parts,
stays one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from crosstack.errors import require
from crosstack.machine.chip import Chip, Execution
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class AffineTime:
    """A time that grows with the bytes moved: ``fixed`` [s] + ``per_byte`` [s/B] x bytes.

    Both are arrays where they are those of many machines.
    """

    fixed: float = 0.0
    per_byte: float = 0.0

    @property
    def many(self) -> bool:
        """Whether this is the line of many machines."""
        return isinstance(self.fixed, np.ndarray) or isinstance(self.per_byte, np.ndarray)


@dataclass(frozen=True, slots=True)
class ConcaveTime:
    """The least of a few lines, sorted: none is below another one everywhere.

    Made by `least`, which drops lines that are never the least.
    """

    members: tuple[AffineTime, ...] = (AffineTime(),)

    def __post_init__(self) -> None:
        """Check that there is a line."""
        require(bool(self.members), "members", self.members, "one line or more")

    def time(self, size: ArrayLike, *, together: ArrayLike = 1) -> Floats:
        """Time that ``size`` bytes take; nothing takes no time. [s]

        ``together`` messages of this size are sent as one, which share what is fixed: the time is
        that of all of them over their number. [1]
        """
        size, together = np.asarray(size, float), np.asarray(together, float)
        times = [line.fixed / together + line.per_byte * size for line in self.members]
        return np.where(size > 0, reduce(np.minimum, times), 0.0)

    def __add__(self, other: ConcaveTime) -> ConcaveTime:
        """One collective after the other, over the same bytes."""
        if other is NOTHING:
            return self
        if self is NOTHING:
            return other
        return least(
            AffineTime(fixed=a.fixed + b.fixed, per_byte=a.per_byte + b.per_byte)
            for a in self.members
            for b in other.members
        )

    def of_share(self, share: float) -> ConcaveTime:
        """Return the time over bytes of which only ``share`` are worked on. [1]"""
        return ConcaveTime(
            tuple(AffineTime(fixed=a.fixed, per_byte=share * a.per_byte) for a in self.members)
        )


NOTHING = ConcaveTime()


def least(lines: Iterable[AffineTime]) -> ConcaveTime:
    """Return the least of ``lines`` for every size, without those that it never is.

    The lower envelope, by a sweep from the steepest line to the flattest: a line is left out where
    its neighbours cross below it. Of many machines every line is kept.
    """
    lines, kept = tuple(lines), list[AffineTime]()
    if any(line.many for line in lines):
        return ConcaveTime(lines)
    for line in sorted(lines, key=lambda line: (-line.per_byte, line.fixed)):
        if kept and line.per_byte == kept[-1].per_byte:
            continue
        while kept and kept[-1].fixed >= line.fixed:
            kept.pop()
        while len(kept) > 1 and _crossing(kept[-2], line) <= _crossing(kept[-2], kept[-1]):
            kept.pop()
        kept.append(line)
    return ConcaveTime(tuple(kept))


def _crossing(steep: AffineTime, flat: AffineTime) -> float:
    """Bytes from which on the flatter line is the faster. [B]"""
    return (flat.fixed - steep.fixed) / (steep.per_byte - flat.per_byte)


# ---------------------------------------------------------------- what arrives


ACCESSES = 3  # of main memory for every byte that arrives


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What a chip does with what arrives, whatever the links.

    A chip that runs one kernel at a time runs a collective as a kernel, launched once. What arrives
    passes a buffer (``hu2025nccl``): it is written there, read, and put where it belongs or sent on
    with what it is added to; none of these accesses of main memory hides behind the links. A chip
    whose kernels run side by side takes it in on its way.

    ``moving`` is that of a byte to or from main memory, ``adding`` of a byte that is added. [s/B]
    ``latency`` of main memory and ``launch`` of the kernel come once. [s] ``own``: whether kernels
    of a framework's own may make sums, in graphs of launches: where no framework is said.
    """

    moving: float = 0.0
    adding: float = 0.0
    latency: float = 0.0
    launch: float = 0.0
    own: bool = False

    @classmethod
    def of(cls, chip: Chip, dtype: Dtype) -> Arrival:
        """Return that of a chip; nothing of one whose kernels run side by side."""
        if chip.execution is Execution.SPATIAL:
            return cls()
        return cls(
            moving=1 / chip.main_memory.speed,
            adding=1 / (dtype.size * chip.vector_throughput(dtype)),
            latency=chip.main_memory.latency,
            launch=chip.launch_overhead,
            own=chip.framework is None,
        )

    @property
    def many(self) -> bool:
        """Whether this is what many chips do: ``moving`` and ``adding`` are arrays."""
        return isinstance(self.moving, np.ndarray) or isinstance(self.adding, np.ndarray)

    def per_byte(self, arrives: float, added: float = 0.0) -> float:
        """Time for a byte of a tensor of which a chip gets and adds such shares. [s/B]"""
        taken: float = np.maximum(self.moving * ACCESSES * arrives, self.adding * added)
        return taken


NONE = Arrival()
