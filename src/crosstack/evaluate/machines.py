"""One mapping on many machines at once: the terms of `crosstack.evaluate.time` as arrays.

The machines differ in numbers that leave what a chip has to do as it is: clock, utilization, main
memory, links, prices and powers. Work, traffic and messages then come from one evaluation:

- compute scales with 1 / (clock x utilization): cores are dealt by cycles;
- memory is traffic over bandwidth;
- network is the time of every message, whose bytes one evaluation tells, by whichever algorithm is
  fastest on a machine's links.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping as Names
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.time import decided_plan, evaluate
from crosstack.machine.chip import Execution, Overlap
from crosstack.machine.prices import (
    cost,
    link_amounts,
    switch_amounts,
    system_power,
    system_price,
    unit_powers,
    unit_prices,
)
from crosstack.machine.system import DimensionArrays, Parallelism, System
from crosstack.mapping.mapping import Mapping, Task
from crosstack.model.choice_index import choice_index, sharding_codes
from crosstack.model.choices import make_choices
from crosstack.model.collectives import NOTHING, AffineTime, ConcaveTime, Layout
from crosstack.model.energy import energy_rates
from crosstack.model.iteration import iteration_time, pipeline_of
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.partition import combine_arrays, make_load
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.units import format_quantity
from crosstack.workload.kernels import Collective, Placement

__all__ = [
    "MachineTimes",
    "Machines",
    "can_be_arrays",
    "in_range",
    "machine_fields",
    "machine_times",
]

Floats = NDArray[np.float64]
MOST = 1e60  # of a number that a file may hold
TERMS = ("compute", "memory", "network")
_LINK = re.compile(r"system\.network\[(\d)\]\.(bandwidth|latency)")
_FIELDS = {
    "system.chip.frequency": ("frequency", "Hz"),
    "system.chip.utilization": ("utilization", "1"),
    "system.chip.price": ("chip_price", "USD"),
    "system.chip.power": ("chip_power", "W"),
    "system.memory.bandwidth": ("memory_bandwidth", "B/s"),
    "system.memory.capacity": ("memory_capacity", "B"),
}


def machine_fields(fields: Sequence[str]) -> dict[str, str]:
    """Return those paths of a native file whose numbers may be arrays, with their units."""
    links = {field: match for field in fields if (match := _LINK.fullmatch(field))}
    found = {field: "B/s" if link[2] == "bandwidth" else "s" for field, link in links.items()}
    return found | {field: _FIELDS[field][1] for field in fields if field in _FIELDS}


def in_range(arrays: Names[str, Floats]) -> NDArray[np.bool_]:
    """Return which machines have numbers that a file may hold, by their path in it."""
    good = np.ones(max((len(numbers) for numbers in arrays.values()), default=1), dtype=bool)
    for path, numbers in arrays.items():
        least = 0.0 if path.endswith(("price", "power", "latency")) else 1.0 / MOST
        most = 1.0 if path == "system.chip.utilization" else MOST
        good &= (numbers >= least) & (numbers <= most)
    return good


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Machines:
    """Numbers of many machines, each an array of one length or one number for all.

    ``link_bandwidth`` [B/s] and ``link_latency`` [s] are those of every dimension; ``utilization``
    is None where the chip's is not given. Units as in `crosstack.machine.system`.
    """

    frequency: Floats
    utilization: Floats | None
    chip_price: Floats
    chip_power: Floats
    memory_bandwidth: Floats
    memory_capacity: Floats
    link_bandwidth: tuple[Floats, ...]
    link_latency: tuple[Floats, ...]

    @classmethod
    def of(cls, system: System, arrays: Names[str, Floats]) -> Machines:
        """Return a system with some numbers replaced, by their path in a native file.

        Raises
        ------
        InputError
            For a path of another kind, a number out of range, or arrays of several lengths.
        """
        chip, memory, network = system.chip, system.chip.main_memory, system.network
        values: dict[str, object] = {
            "frequency": chip.compute.frequency,
            "utilization": chip.compute.utilization,
            "chip_price": math.nan if chip.price is None else chip.price,
            "chip_power": math.nan if chip.power is None else chip.power,
            "memory_bandwidth": memory.speed,
            "memory_capacity": memory.room,
        }
        links = {
            "bandwidth": [np.asarray(d.bandwidth) for d in network],
            "latency": [np.asarray(d.hop_latency) for d in network],
        }
        lengths = {np.size(numbers) for numbers in arrays.values()}
        require(len(lengths) <= 1, "arrays", sorted(lengths), "arrays of one length")
        require(bool(in_range(arrays).all()), "arrays", "another number", "those in_range")
        for path, numbers in arrays.items():
            link = _LINK.fullmatch(path)
            if link is not None and int(link[1]) < len(network):
                links[link[2]][int(link[1])] = numbers
            elif path in _FIELDS:
                values[_FIELDS[path][0]] = numbers
            else:
                allowed = ", ".join([*_FIELDS, "system.network[i].bandwidth and .latency"])
                raise InputError(Problem(path, f"no field of an array; allowed: {allowed}."))
        given = {
            name: None if value is None else np.asarray(value, dtype=float)
            for name, value in values.items()
        }
        bandwidths, latencies = tuple(links["bandwidth"]), tuple(links["latency"])
        return cls(link_bandwidth=bandwidths, link_latency=latencies, **given)  # type: ignore[arg-type]

    @property
    def links(self) -> tuple[Floats, ...]:
        """Bandwidth of every dimension [B/s], then latency of each. [s]"""
        return *self.link_bandwidth, *self.link_latency

    @property
    def shape(self) -> tuple[int, ...]:
        """Of everything that comes out."""
        values = [self.frequency, self.chip_price, self.chip_power, self.memory_bandwidth]
        values += [self.memory_capacity, *self.links]
        values += [] if self.utilization is None else [self.utilization]
        return np.broadcast_shapes(*(value.shape for value in values))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineTimes:
    """Terms by name, NaN where the mapping does not fit the main memory; see `Evaluation`."""

    fits: NDArray[np.bool_]
    reason: str
    terms: dict[str, Floats]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Network:
    """Times of the network on every machine: by partition first, of a transfer and a hop. [s]

    ``system`` has all their links, ``plan`` what a byte takes on them.
    """

    kernels: Floats
    gradients: Floats
    transfer: Floats
    hop: Floats
    system: System
    plan: MeshPlan


def can_be_arrays(task: Task, mapping: Mapping) -> bool:
    """Return whether `machine_times` covers a mapping; otherwise links are no line, or memory two.

    It does where the mapping is searched, dimensions are not shared, stages hold whole copies, at
    most one dimension is a pipeline, the chip is spatial, and there is no second memory.
    """
    pipelines = sum(use is Parallelism.PIPELINE for use in mapping.parallelism)
    return (
        task.workload.placement is Placement.SEARCHED
        and not mapping.dimensions
        and mapping.stages is None
        and pipelines <= 1
        and task.system.chip.execution is Execution.SPATIAL
        and not task.system.chip.has_second_memory
    )


def machine_times(
    task: Task, mapping: Mapping, rules: Rules | str | None, machines: Machines
) -> MachineTimes:
    """Price one mapping on many machines.

    Parameters
    ----------
    task : Task
        The workload, and the machine that the others differ from.
    rules : Rules or str or None
        None: those of the task, or ``crosstack``.

    Raises
    ------
    InputError
        Where `can_be_arrays` says no, and as `crosstack.evaluate.time.evaluate`.
    InfeasibleError
        If a partition does not fit the SRAM, which is the same for all machines.

    Notes
    -----
    Equal to `crosstack.evaluate.time.evaluate` of every machine to rounding.
    """
    require(can_be_arrays(task, mapping), "mapping", "another", "one that can_be_arrays")
    chosen = chosen_rules(rules, MAPPED, otherwise=task.rules)
    endless = replace(task.system, chip=task.system.chip.with_memory(capacity=None))
    known = evaluate(task.workload, endless, mapping, chosen)
    network = _network_times(task, mapping, chosen, known, machines)
    plan = _plan(task, endless, mapping, chosen)
    overlap, repeated = task.system.chip.overlap, plan.layers_per_stage
    speed = machines.frequency / task.system.chip.compute.frequency
    if machines.utilization is not None:
        assert task.system.chip.compute.utilization is not None  # both come from one chip
        speed = speed * (machines.utilization / task.system.chip.compute.utilization)
    terms, layer_time = _partition_times(known, network, machines, speed, overlap, chosen)
    pipeline = replace(pipeline_of(plan, overlap, chosen), transfer=network.transfer)
    time = iteration_time(pipeline, layer_time * plan.microbatch_size * repeated, chosen)
    copies = plan.pipeline * repeated
    terms |= {
        "time": time / plan.copies,
        "latency": plan.microbatch_size * (copies * layer_time + plan.borders * network.hop),
        "stage_transfer_time": network.transfer,
        "launch_time": np.zeros(machines.shape),  # of spatial chips alone
        "bubble_factor": np.asarray(known.bubble_factor),
    }
    terms["energy"] = _energy(task, chosen, known, network, machines, terms["time"])
    return _fitting(task, mapping, chosen, known, machines, terms)


def _partition_times(
    known: Evaluation,
    network: _Network,
    machines: Machines,
    speed: Floats,
    overlap: Overlap,
    rules: Rules,
) -> tuple[dict[str, Floats], Floats]:
    """Return the terms of all partitions by name, and the time of a layer. [s]"""
    totals = {f"{name}_time": np.zeros(machines.shape) for name in TERMS}
    layer_time = np.zeros(machines.shape)
    for p, partition in enumerate(known.partitions):
        kernels, gradients = network.kernels[p], network.gradients[p]
        if rules.traffic.network_takes_maximum:
            both = np.maximum(kernels, gradients)
        else:
            both = kernels + gradients
        compute = partition.compute_time / speed
        memory = partition.memory_traffic / machines.memory_bandwidth
        for name, term in zip(TERMS, (compute, memory, both), strict=True):
            totals[f"{name}_time"] += term
        layer_time += combine_arrays(compute, memory, both, overlap)
    return totals, layer_time


def _fitting(
    task: Task,
    mapping: Mapping,
    rules: Rules,
    known: Evaluation,
    machines: Machines,
    times: dict[str, Floats],
) -> MachineTimes:
    """Return all terms, of the machines whose main memory holds what there is, from ``times``."""
    shape, system, time = machines.shape, task.system, times["time"]
    price, power = _bills(system, mapping.dimension_sizes, machines)
    rate = known.work / time
    peak = system.n_chips * rules.clock.peak_rate(system.chip, task.workload.graph.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = times | {
            "throughput": task.workload.global_batch_size / time,
            "utilization": rate / (peak * machines.frequency / system.chip.compute.frequency),
            "work": np.asarray(known.work),
            "n_chips": np.asarray(system.n_chips),
            "price": price,
            "power": power,
            "cost_efficiency": np.where(price > 0, rate / price, np.nan),
            "power_efficiency": np.where(power > 0, rate / power, np.nan),
        }
    fits = np.broadcast_to(known.memory_used <= machines.memory_capacity * (1 + 1e-12), shape)
    terms = {
        name: np.where(fits, np.broadcast_to(np.asarray(value, dtype=float), shape), np.nan)
        for name, value in found.items()
    }
    terms["memory_used"] = np.full(shape, known.memory_used)
    terms["memory_capacity"] = np.broadcast_to(machines.memory_capacity, shape).astype(float)
    needed = format_quantity(known.memory_used, "B")
    reason = (
        f"infeasible: main memory: a chip needs {needed}, more than there is. "
        "What would make it fit: more memory a chip, another mapping."
    )
    return MachineTimes(fits=fits, reason=reason, terms=terms)


def _energy(
    task: Task,
    rules: Rules,
    known: Evaluation,
    network: _Network,
    machines: Machines,
    time: Floats,
) -> Floats:
    """Return the energy of an iteration on every machine, NaN where a power is not given. [J]"""
    system, chip = network.system, network.system.chip
    idle = chip.idle_power or 0.0
    busy = machines.chip_power - idle  # times the energy of a chip that draws 1 W besides
    try:
        rates = energy_rates(replace(system, chip=replace(chip, power=1.0 + idle)), network.plan)
    except InputError:
        return np.full(machines.shape, math.nan)
    peak = rules.clock.peak_rate(chip, task.workload.graph.dtype)
    computing = sum(kernel.work for kernel in known.kernels) / peak
    traffic = sum(partition.memory_traffic for partition in known.partitions)
    always = time if chip.idle_power is not None else time * busy
    energy = rates.energy(
        time=always,
        compute=computing * chip.compute.frequency / machines.frequency * busy,
        on_chip=0.0,  # of temporal chips alone
        memory=traffic / chip.memory_speed(spilled=False),
        tensor=network.kernels.sum(axis=0),
        data=network.gradients.sum(axis=0),
    )
    return np.broadcast_to(np.asarray(energy.total), machines.shape)


def _plan(task: Task, system: System, mapping: Mapping, rules: Rules) -> MeshPlan:
    plan = make_plan(
        task.workload,
        system,
        mapping.sizes,
        mapping.parallelism,
        mapping.microbatch_size,
        rules,
        mapping.dimensions,
    )
    assert plan is not None  # the mapping was evaluated before
    return decided_plan(task.workload, system, mapping.general, rules, plan)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """Bytes that a kernel sends for one sequence, in a collective or to change a layout.

    In none of them: to sum gradients. ``together`` such messages share what is fixed. [1]
    """

    collective: Collective | None = None
    change: tuple[Layout, frozenset[Layout]] | None = None
    size: float
    together: float

    @property
    def summed(self) -> bool:
        """Whether gradients are summed."""
        return self.collective is None and self.change is None


def _network_times(
    task: Task, mapping: Mapping, rules: Rules, known: Evaluation, machines: Machines
) -> _Network:
    """Return the network's times on every machine, from the messages that the mapping sends."""
    links = zip(task.system.network, machines.link_bandwidth, machines.link_latency, strict=True)
    network = tuple(DimensionArrays.of(*one) for one in links)
    system = replace(task.system, network=network)
    plan = _plan(task, system, mapping, rules)
    sent = _messages(task, mapping, rules)

    @cache  # kernels send the same again and again
    def time(message: _Message) -> Floats:
        if message.change is not None:
            lines = plan.changes[message.change].lines
        elif message.collective is not None:
            lines = plan.collectives[message.collective]
        else:
            lines = plan.periodic
        return lines.time(message.size, together=message.together)

    place = task.workload.graph.index
    kernels, gradients = np.zeros((2, len(known.partitions), *machines.shape))
    for p, partition in enumerate(known.partitions):
        for name in partition.kernels:
            for message in sent[place[name]]:
                total = gradients if message.summed else kernels
                total[p] += time(message)
    return _Network(
        kernels=kernels,
        gradients=gradients,
        transfer=np.asarray(rules.iteration.transfer(plan)),
        hop=np.asarray(plan.hop),
        system=system,
        plan=plan,
    )


