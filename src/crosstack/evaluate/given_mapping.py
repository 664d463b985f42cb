"""A mapping that is given: what of it does not belong to the workload or the system, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from crosstack.errors import InputError, Problem
from crosstack.machine.system import Parallelism, System
from crosstack.mapping.mapping import Mapping
from crosstack.model.choice_index import axis_names, sharding_codes
from crosstack.model.choices import Choices
from crosstack.model.context import context_refused
from crosstack.model.expert_degrees import cuts_experts, experts_allowed, spread
from crosstack.model.mesh_plan import MeshPlan, placed_use
from crosstack.model.rules import Rules
from crosstack.model.runnable import unrunnable
from crosstack.workload.kernel_graph import Ints, KernelGraph
from crosstack.workload.kernels import Axis, Placement
from crosstack.workload.workload import Workload


def problems_of(
    workload: Workload, system: System, mapping: Mapping, rules: Rules
) -> Iterator[Problem]:
    """Yield what of a mapping does not belong to the workload or the system."""
    yield from _kernel_problems(workload, mapping)
    wrong = _size_problem(system, mapping, rules)
    if wrong is None:
        yield from _stage_problems(workload, system, mapping)
        wrong = _expert_problem(workload, mapping, rules)
        wrong = wrong or _context_problem(workload, system, mapping, rules)
    if wrong is not None:
        yield wrong
        return
    yield from _dimension_problems(workload, system, mapping)


def _kernel_problems(workload: Workload, mapping: Mapping) -> Iterator[Problem]:
    """Yield where a mapping has other kernels than the workload and its ends."""
    n_kernels = len(workload.graph)
    if len(mapping.sharding) != n_kernels:
        message = f"got {len(mapping.sharding)} kernels; the workload has {n_kernels}."
        yield Problem("mapping.kernels", message)
    if len(mapping.ends) != len(workload.ends):
        message = f"got {len(mapping.ends)} ends; the workload has {len(workload.ends)}."
        yield Problem("mapping.ends", message)
    for number, (own, end) in enumerate(zip(mapping.ends, workload.ends, strict=False)):
        if len(own.sharding) != end.graph.n:
            message = f"got {len(own.sharding)} kernels; {end.name} has {end.graph.n}."
            yield Problem(f"mapping.ends[{number}].kernels", message)


def _size_problem(system: System, mapping: Mapping, rules: Rules) -> Problem | None:
    """Return why a mapping is of another network, or of dimensions that rules do not share."""
    sizes = mapping.dimension_sizes
    if len(sizes) != len(system.network):
        message = f"got {len(sizes)} dimensions; the network has {len(system.network)}."
        return Problem("mapping.sizes", message)
    if mapping.dimensions and not rules.collectives.share_dimensions:
        message = f"got {mapping.dimensions}; a dimension has one use by rules {rules.name}."
        return Problem("mapping.dimensions", message)
    if math.prod(mapping.sizes) != system.n_chips:
        chips = " x ".join(map(str, mapping.sizes))
        return Problem("mapping.sizes", f"got {chips} chips; the system has {system.n_chips}.")
    return None


def _stage_problems(workload: Workload, system: System, mapping: Mapping) -> Iterator[Problem]:
    """Yield why its degrees cannot be, of weights that are shared, and of a framework."""
    stages, tensor = mapping.degree(Parallelism.PIPELINE), mapping.degree(Parallelism.TENSOR)
    if stages > 1 and workload.graph.shares_weights:
        message = f"got {stages} stages; allowed: 1, as repetitions of {workload.name} share"
        yield Problem("mapping.parallelism", f"{message} weights.")
    asked_of = {"tensor": tensor, "pipeline": stages, "expert_tensor": mapping.expert_tensor}
    not_run = unrunnable(workload, system.chip.framework, **asked_of)
    if not_run is not None:
        yield not_run.at("mapping.parallelism")


def _expert_problem(workload: Workload, mapping: Mapping, rules: Rules) -> Problem | None:
    """Return why its chips cannot have parts of experts so."""
    expert, tensor = mapping.degree(Parallelism.EXPERT), mapping.degree(Parallelism.TENSOR)
    experts, cut = spread(workload, rules), mapping.expert_tensor > 1
    if cut and not cuts_experts(workload, rules):
        asked_for = mapping.expert_tensor
        message = f"got {asked_for}; allowed: 1, as no chips cut experts of {workload.name}."
        return Problem("mapping.expert_tensor", message)
    besides = tensor // mapping.expert_tensor
    if (expert > 1 or cut) and experts % (expert * besides):
        allowed = experts_allowed(workload, experts, expert, besides)
        return Problem("mapping.parallelism", f"got ep={expert}; allowed: {allowed}.")
    return None


def _context_problem(
    workload: Workload, system: System, mapping: Mapping, rules: Rules
) -> Problem | None:
    """Return why its chips cannot share sequences so."""
    tensor, context = mapping.degree(Parallelism.TENSOR), mapping.degree(Parallelism.CONTEXT)
    how, asked = mapping.context_exchange, (workload, system, rules)
    refused = context_refused(*asked, tensor=tensor, context=context, exchange=how)
    if not refused:
        return None
    return Problem("mapping.parallelism", f"got cp={context}; allowed: {refused}.")


def _dimension_problems(workload: Workload, system: System, mapping: Mapping) -> Iterator[Problem]:
    """Yield where a dimension has another size or use than the network or the workload gives it."""
    sizes, placed = mapping.dimension_sizes, placed_use(workload.placement)
    places = mapping.dimensions or range(len(sizes))
    for i, (place, use) in enumerate(zip(places, mapping.parallelism, strict=True)):
        size, dimension = sizes[place], system.network[place]
        if dimension.size not in (None, size):
            message = f"got {size}; the network has {dimension.size}."
            yield Problem(f"mapping.sizes[{i}]", message)
        if dimension.parallelism not in (None, use):
            message = f"got {use.value}; the network gives {dimension.parallelism}."
            yield Problem(f"mapping.parallelism[{i}]", message)
        elif placed not in (None, use):
            message = f"got {use.value}; allowed for placement {workload.placement}: {placed}."
            yield Problem(f"mapping.parallelism[{i}]", message)


def checked_codes(
    workload: Workload,
    arrays: KernelGraph,
    choices: Choices,
    sharding: tuple[Axis, ...],
    plan: MeshPlan,
    path: str = "mapping",
) -> Ints:
    """Return the sharding of a mapping as codes; `InputError` for axes that kernels have not."""
    split = plan.tensor > 1 or workload.placement is not Placement.SEARCHED
    codes = sharding_codes(choices.index, sharding, split=split)
    problems = [
        Problem(
            f"{path}.kernels[{i}].sharding",
            f'got {sharding[i].value} for "{arrays.names[i]}"; allowed: '
            + ", ".join(axis_names(arrays, i)[axis] for axis in choices.index.axes(i)),
        )
        for i in np.nonzero(codes < 0)[0].tolist()
    ]
    if problems:
        raise InputError(problems)
    return codes


def partition_masks(
    arrays: KernelGraph, partitions: tuple[int, ...], path: str = "mapping"
) -> tuple[list[int], list[int]]:
    """Numbers and masks of the partitions in order; empty ones left out."""
    problems = [
        Problem(
            f"{path}.kernels[{target}].partition",
            f'"{arrays.names[target]}" runs in partition {partitions[target]}, before '
            f'"{arrays.names[source]}" in {partitions[source]}, whose tensor it reads.',
        )
        for source, target in zip(arrays.source.tolist(), arrays.target.tolist(), strict=True)
        if partitions[source] > partitions[target]
    ]
    if problems:
        raise InputError(problems)
    masks: dict[int, int] = {}
    for i, partition in enumerate(partitions):
        masks[partition] = masks.get(partition, 0) | 1 << i
    numbers = sorted(masks)
    return numbers, [masks[p] for p in numbers]
