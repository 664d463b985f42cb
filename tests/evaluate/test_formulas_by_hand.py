"""The published formulas written down a second time, and compared on random machines.

Nothing here is taken from `crosstack.model`: a change that moves a number of a published rule set
on any topology, mode or workload shows. Source: ``dfmodel_code``, ``ko2025dfmodel`` (section V).
"""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from crosstack import Constraints, optimise
from crosstack.evaluate.time import evaluate
from crosstack.machine.chip import Overlap, flat_chip
from crosstack.machine.memory import main_memory
from crosstack.machine.system import Dimension, DimensionKind, Parallelism, Prices, System
from crosstack.mapping.mapping import Mapping
from crosstack.model.choice_index import choice_index
from crosstack.model.rules import rules_named
from crosstack.published.dfmodel.graphs.dlrm import dlrm
from crosstack.published.dfmodel.graphs.fft import fft
from crosstack.published.dfmodel.graphs.hpl import hpl
from crosstack.published.dfmodel.graphs.llm import llm
from crosstack.workload.kernel_graph import AXES
from crosstack.workload.kernels import Axis, ComputeUnit

RING, SWITCH, FULL = DimensionKind.RING, DimensionKind.SWITCH, DimensionKind.FULLY_CONNECTED
WORDS = {"r": RING, "sw": SWITCH, "fc": FULL}
TOPOLOGIES = ("r", "sw", "fc", "r_r", "r_fc", "r_sw", "sw_sw", "fc_fc", "r_r_r", "r_sw_sw",
              "sw_sw_sw")  # fmt: skip
TENSOR, PIPELINE, DATA = Parallelism.TENSOR, Parallelism.PIPELINE, Parallelism.DATA
USES = {
    1: ((TENSOR,), (PIPELINE,), (DATA,)),
    2: ((TENSOR, PIPELINE), (TENSOR, DATA), (PIPELINE, DATA)),
    3: ((TENSOR, PIPELINE, DATA),),
}
# Release and factor of an all-reduce on rings and switches.
RULES = {
    "dfmodel-e2": (2, 2), "dfmodel-readme": (3, 2), "dfmodel-e3b": (3, 1), "dfmodel-e4": (4, 1),
    "dfmodel-e4+separate": (4, 2), "dfmodel-e5": (5, 1), "dfmodel-e5+separate": (5, 2),
}  # fmt: skip
SPLIT_ROWS, SPLIT_COLUMNS, WHOLE = "rows", "columns", "whole"
MADE = dict(zip(AXES[:5], (SPLIT_ROWS, SPLIT_ROWS, WHOLE, SPLIT_COLUMNS, WHOLE), strict=True))
NEEDED = {
    "elementwise": (SPLIT_ROWS, SPLIT_ROWS, WHOLE, SPLIT_COLUMNS, WHOLE),
    "first": (SPLIT_ROWS, WHOLE, SPLIT_ROWS, SPLIT_COLUMNS, WHOLE),
    "second": (SPLIT_ROWS, SPLIT_ROWS, SPLIT_COLUMNS, WHOLE, WHOLE),
    "tiled along K": (SPLIT_ROWS, SPLIT_ROWS, SPLIT_COLUMNS, SPLIT_ROWS, WHOLE),
}


def together(overlap, compute, memory, network):
    if overlap is Overlap.ALL:
        return max(compute, memory, network)
    if overlap is Overlap.NONE:
        return compute + memory + network
    return max(compute, memory) + network


def a_machine(draw, name, sizes, uses, *, utilization, latency=0.0, domain=None, copies=1):
    kinds = [WORDS[word] for word in name.split("_")]
    chip = flat_chip(
        n_cores=draw.choice((4, 16, 30)), lanes=draw.choice((4, 16)), stages=draw.choice((6, 16)),
        frequency=1e9, sram_capacity=1e12, utilization=utilization,
        overlap=draw.choice(list(Overlap)), price=100.0, power=7.0,
    )  # fmt: skip
    network = tuple(
        Dimension(
            kind=kind, size=size, parallelism=use, bandwidth=draw.choice((25e9, 50e9, 450e9)),
            latency=latency, link_power=draw.choice((1e-11, 5e-11)),
        )
        for kind, size, use in zip(kinds, sizes, uses, strict=True)
    )  # fmt: skip
    prices = Prices(
        link=2e-9, switch=24e-9, memory=1e-9, switch_power=5.2e-11, memory_power=1.6e-10
    )
    return System(
        chip=replace(chip, memories=main_memory(bandwidth=draw.choice((1e11, 1e12)))),
        network=network,
        n_chips=math.prod(sizes), prices=prices, domain_size=domain, copies=copies,
    )  # fmt: skip


