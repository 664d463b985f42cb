"""The shape of a native YAML file: the section of a workload."""

from __future__ import annotations

from typing import Annotated

from crosstack.io.native.graph_schema import GraphFile
from crosstack.io.native.schema import (
    Bytes,
    Count,
    DecodeFile,
    DlrmFile,
    DtypeName,
    FftFile,
    FileModel,
    HplFile,
    HyenaFile,
    KernelFile,
    LlmFile,
    MambaFile,
    PrefillFile,
    TensorFile,
    Text,
    one_of,
)
from crosstack.workload.kernels import Placement

__all__ = ["WorkloadFile"]


class WorkloadFile(FileModel):
    """A generator, a graph of operations over named axes, or kernels spelled out."""

    name: Text | None = None
    llm: LlmFile | None = None
    dlrm: DlrmFile | None = None
    hpl: HplFile | None = None
    fft: FftFile | None = None
    prefill: PrefillFile | None = None
    decode: DecodeFile | None = None
    mamba: MambaFile | None = None
    hyena: HyenaFile | None = None
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
