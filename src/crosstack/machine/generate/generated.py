"""One generated chip, and what it takes of its budget, component by component."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crosstack.errors import InfeasibleError, require
from crosstack.machine.chip import GPU_FUSIONS, Chip, Execution, Link, Overlap
from crosstack.machine.compute import Compute
from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.checks import ROUNDING, checks_of
from crosstack.machine.generate.generation import Generation
from crosstack.machine.generate.generator import (
    Drams,
    GeneratedChips,
    Links,
    SizeBound,
    Srams,
    Use,
    generate_chips,
)
from crosstack.machine.generate.template import ChipTemplate, DramPart, LinkPart, SramPart
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.technology.voltage import RateBound


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """What one component takes, what it may take, and what binds it.

    ``area``, ``area_budget`` [m^2]; ``power``, ``power_budget`` [W]; ``edge``, ``edge_budget`` [m].
    What a template gives may take more than its budget.
    """

    name: str
    area: float
    area_budget: float
    power: float
    power_budget: float
    edge: float
    edge_budget: float
    size_bound: SizeBound
    rate_bound: RateBound

    @property
    def unused_area(self) -> float:
        """Budget less use; below 0 where a given size takes more. [m^2]"""
        return _left(self.area_budget, [self.area])

    @property
    def unused_power(self) -> float:
        """Budget less use; below 0 where a given clock or bandwidth takes more. [W]"""
        return _left(self.power_budget, [self.power])


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedChip:
    """A chip and the account of its budget.

    ``area`` [m^2] and ``power`` [W] are those of the whole budget; ``stacks_area`` is what the
    stacks of main memory take beside the chip, ``package_area`` what the package has there. [m^2]
    """

    chip: Chip
    components: tuple[Component, ...]
    n_stacks: int
    area: float
    power: float
    stacks_area: float
    package_area: float

    @property
    def warnings(self) -> tuple[str, ...]:
        """What was given larger than the area there is for it, a sentence each."""
        found = [(f"{p.name} takes", "of", p.area, p.area_budget) for p in self.components]
        stacks = f"the stacks of {self.chip.main_memory.name} take"
        found.append((stacks, "beside", self.stacks_area, self.package_area))
        return tuple(
            f"{what} {_mm2(taken)} {where} the chip, and {_mm2(there)} is there: it was given "
            "larger than its area."
            for what, where, taken, there in found
            if taken > there * (1 + ROUNDING)
        )

    @property
    def unused_area(self) -> float:
        """Of the chip: shared out to nobody, or not taken. [m^2]"""
        return _left(self.area, [part.area for part in self.components])

    @property
    def unused_power(self) -> float:
        """Of everything: shared out to nobody, or not taken. [W]"""
        return _left(self.power, [part.power for part in self.components])


def _left(total: float, taken: Sequence[float]) -> float:
    """Return what is left of a budget; what rounding leaves of one that is used up is nothing."""
    left = total - math.fsum(taken)
    return 0.0 if abs(left) <= ROUNDING * total else left


def generate(
    template: ChipTemplate, budget: Budget, rules: Generation | None = None
) -> GeneratedChip:
    """Return the chip that a template and one budget make.

    Raises `InfeasibleError` if a budget is impossible under the rules: which one, and by how much.
    Raises `InputError` if the budget holds arrays, or parts that the template does not have.
    """
    require(budget.shape == (), "budget", "arrays", "single numbers; see generate_chips")
    return chip_at(generate_chips(template, budget, rules), ())


def chip_at(chips: GeneratedChips, index: tuple[int, ...]) -> GeneratedChip:
    """Return one of many generated chips; raises as `generate`."""
    for check in checks_of(chips):
        if not check.holds[index]:
            raise InfeasibleError(
                resource=check.resource, where=check.where, unit=check.unit, levers=check.levers,
                demand=float(check.demand[index]), limit=float(check.limit[index]),
            )  # fmt: skip
    budget, n_stacks = chips.budget, int(chips.dram.n_stacks[index])
    chip_area, package_area = (
        _at(np.asarray(area), index) for area in (budget.chip_area, budget.package_area)
    )
    components = tuple(_component(name, use, budget, index) for name, use in chips.uses.items())
    return GeneratedChip(
        chip=_chip(chips, index, power=sum(part.power for part in components)),
        components=components,
        n_stacks=n_stacks,
        area=chip_area,
        stacks_area=n_stacks * chips.template.dram.technology.stack_area,
        package_area=max(0.0, package_area - chip_area),
        power=_at(np.asarray(budget.power), index),
    )


def _mm2(area: float) -> str:
    return f"{area * 1e6:.4g} mm2"


def _at(values: object, index: tuple[int, ...]) -> float:
    array = np.asarray(values, dtype=float)
    return float(array[index] if array.ndim else array)


def _component(name: str, use: Use, budget: Budget, index: tuple[int, ...]) -> Component:
    return Component(
        name=name,
        area=float(use.area[index]), area_budget=_at(budget.area(name), index),
        power=float(use.power[index]), power_budget=_at(budget.power_of(name), index),
        edge=float(use.edge[index]), edge_budget=_at(budget.edge(name), index),
        size_bound=SizeBound(int(use.size_bound[index])),
        rate_bound=RateBound(int(use.rate_bound[index])),
    )  # fmt: skip


def _chip(chips: GeneratedChips, index: tuple[int, ...], *, power: float) -> Chip:
    template, compute, dram = chips.template, chips.compute, chips.dram
    part = template.compute
    known = part.frequency is None or part.unit.nominal_frequency is not None

    def memory(level: SramPart | DramPart, made: Srams | Drams, energy: float) -> MemoryLevel:
        return MemoryLevel(
            name=level.name,
            scope=level.scope if isinstance(level, SramPart) else Scope.CHIP,
            capacity=float(made.capacity[index]),
            bandwidth=float(made.bandwidth[index]),
            latency=level.technology.latency,
            energy_per_bit=energy,
            static_power=float(made.static_power[index]),
            line_size=level.line_size,
        )

    srams = zip(template.srams, chips.srams, strict=True)
    return Chip(
        compute=Compute(
            n_units=int(compute.n_units[index]),
            n_multiprocessors=int(compute.n_multiprocessors[index]),
            work_per_cycle=part.unit.work_per_cycle,
            frequency=float(compute.frequency[index]),
            voltage=float(compute.voltage[index]) if known else 0.0,
            utilization=part.utilization,
            rows=part.unit.rows,
            columns=part.unit.rows,
            depth=part.unit.depth * template.dtype.size,
            dataflow=part.dataflow,
            power=float(compute.power[index]),
        ),
        levels=tuple(memory(part, made, part.technology.energy_per_bit) for part, made in srams),
        memories=(memory(template.dram, dram, float(dram.energy_per_bit[index])),),
        intra=_link(chips.intra, template.intra, index),
        inter=_link(chips.inter, template.inter, index),
        launch_overhead=template.launch_overhead,
        execution=Execution.TEMPORAL,
        overlap=Overlap.COMPUTE_MEMORY,
        fusions=GPU_FUSIONS,
        power=power,
        name=template.name,
    )


def _link(made: Links | None, part: LinkPart | None, index: tuple[int, ...]) -> Link | None:
    if made is None or part is None:
        return None
    return Link(
        n_links=int(made.n_links[index]),
        bandwidth=float(made.bandwidth[index]),
        latency=part.technology.latency,
        frequency=float(made.rate[index]),
        voltage=float(made.voltage[index]),
        power=float(made.power[index]),
    )
