"""The energy of an iteration: power that is always drawn, and power while a resource is busy.

``E = n P_static T + sum over resources of busy time x power while busy``: static power of every
chip over the iteration, a share of the chip's power while it computes at its peak, the power of
main memory while it moves bytes at its bandwidth, that of links and switch ports while something
is sent over them. With everything busy all the time this is the power budget of
`crosstack.machine.prices` times the time. `energy_rates` is the one place where a plan's rates are
made: the search prices with them what the evaluation counts.

Of a chip that is described by its parts, as a generated one is, the parts say it: what memories and
links draw always, what the units draw at their peak, and what a byte takes of every memory. What a
bought chip draws while it idles is rarely known: where no idle power is given, the chip draws its
whole power always; where it is given, computing at the peak rate adds the rest. `Basis` says which.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar

from crosstack.errors import InputError
from crosstack.machine.chip import Chip
from crosstack.machine.prices import (
    link_amounts,
    missing_costs,
    not_given,
    switch_amounts,
    unit_powers,
)
from crosstack.machine.system import Parallelism, System
from crosstack.model.collectives import Row
from crosstack.model.mesh_plan import MeshPlan

if TYPE_CHECKING:
    from crosstack.model.choices import Choices
    from crosstack.model.partition import ChipLoad, PartitionCost
    from crosstack.model.rules import Rules
    from crosstack.workload.kernel_graph import Ints, KernelGraph


class Basis(StrEnum):
    """What is drawn always; the rest of its power a chip draws at its peak rate."""

    PARTS = "a chip's memories at rest, and its links"
    WHOLE = "a chip's whole power, no idle power given"
    IDLE = "a chip's idle power"
    BUDGET = "all power of all chips, what is busy when being not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """What one chip draws: ``static`` always [W], each resource while it is busy.

    ``compute`` is that at its peak rate, besides ``static`` [W]; ``memory`` that of its main
    memory, for each byte a second [W/(B/s)]; ``links`` that of its share of the links and ports of
    every dimension of the network [W]; ``basis``: where ``static`` and ``compute`` come from.
    """

    static: float
    compute: float
    memory: float
    links: tuple[float, ...]
    basis: Basis


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy of an iteration of the whole machine, by what takes it [J]; ``basis`` of the chips'.

    What hosts, fans and power supplies draw is not in it, but for the links of chips to their
    hosts, which are of the network.
    """

    static: float
    compute: float
    on_chip: float
    memory: float
    network: float
    basis: Basis
    DERIVED: ClassVar[tuple[str, ...]] = ("total",)

    @property
    def total(self) -> float:
        """All of it. [J]"""
        return self.static + self.compute + self.on_chip + self.memory + self.network


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyRates:
    """What the machine draws under one plan: its energy is linear in times of one copy's sequence.

    ``static``: all chips, over the time of an iteration. ``compute``, ``memory``, ``tensor`` and
    ``data``: all that runs in an iteration, for each second that one chip computes at its peak
    rate, its main memory moves bytes, and its links to tensor-parallel and data-parallel chips are
    busy, for one copy of the graph and one sequence; ``expert``: the same of links to chips that
    have other experts, ``context`` to those that share sequences. [W] ``on_chip``: for each joule
    of memories on the chip. [1] ``between_stages``: what stages send to each other in an iteration,
    ``sums`` and ``updates``: what sums of gradients and updates of weights take once, ``hosts``
    what links to hosts do. [J]
    """

    static: float
    compute: float
    memory: float
    tensor: float
    expert: float
    context: float
    data: float
    on_chip: float
    between_stages: float
    sums: Any
    updates: Any
    hosts: Any
    basis: Basis

    @property
    def once(self) -> Any:
        """What an iteration takes whatever its layers take. [J]"""
        return self.between_stages + self.sums + self.updates + self.hosts

    def energy(
        self,
        *,
        time: Any,
        compute: Any,
        on_chip: Any,
        memory: Any,
        tensor: Any,
        data: Any,
        expert: Any = 0.0,
        context: Any = 0.0,
        waited: Any = 0.0,
    ) -> Energy:
        """Return the energy of an iteration that takes ``time`` [s]; the others as the rates'.

        ``tensor`` is with ``expert`` and ``waited``, what of ``context`` does not hide. Of arrays
        of times it has arrays.
        """
        exchanged = (self.expert - self.tensor) * expert
        exchanged += self.context * context - self.tensor * waited
        return Energy(
            static=self.static * time,
            compute=self.compute * compute,
            on_chip=self.on_chip * on_chip,
            memory=self.memory * memory + self.updates,
            network=self.tensor * tensor
            + exchanged
            + self.data * data
            + self.between_stages
            + self.sums
            + self.hosts,
            basis=self.basis,
        )

    def of_ends(self, plan: MeshPlan) -> float:
        """Return what ends add to an iteration, but for its time. [J]"""
        drawn = sum(
            self.compute * end.compute
            + self.on_chip * end.on_chip
            + self.memory * end.memory
            + self.tensor * end.tensor
            + (self.expert - self.tensor) * end.expert
            + self.context * end.context
            - self.tensor * end.waited
            for end in plan.ends
        )
        return drawn / plan.graph_repetitions


