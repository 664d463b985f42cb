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

from pydantic import ConfigDict, Field, PlainValidator

from crosstack.errors import InputError, Problem, did_you_mean, require_quantity
from crosstack.io.native.schema import LARGEST, SMALLEST, FileModel, shown

_WITH_UNIT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT])(B|b)(?:/s)?\s*")
_PREFIX = {"K": 10, "M": 20, "G": 30, "T": 40}


def _refuse(value: object, allowed: str) -> InputError:
    return InputError(Problem("", f"got {shown(value)}; allowed: {allowed}."))


def _number(value: object, *, above_zero: bool = False, bytes_: bool = False) -> float:
    if bytes_ and isinstance(value, str):
        match = _WITH_UNIT.fullmatch(value)
        if match is None:
            units = "KB, MB, GB or TB (binary), or Kb, Mb, Gb, Tb for bits"
            raise _refuse(value, f"a number of bytes, or one with {units}")
        size = float(match[1]) * 2.0 ** _PREFIX[match[2]]
        value = size if match[3] == "B" else size / 8
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refuse(value, "a number")
    require_quantity("", value, "as in the file", above_zero=above_zero)
    # So that no product or quotient of a few numbers leaves the range of a float.
    if value != 0 and not SMALLEST <= value <= LARGEST:
        raise _refuse(value, f"{SMALLEST:g} to {LARGEST:g}")
    return float(value)


def _whole(value: object, *, minimum: int = 0) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    good = isinstance(value, int) and not isinstance(value, bool) and minimum <= value < 2**53
    if not isinstance(value, int) or not good:
        raise _refuse(value, f"a whole number, at least {minimum}")
    return value


def _flag(value: object) -> bool:
    if not isinstance(value, bool):
        raise _refuse(value, "true or false")
    return value


def _name(value: object) -> str:
    if not isinstance(value, str):
        raise _refuse(value, "text")
    return value


def _never(value: object) -> bool:
    """No release can choose the parallelism itself, whatever ``auto`` says."""
    if value not in (False, "none"):
        raise _refuse(value, "false, with kp1, kp2, dp and lp given")
    return False


def _anything(value: object) -> object:
    return value


def _one_of(value: object, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str) or value not in choices:
        hint = did_you_mean(value, choices) if isinstance(value, str) else ""
        raise InputError(Problem("", f"got {shown(value)}; allowed: {', '.join(choices)}.{hint}"))
    return value


Amount = Annotated[float, PlainValidator(_number)]
Positive = Annotated[float, PlainValidator(partial(_number, above_zero=True))]
Bytes = Annotated[float, PlainValidator(partial(_number, above_zero=True, bytes_=True))]
Count = Annotated[int, PlainValidator(partial(_whole, minimum=1))]
CountFrom0 = Annotated[int, PlainValidator(_whole)]
Name = Annotated[str, PlainValidator(_name)]
Flag = Annotated[bool, PlainValidator(_flag)]
Unused = Annotated[Any, PlainValidator(_anything)]


def _split(value: object) -> int:
    if not isinstance(value, int | float) or isinstance(value, bool) or value not in (-1, 1, 2):
        raise _refuse(value, "-1 (none), 1 (CR) or 2 (RC)")
    return int(value)


Split = Annotated[int, PlainValidator(_split)]


def _choice(*choices: str) -> PlainValidator:
    return PlainValidator(partial(_one_of, choices=choices))


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
    dataflow: Annotated[str, _choice("best", "wst", "ast", "ost", "none")]
    util: Positive
    num_bundles: Count | None = None
    operating_frequency: Positive | None = None
    nominal_frequency: Positive | None = None


class DramFile(FileModel):
    """``tech_param.DRAM``: J/bit, W/bit, mm2, s, V, bit/s of a wire."""

    dynamic_energy_per_bit: Positive
    static_power_per_bit: Amount
    area_per_bit: Unused = None
    stack_capacity: Bytes
    area_per_stack: Positive
    latency: Amount
    mem_ctrl_area: Positive
    nominal_voltage: Positive
    threshold_voltage: Amount
    margin_voltage: Positive
    max_voltage: Positive
    num_links_per_mm: Positive
    num_links_per_stack: Count
    util: Positive
    size: Bytes | None = None
    bandwidth: Bytes | None = None
    num_stacks: Count | None = None
    operating_frequency: Positive | None = None
    nominal_frequency: Positive | None = None


class SramFile(FileModel):
    """``tech_param.SRAM-*``: J/bit, W/bit, mm2/bit, mm2, s."""

    dynamic_energy_per_bit: Positive
    static_power_per_bit: Amount
    area_per_bit: Positive
    bank_capacity: Bytes
    controller_area_per_link: Amount
    controller_power_per_link: Unused = None
    latency: Amount
    overhead: Amount
    util: Positive
    size: Bytes | None = None
    bandwidth: Bytes | None = None


class LinkFile(FileModel):
    """``tech_param.network.*``: s, bit/s of a wire, V, J/bit, mm2."""

    latency: Amount
    nominal_frequency: Positive
    nominal_voltage: Positive
    nominal_energy_per_link: Positive
    nominal_area_per_link: Positive
    threshold_voltage: Amount
    margin_voltage: Positive
    num_links_per_mm: Positive
    util: Positive


class NetworkFile(FileModel):
    """``tech_param.network``."""

    intra_node: LinkFile
    inter_node: LinkFile


class TechnologyFile(FileModel):
    """``tech_param``."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    core: CoreFile
    DRAM: DramFile
    SRAM_L2: Annotated[SramFile | None, Field(alias="SRAM-L2")] = None
    SRAM_L1: Annotated[SramFile | None, Field(alias="SRAM-L1")] = None
    SRAM_R: Annotated[SramFile | None, Field(alias="SRAM-R")] = None
    network: NetworkFile


class NetworkShare(FileModel):
    """What links get of an area [mm2] or a power [W]."""

    intra_node: Amount = 0.0
    inter_node: Amount = 0.0


class SharesFile(FileModel):
    """What every component gets of an area [mm2] or a power [W]."""

    core: Amount
    DRAM: Amount
    L2: Amount = 0.0
    L1: Amount = 0.0
    reg_mem: Amount = 0.0
    network: NetworkShare = NetworkShare()


class AreaFile(SharesFile):
    """``area_breakdown``, mm2."""

    device_area_budget: Positive
    proc_chip_area_budget: Positive


class PowerFile(SharesFile):
    """``power_breakdown``, W."""

    TDP: Positive


class PerimeterFile(FileModel):
    """``perimeter_breakdown``, shares of the chip's perimeter."""

    DRAM: Amount
    intra_node: Amount = 0.0
    inter_node: Amount = 0.0


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

    type: Annotated[str, _choice(*LevelType)]
    scope: Annotated[str, _choice("mcu", "mcu-bundle", "global")]


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
    projection: CountFrom0
    num_gates: Count
    num_non_linear: CountFrom0
    num_add: CountFrom0
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
