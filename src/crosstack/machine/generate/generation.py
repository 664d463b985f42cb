"""How a chip follows from its budget where there is a choice: the part of a rule set that says so.

The default is what is physically right; what only a release of the public tool does
(``deepflow_code``) is a part of its own in `crosstack.published`.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, assert_never

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import require
from crosstack.machine.memory import Scope
from crosstack.technology.voltage import (
    OperatingPoint,
    Supply,
    operating_point,
    relative_power,
    voltage_for_rate,
)

if TYPE_CHECKING:
    from crosstack.machine.generate.checks import Check
    from crosstack.machine.generate.generator import GeneratedChips

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Generation:
    """Whole multiprocessors, memory where the edge has room for it, clocks that power allows.

    Parameters
    ----------
    checks_budgets : bool
        Whether a budget whose parts exceed it, or that is too small for one of its components, is
        refused, or gives a component of nothing.
    sheds_units : bool
        Whether compute that is held back at its minimum voltage runs fewer units at the full
        clock of that voltage (``ardalani2022deepflow``, 4.4.1) or all of them slower; the
        throughput is the same but for the last unit.
    """

    checks_budgets: bool = True
    sheds_units: bool = False

    def __post_init__(self) -> None:
        """Check every switch."""
        for item in fields(self):
            if item.type == "bool":
                value = getattr(self, item.name)
                require(isinstance(value, bool), item.name, value, "true or false")

    def unchecked(self) -> Generation:
        """Return the same without a check, for chips that are checked elsewhere."""
        return replace(self, checks_budgets=False)

    def own_checks(self, chips: GeneratedChips) -> list[Check]:
        """What has to hold beside the budgets."""
        return []

    # ------------------------------------------------------------ compute

    def computing_units(self, n_units: Floats, per_multiprocessor: int) -> Floats:
        """Units that compute, of those that fit the area: whole multiprocessors. [1]"""
        return np.asarray(np.floor(n_units / per_multiprocessor) * per_multiprocessor)

    def point(self, power: Floats, supply: Supply) -> OperatingPoint:
        """Voltage and rate of compute or main memory that may draw ``power`` times nominal."""
        return operating_point(power, supply)

    def link_point(self, power: Floats, supply: Supply) -> OperatingPoint:
        """Voltage and rate of links that may draw ``power`` times nominal."""
        return operating_point(power, supply)

    def at_given_clock(
        self,
        rate: Floats,
        supply: Supply,
        *,
        free: OperatingPoint,
        nominal_power: Floats,
        power: Floats,
    ) -> tuple[Floats, Floats]:
        """Voltage [V] and power [W] of compute whose clock is given.

        Parameters
        ----------
        rate : ndarray
            The clock over the nominal one. [1]
        free : OperatingPoint
            What the power budget would allow.
        nominal_power, power : ndarray
            At nominal voltage, and the budget. [W]
        """
        voltage = voltage_for_rate(rate, supply)
        return voltage, nominal_power * relative_power(voltage, supply)

    # ------------------------------------------------------------ memories

    def clients(self, scope: Scope, n_multiprocessors: Floats, units_in_each: int) -> Floats:
        """Ports of a bank: one for each client in its scope (``ardalani2022deepflow``, 4.4.2). [1]

        Multiprocessors on the chip, units in a multiprocessor, or one unit.
        """
        match scope:
            case Scope.CHIP:
                return n_multiprocessors
            case Scope.MULTIPROCESSOR:
                return np.full_like(n_multiprocessors, float(units_in_each))
            case Scope.UNIT:
                return np.ones_like(n_multiprocessors)
            case _:
                assert_never(scope)

    def powered_capacity(self, capacity: Floats, bandwidth: Floats) -> Floats:
        """Bytes of an on-chip memory: none where no power is left to move them. [B]"""
        return np.where(bandwidth > 0, capacity, 0.0)

    def stacks_at_edge(self, edge_wires: Floats, wires_per_stack: float) -> Floats:
        """Stacks whose wires the chip's edge has room for (``ardalani2022deepflow``, eq. 4). [1]"""
        return np.asarray(np.floor(edge_wires / wires_per_stack))

    def voltage_at_given_rate(self, voltage: Floats, supply: Supply) -> Floats:
        """Voltage of a main memory whose rate is given: what the interface is made for. [V]"""
        return np.full_like(voltage, supply.nominal)

    # ------------------------------------------------------------ links

    def neighbours(self, given: int) -> int:
        """Neighbours that share the links of a package, of those the template says. [1]"""
        return given
