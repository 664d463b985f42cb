"""The schema of DFModel's text files, built at run time: no compiler, no generated code.

Names and types are those of the public tool (``dfmodel_code``). Where its releases differ, this
is their union. Text holds names only, so a field number matters to nobody: numbers are the public
ones where they are known and free ones where they are not, or where two releases gave one number
to two fields (``perfect_overlap`` and ``overlap``, ``execution`` and ``miscellany``). The type
names are our own.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

__all__ = ["ENUMS", "REPEATED", "TOPOLOGIES", "dimension_letters", "new_dse"]

_PACKAGE = "crosstack.dfmodel"

# Every enum and its values, from 0; the first means "unset".
ENUMS: dict[str, tuple[str, ...]] = {
    "FwdBwd": ("FWD_BWD_Placeholder", "FWD", "BWD"),
    "KernelType": ("KernelType_Placeholder", "SYSTOLIC", "SIMD"),
    "Sharding": (
        "SHARDING_Placeholder", "OUTER_SHARDING", "M_SHARDING", "K_SHARDING", "N_SHARDING",
        "NO_SHARDING",
    ),
    "Tiling": (
        "TILING_Placeholder", "OUTER_TILING", "M_TILING", "K_TILING", "N_TILING", "NO_TILING",
    ),
    "CommunicationType": (
        "CommunicationType_Placeholder", "ALL_REDUCE", "ALL_TO_ALL", "ALL_GATHER",
        "ALL_REDUCE_PERIODIC", "POINT_TO_POINT", "BROADCAST",
    ),
    "LaneStageType": ("LaneStageType_Placeholder", "LANE", "STAGE"),
    "ExecutionStyle": ("ExecutionStyle_Placeholder", "DATAFLOW", "KERNEL_BY_KERNEL"),
    "Overlap": (
        "Overlap_Placeholder", "PERFECT_OVERLAP", "NO_OVERLAP", "OVERLAP_COMPUTE_MEMORY",
    ),
}  # fmt: skip

# Network shapes: the message field, its number, and one word per dimension, innermost first.
TOPOLOGIES: dict[str, tuple[int, tuple[str, ...]]] = {
    name: (number, tuple(name.split("_")))
    for name, number in {
        "r": 4, "sw": 5, "fc": 6, "r_r": 7, "r_fc": 8, "r_sw": 9, "sw_sw": 10, "fc_fc": 11,
        "r_r_r": 12, "r_sw_sw": 13, "sw_sw_sw": 14, "r_r_r_r": 15,
    }.items()
}  # fmt: skip


def dimension_letters(count: int) -> tuple[str, ...]:
    """Return what DFModel calls the ``count`` dimensions of a network, innermost first."""
    return ("w", "x", "y", "z") if count == 4 else ("x", "y", "z")[:count]


# (field, number, type); a type is a scalar below, an enum, a message, or one with "*": repeated.
_Field = tuple[str, int, str]
_SCALARS = {
    "int": descriptor_pb2.FieldDescriptorProto.TYPE_INT64,
    "real": descriptor_pb2.FieldDescriptorProto.TYPE_FLOAT,
    "bool": descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
    "string": descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
}

_KERNEL: tuple[_Field, ...] = (
    ("outer", 1, "int"), ("M", 2, "int"), ("N", 4, "int"),
    ("output_tensor_size", 9, "real"), ("sharding", 12, "Sharding"),
    ("communication_type", 13, "CommunicationType"), ("communication_size", 14, "real"),
    ("shard_outer_M", 16, "int"), ("shard_K", 17, "int"), ("shard_N", 18, "int"),
    ("tiling", 20, "Tiling"), ("memory_size", 100, "real"),
    ("communication_type_2", 200, "CommunicationType"), ("communication_size_2", 300, "real"),
    ("num_input", 2000, "int"), ("sram_extra", 10000, "real"), ("dram_extra", 10001, "real"),
)  # fmt: skip
_K: _Field = ("K", 3, "int")
_ONE_INPUT: tuple[_Field, ...] = (("input_tensor_size", 6, "real"),)

_LLM_FFT: tuple[_Field, ...] = (("hidden", 1, "int"), ("seq_len", 2, "int"))
_EFFECTIVE_STAGE: _Field = ("effective_stage", 4, "int")

# Members of a oneof stand under "message/oneof".
_MESSAGES: dict[str, tuple[_Field, ...]] = {
    "DSE": (
        ("dataflow_graph", 1, "KernelGraph"), ("system", 2, "System"), ("cost", 3, "Cost"),
        ("execution", 4, "Execution"), ("miscellany", 40, "Execution"), ("gurobi", 5, "Gurobi"),
    ),
    "KernelGraph": (("kernels", 1, "Kernel*"), ("connections", 2, "Connection*")),
    "Kernel": (
        ("name", 1, "string"), ("id", 2, "int"), ("topological_number", 3, "int"),
        ("config", 4, "int"), ("fwd_bwd", 5, "FwdBwd"), ("type", 6, "KernelType"),
    ),
    "Kernel/kernel_variant": (
        ("gemm_input1_weight", 10, "GemmWeight"), ("gemm_input1_input2", 11, "Gemm"),
        ("elementwise_input1", 12, "Elementwise"),
        ("elementwise_input1_input2", 13, "ElementwiseTwo"),
    ),
    "GemmWeight": (
        *_KERNEL, _K, *_ONE_INPUT, ("weight_tensor_size", 8, "real"),
        ("skip_weight", 1000, "bool"), ("use_effective_stage", 1001, "bool"),
    ),
    "Gemm": (*_KERNEL, _K, ("input_tensor_1_size", 6, "real"), ("input_tensor_2_size", 8, "real")),
    "Elementwise": (*_KERNEL, *_ONE_INPUT),
    "ElementwiseTwo": (
        *_KERNEL, ("input_tensor_1_size", 6, "real"), ("input_tensor_2_size", 30, "real"),
    ),
    "Connection": (
        ("startIdx", 1, "int"), ("endIdx", 2, "int"), ("communication_type", 4,
        "CommunicationType"), ("communication_size", 5, "real"), ("buffer_depth", 6, "int"),
        ("tensor_size", 7, "real"), ("shard_tensor_size", 8, "real"), ("id", 10, "int"),
        ("startName", 11, "string"), ("endName", 12, "string"),
        ("lane_stage_type", 20, "LaneStageType"), ("communication_type_2", 999,
        "CommunicationType"), ("zero_out", 9999, "bool"),
    ),
    "System": (
        ("num_chip", 1, "int"), ("accelerator", 2, "Accelerator"), ("memory", 100, "Memory"),
        ("HBD", 110, "int"),
    ),
    "System/topology_variant": tuple(
        (name, number, f"Network_{name}") for name, (number, _) in TOPOLOGIES.items()
    ),
    "Accelerator": (
        ("core", 2, "int"), ("systolic_width", 3, "int"), ("systolic_height", 4, "int"),
        ("sram_cap", 5, "real"), ("pmu", 6, "int"), ("pmu_cap", 7, "real"), ("x", 8, "int"),
        ("y", 9, "int"), ("freq", 10, "real"), ("placement", 12, "string"),
        ("link_latency", 1111, "real"),
    ),
    "Memory": (
        ("dram_bw", 1, "real"), ("dram_cap", 2, "real"), ("second_dram_bw", 3, "real"),
        ("second_dram_cap", 4, "real"),
    ),
    **{
        f"Network_{name}": tuple(
            field
            for i, letter in enumerate(dimension_letters(len(words)))
            for field in (
                (letter, i + 1, "int"), (f"link_bw_{letter}", i + 11, "real"),
                (f"par_{letter}", i + 21, "string"),
            )
        )
        for name, (_, words) in TOPOLOGIES.items()
    },
    "Cost": (
        ("link_unit_price", 1, "real"), ("switch_unit_price", 2, "real"),
        ("dram_unit_price", 3, "real"), ("accelerator_price", 4, "real"),
        ("link_unit_power_x", 5, "real"), ("link_unit_power_y", 6, "real"),
        ("link_unit_power_z", 7, "real"), ("switch_unit_power", 8, "real"),
        ("dram_unit_power", 9, "real"), ("accelerator_power", 10, "real"),
    ),
    "Execution": (
        ("execution_style", 14, "ExecutionStyle"), ("num_config", 15, "int"),
        ("perfect_overlap", 16, "bool"), ("overlap", 19, "Overlap"), ("compute_util", 17, "real"),
        ("word", 18, "int"), ("effective_stage", 20, "int"),
        ("separate_rs_ag_for_ar", 100, "bool"), ("skip_inter_chip_optimization", 1000, "bool"),
        ("optimization", 10001, "string"), ("turn_off_p_and_r", 100000, "bool"),
    ),
    "Execution/workload_variant": (
        ("llm", 7, "Llm"), ("dlrm", 8, "Dlrm"), ("hpl", 9, "Hpl"), ("fft", 10, "Fft"),
        ("gemm_fft_llm", 11, "FftLlm"), ("vector_fft_llm", 12, "FftLlm"),
        ("regular_fft_llm", 13, "FftLlm"), ("mamba", 21, "Mamba"),
    ),
    "Llm": (
        ("hidden_dim", 1, "int"), ("head_dim", 2, "int"), ("num_head", 3, "int"),
        ("seq_len", 4, "int"), ("num_layer", 5, "int"), ("global_batch_size", 11, "int"),
        ("micro_batch_size", 12, "int"), ("tile_size", 13, "int"),
        ("num_layer_in_graph", 15, "int"),
    ),
    "Dlrm": (
        ("num_table", 6, "int"), ("emb_dim", 7, "int"), ("row", 8, "int"),
        ("global_batch_size", 11, "int"), ("num_copy", 12, "int"),
    ),
    "Hpl": (("n", 1, "int"), ("b", 2, "int"), ("num_copy", 3, "int")),
    "Fft": (("length", 1, "int"), ("num_copy", 2, "int")),
    "FftLlm": (*_LLM_FFT, _EFFECTIVE_STAGE),
    "Mamba": (*_LLM_FFT, ("tile_size", 3, "int"), _EFFECTIVE_STAGE),
    "Gurobi": (("thread", 1, "int"), ("gap", 2, "real"), ("time", 3, "real")),
}  # fmt: skip


# Names of the repeated fields, wherever they stand.
REPEATED: frozenset[str] = frozenset(
    name for members in _MESSAGES.values() for name, _, kind in members if kind.endswith("*")
)


def _type_name(kind: str) -> str:
    # Values of a proto3 enum share the scope the enum stands in: each enum gets its own.
    return f".{_PACKAGE}.{kind}Scope.{kind}" if kind in ENUMS else f".{_PACKAGE}.{kind}"


def _add_field(
    message: descriptor_pb2.DescriptorProto, field: _Field, oneof: int | None = None
) -> None:
    name, number, kind = field
    proto = descriptor_pb2.FieldDescriptorProto
    made = message.field.add(name=name, number=number, label=proto.LABEL_OPTIONAL)
    if kind.endswith("*"):
        kind, made.label = kind[:-1], proto.LABEL_REPEATED
    if kind in _SCALARS:
        made.type = _SCALARS[kind]
    else:
        made.type = proto.TYPE_ENUM if kind in ENUMS else proto.TYPE_MESSAGE
        made.type_name = _type_name(kind)
    if oneof is not None:
        made.oneof_index = oneof


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(
        name="crosstack_dfmodel.proto", package=_PACKAGE, syntax="proto3"
    )
    for name, values in ENUMS.items():
        scope = file.message_type.add(name=f"{name}Scope")
        enum = scope.enum_type.add(name=name)
        for number, value in enumerate(values):
            enum.value.add(name=value, number=number)
    messages: dict[str, descriptor_pb2.DescriptorProto] = {}
    for path, members in _MESSAGES.items():
        name, _, oneof = path.partition("/")
        if name not in messages:
            messages[name] = file.message_type.add(name=name)
        message = messages[name]
        if oneof:
            message.oneof_decl.add(name=oneof)
        for field in members:
            _add_field(message, field, len(message.oneof_decl) - 1 if oneof else None)
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.AddSerializedFile(_file().SerializeToString())
_DSE = message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"{_PACKAGE}.DSE"))


def new_dse() -> Any:  # Any: the class is made at run time, no checker knows its fields
    """Return an empty DFModel file: message ``DSE``."""
    return _DSE()
