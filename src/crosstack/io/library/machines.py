"""Entries of the machine library made into records: chips, nodes, fabrics, and whole systems."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from crosstack.errors import (
    InputError,
    Problem,
    nearest,
    require_quantity,
    require_whole,
    unknown_name,
)
from crosstack.io.files import under
from crosstack.io.library.entries import Entry, entry, names
from crosstack.machine.chip import Chip, Execution, Link, Overlap
from crosstack.machine.compute import Compute, MathLibrary
from crosstack.machine.framework import AttentionProgram, Framework, Fusion
from crosstack.machine.host import HostShare
from crosstack.machine.memory import MemoryLevel, Scope, main_memory
from crosstack.machine.network import KINDS, Joint, Medium, NetworkLevel
from crosstack.machine.node import (
    Fabric,
    NetworkPort,
    Node,
    system_of_chip,
    system_of_nodes,
)
from crosstack.machine.system import Dimension, DimensionKind, System
from crosstack.records import require_type
from crosstack.workload.dtype import Dtype
from crosstack.workload.transformer_training import ContextExchange, Schedule, Zero

# What work and peak of a unit are counted in, the first that a chip has.
_BASE = (Dtype.BF16, Dtype.FP16, Dtype.FP32, Dtype.FP64)
_BESIDE = re.compile(r"(?:HBM|GDDR|LPDDR|DDR)\d*\w*")  # memories that are not on the chip
_RAILS = {"optimised": DimensionKind.RAIL_OPTIMISED, "only": DimensionKind.RAIL_ONLY}
USUAL_RAILS, USUAL_FABRIC = "rail-optimised", "fat-tree"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkLink:
    """A link of one dimension and the switch port it plugs into.

    ``bandwidth`` [B/s] each way, ``latency`` of a hop [s], ``link_power`` [W/(B/s)] and ``price``
    [USD/(B/s)] of the link, ``switch_power`` and ``switch_price`` of the switch port it plugs into;
    None where no source gives one. ``achieved`` is as of `crosstack.machine.system.Dimension`. [1]
    """

    bandwidth: float
    achieved: float = 1.0
    latency: float | None = None
    latency_per_switch: float | None = None
    link_power: float | None = None
    price: float | None = None
    switch_power: float | None = None
    switch_price: float | None = None
    name: str = "link"


def chip(name: str, *, frequency: float | None = None) -> Chip:
    """Return the chip called ``name``; at another clock [Hz], if one is given.

    A rate is work a cycle times units times clock where the library has the work, else that of the
    data sheet. Levels that follow the clock do; the way past the last cache takes the same time at
    every clock. Main memory has the share of its bandwidth that streaming kernels reach.
    `InputError` if there is none of that name, saying the nearest, or the clock is not above 0.
    """
    if frequency is not None:
        require_quantity("frequency", frequency, "Hz", above_zero=True)
    found = entry("chips", name)
    values = found.values
    compute = _compute(found, frequency)
    boost = values.get("frequency.boost", values.get("frequency.matrix", compute.frequency))
    # Of a chip whose clock follows its load, all that follows the clock is that of the rates.
    clock = frequency or (compute.frequency if compute.sustained else boost)
    levels, memories = _levels(found, compute, boost, clock)
    execution = Execution(values["execution"])
    one_by_one = execution is Execution.TEMPORAL
    return Chip(
        name=name,
        compute=compute,
        levels=levels,
        memories=memories,
        intra=_link(values, "scale_up"),
        inter=_link(values, "scale_out"),
        execution=execution,
        overlap=Overlap.COMPUTE_MEMORY if one_by_one else Overlap.ALL,
        fusions=tuple(Fusion(each) for each in values["fusions"] if each != "any"),
        launch_overhead=values.get("launch_overhead", 0.0),
        communicating_share=values.get("communicating_multiprocessors", 0)
        / values["multiprocessors"],
        price=values.get("price"),
        power=values.get("power.tdp"),
        idle_power=values.get("power.idle"),
    )


def _compute(found: Entry, frequency: float | None) -> Compute:
    values, matrix = found.values, found.under("units.matrix")
    rates = {Dtype(each): rate for each, rate in found.under("rates").items()}
    work = {Dtype(each): flop for each, flop in found.under("units.matrix.work_per_cycle").items()}
    vector = {Dtype(each): rate for each, rate in found.under("vector_rates").items()}
    others = found.under("accumulator_rates").items()
    base = next(dtype for dtype in (*_BASE, *rates) if dtype in rates)
    rows, columns = matrix.get("rows", 1), matrix.get("columns", 1)
    depth = matrix.get("depth_bytes")
    deep = 1 if depth is None else max(1, math.floor(depth / base.size))
    each = float(work.get(base, 2 * rows * columns * deep))
    multiprocessors = values["multiprocessors"]
    n_units = multiprocessors * matrix.get("per_multiprocessor", 1)
    clock = values.get("frequency.matrix", values.get("frequency.boost"))
    clock = rates[base] / (n_units * each) if clock is None else clock
    peak = n_units * each * clock
    # At a clock that is given, the chip runs at that alone.
    sustained = None if frequency else values.get("frequency.sustained")
    starting = values.get("frequency.applications") if sustained else None
    shares = {d: work[d] / each if d in work and base in work else rates[d] / peak for d in rates}
    return Compute(
        n_units=n_units,
        n_multiprocessors=multiprocessors,
        rows=rows,
        columns=columns,
        depth=depth,
        work_per_cycle=each,
        frequency=frequency or clock,
        relative_rates=tuple((dtype, shares[dtype]) for dtype in Dtype if dtype in shares),
        relative_vector_rates=tuple((d, vector[d] / peak) for d in Dtype if d in vector),
        accumulator_rates=tuple(_accumulating(path, rate, rates, shares) for path, rate in others),
        operand_rows=matrix.get("operand_rows", 0),
        paired=matrix.get("paired", 1),
        cluster=matrix.get("cluster", 1),
        special_per_cycle=values.get("units.vector.special", 0.0),
        functions=MathLibrary(values.get("functions", MathLibrary.CUDA)),
        boost=values["frequency.boost"] / clock if sustained else 1.0,
        sustained=sustained / clock if sustained else None,
        starting=starting / clock if starting else None,
    )


def _accumulating(
    path: str, rate: float, rates: dict[Dtype, float], shares: dict[Dtype, float]
) -> tuple[Dtype, Dtype, float]:
    """Return a type, what its products are added up in, and the rate over the peak."""
    dtype, sums = map(Dtype, path.split("."))
    return dtype, sums, rate / rates[dtype] * shares[dtype]


def _levels(
    found: Entry, compute: Compute, boost: float, clock: float
) -> tuple[tuple[MemoryLevel, ...], tuple[MemoryLevel, ...]]:
    """Return the levels on the chip, and the memories beside it."""
    instances = {
        Scope.UNIT: compute.n_units,
        Scope.MULTIPROCESSOR: compute.n_multiprocessors,
        Scope.CHIP: 1,
    }
    on_chip, beside = list[MemoryLevel](), list[MemoryLevel]()
    last_cycles = 0.0  # of the level inside the memories beside the chip
    for name in dict.fromkeys(path.split(".")[0] for path in found.under("levels")):
        given = found.under(f"levels.{name}")
        scope = Scope(given["scope"])
        n = instances[scope]
        cycles = given.get("latency_cycles", last_cycles)
        outside = _BESIDE.fullmatch(name) is not None
        level = MemoryLevel(
            name=name,
            scope=scope,
            capacity=given["capacity"] * n,
            bandwidth=_bandwidth(given, n, boost, clock),
            latency=last_cycles / clock + (cycles - last_cycles) / (boost if outside else clock)
            if "latency_cycles" in given
            else 0.0,
            ramp=given.get("ramp", 0.0),
            partitions=given.get("partitions", 1),
        )
        (beside if outside else on_chip).append(level)
        last_cycles = last_cycles if outside else cycles
    return tuple(on_chip), tuple(beside)


def _bandwidth(given: dict[str, Any], n: int, boost: float, clock: float) -> float | None:
    """Return what all instances of a level give; None where the library does not say. [B/s]"""
    if "bytes_per_cycle" in given:
        return float(n * given["bytes_per_cycle"] * clock)
    if "bandwidth" not in given:
        return None
    rate = float(n * given["bandwidth"] * given.get("achieved", 1.0))
    return rate * (clock / boost) if given.get("follows_clock") else rate


def _link(values: dict[str, Any], which: str) -> Link | None:
    start = f"links.{which}"
    each = values.get(f"{start}.bandwidth_per_link", values.get(f"{start}.bandwidth"))
    if each is None:
        return None
    count = values.get(f"{start}.links", 1)
    return Link(n_links=count, bandwidth=count * each, latency=0.0)


def framework(name: str) -> Framework:
    """Return the framework called ``name``; `InputError` if there is none."""
    values = entry("frameworks", name).values
    return Framework(
        name=name,
        fusions=tuple(Fusion(each) for each in values["fusions"]),
        chains=values["chains"],
        dispatch=values.get("dispatch"),
        checks=values.get("checks", 0.0),
        uneven_stages=values["uneven_stages"],
        ends_as_layers=values.get("ends_as_layers", 0),
        tokens_once=values.get("tokens_once", False),
        experts_apart=values.get("experts_apart", False),
        fused_sums=values.get("fused_sums", True),
        sent_passes=float(values.get("sent_passes", 0.0)),
        buckets=values.get("buckets", False),
        set_aside=values.get("set_aside", 0.0),
        passes=values.get("passes", ()),
        launches=values.get("launches", ()),
        keeps=values.get("keeps", ()),
        attention=AttentionProgram(values.get("attention", AttentionProgram.NEWEST)),
        sharing=tuple(Zero(each) for each in values.get("sharing", ())),
        schedules=tuple(Schedule(each) for each in values.get("schedules", ())),
        **{
            name: tuple(ContextExchange(each) for each in values.get(name, ()))
            for name in ("contexts", "window_contexts")
        },
    )


def memory(name: str) -> tuple[MemoryLevel, ...]:
    """Return the memory called ``name``, as those of a chip; `InputError` if there is none."""
    values = entry("memories", name).values
    return main_memory(bandwidth=values["bandwidth"], capacity=values.get("capacity"), name=name)


def link(name: str) -> NetworkLink:
    """Return the link called ``name``; `InputError` if there is none."""
    return NetworkLink(**entry("links", name).values, name=name)


def port(name: str) -> NetworkPort:
    """Return the port of a network called ``name``, a link; `InputError` if there is none."""
    given = {k: v for k, v in entry("links", name).values.items() if k != "link_power"}
    return NetworkPort(**given, name=name)


def topology(name: str) -> tuple[DimensionKind, ...]:
    """Return the kind of each dimension, innermost first; `InputError` if there is none."""
    kinds = entry("topologies", name).values["kinds"]
    return tuple(DimensionKind(kind) for kind in kinds)


def fabric(name: str) -> Fabric:
    """Return the fabric called ``name``; `InputError` if there is none."""
    values = entry("fabrics", name).values
    return Fabric(
        name=name,
        kind=_RAILS.get(values["rails"]) or DimensionKind(values["kind"]),
        oversubscription=float(values["oversubscription"]),
        pod_size=values.get("leaf_nodes"),
    )


def node(name: str) -> Node:
    """Return the node called ``name``, its chips with links in it and out; `InputError` if none."""
    found = entry("nodes", name)
    values = found.values
    inside = [
        _dimension(found.under(f"inside.{level}"))
        for level in dict.fromkeys(path.split(".")[0] for path in found.under("inside"))
    ]
    bare = chip(values["chip"])
    latency = inside[0].hop_latency if inside else 0.0
    made = Node(
        name=name,
        chip=replace(bare, intra=bare.intra and replace(bare.intra, latency=latency)),
        network=tuple(inside),
        n_ports=values.get("ports.number", 0),
        port_bandwidth=values.get("ports.bandwidth", 0.0),
        power=values.get("power"),
        price=values.get("price"),
        host=_host_share(found),
    )
    if not made.n_ports:
        return made
    out = Link(
        n_links=made.n_ports,
        bandwidth=made.bandwidth_out,
        latency=port(_port_of(made)).latency,
    )
    return replace(made, chip=replace(made.chip, inter=out))


def _host_share(found: Entry) -> HostShare | None:
    """Return what a chip of a node has of its host; None where nothing says it."""
    given = found.under("host")
    if "link_bandwidth" not in given:
        return None
    chips, memory = given.get("chips", found.values["chips"]), given.get("memory_bandwidth")
    return HostShare(
        bandwidth=given["link_bandwidth"],
        capacity=given["capacity"] / chips,
        memory_bandwidth=None if memory is None else memory / chips,
        link_power=given.get("link_power", 0.0),
    )


def _dimension(given: dict[str, Any]) -> Dimension:
    """Return a level of a node's network; its links are those of one chip, of a ring two."""
    kind, size, links = DimensionKind(given["kind"]), given["size"], given["links"]
    switched = KINDS[kind].joint is Joint.PORT  # else chips have what they need to pass on
    ways = NetworkLevel(kind=kind).links(size)
    return Dimension(
        kind=kind,
        size=size,
        bandwidth=links / ways * given["bandwidth_per_link"],
        latency=given["latency"],
        link_power=0.0,  # in the chip's
        switch_price=None if switched else 0.0,
        switch_power=given.get("switch_power") if switched else 0.0,
        reduces=given.get("reduces", False),
        **_reached(given),
    )


