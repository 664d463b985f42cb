"""The shape of DeepFlow's YAML, release of 2025; `read` brings older files into it.

Numbers are bare, in the units their comments say; a number with a unit (``4 GB``, ``7050 GB``) is
bytes or bytes per second, and its prefix is binary whatever it is spelled like. Fields the public
tool demands but never uses are read and dropped.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from crosstack.errors import require_quantity
from crosstack.io.native.schema import (
    LARGEST,
    SMALLEST,
    Count,
    FileModel,
    Flag,
    Index,
    one_of,
    refused,
)
from crosstack.machine.compute import Dataflow
from crosstack.machine.memory import Scope

_WITH_UNIT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT])(B|b)(?:/s)?\s*")
_PREFIX = {"K": 10, "M": 20, "G": 30, "T": 40}


def _number(
    value: object, *, above_zero: bool = False, bytes_: bool = False, factor: float = 1.0
) -> float:
    if bytes_ and isinstance(value, str):
        match = _WITH_UNIT.fullmatch(value)
        if match is None:
            units = "KB, MB, GB or TB (binary), or Kb, Mb, Gb, Tb for bits"
            raise refused(value, f"a number of bytes, or one with {units}")
        size = float(match[1]) * 2.0 ** _PREFIX[match[2]]
        value = size if match[3] == "B" else size / 8
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refused(value, "a number")
    require_quantity("", value, "as in the file", above_zero=above_zero)
    # So that no product or quotient of a few numbers leaves the range of a float.
    if value != 0 and not SMALLEST <= value <= LARGEST:
        raise refused(value, f"{SMALLEST:g} to {LARGEST:g}")
    return float(value) * factor


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise refused(value, "text")
    return value


def _never(value: object) -> bool:
    """No release can choose the parallelism itself, whatever ``auto`` says."""
    if value not in (False, "none"):
        raise refused(value, "false, with kp1, kp2, dp and lp given")
    return False


def _split(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or value not in (-1, 1, 2):
        raise refused(value, "-1 (none), 1 (CR) or 2 (RC)")
    return int(value)


def _real(**options: Any) -> PlainValidator:
    return PlainValidator(partial(_number, **options))


def _called(name: str) -> Any:
    """Return a field that the file calls ``name``, and a record otherwise."""
    return Field(alias=name)


MM2, PER_MM = 1e-6, 1e3
Amount = Annotated[float, _real()]
Positive = Annotated[float, _real(above_zero=True)]
Bytes = Annotated[float, _real(above_zero=True, bytes_=True)]
Area = Annotated[float, _real(above_zero=True, factor=MM2)]
PerLength = Annotated[float, _real(above_zero=True, factor=PER_MM)]
Name = Annotated[str, PlainValidator(_name)]
Split = Annotated[int, PlainValidator(_split)]
SCOPES = {"mcu": Scope.UNIT, "mcu-bundle": Scope.MULTIPROCESSOR, "global": Scope.CHIP}
DATAFLOWS = {
    "best": Dataflow.BEST,
    "wst": Dataflow.WEIGHT,
    "ast": Dataflow.ACTIVATION,
    "ost": Dataflow.OUTPUT,
    "none": Dataflow.NONE,
}


class SoftwareFile(FileModel):
    """``sw_param``: launch overhead of a kernel [s], bytes of an element [B]."""

    kernel_launch_overhead: Amount
    precision: Positive


class CoreFile(FileModel):
    """``tech_param.core``: W, FLOP per cycle, V, mm2, Hz; an MCU is a compute unit."""

    nominal_power_per_mcu: Positive
    nominal_flop_rate_per_mcu: Positive
    nominal_voltage: Positive
    threshold_voltage: Amount
    margin_voltage: Positive
    operating_area_per_mcu: Positive
    nominal_area_per_mcu: Positive | None = None
    num_mcu_per_bundle: Count
    FMA_d1: Count
    FMA_d2: Count
    dataflow: Annotated[Dataflow, one_of(DATAFLOWS)]
    util: Positive
    num_bundles: Count | None = None
    operating_frequency: Positive | None = None
    nominal_frequency: Positive | None = None


class DramFile(FileModel):
    """``tech_param.DRAM``: J/bit, W/bit, mm2, s, V, bit/s of a wire."""

    energy_per_bit: Annotated[Positive, _called("dynamic_energy_per_bit")]
    static_power_per_bit: Amount
    area_per_bit: Any = None
    stack_capacity: Bytes
    stack_area: Annotated[Area, _called("area_per_stack")]
    latency: Amount
    controller_area: Annotated[Area, _called("mem_ctrl_area")]
    nominal_voltage: Positive
    threshold_voltage: Amount
    margin_voltage: Positive
    max_voltage: Positive
    wires_per_length: Annotated[PerLength, _called("num_links_per_mm")]
    wires_per_stack: Annotated[Count, _called("num_links_per_stack")]
    util: Positive
    size: Bytes | None = None
    bandwidth: Bytes | None = None
    num_stacks: Count | None = None
    operating_frequency: Positive | None = None
    nominal_rate: Annotated[Positive | None, _called("nominal_frequency")] = None


class SramFile(FileModel):
    """``tech_param.SRAM-*``: J/bit, W/bit, mm2/bit, mm2, s."""

    energy_per_bit: Annotated[Positive, _called("dynamic_energy_per_bit")]
    static_power_per_bit: Amount
    area_per_bit: Area
    bank_capacity: Bytes
    crossbar_area: Annotated[float, _real(factor=MM2), _called("controller_area_per_link")]
    controller_power_per_link: Any = None
    latency: Amount
    periphery: Annotated[Amount, _called("overhead")]
    util: Positive
    size: Bytes | None = None
    bandwidth: Bytes | None = None


class LinkFile(FileModel):
    """``tech_param.network.*``: s, bit/s of a wire, V, J/bit, mm2."""

    latency: Amount
    nominal_rate: Annotated[Positive, _called("nominal_frequency")]
    nominal_voltage: Positive
    energy_per_bit: Annotated[Positive, _called("nominal_energy_per_link")]
    area_per_wire: Annotated[Area, _called("nominal_area_per_link")]
    threshold_voltage: Amount
    margin_voltage: Positive
    wires_per_length: Annotated[PerLength, _called("num_links_per_mm")]
    util: Positive


class NetworkFile(FileModel):
    """``tech_param.network``."""

    intra_node: LinkFile
    inter_node: LinkFile


class TechnologyFile(FileModel):
    """``tech_param``."""

    core: CoreFile
    DRAM: DramFile
    SRAM_L2: Annotated[SramFile | None, Field(alias="SRAM-L2")] = None
    SRAM_L1: Annotated[SramFile | None, Field(alias="SRAM-L1")] = None
    SRAM_R: Annotated[SramFile | None, Field(alias="SRAM-R")] = None
    network: NetworkFile


class NetworkShare(FileModel):
    """What links get of an area [mm2] or a power [W]."""

    intra: Annotated[Amount, _called("intra_node")] = 0.0
    inter: Annotated[Amount, _called("inter_node")] = 0.0


class SharesFile(FileModel):
    """What every component gets of an area [mm2] or a power [W]."""

    compute: Annotated[Amount, _called("core")]
    DRAM: Amount
    L2: Amount = 0.0
    L1: Amount = 0.0
    registers: Annotated[Amount, _called("reg_mem")] = 0.0
    network: NetworkShare = NetworkShare()


class AreaFile(SharesFile):
    """``area_breakdown``, mm2."""

    device_area_budget: Positive
    proc_chip_area_budget: Positive


class PowerFile(SharesFile):
    """``power_breakdown``, W."""

    TDP: Positive


class PerimeterFile(NetworkShare):
    """``perimeter_breakdown``, shares of the chip's perimeter."""

    DRAM: Amount


