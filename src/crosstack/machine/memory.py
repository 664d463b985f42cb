"""Levels of memory: on a chip, and beside it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from crosstack.errors import require, require_quantity, require_whole
from crosstack.records import require_types
from crosstack.units import format_quantity


class Scope(StrEnum):
    """Who shares one instance of a level: a compute unit, a multiprocessor or the whole chip."""

    UNIT = "unit"
    MULTIPROCESSOR = "multiprocessor"
    CHIP = "chip"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryLevel:
    """One level of memory, summed over the chip.

    Source of the fields: ``ardalani2022deepflow``, section 4; banks: ``dfmodel_code``.

    ``scope``: who shares one instance. Of all instances are ``capacity``, None where it is not
    limited [B], ``bandwidth`` after utilization, None where it is not given [B/s], and
    ``static_power`` [W]. ``latency`` is from the request to the first byte, ``ramp`` what a kernel
    that streams from it takes beyond bytes over bandwidth, 0 where not measured [s];
    ``energy_per_bit`` moves one [J]; ``line_size`` bytes move together, 1 where traffic is not
    rounded up [B].
    ``partitions`` each keep what the multiprocessors near them read: data that all of them read
    lies in every part, and passes through two on its way to the far ones. [1] ``spare`` of the
    main memory is left free by whatever is mapped. [B] Where ``banks`` of
    ``bank_capacity`` [B] are given a tensor takes whole ones, enough for its bytes and for the
    cores that write it.
    """

    name: str
    scope: Scope = Scope.CHIP
    capacity: float | None = None
    bandwidth: float | None = None
    latency: float = 0.0
    ramp: float = 0.0
    energy_per_bit: float = 0.0
    static_power: float = 0.0
    line_size: float = 1.0
    partitions: int = 1
    spare: float = 0.0
    banks: int | None = None
    bank_capacity: float | None = None

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        units = {"capacity": "B", "bandwidth": "B/s", "latency": "s", "static_power": "W"}
        for name, unit in units.items():
            if getattr(self, name) is not None:
                require_quantity(name, getattr(self, name), unit)
        require_quantity("ramp", self.ramp, "s")
        require_quantity("energy_per_bit", self.energy_per_bit, "J")
        require_quantity("line_size", self.line_size, "B", above_zero=True)
        require_whole("partitions", self.partitions)
        require_quantity("spare", self.spare, "B")
        if (self.banks, self.bank_capacity) != (None, None):
            both = "given with banks and bank_capacity, or neither"
            given = None not in (self.banks, self.bank_capacity)
            require(given, "bank_capacity", self.bank_capacity, both)
            require_whole("banks", self.banks)
            require_quantity("bank_capacity", self.bank_capacity, "B", above_zero=True)
        less = f"less than there is, {format_quantity(self.room + self.spare, 'B')}"
        require(self.spare == 0 or self.room > 0, "spare", self.spare, less)

    @property
    def room(self) -> float:
        """Bytes that fit besides what is left free: of all banks where there are any. [B]

        Infinite where there is no limit.
        """
        if self.banks is not None and self.bank_capacity is not None:
            return self.banks * self.bank_capacity - self.spare
        return math.inf if self.capacity is None else self.capacity - self.spare

    @property
    def speed(self) -> float:
        """The bandwidth; infinite where it is not given. [B/s]"""
        return math.inf if self.bandwidth is None else self.bandwidth

    @property
    def delay(self) -> float:
        """What a kernel that streams from it takes beyond bytes over bandwidth. [s]

        Its ramp, and no less than the first byte takes.
        """
        return max(self.latency, self.ramp)


def main_memory(
    *,
    bandwidth: float,
    capacity: float | None = None,
    second_bandwidth: float | None = None,
    second_capacity: float | None = None,
    spare: float = 0.0,
    name: str = "memory",
) -> tuple[MemoryLevel, ...]:
    """Return the memories of a chip: the main one, and a slower one behind it where one is given.

    Raises `InputError` if a number is out of range, or the second memory is given in part or faster
    than the first.

    Parameters
    ----------
    bandwidth, capacity : float, float or None
        Above 0 [B/s]; None: not limited. [B]
    second_bandwidth, second_capacity : float or None
        Of the memory that is used once the first is full; both or neither. [B/s], [B]
    spare : float
        Of the first, left free. [B]
    name : str
        Of the first.
    """
    require_quantity("bandwidth", bandwidth, "B/s", above_zero=True)
    if capacity is not None:
        require_quantity("capacity", capacity, "B", above_zero=True)
    first = MemoryLevel(name=name, bandwidth=bandwidth, capacity=capacity, spare=spare)
    if (second_bandwidth, second_capacity) == (None, None):
        return (first,)
    whole = None not in (second_bandwidth, second_capacity, capacity)
    both = "second_bandwidth and second_capacity, and a capacity: all three or none"
    require(whole, "second_capacity", second_capacity, both)
    require_quantity("second_bandwidth", second_bandwidth, "B/s", above_zero=True)
    require_quantity("second_capacity", second_capacity, "B", above_zero=True)
    slower = second_bandwidth is not None and second_bandwidth <= bandwidth
    most = f"at most that of the first memory, {format_quantity(bandwidth, 'B/s')}"
    require(slower, "second_bandwidth", second_bandwidth, most)
    second = MemoryLevel(
        name=f"{name}, second", bandwidth=second_bandwidth, capacity=second_capacity
    )
    return first, second