def _reached(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a library of collectives makes of links, as far as it is known."""
    medium = given.get("medium")
    shares = {name: float(given.get(name, 1.0)) for name in ("pace", "achieved", "adding")}
    return {"medium": medium and Medium(medium), **shares}


@cache
def chip_names() -> dict[str, tuple[str, ...]]:
    """Return the nodes of every chip."""
    held: dict[str, tuple[str, ...]] = dict.fromkeys(names("chips"), ())
    for name in names("nodes"):
        of = entry("nodes", name).values["chip"]
        held[of] = (*held[of], name)
    return held


def system_on(
    name: str,
    *,
    chips: int | None = None,
    fabric: str | None = None,
    port: str | None = None,
    framework: str | None = None,
) -> System:
    """Return the system of a chip or of nodes by name.

    `InputError` for a name that the library does not have; names the nearest. If nodes do not make
    so many chips.

    Parameters
    ----------
    name : str
        A node such as ``h100-dgx``, or a chip, which is then alone.
    chips : int, optional
        How many; those of one node if left out. [1]
    fabric : str, optional
        What joins nodes; rails that a second tier joins where every chip has a port, else a fat
        tree.
    port : str, optional
        The technology of the ports; the first with their bandwidth if left out, else the first.
    framework : str, optional
        What drives the chips, such as ``megatron``; left out, all that may be fused is fused, and
        no host is waited for.
    """
    if framework is not None:
        bare = system_on(name, chips=chips, fabric=fabric, port=port)
        return driven(bare, framework)
    require_type("on", name, str)
    if chips is not None:
        require_whole("n_chips", chips, what="chips")
    if name in names("chips"):
        if chips not in (None, 1):
            nodes = ", ".join(chip_names()[name]) or "none in the library"
            message = f"got {chips}, but {name} is one chip. Nodes of it: {nodes}."
            raise InputError(Problem("n_chips", message))
        return system_of_chip(_with_memory(name, _chip_named(name)))
    if name not in names("nodes"):
        known = (*names("nodes"), *names("chips"))
        raise unknown_name("on", "node or chip is", name, known, "In the library")
    found = _node_named(name)
    _with_memory(name, found.chip)
    joined, ends = joined_by(found, fabric, port)
    wide = replace(found, port_bandwidth=found.port_bandwidth if port is None else ends.bandwidth)
    return system_of_nodes(
        wide, found.n_chips if chips is None else chips, fabric=joined, port=ends
    )


def _with_memory(name: str, alone: Chip) -> Chip:
    """Return the chip of a machine; `InputError` if it is described without main memory."""
    if not alone.memories:
        known = [each for each in names("chips") if _chip_named(each).memories]
        near = ", ".join(nearest(name, known)) or ", ".join(known)
        message = (
            f'got "{name}", whose main memory is not in the library; allowed: chips and nodes that '
            f"have one, such as {near}, or a file with system.chip and system.memory."
        )
        raise InputError(Problem("on", message))
    return alone


def driven(system: System, framework: str) -> System:
    """Return a system that the framework of a name drives; `InputError` if it cannot be."""
    with under("framework"):
        found = _framework_named(framework)
    return system.driven_by(found)


def joined_by(
    found: Node, fabric: str | None = None, port: str | None = None
) -> tuple[Fabric, NetworkPort]:
    """Return what joins nodes, and the technology of their ports; as of `system_on`."""
    usual = USUAL_RAILS if found.has_rails else USUAL_FABRIC
    with under("fabric"):
        joined = _fabric_named(usual if fabric is None else fabric)
    with under("link"):
        return joined, _port_named(_port_of(found) if port is None else port)


# The names of parameters hide these.
_chip_named, _node_named, _fabric_named, _port_named = chip, node, fabric, port
_framework_named = framework


def _port_of(found: Node) -> str:
    """Return the technology of a node's ports: the first with their bandwidth, else the first."""
    ports = [name for name in names("links") if entry("links", name).values.get("latency")]
    fits = (p for p in ports if entry("links", p).values["bandwidth"] == found.port_bandwidth)
    return next(fits, ports[0])
