"""A bound for chips that run kernels one after the other, whatever the partitions.

Each kernel adds at least its own time to the device (`crosstack.model.temporal`), so a sharding is
bounded by a sum over kernels and pairs of them: what each takes at least and what it sends, which
`crosstack.mapping.paid_layouts` minimises. Where the network hides behind the device, a
partition takes the longer of both, and so no less than any mean of them.

Where it does not hide, partitions and choices come apart. Fusing the load in which every term of a
kernel is its least over the choices bounds what partitions save; whatever they are, the choice that
a kernel takes costs no less than it does beyond that load with the best of its tensors on the chip
(`choices_excess`), and its network, which adds up.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crosstack.machine.chip import Overlap
from crosstack.mapping.paid_layouts import least_of_many, least_with_layouts, paid_layouts
from crosstack.mapping.sharding import eliminate_tables
from crosstack.model.choices import Choices
from crosstack.model.partition import ChipLoad, combine_arrays, partition_cost
from crosstack.model.temporal import Clocked, crossing
from crosstack.model.traffic import Traffic
from crosstack.workload.kernel_graph import Bools, Floats, Ints, KernelGraph

# Of the device, where the network hides: alone, either is bounded elsewhere.
SHARES = (0.5, 0.8)


def following_bound(choices: Choices, domains: Sequence[Sequence[int]], load: ChipLoad) -> float:
    """Return what a layer takes at least under any sharding within ``domains``. [s]

    Nothing is known of a spatial chip; ``load`` is that of the least of those shardings.
    """
    return float(following_bounds([(choices, domains)], load)[0])


def following_bounds(
    many: Sequence[tuple[Choices, Sequence[Sequence[int]]]], load: ChipLoad
) -> Floats:
    """Return the `following_bound` of several costs of choices within their domains. [s]

    ``load`` is of one of them: what hides behind what is that of the chip.
    """
    if any(choices.clocked is None for choices, _ in many):
        return np.zeros(len(many))
    pairs = [(1.0, 1.0)]
    if load.overlap is Overlap.ALL:
        pairs = [(share, 1 - share) for share in SHARES]

    def nodes(choices: Choices, device: float, sent: float) -> Floats:
        assert choices.clocked is not None
        network = choices.network_time
        if not load.network_takes_maximum:
            network = network + choices.data_time
        return np.asarray(device * choices.clocked.least + sent * network)

    each = [
        least_of_many([(c, d, nodes(c, device, sent)) for c, d in many], sent=sent)
        for device, sent in pairs
    ]
    return np.asarray(np.max(each, axis=0))


def one_by_one_bound(choices: Choices, domains: Sequence[Sequence[int]], load: ChipLoad) -> float:
    """Return what a layer takes at least where every kernel has a partition of its own. [s]

    Such partitions share nothing, so what a choice sends and the layouts it pays for hide behind
    the device kernel by kernel, or not at all. Nothing is known where readers do not share changes
    of layout; ``load`` is that of the least of the shardings.
    """
    if not choices.conversions.shared:
        return 0.0
    paid = paid_layouts(choices, domains)
    tables: dict[tuple[int, ...], Floats] = {}
    for i, (codes, price) in enumerate(zip(paid.codes, paid.price, strict=True)):
        network, data = choices.network_time[codes] + price, choices.data_time[codes]
        network = np.maximum(network, data) if load.network_takes_maximum else network + data
        device, memory = _device_alone(choices, codes, load, i)
        hides = load.overlap is Overlap.ALL
        taken = np.maximum(device, network) if hides else device + network
        tables[(i,)] = taken + load.memory_price * memory + load.network_price * network
    return eliminate_tables(paid.codes, tables | paid.apart).bound


def _device_alone(
    choices: Choices, codes: Ints, load: ChipLoad, i: int
) -> tuple[Floats | float, Floats | float]:
    """Return what kernel ``i`` takes of the device, and of main memory, by choice at least. [s]

    Alone, it moves all that it makes. Over the least of its choices, in the load, come the work
    and the bytes that a choice has over those of the least.
    """
    alone = partition_cost(load, 1 << i)
    if load.temporal is not None:
        return load.temporal.terms(1 << i)[0], alone.memory
    compute: Floats | float = alone.compute
    if load.staircases is None:
        work = choices.work[codes]
        compute = alone.compute * (work / max(float(work.min()), 1.0))
    own = choices.entering[codes] + choices.leaving[codes] + choices.cache[codes]
    made = sum(load.flows[f].producer == i for f in load.flows_of[i]) * choices.output_total[codes]
    memory = alone.memory + (own - own.min() + made - made.min()) / load.bandwidth
    device = combine_arrays(np.asarray(compute), memory, np.zeros(len(codes)), load.overlap)
    return device, memory


def choices_excess(
    choices: Choices,
    domains: Sequence[Sequence[int]],
    load: ChipLoad,
    arrays: KernelGraph,
    traffic: Traffic,
) -> float:
    """Return what any choices within ``domains`` add to the best partitions of ``load``. [s]

    ``load`` is the least of them all. Nothing is known of a spatial chip, nor where the network
    hides. ``traffic`` tells which tensors of the graph are one in main memory.
    """
    hides = load.overlap is Overlap.ALL or load.network_takes_maximum
    if hides or choices.clocked is None or load.temporal is None:
        return 0.0
    kept = choices.index.inside(domains)
    row, columns = choices.index.kernel, choices.clocked
    least = {
        name: choices.index.least(getattr(columns, name), kept)[row] for name in Clocked.__slots__
    }
    added = _device_excess(columns, Clocked(**least), load, row, _crossings(arrays, traffic, load))
    nodes = added + choices.network_time + choices.data_time
    bound = least_with_layouts(choices, domains, nodes).bound
    return max(bound - sum(load.network) - sum(load.data), 0.0)


def _crossings(
    arrays: KernelGraph, traffic: Traffic, load: ChipLoad
) -> tuple[Floats, Floats, Bools]:
    """Return combinations of tensors that cross a partition's border, and whose they may be.

    Of the first and the second operand, (combinations, 2), of the result how often, (combinations,)
    [1]; which of them are possible for a kernel, (combinations, n).
    """
    assert load.temporal is not None
    least, most = crossing(arrays, traffic, load.temporal.legality)
    results = range(int(most[:, 2].max(initial=0)) + 1)
    every = np.array([(f, s, r) for f in (0, 1) for s in (0, 1) for r in results], dtype=float)
    possible = (least <= every[:, None, :]) & (every[:, None, :] <= most)
    return every[:, :2], every[:, 2], np.asarray(possible.all(axis=2))


def _device_excess(
    columns: Clocked,
    least: Clocked,
    load: ChipLoad,
    row: Ints,
    crossings: tuple[Floats, Floats, Bools],
) -> Floats:
    """What each choice takes of the device beyond ``least``, wherever its tensors are. [s]"""
    operands, results, possible = crossings
    temporal = load.temporal
    assert temporal is not None

    def busy(c: Clocked) -> Floats:
        moved = c.own + c.leaving + operands[:, :1] * c.first + operands[:, 1:] * c.second
        moved = (moved + results[:, None] * c.result) / load.bandwidth
        memory = np.where(moved > 0, moved + np.array(temporal.delay)[row], 0.0)
        return np.maximum(c.work, memory) if temporal.hides else c.work + memory

    more = np.where(possible[:, row], busy(columns) - busy(least), np.inf).min(axis=0)
    return np.asarray(np.maximum(more, 0.0) + columns.after - least.after)
