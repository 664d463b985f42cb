"""The machine: equal chips, joined by a network of one to four dimensions.

Source of the fields: the system of ``ko2025dfmodel`` (section IV.C; ``dfmodel_code``); a
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

__all__ = [
    "AllReduceAlgorithm",
    "Dimension",
    "DimensionKind",
    "Parallelism",
    "Prices",
    "System",
]

MAX_DIMENSIONS = 4
MAX_AXES = 3  # of a mesh or torus


class DimensionKind(StrEnum):
    """How the chips of one dimension, or equal chips of what the inner ones join, are joined.

    By links to neighbours or to all: ``ring``, ``mesh``, ``torus``, ``fully_connected``. By a port
    of every chip to switches: ``switch``, one without limits of its own; ``fat_tree``
    (``leiserson1985``) and ``dragonfly`` (``kim2008dragonfly``), see `Dimension.oversubscription`;
    ``rail_only`` (``wang2023railonly``), a switch for the chips of one place in every server,
    and no way from one rail to another but inside the servers; ``rail_optimised``, the same rails
    joined by a second tier.
    """

    RING = "ring"
    SWITCH = "switch"
    FULLY_CONNECTED = "fully_connected"
    MESH = "mesh"
    TORUS = "torus"
    FAT_TREE = "fat_tree"
    DRAGONFLY = "dragonfly"
    RAIL_ONLY = "rail_only"
    RAIL_OPTIMISED = "rail_optimised"


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
    """What the chips of a dimension split: tensors, layers or the batch."""

    TENSOR = "tensor"
    PIPELINE = "pipeline"
    DATA = "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dimension:
    """One level of the network: ``size`` chips joined by links of ``bandwidth`` [B/s] each way.

    ``size`` None leaves the degree to the optimiser; so does ``parallelism`` None with what the
    dimension is used for. ``bandwidth`` is that of one link, or of a chip's port to a switch.
    ``latency`` is that of one hop. [s] ``link_power`` is per bandwidth. [W/(B/s)] Either is None
    where it is not given; a hop then takes no time.

    ``shape`` has the chips along every axis of a mesh or torus; empty is two axes, as near to a
    square as the number of chips allows. [1] ``oversubscription`` is how many times as much the
    members of a pod can send as its links to other pods carry, ``pod_size`` how many members a
    pod has [1]: of a fat tree below one leaf switch, of a rail-optimised network below one switch
    of a rail, of a dragonfly in one group. A dragonfly is plain at 1, tapered above. Where
    ``pod_size`` is None, all messages of a fat tree or dragonfly leave their pod, none of a rail.
    ``reduces``: whether the switches add what passes through them, and copy it.
    """

    kind: DimensionKind
    bandwidth: float
    size: int | None = None
    latency: float | None = None
    parallelism: Parallelism | None = None
    link_power: float | None = None
    shape: tuple[int, ...] = ()
    oversubscription: float = 1.0
    pod_size: int | None = None
    reduces: bool = False

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        if self.size is not None:
            require_whole("size", self.size, what="chips")
        self._check_kind()
        require_quantity("bandwidth", self.bandwidth, "B/s", above_zero=True)
        if self.latency is not None:
            require_quantity("latency", self.latency, "s")
        if self.link_power is not None:
            require_quantity("link_power", self.link_power, "W/(B/s)")

    def _check_kind(self) -> None:
        """Check that nothing is said of other kinds of dimension."""
        given = "x".join(map(str, self.shape))
        grid = self.kind in _GRIDS
        require(grid or not given, "shape", given, f"that of a mesh or torus, not of {self.kind}")
        require(len(self.shape) <= MAX_AXES, "shape", given, f"1 to {MAX_AXES} axes")
        for extent in self.shape:
            require_whole("shape", extent, what="chips")
        if self.shape and self.size is not None:
            self.axes(self.size)
        require_quantity("oversubscription", self.oversubscription, "1")
        over, pods = self.oversubscription, self.kind in _WITH_PODS
        require(over >= 1, "oversubscription", over, "1 or more")
        none = f"that of a fat tree, dragonfly or rail-optimised network, not of {self.kind}"
        require(pods or over == 1, "oversubscription", over, none)
        require(pods or self.pod_size is None, "pod_size", self.pod_size, none)
        if self.pod_size is not None:
            require_whole("pod_size", self.pod_size, what="members")
        switched = self.kind in _SWITCHED
        where = f"false where there is no switch, as of {self.kind}"
        require(switched or not self.reduces, "reduces", self.reduces, where)

    @property
    def hop_latency(self) -> float:
        """Latency of one hop: none where it is not given. [s]"""
        return 0.0 if self.latency is None else self.latency

    def axes(self, size: int) -> tuple[int, ...]:
        """Return the chips along every axis of ``size`` chips: one, but of a mesh or torus. [1]

        Raises
        ------
        InputError
            If the shape is that of another number of chips.
        """
        if self.kind not in _GRIDS:
            return (size,)
        if not self.shape:
            side = next(a for a in range(math.isqrt(size), 0, -1) if size % a == 0)
            return size // side, side
        if math.prod(self.shape) != size:
            message = f"got {'x'.join(map(str, self.shape))}; allowed: a shape of {size} chips."
            raise InputError(Problem("shape", message))
        return self.shape


_GRIDS = (DimensionKind.MESH, DimensionKind.TORUS)
_WITH_PODS = (DimensionKind.FAT_TREE, DimensionKind.DRAGONFLY, DimensionKind.RAIL_OPTIMISED)
_SWITCHED = (DimensionKind.SWITCH, DimensionKind.RAIL_ONLY, *_WITH_PODS)


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
    """``n_chips`` equal chips in a network; dimension 0 is innermost.

    ``domain_size`` chips form a high-bandwidth domain: they reach each other over the links of
    dimension 0, whatever dimension joins them, and all others over slower ones
    (``wang2023railonly``); None where the dimensions say it all.

    ``copies`` such networks stand side by side, joined by nothing, and run iterations at the same
    time: time per iteration is divided by them, price and power are multiplied (``dfmodel_code``:
    ``num_copy``). For workloads that bring their placement; others have data parallelism. [1]

    ``all_reduce`` is the algorithm that the chips' library sums with wherever a dimension can run
    it; None: the fastest for every size.

    Raises
    ------
    InputError
        If the sizes of the dimensions do not multiply to ``n_chips``, or the chip has nothing to
        compute with, to keep operands in, or to read them from.
    """

    chip: Chip
    network: tuple[Dimension, ...]
    n_chips: int
    prices: Prices = Prices()
    domain_size: int | None = None
    copies: int = 1
    all_reduce: AllReduceAlgorithm | None = None
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


def _check_chip(chip: Chip) -> None:
    """Refuse a chip that no kernel can be mapped onto."""
    there = {"throughput": chip.compute.throughput, "on-chip memory": chip.on_chip_capacity}
    missing = [name for name, amount in there.items() if amount <= 0]
    if missing:
        message = f"it has no {missing[0]}, so nothing can be mapped onto it."
        raise InputError(Problem("chip", message))
    bandwidth = chip.main_memory.bandwidth
    require_quantity("chip.memories[0].bandwidth", bandwidth, "B/s", above_zero=True)
