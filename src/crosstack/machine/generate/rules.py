"""What the releases of the public chip generator do differently, one field each.

`GeneratorRules.crosstack` is the default: what is physically right. The others reproduce the
public tool (``deepflow_code``) for comparison.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import StrEnum

from crosstack.errors import require, unknown_name

__all__ = ["GENERATOR_RULES", "GeneratorRules", "UnpoweredSram", "generator_rules_named"]


class UnpoweredSram(StrEnum):
    """What an on-chip memory without power to move data becomes."""

    EMPTY = "empty"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratorRules:
    """The choices between releases.

    Parameters
    ----------
    name : str
        What the set is called on the command line.
    checks_budgets : bool
        Whether a budget whose parts exceed it, or that is too small for one of its components, is
        refused, or gives a component of nothing (every release).
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
        Whether the chip's edge limits the number of stacks (``ardalani2022deepflow``, equation 4)
        or only the number of wires in use (every release).
    crossbar_by_scope : bool
        Whether a bank has one port for each client in its scope: multiprocessors on the chip, units
        in a multiprocessor, one unit (``ardalani2022deepflow``, 4.4.2), or one for each
        multiprocessor whatever its scope (every release).
    given_clock_sets_voltage : bool
        Whether a clock that is given sets the voltage and power of compute, and leaves main memory
        at its nominal voltage, or both report the voltage that their power budget would allow
        (every release).
    sheds_units : bool
        Whether compute that is held back at its minimum voltage runs fewer units at the full
        clock of that voltage (``ardalani2022deepflow``, 4.4.1) or all of them slower (every
        release); the throughput is the same but for the last unit.
    intra_neighbours : int
        Neighbours that share the links of a package: 4 in every release, a mesh whatever the
        topology says; 0 takes the template's. [1]
    eigenvalue : bool
        Whether voltages come from the eigenvalues of a companion matrix, with their noise where
        there is no power (every release), or from a solver that keeps its digits.
    """

    name: str
    checks_budgets: bool = False
    clock_at_minimum: bool = False
    refuses_over_maximum: bool = False
    unpowered_sram: UnpoweredSram = UnpoweredSram.EMPTY
    loose_units: bool = True
    stacks_need_edge: bool = False
    crossbar_by_scope: bool = False
    given_clock_sets_voltage: bool = False
    sheds_units: bool = False
    intra_neighbours: int = 4
    eigenvalue: bool = True

    def __post_init__(self) -> None:
        """Check the kind of every switch."""
        for item in fields(self):
            if item.type == "bool":
                value = getattr(self, item.name)
                require(isinstance(value, bool), item.name, value, "true or false")
        few = self.intra_neighbours
        require(few in range(7), "intra_neighbours", few, "a whole number, 0 to 6")
        allowed = ", ".join(UnpoweredSram)
        known = isinstance(self.unpowered_sram, UnpoweredSram)
        require(known, "unpowered_sram", self.unpowered_sram, allowed)

    @classmethod
    def crosstack(cls) -> GeneratorRules:
        """Return the default: the releases with what they get wrong put right."""
        return cls(
            name="crosstack",
            checks_budgets=True,
            loose_units=False,
            stacks_need_edge=True,
            crossbar_by_scope=True,
            given_clock_sets_voltage=True,
            intra_neighbours=0,
            eigenvalue=False,
        )

    @classmethod
    def deepflow_paper(cls) -> GeneratorRules:
        """Return what the paper's text says; it differs from the default in the units it sheds."""
        return replace(cls.crosstack(), name="deepflow-paper", sheds_units=True)

    @classmethod
    def deepflow_2025(cls) -> GeneratorRules:
        """Release of 2025-09-15 (commit e8fc755)."""
        return cls(
            name="deepflow-2025",
            clock_at_minimum=True,
            refuses_over_maximum=True,
            unpowered_sram=UnpoweredSram.KEPT,
        )

    @classmethod
    def deepflow_2021(cls) -> GeneratorRules:
        """Release of 2021-09-11 (commit 566c192); that of 2020-10-30 generates the same chips."""
        return cls(name="deepflow-2021")


GENERATOR_RULES: dict[str, Callable[[], GeneratorRules]] = {
    "crosstack": GeneratorRules.crosstack,
    "deepflow-paper": GeneratorRules.deepflow_paper,
    "deepflow-2025": GeneratorRules.deepflow_2025,
    "deepflow-2021": GeneratorRules.deepflow_2021,
}


def generator_rules_named(name: str) -> GeneratorRules:
    """Return the rule set called ``name``.

    Raises
    ------
    InputError
        If there is none; names the nearest.
    """
    if name not in GENERATOR_RULES:
        raise unknown_name("rules", "rules are", name, GENERATOR_RULES)
    return GENERATOR_RULES[name]()
