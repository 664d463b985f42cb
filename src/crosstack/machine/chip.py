"""The chip record: compute, memory on the chip and beside it, links at its edge.

One record for every chip: a flat one is cores that share one memory, one from a data sheet or a
generated one has levels. `crosstack.machine.generate` makes chips from a technology and budgets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from crosstack.errors import (
    InputError,
    Problem,
    require,
    require_quantity,
    require_whole,
    unknown_name,
)
from crosstack.machine.compute import Compute
from crosstack.machine.framework import Framework, Fusion
from crosstack.machine.memory import MemoryLevel, Scope
from crosstack.records import require_types
from crosstack.workload.dtype import Dtype

MOST_MEMORIES = 2  # the main one, and one behind it


class Overlap(StrEnum):
    """Which of compute, memory and network time hide behind each other in a partition."""

    ALL = "all"
    NONE = "none"
    COMPUTE_MEMORY = "compute_memory"


class Execution(StrEnum):
    """How a chip runs the kernels of a partition: side by side on its units, or one by one."""

    SPATIAL = "spatial"
    TEMPORAL = "temporal"


GPU_FUSIONS = tuple(Fusion)  # what libraries for GPUs do: cuBLAS, cuDNN, FlashAttention


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """The links of a chip to one level of the network.

    ``n_links``: wires at the chip's edge [1]; ``bandwidth``: towards one neighbour, one direction,
    after utilization [B/s]; ``latency``: of one hop [s]; ``frequency``: bits a second on one wire
    [1/s]; ``voltage``: of the drivers [V]; ``power``: of all wires [W].
    """

    n_links: int
    bandwidth: float
    latency: float
    frequency: float = 0.0
    voltage: float = 0.0
    power: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        require_whole("n_links", self.n_links, minimum=0)
        units = {"bandwidth": "B/s", "latency": "s", "frequency": "1/s", "voltage": "V"}
        for name, unit in (units | {"power": "W"}).items():
            require_quantity(name, getattr(self, name), unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chip:
    """One accelerator chip; None stands for what is not given.

    ``levels`` are the memory on the chip, innermost (registers) first; ``memories`` those beside
    it: the main one, then perhaps a slower one that takes what does not fit. ``intra`` and
    ``inter`` are links to chips of the same package or node, and to those outside; ``fusions`` what
    a temporal chip may fuse. ``overlap``: of chips of the library and generated ones, the network
    hides behind nothing where kernels run one by one: a collective waits for the kernel before it.
    ``launch_overhead`` is before a kernel starts [s]; ``communicating_share`` of its units runs a
    collective where that runs beside kernels, and nothing else meanwhile [1]; ``price`` [USD],
    ``power`` with all running and ``idle_power`` [W] are of one chip. ``framework`` drives a
    temporal chip; None: all that it may fuse is fused, and its host is never waited for.
    """

    compute: Compute
    levels: tuple[MemoryLevel, ...] = ()
    memories: tuple[MemoryLevel, ...] = ()
    intra: Link | None = None
    inter: Link | None = None
    execution: Execution = Execution.SPATIAL
    fusions: tuple[Fusion, ...] = ()
    overlap: Overlap = Overlap.ALL
    launch_overhead: float = 0.0
    communicating_share: float = 0.0
    price: float | None = None
    power: float | None = None
    idle_power: float | None = None
    framework: Framework | None = None
    name: str = "chip"

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        driven = self.framework is None or self.execution is Execution.TEMPORAL
        one_by_one = f"none: {self.name} does not run kernels one by one, as its compiler lays out"
        require(driven, "framework", getattr(self.framework, "name", None), one_by_one)
        names, memories = [level.name for level in self.storage], len(self.memories)
        require(len(set(names)) == len(names), "levels", names, "a name of its own for each level")
        require(memories <= MOST_MEMORIES, "memories", memories, f"up to {MOST_MEMORIES}")
        require_quantity("launch_overhead", self.launch_overhead, "s")
        share = self.communicating_share
        require(0 <= share < 1, "communicating_share", share, "a share of its units, below 1")
        for name, unit in (("price", "USD"), ("power", "W"), ("idle_power", "W")):
            if getattr(self, name) is not None:
                require_quantity(name, getattr(self, name), unit)

    @property
    def storage(self) -> tuple[MemoryLevel, ...]:
        """The levels on the chip and the main memory, innermost first."""
        return (*self.levels, *self.memories[:1])

    @property
    def main_memory(self) -> MemoryLevel:
        """The memory beside the chip; `InputError` where the chip is described without."""
        if not self.memories:
            raise InputError(Problem("memory", f'"{self.name}" has none; give it one.'))
        return self.memories[0]

    @property
    def shared_level(self) -> MemoryLevel | None:
        """The first level on the chip that all multiprocessors share."""
        return next((level for level in self.levels if level.scope is Scope.CHIP), None)

    @property
    def last_cache(self) -> MemoryLevel | None:
        """The outermost level that the whole chip shares, before main memory; None without one."""
        shared = [level for level in self.levels if level.scope is Scope.CHIP]
        return shared[-1] if shared else None

    @property
    def fused(self) -> tuple[Fusion, ...]:
        """What is fused on it: what it may fuse, as far as its framework does."""
        if self.framework is None:
            return self.fusions
        return tuple(each for each in self.fusions if each in self.framework.fusions)

    @property
    def on_chip_capacity(self) -> float:
        """What all levels on the chip hold, as ``ko2025dfmodel``, Table V counts a GPU's. [B]"""
        return sum((level.room for level in self.levels), 0.0)

    @property
    def peak_throughput(self) -> float:
        """Peak rate of the units. [FLOP/s]"""
        return self.compute.peak_throughput

    def level(self, name: str) -> MemoryLevel:
        """Return the level or memory called ``name``.

        Raises `InputError` if there is none; names the nearest.
        """
        known = (*self.levels, *self.memories)
        found = next((level for level in known if level.name == name), None)
        if found is not None:
            return found
        raise unknown_name("levels", "level is", name, (each.name for each in known), "Levels")

    def rate(self, dtype: Dtype) -> float:
        """Return the peak rate in numbers of a type. [FLOP/s]

        Raises `InputError` if the chip has rates, but none for ``dtype``: names those it has.
        """
        if not self.compute.relative_rates:
            return self.peak_throughput
        share = self.compute.relative_rate(dtype)
        if share is None:
            raise InputError(self._no_rate(dtype))
        return share * self.peak_throughput

    def adding_in(self, accumulator: Dtype, dtype: Dtype) -> Chip:
        """Return the chip as a job runs it that adds up products of a type in another.

        Raises `InputError` if it has rates by type, but none for that; names what it adds up in.
        """
        if not self.compute.relative_rates or accumulator is dtype.accumulator:
            return self
        made = self.with_compute(accumulator=accumulator)
        made.rate(dtype)  # has it one?
        return made

    def _no_rate(self, dtype: Dtype) -> Problem:
        shares, sums = dict(self.compute.relative_rates), self.compute.accumulator
        none = f'"{self.name}" has no rate for {dtype}'
        if dtype in shares and sums is not None:
            known = [of for to, of, _ in self.compute.accumulator_rates if to is dtype]
            usual = () if dtype.accumulator is None else (dtype.accumulator,)
            allowed = ", ".join((*usual, *known)) or "nothing, as usual"
            message = f"{none} added up in {sums}; allowed: {allowed}."
            return Problem("workload.accumulator", message)
        give = f"Give it one as system.chip.rates.{dtype}, or another workload.dtype."
        return Problem("system.chip.rates", f"{none}; it has {', '.join(shares)}. {give}")

    def throughput(self, dtype: Dtype) -> float:
        """Return the rate that is reached in numbers of a type; raises as `rate`. [FLOP/s]"""
        share = self.compute.utilization
        return self.rate(dtype) * (1.0 if share is None else share)

    def vector_throughput(self, dtype: Dtype) -> float:
        """Return the rate that elementwise work in numbers of a type reaches. [FLOP/s]

        That of the units beside the arrays, in single precision where they have no rate of the
        type; of a chip that has none of these, what the arrays reach.
        """
        shares, reached = dict(self.compute.relative_vector_rates), self.compute.utilization
        share = shares.get(dtype, shares.get(Dtype.FP32))
        if share is None:
            return self.throughput(dtype)
        return share * self.peak_throughput * (1.0 if reached is None else reached)

    def capacity_of_instance(self, level: MemoryLevel) -> float:
        """Return the capacity of one instance of ``level``: what a tile has to fit in. [B]"""
        compute = self.compute
        instances = {
            Scope.UNIT: compute.n_units,
            Scope.MULTIPROCESSOR: compute.n_multiprocessors,
            Scope.CHIP: 1,
        }[level.scope]
        return level.room / instances if instances else 0.0

    @property
    def has_second_memory(self) -> bool:
        """Whether there is a second memory behind the main one."""
        return len(self.memories) > 1

    def memory_room(self, *, spilled: bool) -> float:
        """Bytes that mappings have of the main memory, or of all where data is ``spilled``. [B]

        Without what a framework sets aside; may be infinite.
        """
        first, *others = self.memories
        room = first.room - self.set_aside
        return sum((level.room for level in others), room) if spilled else room

    @property
    def set_aside(self) -> float:
        """What a framework takes of the main memory besides tensors. [B]"""
        return 0.0 if self.framework is None else self.framework.set_aside

    def memory_speed(self, *, spilled: bool) -> float:
        """Bandwidth of the main memory, or of all where data is ``spilled``. [B/s]

        Of two the mean weighted by capacity, ``(c1 b1 + c2 b2) / (c1 + c2)``; a first one without
        end holds all. Source: dfmodel_code, release E3b.
        """
        first, *others = self.memories
        if not (spilled and others) or first.room == math.inf:
            return first.speed
        (second,) = others
        moved = first.room * first.speed + second.room * second.speed
        return moved / (first.room + second.room)

    def with_compute(self, **changes: Any) -> Chip:
        """Return the chip with other fields of `Compute`."""
        return replace(self, compute=replace(self.compute, **changes))

    def with_level(self, index: int, **changes: Any) -> Chip:
        """Return the chip with other fields of one level on it."""
        changed = replace(self.levels[index], **changes)
        return replace(self, levels=(*self.levels[:index], changed, *self.levels[index + 1 :]))

    def with_memory(self, index: int = 0, **changes: Any) -> Chip:
        """Return the chip with other fields of one memory beside it, the main one if not said."""
        changed = replace(self.memories[index], **changes)
        rest = self.memories[index + 1 :]
        return replace(self, memories=(*self.memories[:index], changed, *rest))

    def without_fusion(self, fusion: Fusion) -> Chip:
        """Return the chip without programs that fuse so."""
        return replace(self, fusions=tuple(each for each in self.fusions if each is not fusion))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _ComputeArrays(Compute):
    """The arrays and units of many chips: ``frequency`` [Hz] and ``utilization`` [1] are arrays."""

    def __post_init__(self) -> None:
        """Leave the arrays to who made them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _MemoryArrays(MemoryLevel):
    """The main memory of many chips: ``bandwidth`` is an array. [B/s]"""

    def __post_init__(self) -> None:
        """Leave the arrays to who made them."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChipArrays(Chip):
    """Many chips at once, alike but for their clock and the bandwidth of their main memory."""

    def __post_init__(self) -> None:
        """Leave the arrays to who made them."""

    @classmethod
    def of(
        cls, one: Chip, *, frequency: Any, utilization: Any, bandwidth: Any, price: Any, power: Any
    ) -> ChipArrays:
        """Return a chip with the clocks [Hz], utilization [1] and memory bandwidth [B/s] of many.

        And their ``price`` [USD] and ``power`` [W]; None of what is not given.
        """

        def changed(kind: Any, record: Any, **arrays: Any) -> Any:
            values = {item.name: getattr(record, item.name) for item in fields(record)}
            return kind(**(values | arrays))

        first, *others = one.memories
        memory = changed(_MemoryArrays, first, bandwidth=bandwidth)
        units = {"frequency": frequency, "utilization": utilization}
        compute = changed(_ComputeArrays, one.compute, **units)
        more = {"memories": (memory, *others), "price": price, "power": power}
        found: ChipArrays = changed(cls, one, compute=compute, **more)
        return found


