"""The clock of a chip under load: as fast as the power of what is busy allows.

A circuit at the voltage V that its clock f needs takes ``P ~ a V^2 f``, where ``a`` is the share of
the time that it is busy (`crosstack.technology.voltage`). A chip whose arrays all multiply at
``Compute.sustained`` takes all the power it may take; where they are busy for a share ``a`` of the
time, the clock rises until ``a V^2 f`` is as large, up to ``Compute.boost``. What else draws power
is left out. Where the two clocks are not known, the chip always runs at that of its rates. Where
chips wait for one another, it is the slowest of them (`crosstack.machine.slowest`).
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from crosstack.machine.compute import Compute
from crosstack.technology.voltage import Supply, relative_rate
from crosstack.workload.kernel_graph import Floats

# Of the voltage at the highest clock, of a tensor core (``deepflow_code``, configs/v100.yaml).
SUPPLY = Supply(nominal=0.8, threshold=0.2, minimum=0.3)
POINTS = 400  # of the curve


@lru_cache(maxsize=1)
def _curve() -> tuple[Floats, Floats, Floats]:
    """Return rates, squares of voltages and their product, over those at the highest clock. [1]"""
    volts = np.linspace(SUPPLY.minimum, SUPPLY.nominal, POINTS)
    rates, squares = relative_rate(volts, SUPPLY), (volts / SUPPLY.nominal) ** 2
    return rates, squares, rates * squares


def clock_share(compute: Compute, work: Floats, chip: Floats, memory: Floats) -> Floats:
    """Return the clock over that of the rates, at which kernels take the power that they may. [1]

    A kernel takes ``max(chip / x, memory)`` at the share x, in which arrays are busy for
    ``work / x``: the highest x at which ``V^2 work / time`` is what it may be. Source:
    sakurai1990alpha.

    Parameters
    ----------
    work, chip, memory : array
        Times of the arrays, if all are busy, of all on the chip, at the clock of the rates, and of
        main memory. [s]
    """
    if compute.sustained is None:
        return np.ones_like(work)
    (rates, squares, powers), boost = _curve(), compute.boost
    allowed = np.interp(compute.sustained * compute.slowest / boost, rates, powers)
    busy = np.maximum(work, 1e-30)
    by_chip = np.interp(allowed * chip / busy, powers, rates)
    by_memory = np.interp(allowed * memory / busy * boost, squares, rates)
    return np.asarray(np.maximum(by_chip, by_memory) * boost)


def reached_share(compute: Compute, *, sustained: bool = True) -> float:
    """Return the rate of the arrays over their peak that no work passes. [1]

    Work that keeps arrays less busy runs faster while it does, but by less than they are idle.
    Where it is not ``sustained``, at the clock that work starts with.
    """
    if compute.sustained is None:
        return 1.0
    if sustained:
        return compute.sustained * compute.slowest
    return compute.boost if compute.starting is None else compute.starting
