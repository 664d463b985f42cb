"""The parts of a rule set that `map` reads: what each counts, and which way.

Every field says what it chooses between. The defaults are what crosstack holds right; what only a
release of a published tool does is a part of its own in `crosstack.published`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import get_type_hints

from crosstack.errors import nearest, require, require_quantity
from crosstack.machine.chip import Chip
from crosstack.model.kernels.clock import KernelClock
from crosstack.model.kernels.roofline import Roofline
from crosstack.workload.dtype import Dtype

__all__ = [
    "Clock",
    "Collectives",
    "ExchangeRule",
    "LatencyRule",
    "MainMemory",
    "check_fields",
]


class LatencyRule(StrEnum):
    """Which collectives pay link latency.

    ``none``: nobody (DFModel E1 to E3). ``all_reduce``: 2 (p-1) hops for each all-reduce of a
    kernel (E4). ``kernel``: halves x steps for each all-reduce of a kernel (E5). ``all``: every
    collective its steps (``thakur2005``).
    """

    NONE = "none"
    ALL_REDUCE = "all_reduce"
    KERNEL = "kernel"
    ALL = "all"


class ExchangeRule(StrEnum):
    """How an all-to-all among all chips of a workload that is not searched is counted.

    ``dimensions``: dimension by dimension, as any other collective. The others take the slowest
    cut of the network, see `crosstack.model.collectives.slowest_cut`: ``one_way`` with
    one link a ring and n^2/4 pairs (DFModel E2), ``all_pairs`` with two links a ring and
    n (n-1)/2 pairs (E3a to E4), ``two_way`` with two links a ring and n^2/4 pairs (E5).
    """

    DIMENSIONS = "dimensions"
    ONE_WAY = "one_way"
    ALL_PAIRS = "all_pairs"
    TWO_WAY = "two_way"


def check_fields(part: object, counts: Mapping[str, tuple[int, ...]] | None = None) -> None:
    """Raise `InputError` unless switches are switches, choices choices and numbers allowed.

    Parameters
    ----------
    part : object
        A record of switches, choices and numbers.
    counts : mapping, optional
        The whole numbers that a field may be.
    """
    for name, allowed in (counts or {}).items():
        value = getattr(part, name)
        good = isinstance(value, int) and not isinstance(value, bool) and value in allowed
        listed = f"{', '.join(map(str, allowed[:-1]))} or {allowed[-1]}"
        require(good, name, value, listed)
    for name, kind in get_type_hints(type(part)).items():
        value = getattr(part, name)
        if kind is bool:
            require(isinstance(value, bool), name, value, "true or false")
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            close = nearest(value, list(kind), 1)
            hint = f'; nearest: "{close[0]}"' if close else ""
            names = f"a {kind.__name__} ({', '.join(kind)}){hint}"
            require(isinstance(value, kind), name, value, names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collectives:
    """What a collective takes.

    Parameters
    ----------
    ring_all_reduce_halves : int
        2 counts reduce-scatter and all-gather on rings and switches (``thakur2005``; DFModel E2,
        E3a, and E4 on with ``separate_rs_ag_for_ar``); 1 counts one (E3b, and E4 on without).
    full_all_reduce_halves : int
        The same on fully connected dimensions: 1 in DFModel up to E4.
    latency : LatencyRule
        Which collectives pay link latency.
    all_to_all_pair_shares : bool
        See `crosstack.model.collectives.all_to_all_time`; False in DFModel.
    gradient_halves : int
        Halves of the gradient all-reduce: 1 or 2 where they are counted otherwise than those of
        any other all-reduce (one DFModel run compared with Megatron-LM), 0 where not. [1]
    domain_halves : int
        Halves of an all-reduce in and across high-bandwidth domains; 1 in DFModel whatever else
        is asked for. [1]
    domain_for_each : bool
        Whether each parallelism has the whole of a high-bandwidth domain to itself (DFModel), or
        the outer ones what the inner ones leave.
    exchange : ExchangeRule
        How all chips exchange everything with each other.
    grid_by_place : bool
        With placement ``grid``: whether a broadcast takes the bandwidth of the second dimension
        and rows move at that of the first, each only if the other side has several chips
        (DFModel), or each the dimensions it runs over.
    gradient_bandwidth : float
        With placement ``batch``: bandwidth of the gradient all-reduce; 0 is that of the network.
        DFModel adds bytes to nanoseconds, which is 1e9 B/s and one half. [B/s]
    """

    ring_all_reduce_halves: int = 2
    full_all_reduce_halves: int = 2
    latency: LatencyRule = LatencyRule.ALL
    all_to_all_pair_shares: bool = True
    gradient_halves: int = 0
    domain_halves: int = 2
    domain_for_each: bool = False
    exchange: ExchangeRule = ExchangeRule.DIMENSIONS
    grid_by_place: bool = False
    gradient_bandwidth: float = 0.0

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(
            self,
            {
                "ring_all_reduce_halves": (1, 2),
                "full_all_reduce_halves": (1, 2),
                "domain_halves": (1, 2),
                "gradient_halves": (0, 1, 2),
            },
        )
        require_quantity("gradient_bandwidth", self.gradient_bandwidth, "B/s")


@dataclass(frozen=True, slots=True, kw_only=True)
class MainMemory:
    """What a chip keeps in its main memory.

    Parameters
    ----------
    gradient_bytes : float
        Bytes of gradients per parameter that training keeps in main memory; 2 for mixed-precision
        Adam (``rajbhandari2020zero``); 0 in DFModel. [B]
    optimizer_bytes : float
        The same of the optimizer's state: 12, a master copy and two moments; 0 in DFModel. [B]
    weights_held_once : bool
        Whether the weight that a forward and a backward kernel share takes main memory once, or
        once for each kernel (DFModel).
    keeps_activations : bool
        Whether what the backward pass reads is kept for all layers of a stage and all microbatches
        in flight (`crosstack.model.memory`), or only tensors of the layer and microbatch that
        runs are counted (DFModel).
    """

    gradient_bytes: float = 2.0
    optimizer_bytes: float = 12.0
    weights_held_once: bool = True
    keeps_activations: bool = True

    def __post_init__(self) -> None:
        """Check every field."""
        check_fields(self)
        require_quantity("gradient_bytes", self.gradient_bytes, "B")
        require_quantity("optimizer_bytes", self.optimizer_bytes, "B")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock:
    """How long kernels take, in the rate that a chip has for their type of number.

    Parameters
    ----------
    kernels : KernelClock
        How the time of a kernel follows from the levels of a chip.
    """

    kernels: KernelClock = field(default_factory=Roofline)

    @property
    def knows_types(self) -> bool:
        """Whether a rate depends on the type of number."""
        return True

    def peak_rate(self, chip: Chip, dtype: Dtype) -> float:
        """Rate of a chip in numbers of a type: its one peak where the chip knows none. [FLOP/s]"""
        return chip.rate(dtype)
