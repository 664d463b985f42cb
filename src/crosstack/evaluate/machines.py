"""One mapping on many machines at once: the terms of `crosstack.evaluate.time` as arrays.

The machines differ in numbers that leave what a chip has to do as it is: clock, utilization, main
memory, links, prices and powers. Work, traffic and messages then come from one evaluation, what
takes time of chips and messages from `crosstack.evaluate.machine_blocks`, and the closed forms of
`crosstack.model` take arrays.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Names
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crosstack.errors import InputError, Problem, require
from crosstack.evaluate.evaluation import Evaluation
from crosstack.evaluate.machine_blocks import (
    Block,
    OnChips,
    Sent,
    blocks_of,
    partition_costs,
    sent_by,
    spatial_chips,
    temporal_chips,
)
from crosstack.evaluate.time import Priced, decided_plan, evaluate, priced
from crosstack.machine.chip import Chip, ChipArrays, Execution
from crosstack.machine.prices import system_power, system_price
from crosstack.machine.system import DimensionArrays, Parallelism, System, SystemArrays
from crosstack.mapping.mapping import Mapping, Task
from crosstack.model.ends import end_cost, with_ends
from crosstack.model.energy import BusyTimes, iteration_energy
from crosstack.model.iteration import iterations, latency
from crosstack.model.mesh_plan import MeshPlan, make_plan
from crosstack.model.partition import PartitionCost
from crosstack.model.rules import MAPPED, Rules, chosen_rules
from crosstack.units import format_quantity
from crosstack.workload.kernels import Placement
from crosstack.workload.transformer_training import Schedule
from crosstack.workload.workload import Workload

Floats = NDArray[np.float64]
MOST = 1e60  # of a number that a file may hold
ROOM, OTHERS = "system.memory.capacity", "all else"
_LINK = re.compile(r"system\.network\[(\d)\]\.(bandwidth|latency)")


def _room(system: System) -> float:
    """Return what mappings have of the main memory of a chip. [B]"""
    return system.chip.memory_room(spilled=False)


# What an array may stand for: its name below, its unit, and what the system has.
_FIELDS: dict[str, tuple[str, str, Callable[[System], float | None]]] = {
    "system.chip.frequency": ("frequency", "Hz", lambda one: one.chip.compute.frequency),
    "system.chip.utilization": ("utilization", "1", lambda one: one.chip.compute.utilization),
    "system.chip.price": ("chip_price", "USD", lambda one: one.chip.price),
    "system.chip.power": ("chip_power", "W", lambda one: one.chip.power),
    "system.memory.bandwidth": ("memory_bandwidth", "B/s", lambda one: one.chip.main_memory.speed),
    "system.memory.capacity": ("memory_capacity", "B", _room),
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

        if ROOM in left:
            left[ROOM] = left[ROOM] - system.chip.main_memory.spare - system.chip.set_aside
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

    @staticmethod
    def one(system: System, numbers: Names[str, float]) -> System:
        """Return a system with some numbers replaced, by their path as of `of`."""
        chip, network = system.chip, list(system.network)
        for path, number in numbers.items():
            named: dict[str, Any] = {path.rpartition(".")[2]: number}
            if link := _LINK.fullmatch(path):
                network[int(link[1])] = replace(network[int(link[1])], **named)
            elif path.startswith("system.memory."):
                chip = chip.with_memory(**named)
            elif path in ("system.chip.frequency", "system.chip.utilization"):
                chip = chip.with_compute(**named)
            else:
                chip = replace(chip, **named)
        return replace(system, chip=chip, network=tuple(network))

    def system(self, one: System) -> SystemArrays:
        """Return a system with these numbers, arrays of one shape."""

        def given(numbers: Floats) -> Floats | None:
            return None if np.isnan(numbers).all() else numbers

        chip = ChipArrays.of(
            one.chip,
            frequency=self.frequency,
            utilization=given(self.utilization),
            bandwidth=self.memory_bandwidth,
            price=given(self.chip_price),
            power=given(self.chip_power),
        )
        return SystemArrays.of(one, chip, self.network)

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


def relative_costs(there: Floats, here: Floats, paths: Sequence[str]) -> Floats:
    """Return how many times its time on one machine a task takes on another at least. [1]

    If each cost is at least s times that of the other machine, each mapping takes s times as long
    at least: where all are s times as large it takes so long (`System.slowed`), and more of a cost
    is never faster. 0 where main memory has more room, as other mappings fit.

    Parameters
    ----------
    there, here : array, shape (..., paths)
        Costs of the one and of the other machine; see `machine_costs`.
    """
    room = np.array([path == ROOM for path in paths], dtype=bool)
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = np.where(there > 0, here / there, np.inf)
    shares = np.where(room, np.where(here < there, 0.0, np.inf), shares)
    return np.asarray(np.min(shares, axis=-1))


def machine_costs(arrays: Names[str, Floats]) -> tuple[tuple[str, ...], Floats]:
    """Return which numbers of machines time depends on, and those as costs: the less the faster.

    Shape (machines, paths): one over a rate or a room, a latency as it is, and last 1 for all
    `OTHERS`: what machines have in common.

    Parameters
    ----------
    arrays : mapping of array
        Numbers by path, as of `Machines.of`.
    """
    count = max((len(values) for values in arrays.values()), default=1)
    paths = tuple(path for path in arrays if not path.endswith(("price", "power")))
    columns = [np.asarray(arrays[p], float) for p in paths]
    costs = [x if p.endswith("latency") else 1 / x for p, x in zip(paths, columns, strict=True)]
    return (*paths, OTHERS), np.stack([*costs, np.ones(count)], axis=-1)


def machine_of(system: System, paths: Sequence[str], costs: Sequence[float]) -> System:
    """Return the machine of some costs, as of `machine_costs`; of ``system`` in all else.

    Parameters
    ----------
    paths, costs
        Which they are, and how large.
    """
    given = dict(zip(paths, costs, strict=True))
    rest = given.pop(OTHERS)
    made, numbers = system if rest == 1 else system.slowed(rest), dict[str, float]()
    for path, cost in given.items():
        link = _LINK.fullmatch(path)
        if link is not None and link[2] == "latency":
            paced = made.network[int(link[1])].medium is not None  # and so slowed already
            numbers[path] = cost / rest if paced else cost
        else:
            numbers[path] = 1 / cost
    return Machines.one(made, numbers)


def can_be_arrays(task: Task, mapping: Mapping) -> bool:
    """Return whether `machine_times` covers a mapping; otherwise each machine is priced by itself.

    It does where the mapping is searched, stages hold whole copies, no tokens are exchanged,
    nothing is on the host, no microbatches enter at both ends, and there is no second memory; of
    GPipe and of stages whose pieces wait for one another where nothing runs before and behind the
    layers.
    """
    several = mapping.degree(Parallelism.PIPELINE) > 1
    gpipe = mapping.schedule is Schedule.GPIPE
    return (
        task.workload.placement is Placement.SEARCHED
        and mapping.stages is None
        and not mapping.schedule.both_ends
        and not (several and gpipe and task.workload.training and task.workload.ends)
        and mapping.degree(Parallelism.EXPERT) == 1
        and mapping.expert_tensor in (1, mapping.degree(Parallelism.TENSOR))
        and not mapping.offload
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
    one = priced(task.workload, endless, mapping, chosen)
    many, blocks = machines.system(one.system), blocks_of(one)
    chips = _on_chips(task.workload, endless, mapping, chosen, machines, blocks)
    plan, costs, sent = _plan(many, mapping, chosen, one, blocks, chips)
    layer_time = np.asarray(sum(cost.time for cost in costs))
    found = iterations(plan, layer_time, many.chip.overlap, chosen)
    names = ("compute", "memory", "network", "launch")
    terms: dict[str, Any] = {
        f"{name}_time": sum(getattr(cost, name) for cost in costs) for name in names
    }
    terms |= {
        "time": found.time,
        "latency": latency(plan, layer_time),
        "stage_transfer_time": found.transfer,
        "bubble_factor": found.bubble_factor,
    }
    terms["energy"] = _energy(many, plan, chosen, one, costs, sent[0], chips[0], found.time)
    return _fitting(task, mapping, chosen, known, machines, many, terms)


def _on_chips(
    workload: Workload,
    system: System,
    mapping: Mapping,
    rules: Rules,
    machines: Machines,
    blocks: tuple[Block, ...],
) -> list[OnChips]:
    """Return what the chips of machines take of each block of a mapping."""
    chip, shape = system.chip, machines.shape
    columns = machines.frequency, machines.utilization, machines.memory_bandwidth
    numbers = np.stack([np.broadcast_to(column, shape).ravel() for column in columns])
    if chip.execution is Execution.SPATIAL:
        speed = numbers[0] / chip.compute.frequency
        if not np.isnan(numbers[1]).all():
            assert chip.compute.utilization is not None  # both come from one chip
            speed = speed * (numbers[1] / chip.compute.utilization)
        faster = numbers[2] / chip.memory_speed(spilled=False)
        return [spatial_chips(block, speed, faster) for block in blocks]
    _, first, which = np.unique(  # what is not given is not equal to itself
        np.nan_to_num(numbers), axis=1, return_index=True, return_inverse=True
    )
    each = [
        blocks_of(priced(workload, replace(system, chip=_chip(chip, *row)), mapping, rules))
        for row in numbers[:, first].T.tolist()
    ]
    return [temporal_chips(of_chips).at(which.ravel()) for of_chips in zip(*each, strict=True)]


def _chip(chip: Chip, frequency: float, utilization: float, bandwidth: float) -> Chip:
    """Return a chip with other numbers: one of those that an array holds."""
    share = None if math.isnan(utilization) else utilization
    made = chip.with_compute(frequency=frequency, utilization=share)
    return made.with_memory(bandwidth=bandwidth)


def _plan(
    many: SystemArrays,
    mapping: Mapping,
    rules: Rules,
    one: Priced,
    blocks: tuple[Block, ...],
    chips: list[OnChips],
) -> tuple[MeshPlan, tuple[PartitionCost, ...], list[Sent]]:
    """Return the plan of all machines with its ends, the layers' costs, and what blocks send."""
    workload, general = one.workload, (mapping.sizes, mapping.parallelism, mapping.microbatch_size)
    more = mapping.dimensions, mapping.context_exchange, mapping.expert_tensor
    made = make_plan(workload, many, *general, rules, *more)
    assert made is not None  # the mapping was priced before
    made = decided_plan(workload, many, mapping.general, rules, made)
    names = "summed", "expert_summed", "left"
    plan = replace(made, **{name: getattr(one.plan, name) for name in names})
    sent = [sent_by(b, plan, on.behind, rules) for b, on in zip(blocks, chips, strict=True)]
    costs = [partition_costs(*each) for each in zip(blocks, chips, sent, strict=True)]
    ended = []
    for number, end in enumerate(workload.ends, start=1):
        block, on, own = blocks[number], chips[number], sent[number]
        load = replace(block.priced.load, network=tuple(own.network))
        alone = replace(block.priced, load=load, costs=costs[number])
        cost = end_cost(workload, many, end, plan, rules, alone)
        waited, busy = own.waited.sum(axis=0), own.context.sum(axis=0)
        numbers = {"on_chip": on.joules, "context": busy, "waited": waited}
        ended.append(replace(cost, **{name: end.count * x for name, x in numbers.items()}))
    return with_ends(workload, plan, ended) if ended else plan, costs[0], sent


