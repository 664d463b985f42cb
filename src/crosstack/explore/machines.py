"""Machines of generated chips, with their price and power: what a workload is mapped onto.

A machine's chips come from a technology and a budget, its price from the area of their dies, the
yield of the node, and the bytes of their memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InfeasibleError, InputError, require_quantity
from crosstack.explore.budget_space import BudgetSpace
from crosstack.machine.chip import Execution
from crosstack.machine.generate.generated import chip_at
from crosstack.machine.generate.generation import Generation
from crosstack.machine.generate.generator import generate_chips
from crosstack.machine.network import RING, SWITCH, NetworkLevel
from crosstack.machine.packages import divided_system, system_of_packages
from crosstack.machine.prices import system_power, system_price
from crosstack.machine.system import Prices, System
from crosstack.technology.wafers import Wafer

__all__ = ["Machine", "MachineChoice", "UnitPrices", "machines_at", "never_slower"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitPrices:
    """What is paid beside the die: per chip, byte and bandwidth.

    Parameters
    ----------
    package : float
        Of one chip: substrate, assembly, test. [USD]
    memory : float
        Main memory. [USD/B]
    link, switch : float
        [USD/(B/s)]
    switch_power : float
        The chips' own power holds that of their links. [W/(B/s)]
    """

    package: float = 0.0
    memory: float = 0.0
    link: float = 0.0
    switch: float = 0.0
    switch_power: float = 0.0

    def __post_init__(self) -> None:
        """Check every price."""
        require_quantity("package", self.package, "USD")
        require_quantity("memory", self.memory, "USD/B")
        require_quantity("link", self.link, "USD/(B/s)")
        require_quantity("switch", self.switch, "USD/(B/s)")
        require_quantity("switch_power", self.switch_power, "W/(B/s)")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineChoice:
    """What was chosen, by field, and the budget that this leaves to be shared out."""

    labels: tuple[tuple[str, str], ...]
    space: BudgetSpace
    wafer: Wafer
    chips_per_package: int
    n_packages: int
    inside: NetworkLevel = RING
    between: NetworkLevel = SWITCH

    @property
    def name(self) -> str:
        """For people and files."""
        return ", ".join(f"{field}={value}" for field, value in self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One point of a choice: the system, what it costs and draws.

    ``price`` [USD] and ``power`` [W] are those of the whole system, ``chip_area`` [m^2] and
    ``die_price`` [USD] those of one chip. ``yield_`` is the share of dies that work. [1]
    """

    system: System
    price: float
    power: float
    chip_area: float
    die_price: float
    yield_: float


def machines_at(
    choice: MachineChoice, points: Floats, prices: UnitPrices, rules: Generation
) -> list[Machine | str]:
    """Return the machine of every point, or why there is none.

    All chips are generated at once, as arrays.
    """
    chips = generate_chips(choice.space.template, choice.space.budgets(points), rules)
    found: list[Machine | str] = []
    for i in range(len(points)):
        try:
            chip = chip_at(chips, (i,))
            die = float(choice.wafer.die_price(chip.area))
            whole = system_of_packages(
                replace(chip.chip, price=die + prices.package),
                chips_per_package=choice.chips_per_package,
                n_packages=choice.n_packages,
                inside=choice.inside,
                between=choice.between,
            )
            system = divided_system(whole)
        except InfeasibleError as error:
            found.append(f"{error.resource} of {error.where}")
            continue
        except InputError as error:
            found.append(str(error.problems[0]))
            continue
        # A system pays for memory by its bandwidth; here it is paid for by its bytes.
        memory = system.chip.main_memory
        paid = Prices(
            link=prices.link,
            switch=prices.switch,
            switch_power=prices.switch_power,
            memory=prices.memory * memory.room / memory.speed,
            memory_power=0.0,
        )
        system = replace(system, prices=paid, name=choice.name or system.name)
        sizes = tuple(d.size or 1 for d in system.network)
        price, power = system_price(system, sizes).total, system_power(system, sizes).total
        assert price is not None  # every part is given
        assert power is not None
        found.append(
            Machine(
                system=system,
                price=price,
                power=power,
                chip_area=chip.area,
                die_price=die,
                yield_=float(choice.wafer.yield_of(chip.area)),
            )
        )
    return found


def never_slower(one: System, others: Sequence[System]) -> NDArray[np.bool_]:
    """Return which of ``others`` run every mapping that ``one`` can hold, at least as fast.

    They have the same shape and no less of anything: then the proved best time on such a machine
    bounds that on ``one``. The shape of a temporal chip is all that its clock knows: a little more
    of something may cut a product in another way, with less left to hide.
    """
    shape, least = _shape(one), np.array(_resources(one))
    return np.array(
        [_shape(other) == shape and bool(np.all(_resources(other) >= least)) for other in others],
        dtype=bool,
    )


def _shape(system: System) -> tuple[object, ...]:
    chip, compute = system.chip, system.chip.compute
    joined = tuple(
        replace(
            dimension,
            bandwidth=1.0,
            latency=None,
            parallelism=None,
            link_power=None,
            link_price=None,
            switch_price=None,
            switch_power=None,
        )
        for dimension in system.network
    )
    if chip.execution is Execution.TEMPORAL:
        memories = tuple(replace(memory, capacity=None) for memory in chip.memories)
        clocked = replace(chip, memories=memories, price=None, power=None, idle_power=None, name="")
        return system.n_chips, clocked, joined
    return (
        system.n_chips,
        (compute.rows, compute.columns, compute.depth, compute.work_per_cycle),
        (compute.relative_rates, compute.accumulator_rates, compute.accumulator),
        chip.overlap,
        joined,
    )


def _resources(system: System) -> tuple[float, ...]:
    """Return what more of never hurts."""
    chip, memory = system.chip, system.chip.main_memory
    links = [number for d in system.network for number in (d.bandwidth, -d.hop_latency)]
    return (
        float(chip.compute.n_units),
        chip.compute.frequency,
        chip.compute.utilization or 1.0,
        chip.on_chip_capacity,
        memory.speed,
        memory.room,
        *links,
    )
