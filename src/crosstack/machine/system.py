"""The machine: chips with memory, joined by a network of one to four dimensions.

Source of the fields: DFModel's system (``ko2025dfmodel``, section IV.C; ``dfmodel_code``); a
network is composed of one-dimensional topologies as in ``rashidi2020astrasim``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import StrEnum

from crosstack.errors import (
    InputError,
    Problem,
    require,
    require_quantity,
    require_whole,
)
from crosstack.machine.chip import Chip
from crosstack.records import brief, require_types
from crosstack.units import format_quantity

__all__ = ["Dimension", "DimensionKind", "Memory", "Parallelism", "Prices", "System"]

MAX_DIMENSIONS = 4


class DimensionKind(StrEnum):
    """How the chips of one dimension are joined."""

    RING = "ring"
    SWITCH = "switch"
    FULLY_CONNECTED = "fully_connected"


class Parallelism(StrEnum):
    """What the chips of a dimension split: tensors, layers or the batch."""

    TENSOR = "tensor"
    PIPELINE = "pipeline"
    DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Main memory of one chip: ``bandwidth`` [B/s] and ``capacity`` [B] (None: unlimited).

    ``second_bandwidth`` [B/s] and ``second_capacity`` [B] are those of a slower memory behind it,
    used once the first is full; both or neither.
    """

    bandwidth: float
    capacity: float | None = None
    second_bandwidth: float | None = None
    second_capacity: float | None = None
    name: str = "memory"

    def __post_init__(self) -> None:
        """Check all of them."""
        require_types(self)
        require_quantity("bandwidth", self.bandwidth, "B/s", above_zero=True)
        if self.capacity is not None:
            require_quantity("capacity", self.capacity, "B", above_zero=True)
        second = self.second_bandwidth, self.second_capacity
        if second == (None, None):
            return
        both = "second_bandwidth and second_capacity, and a capacity: all three or none"
        require(None not in (*second, self.capacity), "second_capacity", second[1], both)
        require_quantity("second_bandwidth", second[0], "B/s", above_zero=True)
        require_quantity("second_capacity", second[1], "B", above_zero=True)
        require(
            second[0] is not None and second[0] <= self.bandwidth,
            "second_bandwidth",
            second[0],
            f"at most that of the first memory, {format_quantity(self.bandwidth, 'B/s')}",
        )

    @property
    def has_second(self) -> bool:
        """Whether there is a second memory behind the first."""
        return self.second_capacity is not None

    def room(self, *, spilled: bool) -> float:
        """Bytes of the first memory, or of both where data is ``spilled``; may be infinite. [B]"""
        first = math.inf if self.capacity is None else self.capacity
        return first + (self.second_capacity or 0.0) if spilled else first

    def speed(self, *, spilled: bool) -> float:
        """Bandwidth of the first memory, or of both where data is ``spilled``. [B/s]

        Notes
        -----
        Of both: the mean weighted by capacity, ``(c1 b1 + c2 b2) / (c1 + c2)``.

        References
        ----------
        dfmodel_code, release E3b
        """
        if not spilled or self.capacity is None:
            return self.bandwidth
        first, second = self.capacity, self.second_capacity or 0.0
        slow = self.second_bandwidth or 0.0
        return (first * self.bandwidth + second * slow) / (first + second)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One level of the network: ``size`` chips joined by links of ``bandwidth`` [B/s] each way.

    ``size`` None leaves the degree to the optimiser; so does ``parallelism`` None with what the
    dimension is used for. ``latency`` is that of one hop. [s] ``link_power`` is per bandwidth.
    [W/(B/s)] Either is None where it is not given; a hop then takes no time.
    """

    kind: DimensionKind
    bandwidth: float
    size: int | None = None
    latency: float | None = None
    parallelism: Parallelism | None = None
    link_power: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        if self.size is not None:
            require_whole("size", self.size, what="chips")
        require_quantity("bandwidth", self.bandwidth, "B/s", above_zero=True)
        if self.latency is not None:
            require_quantity("latency", self.latency, "s")
        if self.link_power is not None:
            require_quantity("link_power", self.link_power, "W/(B/s)")

    @property
    def hop_latency(self) -> float:
        """Latency of one hop: none where it is not given. [s]"""
        return 0.0 if self.latency is None else self.latency


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Unit prices [USD/(B/s)] and powers [W/(B/s)] of links, switches and memory.

    None where they are not given: what needs them has no price or power, and nor has the total.
    """

    link: float | None = None
    switch: float | None = None
    memory: float | None = None
    switch_power: float | None = None
    memory_power: float | None = None

    def __post_init__(self) -> None:
        """Check every price."""
        require_types(self)
        for item in fields(self):
            value, unit = getattr(self, item.name), "W" if item.name.endswith("power") else "USD"
            if value is not None:
                require_quantity(item.name, value, f"{unit}/(B/s)")


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """``n_chips`` equal chips, each with its memory, in a network; dimension 0 is innermost.

    ``domain_size`` chips form a high-bandwidth domain: they reach each other over the links of
    dimension 0, whatever dimension joins them, and all others over slower ones
    (``wang2023railonly``); None where the dimensions say it all.

    ``copies`` such networks stand side by side, joined by nothing, and run iterations at the same
    time: time per iteration is divided by them, price and power are multiplied (``dfmodel_code``:
    ``num_copy``). For workloads that bring their placement; others have data parallelism. [1]

    Raises
    ------
    InputError
        If the sizes of the dimensions do not multiply to ``n_chips``.
    """

    chip: Chip
    memory: Memory
    network: tuple[Dimension, ...]
    n_chips: int
    prices: Prices = Prices()
    domain_size: int | None = None
    copies: int = 1
    name: str = "system"

    __repr__ = brief

    def __post_init__(self) -> None:
        """Check that the network joins ``n_chips`` chips."""
        require_types(self)
        require_whole("n_chips", self.n_chips, what="chips")
        require_whole("copies", self.copies)
        if self.domain_size is not None:
            require_whole("domain_size", self.domain_size, what="chips")
        require(
            1 <= len(self.network) <= MAX_DIMENSIONS,
            "network",
            len(self.network),
            f"1 to {MAX_DIMENSIONS} dimensions",
        )
        sizes = [d.size for d in self.network if d.size is not None]
        product = math.prod(sizes)
        fixed = len(sizes) == len(self.network)
        fits = product == self.n_chips if fixed else self.n_chips % product == 0
        if not fits:
            how = " x ".join(str(d.size or "free") for d in self.network)
            raise InputError(
                Problem("n_chips", f"got {self.n_chips}, but the network joins {how} chips.")
            )
