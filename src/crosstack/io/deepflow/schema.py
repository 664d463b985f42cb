"""The values of DeepFlow's YAML; its fields are in ``fields.yaml``.

A number with a unit (``4 GB``, ``7050 GB``) is bytes or bytes per second, and its prefix is binary
whatever it is spelled like.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

from pydantic import PlainValidator

from crosstack.errors import require_quantity
from crosstack.io.native.schema import LARGEST, SMALLEST, one_of, refused
from crosstack.io.native.tables import Table
from crosstack.machine.compute import Dataflow
from crosstack.machine.memory import Scope

_WITH_UNIT = re.compile(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT])(B|b)(?:/s)?\s*")
_PREFIX = {"K": 10, "M": 20, "G": 30, "T": 40}
MM2, PER_MM = 1e-6, 1e3
SCOPES = {"mcu": Scope.UNIT, "mcu-bundle": Scope.MULTIPROCESSOR, "global": Scope.CHIP}
DATAFLOWS = {
    "best": Dataflow.BEST,
    "wst": Dataflow.WEIGHT,
    "ast": Dataflow.ACTIVATION,
    "ost": Dataflow.OUTPUT,
    "none": Dataflow.NONE,
}
MODES = ("GEMM", "LSTM", "LLM")


class LevelType(StrEnum):
    """Technologies of a memory level."""

    REGISTERS = "SRAM-R"
    L1 = "SRAM-L1"
    L2 = "SRAM-L2"
    DRAM = "DRAM"


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


def _ratio(value: object) -> float:
    number = _number(value, above_zero=True)
    if number > 1:
        raise refused(value, "above 0, at most 1")
    return number


def _part(value: object) -> float:
    number = _number(value)
    if number >= 1:
        raise refused(value, "0 to below 1")
    return number


def _word(value: object) -> str:
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


def _real(**options: Any) -> Any:
    return Annotated[float, PlainValidator(partial(_number, **options))]


FIELDS = Table(
    __package__,
    "fields.yaml",
    {
        "amount": _real(),
        "positive": _real(above_zero=True),
        "ratio": Annotated[float, PlainValidator(_ratio)],
        "part": Annotated[float, PlainValidator(_part)],
        "bytes": _real(above_zero=True, bytes_=True),
        "mm2": _real(above_zero=True, factor=MM2),
        "mm2 from 0": _real(factor=MM2),
        "per_mm": _real(above_zero=True, factor=PER_MM),
        "word": Annotated[str, PlainValidator(_word)],
        "never": Annotated[bool, PlainValidator(_never)],
        "split": Annotated[int, PlainValidator(_split)],
        "scope": Annotated[Scope, one_of(SCOPES)],
        "dataflow": Annotated[Dataflow, one_of(DATAFLOWS)],
    },
)
