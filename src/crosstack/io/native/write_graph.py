"""Writes a graph of operations over named axes as native YAML, which reads back as an equal one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from crosstack.io.native.yaml_text import changed, field_lines, flow
from crosstack.workload.axes import Axes, AxisUse, Causal
from crosstack.workload.dataflow import Graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.operations import Block, Operand, Operation, Role, Tensor


def write_graph(graph: Graph) -> str:
    """Return native YAML of a graph; a backward pass is spelled out."""
    dtypes = [tensor.dtype for tensor in graph.tensors if tensor.role is not Role.INDEX]
    usual = max(sorted({*dtypes}), key=dtypes.count, default=Dtype.BF16)
    sizes = {
        axis.name: axis.size
        if axis.use is AxisUse.FEATURE
        else {"size": axis.size, "use": axis.use}
        for axis in graph.axes
    }
    tensors = {t.name: _tensor(t, usual, t.name in graph.makers) for t in graph.tensors}
    lines = [f"dtype: {usual.value}", "axes:", *field_lines(sizes)]
    lines += ["tensors:", *field_lines(tensors)] if tensors else []
    lines += ["blocks:", *(line for block in graph.blocks for line in _block(block))]
    return "\n".join(lines) + "\n"


def _words(axes: Axes) -> str:
    return " ".join(axes)


def _tensor(tensor: Tensor, usual: Dtype, made: bool) -> dict[str, Any]:
    fields: dict[str, Any] = {"axes": _words(tensor.axes), "dtype": tensor.dtype}
    if tensor.dtype is usual and tensor.role is not Role.INDEX:
        del fields["dtype"]
    if made is not (tensor.role is Role.ACTIVATION) or tensor.role not in (
        Role.INPUT,
        Role.ACTIVATION,
    ):
        fields["role"] = tensor.role
    if tensor.mask is not None:
        fields["mask"] = _mask(tensor.mask)
    return fields | ({"of": tensor.of} if tensor.of else {})


def _mask(mask: Causal) -> dict[str, Any]:
    return changed(mask)


def _block(block: Block) -> Iterator[str]:
    yield f"  - name: {flow(block.name)}"
    fields = {
        "repeats": block.axis,
        "carries": dict(block.carries),
        "reverse": block.reverse,
        "twin": block.twin,
    }
    yield from field_lines({name: value for name, value in fields.items() if value}, "    ")
    operations = [f"      - {flow(_operation(operation))}" for operation in block.operations]
    yield from ["    operations:", *operations] if operations else ["    operations: []"]


def _operation(operation: Operation) -> dict[str, Any]:
    made = operation.output
    fields: dict[str, Any] = {"makes": made.tensor, "function": operation.function}
    if operation.inputs:
        fields["reads"] = [_operand(operand) for operand in operation.inputs]
    if operation.name != made.tensor:
        fields["name"] = operation.name
    said = {
        "axes": _words(made.axes),
        "over": _words(operation.over),
        "windows": operation.windows,
        "parameter": operation.parameter,
        "reverse": operation.reverse,
        "twin": operation.twin,
    }
    return fields | {name: value for name, value in said.items() if value}


def _operand(operand: Operand) -> Any:
    if not operand.axes:
        return operand.tensor
    return {"tensor": operand.tensor, "axes": _words(operand.axes)}
