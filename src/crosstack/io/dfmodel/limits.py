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
    placed = task.workload.placement is not Placement.SEARCHED
    graph = task.workload.graph
    return [
        *_rules(task),
        *_constraints(task, placed),
        *_network(task, placed),
        *(_placed(task.workload) if placed else _searched(task.workload)),
        *(
            problem
            for i, kernel in enumerate(graph.kernels)
            for problem in _kernel(kernel, task, f"workload.graph.kernels[{i}]")
        ),
        *_operands(graph),
    ]


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


def _said(path: str, *wrong: tuple[str, object, str, str]) -> Iterator[Problem]:
    """Yield a problem for each field of which it is so that DFModel does not say it, and why."""
    for field, so, why, allowed in wrong:
        if so:
            place = ".".join(filter(None, (path, field)))
            yield Problem(place, f"{why}; allowed: {allowed}.")


def _constraints(task: Task, placed: bool) -> Iterator[Problem]:
    given, cannot = task.constraints, "DFModel cannot say it"
    limit, unfused = given.max_partitions, given.kernel_by_kernel
    one_each = unfused or limit == len(task.workload.graph)
    yield from _said(
        "constraints",
        ("microbatch_size", placed and given.microbatch_size not in (None, 1), cannot,
         "1 for this workload"),
        ("tile_size", placed and given.tile_size, cannot, "none for this workload"),
        ("degrees", given.degrees.given, cannot, "parallelism of the dimensions instead"),
        ("n_tiles", given.n_tiles, cannot, "tile_size instead"),
        ("separate_directions", given.separate_directions, cannot, "false"),
        ("recompute", given.recompute not in (None, Recompute.NONE), cannot, "none"),
        ("interleave", given.interleave not in (None, 1), cannot, "1"),
        ("offload", given.offload, cannot, "nothing"),
        ("schedule", given.schedule not in (None, Schedule.ONE_F_ONE_B), cannot, "1f1b"),
        ("sharding", given.sharding, cannot, "none; DFModel chooses it"),
        ("max_partitions", unfused and limit is not None,
         "DFModel counts the kernels where they run one by one", "none"),
        ("max_partitions", not unfused and limit is None, "DFModel needs it", "from 1"),
        ("partitions", given.partitions and one_each,
         "DFModel pins nothing where every kernel may have its own partition", "none"),
    )  # fmt: skip


def _network(task: Task, placed: bool) -> Iterator[Problem]:
    system, network, name = task.system, task.system.network, topology_name(task)
    far = system.domain_size is not None and (placed or len(network) != 3)
    yield from _said(
        "system",
        ("network", name not in TOPOLOGIES, f"got {name}", ", ".join(TOPOLOGIES)),
        ("network", len({dimension.hop_latency for dimension in network}) > 1,
         "DFModel knows one latency", "the same for all"),
        ("memory.spare", system.chip.main_memory.spare, "DFModel cannot say it", "0"),
        ("copies", system.copies > 1 and not placed, "DFModel has one copy of a transformer", "1"),
        ("domain_size", far,
         "DFModel looks at it for transformers on three dimensions only", "none"),
        ("network[0].link_power", len(network) == 4 and network[0].link_power,
         "DFModel has no power of the first of four dimensions", "0"),
    )  # fmt: skip
    for i, dimension in enumerate(network if placed else ()):
        came = f"got {dimension.parallelism}; DFModel says it for transformers only"
        yield from _said(
            f"system.network[{i}]",
            ("parallelism", dimension.parallelism is not None, came, "none"),
            ("size", dimension.size is None and len(network) > 1, "DFModel needs it", "from 1"),
        )


def _searched(workload: Workload) -> Iterator[Problem]:
    row = workload.sequence_length * workload.graph.word
    hidden = workload.boundary_size / row
    came = f"got {workload.boundary_size:.9g} B; DFModel has a whole number of values"
    allowed = f"multiples of sequence_length x word, such as {row * max(1, round(hidden))} B"
    yield from _said(
        "workload",
        ("data_size", workload.data_size, "DFModel cannot say it for a transformer", "0"),
        ("boundary_size", hidden < 1 or hidden != int(hidden), came, allowed),
    )


