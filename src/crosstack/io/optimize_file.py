"""The shape of a file for ``crosstack optimize``: which fields there are, and what each may hold.

What the fields mean together is in `crosstack.explore.optimize`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from crosstack.errors import InputError
from crosstack.io.files import in_file
from crosstack.io.kinds import FileKind
from crosstack.io.native.fields import read_fields
from crosstack.io.native.schema import Count, FileModel, Index, Names, Text, quantity

__all__ = ["AreaFile", "DescentFile", "OptimizeFile", "SearchFile", "optimize_file"]

Area = Annotated[float, quantity("m^2", above_zero=True)]
Number = Annotated[float, quantity("1")]


class AreaFile(FileModel):
    """How large the chip may be, beside its memory."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    low: Area = Field(alias="from")
    high: Area = Field(alias="to")


class DescentFile(FileModel):
    """How the method ``gradient`` goes down: see `crosstack.explore.methods.Descent`."""

    form: Text = "code"
    step: Number = 1.0
    averaging: Number = 0.9
    probe: Number = 1.5
    steps: Count = 100
    starts: Count | None = None
    tolerance: Number = 0.0


class SearchFile(FileModel):
    """How to search: see `crosstack.explore.cooptimise.co_optimise`."""

    method: Text = "cma-es"
    descent: DescentFile | None = None
    evaluations: Count = 200
    searches: Index = 8
    seed: Index = 0


class OptimizeFile(FileModel):
    """The whole file.

    ``chip`` names a chip file or DeepFlow hardware YAML, ``model`` a named model or a file, both
    beside this one. ``choices`` are fields of the chip file with the values each may take.
    """

    chip: Text
    model: Text | None = None
    batch: Count | None = None
    sequence: Count | None = None
    microbatches: Count | None = None
    exchange: Text | None = None
    recompute: Text | None = None
    schedule: Text | None = None
    interleave: Count | None = None
    chips: Count | None = None
    strategies: Names | None = None
    choices: dict[str, list[Any]] = Field(default_factory=dict)
    objective: Text = "time"
    limits: dict[str, Any] = Field(default_factory=dict)
    chip_area: AreaFile | None = None
    hold: Names = Field(default_factory=list)
    rules: Text = "crosstack"
    search: SearchFile = SearchFile()


def optimize_file(text: str, source: str, overrides: Sequence[str] = ()) -> OptimizeFile:
    """Return what a file for a search holds, checked field by field.

    Raises
    ------
    InputError
        With every problem found: ``FILE: path: what is wrong``.
    """
    try:
        return read_fields(OptimizeFile, FileKind.SEARCH, text, overrides)
    except InputError as error:
        raise in_file(error, source) from None
