"""The energy of an iteration: power that is always drawn, and power while a resource is busy.

``E = n P_static T + sum over resources of busy time x power while busy``: static power of every
chip over the iteration, a share of the chip's power while it computes at its peak, the power of
main memory while it moves bytes at its bandwidth, that of links and switch ports while something
is sent over them. With everything busy all the time this is the power budget of
`crosstack.machine.prices` times the time.

What a bought chip draws while it idles is rarely known apart from what it draws at most. Where no
idle power is given, the chip draws its whole power always; where it is given, computing at the
peak rate adds the rest.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from crosstack.errors import InputError, Problem
from crosstack.machine.prices import link_amounts, switch_amounts
from crosstack.machine.system import Parallelism, System
from crosstack.model.plan import Plan

__all__ = ["Energy", "Powers", "group_power", "iteration_energy", "powers_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Powers:
    """What one chip draws: ``static`` always [W], each resource while it is busy.

    Parameters
    ----------
    static : float
        Of one chip. [W]
    compute : float
        Of one chip at its peak rate, besides ``static``. [W]
    memory : float
        Of its main memory at its bandwidth. [W]
    links : tuple of float
        Of its share of the links and ports of every dimension of the network. [W]
    basis : str
        Where ``static`` and ``compute`` come from.
    """

    static: float
    compute: float
    memory: float
    links: tuple[float, ...]
    basis: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Energy:
    """Energy of an iteration of the whole machine, by what takes it. [J]"""

    static: float
    compute: float
    memory: float
    network: float

    @property
    def total(self) -> float:
        """All of it. [J]"""
        return self.static + self.compute + self.memory + self.network


def powers_of(system: System, sizes: tuple[int, ...]) -> Powers:
    """Return what a chip of a system draws; [W].

    Parameters
    ----------
    sizes : tuple of int
        Chips of each dimension. [1]

    Raises
    ------
    InputError
        For every power that is not given.
    """
    problems = []

    def given(path: str, value: float | None) -> float:
        if value is None:
            problems.append(Problem(path, "not given, but energy needs it."))
            return 0.0
        return value

    chip = system.chip
    whole = given("system.chip.power", chip.power)
    idle = whole if chip.idle_power is None else chip.idle_power
    memory = given("system.prices.memory_power", system.prices.memory_power)
    n_chips = math.prod(sizes)
    ports, links = switch_amounts(system, sizes), []
    for i, amount in enumerate(link_amounts(system, sizes)):
        if n_chips == 1:
            links.append(0.0)
            continue
        draw = amount * given(f"system.network[{i}].link_power", system.network[i].link_power)
        if ports[i]:
            draw += ports[i] * given("system.prices.switch_power", system.prices.switch_power)
        links.append(draw / n_chips)
    if problems:
        raise InputError(problems)
    basis = "its power always, as no idle power is given"
    if chip.idle_power is not None:
        basis = "its idle power always, the rest of its power at the peak rate"
    return Powers(
        static=idle,
        compute=whole - idle,
        memory=memory * system.chip.main_memory.speed,
        links=tuple(links),
        basis=basis,
    )


def group_power(system: System, plan: Plan, powers: Powers, use: Parallelism) -> float:
    """Power of one chip while its links of one parallelism are busy. [W]

    Notes
    -----
    Over several dimensions the mean by how long a ring reduce-scatter keeps each busy:
    ``(p - 1) / p`` of what the inner ones leave, over the bandwidth.
    """
    busy = total = 0.0
    share = 1.0
    each = zip(system.network, plan.sizes, plan.parallelism, powers.links, strict=True)
    for dimension, size, of, power in each:
        if of is not use or size == 1:
            continue
        taken = share * (size - 1) / size / dimension.bandwidth
        busy, total = busy + taken * power, total + taken
        share /= size
    return busy / total if total else 0.0


def iteration_energy(
    system: System,
    plan: Plan,
    *,
    time: float,
    compute: float,
    memory: float,
    tensor: float,
    data: float,
) -> Energy | None:
    """Return the energy of an iteration; None where a power that it needs is not given.

    Parameters
    ----------
    time : float
        Of the iteration. [s]
    compute, memory, tensor, data : float
        How long one chip computes at its peak rate, its main memory moves bytes, and its links to
        tensor-parallel and data-parallel chips are busy, for one copy of the graph and one
        sequence. [s]

    """
    try:
        powers = powers_of(system, plan.sizes)
    except InputError:
        return None
    n_chips = system.copies * system.n_chips
    sequences = plan.n_microbatches * plan.microbatch_size * plan.graph_repetitions
    passes = sequences * plan.tensor * plan.data * math.prod(plan.split)
    network = tensor * group_power(system, plan, powers, Parallelism.TENSOR)
    network += data * group_power(system, plan, powers, Parallelism.DATA)
    line = plan.stage_transfer
    sent = plan.n_microbatches * line.per_byte * plan.microbatch_size
    sent *= (plan.pipeline - 1) * plan.tensor * plan.data
    return Energy(
        static=n_chips * powers.static * time,
        compute=passes * compute * powers.compute,
        memory=passes * memory * powers.memory,
        network=passes * network + sent * group_power(system, plan, powers, Parallelism.PIPELINE),
    )
