"""Writes a task or a graph as native YAML; read back it is equal, to the last bit."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from inspect import signature
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.library import framework as library_framework
from crosstack.io.library import names
from crosstack.io.native.read_workload import (
    OutputSize,
    default_input_sizes,
    default_output_size,
    default_unit,
    default_weight_size,
)
from crosstack.machine.chip import Chip, flat_chip, flat_fields
from crosstack.machine.framework import Framework
from crosstack.machine.memory import main_memory
from crosstack.machine.system import System
from crosstack.mapping.mapping import Constraints, Task
from crosstack.model.fused_attention import as_kept
from crosstack.workload import kernels
from crosstack.workload.axes import AxisUse
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype, dtype_of_word
from crosstack.workload.graph_workload import workload_of
from crosstack.workload.kernels import Kernel
from crosstack.workload.operations import Block, Operand, Operation, Role, Tensor
from crosstack.workload.workload import Workload

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*(?: [A-Za-z0-9_./-]+)*")
_NOT_PLAIN = {"null", "true", "false"}
_LONGEST_KEY = 200  # YAML wants an implicit key to end within 1024 characters


Inputs = dict[tuple[str, int], tuple[str, bool]]


def write_task(task: Task) -> str:
    """Return native YAML of a task; generators and library names it came from are spelled out."""
    fields: dict[str, Any] = {"system": _system(task.system)}
    if task.constraints != Constraints():
        values = Section(changed(task.constraints))
        for name in ("partitions", "sharding"):
            if name in values:
                values[name] = dict(values[name])
        for name in ("overlap", "offload"):
            if name in values:
                values[name] = [str(what) for what in values[name]]
        fields["constraints"] = values
    if task.rules is not None:
        fields["rules"] = task.rules
    return write_workload(task.workload) + block_text(fields)


def write_workload(workload: Workload) -> str:
    """Return the ``workload`` section alone; with a ``system`` section after it, a whole file."""
    kept = as_kept(workload)
    return block_text({"workload": _over_named_axes(kept) or _of_kernels(kept)})


def write_system(system: System) -> str:
    """Return the ``system`` section alone; with a ``workload`` section before it, a whole file."""
    return block_text({"system": _system(system)})


def _over_named_axes(workload: Workload) -> Section | None:
    """Return the graph that a workload is made of; None if it is of none, or changed since."""
    of = workload.made_of
    if of is None:
        return None
    trained: dict[str, Any] = {"gradients": workload.gradients, "optimizer": workload.optimizer}
    again = workload_of(of.graph, block=of.block, items=of.items, name=workload.name, **trained)
    if again != workload:
        return None
    said = {"items": of.items, "block": of.block}
    graph = _graph(of.graph) | {name: value for name, value in said.items() if value}
    item = {} if workload.item == again.item else {"item": workload.item}
    told = {name: str(value) for name, value in trained.items() if value is not None}
    return Section({"name": workload.name, **item, **told, "graph": Section(graph)})


def _of_kernels(workload: Workload) -> Section:
    if workload.ends:
        names = ", ".join(end.name for end in workload.ends)
        message = f"{names}: a file says what runs besides layers by a graph over named axes alone."
        raise InputError(Problem("workload.before", message))
    graph = workload.graph
    inputs = _as_inputs(workload)
    always = ("n_layers", "layers_in_graph", "global_batch_size", "sequence_length",
              "boundary_size")  # fmt: skip
    others = ("placement", "data_size", "item", "item_part")
    fields = Section(name=workload.name, word=graph.word)
    if graph.dtype is not dtype_of_word(graph.word):
        fields["dtype"] = graph.dtype
    fields |= {name: getattr(workload, name) for name in always}
    fields |= {name: value for name, value in changed(workload).items() if name in others}
    if workload.optimizer is not None:
        fields["optimizer"] = str(workload.optimizer)
    makes: dict[str, OutputSize] = {}
    for k in graph.kernels:
        usual = default_output_size(k.outer, k.m, k.n, graph.word)
        makes[k.name] = k.output_size, k.output_size != usual
    fields["kernels"] = Rows(_kernel(k, graph.word, inputs, makes) for k in graph.kernels)
    if inputs is None:
        fields["tensors"] = Rows(map(_kernel_tensor, graph.tensors))
    return fields


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


def _kernel_tensor(tensor: kernels.Tensor) -> dict[str, Any]:
    return {
        "producer": tensor.producer,
        "size": tensor.size,
        "consumers": [
            {"kernel": c.kernel, "operand": c.operand} | ({"elided": True} if c.elided else {})
            for c in tensor.consumers
        ],
    }


def _system(system: System) -> Section:
    framework, system = system.chip.framework, system.driven_by(None)
    fields = Section(name=system.name, chip=_chip(system.chip), **_memory(system.chip))
    fields |= {"n_chips": system.n_chips, "network": Rows(map(changed, system.network))}
    if prices := changed(system.prices):
        fields["prices"] = prices
    if system.host is not None:
        fields["host"] = changed(system.host)
    said = changed(system)
    fields |= {name: said[name] for name in ("domain_size", "all_reduce", "copies") if name in said}
    if framework is not None:
        fields["framework"] = _framework(framework)
    return fields


def _framework(framework: Framework) -> Any:
    """Return the name of a framework of the library, or the fields of another."""
    known = framework.name in names("frameworks") and library_framework(framework.name) == framework
    return framework.name if known else changed(framework)


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
    fields |= {"spare": first.spare} if first.spare else {}
    for second in rest:
        fields |= {"second_bandwidth": second.bandwidth, "second_capacity": second.capacity}
    if main_memory(**fields) != chip.memories:
        return {}
    return {"memory": fields}


# ---------------------------------------------------------------- a graph over named axes


def write_graph(graph: Graph) -> str:
    """Return native YAML of a graph; a backward pass is spelled out."""
    return block_text(_graph(graph))


def _graph(graph: Graph) -> dict[str, Any]:
    """Return what a file says of a graph."""
    dtypes = [tensor.dtype for tensor in graph.tensors if tensor.role is not Role.INDEX]
    usual = max(sorted({*dtypes}), key=dtypes.count, default=Dtype.BF16)
    tensors = Section((t.name, _tensor(t, usual, t.name in graph.makers)) for t in graph.tensors)
    feature = AxisUse.FEATURE
    return {
        "dtype": usual,
        "axes": Section(
            (a.name, a.size if a.use is feature else {"size": a.size, "use": a.use})
            for a in graph.axes
        ),
        **({"tensors": tensors} if tensors else {}),
        "blocks": Rows(map(_block, graph.blocks)),
    }


def _tensor(tensor: Tensor, usual: Dtype, made: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"axes": " ".join(tensor.axes), "dtype": tensor.dtype}
    if tensor.dtype is usual and tensor.role is not Role.INDEX:
        del fields["dtype"]
    if made is not (tensor.role is Role.ACTIVATION) or tensor.role not in (
        Role.INPUT,
        Role.ACTIVATION,
    ):
        fields["role"] = tensor.role
    if tensor.mask is not None:
        fields["mask"] = tensor.mask
    more = {"of": (tensor.of, ""), "copies": (tensor.copies, 1), "beside": (tensor.beside, 0.0)}
    return fields | {name: value for name, (value, left_out) in more.items() if value != left_out}


def _block(block: Block) -> Section:
    said = {
        "repeats": block.axis,
        "carries": dict(block.carries),
        "reverse": block.reverse,
        "twin": block.twin,
        "layers": block.layers * (block.layers > 1),
    }
    given = {name: value for name, value in said.items() if value}
    operations = Rows(map(_operation, block.operations))
    return Section({"name": block.name, **given, "operations": operations})


def _operation(operation: Operation) -> dict[str, Any]:
    made = operation.output
    fields: dict[str, Any] = {"makes": made.tensor, "function": operation.function}
    if operation.inputs:
        fields["reads"] = [_operand(operand) for operand in operation.inputs]
    if operation.name != made.tensor:
        fields["name"] = operation.name
    said = {
        "axes": " ".join(made.axes),
        "over": " ".join(operation.over),
        "windows": operation.windows,
        "parameter": operation.parameter,
        "reverse": operation.reverse,
        "twin": operation.twin,
    }
    return fields | {name: value for name, value in said.items() if value}


def _operand(operand: Operand) -> Any:
    if not operand.axes:
        return operand.tensor
    return {"tensor": operand.tensor, "axes": " ".join(operand.axes)}


# ---------------------------------------------------------------- as YAML


def changed(record: Any) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults, and its name."""
    return {
        f.name: getattr(record, f.name)
        for f in dataclasses.fields(record)
        if f.default is dataclasses.MISSING or getattr(record, f.name) != f.default
    }


