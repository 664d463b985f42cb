"""A machine calibrated on a table of what was measured on it, and the file that says so."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from crosstack.errors import InfeasibleError, InputError, Problem, unknown_name
from crosstack.evaluate.calibrate import FEWEST, Fit, fit_kernels, fit_runs
from crosstack.evaluate.run_scores import MeasuredRun, said_of, some_of
from crosstack.io import library
from crosstack.io.files import of_file, read_text
from crosstack.io.measured import chip_called, read_kernels
from crosstack.io.measured_collectives import is_of_collectives
from crosstack.io.measured_runs import RunTable, is_of_runs, read_runs
from crosstack.io.native import CalibratedMachine
from crosstack.machine.calibration import Calibration
from crosstack.machine.chip import Chip

USUAL = 96  # runs, where nothing is said [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFit:
    """What a table tells of a machine of the library: its name, the fit, rows not taken. [1]"""

    on: str
    fit: Fit
    left_out: Mapping[str, int]

    @property
    def calibration(self) -> Calibration:
        """The factors, with what they were found on."""
        return self.fit.calibration


def calibrate(
    table: str | Path,
    on: str,
    *,
    most: int | None = None,
    tell: Callable[[str], None] = lambda name: None,
) -> MachineFit:
    """Fit factors of a machine to a table of kernels or of training runs on it.

    Parameters
    ----------
    table : str or Path
        JSON, one row a line, as `crosstack score` reads it.
    on : str
        A chip or node of the library; of training runs a node. Rows that say another machine are
        left out.
    most : int, optional
        Rows, spread over all of them; all kernels, and 96 runs, if left out.
    tell : callable, optional
        Called with what is done next.

    Raises
    ------
    InputError
        If the file cannot be read, has no rows of that machine, or too few, or they tell no
        factor; if there is no such machine.
    """
    path = Path(table)
    if is_of_collectives(path):
        message = "has rows of collectives; allowed: rows of kernels or of training runs."
        raise InputError(Problem(str(path), message))
    if is_of_runs(path):
        found = _of_runs(path, on, USUAL if most is None else most, tell)
    else:
        found = _of_kernels(path, on, most, tell)
    digest = hashlib.sha256(read_text(path).encode()).hexdigest()[:16]
    rows = found.fit.before.rows
    said = replace(found.calibration, table=path.name, rows=rows, digest=digest)
    return replace(found, fit=replace(found.fit, calibration=said))


def chip_on(on: str) -> Chip:
    """Return the chip of that name, or of the node of that name; `InputError` if there is none."""
    if on in library.names("nodes"):
        return library.chip(library.node(on).chip.name)
    if on in library.names("chips"):
        return library.chip(on)
    known = (*library.names("nodes"), *library.names("chips"))
    raise unknown_name("on", "node or chip is", on, known, "In the library")


def _of_kernels(path: Path, on: str, most: int | None, tell: Callable[[str], None]) -> MachineFit:
    chip = chip_on(on)
    table = read_kernels(path, chip)
    left, sets = dict(table.left_out), []
    for each in table.sets:
        if chip_called(each.gpu) == chip:
            sets.append(each.rows)
        else:
            left[each.gpu] = left.get(each.gpu, 0) + len(each.rows)
    if not sets:
        got = ", ".join(dict.fromkeys(each.gpu for each in table.sets))
        message = f"got kernels of {got}; allowed: some of {chip.name}."
        raise InputError(Problem(str(path), message))
    with of_file(path):
        fit = fit_kernels(sets, chip, most=most, tell=tell)
    return MachineFit(on=on, fit=fit, left_out=left)


def on_measured(table: RunTable, machine: CalibratedMachine) -> RunTable:
    """Return the runs on a machine as it was measured; those on others are left out.

    `InputError` if there are none.
    """
    runs, left = _here(table, machine.on)
    under = {s: [run.under(machine.calibration) for run in some] for s, some in runs.items()}
    return RunTable(sets=under, left_out=left)


def _here(table: RunTable, on: str) -> tuple[dict[str, list[MeasuredRun]], dict[str, int]]:
    """Return runs on nodes of that name, or of chips of that name, and how many others there are.

    `InputError` if there are none.
    """
    runs = {
        source: [run for run in some if on in (run.node, run.system.chip.name)]
        for source, some in table.sets.items()
    }
    runs = {source: some for source, some in runs.items() if some}
    every = [run for some in table.sets.values() for run in some]
    others = len(every) - sum(map(len, runs.values()))
    if not runs:
        got = ", ".join(dict.fromkeys(run.node for run in every)) or "none"
        raise InputError(Problem("", f"got runs on {got}; allowed: some on {on}."))
    left = dict(table.left_out)
    return runs, left | ({f"another machine than {on}": others} if others else {})


def _of_runs(path: Path, on: str, most: int, tell: Callable[[str], None]) -> MachineFit:
    if on not in library.names("nodes"):
        raise unknown_name("on", "node is", on, library.names("nodes"), "In the library")
    with of_file(path):
        runs, left = _here(read_runs(path), on)
    here = [run for some in runs.values() for run in some]
    timed = [run for run in here if run.time is not None]
    if len(timed) < len(here):
        left["out of memory"] = len(here) - len(timed)
    told: list[MeasuredRun] = []
    for run in some_of(timed, most):
        tell(run.name)
        try:
            said_of(run)
        except (InputError, InfeasibleError):
            left["cannot be spread so"] = left.get("cannot be spread so", 0) + 1
        else:
            told.append(run)
    if len(told) < FEWEST:
        others = ", ".join(f"{name}, {count}" for name, count in left.items())
        besides = f" (left out: {others})" if others else ""
        message = f"got {len(told)} runs on {on} that tell it{besides}; allowed: {FEWEST} or more."
        raise InputError(Problem(str(path), message))
    with of_file(path):
        fit = fit_runs(told, tell)
    return MachineFit(on=on, fit=fit, left_out=left)


def machine_text(found: MachineFit) -> str:
    """Return native YAML of a calibrated machine, which says what it was found on."""
    fit, machine = found.fit, CalibratedMachine(on=found.on, calibration=found.calibration)
    head = [
        f"# {found.on} as it was measured: factors fitted to rows of a table, by its sha256.",
        f"# Off before: {100 * fit.before.mean:.1f} % on average; rows held out of a fit with the "
        f"factors that it gives: {100 * fit.held_out.mean:.1f} %.",
    ]
    head += [
        f"# {one.name}: {one.value:.3f}, 95 %: {one.low:.3f} to {one.high:.3f}"
        + (", at an end of what it may be" if one.at_an_end else "")
        for one in fit.fitted
    ]
    head += [f"# {one.name} is not told: {one.why}." for one in fit.refused]
    if found.calibration.dispatch != 1.0:
        head.append("# dispatch holds with --framework, of what drove the runs.")
    if found.calibration.imbalance != 1.0:
        head.append(f"# imbalance is of jobs: --expert-imbalance {found.calibration.imbalance:.3g}")
    values = {
        name: float(f"{value:.6g}") if isinstance(value, float) else value
        for name, value in machine.section["calibrated"].items()
    }
    lines = ["system:", f"  on: {found.on}", "  calibrated:"]
    lines += [f"    {name}: {json.dumps(value)}" for name, value in values.items()]
    return "\n".join([*head, *lines, ""])
