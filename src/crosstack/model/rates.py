"""How fast a chip computes with numbers of one type."""

from __future__ import annotations

from dataclasses import dataclass

from crosstack.machine.chip import Chip, Execution
from crosstack.model.rules import Rules
from crosstack.workload.dtype import Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class CyclesPerStep:
    """Cycles that a step takes on the systolic array and on its lanes. [1]"""

    systolic: float
    simd: float


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


def cycles_per_step(chip: Chip, dtype: Dtype, rules: Rules) -> CyclesPerStep:
    """Return how many cycles one step of a core takes in numbers of a type.

    Notes
    -----
    The array takes peak over rate: one cycle where the rate is ``2 lanes stages cores frequency``.
    A lane does one operation a cycle, whatever the type, unless that were faster than the rate.
    Data sheets do not say what lanes reach in every type.
    """
    rate = peak_rate(chip, dtype, rules)
    lanes = float(chip.compute.rows) * chip.compute.n_units * chip.compute.frequency
    return CyclesPerStep(systolic=chip.peak_throughput / rate, simd=max(1.0, lanes / rate))