def _messages(task: Task, mapping: Mapping, rules: Rules) -> list[list[_Message]]:
    """Return what each kernel sends, read off loads in which one collective alone takes time.

    Where a byte takes a second, the time is the bytes of all messages; where a message does, it is
    their number, over those that share it. What a kernel sends of its own is in the graph; what is
    left are equal messages. Changes of layout are known one by one.
    """
    workload, system = task.workload, task.system
    arrays, plan = workload.graph, _plan(task, task.system, mapping, rules)
    index = choice_index(arrays, workload.placement, named=rules.traffic.traces_layouts)
    codes = sharding_codes(index, mapping.sharding, split=mapping.degree(Parallelism.TENSOR) > 1)
    together = float(plan.microbatch_size if rules.collectives.once_a_microbatch else 1)

    def probed(collective: Collective | None, line: AffineTime) -> tuple[float, ...]:
        lines = {c: ConcaveTime((line,)) if c is collective else NOTHING for c in Collective}
        summed = ConcaveTime((line,)) if collective is None else NOTHING
        only = replace(plan, collectives=lines, periodic=summed, changes={})
        choices = make_choices(workload, arrays, only, mapping.n_tiles, rules)
        load = make_load(workload, system, arrays, only, choices, codes, rules)
        return load.data if collective is None else load.network

    sent: list[list[_Message]] = [[] for _ in range(arrays.n)]
    known = make_choices(workload, arrays, plan, mapping.n_tiles, rules).conversions
    for made in known.made(codes) if plan.changes else ():
        change = made.start, made.ends
        sent[made.kernel].append(_Message(change=change, size=made.size, together=made.together))
    for collective in (None, *Collective):
        sizes = probed(collective, AffineTime(per_byte=1.0))
        numbers = probed(collective, AffineTime(fixed=1.0))
        for i, messages in enumerate(arrays.messages):
            own = [
                c.size
                for c in messages
                if c.collective is collective and not c.periodic and c.size > 0
            ]
            sent[i] += [
                _Message(collective=collective, size=size, together=together) for size in own
            ]
            left = numbers[i] - len(own) / together
            if left > (0.5 / together if collective else 0.0):  # but for rounding
                rest = sizes[i] - sum(own)
                sent[i].append(_Message(collective=collective, size=rest, together=1 / left))
    return sent