def static_power(chip: Chip) -> tuple[float | None, Basis]:
    """Return what a chip draws always, None where it is not given [W], and on what basis."""
    if _has_parts(chip):
        links = sum(link.power for link in (chip.intra, chip.inter) if link)
        return links + sum(level.static_power for level in chip.storage), Basis.PARTS
    if chip.idle_power is None:
        return chip.power, Basis.WHOLE
    return chip.idle_power, Basis.IDLE


def _has_parts(chip: Chip) -> bool:
    """Whether the chip says what its units draw, and a bit of its memories."""
    return chip.compute.power > 0 and any(level.energy_per_bit for level in chip.storage)


def missing_powers(system: System, sizes: tuple[int, ...]) -> tuple[str, ...]:
    """Return the fields of powers that an energy needs and that are not given."""
    missing: list[str] = []
    if static_power(system.chip)[1] is not Basis.PARTS:
        missing += ["system.chip.power"] if system.chip.power is None else []
        missing += ["system.prices.memory_power"] if system.prices.memory_power is None else []
    if math.prod(sizes) > 1:
        missing += missing_costs(system, sizes, unit_powers(system))
    return tuple(missing)


def powers_of(system: System, sizes: tuple[int, ...]) -> Powers:
    """Return what one chip of a system draws, and the links of its share.

    Raises `InputError` for every power that is not given.
    """
    missing = missing_powers(system, sizes)
    if missing:
        raise InputError(not_given(field, "energy") for field in missing)
    chip, prices = system.chip, system.prices
    static, basis = static_power(chip)
    if basis is Basis.PARTS:
        compute = chip.compute.power
        memory = (prices.memory_power or 0.0) + 8 * chip.main_memory.energy_per_bit
    else:
        least = 0.0 if static is None else static
        compute = (0.0 if chip.power is None else chip.power) - least
        memory = prices.memory_power or 0.0
    n_chips = math.prod(sizes)
    links = (0.0,) * len(sizes)
    if n_chips > 1:
        amounts = link_amounts(system, sizes), switch_amounts(system, sizes), unit_powers(system)
        links = tuple(
            (link * (unit.link or 0.0) + port * (unit.switch or 0.0)) / n_chips
            for link, port, unit in zip(*amounts, strict=True)
        )
    static = 0.0 if static is None else static
    return Powers(static=static, compute=compute, memory=memory, links=links, basis=basis)


_ALIKE = (Parallelism.DATA, Parallelism.EXPERT, Parallelism.CONTEXT)  # that sum gradients


def _group_power(system: System, plan: MeshPlan, powers: Powers, *uses: Parallelism) -> float:
    """Power of one chip while its links of some parallelisms are busy. [W]

    Over several dimensions the mean by how long a ring reduce-scatter keeps each busy: ``(p - 1) /
    p`` of what the inner ones leave, over the bandwidth.
    """
    places = plan.dimensions or tuple(range(len(system.network)))
    each: Iterable[Row] = zip(plan.sizes, plan.parallelism, places, strict=True)
    if plan.cut_over is not None and uses == (Parallelism.EXPERT,):  # of all groups with experts
        each = plan.cut_over.network.rows
    members = [
        (system.network[i], size, powers.links[i])
        for size, of, i in each
        if of in uses and size > 1
    ]
    if not members:
        return 0.0
    busy = total = 0.0
    share = 1.0
    for dimension, size, power in members:
        taken = share * (size - 1) / size / dimension.bandwidth
        busy, total = busy + taken * power, total + taken
        share /= size
    return busy / total


