"""What a chip does with what arrives, whatever the links.

A chip that runs one kernel at a time runs a collective as a kernel, launched once. What arrives
passes a buffer (``hu2025nccl``): it is written there, read, and put where it belongs or sent on
with what it is added to; none of these accesses of main memory hides behind the links. A chip
whose kernels run side by side takes it in on its way.
"""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.machine.chip import Chip, Execution
from crosstack.workload.dtype import Dtype

ACCESSES = 3  # of main memory for every byte that arrives


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

    def per_byte(self, arrives: float, added: float = 0.0) -> float:
        """Time for a byte of a tensor of which a chip gets and adds such shares. [s/B]"""
        return max(self.moving * ACCESSES * arrives, self.adding * added)


NONE = Arrival()
