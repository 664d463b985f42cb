"""What a command is given besides its file: numbers, rules, a saved result, places to write."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstack.errors import InputError, Problem, require_jobs, unknown_name

if TYPE_CHECKING:
    from crosstack.io.native import CalibratedMachine
    from crosstack.machine.system import System
    from crosstack.mapping.mapping import Task
    from crosstack.model.rules import Rules
    from crosstack.workload.transformer_training import Zero

MACHINE = {"on": "--on", "n_chips": "--chips", "fabric": "--fabric", "link": "--on"}
MACHINE |= {"framework": "--framework"}
YAML_SUFFIXES = (".yaml", ".yml")
# What an option writes, by its name; no file is named after another of these formats.
WRITTEN = {"--json": (".json",), "--html": (".html", ".htm"), "--svg": (".svg",)}
WRITTEN |= {"--csv": (".csv",), "--trace": (".json",)}
_FORMATS = {*YAML_SUFFIXES, ".png", ".pdf", ".jpg", ".jpeg", ".md", ".txt"}
_FORMATS |= {suffix for several in WRITTEN.values() for suffix in several}


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineOptions:
    """A machine of the library, and what drives it."""

    on: str | None = None
    chips: int | None = None
    fabric: str | None = None
    framework: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        """What the options say, as a file says it of its system; empty where they say nothing."""
        if self.on is None:
            others = {"--chips": self.chips, "--fabric": self.fabric}
            refuse(others, "allowed with --on, a machine of the library.")
        if self.chips is not None:
            check_number("--chips", self.chips, self.chips >= 1, "a whole number, at least 1")
        said = {"on": self.on, "n_chips": self.chips, "fabric": self.fabric}
        said["framework"] = None if self.on is None else self.framework
        return {name: value for name, value in said.items() if value is not None}

    def system(self) -> System | None:
        """Return the machine; None where the options name none."""
        if not self.given:
            return None
        from crosstack.io.library import system_on

        found = self.named()
        with options_named(MACHINE):
            made = system_on(
                found.on, chips=self.chips, fabric=self.fabric, framework=self.framework
            )
        return found.calibration.applied(made)

    def named(self) -> CalibratedMachine:
        """Return what the library calls the machine, and what a file of it was calibrated to."""
        from crosstack.io.native import CalibratedMachine

        assert self.on is not None
        return machine_at(self.on) or CalibratedMachine(on=self.on)

    def task(self, file: Path, set_: list[str] | None) -> Task:
        """Return the task of a file, on this machine where there is one."""
        import crosstack

        if self.system() is None:  # its errors in the words of the options
            if self.framework is None:
                return crosstack.load(file, set_ or ())
            with options_named({"system.framework": "--framework"}):
                return crosstack.load(file, [f"system.framework={self.framework}", *(set_ or ())])
        if file.suffix.lower() not in YAML_SUFFIXES:
            raise InputError(Problem("--on", f"allowed with a native YAML file; {file} is none."))
        return crosstack.load(
            file, [f"system={json.dumps(self.given | self.named().section)}", *(set_ or ())]
        )

    def or_of(self, file: Path | None, set_: list[str] | None) -> tuple[System, str | None]:
        """Return this machine or that of a file, and the rules that the file names."""
        import crosstack

        alone = "allowed to map and to predict; here every kernel is launched by itself."
        refuse({"--framework": self.framework}, alone)
        named = self.system()
        if named is not None:
            refuse({"FILE": file, "--set": set_}, "allowed without --on, which gives the machine.")
            return named, None
        if file is None:
            raise InputError(Problem("FILE", "required, or --on with a machine of the library."))
        task = crosstack.load(file, set_ or ())
        return task.system, task.rules


def machine_at(on: str | None) -> CalibratedMachine | None:
    """Return the calibrated machine of a YAML file that ``--on`` says; None: it says no file."""
    from crosstack.io.native import read_calibrated

    is_file = on is not None and Path(on).suffix.lower() in YAML_SUFFIXES
    return read_calibrated(str(on)) if is_file else None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions:
    """When a search for a mapping stops, and how many processes it takes."""

    work_limit: float | None = None
    time_limit: float | None = None
    gap: float = 0.0
    jobs: int | None = None

    def checked(self, jobs: int = 1) -> dict[str, Any]:
        """Return them as a search takes them; ``jobs`` processes where nothing is said. [1]"""
        work, gap = self.work_limit, self.gap
        limit = float("inf") if self.time_limit is None else self.time_limit
        check_number("--time-limit", limit, limit > 0, "a number of seconds above 0")
        if work is not None:
            check_number("--work-limit", work, work > 0, "a number above 0, or inf")
        check_number("--gap", gap, 0 <= gap < 1, "0 to below 1, such as 0.01 for one percent")
        jobs = jobs if self.jobs is None else self.jobs
        with options_named({"jobs": "--jobs"}):
            require_jobs(jobs)
        return asdict(self) | {"time_limit": limit, "jobs": jobs}


def refuse(options: Mapping[str, object], message: str) -> None:
    """Raise `InputError` for the first option that is given."""
    for name, given in options.items():
        if not (given is None or given is False or given == []):
            raise InputError(Problem(name, message))


def check_number(option: str, value: float, holds: bool, allowed: str) -> None:
    """Raise `InputError` for an option unless ``holds``."""
    if not holds:
        raise InputError(Problem(option, f"got {value:g}; allowed: {allowed}."))


def check_suffix(option: str, path: Path, allowed: tuple[str, ...], because: str = "") -> None:
    """Refuse a file whose suffix says another format; ``because`` tells why."""
    if path.suffix.lower() not in allowed:
        raise InputError(Problem(option, f"got {path}; allowed: {', '.join(allowed)}{because}."))


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Say the errors of what a file holds under its name."""
    try:
        yield
    except InputError as error:
        from crosstack.io import files

        raise files.in_file(error, str(path)) from None


