"""What a chip does with what arrives, whatever the links.

A chip that runs one kernel at a time runs a collective as a kernel, launched once. What arrives
passes a buffer (``hu2025nccl``): the neighbour writes it there, it is read, and put where it
belongs or sent on with what it is added to; none of these accesses of main memory hides behind the
links. A chip whose kernels run side by side takes it in on its way.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from crosstack.machine.chip import Chip, Execution
from crosstack.model.collectives.lines import Line, Lines
from crosstack.workload.dtype import Dtype
from crosstack.workload.graph import Collective

__all__ = ["ACCESSES", "NONE", "Arrival", "arriving"]

ACCESSES = 3  # of main memory for every byte that arrives


def arriving(collective: Collective, members: int) -> tuple[float, float]:
    """Return what arrives at each of so many chips, and what of it is added: shares of a tensor.

    Parameters
    ----------
    collective : Collective
        What is done with the tensor, its bytes as of
        `crosstack.model.collectives.algorithms`.
    members : int
        Chips that take part. [1]
    """
    others = (members - 1) / members
    match collective:
        case Collective.ALL_GATHER | Collective.ALL_TO_ALL:
            return others, 0.0
        case Collective.REDUCE_SCATTER:
            return others, others
        case Collective.ALL_REDUCE:
            return 2 * others, others
        case Collective.BROADCAST | Collective.POINT_TO_POINT:
            return 1.0, 0.0
        case _:
            assert_never(collective)


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """What a chip takes for what arrives.

    ``moving`` is that of a byte to or from main memory, ``adding`` of a byte that is added. [s/B]
    ``latency`` of main memory and ``launch`` of the kernel come once. [s]
    """

    moving: float = 0.0
    adding: float = 0.0
    latency: float = 0.0
    launch: float = 0.0

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
        )

    def after(self, collective: Collective, members: int, sent: Lines) -> Lines:
        """Return what a collective takes with what its links take; a message is no kernel."""
        if members == 1 or self == NONE:
            return sent
        arrives, added = arriving(collective, members)
        launch = 0.0 if collective is Collective.POINT_TO_POINT else self.launch
        per_byte = max(self.moving * ACCESSES * arrives, self.adding * added)
        return sent + Lines((Line(fixed=self.latency + launch, per_byte=per_byte),))


NONE = Arrival()
