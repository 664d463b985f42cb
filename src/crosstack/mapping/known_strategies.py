"""A search of strategies of which something is known, as of a machine like the one it is on."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from crosstack.machine.system import System
from crosstack.mapping.incumbent import PROOF
from crosstack.mapping.mapping import Certificate, Constraints, Mapping
from crosstack.mapping.parallelism import Use
from crosstack.mapping.strategy_bounds import StrategyBounds
from crosstack.model.rules import Rules
from crosstack.workload.workload import Workload

__all__ = ["of_interest", "search_known"]


def of_interest(best: tuple[Mapping, float] | None, gap: float) -> float:
    """Return below what an objective is of interest beside the best so far. [s]

    As a search counts it, see `crosstack.mapping.search_node.SearchState.target`.
    """
    return math.inf if best is None else best[1] * (1 - max(gap, PROOF / 10))


def search_known(
    search: Callable[..., tuple[Mapping, Certificate]],
    workload: Workload,
    system: System,
    constraints: Constraints,
    rules: Rules,
    *,
    known: StrategyBounds | None,
    best: tuple[Mapping, float] | None,
    gap: float,
    uses: Sequence[Use] | None = None,
) -> tuple[Mapping, Certificate, StrategyBounds | None]:
    """Return the fastest mapping, how sure it is, and what is known of strategies now.

    The certificate's bound is one on all strategies, those that what is known closes, too.

    Parameters
    ----------
    search : callable
        `crosstack.mapping.search.search`, within its limits.
    known : StrategyBounds or None
        Bounds that hold on this machine: strategies that they leave open are searched.
    best : (Mapping, float) or None
        The fastest mapping so far, with its time. [s]
    gap, uses
        As of the search.

    Raises
    ------
    InfeasibleError, LimitError, InputError
        As `crosstack.mapping.search.search`.
    """
    open_ = None if known is None else known.bounds < of_interest(best, gap)
    noted: list[StrategyBounds | None] = []
    mapping, found = search(
        *(workload, system, constraints, rules),
        gap=gap,
        start=best,
        uses=uses if known is None else None,
        among=None if known is None or open_ is None else known.at(open_),
        noted=noted.append,
    )
    new = noted[0]
    if known is None or open_ is None:
        return mapping, found, None if new is None else new.lighter(np.isfinite(new.bounds))
    found = replace(found, bound=min(found.bound, known.at(~open_).least))
    if new is None:
        return mapping, found, known
    bounds = known.bounds.copy()
    bounds[open_] = np.maximum(bounds[open_], new.bounds)
    return mapping, found, replace(known, bounds=bounds)
