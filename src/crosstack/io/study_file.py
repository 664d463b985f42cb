"""Files for ``crosstack sweep``, ``codesign`` and ``optimize``, checked field by field.

What the fields mean together is in `crosstack.explore`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.files import of_file
from crosstack.io.kinds import FileKind
from crosstack.io.load import load
from crosstack.io.native.overrides import read_fields
from crosstack.io.native.problems import validate
from crosstack.io.native.read_workload import read_workload
from crosstack.io.native.schema import FileModel, Text
from crosstack.io.native.tables import Table
from crosstack.io.native.task_fields import FIELDS
from crosstack.workload.workload import Workload


class Goal(StrEnum):
    """Whether less or more of an objective is better."""

    MINIMUM = "min"
    MAXIMUM = "max"


class Sampling(StrEnum):
    """How points are drawn: independently, or spread out by a Sobol sequence."""

    RANDOM = "random"
    SOBOL = "sobol"


STUDIES = Table(__package__, "studies.yaml", {"workload": dict[str, Any] | Text})


def study_file(text: str, source: str) -> FileModel:
    """Return what a study file holds; `InputError` says all as ``FILE: path: what is wrong``."""
    with of_file(source):
        return read_fields(STUDIES["study"], FileKind.STUDY, text)


def optimize_file(text: str, source: str, overrides: Sequence[str] = ()) -> FileModel:
    """Return what a file for a search of a chip holds; `InputError` as of `study_file`."""
    with of_file(source):
        return read_fields(STUDIES["optimize"], FileKind.SEARCH, text, overrides)


def codesign_file(
    text: str, path: Path, overrides: Sequence[str] = ()
) -> tuple[FileModel, Workload]:
    """Return what a file for a front holds, and its workload; `InputError` as of `study_file`."""
    with of_file(path):
        file = read_fields(STUDIES["codesign"], FileKind.CODESIGN, text, overrides)
        if not isinstance(file.workload, dict):
            return file, load(path.parent / file.workload).workload
        problems: list[Problem] = []
        section = validate(FIELDS["workload"], file.workload, "workload", problems)
        workload = None if section is None else read_workload(section, file.name, problems)
        if problems or workload is None:
            raise InputError(problems)
        return file, workload
