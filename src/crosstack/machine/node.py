"""Servers, racks and pods as they are sold, and the system that several of them make."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import product

from crosstack.errors import InputError, Problem, require, require_quantity, require_whole
from crosstack.machine.chip import Chip, Execution, Link
from crosstack.machine.host import HostShare
from crosstack.machine.network import KINDS, Joint, Medium, NetworkLevel
from crosstack.machine.packages import dimension_of
from crosstack.machine.system import Dimension, DimensionKind, Prices, System
from crosstack.records import require_types

SPARES = 1 / 8  # of the chips of a node that may be left out of all


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkPort:
    """A port of a network technology: ``bandwidth`` one way [B/s], ``latency`` of a message. [s]

    Large messages reach the share ``achieved`` of the bandwidth. [1]
    ``latency_per_switch`` is that of every switch past the first [s], ``price`` that of the cable
    or fibre of a port, ``switch_price`` and ``switch_power`` those of what it plugs into, cables
    included; None where no source gives one. [USD/(B/s)], [W/(B/s)]
    """

    bandwidth: float
    achieved: float = 1.0
    latency: float = 0.0
    latency_per_switch: float = 0.0
    price: float | None = None
    switch_price: float | None = None
    switch_power: float | None = None
    name: str = "port"

    def __post_init__(self) -> None:
        """Check every field."""
        require_types(self)
        require_quantity("bandwidth", self.bandwidth, "B/s", above_zero=True)
        require_quantity("latency", self.latency, "s")
        require_quantity("latency_per_switch", self.latency_per_switch, "s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fabric:
    """What joins nodes: ``kind`` and ``oversubscription`` as of `Dimension`.

    ``pod_size`` nodes are below one leaf, None where that is not said. [1]
    """

    kind: DimensionKind
    oversubscription: float = 1.0
    pod_size: int | None = None
    name: str = "fabric"


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """Chips that are joined by a network of their own, with ports out of it.

    ``network`` joins the chips, innermost first, every size given; empty of a single chip.
    ``n_ports`` lead out of the node [1], each of ``port_bandwidth`` one way [B/s]; ``power`` [W]
    and ``price`` [USD] are those of the whole node, with all that is in it; ``host`` is what each
    chip has of its host, None where no source says it.
    """

    chip: Chip
    network: tuple[Dimension, ...]
    n_ports: int = 0
    port_bandwidth: float = 0.0

    power: float | None = None
    price: float | None = None
    host: HostShare | None = None
    name: str = "node"

    def __post_init__(self) -> None:
        """Check that the network says how many chips there are."""
        require_types(self)
        for i, dimension in enumerate(self.network):
            require(dimension.size is not None, f"network[{i}].size", None, "a number of chips")
        require_whole("n_ports", self.n_ports, minimum=0)
        require_quantity("port_bandwidth", self.port_bandwidth, "B/s")

    @property
    def n_chips(self) -> int:
        """Chips of the node. [1]"""
        return math.prod(dimension.size or 1 for dimension in self.network)

    @property
    def bandwidth_out(self) -> float:
        """Of the node's ports, a chip's share, one way. [B/s]"""
        return self.n_ports * self.port_bandwidth / self.n_chips

    @property
    def has_rails(self) -> bool:
        """Whether every chip has ports of its own."""
        return self.n_ports >= self.n_chips and self.n_ports % self.n_chips == 0


def system_of_chip(chip: Chip) -> System:
    """Return the system of one chip alone; its network carries nothing."""
    alone = Dimension(kind=DimensionKind.RING, size=1, bandwidth=chip.main_memory.speed)
    return System(chip=chip, network=(alone,), n_chips=1, prices=_prices(chip), name=chip.name)


def system_of_nodes(
    node: Node,
    n_chips: int,
    *,
    fabric: Fabric | None = None,
    port: NetworkPort | None = None,
    inside: NetworkLevel | None = None,
    between: NetworkLevel | None = None,
) -> System:
    """Return the system of so many chips: a part of a node, or whole nodes joined by a fabric.

    A part of a node keeps its switches; of a ring that is not whole, what is left is a mesh. Nodes
    of one switch may each leave up to an eighth of their chips out, as racks that have spares. The
    power of a chip that is bought is that of its package: memory and links are in it, and so is a
    share of all that the node has where that has a price. What its adapters to the network draw is
    part of its hosts. Raises `InputError` if ``n_chips`` are neither a part of one node nor such
    nodes, or nodes have to be joined that have no ports.

    Parameters
    ----------
    node, n_chips
        Every node; chips of all of them. [1]
    fabric, port : Fabric, NetworkPort, optional
        What joins several nodes; whose latency the ports of the nodes have, none if left out.
    inside, between : NetworkLevel, optional
        How chips and nodes are joined instead: the links and ports that a chip has are shared out
        over its neighbours.
    """
    require_whole("n_chips", n_chips, what="chips")
    node = _priced(node)
    if n_chips <= node.n_chips:
        network = (_joined(node, inside, n_chips),) if inside else _part_of(node, n_chips)
        return _system(node, network, n_chips, node.name)
    if n_chips % node.n_chips:
        node = _nearly_whole(node, n_chips)
    if not node.n_ports or fabric is None:
        why = "has no ports out" if not node.n_ports else "needs a fabric to the next"
        message = f"got {n_chips}; {node.name} {why}; allowed: up to {node.n_chips}."
        raise InputError(Problem("n_chips", message))
    joined = n_chips // node.n_chips
    own = tuple(d for d in node.network if d.size != 1)
    if inside is not None:
        own = (_joined(node, inside, node.n_chips),)
    network = (*own, _outside(node, joined, fabric, port, between))
    return _system(node, network, n_chips, f"{joined} x {node.name}")


def _nearly_whole(node: Node, n_chips: int) -> Node:
    """Return a node of which as many make so many chips, each without a few of its own."""
    count = -(-n_chips // node.n_chips)
    each, left = divmod(n_chips, count)
    switched = len(node.network) == 1 and node.network[0].kind is DimensionKind.SWITCH
    if left or not switched or each < node.n_chips * (1 - SPARES):
        allowed = f"up to {node.n_chips}, or a multiple of it: whole nodes of {node.name}"
        few, most = math.ceil(node.n_chips * (1 - SPARES)), node.n_chips - 1
        if switched and few < most:
            allowed += f", or {few} to {most} chips of each"
        raise InputError(Problem("n_chips", f"got {n_chips}; allowed: {allowed}."))
    ports = node.n_ports * each // node.n_chips
    return replace(node, network=_part_of(node, each), n_ports=ports)


def _system(node: Node, network: tuple[Dimension, ...], n_chips: int, name: str) -> System:
    prices = _prices(node.chip)
    made = System(chip=node.chip, network=network, n_chips=n_chips, prices=prices, name=name)
    return replace(made, host=node.host)


def _joined(node: Node, inside: NetworkLevel, n_chips: int) -> Dimension:
    """Return chips of a node joined another way: a chip's bandwidth is that of all its links."""
    own = node.chip.intra or Link(n_links=0, bandwidth=0.0, latency=0.0)
    latency = node.network[0].hop_latency if node.network else 0.0
    bandwidth = own.bandwidth / inside.links(n_chips)
    made = dimension_of(replace(own, bandwidth=bandwidth, latency=latency), inside, n_chips)
    made = _reached(made, node.network[0]) if node.network else made
    return made if node.price is None else replace(made, link_price=0.0, switch_price=0.0)


