"""How a solver run ended: a closed set of four."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["SolveStatus"]


class SolveStatus(StrEnum):
    """How a solver run ended.

    ``optimal``: proved. ``feasible``: a solution within the gap that was asked for. ``limit``: the
    time limit came first, with or without a solution. ``infeasible``: proved to have none.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    LIMIT = "limit"
