"""How long a search may go on: work that it counts, and a clock.

Work is counted where it is done, in units of a few microseconds on the machines this was written
on, so that a search that stops at a limit of work stops at the same place on any machine, however
busy. The clock is a second limit; which of them came first is kept, to be said.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass

from crosstack.mapping.mapping import Stop

CALL = 60  # units of one round of array operations, however short the arrays
DEAL = 250  # of dealing out cores and memory units together, for one partition


@dataclass(slots=True)
class Budget:
    """What a search may spend: units of ``work`` [1], until ``deadline`` (`time.perf_counter`). [s]

    ``used`` are those spent so far [1], ``cut`` the limit that was reached first, if one was.
    """

    work: float = math.inf
    deadline: float = math.inf
    used: int = 0
    cut: Stop | None = None

    def spend(self, units: int) -> bool:
        """Count ``units`` of work; return whether a limit is reached."""
        self.used += units
        return self.over()

    def over(self) -> bool:
        """Whether a limit is reached: once it is, it stays so."""
        if self.cut is None:
            if self.used > self.work:
                self.cut = Stop.WORK_LIMIT
            elif time.perf_counter() > self.deadline:
                self.cut = Stop.TIME_LIMIT
        return self.cut is not None


UNLIMITED = Budget()
"""No limit; what is spent of it is of no interest."""
