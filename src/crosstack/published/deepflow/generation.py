"""What the releases of the public chip generator do otherwise: a part with a field a difference.

Source: ``deepflow_code``, releases of 2025-09-15 (commit e8fc755), 2021-09-11 (566c192) and
2020-10-30 (e4e5d38), which generates the same chips as that of 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import require
from crosstack.machine.generate.checks import Check
from crosstack.machine.generate.generation import Generation
from crosstack.machine.generate.generator import GeneratedChips
from crosstack.machine.memory import Scope
from crosstack.technology.voltage import OperatingPoint, Supply, point_at, voltage_for_power

Floats = NDArray[np.float64]
REAL = 1e-10  # of an eigenvalue: imaginary part below which the public tool takes it for real


class UnpoweredSram(StrEnum):
    """What an on-chip memory without power to move data becomes."""

    EMPTY = "empty"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReleaseGeneration(Generation):
    """Chips as a release makes them: parts as they are given, all units computing.

    Parameters
    ----------
    clock_at_minimum : bool
        Whether compute and main memory that are held back at their minimum voltage scale the
        clock of that voltage (release of 2025, which overdraws the budget by ``f(Vmin)/f(V)``) or
        keep to the power they may draw (2020, 2021; links in every release).
    refuses_over_maximum : bool
        Whether main memory with power for more than its maximum voltage is refused (the release
        of 2025 crashes) or runs at its maximum (2021).
    unpowered_sram : UnpoweredSram
        Whether memory without dynamic power keeps its capacity at no bandwidth (2025) or has none
        (2020, 2021).
    loose_units : bool
        Whether units that fill no multiprocessor compute (every release).
    stacks_need_edge : bool
        Whether the chip's edge limits the number of stacks or only the number of wires in use
        (every release).
    crossbar_by_scope : bool
        Whether a bank has one port for each client in its scope, or one for each multiprocessor
        whatever its scope (every release).
    given_clock_sets_voltage : bool
        Whether a clock that is given sets the voltage and power of compute, and leaves main memory
        at its nominal voltage, or both report the voltage that their power budget would allow
        (every release).
    intra_neighbours : int
        Neighbours that share the links of a package: 4 in every release, a mesh whatever the
        topology says; 0 takes the template's. [1]
    eigenvalue : bool
        Whether voltages come from the eigenvalues of a companion matrix, with their noise where
        there is no power (every release), or from a solver that keeps its digits.
    """

    checks_budgets: bool = False
    clock_at_minimum: bool = False
    refuses_over_maximum: bool = False
    unpowered_sram: UnpoweredSram = UnpoweredSram.EMPTY
    loose_units: bool = True
    stacks_need_edge: bool = False
    crossbar_by_scope: bool = False
    given_clock_sets_voltage: bool = False
    intra_neighbours: int = 4
    eigenvalue: bool = True

    def __post_init__(self) -> None:
        """Check the kind of every switch."""
        Generation.__post_init__(self)
        few = self.intra_neighbours
        require(few in range(7), "intra_neighbours", few, "a whole number, 0 to 6")
        known = isinstance(self.unpowered_sram, UnpoweredSram)
        require(known, "unpowered_sram", self.unpowered_sram, ", ".join(UnpoweredSram))

    def unchecked(self) -> Generation:
        """Return the same without a check."""
        return replace(self, checks_budgets=False, refuses_over_maximum=False)

    def own_checks(self, chips: GeneratedChips) -> list[Check]:
        """Main memory below its maximum voltage, where that is refused."""
        part = chips.template.dram
        maximum = part.technology.supply.maximum
        if not self.refuses_over_maximum or maximum is None:
            return []
        free = chips.dram.point.free
        levers = f"less power for {part.name}", "rules that run it at its maximum voltage"
        limit = np.full(free.shape, maximum)
        return [
            Check(
                resource="voltage", where=part.name, unit="V",
                demand=free, limit=limit, levers=levers,
            )
        ]  # fmt: skip

    # ------------------------------------------------------------ compute

    def computing_units(self, n_units: Floats, per_multiprocessor: int) -> Floats:
        """All of them, where loose ones compute. [1]"""
        if self.loose_units:
            return n_units
        return Generation.computing_units(self, n_units, per_multiprocessor)

    def point(self, power: Floats, supply: Supply) -> OperatingPoint:
        """As the release solves it, its clock at the minimum voltage where it says so."""
        free = self._free(power, supply)
        held = np.maximum(free, supply.minimum) if self.clock_at_minimum else free
        return point_at(free, supply, throttled=held)

    def link_point(self, power: Floats, supply: Supply) -> OperatingPoint:
        """As the release solves it."""
        free = self._free(power, supply)
        return point_at(free, supply, throttled=free)

    def _free(self, power: Floats, supply: Supply) -> Floats:
        if self.eigenvalue:
            return first_eigenvalue(power, supply)
        return voltage_for_power(power, supply)

    def at_given_clock(
        self,
        rate: Floats,
        supply: Supply,
        *,
        free: OperatingPoint,
        nominal_power: Floats,
        power: Floats,
    ) -> tuple[Floats, Floats]:
        """Voltage [V] and power [W] of the budget, where a clock sets neither."""
        if not self.given_clock_sets_voltage:
            return free.voltage, power
        return Generation.at_given_clock(
            self, rate, supply, free=free, nominal_power=nominal_power, power=power
        )

    # ------------------------------------------------------------ memories

    def clients(self, scope: Scope, n_multiprocessors: Floats, units_in_each: int) -> Floats:
        """One for each multiprocessor, where scopes make no difference. [1]"""
        if not self.crossbar_by_scope:
            return n_multiprocessors
        return Generation.clients(self, scope, n_multiprocessors, units_in_each)

    def powered_capacity(self, capacity: Floats, bandwidth: Floats) -> Floats:
        """All of it, where it is kept. [B]"""
        if self.unpowered_sram is UnpoweredSram.KEPT:
            return capacity
        return Generation.powered_capacity(self, capacity, bandwidth)

    def stacks_at_edge(self, edge_wires: Floats, wires_per_stack: float) -> Floats:
        """Any number, where stacks need no edge. [1]"""
        if not self.stacks_need_edge:
            return np.full(edge_wires.shape, np.inf)
        return Generation.stacks_at_edge(self, edge_wires, wires_per_stack)

    def voltage_at_given_rate(self, voltage: Floats, supply: Supply) -> Floats:
        """Voltage of the budget, where a rate does not set it. [V]"""
        if not self.given_clock_sets_voltage:
            return voltage
        return Generation.voltage_at_given_rate(self, voltage, supply)

    # ------------------------------------------------------------ links

    def neighbours(self, given: int) -> int:
        """Return those of a mesh, or those given. [1]"""
        return self.intra_neighbours or given


def first_eigenvalue(power: Floats, supply: Supply) -> Floats:
    """Voltage as the public tool finds it: the first real eigenvalue of the companion matrix.

    Where the power is zero, the root is double and what comes out is rounding noise, which the
    tool reports as a voltage; so does this.
    """
    threshold = supply.threshold
    c = power * supply.nominal * (supply.nominal - threshold) ** 2
    flat = np.ravel(c)
    found = np.empty_like(flat)
    quadratic = np.array([[2 * threshold, -(threshold**2)], [1.0, 0.0]])
    powered = flat != 0
    if not powered.all():
        found[~powered] = _first_real(np.linalg.eigvals(quadratic)[None, :])
    if powered.any():
        cubic = np.zeros((int(powered.sum()), 3, 3))
        cubic[:, :1, :2], cubic[:, 0, 2] = quadratic[:1], flat[powered]
        cubic[:, 1, 0] = cubic[:, 2, 1] = 1.0
        found[powered] = _first_real(np.linalg.eigvals(cubic))
    return found.reshape(c.shape)


def _first_real(eigenvalues: NDArray[np.complexfloating | np.floating]) -> Floats:
    real = np.abs(eigenvalues.imag) < REAL
    first = np.argmax(real, axis=1)
    values: Floats = eigenvalues.real[np.arange(len(eigenvalues)), first]
    return values


GENERATION_2021 = ReleaseGeneration()
GENERATION_2025 = ReleaseGeneration(
    clock_at_minimum=True, refuses_over_maximum=True, unpowered_sram=UnpoweredSram.KEPT
)
