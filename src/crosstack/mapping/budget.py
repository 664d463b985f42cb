"""How long a search may go on: work that it counts, and a clock.

Work is counted where it is done, in units of a few microseconds on the machines this was written
on, so that a search that stops at a limit of work stops at the same place on any machine, however
busy. The clock is a second limit; which of them came first is kept, to be said.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

from crosstack.mapping.mapping import Stop

CALL = 60  # units of one round of array operations, however short the arrays
DEAL = 250  # of dealing out cores and memory units together, for one partition


@dataclass(slots=True)
class Budget:
    """What a search may spend: units of ``work`` [1], until ``deadline`` (`time.perf_counter`). [s]

    ``used`` are those spent so far [1], ``cut`` the limit that was reached first, if one was;
    ``begun`` is when it was made. [s]
    """

    work: float = math.inf
    deadline: float = math.inf
    used: int = 0
    cut: Stop | None = None
    begun: float = field(default_factory=time.perf_counter)

    def spend(self, units: int) -> bool:
        """Count ``units`` of work; return whether a limit is reached."""
        self.used += units
        return self.over()

    def part(self, share: float) -> Budget:
        """Return a budget of a share of what is left. Spend what it has `used` here, too."""
        now = time.perf_counter()
        return Budget(
            work=share * max(0.0, self.work - self.used),
            deadline=now + share * max(0.0, self.deadline - now),
        )

    def share_spent(self) -> float:
        """Share of the limit that is spent, of that which comes first: 0 to 1."""
        work = self.used / self.work if self.work > 0 else 1.0
        taken = time.perf_counter() - self.begun
        given = self.deadline - self.begun
        return min(1.0, max(work, taken / given if given > 0 else 1.0))

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