def _cost(amount: float, unit: float | None) -> float:
    found = cost(amount, unit)
    return math.nan if found is None else found


def _bills(system: System, sizes: tuple[int, ...], machines: Machines) -> tuple[Floats, Floats]:
    """Price [USD] and power [W] of every machine; as `crosstack.machine.prices`, of arrays.

    NaN where a part is not given.
    """
    found = []
    unit = replace(system, network=tuple(replace(d, bandwidth=1.0) for d in system.network))
    links, ports = link_amounts(unit, sizes), switch_amounts(unit, sizes)
    for bill, chip, memory, units in (
        (
            system_price(system, sizes),
            machines.chip_price,
            system.prices.memory,
            unit_prices(system),
        ),
        (
            system_power(system, sizes),
            machines.chip_power,
            system.prices.memory_power,
            unit_powers(system),
        ),
    ):
        total = system.n_chips * (chip + machines.memory_bandwidth * _cost(1.0, memory))
        for i, bandwidth in enumerate(machines.link_bandwidth):
            # Below some number of chips neither is charged, whatever the bandwidth.
            each = 0.0 if bill.links == 0 else _cost(links[i], units[i].link)
            each += 0.0 if bill.switches == 0 else _cost(ports[i], units[i].switch)
            total = total + each * bandwidth
        found.append(total)
    return found[0], found[1]
