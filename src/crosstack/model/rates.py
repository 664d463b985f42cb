"""How fast a chip computes with numbers of one type."""

from __future__ import annotations

import numpy as np

from crosstack.machine.chip import Chip, Execution
from crosstack.model.rules import Rules
from crosstack.workload.dtype import Dtype
from crosstack.workload.kernel_graph import Bools, Floats


def peak_rate(chip: Chip, dtype: Dtype, rules: Rules) -> float:
    """Rate of a chip in numbers of a type: its one peak where rules or chip know no types. [FLOP/s]

    Raises
    ------
    InputError
        If the chip has rates, but none for ``dtype``.
    """
    return rules.clock.peak_rate(chip, dtype)


def reached_rate(chip: Chip, dtype: Dtype, rules: Rules) -> float:
    """Rate that no kernel beats: `peak_rate` times the utilization, if that is given. [FLOP/s]

    On a temporal chip kernels may also run on vector units.
    """
    reached = peak_rate(chip, dtype, rules) * (chip.compute.utilization or 1.0)
    if chip.execution is Execution.TEMPORAL:
        return max(reached, chip.throughput(dtype), chip.vector_throughput(dtype))
    return reached


def cycles_per_step(chip: Chip, dtype: Dtype, rules: Rules, systolic: Bools) -> Floats:
    """Return how many cycles one step of a core takes in numbers of a type, by kernel. [1]

    Parameters
    ----------
    systolic : array of bool
        Which kernels run on the systolic array, not on its lanes.

    Notes
    -----
    The array takes peak over rate: one cycle where the rate is ``2 lanes stages cores frequency``.
    A lane does one operation a cycle, whatever the type, unless that were faster than the rate.
    Data sheets do not say what lanes reach in every type.
    """
    rate = peak_rate(chip, dtype, rules)
    lanes = float(chip.compute.rows) * chip.compute.n_units * chip.compute.frequency
    return np.where(systolic, chip.peak_throughput / rate, max(1.0, lanes / rate))
