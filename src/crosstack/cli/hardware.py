"""What ``predict`` and ``trace`` run on: a chip file, DeepFlow's hardware, or the library's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from crosstack.cli.chip import described
from crosstack.cli.inputs import MACHINE, MachineOptions, options_named
from crosstack.errors import InputError, Problem, unknown_name
from crosstack.units import parse_quantity
from crosstack.workload.dtype import Dtype

if TYPE_CHECKING:
    from crosstack.io.library.named import LibraryMachine
    from crosstack.io.step_machines import Machine

_FIELDS = {"frequency": "Hz", "launch_overhead": "s"}
_TYPES = ("dtype", "accumulator")


def source_of(file: Path | None, on: str | None) -> Path:
    """Return what a machine is called in errors: its file, or its name in the library."""
    if file is not None and on is not None:
        raise InputError(Problem("--on", "given with FILE; allowed: one of them."))
    if file is None and on is None:
        raise InputError(Problem("FILE", "required, or --on with a machine of the library."))
    return file or Path(str(on))


def hardware_of(
    file: Path | None,
    machine: MachineOptions,
    library: Path | None,
    set_: list[str],
    dtype: Dtype | None = None,
) -> Machine:
    """Return the machine that a file describes or the library has.

    Parameters
    ----------
    file : Path or None
        A chip file, or DeepFlow's hardware.
    machine : MachineOptions
        A machine of the library instead.
    library : Path or None
        Technologies of one's own, for a chip file.
    set_ : list of str
        Changes of its fields.
    dtype : Dtype or None
        What a machine of the library computes in.
    """
    if dtype is not None and not machine.given:
        message = "allowed with --on; a chip file says what its chip computes in."
        raise InputError(Problem("--dtype", message))
    if not machine.given:
        from crosstack.io import library as machines

        assert file is not None  # `source_of` asked
        if not file.exists() and str(file) in (*machines.names("chips"), *machines.names("nodes")):
            raise InputError(Problem(str(file), f"no such file; did you mean --on {file}?"))
        models = (*machines.names("models"), *machines.names("images"))
        if not file.exists() and str(file) in models:
            message = "a model; give a machine beside it, with --on."
            raise InputError(Problem(str(file), message))
        return described(file, library, set_)
    if library is not None:
        message = f"allowed with a chip file; {machine.on} is none."
        raise InputError(Problem("--library", message))
    return _of_library(machine, set_, dtype)


def _of_library(
    machine: MachineOptions, set_: list[str], dtype: Dtype | None = None
) -> LibraryMachine:
    from crosstack.io.library.named import library_machine

    found = machine.named()
    numbers, types = _changes(found.on, set_)
    if dtype is not None and types.setdefault("dtype", dtype) != dtype:
        message = f"got {dtype}; --set gives {types['dtype']}: allowed: one of the two."
        raise InputError(Problem("--dtype", message))
    said = "--set dtype" if dtype is None else "--dtype"
    given = MACHINE | {field: f"--set {field}" for field in numbers}
    named = {"system.chip.rates": said, "workload.accumulator": "--set accumulator"}
    with options_named(given | named):
        made = library_machine(
            found.on,
            chips=machine.chips,
            fabric=machine.fabric,
            frequency=numbers.get("frequency"),
            launch_overhead=numbers.get("launch_overhead"),
            dtype=types.get("dtype"),
            accumulator=types.get("accumulator"),
        )
    return replace(made, calibration=found.calibration)


def _changes(on: str, set_: list[str]) -> tuple[dict[str, float], dict[str, Dtype]]:
    """Return the numbers, and the types, that ``--set`` gives a chip of the library."""
    numbers: dict[str, float] = {}
    types: dict[str, Dtype] = {}
    for change in set_:
        field, _, value = change.partition("=")
        if field in _TYPES:
            if value not in list(Dtype):
                raise unknown_name(f"--set {field}", "type of number is", value, Dtype)
            types[field] = Dtype(value)
        elif field in _FIELDS:
            with options_named({"": f"--set {field}"}):
                numbers[field] = parse_quantity(value, _FIELDS[field])
        else:
            takes = ", ".join((*_FIELDS, *_TYPES))
            message = f"got {change[:60]!r}; {on} takes {takes}, as dtype=int8."
            raise InputError(Problem("--set", message))
    return numbers, types
