"""The machine: equal chips, joined by a network of one to four dimensions.

Source of the fields: the system of ``ko2025dfmodel`` (section IV.C; ``dfmodel_code``); a
network is composed of one-dimensional topologies as in ``rashidi2020astrasim``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any

from crosstack.errors import InputError, Problem, require, require_quantity, require_whole
from crosstack.machine.chip import Chip, ChipArrays
from crosstack.machine.framework import Framework
from crosstack.machine.host import HostShare
from crosstack.machine.memory import MemoryLevel
from crosstack.machine.network import KINDS, DimensionKind, Joint, Medium, NetworkLevel
from crosstack.machine.slowest import slowest_share
from crosstack.records import brief, require_types

__all__ = [
    "AllReduceAlgorithm",
    "Dimension",
    "DimensionArrays",
    "DimensionKind",
    "Medium",
    "Parallelism",
    "Prices",
    "System",
    "dimension_sizes",
]

MAX_DIMENSIONS = 4
_PER_BANDWIDTH = {
    "link_power": "W/(B/s)",
    "link_price": "USD/(B/s)",
    "switch_price": "USD/(B/s)",
    "switch_power": "W/(B/s)",
}


class AllReduceAlgorithm(StrEnum):
    """How an all-reduce is made.

    ``ring``: partial sums go round, then sums (``thakur2005``). ``tree``: up two binary trees, and
    down again (``sanders2009twotree``). ``direct``: each chip to each other. ``in_network``: the
    switches add (``graham2016sharp``).
    """

    RING = "ring"
    TREE = "tree"
    DIRECT = "direct"
    IN_NETWORK = "in_network"


class Parallelism(StrEnum):
    """What the chips of a dimension split: tensors, layers or the batch.

    ``expert``: the batch, and the routed experts of every layer besides. ``context``: the tokens of
    each sequence.
    """

    TENSOR = "tensor"
    PIPELINE = "pipeline"
    DATA = "data"
    EXPERT = "expert"
    CONTEXT = "context"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One level of the network: ``size`` chips joined by links of ``bandwidth`` [B/s] each way.

    ``size`` None leaves the degree to the optimiser; so does ``parallelism`` None with what the
    dimension is used for. ``bandwidth`` is that of one link, or of a chip's port to a switch.
    ``latency`` is that of one hop. [s] ``link_power`` is per bandwidth. [W/(B/s)] Either is None
    where it is not given; a hop then takes no time. ``link_price`` and ``switch_price`` [USD/(B/s)]
    and ``switch_power`` [W/(B/s)] are those of this dimension; None: of the system's `Prices`.

    ``shape``, ``oversubscription``, ``pod_size`` and ``reduces`` are those of
    `crosstack.machine.network.NetworkLevel`.

    ``medium`` says which links they are to a library of collectives, whose protocols then take
    ``pace`` times their latencies [1]; None: every message takes ``latency`` a hop. Large messages
    reach the share ``achieved`` of the bandwidth, and ``adding`` of that where switches add. [1]
    """

    kind: DimensionKind
    bandwidth: float
    size: int | None = None
    latency: float | None = None
    parallelism: Parallelism | None = None
    link_power: float | None = None
    link_price: float | None = None
    switch_price: float | None = None
    switch_power: float | None = None
    shape: tuple[int, ...] = ()
    oversubscription: float = 1.0
    pod_size: int | None = None
    reduces: bool = False
    medium: Medium | None = None
    pace: float = 1.0
    achieved: float = 1.0
    adding: float = 1.0

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        if self.size is not None:
            require_whole("size", self.size, what="chips")
        port = KINDS[self.kind].joint is Joint.PORT
        where = f"none where there is no switch, as of {self.kind}"
        require(port or self.medium is None, "medium", str(self.medium or ""), where)
        require_quantity("pace", self.pace, "1", above_zero=True)
        for name in ("achieved", "adding"):
            share = getattr(self, name)
            require_quantity(name, share, "1", above_zero=True)
            require(share <= 1, name, share, "a share above 0, at most 1")
        level = self.level  # which checks what its kind may have
        if self.shape and self.size is not None:
            level.axes(self.size)
        require_quantity("bandwidth", self.bandwidth, "B/s", above_zero=True)
        if self.latency is not None:
            require_quantity("latency", self.latency, "s")
        for name, unit in _PER_BANDWIDTH.items():
            if getattr(self, name) is not None:
                require_quantity(name, getattr(self, name), unit)

    def part(self, size: int) -> Dimension:
        """Return so many neighbouring chips of it: of a ring that is not whole, a line. [1]"""
        if self.kind is DimensionKind.RING and 1 < size < (self.size or 1):
            return replace(self, kind=DimensionKind.MESH, size=size, shape=(size,))
        return replace(self, size=size)

    @property
    def hop_latency(self) -> float:
        """Latency of one hop: none where it is not given. [s]"""
        return 0.0 if self.latency is None else self.latency

    def slowed(self, times: float) -> Dimension:
        """Return the same links where everything takes so many times as long. [1]"""
        made = replace(self, bandwidth=self.bandwidth / times)
        if self.medium is not None:  # whose latencies are those of a library at this pace
            return replace(made, pace=self.pace * times)
        return replace(made, latency=self.latency and self.latency * times)

    @property
    def plain(self) -> Dimension:
        """The same links at their full rate, of which no library is known."""
        return replace(self, medium=None, pace=1.0, achieved=1.0, adding=1.0)

    @property
    def level(self) -> NetworkLevel:
        """How the chips are joined, whatever the links."""
        return NetworkLevel(
            **{item.name: getattr(self, item.name) for item in fields(NetworkLevel)}
        )

    def axes(self, size: int) -> tuple[int, ...]:
        """Return the chips along every axis of ``size`` chips; see `NetworkLevel.axes`. [1]"""
        return (size,) if KINDS[self.kind].axis is None else self.level.axes(size)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DimensionArrays(Dimension):
    """A dimension of many machines at once: ``bandwidth`` [B/s] and ``latency`` [s] are arrays."""

    def __post_init__(self) -> None:
        """Leave the arrays to who made them."""

    @classmethod
    def of(cls, one: Dimension, bandwidth: Any, latency: Any) -> DimensionArrays:
        """Return a dimension with the links of many."""
        values = {item.name: getattr(one, item.name) for item in fields(one)}
        return cls(**(values | {"bandwidth": bandwidth, "latency": latency}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Unit prices [USD/(B/s)] and powers [W/(B/s)] of links, switches and memory.

    None where they are not given: what needs them has no price or power, and nor has the total.
    ``electricity`` [USD/J] is what a run is billed for its energy besides; None: it is not.
    """

    link: float | None = None
    switch: float | None = None
    memory: float | None = None
    switch_power: float | None = None
    memory_power: float | None = None
    electricity: float | None = None

    def __post_init__(self) -> None:
        """Check every price."""
        require_types(self)
        for item in fields(self):
            value, unit = getattr(self, item.name), "W" if item.name.endswith("power") else "USD"
            per = "USD/J" if item.name == "electricity" else f"{unit}/(B/s)"
            if value is not None:
                require_quantity(item.name, value, per)


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """``n_chips`` equal chips in a network; dimension 0 is innermost.

    ``domain_size`` chips form a high-bandwidth domain: they reach each other over the links of
    dimension 0, whatever dimension joins them, and all others over slower ones
    (``wang2023railonly``); None where the dimensions say it all.

    ``copies`` such networks stand side by side, joined by nothing, and run iterations at the same
    time: time per iteration is divided by them, price and power are multiplied (``dfmodel_code``:
    ``num_copy``). For workloads that bring their placement; others have data parallelism. [1]

    ``host`` is what each chip has of its host; None where nothing says it.

    ``all_reduce`` is the algorithm that the chips' library sums with wherever a dimension can run
    it; None: the fastest for every size.

    Raises `InputError` if the sizes of the dimensions do not multiply to ``n_chips``, or the chip
    has nothing to compute with, to keep operands in, or to read them from.
    """

    chip: Chip
    network: tuple[Dimension, ...]
    n_chips: int
    prices: Prices = Prices()
    domain_size: int | None = None
    copies: int = 1
    all_reduce: AllReduceAlgorithm | None = None
    host: HostShare | None = None
    name: str = "system"

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check that the network joins ``n_chips`` chips, and that these can run something."""
        require_types(self)
        _check_chip(self.chip)
        require_whole("n_chips", self.n_chips, what="chips")
        require_whole("copies", self.copies)
        if self.domain_size is not None:
            require_whole("domain_size", self.domain_size, what="chips")
        joined, most = len(self.network), MAX_DIMENSIONS
        require(1 <= joined <= most, "network", joined, f"1 to {most} dimensions")
        sizes = [d.size for d in self.network if d.size is not None]
        product = math.prod(sizes)
        fixed = len(sizes) == len(self.network)
        fits = product == self.n_chips if fixed else self.n_chips % product == 0
        if not fits:
            how = " x ".join(str(d.size or "free") for d in self.network)
            raise InputError(
                Problem("n_chips", f"got {self.n_chips}, but the network joins {how} chips.")
            )

    def driven_by(self, framework: Framework | None) -> System:
        """Return the system with a framework that drives its chips; None: with none.

        Chips that are driven wait for one another; without a framework all are as usual ones.

        Raises `InputError` if the chips do not run kernels one by one.
        """
        slowest = 1.0 if framework is None else slowest_share(self.n_chips)
        return replace(
            self, chip=replace(self.chip.with_compute(slowest=slowest), framework=framework)
        )

    def sparing(self, spare: float) -> System:
        """Return the system of whose chips' main memory so much is left free. [B]"""
        return replace(self, chip=self.chip.with_memory(spare=spare))

    def slowed(self, times: float) -> System:
        """Return a system on which everything takes so many times as long. [1]

        Every clock and rate is divided by ``times``, every latency, launch and step multiplied: no
        mapping is another share of its time than before. What fits is as it was.
        """
        chip, host = self.chip, self.host

        def slower(level: MemoryLevel) -> MemoryLevel:
            rate = None if level.bandwidth is None else level.bandwidth / times
            latency, ramp = level.latency * times, level.ramp * times
            return replace(level, bandwidth=rate, latency=latency, ramp=ramp)

        driven = chip.framework
        if driven is not None and driven.dispatch:
            dispatch, checks = driven.dispatch * times, driven.checks * times
            driven = replace(driven, dispatch=dispatch, checks=checks)
        made = replace(
            chip.with_compute(frequency=chip.compute.frequency / times),
            levels=tuple(map(slower, chip.levels)),
            memories=tuple(map(slower, chip.memories)),
            launch_overhead=chip.launch_overhead * times,
            framework=driven,
        )
        if host is not None:
            rate = host.memory_bandwidth and host.memory_bandwidth / times
            host = replace(host, bandwidth=host.bandwidth / times, memory_bandwidth=rate)
        network = tuple(d.slowed(times) for d in self.network)
        return replace(self, chip=made, network=network, host=host)

    @property
    def replayed(self) -> System:
        """The system as if launches took its host no time: what its chips alone take."""
        framework = self.chip.framework
        return self if framework is None else self.driven_by(replace(framework, dispatch=None))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SystemArrays(System):
    """Many machines at once, alike but for numbers: those of chips and of links are arrays."""

    def __post_init__(self) -> None:
        """Leave the arrays to who made them."""

    @classmethod
    def of(
        cls, one: System, chip: ChipArrays, network: tuple[DimensionArrays, ...]
    ) -> SystemArrays:
        """Return a system with the chips and the links of many."""
        values = {item.name: getattr(one, item.name) for item in fields(one)}
        return cls(**(values | {"chip": chip, "network": network}))


def dimension_sizes(sizes: tuple[int, ...], dimensions: tuple[int, ...]) -> tuple[int, ...]:
    """Return the chips of every dimension of a network whose dimensions may be shared. [1]

    ``sizes``: chips of each dimension, or of its factors [1]; ``dimensions``: the dimension of each
    of those, ascending; empty: one for every dimension.
    """
    if not dimensions:
        return sizes
    found = [1] * (dimensions[-1] + 1)
    for size, dimension in zip(sizes, dimensions, strict=True):
        found[dimension] *= size
    return tuple(found)


def _check_chip(chip: Chip) -> None:
    """Refuse a chip that no kernel can be mapped onto."""
    there = {"throughput": chip.compute.throughput, "on-chip memory": chip.on_chip_capacity}
    for name, amount in there.items():
        if amount <= 0:
            message = f"it has no {name}, so nothing can be mapped onto it."
            raise InputError(Problem("chip", message))
    bandwidth = chip.main_memory.bandwidth
    require_quantity("chip.memories[0].bandwidth", bandwidth, "B/s", above_zero=True)
