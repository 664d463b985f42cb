"""What DFModel text can hold of a `Task`, and which release can hold it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from crosstack.errors import Problem
from crosstack.io.dfmodel.schema import TOPOLOGIES
from crosstack.io.dfmodel.vocabulary import COLLECTIVES, LINKS, matching_operands, saved_of, single
from crosstack.machine.chip import Overlap
from crosstack.mapping.mapping import Task
from crosstack.workload.kernel_graph import KernelGraph
from crosstack.workload.kernels import Collective, Kernel, Placement, Saved
from crosstack.workload.transformer_training import Recompute, Schedule
from crosstack.workload.workload import Workload

# Rule sets that a file's fields can point to, by the number of the release.
RELEASES = {
    "dfmodel-e2": 2,
    "dfmodel-readme": 3,
    "dfmodel-e3b": 3,
    "dfmodel-e4": 4,
    "dfmodel-e5": 5,
}
SEPARATE = "+separate"
_WORDS = {kind: word for word, kind in LINKS.items()}


def topology_name(task: Task) -> str:
    """Return what DFModel would call the network: ``r_sw`` for rings joined by switches."""
    kinds = [dimension.kind for dimension in task.system.network]
    return "_".join(_WORDS.get(kind, kind.value) for kind in kinds)


def edges_in_order(graph: KernelGraph) -> list[tuple[int, int, int, bool, int]]:
    """Return (consumer, operand, producer, elided, number) of each edge, in order of writing.

    ``number`` counts edges tensor by tensor. By consumer and operand: what is recognised by its
    place comes out as it went in.
    """
    edges = [
        (graph.index[c.kernel], c.operand, graph.index[tensor.producer], c.elided)
        for tensor in graph.tensors
        for c in tensor.consumers
    ]
    return sorted((*edge, number) for number, edge in enumerate(edges))


def _release_features(task: Task) -> Iterator[tuple[int, str]]:
    """Yield the earliest release for each thing the task has that not all releases know."""
    if task.system.chip.overlap is Overlap.COMPUTE_MEMORY:
        yield 4, "system.chip.overlap"
    for i, dimension in enumerate(task.system.network):
        if dimension.latency:
            yield 4, f"system.network[{i}].latency"
    for t, tensor in enumerate(task.workload.graph.tensors):
        for c, consumer in enumerate(tensor.consumers):
            if consumer.elided:
                yield 4, f"workload.graph.tensors[{t}].consumers[{c}].elided"
    if len(task.system.network) == 4:
        yield 5, "system.network"
    for i, kernel in enumerate(task.workload.graph.kernels):
        for name in ("sram_extra", "memory_extra"):
            if getattr(kernel, name):
                yield 5, f"workload.graph.kernels[{i}].{name}"


def needed_release(task: Task) -> int:
    """Return the number of the release to write: that of the rules, or the earliest that can."""
    if task.rules is not None:
        return RELEASES.get(task.rules.removesuffix(SEPARATE), 5)
    return max((number for number, _ in _release_features(task)), default=3)


def writes_pairs(task: Task) -> bool:
    """Return whether what a chip sends to one other is written down, not what to all."""
    return task.workload.placement is Placement.BATCH and needed_release(task) == 2


def limits(task: Task) -> list[Problem]:
    """Return everything in ``task`` that DFModel text cannot say."""
    problems = [*_rules(task), *_constraints(task), *_network(task), *_workload(task)]
    graph = task.workload.graph
    for i, kernel in enumerate(graph.kernels):
        problems.extend(_kernel(kernel, f"workload.graph.kernels[{i}]"))
        if writes_pairs(task):
            problems.extend(_pairs(kernel, task.system.n_chips, f"workload.graph.kernels[{i}]"))
    problems.extend(_operands(graph))
    return problems


def _rules(task: Task) -> Iterator[Problem]:
    if task.rules is None:
        return
    base = task.rules.removesuffix(SEPARATE)
    separate = base != task.rules
    second = task.system.chip.has_second_memory
    # Before E4, a second memory is what tells E3b from its neighbours.
    sayable = [name for name in RELEASES if second or name != "dfmodel-e3b"]
    if base not in sayable or (separate and RELEASES[base] < 4):
        allowed = ", ".join([*sayable, f"dfmodel-e4{SEPARATE}", f"dfmodel-e5{SEPARATE}"])
        yield Problem("rules", f"no DFModel file says {task.rules!r}; allowed: {allowed}.")
        return
    for number, path in _release_features(task):
        if number > RELEASES[base]:
            yield Problem(path, f"{task.rules} cannot say it; allowed: rules of E{number} on.")
    if base == "dfmodel-e2" and task.workload.layers_in_graph > 1:
        yield Problem("workload.layers_in_graph", f"{task.rules} cannot say it; allowed: 1.")
    if second and RELEASES[base] < 4 and base != "dfmodel-e3b":
        yield Problem("rules", f"{task.rules} has one memory; allowed: dfmodel-e3b.")


def _constraints(task: Task) -> Iterator[Problem]:
    given, count = task.constraints, len(task.workload.graph)
    placed = task.workload.placement is not Placement.SEARCHED
    microbatch = given.microbatch_size if placed and given.microbatch_size != 1 else None
    for name, value, allowed in (
        ("microbatch_size", microbatch, "1 for this workload"),
        ("tile_size", given.tile_size if placed else None, "none for this workload"),
        ("degrees", given.degrees.given, "parallelism of the dimensions instead"),
        ("n_tiles", given.n_tiles, "tile_size instead"),
        ("separate_directions", given.separate_directions, "false"),
        ("recompute", given.recompute not in (None, Recompute.NONE), "none"),
        ("interleave", given.interleave not in (None, 1), "1"),
        ("schedule", given.schedule is not Schedule.ONE_F_ONE_B, "1f1b"),
        ("sharding", given.sharding, "none; DFModel chooses it"),
    ):
        if value:
            yield Problem(f"constraints.{name}", f"DFModel cannot say it; allowed: {allowed}.")
    if given.kernel_by_kernel:
        if given.max_partitions is not None:
            message = "DFModel counts the kernels where they run one by one; allowed: none."
            yield Problem("constraints.max_partitions", message)
    elif given.max_partitions is None:
        yield Problem("constraints.max_partitions", "DFModel needs it; allowed: from 1.")
    if given.partitions and (given.kernel_by_kernel or given.max_partitions == count):
        message = "DFModel pins nothing where every kernel may have its own partition"
        yield Problem("constraints.partitions", f"{message}; allowed: none.")


def _network(task: Task) -> Iterator[Problem]:
    network = task.system.network
    name = topology_name(task)
    if name not in TOPOLOGIES:
        yield Problem("system.network", f"got {name}; allowed: {', '.join(TOPOLOGIES)}.")
    if len({dimension.hop_latency for dimension in network}) > 1:
        yield Problem("system.network", "DFModel knows one latency; allowed: the same for all.")
    placed = task.workload.placement is not Placement.SEARCHED
    if task.system.copies > 1 and not placed:
        yield Problem("system.copies", "DFModel has one copy of a transformer; allowed: 1.")
    for i, dimension in enumerate(network):
        if placed and dimension.parallelism is not None:
            message = f"got {dimension.parallelism}; DFModel says it for transformers only"
            yield Problem(f"system.network[{i}].parallelism", f"{message}; allowed: none.")
        if placed and dimension.size is None and len(network) > 1:
            yield Problem(f"system.network[{i}].size", "DFModel needs it; allowed: from 1.")
    if task.system.domain_size is not None and (placed or len(network) != 3):
        message = "DFModel looks at it for transformers on three dimensions only; allowed: none."
        yield Problem("system.domain_size", message)
    if len(network) == 4 and network[0].link_power:
        message = "DFModel has no power of the first of four dimensions; allowed: 0."
        yield Problem("system.network[0].link_power", message)


def _workload(task: Task) -> Iterator[Problem]:
    workload = task.workload
    if workload.placement is not Placement.SEARCHED:
        yield from _placed(workload)
        return
    if workload.data_size:
        yield Problem("workload.data_size", "DFModel cannot say it for a transformer; allowed: 0.")
    row = workload.sequence_length * workload.graph.word
    hidden = workload.boundary_size / row
    if hidden < 1 or hidden != int(hidden):
        message = f"got {workload.boundary_size:.9g} B; DFModel has a whole number of values"
        allowed = f"multiples of sequence_length x word, such as {row * max(1, round(hidden))} B"
        yield Problem("workload.boundary_size", f"{message}; allowed: {allowed}.")


def _placed(workload: Workload) -> Iterator[Problem]:
    """Yield what the blocks of workloads that are not searched have no place for."""
    single_batch = workload.placement is not Placement.BATCH
    for name, value, allowed in (
        ("n_layers", workload.n_layers, 1),
        ("layers_in_graph", workload.layers_in_graph, 1),
        ("sequence_length", workload.sequence_length, 1),
        ("boundary_size", workload.boundary_size, 0),
        ("global_batch_size", workload.global_batch_size if single_batch else 1, 1),
    ):
        if value != allowed:
            message = f"got {value:g}, which DFModel cannot say for placement {workload.placement}"
            yield Problem(f"workload.{name}", f"{message}; allowed: {allowed}.")
    words = workload.data_size / workload.graph.word
    whole, square = words == int(words) >= 1, math.isqrt(int(words)) ** 2 == words
    if not whole or (workload.placement is Placement.GRID and not square):
        kind = "square of rows" if workload.placement is Placement.GRID else "number"
        message = f"got {workload.data_size:,.17g} B; allowed: a whole {kind} of words, at least 1."
        yield Problem("workload.data_size", message)
    graph = workload.graph
    for t, tensor in enumerate(graph.tensors):
        for c, consumer in enumerate(tensor.consumers):
            kernel = graph.kernels[graph.index[consumer.kernel]]
            if kernel.input_sizes[consumer.operand] != tensor.size:
                names = f"{tensor.producer!r} to {consumer.kernel!r}"
                message = f"{names}: the reader takes other bytes; allowed: equal sizes."
                yield Problem(f"workload.graph.tensors[{t}].consumers[{c}]", message)


def _kernel(kernel: Kernel, path: str) -> Iterator[Problem]:
    if kernel.operations > 1:
        message = f"got {kernel.operations}; DFModel has one; allowed: 1."
        yield Problem(f"{path}.operations", message)
    if kernel.cache_size:
        message = "DFModel cannot say it; allowed: 0, with the traffic of each chip instead."
        yield Problem(f"{path}.cache_size", message)
    if kernel.routing.sent < 1:
        yield Problem(f"{path}.routing", "DFModel cannot say it; allowed: all tokens everywhere.")
    if min(kernel.density) < 1:
        yield Problem(f"{path}.density", "DFModel counts all elements; allowed: 1, 1 and 1.")
    known = saved_of(kernel.name)
    if kernel.saved not in (Saved.NOTHING, known):
        message = f"got {kernel.saved}; DFModel cannot say it; allowed for this name: {known}."
        yield Problem(f"{path}.saved", message)
    if len(kernel.communications) > 2:
        message = f"got {len(kernel.communications)}; allowed: at most 2."
        yield Problem(f"{path}.communications", message)
    for i, communication in enumerate(kernel.communications):
        where = f"{path}.communications[{i}]"
        collective = communication.collective
        if collective not in COLLECTIVES.values():
            allowed = ", ".join(dict.fromkeys(c.value for c in COLLECTIVES.values()))
            yield Problem(where, f"got {collective.value}; allowed: {allowed}.")
        if communication.periodic and collective is not Collective.ALL_REDUCE:
            yield Problem(where, f"got a periodic {collective.value}; allowed: all_reduce.")
        if communication.size == 0:
            yield Problem(where, "got a size of 0, which DFModel reads as unset; allowed: above 0.")


def _pairs(kernel: Kernel, chips: int, path: str) -> Iterator[Problem]:
    """Yield the shares of a pair that would be read as what a chip exchanges in all."""
    for i, communication in enumerate(kernel.communications):
        share = communication.size / chips
        if chips > 1 and not communication.periodic and share == kernel.memory_traffic:
            message = f"got {share:.9g} B to each chip, which is also the kernel's memory_traffic"
            yield Problem(f"{path}.communications[{i}]", f"{message}; allowed: different numbers.")


def _operands(graph: KernelGraph) -> Iterator[Problem]:
    """Yield the edges that would be taken for another operand when read."""
    edges = edges_in_order(graph)
    places = [
        f"workload.graph.tensors[{t}].consumers[{c}]"
        for t, tensor in enumerate(graph.tensors)
        for c in range(len(tensor.consumers))
    ]
    found = matching_operands(
        [(source, target) for target, _, source, *_ in edges],
        [single(kernel.output_size) for kernel in graph.kernels],
        [tuple(single(size) for size in kernel.input_sizes) for kernel in graph.kernels],
    )
    for (target, operand, source, _, number), read in zip(edges, found, strict=True):
        if operand != read or graph.kernels[source].output_size == 0:
            names = f"{graph.kernels[source].name!r} to {graph.kernels[target].name!r}"
            message = f"{names}: DFModel knows operands by their bytes and would not know this one"
            allowed = "different sizes above 0, or both operands connected"
            yield Problem(places[number], f"{message}; allowed: {allowed}.")
