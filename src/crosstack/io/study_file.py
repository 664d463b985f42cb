"""The shape of a study file: which fields there are, and what each may hold.

What the fields mean together is in `crosstack.explore.study`.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, model_validator

from crosstack.io.files import of_file
from crosstack.io.kinds import FileKind
from crosstack.io.native.fields import read_fields
from crosstack.io.native.schema import Count, FileModel, Flag, Index, Names, Text, one_of


class Goal(StrEnum):
    """Whether less or more of an objective is better."""

    MINIMUM = "min"
    MAXIMUM = "max"


class Sampling(StrEnum):
    """How points are drawn: independently, or spread out by a Sobol sequence."""

    RANDOM = "random"
    SOBOL = "sobol"


class RangeFile(FileModel):
    """Both ends, and either a number of values or the step between them."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    start: Any = Field(alias="from")
    to: Any
    step: Any = None
    count: Count | None = None


class AxisFile(FileModel):
    """One axis; exactly one of ``values``, ``range``, ``log_range``, ``presets`` and ``zip``."""

    path: Names | None = None
    values: list[Any] | None = None
    range: RangeFile | None = None
    log_range: RangeFile | None = None
    presets: dict[str, dict[str, Any]] | None = None
    zip: dict[str, list[Any]] | None = None
    whole: Flag = False

    @model_validator(mode="before")
    @classmethod
    def _values_alone(cls, value: Any) -> Any:
        return {"values": value} if isinstance(value, list) else value


class SampleFile(FileModel):
    """Points drawn from the ranges of ``axes`` (all that are ranges, if left out)."""

    method: Annotated[Sampling, one_of(Sampling)] = Sampling.SOBOL
    count: Count
    seed: Index = 0
    axes: list[Text] | None = None


class ConstraintFile(FileModel):
    """Bounds of a column; numbers, or text with a unit."""

    min: Any = None
    max: Any = None


class StudyFile(FileModel):
    """The whole file."""

    name: Text | None = None
    base: Text
    evaluate: Text = "map"
    options: dict[str, Any] = Field(default_factory=dict)
    axes: dict[str, AxisFile]
    sample: SampleFile | None = None
    constraints: dict[str, ConstraintFile] = Field(default_factory=dict)
    objectives: dict[str, Annotated[Goal, one_of(Goal)]] = Field(default_factory=dict)
    keep: Names = Field(default_factory=list)


def study_file(text: str, source: str) -> StudyFile:
    """Return what a study file holds; `InputError` says all as ``FILE: path: what is wrong``."""
    with of_file(source):
        return read_fields(StudyFile, FileKind.STUDY, text)