def flat_chip(
    *,
    n_cores: int,
    lanes: int,
    stages: int,
    frequency: float,
    sram_capacity: float,
    utilization: float | None = None,
    memory_units: int | None = None,
    memory_unit_capacity: float | None = None,
    relative_rates: tuple[tuple[Dtype, float], ...] = (),
    memories: tuple[MemoryLevel, ...] = (),
    execution: Execution = Execution.SPATIAL,
    fusions: tuple[Fusion, ...] = (),
    overlap: Overlap = Overlap.ALL,
    launch_overhead: float = 0.0,
    price: float | None = None,
    power: float | None = None,
    idle_power: float | None = None,
    name: str = "chip",
) -> Chip:
    """Return a chip of cores with a systolic array each, that share the memory on the chip.

    What is left out is as in `Compute` and `Chip`. Raises `InputError` if a number is out of range.
    Source: ko2025dfmodel, Table V; dfmodel_code.

    Parameters
    ----------
    n_cores : int
        Cores that can be given to kernels one by one. [1]
    lanes, stages : int
        Cells of a core's systolic array: ``lanes`` split M, ``stages`` split N. [1]
    frequency : float
        Clock; every cell does one multiply and one add a cycle. [Hz]
    sram_capacity : float
        On-chip memory. [B]
    memory_units, memory_unit_capacity : int or None, float or None
        Units of the on-chip memory [1], where they are given, and bytes of one [B]; a tensor then
        takes whole units.
    """
    for field, count in (("n_cores", n_cores), ("lanes", lanes), ("stages", stages)):
        require_whole(field, count)
    require_quantity("frequency", frequency, "Hz", above_zero=True)
    require_quantity("sram_capacity", sram_capacity, "B", above_zero=True)
    units = memory_units, memory_unit_capacity
    if units != (None, None):
        both = "given with memory_units and memory_unit_capacity, or neither"
        require(None not in units, "memory_unit_capacity", memory_unit_capacity, both)
        require_whole("memory_units", memory_units)
        require_quantity("memory_unit_capacity", memory_unit_capacity, "B", above_zero=True)
    sram = MemoryLevel(
        name="SRAM",
        capacity=sram_capacity,
        banks=memory_units,
        bank_capacity=memory_unit_capacity,
    )
    return Chip(
        compute=Compute(
            n_units=n_cores,
            n_multiprocessors=n_cores,
            rows=lanes,
            columns=stages,
            work_per_cycle=2.0 * lanes * stages,
            frequency=frequency,
            utilization=utilization,
            relative_rates=relative_rates,
        ),
        levels=(sram,),
        memories=memories,
        execution=execution,
        fusions=fusions,
        overlap=overlap,
        launch_overhead=launch_overhead,
        price=price,
        power=power,
        idle_power=idle_power,
        name=name,
    )