class Section(dict[str, Any]):
    """Fields on a line each, below the name of what they are of."""


class Rows(list[Any]):
    """Entries on a line each, or each a `Section`."""


def block_lines(fields: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Yield a line for each field and for what is inside sections and rows."""
    for name, value in fields.items():
        if isinstance(value, Section | Rows) and value:
            yield f"{indent}{name}:"
        if isinstance(value, Section) and value:
            yield from block_lines(value, f"{indent}  ")
        elif isinstance(value, Rows) and value:
            for row in value:
                lines = (
                    block_lines(row, f"{indent}    ") if isinstance(row, Section) else [flow(row)]
                )
                first, *rest = lines
                yield f"{indent}  - {first.lstrip()}"
                yield from rest
        else:
            yield f"{indent}{name}: {flow(value)}"


def block_text(fields: Mapping[str, Any]) -> str:
    """Return fields as YAML, with sections and rows over several lines."""
    return "\n".join(block_lines(fields)) + "\n"


def flow(value: Any) -> str:
    """Return ``value`` as YAML on one line."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return flow(changed(value))
    if isinstance(value, StrEnum):
        return value.value
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int | float):
        return _number(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(k)}: {flow(v)}' for k, v in value.items())}}}"
    if isinstance(value, Iterable):
        return f"[{', '.join(map(flow, value))}]"
    raise TypeError(type(value).__name__)


def _number(value: float) -> str:
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return repr(value)


def _key(name: str) -> str:
    text = _text(name)
    return text if len(text) <= _LONGEST_KEY else f"? {text} "


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.casefold() not in _NOT_PLAIN:
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in ('"', "\\"):
        return f"\\{character}"
    return character if character.isprintable() else f"\\U{ord(character):08x}"
