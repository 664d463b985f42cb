"""Technology: what silicon, memory and wires can do, before any chip is drawn."""

from crosstack.technology.parts import (
    ComputeUnit,
    DramTechnology,
    LinkTechnology,
    SramTechnology,
    Substrate,
)
from crosstack.technology.scaling import LogicNode, Scaling, scaled_sram, scaled_unit, steps_between
from crosstack.technology.voltage import OperatingPoint, Supply, operating_point, relative_rate
from crosstack.technology.wafers import Wafer, YieldModel, die_yield

__all__ = [
    "ComputeUnit",
    "DramTechnology",
    "LinkTechnology",
    "LogicNode",
    "OperatingPoint",
    "Scaling",
    "SramTechnology",
    "Substrate",
    "Supply",
    "Wafer",
    "YieldModel",
    "die_yield",
    "operating_point",
    "relative_rate",
    "scaled_sram",
    "scaled_unit",
    "steps_between",
]