def _reached(made: Dimension, own: Dimension) -> Dimension:
    """Return links joined another way: what a library of collectives reaches is over switches."""
    if KINDS[made.kind].joint is not Joint.PORT:
        return made
    return replace(made, medium=own.medium, pace=own.pace, achieved=own.achieved, adding=own.adding)


def _outside(
    node: Node, joined: int, fabric: Fabric, port: NetworkPort | None, between: NetworkLevel | None
) -> Dimension:
    latency = port.latency if port else None
    if between is not None:
        bandwidth = node.bandwidth_out / between.links(joined)
        ends = Link(n_links=node.n_ports, bandwidth=bandwidth, latency=latency or 0.0)
        made = dimension_of(ends, between, joined)
    else:
        made = Dimension(
            kind=fabric.kind,
            size=joined,
            bandwidth=node.bandwidth_out,
            latency=latency,
            link_power=0.0,
            oversubscription=fabric.oversubscription,
            pod_size=fabric.pod_size,
        )
    if port is None:
        return made
    switched = KINDS[made.kind].joint is Joint.PORT
    if switched and any(level.medium is not None for level in node.network):
        made = replace(made, medium=Medium.NETWORK)
    made = replace(made, achieved=port.achieved)
    return replace(
        made, link_price=port.price, switch_price=port.switch_price, switch_power=port.switch_power
    )


