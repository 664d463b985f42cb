"""The shape of a native YAML file: the section of a workload."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import model_validator

from crosstack.errors import InputError, Problem
from crosstack.io.native.graph_schema import GraphFile
from crosstack.io.native.schema import (
    Bytes,
    Count,
    DtypeName,
    FileModel,
    Flag,
    KernelFile,
    TensorFile,
    Text,
    one_of,
)
from crosstack.workload.kernels import Placement
from crosstack.workload.ssm_graph import Convolution


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