def _fitting(
    task: Task,
    mapping: Mapping,
    rules: Rules,
    known: Evaluation,
    machines: Machines,
    many: SystemArrays,
    times: dict[str, Any],
) -> MachineTimes:
    """Return all terms, of the machines whose main memory holds what there is, from ``times``."""
    shape, sizes, time = machines.shape, mapping.dimension_sizes, times["time"]
    price, power = (
        math.nan if total is None else total
        for total in (system_price(many, sizes).total, system_power(many, sizes).total)
    )
    rate = known.work / time
    peak = many.copies * many.n_chips * rules.clock.peak_rate(many.chip, task.workload.graph.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = times | {
            "throughput": task.workload.global_batch_size / time,
            "utilization": rate / peak,
            "work": known.work,
            "n_chips": many.n_chips,
            "price": price,
            "power": power,
            "cost_efficiency": np.where(np.asarray(price) > 0, rate / price, np.nan),
            "power_efficiency": np.where(np.asarray(power) > 0, rate / power, np.nan),
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
    many: SystemArrays,
    plan: MeshPlan,
    rules: Rules,
    one: Priced,
    costs: tuple[PartitionCost, ...],
    sent: Sent,
    chips: OnChips,
    time: Floats,
) -> Floats:
    """Return the energy of an iteration on every machine, NaN where a power is not given. [J]"""
    busy = replace(
        BusyTimes.of(many.chip, rules, one.arrays, one.choices, one.codes),
        on_chip=chips.joules,
        context=sent.context.sum(axis=0),
        waited=sent.waited.sum(axis=0),
    )
    load = replace(one.load, network=tuple(sent.network), data=tuple(sent.gradients))
    found = iteration_energy(many, plan, load, costs, busy, time=time)
    return np.asarray(math.nan if found is None else found.total)