def _placed(workload: Workload) -> Iterator[Problem]:
    """Yield what the blocks of workloads that are not searched have no place for."""
    grid, batched = (workload.placement is p for p in (Placement.GRID, Placement.BATCH))
    usual = {"n_layers": 1, "layers_in_graph": 1, "sequence_length": 1, "boundary_size": 0}
    for name, value in (usual if batched else usual | {"global_batch_size": 1}).items():
        came = f"got {getattr(workload, name):g}, which DFModel cannot say for placement"
        differs = getattr(workload, name) != value
        yield from _said("workload", (name, differs, f"{came} {workload.placement}", str(value)))
    graph, words = workload.graph, workload.data_size / workload.graph.word
    whole, square = words == int(words) >= 1, math.isqrt(int(words)) ** 2 == words
    kind = "square of rows" if grid else "number"
    allowed = f"a whole {kind} of words, at least 1"
    wrong = not whole or (grid and not square)
    yield from _said("workload", ("data_size", wrong, f"got {workload.data_size:,.17g} B", allowed))
    for t, tensor in enumerate(graph.tensors):
        for c, consumer in enumerate(tensor.consumers):
            kernel = graph.kernels[graph.index[consumer.kernel]]
            came = f"{tensor.producer!r} to {consumer.kernel!r}: the reader takes other bytes"
            differs = kernel.input_sizes[consumer.operand] != tensor.size
            place = f"workload.graph.tensors[{t}].consumers[{c}]"
            yield from _said(place, ("", differs, came, "equal sizes"))


def _kernel(kernel: Kernel, task: Task, path: str) -> Iterator[Problem]:
    known, count = saved_of(kernel.name), len(kernel.communications)
    cannot = "DFModel cannot say it"
    yield from _said(
        path,
        ("operations", kernel.operations > 1, f"got {kernel.operations}; DFModel has one", "1"),
        ("cache_size", kernel.cache_size, cannot, "0, with the traffic of each chip instead"),
        ("routing", kernel.routing.sent < 1, cannot, "all tokens everywhere"),
        ("density", min(kernel.density) < 1, "DFModel counts all elements", "1, 1 and 1"),
        ("saved", kernel.saved not in (Saved.NOTHING, known), f"got {kernel.saved}; {cannot}",
         f"{known}, for this name"),
        ("communications", count > 2, f"got {count}", "at most 2"),
    )  # fmt: skip
    chips = task.system.n_chips if writes_pairs(task) else 1
    for i, one in enumerate(kernel.communications):
        collective, share = one.collective, one.size / chips
        # The share of a pair that would be read as what a chip exchanges in all.
        same = chips > 1 and not one.periodic and share == kernel.memory_traffic
        yield from _said(
            f"{path}.communications[{i}]",
            ("", collective not in COLLECTIVES.values(), f"got {collective.value}",
             ", ".join(dict.fromkeys(c.value for c in COLLECTIVES.values()))),
            ("", one.periodic and collective is not Collective.ALL_REDUCE,
             f"got a periodic {collective.value}", "all_reduce"),
            ("", one.size == 0, "got a size of 0, which DFModel reads as unset", "above 0"),
            ("", same, f"got {share:.9g} B to each chip, which is also the kernel's memory_traffic",
             "different numbers"),
        )  # fmt: skip


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
        wrong = operand != read or graph.kernels[source].output_size == 0
        names = f"{graph.kernels[source].name!r} to {graph.kernels[target].name!r}"
        came = f"{names}: DFModel knows operands by their bytes and would not know this one"
        allowed = "different sizes above 0, or both operands connected"
        yield from _said(places[number], ("", wrong, came, allowed))