def _prices(chip: Chip) -> Prices:
    """Return prices of what is beside a chip: what it draws, and is sold for, has its memory.

    Spatial chips are priced without, as they are described.
    """
    bought = chip.execution is Execution.TEMPORAL
    return Prices(memory=0.0 if bought else None, memory_power=0.0)


def _priced(node: Node) -> Node:
    """Return a node whose chips cost their share of it, and what joins them nothing more."""
    if node.price is None:
        return node
    network = tuple(replace(d, link_price=0.0, switch_price=0.0) for d in node.network)
    chip = replace(node.chip, price=node.price / node.n_chips)
    return replace(node, network=network, chip=chip)


def _part_of(node: Node, n_chips: int) -> tuple[Dimension, ...]:
    """Return the network of ``n_chips`` of a node: near to equal parts of every dimension."""
    if n_chips == node.n_chips and node.network:
        return node.network
    if n_chips == 1:
        return system_of_chip(node.chip).network
    sizes, fits = _parts(node.name, node.network, n_chips)

    def worth(found: tuple[int, ...]) -> tuple[int, int, int]:
        torn = sum(1 < extent < size for extent, size in zip(found, sizes, strict=True))
        return max(found), torn, -found[0]

    extents = min(fits, key=worth)
    cut = zip(node.network, extents, strict=True)
    return tuple(dimension.part(extent) for dimension, extent in cut if extent > 1)


def part_of(system: System, n_chips: int) -> System:
    """Return so many chips of a system, as near to each other as can be. [1]

    Raises `InputError` if no part of its network has so many.
    """
    if n_chips == system.n_chips or any(d.size is None for d in system.network):
        return replace(system, n_chips=n_chips).driven_by(system.chip.framework)
    _, fits = _parts(system.name, system.network, n_chips)
    kept = [
        d if extent == d.size else d.part(extent)
        for d, extent in zip(system.network, max(fits), strict=True)
    ]
    network = tuple(d for d in kept if d.size != 1) or system_of_chip(system.chip).network
    return replace(system, network=network, n_chips=n_chips).driven_by(system.chip.framework)


def _parts(
    name: str, network: tuple[Dimension, ...], n_chips: int
) -> tuple[tuple[int, ...], list[tuple[int, ...]]]:
    """Return the sizes of dimensions, and all that divides the chips and fits in those."""
    sizes = tuple(d.size or 1 for d in network)
    dividers = [[e for e in range(1, size + 1) if n_chips % e == 0] for size in sizes]
    fits: list[tuple[int, ...]] = []
    for *inner, _ in product(*dividers[:-1], [0]):
        last, rest = divmod(n_chips, math.prod(inner))
        if not rest and last <= sizes[-1]:
            fits.append((*inner, last))
    if not fits:
        shape = " x ".join(map(str, sizes))
        message = f"got {n_chips:,}; {name} is {shape} chips, and no part of it has so many."
        raise InputError(Problem("n_chips", message))
    return sizes, fits