_MANY = {"": 1.0, "k": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}


def many_tokens(text: str | None) -> float | None:
    """Return how many tokens ``--tokens`` says, such as ``15T``; None where it is left out. [1]"""
    if text is None:
        return None
    found = re.fullmatch(r"(\d{1,30}(?:\.\d{1,30})?(?:e\d{1,2})?)([kMBT]?)", text, re.ASCII)
    if found is None or not (count := float(found[1]) * _MANY[found[2]]):
        allowed = "a number above 0, perhaps with k, M, B (billions) or T, such as 15T"
        raise InputError(Problem("--tokens", f"got {text[:60]!r}; allowed: {allowed}."))
    return count


def check_tokens(task: Task, count: float | None) -> None:
    """Refuse ``--tokens`` of a task that counts none."""
    from crosstack.evaluate.whole_run import tokens_of_iteration

    if count is not None:
        with options_named({"tokens": "--tokens"}):
            tokens_of_iteration(task.workload)


def billed(system: System, electricity: str | None) -> System:
    """Return a machine with the price of ``--electricity``; a bare number is USD/kWh."""
    from crosstack.units import parse_quantity

    if electricity is None:
        return system
    bare = re.fullmatch(r"\s*[\d.]+(?:e-?\d+)?\s*", electricity, re.ASCII)
    with options_named({"": "--electricity", "electricity": "--electricity"}):
        price = parse_quantity(f"{electricity} USD/kWh" if bare else electricity, "USD/J")
        prices = replace(system.prices, electricity=price)
    return replace(system, prices=prices)


def sparing(system: System, spare: str | None) -> System:
    """Return a machine of whose chips' main memory ``--spare-memory`` is left free."""
    from crosstack.units import parse_quantity

    if spare is None:
        return system
    with options_named({"": "--spare-memory", "spare": "--spare-memory"}):
        return system.sparing(parse_quantity(spare, "B"))


def zero_given(text: str | None) -> Zero | None:
    """Return what ``--zero`` says that data-parallel chips have shares of; None: left out."""
    from crosstack.records import words_of
    from crosstack.workload.transformer_training import Zero

    if text is None:
        return None
    known = words_of(Zero)
    if text not in known:
        raise unknown_name("--zero", "stage of ZeRO is", text, known)
    return known[text]


@contextmanager
def options_named(names: Mapping[str, str]) -> Iterator[None]:
    """Say the errors of a record by the options that gave its fields."""
    try:
        yield
    except InputError as error:
        raise error.renamed(names) from None


def rules_given(name: str | None) -> Rules | None:
    """Return the rules to map by that ``--rules`` says; None where it is left out."""
    from crosstack.model.rules import MAPPED

    return None if name is None else rules_asked(name, MAPPED)


def rules_asked(name: str, parts: tuple[str, ...]) -> Rules:
    """Return the rules that ``--rules`` says, a name or a YAML file, which have these parts."""
    from crosstack.io.rules import rules_at

    with options_named({"rules": "--rules"}):
        return rules_at(name, parts)


def check_outputs(
    source: Path | None, outputs: Mapping[str, Path | None], *, folders: bool = False
) -> None:
    """Refuse places that cannot be written, before hours are spent on what goes there.

    Parameters
    ----------
    source : Path or None
        The file that is read: it is never overwritten.
    outputs : mapping
        The path given to each option; None where it is left out.
    folders : bool
        Directories that are missing will be made.
    """
    problems = []
    taken = {} if source is None else {os.path.realpath(source): "the file that is read"}
    for option, path in outputs.items():
        if path is None:
            continue
        real = os.path.realpath(path)
        reason = _other_format(option, path) or _why_not(path, real, taken.get(real), folders)
        if reason:
            problems.append(Problem(f"{option} {path}", f"cannot be written: {reason}."))
        taken[real] = f"what {option} writes"
    if problems:
        raise InputError(problems)


def _other_format(option: str, path: Path) -> str:
    own, suffix = WRITTEN.get(option, ()), path.suffix.lower()
    other = own and suffix not in own and suffix in _FORMATS
    return f"it is written as {own[0]}, not as {suffix}" if other else ""


def _why_not(path: Path, real: str, taken: str | None, folders: bool) -> str:
    folder = os.path.dirname(real)
    while folders and not os.path.lexists(folder):
        folder = os.path.dirname(folder)
    name = os.path.basename(str(path)) or str(path)
    if taken is not None:
        return f"it is {taken}"
    if os.path.isdir(real):
        return "it is a directory"
    if os.path.exists(real) and not os.path.isfile(real):
        return "it is not a regular file"
    if not os.path.isdir(folder):
        if folders:
            return f"{folder} is no directory"
        return f"there is no directory {os.path.dirname(str(path)) or folder}"
    if not os.access(folder, os.W_OK | os.X_OK):
        return f"no permission to write in {folder}"
    if len(os.fsencode(name)) > 255:
        return "its name is too long"
    return ""