# ---------------------------------------------------------------- transformers, kernel by kernel


def extents(workload, axes, chips, n_tiles):
    """M, K, N of a tile on one chip, tiles, and whether tiles add up to one output."""
    found = []
    for kernel, axis in zip(workload.graph.kernels, axes, strict=True):
        m, k, n = kernel.outer * kernel.m, kernel.k, kernel.n
        if axis in (Axis.OUTER, Axis.M):
            m = -(-m // chips)
        elif axis is Axis.K:
            k = -(-k // chips)
        elif axis is Axis.N:
            n = -(-n // chips)
        if kernel.tiling is Axis.N:
            n = -(-n // n_tiles)
        elif kernel.tiling is Axis.K:
            k = -(-k // n_tiles)
        found.append((m, k, n, n_tiles, kernel.tiling is Axis.K))
    return found


def per_byte(kind, chips, bandwidth, collective, release, factor):
    if chips == 1:
        return 0.0
    if collective == "all_reduce":
        if kind is FULL:
            return (factor if release == 5 else 1) / (chips * bandwidth)
        return factor * (chips - 1) / (chips * bandwidth)
    if collective == "all_gather":
        return (1 if kind is FULL else chips - 1) / (chips * bandwidth)
    return {RING: chips**2 / 8, SWITCH: chips / 4, FULL: 1}[kind] / bandwidth


def across_domains(domain, chips, fast, slow):
    if domain >= chips:
        return (chips - 1) / (chips * fast)
    return (domain - 1) / (domain * fast) + (chips / domain - 1) / (chips * slow)


def transformer_time(workload, system, uses, axes, n_tiles, release, factor):
    """Time of a layer and of an iteration, microbatches of one sequence. [s]"""
    graph, chip, network = workload.graph, system.chip, system.network
    by_use = {use: d for d, use in zip(network, uses, strict=True)}
    degree = {use: by_use[use].size if use in by_use else 1 for use in Parallelism}
    chips, word = degree[TENSOR], graph.word
    shapes = extents(workload, axes, chips, n_tiles)
    n_microbatches = workload.global_batch_size // degree[DATA]

    def rate(use, collective):
        if use not in by_use:
            return 0.0
        d = by_use[use]
        return per_byte(d.kind, d.size, d.bandwidth, collective, release, factor)

    reduce, periodic = rate(TENSOR, "all_reduce"), rate(DATA, "all_reduce")
    if system.domain_size is not None:
        fast, domain = network[0].bandwidth, system.domain_size
        reduce = across_domains(domain, network[0].size, fast, network[1].bandwidth)
        periodic = across_domains(domain, network[2].size, fast, network[2].bandwidth)

    def output(i):
        m, _, n, tiles, sums = shapes[i]
        return m * n * word * (1 if sums else tiles)

    edges = [
        (graph.index[tensor.producer], graph.index[c.kernel], tensor.size)
        for tensor in graph.tensors
        for c in tensor.consumers
    ]

    def conversion(source, target, size):
        kernel = graph.kernels[target]
        if not kernel.kind.is_gemm:
            reader = "elementwise"
        elif kernel.tiling is Axis.K:
            reader = "tiled along K"
        else:
            first = kernel.kind.n_inputs == 1 or kernel.input_sizes[0] == size
            reader = "first" if first else "second"
        made, needed = MADE[axes[source]], NEEDED[reader][AXES.index(axes[target])]
        if made in (WHOLE, needed):
            return 0.0
        return rate(TENSOR, "all_gather" if needed == WHOLE else "all_to_all") * output(source)

    layer = 0.0
    for i, kernel in enumerate(graph.kernels):
        m, k, n, tiles, _ = shapes[i]
        systolic = kernel.unit is ComputeUnit.SYSTOLIC
        if chip.compute.utilization is not None:
            work = m * n * (2 * k if systolic else 1) * tiles
            compute = work / (chip.compute.utilization * chip.peak_throughput)
        else:
            compute = (
                tiles
                / chip.compute.frequency
                * min(
                    -(-m // (lanes * chip.compute.rows))
                    * (
                        -(-n // (chip.compute.n_units // lanes * chip.compute.columns)) * k
                        if systolic
                        else n
                    )
                    for lanes in range(1, chip.compute.n_units + 1)
                )
            )
        memory = (
            sum(output(a) for a, b, _ in edges if i in (a, b)) / system.chip.main_memory.bandwidth
        )
        tensors = sum(conversion(a, b, size) for a, b, size in edges if a == i and chips > 1)
        if kernel.kind.is_gemm and axes[i] is Axis.K and chips > 1:
            tensors += reduce * output(i)
            hop = by_use[TENSOR].latency
            if release == 4:
                tensors += 2 * (chips - 1) * hop
            elif release == 5:
                tensors += hop * factor * (1 if by_use[TENSOR].kind is FULL else chips - 1)
        gradients = sum(
            periodic * m * n * word / n_microbatches for c in kernel.communications if c.periodic
        )
        network_time = max(tensors, gradients) if release == 5 else tensors + gradients
        layer += together(chip.overlap, compute, memory, network_time)
    layers = -(-workload.n_layers // degree[PIPELINE])
    bubble = 1 + (degree[PIPELINE] - 1) / n_microbatches / max(layers - 1, 1)
    sent = 2 * workload.boundary_size * workload.n_layers if workload.training else 0.0
    once = sent / by_use[PIPELINE].bandwidth if PIPELINE in by_use else 0.0
    return layer, layer * layers * bubble * n_microbatches + once


@pytest.mark.parametrize("seed", range(150))
def test_a_transformer_kernel_by_kernel(seed):
    draw = random.Random(seed)
    name, rules = draw.choice(TOPOLOGIES), draw.choice(list(RULES))
    release, factor = RULES[rules]
    sizes = tuple(draw.choice((1, 2, 3, 4)) for _ in name.split("_"))
    uses = draw.choice(USES[len(sizes)])
    heads, head = draw.choice((4, 6, 8)), draw.choice((16, 64))
    workload = llm(
        hidden=heads * head, n_heads=heads, head_size=head, n_layers=draw.choice((4, 6, 12)),
        sequence_length=draw.choice((64, 96)), global_batch_size=48, training=draw.random() < 0.6,
    )  # fmt: skip
    domains = name == "r_r_r" and draw.random() < 0.7
    system = a_machine(
        draw, name, sizes, uses,
        utilization=draw.choice((None, 0.9, 0.5)),
        latency=draw.choice((0.0, 1.5e-7)) if release >= 4 else 0.0,
        domain=draw.choice((2, 3, 8)) if domains else None,
    )  # fmt: skip
    index = choice_index(workload.graph)
    axes = tuple(draw.choice(index.axes(i)) for i in range(index.n))
    n_tiles = draw.choice((1, 2, 8))
    mapping = Mapping(
        sizes=sizes, parallelism=uses, microbatch_size=1, n_tiles=n_tiles, sharding=axes,
        partitions=tuple(range(len(axes))),
    )  # fmt: skip
    found = evaluate(workload, system, mapping, rules_named(rules))
    layer, time = transformer_time(workload, system, uses, axes, n_tiles, release, factor)
    assert found.layer_time == pytest.approx(layer, rel=1e-12)
    assert found.time == pytest.approx(time, rel=1e-12)


# ---------------------------------------------------------------- placed workloads, and bills


def exchange(name, sizes, bandwidths, size, release):
    """Slowest dimension of an all-to-all, ``size`` bytes a message. [s]"""
    (x, y, z), n = (*sizes, 1, 1)[:3], math.prod(sizes)

    def messages(chips):
        return chips**2 / 4 if release == 5 else chips * (chips - 1) / 2

    nested = [messages(math.prod(sizes[: i + 1])) for i in range(len(sizes))]
    links, crossing = {
        "r": ([2], [messages(n)]),
        "sw": ([x], [messages(n)]),
        "fc": ([x**2 / 4], [messages(n)]),
        "r_r": ([2 * x, 2 * y], [messages(n)] * 2),
        "r_fc": ([2, y**2 / 4], nested),
        "r_sw": ([2, y], nested),
        "sw_sw": ([x, y], nested),
        "fc_fc": ([x**2 / 4, y**2 / 4], nested),
        "r_r_r": ([2 * x * y, 2 * x * z, 2 * y * z], [messages(n)] * 3),
        "r_sw_sw": ([2, y, z], nested),
        "sw_sw_sw": ([x, y, z], nested),
    }[name]
    return max(
        size * count / (b * link)
        for count, b, link in zip(crossing, bandwidths, links, strict=True)
    )


def amounts(name, sizes):
    """Links and switch ports of every dimension, in units of its bandwidth."""
    (x, y, z), n = (*sizes, 1, 1)[:3], math.prod(sizes)
    return {
        "r": ([x], [2]),
        "sw": ([x], [x]),
        "fc": ([x * (x - 1)], [0]),
        "r_r": ([n, n], [2 * y, 2 * x]),
        "fc_fc": ([x * (x - 1) * y, y * (y - 1)], [0, y**2]),
        "r_fc": ([n, y * (y - 1)], [2 * y, y**2]),
        "r_sw": ([n, y], [2 * y, y]),
        "sw_sw": ([n, y], [n, y]),
        "r_r_r": ([n, n, n], [2 * y * z, 2 * x * z, 2 * x * y]),
        "r_sw_sw": ([n, y * z, z], [2 * y * z, y * z, z]),
        "sw_sw_sw": ([n, y * z, z], [n, y * z, z]),
    }[name]


def transform_time(draw, name, sizes, system, release, factor):
    workload = fft(length=2**16, radix=draw.choice((2, 4, 16)), word=4)
    step, n = workload.graph.kernels[0], math.prod(sizes)
    columns = -(-step.n // n)
    compute = 2 * step.m * step.k * columns / (0.9 * system.chip.peak_throughput)
    memory = step.m * columns * 4 / system.chip.main_memory.bandwidth
    bandwidths = [d.bandwidth for d in system.network]
    sent = exchange(name, sizes, bandwidths, step.m * step.n * 4 / n**2, release)
    overlap = system.chip.overlap
    return workload, sum(together(overlap, compute, memory, t) for t in (0.0, sent))


def recommendation_time(draw, name, sizes, system, release, factor):
    n = math.prod(sizes)
    batch = n * draw.choice((1, 2)) * 3
    workload = dlrm(
        width=64, n_bottom=2, n_top=1, n_tables=8, rows=100, embedding_size=16, samples=8,
        pooled_rows=3, global_batch_size=batch, training=draw.random() < 0.7,
    )  # fmt: skip
    graph, time = workload.graph, 0.0
    edges = [
        (graph.index[tensor.producer], graph.index[c.kernel])
        for tensor in graph.tensors
        for c in tensor.consumers
    ]
    made = [kernel.m * kernel.n * 2 for kernel in graph.kernels]
    bandwidths = [d.bandwidth for d in system.network]
    for i, kernel in enumerate(graph.kernels):
        compute = 2 * kernel.m * kernel.k * kernel.n / (0.9 * system.chip.peak_throughput)
        traffic = sum(made[a] for a, b in edges if i in (a, b)) + kernel.memory_traffic
        sent = sum(
            exchange(name, sizes, bandwidths, c.size / n, release)
            for c in kernel.communications
            if not c.periodic
        )
        # The published sum of bytes and nanoseconds.
        late = sum(
            factor * made[i] / (batch // n) * 1e-9 for c in kernel.communications if c.periodic
        )
        network = max(sent, late) if release == 5 else sent + late
        memory = traffic / system.chip.main_memory.bandwidth
        time += together(system.chip.overlap, compute, memory, network)
    return workload, time * batch / n


def factorisation_time(draw, name, sizes, system, release, factor):
    workload = hpl(size=4096, block=draw.choice((512, 300)), word=8)
    rows, columns = math.prod(sizes[:-1]), sizes[-1]
    kernels, time = workload.graph.kernels, 0.0
    panels = [-(-kernel.m // rows) * kernel.n * 8 for kernel in kernels]
    inner, outer = system.network[0].bandwidth, system.network[1].bandwidth
    for i, kernel in enumerate(kernels):
        m, k = -(-kernel.m // rows), -(-kernel.k // columns)
        compute = 2 * m * k * kernel.n / (0.9 * system.chip.peak_throughput)
        read, written = panels[i - 1] if i else 0, panels[i] if i < len(kernels) - 1 else 0
        panel = kernel.m * kernel.n * 8
        sent = max(panel / rows / outer, panel / columns / inner)
        memory = (read + written) / system.chip.main_memory.bandwidth
        time += together(system.chip.overlap, compute, memory, sent)
    return workload, time


@pytest.mark.parametrize("timed", [transform_time, recommendation_time, factorisation_time])
@pytest.mark.parametrize("seed", range(40))
def test_a_workload_that_brings_its_placement_and_its_bills(seed, timed):
    draw = random.Random(seed)
    names = [n for n in TOPOLOGIES if "_" in n or timed is not factorisation_time]
    name = draw.choice(names)
    rules = draw.choice(("dfmodel-readme", "dfmodel-e3b", "dfmodel-e4", "dfmodel-e5"))
    release, factor = RULES[rules]
    sizes = tuple(draw.choice((2, 4, 8)) for _ in name.split("_"))
    copies = draw.choice((1, 3))
    system = a_machine(draw, name, sizes, [None] * len(sizes), utilization=0.9, copies=copies)
    workload, time = timed(draw, name, sizes, system, release, factor)
    given = Constraints(kernel_by_kernel=True, microbatch_size=1)
    found = optimise(workload, system, constraints=given, rules=rules).evaluation
    assert found.time == pytest.approx(time / copies, rel=1e-12)
    links, ports = amounts(name, sizes)
    bandwidths = [d.bandwidth for d in system.network]
    n, prices = math.prod(sizes), system.prices
    link = [a * b for a, b in zip(links, bandwidths, strict=True)]
    port = sum(a * b for a, b in zip(ports, bandwidths, strict=True)) if n > 4 else 0.0
    memory = n * system.chip.main_memory.bandwidth
    price = n * 100 + memory * prices.memory + sum(link) * prices.link + port * prices.switch
    power = n * 7 + memory * prices.memory_power + port * prices.switch_power
    power += sum(a * d.link_power for a, d in zip(link, system.network, strict=True))
    assert found.price.total == pytest.approx(copies * price, rel=1e-12)
    assert found.power.total == pytest.approx(copies * power, rel=1e-12)


def test_a_second_memory_is_read_at_the_mean_speed_of_both():
    """``(c1 b1 + c2 b2) / (c1 + c2)`` where the first is too small (release E3b)."""
    workload = fft(length=2**20, radix=2, word=4)
    chip = flat_chip(
        n_cores=4, lanes=4, stages=4, frequency=1e15, sram_capacity=1.0, utilization=1.0
    )
    ring = Dimension(kind=RING, size=2, bandwidth=1e30)
    both = main_memory(bandwidth=3e11, capacity=1e6, second_bandwidth=1e10, second_capacity=3e9)
    large = replace(both[0], capacity=1e12), both[1]
    given = Constraints(kernel_by_kernel=True, microbatch_size=1)
    slow, fast = (
        optimise(
            workload,
            System(chip=replace(chip, memories=memory), network=(ring,), n_chips=2),
            constraints=given,
            rules="dfmodel-e3b",
        ).evaluation
        for memory in (both, large)
    )
    mean = (1e6 * 3e11 + 3e9 * 1e10) / (1e6 + 3e9)
    assert [p.bound_by for p in slow.partitions] == ["memory"] * 2
    assert slow.partitions[0].memory_time == pytest.approx(1024 * 512 * 4 / mean, rel=1e-12)
    assert fast.partitions[0].memory_time == pytest.approx(1024 * 512 * 4 / 3e11, rel=1e-12)
