"""The file of a calibrated machine: a name of the library, and factors that were found of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crosstack.errors import InputError, Problem
from crosstack.io.files import of_file, read_text
from crosstack.io.native.problems import unknown_fields, validate
from crosstack.io.native.read_system import read_system
from crosstack.io.native.task_fields import FIELDS
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.calibration import AS_SAID, Calibration

ALLOWED = ("on", "calibrated")


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibratedMachine:
    """A chip or node of the library, ``on``, and what was found of it."""

    on: str
    calibration: Calibration = AS_SAID

    @property
    def section(self) -> dict[str, Any]:
        """It as the ``system`` of a file says it."""
        said = self.calibration.said
        return {"on": self.on} | ({"calibrated": said} if said else {})


def read_calibrated(path: str | Path) -> CalibratedMachine:
    """Read the file of a calibrated machine, as ``crosstack calibrate`` saves it.

    `InputError` says every problem as ``FILE: path: what is wrong``.
    """
    text = read_text(path)
    with of_file(path):
        tree = parse_yaml(text)
        section = tree.get("system") if isinstance(tree, dict) else None
        if not isinstance(tree, dict) or not isinstance(section, dict):
            message = "required, but missing: a machine, as crosstack calibrate saves it."
            raise InputError(Problem("system", message))
        problems = _not_calibrated(tree, section)
        file = None if problems else validate(FIELDS["system"], section, "system", problems)
        if file is not None:
            read_system(file, problems)  # is it a machine?
        if file is None or problems:
            raise InputError(problems)
        return CalibratedMachine(on=file.on, calibration=Calibration(**file.calibrated.given()))


def _not_calibrated(tree: dict[str, Any], section: dict[str, Any]) -> list[Problem]:
    """Return what is there besides a calibrated machine, or is missing of one.

    A task, or a machine that is changed otherwise, has a file of its own that commands read.
    """
    known = FIELDS["system"].model_fields
    of_task = [f"system.{name}" for name in section if name in known and name not in ALLOWED]
    of_task += [name for name in tree if name in FIELDS["task"].model_fields and name != "system"]
    if of_task:
        message = (
            "is said in the file of a task, with its workload, as FILE of the command; a machine "
            "of --on is a name, or a file that crosstack calibrate saved, of on and calibrated."
        )
        return [Problem(name, message) for name in of_task[:1]]
    problems = unknown_fields([name for name in tree if name != "system"], ("system",))
    problems += [
        Problem(f"system.{name}", "required, but missing: crosstack calibrate saves it.")
        for name in ALLOWED
        if name not in section
    ]
    others = [name for name in section if name not in ALLOWED]
    return problems + unknown_fields(others, ALLOWED, "system")