def energy_rates(system: System, plan: MeshPlan) -> EnergyRates:
    """Return what a machine draws under a plan; links may have arrays of bandwidths.

    Raises `InputError` for every power that is not given.
    """
    powers = powers_of(system, plan.dimension_sizes)
    group = {use: _group_power(system, plan, powers, use) for use in Parallelism}
    sequences = plan.n_microbatches * plan.microbatch_size
    chips = plan.tensor * plan.alike * math.prod(plan.split)
    passes = sequences * plan.graph_repetitions * chips
    sent = sequences * plan.stage_transfer.per_byte * plan.borders * plan.tensor * plan.alike
    sums = [(plan.graph_repetitions, plan.summed, plan.expert_summed)]
    sums += [(1, end.summed, end.expert_summed) for end in plan.ends]

    def exchanging(*size: Any) -> Any:
        """Time of the links of a chip, once an iteration. [s]"""
        passing = plan.leaving_time(*size) + 2 * plan.bringing_time(*size)  # weights both ways
        once = plan.summing_time(*size) + plan.gathering_time(*size)
        return once + plan.n_microbatches * passing

    summing = chips * sum(count * exchanging(*size) for count, *size in sums)
    updating = chips * sum(count * plan.updated(*size) for count, *size in sums)
    moved = updating * plan.offloaded.moved / plan.sharers(1)
    if plan.offloaded.activations:  # leave, and come back
        moved = moved + 2 * passes * plan.left
    updating = updating * plan.update / plan.sharers(1)
    updating += chips * plan.graph_repetitions * plan.summed * plan.casting
    return EnergyRates(
        static=system.copies * system.n_chips * powers.static,
        compute=passes * powers.compute,
        memory=passes * powers.memory * system.chip.memory_speed(spilled=plan.spilled),
        tensor=passes * group[Parallelism.TENSOR],
        expert=passes * group[Parallelism.EXPERT],
        context=passes * group[Parallelism.CONTEXT],
        data=passes * group[Parallelism.DATA],
        on_chip=passes,
        between_stages=sent * group[Parallelism.PIPELINE],
        sums=summing * _group_power(system, plan, powers, *_ALIKE),
        updates=updating * powers.memory * system.chip.memory_speed(spilled=False),
        hosts=moved * plan.offloaded.link_power,
        basis=powers.basis,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class BusyTimes:
    """How long what draws power is busy for a copy of the graph, at peak rates. [s]

    Numbers, or arrays of many machines. ``compute`` the chip; ``expert`` and ``context`` links to
    chips with other experts and of the same sequences, ``waited`` what of the latter nothing hides;
    ``on_chip`` is what the memories on a temporal chip take. [J]
    """

    compute: Any
    on_chip: Any
    expert: Any
    context: Any
    waited: Any

    @classmethod
    def of(
        cls, chip: Chip, rules: Rules, graph: KernelGraph, choices: Choices, codes: Ints
    ) -> BusyTimes:
        """Return those of one sharding, whose choices are ``codes``."""
        peak, slower = rules.clock.peak_rate(chip, graph.dtype), rules.clock.slower(chip, graph)
        clocked = choices.clocked
        return cls(
            compute=float((choices.work[codes] * slower).sum()) / peak,
            on_chip=0.0 if clocked is None else float(clocked.joules[codes].sum()),
            expert=float(choices.exchange_time[codes].sum()),
            context=float(choices.context_busy[codes].sum()),
            waited=float(choices.context_time[codes].sum()),
        )


def iteration_energy(
    system: System,
    plan: MeshPlan,
    load: ChipLoad,
    costs: Sequence[PartitionCost],
    busy: BusyTimes,
    *,
    time: Any,
) -> Energy | None:
    """Return the energy of an iteration; None where a power that it needs is not given.

    Of one machine, or of many, whose times are arrays.

    Parameters
    ----------
    system, plan, load, costs, busy
        What is priced: layers and their partitions, under the plan with its ends.
    time : float or array
        Of the iteration. [s]
    """
    try:
        rates = energy_rates(system, plan)
    except InputError:
        return None
    copies = plan.graph_repetitions

    def each(name: str, layer: float) -> float:
        added: float = sum(getattr(end, name) for end in plan.ends)
        return layer + added / copies

    return rates.energy(
        time=time,
        compute=each("compute", busy.compute),
        on_chip=each("on_chip", busy.on_chip),
        memory=each("memory", sum(cost.memory for cost in costs)),
        tensor=each("tensor", sum(load.network)),
        data=sum(load.data),
        expert=each("expert", busy.expert),
        context=each("context", busy.context),
        waited=each("waited", busy.waited),
    )


def energy_of_budget(power: float, time: float) -> Energy:
    """Return the energy of a step of which no more is known than its time: never too little.

    All chips draw all of ``power`` [W] for ``time``. [s]
    """
    nothing = dict.fromkeys(("compute", "on_chip", "memory", "network"), 0.0)
    return Energy(static=power * time, **nothing, basis=Basis.BUDGET)
