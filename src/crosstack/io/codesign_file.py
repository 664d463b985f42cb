"""The shape of a file for ``crosstack codesign``: which fields there are, and what each may hold.

What the fields mean together is in `crosstack.explore.read_codesign`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from crosstack.errors import InputError, Problem
from crosstack.io.files import of_file
from crosstack.io.kinds import FileKind
from crosstack.io.load import load
from crosstack.io.native.fields import read_fields
from crosstack.io.native.problems import validate
from crosstack.io.native.read_workload import read_workload
from crosstack.io.native.schema import (
    Count,
    Dollars,
    FileModel,
    Index,
    Names,
    Text,
    UnitPower,
    UnitPrice,
    one_of,
    quantity,
)
from crosstack.io.native.workload_schema import WorkloadFile
from crosstack.io.optimize_file import AreaFile
from crosstack.technology.wafers import YieldModel
from crosstack.workload.workload import Workload


class WaferFile(FileModel):
    """What a die costs; see `crosstack.technology.wafers.Wafer`. Left out: as of the node."""

    price: Annotated[float, quantity("USD", above_zero=True)] | None = None
    defect_density: Annotated[float, quantity("1/m^2")] | None = None
    yield_model: Annotated[YieldModel, one_of(YieldModel)] = YieldModel.NEGATIVE_BINOMIAL
    clustering: Annotated[float, quantity("1", above_zero=True)] = 10.0


class PricesFile(FileModel):
    """See `crosstack.explore.machines.UnitPrices`."""

    wafer: WaferFile = WaferFile()
    package: Dollars = 0.0
    memory: Annotated[float, quantity("USD/B")] = 0.0
    link: UnitPrice = 0.0
    switch: UnitPrice = 0.0
    switch_power: UnitPower = 0.0


class LimitsFile(FileModel):
    """What no machine may exceed; ``time`` is that of an iteration."""

    price: Annotated[float, quantity("USD", above_zero=True)] | None = None
    power: Annotated[float, quantity("W", above_zero=True)] | None = None
    time: Annotated[float, quantity("s", above_zero=True)] | None = None


class FrontSearchFile(FileModel):
    """How to search: see `crosstack.explore.codesign.search_front`."""

    evaluations: Count = 600
    seed: Index = 0
    time_limit: Annotated[float, quantity("s", above_zero=True)] | None = None
    gap: Annotated[float, quantity("1")] = 0.0


class CodesignFile(FileModel):
    """The whole file; ``workload`` is a section of a task, or names a file that has one."""

    name: Text | None = None
    workload: dict[str, Any] | Text
    chip: Text
    choices: dict[str, list[Any]] = Field(default_factory=dict)
    chip_area: AreaFile | None = None
    hold: Names = Field(default_factory=list)
    prices: PricesFile = PricesFile()
    limits: LimitsFile = LimitsFile()
    rules: Text = "crosstack"
    chip_rules: Text = "crosstack"
    search: FrontSearchFile = FrontSearchFile()


def codesign_file(
    text: str, path: Path, overrides: Sequence[str] = ()
) -> tuple[CodesignFile, Workload]:
    """Return what a file for a front holds, checked field by field, and its workload.

    Raises
    ------
    InputError
        With every problem found: ``FILE: path: what is wrong``.
    """
    with of_file(path):
        file = read_fields(CodesignFile, FileKind.CODESIGN, text, overrides)
        if not isinstance(file.workload, dict):
            return file, load(path.parent / file.workload).workload
        problems: list[Problem] = []
        section = validate(WorkloadFile, file.workload, "workload", problems)
        workload = None if section is None else read_workload(section, file.name, problems)
        if problems or workload is None:
            raise InputError(problems)
        return file, workload
