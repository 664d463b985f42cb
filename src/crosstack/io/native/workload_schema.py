"""The shape of a native YAML file: the section of a workload, or a graph over named axes.

Only shapes and single values are checked here; what fields mean together is in `read_workload` and
`read_graph`, and the records check the rest. Axes are written as words in one text, or as a list.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar

from pydantic import Field, PlainValidator, model_validator

from crosstack.errors import InputError, Problem
from crosstack.io.native.schema import (
    Bytes,
    Count,
    DtypeName,
    FileModel,
    Flag,
    Index,
    KernelFile,
    ShortModel,
    TensorFile,
    Text,
    one_of,
    refused,
)
from crosstack.workload.axes import AxisUse
from crosstack.workload.dtype import Dtype
from crosstack.workload.functions import Function
from crosstack.workload.kernels import Placement
from crosstack.workload.operations import Role
from crosstack.workload.ssm_graph import Convolution

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
        raise refused(value, "names of axes in one text, or a list of them")
    return tuple(words)


def _real(value: object) -> float:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not isinstance(value, int | float) or not number or not math.isfinite(value):
        raise refused(value, "a number")
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


class TransformerFile(FileModel):
    """A transformer: ``model``, a name or a ``config.json``, and what differs; or its shape.

    See `crosstack.workload.architectures.Transformer` and `crosstack.workload.job.Job`.
    """

    model: Text | None = None
    hidden: Count | None = None
    layers: Count | None = None
    heads: Count | None = None
    kv_heads: Count | None = None
    head_size: Count | None = None
    feed_forward: Count | None = None
    vocabulary: Count | None = None
    gated: Flag | None = None
    batch: Count = 1
    block: Text = ""


class StepFile(TransformerFile):
    """A training step, or its forward pass alone."""

    sequence: Count
    training: Flag = True


class PrefillFile(TransformerFile):
    """The reading of prompts."""

    sequence: Count


class DecodeFile(TransformerFile):
    """The writing of tokens."""

    context: Count
    tokens: Count = 1


class DlrmFile(FileModel):
    """A recommendation model; see `crosstack.workload.generators.dlrm`."""

    width: Count
    n_bottom: Count
    n_top: Count
    n_tables: Count
    rows: Count
    embedding_size: Count
    samples: Count
    pooled_rows: Count = 1
    training: Flag = True


class FftFile(FileModel):
    """A Fourier transform; see `crosstack.workload.generators.fft`."""

    length: Count
    radix: Count = 2


class StateSpaceFile(FileModel):
    """What the models that replace attention share."""

    hidden: Count
    sequence: Count
    layers: Count = 1
    batch: Count = 1
    state_size: Count = 16


class MambaFile(StateSpaceFile):
    """Selective state spaces; see `crosstack.workload.generators.mamba`."""

    expansion: Count = 2
    filter_size: Count = 4
    step_rank: Count | None = None


class HyenaFile(StateSpaceFile):
    """Long convolutions; see `crosstack.workload.generators.hyena`."""

    convolution: Annotated[Convolution, one_of(Convolution)] = Convolution.FFT_GEMM
    filter_size: Count = 3


class WorkloadFile(FileModel):
    """A ready-made graph, one of a release, one's own over named axes, or kernels spelled out."""

    name: Text | None = None
    llm: StepFile | None = None
    prefill: PrefillFile | None = None
    decode: DecodeFile | None = None
    dlrm: DlrmFile | None = None
    fft: FftFile | None = None
    mamba: MambaFile | None = None
    hyena: HyenaFile | None = None
    dfmodel: dict[str, dict[str, Any]] | None = None
    graph: GraphFile | None = None
    word: Count | None = None
    dtype: DtypeName | None = None
    accumulator: DtypeName | None = None
    n_layers: Count | None = None
    layers_in_graph: Count | None = None
    global_batch_size: Count | None = None
    sequence_length: Count | None = None
    boundary_size: Bytes | None = None
    placement: Annotated[Placement, one_of(Placement)] = Placement.SEARCHED
    data_size: Bytes = 0.0
    item: Text | None = None
    item_part: Text | None = None
    kernels: list[KernelFile] | None = None
    tensors: list[TensorFile] | None = None

    @model_validator(mode="before")
    @classmethod
    def _of_a_release_alone(cls, value: Any) -> Any:
        if isinstance(value, dict) and "hpl" in value:
            message = "no graph over named axes has all panels; allowed: dfmodel: {hpl: {...}}."
            raise InputError(Problem("hpl", message))
        return value
