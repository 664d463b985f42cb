"""Writes a task as native YAML. Reading it back gives an equal task, to the last bit."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from inspect import signature
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.native.read_workload import (
    OutputSize,
    default_input_sizes,
    default_output_size,
    default_unit,
    default_weight_size,
)
from crosstack.io.native.write_graph import write_graph
from crosstack.io.native.yaml_text import changed, field_lines, flow
from crosstack.machine.chip import Chip, flat_chip, flat_fields
from crosstack.machine.memory import main_memory
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints, Task
from crosstack.workload.dtype import dtype_of_word
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.kernels import Kernel, Placement, Tensor
from crosstack.workload.workload import Workload

Inputs = dict[tuple[str, int], tuple[str, bool]]


def write_task(task: Task) -> str:
    """Return native YAML of a task; generators and library names it came from are spelled out."""
    lines = ["system:", *_system(task.system)]
    if task.constraints != Constraints():
        values = changed(task.constraints)
        for name in ("partitions", "sharding"):
            if name in values:
                values[name] = dict(values[name])
        lines += ["constraints:", *field_lines(values)]
    if task.rules is not None:
        lines += field_lines({"rules": task.rules}, indent="")
    return write_workload(task.workload) + "\n".join(lines) + "\n"


def write_workload(workload: Workload) -> str:
    """Return the ``workload`` section alone; with a ``system`` section after it, a whole file."""
    return "\n".join(["workload:", *_workload(workload)]) + "\n"


def write_system(system: System) -> str:
    """Return the ``system`` section alone; with a ``workload`` section before it, a whole file."""
    return "\n".join(["system:", *_system(system)]) + "\n"


def _workload(workload: Workload) -> list[str]:
    return _over_named_axes(workload) or _of_kernels(workload)


def _over_named_axes(workload: Workload) -> list[str]:
    """Return the graph that a workload is made of; nothing if it is of none, or changed since."""
    of = workload.made_of
    if of is None:
        return []
    again = workload_of(of.graph, block=of.block, items=of.items, name=workload.name)
    if again != workload:
        return []
    said = {"items": of.items, "block": of.block}
    graph = write_graph(of.graph).splitlines()
    graph += field_lines({name: value for name, value in said.items() if value}, "")
    head = {"name": workload.name}
    if workload.item != again.item:
        head["item"] = workload.item
    return [*field_lines(head), "  graph:", *(f"    {line}" for line in graph)]


def _of_kernels(workload: Workload) -> list[str]:
    if workload.ends:
        names = ", ".join(end.name for end in workload.ends)
        message = f"{names}: a file says what runs besides layers by a graph over named axes alone."
        raise InputError(Problem("workload.before", message))
    graph = workload.graph
    inputs = _as_inputs(workload)
    fields = {f.name: getattr(workload, f.name) for f in dataclasses.fields(workload)}
    del fields["graph"], fields["made_of"], fields["before"], fields["after"]
    if workload.placement is Placement.SEARCHED:
        del fields["placement"]
    if not workload.data_size:
        del fields["data_size"]
    if workload.item == "sample":
        del fields["item"]
    if not workload.item_part:
        del fields["item_part"]
    follows = graph.dtype is dtype_of_word(graph.word)
    dtype = {} if follows else {"dtype": graph.dtype}
    lines = field_lines({"name": fields.pop("name"), "word": graph.word, **dtype, **fields})
    makes: dict[str, OutputSize] = {}
    for k in graph.kernels:
        usual = default_output_size(k.outer, k.m, k.n, graph.word)
        makes[k.name] = k.output_size, k.output_size != usual
    lines.append("  kernels:")
    lines += [f"    - {flow(_kernel(k, graph.word, inputs, makes))}" for k in graph.kernels]
    if inputs is None:
        lines.append("  tensors:")
        lines += [f"    - {flow(_tensor(tensor))}" for tensor in graph.tensors]
    return lines


def _as_inputs(workload: Workload) -> Inputs | None:
    """Return who makes each operand; None if only a list of tensors can say it.

    That is so when two tensors feed one operand, when a size differs from what the producer makes,
    or when tensors or readers are not in the order of the kernels.
    """
    graph, index = workload.graph, workload.graph.index
    inputs: Inputs = {}
    readers = 0
    for tensor in graph.tensors:
        places = [(index[c.kernel], c.operand) for c in tensor.consumers]
        made = graph.kernels[index[tensor.producer]].output_size
        if places != sorted(places) or tensor.size != made:
            return None
        readers += len(places)
        for c in tensor.consumers:
            inputs[c.kernel, c.operand] = (tensor.producer, c.elided)
    producers = [index[tensor.producer] for tensor in graph.tensors]
    if len(inputs) < readers or producers != sorted(producers):
        return None
    return inputs


def _kernel(
    kernel: Kernel, word: int, inputs: Inputs | None, makes: Mapping[str, OutputSize]
) -> dict[str, Any]:
    extents = (kernel.outer, kernel.m, kernel.k, kernel.n)
    makers = [(inputs or {}).get((kernel.name, i)) for i in range(kernel.kind.n_inputs)]
    fields: dict[str, Any] = {"name": kernel.name, "kind": kernel.kind}
    fields |= {a: e for a, e in zip(("outer", "m", "k", "n"), extents, strict=True) if e != 1}
    fields |= {"m": kernel.m, "n": kernel.n}
    if any(makers):
        fields["inputs"] = [
            maker and ({"kernel": maker[0], "elided": True} if maker[1] else maker[0])
            for maker in makers
        ]
    made = [maker and (makes[maker[0]][0], makes[maker[0]][1] or maker[1]) for maker in makers]
    expected = default_input_sizes(kernel.kind, extents, word, made)
    if inputs is None or kernel.input_sizes != expected:
        fields["input_sizes"] = kernel.input_sizes
    defaults: dict[str, Any] = {
        "weight_size": default_weight_size(kernel.kind, kernel.outer, kernel.m, kernel.k, word),
        "output_size": default_output_size(kernel.outer, kernel.m, kernel.n, word),
        "unit": default_unit(kernel.kind),
    }
    for field in dataclasses.fields(Kernel):
        if field.default is not dataclasses.MISSING and field.name not in fields:
            defaults.setdefault(field.name, field.default)
    for name, default in defaults.items():
        if getattr(kernel, name) != default:
            fields[name] = getattr(kernel, name)
    return fields


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "producer": tensor.producer,
        "size": tensor.size,
        "consumers": [
            {"kernel": c.kernel, "operand": c.operand} | ({"elided": True} if c.elided else {})
            for c in tensor.consumers
        ],
    }


def _system(system: System) -> list[str]:
    lines = field_lines(
        {
            "name": system.name,
            "chip": _chip(system.chip),
            **_memory(system.chip),
            "n_chips": system.n_chips,
        }
    )
    lines.append("  network:")
    lines += [f"    - {flow(changed(dimension))}" for dimension in system.network]
    prices = changed(system.prices)
    lines += field_lines({"prices": prices}) if prices else []
    if system.domain_size is not None:
        lines += field_lines({"domain_size": system.domain_size})
    if system.all_reduce is not None:
        lines += field_lines({"all_reduce": system.all_reduce})
    return lines + (field_lines({"copies": system.copies}) if system.copies > 1 else [])


def _chip(chip: Chip) -> dict[str, Any]:
    flat = flat_fields(chip)
    if flat is None:
        fields = changed(chip)
        rates = ("relative_rates", "relative_vector_rates")
        compute = changed(chip.compute)
        compute |= {name: dict(compute[name]) for name in rates if name in compute}
        others: dict[str, dict[str, float]] = {}
        for dtype, sums, share in compute.pop("accumulator_rates", ()):
            others.setdefault(dtype, {})[sums] = share
        fields["compute"] = compute | ({"accumulator_rates": others} if others else {})
    else:
        usual = {name: p.default for name, p in signature(flat_chip).parameters.items()}
        fields = {name: value for name, value in flat.items() if value != usual[name]}
        if chip.compute.relative_rates:
            fields["relative_rates"] = dict(chip.compute.relative_rates)
    if _memory(chip):
        fields.pop("memories", None)
    else:
        fields["memories"] = chip.memories
    return {"name": chip.name} | fields


def _memory(chip: Chip) -> dict[str, Any]:
    """Return the section of a memory; nothing where only a list of levels can say it."""
    first, *rest = chip.memories
    fields: dict[str, Any] = {"name": first.name, "bandwidth": first.bandwidth}
    fields["capacity"] = first.capacity
    for second in rest:
        fields |= {"second_bandwidth": second.bandwidth, "second_capacity": second.capacity}
    if main_memory(**fields) != chip.memories:
        return {}
    return {"memory": fields if first.capacity is not None else fields | {}}
