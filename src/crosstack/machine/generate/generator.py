"""Chips from a technology, a template and budgets, all budgets at once.

Every component is filled from its own share, independently but for the multiprocessors that the
crossbars serve:

- compute (``ardalani2022deepflow``, 4.4.1): units that fit the area; voltage and clock from the
  power they may draw (`crosstack.technology.voltage`); throughput by equation 1.
- on-chip memory (4.4.2): banks that fit the area with their crossbar; leakage by equation 2; what
  power is left is bandwidth, equation 3.
- main memory (4.4.3): stacks by equation 4; wires that the edge lets out; their rate from power.
- links (4.4.4): wires that fit area and edge; their rate from power.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crosstack.machine.generate.budget import Budget
from crosstack.machine.generate.generation import Generation
from crosstack.machine.generate.template import (
    ChipTemplate,
    ComputePart,
    DramPart,
    LinkPart,
    SramPart,
)
from crosstack.technology.parts import whole
from crosstack.technology.voltage import OperatingPoint, RateBound, relative_power, relative_rate

Floats = NDArray[np.float64]
Bounds = NDArray[np.int64]


class SizeBound(IntEnum):
    """What keeps a component from being larger."""

    AREA = 0
    EDGE = 1
    PACKAGE = 2
    MINIMUM_VOLTAGE = 3
    GIVEN = 4

    @property
    def words(self) -> str:
        """For people."""
        return self.name.lower().replace("_", " ")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Use:
    """What a component takes of its share: ``area`` [m^2], ``power`` [W], ``edge`` [m].

    ``size_bound`` (`SizeBound`) and ``rate_bound`` (`RateBound`) say what binds it.
    """

    area: Floats
    power: Floats
    edge: Floats
    size_bound: Bounds
    rate_bound: Bounds


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Computes(Use):
    """Compute: how many, clock [Hz], power at nominal voltage [W], operating point."""

    n_units: Floats
    n_multiprocessors: Floats
    frequency: Floats
    voltage: Floats
    nominal_power: Floats
    point: OperatingPoint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Srams(Use):
    """A level of on-chip memory; ``raw_bandwidth`` [B/s] is before utilization."""

    n_banks: Floats
    capacity: Floats
    raw_bandwidth: Floats
    bandwidth: Floats
    static_power: Floats
    dynamic_power: Floats


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Drams(Use):
    """Main memory; ``edge_wires`` is how many wires its edge lets out. [1]"""

    n_stacks: Floats
    n_wires: Floats
    edge_wires: Floats
    capacity: Floats
    rate: Floats
    voltage: Floats
    raw_bandwidth: Floats
    bandwidth: Floats
    static_power: Floats
    dynamic_power: Floats
    energy_per_bit: Floats
    point: OperatingPoint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Links(Use):
    """Links to one level of the network; ``bandwidth`` [B/s] is towards one neighbour."""

    n_links: Floats
    rate: Floats
    voltage: Floats
    bandwidth: Floats
    point: OperatingPoint


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class GeneratedChips:
    """The chips that come out of one template and many budgets, component by component."""

    template: ChipTemplate
    budget: Budget
    rules: Generation
    compute: Computes
    srams: tuple[Srams, ...]
    dram: Drams
    intra: Links | None
    inter: Links | None

    @property
    def peak_throughput(self) -> Floats:
        """Equation 1: units, work per cycle, clock. [FLOP/s]"""
        work = self.template.compute.unit.work_per_cycle
        return self.compute.n_units * work * self.compute.frequency

    @property
    def uses(self) -> dict[str, Use]:
        """What each component takes."""
        parts = [self.compute, *self.srams, self.dram, self.intra, self.inter]
        taken = (part for part in parts if part is not None)
        return dict(zip(self.template.components, taken, strict=True))


def generate_chips(
    template: ChipTemplate, budget: Budget, rules: Generation | None = None
) -> GeneratedChips:
    """Fill a template from budgets; every field that comes out has the shape of the budget.

    Nothing is refused here: a component that gets too little comes out empty. See
    `crosstack.machine.generate.checks` for which budgets are impossible. Source:
    ardalani2022deepflow, section 4.4.

    Parameters
    ----------
    template, budget
        What the chip is made of; areas, powers and edges, arrays for many chips.
    rules : Generation or None
        None: the default.
    """
    rules = rules or Generation()
    budget.check_components(template.components)
    compute = _compute(template, budget, rules)
    return GeneratedChips(
        template=template,
        budget=budget,
        rules=rules,
        compute=compute,
        srams=tuple(_sram(part, template, budget, rules, compute) for part in template.srams),
        dram=_dram(template.dram, budget, rules),
        intra=_links("intra", template.intra, budget, rules),
        inter=_links("inter", template.inter, budget, rules),
    )


def _ratio(part: Floats, of: Floats) -> Floats:
    found: Floats = np.divide(part, of, out=np.zeros(np.broadcast(part, of).shape), where=of > 0)
    return found


def _spread(value: ArrayLike, shape: tuple[int, ...]) -> Floats:
    return np.broadcast_to(np.asarray(value, dtype=float), shape)


def _all(bound: IntEnum, shape: tuple[int, ...]) -> Bounds:
    return np.full(shape, int(bound))


def _counts(part: ComputePart, area: Floats, rules: Generation) -> tuple[Floats, Floats, Bounds]:
    """Return units and multiprocessors that an area has room for, and what bounds them."""
    each = part.units_per_multiprocessor
    if part.n_multiprocessors is not None:
        given = np.full(area.shape, float(part.n_multiprocessors))
        return given * each, given, _all(SizeBound.GIVEN, area.shape)
    n_units = whole(area / part.unit.area)
    n_multiprocessors = np.floor(n_units / each)
    n_units = rules.computing_units(n_units, each)
    return n_units, n_multiprocessors, _all(SizeBound.AREA, area.shape)


def _compute(template: ChipTemplate, budget: Budget, rules: Generation) -> Computes:
    part, shape = template.compute, budget.shape
    unit, per_multiprocessor = part.unit, part.units_per_multiprocessor
    power = _spread(budget.power_of("compute"), shape)
    area = _spread(budget.area("compute"), shape)
    n_units, n_multiprocessors, size_bound = _counts(part, area, rules)
    nominal_power = unit.power * n_units
    point = rules.point(_ratio(power, nominal_power), unit.supply)
    rate, voltage = point.rate, point.voltage
    used, rate_bound = point.power * nominal_power, point.bound
    if part.frequency is not None:
        frequency = np.full(shape, part.frequency)
        rate_bound = _all(RateBound.GIVEN, shape)
        used = np.array(power)
        if unit.nominal_frequency is not None:
            voltage, used = rules.at_given_clock(
                frequency / unit.nominal_frequency,
                unit.supply,
                free=point,
                nominal_power=nominal_power,
                power=used,
            )
    else:
        assert unit.nominal_frequency is not None  # a template without both is refused
        if rules.sheds_units:
            lowest = relative_rate(unit.supply.minimum, unit.supply)
            held = point.bound == RateBound.MINIMUM_VOLTAGE
            left = whole(n_units * rate / lowest / per_multiprocessor) * per_multiprocessor
            n_units = np.where(held, left, n_units)
            n_multiprocessors = np.where(held, left / per_multiprocessor, n_multiprocessors)
            rate = np.where(held, lowest, rate)
            lowest_power = relative_power(unit.supply.minimum, unit.supply)
            used = np.where(held, left * unit.power * lowest_power, used)
            size_bound = np.where(held, int(SizeBound.MINIMUM_VOLTAGE), size_bound)
        frequency = unit.nominal_frequency * rate
    runs = (power > 0) & (nominal_power > 0)
    frequency, used = np.where(runs, frequency, 0.0), np.where(runs, used, 0.0)
    return Computes(
        area=n_units * unit.area,
        power=used,
        edge=np.zeros(shape),
        size_bound=size_bound,
        rate_bound=rate_bound,
        n_units=n_units,
        n_multiprocessors=n_multiprocessors,
        frequency=frequency,
        voltage=voltage,
        nominal_power=nominal_power,
        point=point,
    )


def _sram(
    part: SramPart, template: ChipTemplate, budget: Budget, rules: Generation, compute: Computes
) -> Srams:
    technology, shape = part.technology, budget.shape
    area, power = _spread(budget.area(part.name), shape), _spread(budget.power_of(part.name), shape)
    each = template.compute.units_per_multiprocessor
    ports = rules.clients(part.scope, compute.n_multiprocessors, each)
    if part.capacity is None:
        n_banks = technology.banks(area, ports)
        capacity = n_banks * technology.bank_capacity
        size_bound = SizeBound.AREA
    else:
        n_banks = np.full(shape, whole(part.capacity / technology.bank_capacity))
        capacity = np.full(shape, part.capacity)
        size_bound = SizeBound.GIVEN
    static = technology.static_power(capacity)
    dynamic = np.maximum(0.0, power - static)
    if part.bandwidth is None:
        raw = np.where(n_banks > 0, technology.bandwidth(dynamic), 0.0)
        used, rate_bound = static + np.where(n_banks > 0, dynamic, 0.0), RateBound.POWER
    else:
        raw = np.full(shape, part.bandwidth)
        used = static + 8 * technology.energy_per_bit * raw
        rate_bound = RateBound.GIVEN
    capacity = rules.powered_capacity(capacity, raw)
    return Srams(
        area=n_banks * technology.area_per_bank(ports),
        power=used,
        edge=np.zeros(shape),
        size_bound=_all(size_bound, shape),
        rate_bound=_all(rate_bound, shape),
        n_banks=n_banks,
        capacity=capacity,
        raw_bandwidth=raw,
        bandwidth=raw * part.utilization,
        static_power=static,
        dynamic_power=dynamic,
    )


def _stacks(
    part: DramPart, budget: Budget, rules: Generation, edge_wires: Floats
) -> tuple[Floats, Bounds]:
    """Equation 4: how many stacks, and what bounds them."""
    technology, shape, given = part.technology, budget.shape, part.n_stacks
    if part.capacity is not None:
        given = int(whole(part.capacity / technology.stack_capacity))
    if given is not None:
        return np.full(shape, float(given)), _all(SizeBound.GIVEN, shape)
    beside = np.asarray(budget.package_area, float) - np.asarray(budget.chip_area, float)
    areas = (
        (budget.area(part.name), technology.controller_area),
        (np.maximum(beside, 0.0), technology.stack_area),
    )
    # Memory on the board takes no area of the package.
    limits = [whole(area / size) if size > 0 else np.inf for area, size in areas]
    limits.append(rules.stacks_at_edge(edge_wires, float(technology.wires_per_stack)))
    stacked = np.stack([_spread(limit, shape) for limit in limits])
    order = np.array([SizeBound.AREA, SizeBound.PACKAGE, SizeBound.EDGE], dtype=int)
    return stacked.min(axis=0), order[stacked.argmin(axis=0)]


def _dram(part: DramPart, budget: Budget, rules: Generation) -> Drams:
    technology, shape = part.technology, budget.shape
    edge_wires = _spread(whole(budget.edge(part.name) * technology.wires_per_length), shape)
    n_stacks, size_bound = _stacks(part, budget, rules, edge_wires)
    wires = float(technology.wires_per_stack) * n_stacks
    if part.capacity is None:
        wires, capacity = np.minimum(edge_wires, wires), n_stacks * technology.stack_capacity
    else:
        capacity = np.full(shape, part.capacity)
    static = 8 * technology.static_power_per_bit * capacity
    power = _spread(budget.power_of(part.name), shape)
    dynamic = np.maximum(0.0, power - static)
    nominal = technology.nominal_rate if technology.nominal_rate is not None else part.rate
    assert nominal is not None  # a part without both is refused
    per_rate = technology.energy_per_bit * wires  # W per bit/s of a wire, at nominal voltage
    point = rules.point(_ratio(dynamic, per_rate * nominal), technology.supply)
    rate, voltage, bound = nominal * point.rate, point.voltage, point.bound
    if part.rate is not None:
        rate, bound = np.full(shape, part.rate), _all(RateBound.GIVEN, shape)
        voltage = rules.voltage_at_given_rate(voltage, technology.supply)
    raw = wires * rate / 8
    energy = technology.energy_per_bit * (voltage / technology.supply.nominal) ** 2
    if part.bandwidth is not None:
        raw, bound = np.full(shape, part.bandwidth), _all(RateBound.GIVEN, shape)
    return Drams(
        area=n_stacks * technology.controller_area,
        power=static + 8 * raw * energy,
        edge=wires / technology.wires_per_length,
        size_bound=size_bound,
        rate_bound=bound,
        n_stacks=n_stacks,
        n_wires=wires,
        edge_wires=edge_wires,
        capacity=capacity,
        rate=rate,
        voltage=voltage,
        raw_bandwidth=raw,
        bandwidth=raw * part.utilization,
        static_power=static,
        dynamic_power=dynamic,
        energy_per_bit=energy,
        point=point,
    )


def _links(name: str, part: LinkPart | None, budget: Budget, rules: Generation) -> Links | None:
    if part is None:
        return None
    technology, shape = part.technology, budget.shape
    by_area = budget.area(name) / technology.area_per_wire
    by_edge = budget.edge(name) * technology.wires_per_length
    n = _spread(whole(np.minimum(by_area, by_edge)), shape)
    bound = np.where(by_area <= by_edge, int(SizeBound.AREA), int(SizeBound.EDGE))
    power = _spread(budget.power_of(name), shape)
    nominal_power = technology.energy_per_bit * n * technology.nominal_rate
    point = rules.link_point(_ratio(power, nominal_power), technology.supply)
    rate = np.where(n > 0, technology.nominal_rate * point.rate, 0.0)
    neighbours = rules.neighbours(part.n_neighbours) if name == "intra" else part.n_neighbours
    return Links(
        area=n * technology.area_per_wire,
        power=nominal_power * point.power,
        edge=n / technology.wires_per_length,
        size_bound=np.broadcast_to(bound, shape),
        rate_bound=np.where(n > 0, point.bound, int(RateBound.NOTHING)),
        n_links=n,
        rate=rate,
        voltage=np.where(n > 0, point.voltage, 0.0),
        bandwidth=n * rate * part.utilization / (8 * neighbours),
        point=point,
    )