class SystemFile(FileModel):
    """``system_hierarchy``; a derate is how many logical edges share a link."""

    num_devices_per_node: Count
    num_nodes: Count
    inter_derate: Amount = 1.0
    intra_derate: Amount = 0.0
    kp1_inter: Flag = False
    kp2_inter: Flag = False
    dp_inter: Flag = False
    lp_inter: Flag = False


class TopologyFile(FileModel):
    """``network_topology``."""

    inter_node: Name = "none"
    intra_node: Name = "none"


class LevelType(StrEnum):
    """Technologies of a memory level."""

    REGISTERS = "SRAM-R"
    L1 = "SRAM-L1"
    L2 = "SRAM-L2"
    DRAM = "DRAM"


class LevelFile(FileModel):
    """``memory_hierarchy.l0`` and so on, innermost first."""

    type: Annotated[LevelType, one_of(LevelType)]
    scope: Annotated[Scope, one_of(SCOPES)]


class ScheduleFile(FileModel):
    """``scheduling_param``; ``t`` and ``kp1``, ``kp2`` replace those of all four layers."""

    auto: Annotated[bool, PlainValidator(_never)] = False
    dp: Count | None = 1
    lp: Count | None = 1
    kp_hidden_dim1: Count = 1
    kp_hidden_dim2: Count = 1
    kp_softmax_dim1: Count = 1
    kp_softmax_dim2: Count = 1
    kp_embedding_dim1: Count = 1
    kp_embedding_dim2: Count = 1
    kp_projection_dim1: Count = 1
    kp_projection_dim2: Count = 1
    kp_hidden_type: Split = -1
    kp_softmax_type: Split = -1
    kp_embedding_type: Split = -1
    kp_projection_type: Split = -1
    t: Name | None = None
    kp1: Count | None = None
    kp2: Count | None = None


class GemmFile(FileModel):
    """``model_param`` of mode GEMM: M x K times K x N."""

    mode: Literal["GEMM"] = "GEMM"
    M: Count
    K: Count
    N: Count


class LstmFile(FileModel):
    """``model_param`` of mode LSTM."""

    mode: Literal["LSTM"] = "LSTM"
    batch_size: Count
    vocab_size: Count
    num_layers: Count
    layer_size: Count
    seq_len: Count
    projection: Index
    num_gates: Count
    num_non_linear: Index
    num_add: Index
    data_scale: Amount


class LlmFile(FileModel):
    """``model_param`` of mode LLM; ``ffn_mult`` times the width wins over ``ffn_dim``."""

    mode: Literal["LLM"] = "LLM"
    num_layers: Count
    hidden_dim: Count
    num_heads: Count
    batch_size: Count
    seq_len: Count
    ffn_dim: Count | None
    ffn_mult: Positive | None
    vocab_size: Count
    n_tokens: Amount
    communication_time: Amount
    N_PP: Count


ModelFile = GemmFile | LstmFile | LlmFile
MODES: dict[str, type[GemmFile] | type[LstmFile] | type[LlmFile]] = {
    "GEMM": GemmFile,
    "LSTM": LstmFile,
    "LLM": LlmFile,
}


class HardwareFile(FileModel):
    """A hardware file of 2025."""

    sw_param: SoftwareFile
    tech_param: TechnologyFile
    area_breakdown: AreaFile
    power_breakdown: PowerFile
    perimeter_breakdown: PerimeterFile
    system_hierarchy: SystemFile
    network_topology: TopologyFile = TopologyFile()
    memory_hierarchy: dict[str, LevelFile]
    scheduling_param: ScheduleFile = ScheduleFile()
