"""The shape of a graph of operations over named axes in a native YAML file.

Only shapes and single values are checked here; what fields mean together is in `read_graph`, and
the records of `crosstack.workload.dataflow` check the rest. Axes are written as words in one text,
or as a list of them.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainValidator, model_validator

from crosstack.errors import InputError, Problem
from crosstack.io.native.schema import (
    Count,
    DtypeName,
    FileModel,
    Flag,
    Index,
    ShortModel,
    Text,
    one_of,
    shown,
)
from crosstack.workload.axes import AxisUse
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.operations import Role

GRAPH_SECTION = "workload.graph."  # where a graph is in the file of a task


def is_graph(tree: dict[str, Any]) -> bool:
    """Whether a file holds a graph, and not a task or another kind."""
    return "axes" in tree and bool({"blocks", "operations"} & {*tree})


def as_task(tree: dict[str, Any]) -> dict[str, Any]:
    """Return the tree of a task, given that of a graph which may have a machine beside it."""
    beside = {"name", "rules", "system", "constraints"}
    task = {field: value for field, value in tree.items() if field in beside}
    graph = {field: value for field, value in tree.items() if field not in beside}
    return {**task, "workload": {"graph": graph}}


def _words(value: object) -> tuple[str, ...]:
    words = value.split() if isinstance(value, str) else value
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        message = f"got {shown(value)}; allowed: names of axes in one text, or a list of them."
        raise InputError(Problem("", message))
    return tuple(words)


def _real(value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not number or not math.isfinite(value):
        raise InputError(Problem("", f"got {shown(value)}; allowed: a number."))
    return float(value)


AxisNames = Annotated[tuple[str, ...], PlainValidator(_words)]
Real = Annotated[float, PlainValidator(_real)]
RoleName = Annotated[Role, one_of(Role)]


class AxisSizeFile(ShortModel):
    """See `crosstack.workload.axes.AxisSize`; a size alone is enough."""

    alone: ClassVar[tuple[type, ...]] = (int, float, str, list, type(None))
    size: Count
    use: Annotated[AxisUse, one_of(AxisUse)] = AxisUse.FEATURE


class MaskFile(FileModel):
    """See `crosstack.workload.axes.Causal`."""

    query: Text
    key: Text
    window: Index = 0


class NamedTensorFile(ShortModel):
    """See `crosstack.workload.operations.Tensor`; the role is that of what nobody makes, or not."""

    alone: ClassVar[tuple[type, ...]] = (str, list)
    axes: AxisNames
    dtype: DtypeName | None = None
    role: RoleName | None = None
    mask: MaskFile | None = None
    of: Text | None = None


class OperandFile(ShortModel):
    """A tensor, and the names that the operation gives to its axes; a name alone is enough."""

    tensor: Text
    axes: AxisNames | None = None


class WindowFile(FileModel):
    """See `crosstack.workload.axes.Window`."""

    axis: Text
    at: Text
    tap: Text
    stride: Count = 1
    dilation: Count = 1
    padding: Index = 0


class OperationFile(FileModel):
    """See `crosstack.workload.operations.Operation`; its name is that of what it makes."""

    makes: Text
    function: Annotated[Function, one_of(Function)]
    reads: list[OperandFile] = Field(default_factory=list)
    axes: AxisNames | None = None
    over: AxisNames = ()
    windows: list[WindowFile] = Field(default_factory=list)
    parameter: Real = 0.0
    reverse: Flag = False
    name: Text | None = None
    twin: Text | None = None
    dtype: DtypeName | None = None
    role: RoleName | None = None
    mask: MaskFile | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_alone(cls, value: Any) -> Any:
        one = isinstance(value, dict) and isinstance(value.get("reads"), str | dict)
        return {**value, "reads": [value["reads"]]} if one else value


class BlockFile(FileModel):
    """See `crosstack.workload.operations.Block`; ``repeats`` is the axis that it repeats along."""

    name: Text
    operations: list[OperationFile]
    repeats: Text | None = None
    carries: dict[str, Text] = Field(default_factory=dict)
    reverse: Flag = False
    twin: Text | None = None


class TrainingFile(ShortModel):
    """What the backward pass is derived of; see `crosstack.workload.passes.backward.training`."""

    loss: Text | None = None
    of: list[RoleName] = Field(default_factory=lambda: [Role.WEIGHT])


class GraphFile(FileModel):
    """A graph of one's own: operations in blocks, or in one block that runs once.

    ``items`` and ``block``: see `crosstack.workload.graph_workload.workload_of`.
    """

    dtype: DtypeName = Dtype.BF16
    axes: dict[str, AxisSizeFile]
    tensors: dict[str, NamedTensorFile] = Field(default_factory=dict)
    operations: list[OperationFile] | None = None
    blocks: list[BlockFile] | None = None
    training: TrainingFile | None = None
    items: Text | None = None
    block: Text | None = None

    @model_validator(mode="before")
    @classmethod
    def _trained_or_not(cls, value: Any) -> Any:
        flag = isinstance(value, dict) and isinstance(value.get("training"), bool)
        return {**value, "training": {} if value["training"] else None} if flag else value
