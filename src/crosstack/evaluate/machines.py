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
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Names
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.time import decided_plan, evaluate, mapped_plan
from crosstack.machine.chip import Execution, Overlap
from crosstack.machine.prices import Bill, system_power, system_price
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

Floats = NDArray[np.float64]
Network = tuple[Floats, Floats]  # of kernels, and of sums of gradients, by partition first [s]
MOST = 1e60  # of a number that a file may hold
TERMS = ("compute", "memory", "network")
_LINK = re.compile(r"system\.network\[(\d)\]\.(bandwidth|latency)")
# What an array may stand for: its name below, its unit, and what the system has.
_FIELDS: dict[str, tuple[str, str, Callable[[System], float | None]]] = {
    "system.chip.frequency": ("frequency", "Hz", lambda one: one.chip.compute.frequency),
    "system.chip.utilization": ("utilization", "1", lambda one: one.chip.compute.utilization),
    "system.chip.price": ("chip_price", "USD", lambda one: one.chip.price),
    "system.chip.power": ("chip_power", "W", lambda one: one.chip.power),
    "system.memory.bandwidth": ("memory_bandwidth", "B/s", lambda one: one.chip.main_memory.speed),
    "system.memory.capacity": ("memory_capacity", "B", lambda one: one.chip.main_memory.room),
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

    ``network`` has the links of all; NaN is what is not given. Units as in
    `crosstack.machine.system`.
    """

    frequency: Floats
    utilization: Floats
    chip_price: Floats
    chip_power: Floats
    memory_bandwidth: Floats
    memory_capacity: Floats
    network: tuple[DimensionArrays, ...]

    @classmethod
    def of(cls, system: System, arrays: Names[str, Floats]) -> Machines:
        """Return a system with some numbers replaced, by their path in a native file.

        Raises
        ------
        InputError
            For a path of another kind, a number out of range, or arrays of several lengths.
        """
        lengths = {np.size(numbers) for numbers in arrays.values()}
        require(len(lengths) <= 1, "arrays", sorted(lengths), "arrays of one length")
        require(bool(in_range(arrays).all()), "arrays", "another number", "those in_range")
        left = dict(arrays)

        def taken(path: str, usual: float | None) -> Floats:
            numbers = left.pop(path, math.nan if usual is None else usual)
            return np.asarray(numbers, dtype=float)

        given = {name: taken(path, of(system)) for path, (name, _, of) in _FIELDS.items()}
        network = tuple(
            DimensionArrays.of(
                dimension,
                taken(f"system.network[{i}].bandwidth", dimension.bandwidth),
                taken(f"system.network[{i}].latency", dimension.hop_latency),
            )
            for i, dimension in enumerate(system.network)
        )
        for path in left:
            allowed = ", ".join([*_FIELDS, "system.network[i].bandwidth and .latency"])
            raise InputError(Problem(path, f"no field of an array; allowed: {allowed}."))
        return cls(network=network, **given)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of everything that comes out."""
        every = [getattr(self, name) for name, *_ in _FIELDS.values()]
        every += [links for d in self.network for links in (d.bandwidth, d.latency)]
        return np.broadcast_shapes(*(np.shape(value) for value in every))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MachineTimes:
    """Terms by name, NaN where the mapping does not fit the main memory; see `Evaluation`."""

    fits: NDArray[np.bool_]
    reason: str
    terms: dict[str, Floats]


def can_be_arrays(task: Task, mapping: Mapping) -> bool:
    """Return whether `machine_times` covers a mapping; otherwise links are no line, or memory two.

    It does where the mapping is searched, dimensions are not shared, stages hold whole copies, at
    most one dimension is a pipeline, no experts and no sequences are spread, the schedule has a
    closed form, nothing runs before and behind the layers of several stages, the chip is spatial,
    and there is no second memory.
    """
    stages = mapping.degree(Parallelism.PIPELINE)
    pipelines = sum(use is Parallelism.PIPELINE for use in mapping.parallelism)
    return (
        task.workload.placement is Placement.SEARCHED
        and not mapping.dimensions
        and mapping.stages is None
        and pipelines <= 1
        and not mapping.schedule.by_events
        and not (stages > 1 and task.workload.training and task.workload.ends)
        and mapping.degree(Parallelism.EXPERT) == mapping.degree(Parallelism.CONTEXT) == 1
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
    chosen, chip = chosen_rules(rules, MAPPED, otherwise=task.rules), task.system.chip
    endless = replace(task.system, chip=chip.with_memory(capacity=None))
    known = evaluate(task.workload, endless, mapping, chosen)
    system = replace(task.system, network=machines.network)
    plan = _plan(task, system, mapping, chosen)
    network = _network_times(task, mapping, chosen, known, plan, machines.shape)
    speed = machines.frequency / chip.compute.frequency
    if not np.isnan(machines.utilization).all():
        assert chip.compute.utilization is not None  # both come from one chip
        speed = speed * (machines.utilization / chip.compute.utilization)
    terms, layer_time = _partition_times(known, network, machines, speed, chip.overlap, chosen)
    faster = chip.memory_speed(spilled=False) / machines.memory_bandwidth
    many = replace(plan, update=plan.update * faster, casting=plan.casting * faster)
    pipeline, repeated = pipeline_of(many, chip.overlap, chosen), plan.layers_per_stage
    time = iteration_time(pipeline, layer_time * plan.microbatch_size * repeated, chosen)
    through = plan.pipeline * repeated * layer_time + plan.borders * np.asarray(plan.hop)
    terms |= {
        "time": time / plan.copies,
        "latency": plan.microbatch_size * through,
        "stage_transfer_time": np.asarray(pipeline.transfer),
        "launch_time": np.zeros(machines.shape),  # of spatial chips alone
        "bubble_factor": np.asarray(known.bubble_factor),
    }
    terms["energy"] = _energy(task, chosen, known, network, machines, system, plan, terms["time"])
    return _fitting(task, mapping, chosen, known, machines, system, terms)


def _partition_times(
    known: Evaluation,
    network: Network,
    machines: Machines,
    speed: Floats,
    overlap: Overlap,
    rules: Rules,
) -> tuple[dict[str, Floats], Floats]:
    """Return the terms of all partitions by name, and the time of a layer. [s]"""
    totals = {f"{name}_time": np.zeros(machines.shape) for name in TERMS}
    layer_time = np.zeros(machines.shape)
    join = np.maximum if rules.traffic.network_takes_maximum else np.add
    for partition, sent in zip(known.partitions, join(*network), strict=True):
        compute = partition.compute_time / speed
        memory = partition.memory_traffic / machines.memory_bandwidth
        for name, term in zip(TERMS, (compute, memory, sent), strict=True):
            totals[f"{name}_time"] += term
        layer_time += combine_arrays(compute, memory, sent, overlap)
    return totals, layer_time


def _fitting(
    task: Task,
    mapping: Mapping,
    rules: Rules,
    known: Evaluation,
    machines: Machines,
    system: System,
    times: dict[str, Floats],
) -> MachineTimes:
    """Return all terms, of the machines whose main memory holds what there is, from ``times``."""
    shape, sizes, time = machines.shape, mapping.dimension_sizes, times["time"]
    prices, given = system.prices, (system, machines)
    price = _total(system_price(system, sizes), *given, machines.chip_price, prices.memory)
    power = _total(system_power(system, sizes), *given, machines.chip_power, prices.memory_power)
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


def _total(
    bill: Bill, system: System, machines: Machines, chip: Floats, memory: float | None
) -> Floats:
    """Return a bill of every machine, whose links are arrays; NaN where a part is not given.

    ``chip`` is the part of one chip, ``memory`` that of a byte a second of its memory.
    """
    moved = machines.memory_bandwidth * (math.nan if memory is None else memory)
    links = sum(math.nan if part is None else part for part in (bill.links, bill.switches))
    return system.copies * system.n_chips * (chip + moved) + links


def _energy(
    task: Task,
    rules: Rules,
    known: Evaluation,
    network: Network,
    machines: Machines,
    system: System,
    plan: MeshPlan,
    time: Floats,
) -> Floats:
    """Return the energy of an iteration on every machine, NaN where a power is not given. [J]"""
    chip = system.chip
    idle = chip.idle_power or 0.0
    busy = machines.chip_power - idle  # times the energy of a chip that draws 1 W besides
    try:
        rates = energy_rates(replace(system, chip=replace(chip, power=1.0 + idle)), plan)
    except InputError:
        return np.full(machines.shape, math.nan)
    peak = rules.clock.peak_rate(chip, task.workload.graph.dtype)
    computing = sum(kernel.work for kernel in known.kernels) / peak
    traffic = sum(partition.memory_traffic for partition in known.partitions)
    energy = rates.energy(
        time=time if chip.idle_power is not None else time * busy,
        compute=computing * chip.compute.frequency / machines.frequency * busy,
        on_chip=0.0,  # of temporal chips alone
        memory=traffic / chip.memory_speed(spilled=False),
        tensor=network[0].sum(axis=0),
        data=network[1].sum(axis=0),
    )
    return np.broadcast_to(np.asarray(energy.total), machines.shape)


def _plan(task: Task, system: System, mapping: Mapping, rules: Rules) -> MeshPlan:
    general = mapping.sizes, mapping.parallelism, mapping.microbatch_size
    more = mapping.dimensions, mapping.context_exchange
    plan = make_plan(task.workload, system, *general, rules, *more)
    assert plan is not None  # the mapping was evaluated before
    plan = decided_plan(task.workload, system, mapping.general, rules, plan)
    return replace(plan, summed=mapped_plan(task.workload, task.system, mapping, rules).summed)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Message:
    """Bytes that a kernel sends for one sequence, in a collective or to change a layout.

    In none of them: to sum gradients. ``together`` such messages share what is fixed. [1]
    """

    collective: Collective | None = None
    change: tuple[Layout, frozenset[Layout]] | None = None
    size: float
    together: float


def _network_times(
    task: Task,
    mapping: Mapping,
    rules: Rules,
    known: Evaluation,
    plan: MeshPlan,
    shape: tuple[int, ...],
) -> Network:
    """Return the network's times on every machine, from the messages that the mapping sends."""
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
    kernels, gradients = np.zeros((2, len(known.partitions), *shape))
    for p, partition in enumerate(known.partitions):
        for message in (one for name in partition.kernels for one in sent[place[name]]):
            summed = message.collective is None and message.change is None
            (gradients if summed else kernels)[p] += time(message)
    return kernels, gradients


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