def flat_fields(chip: Chip) -> dict[str, Any] | None:
    """Return what `flat_chip` makes a chip of, without its memories; None where it cannot."""
    if len(chip.levels) != 1:
        return None
    (sram,), compute = chip.levels, chip.compute
    fields: dict[str, Any] = {
        "n_cores": compute.n_units, "lanes": compute.rows, "stages": compute.columns,
        "frequency": compute.frequency, "sram_capacity": sram.capacity,
        "utilization": compute.utilization, "memory_units": sram.banks,
        "memory_unit_capacity": sram.bank_capacity, "relative_rates": compute.relative_rates,
    }  # fmt: skip
    of_chip = ("execution", "fusions", "overlap", "launch_overhead", "price", "power", "idle_power")
    fields |= {name: getattr(chip, name) for name in (*of_chip, "name")}
    try:
        return fields if flat_chip(**fields, memories=chip.memories) == chip else None
    except InputError:
        return None


def relative_rates(
    rates: Mapping[Dtype, float], cells: Mapping[str, Any]
) -> tuple[tuple[Dtype, float], ...]:
    """Return the rates [FLOP/s] of a data sheet as `Compute` holds them, in the order of `Dtype`.

    ``cells`` are ``lanes``, ``stages``, ``n_cores`` and ``frequency`` of the flat chip.
    """
    peak = 2.0 * cells["lanes"] * cells["stages"] * cells["n_cores"] * cells["frequency"]
    return tuple((dtype, rates[dtype] / peak) for dtype in Dtype if dtype in rates)
