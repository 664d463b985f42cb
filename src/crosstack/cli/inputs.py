"""What a command is given besides its file: numbers, rules, a saved result, places to write."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstack.errors import InputError, Problem, require_jobs

if TYPE_CHECKING:
    from crosstack.evaluate.plan import Plan
    from crosstack.machine.system import System
    from crosstack.mapping.mapping import Task
    from crosstack.model.rules import Rules

__all__ = [
    "MACHINE",
    "Chips",
    "Counted",
    "Fabric",
    "Gap",
    "JsonOut",
    "On",
    "Saved",
    "SearchSet",
    "WorkLimit",
    "check_jobs",
    "check_number",
    "check_outputs",
    "check_work",
    "in_file",
    "library_system",
    "loaded_task",
    "machine_given",
    "machine_of",
    "options_named",
    "read_result",
    "result_answer",
    "result_rules",
    "rules_asked",
    "rules_given",
    "saved_kind",
]


WorkLimit = Annotated[
    float | None,
    typer.Option(
        "--work-limit",
        metavar="UNITS",
        help="Stop a search after UNITS of work, of a few microseconds each, with the best mapping "
        "found and its bound: the same mapping on any machine. inf: no limit. 3e6 if left out, or "
        "none with --time-limit.",
    ),
]


JsonOut = Annotated[
    Path | None, typer.Option("--json", metavar="OUT", help="Save the result as JSON.")
]
Counted = Annotated[
    str | None, typer.Option("--rules", metavar="NAME|FILE", help="What is counted.")
]
Gap = Annotated[
    float, typer.Option("--gap", metavar="G", help="Stop at this relative gap (0: prove).")
]
SearchSet = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="PATH=VALUE",
        help="Change a field first, e.g. `search.evaluations=1000`. May be repeated.",
    ),
]


On = Annotated[
    str | None,
    typer.Option(
        "--on",
        metavar="NAME",
        help="A node or chip of the library in place of the file's machine, such as h100-dgx; see "
        "`crosstack show library`.",
    ),
]
Chips = Annotated[
    int | None,
    typer.Option("--chips", metavar="N", help="With --on: how many chips; one node if left out."),
]
Fabric = Annotated[
    str | None,
    typer.Option(
        "--fabric",
        metavar="NAME",
        help="With --on: what joins the nodes; rail-optimised where every chip has a port, else "
        "fat-tree.",
    ),
]
MACHINE = {"on": "--on", "n_chips": "--chips", "fabric": "--fabric", "link": "--on"}


def machine_given(on: str | None, chips: int | None, fabric: str | None) -> dict[str, Any]:
    """Return what the options say of a machine of the library; empty where they say nothing."""
    if on is None:
        for option, value in (("--chips", chips), ("--fabric", fabric)):
            if value is not None:
                raise InputError(Problem(option, "allowed with --on, a machine of the library."))
        return {}
    if chips is not None:
        check_number("--chips", chips, chips >= 1, "a whole number, at least 1")
    given = {"on": on, "n_chips": chips, "fabric": fabric}
    return {name: value for name, value in given.items() if value is not None}


def library_system(on: str | None, chips: int | None, fabric: str | None) -> System | None:
    """Return the machine of the library that the options name; None where they name none."""
    if not machine_given(on, chips, fabric):
        return None
    from crosstack.io.library import system_on

    assert on is not None
    with options_named(MACHINE):
        return system_on(on, chips=chips, fabric=fabric)


def loaded_task(
    file: Path,
    set_: list[str] | None,
    on: str | None = None,
    chips: int | None = None,
    fabric: str | None = None,
) -> Task:
    """Return the task of a file, on a machine of the library where the options name one."""
    import crosstack

    given = machine_given(on, chips, fabric)
    if not given:
        return crosstack.load(file, set_ or ())
    if file.suffix.lower() not in (".yaml", ".yml"):
        raise InputError(Problem("--on", f"allowed with a native YAML file; {file} is none."))
    library_system(on, chips, fabric)  # its errors in the words of the options
    return crosstack.load(file, [f"system={json.dumps(given)}", *(set_ or ())])


def machine_of(
    file: Path | None,
    set_: list[str] | None,
    on: str | None,
    chips: int | None,
    fabric: str | None,
) -> tuple[System, str | None]:
    """Return a machine of the library or that of a file, and the rules that the file names."""
    import crosstack

    named = library_system(on, chips, fabric)
    if named is not None:
        for option, given in (("FILE", file), ("--set", set_)):
            if given:
                raise InputError(Problem(option, "allowed without --on, which gives the machine."))
        return named, None
    if file is None:
        raise InputError(Problem("FILE", "required, or --on with a machine of the library."))
    task = crosstack.load(file, set_ or ())
    return task.system, task.rules


def check_work(limit: float | None) -> None:
    """Raise `InputError` for a ``--work-limit`` that is none."""
    if limit is not None:
        check_number("--work-limit", limit, limit > 0, "a number above 0, or inf")


def check_number(option: str, value: float, holds: bool, allowed: str) -> None:
    """Raise `InputError` for an option unless ``holds``."""
    if not holds:
        raise InputError(Problem(option, f"got {value:g}; allowed: {allowed}."))


def check_jobs(jobs: int) -> None:
    """Raise `InputError` for ``--jobs`` unless a machine can hold so many processes."""
    with options_named({"jobs": "--jobs"}):
        require_jobs(jobs)


@contextmanager
def in_file(path: Path) -> Iterator[None]:
    """Say the errors of what a file holds under its name."""
    try:
        yield
    except InputError as error:
        from crosstack.io import files

        raise files.in_file(error, str(path)) from None


@contextmanager
def options_named(names: dict[str, str]) -> Iterator[None]:
    """Say the errors of a record by the options that gave its fields."""
    try:
        yield
    except InputError as error:
        raise error.renamed(names) from None


def rules_given(name: str | None, parts: tuple[str, ...] | None = None) -> Rules | None:
    """Return the rules that ``--rules`` says: a name or a YAML file; None where it is left out.

    Parameters
    ----------
    parts : tuple of str, optional
        What the command needs of them; what mapping needs where left out.
    """
    if name is None:
        return None
    return rules_asked(name, parts)


def rules_asked(name: str, parts: tuple[str, ...] | None = None) -> Rules:
    """Return the rules that ``--rules`` says, as `rules_given`."""
    from crosstack.io.rules import rules_at
    from crosstack.model.rules import MAPPED

    with options_named({"rules": "--rules"}):
        return rules_at(name, MAPPED if parts is None else parts)


def result_rules(name: str | None, result: Path, data: dict[str, Any], task: Task) -> Rules:
    """Return the rules to price a saved mapping under: ``--rules``, else the result's own.

    A result without rules is priced under those of the file, as by `crosstack.optimise`.
    """
    from crosstack.model.rules import MAPPED, chosen_rules, rules_named

    given = rules_given(name)
    saved = data.get("rules")
    if given is not None or saved is None:
        return chosen_rules(given, MAPPED, otherwise=task.rules)
    try:
        if not isinstance(saved, str):
            raise InputError(Problem("rules", "not a name; allowed: the name of a rule set."))
        return rules_named(saved, MAPPED)
    except InputError as error:
        hint = " Rules that are not built in are given with --rules FILE."
        raise InputError(
            Problem(f"{result}: {p.path}", f"{p.message}{hint}") for p in error.problems
        ) from None


def read_result(path: Path) -> dict[str, Any]:
    """Return the JSON object in a file saved with ``--json``."""
    from crosstack.io.files import read_text

    try:
        data = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        where = f"{path}: line {error.lineno}, column {error.colno}"
        allowed = "allowed: a file saved with --json"
        raise InputError(Problem(where, f"not JSON: {error.msg}; {allowed}.")) from None
    except RecursionError:
        raise InputError(Problem(str(path), "not a result: nested too deep.")) from None
    except ValueError as error:  # a whole number of more digits than Python converts
        if isinstance(error, InputError):
            raise
        raise InputError(Problem(str(path), "not a result: a number is too long.")) from None
    if not isinstance(data, dict):
        raise InputError(Problem(str(path), "not a result; allowed: a file saved with --json."))
    return data


class Saved(Enum):
    """Which command saved a result."""

    MAPPING = "map"
    PREDICTION = "predict"
    FRONT = "codesign"
    OPTIMUM = "optimize"


def saved_kind(path: Path, data: dict[str, Any]) -> tuple[Saved, dict[str, Any]]:
    """Return what a saved result is, and it checked; a mapping is checked with its task."""
    from crosstack.io.saved_file import (
        check_front,
        check_optimum,
        check_prediction,
        is_front,
        is_optimum,
        is_prediction,
    )

    with in_file(path):
        if is_front(data):
            return Saved.FRONT, check_front(data)
        if is_optimum(data):
            return Saved.OPTIMUM, check_optimum(data)
        if is_prediction(data):
            return Saved.PREDICTION, check_prediction(data)
    return Saved.MAPPING, data


def result_answer(result: Path, data: dict[str, Any], file: Path | None, rules: str | None) -> Plan:
    """Return a saved result with its task, which it holds or which is in a file of its own."""
    import crosstack
    from crosstack.evaluate.plan import saved_plan
    from crosstack.io.native import read_task

    if file is not None:
        task = crosstack.load(file)
    elif isinstance(data.get("task"), str):
        with in_file(result):
            task = read_task(data["task"], "task")
    else:
        message = "missing from the result; give the file that was mapped with --task."
        raise InputError(Problem(f"{result}: task", message))
    chosen = result_rules(rules, result, data, task)
    with in_file(result):
        return saved_plan(data, task, rules=chosen)


def check_outputs(
    source: Path | None, outputs: dict[str, Path | None], *, folders: bool = False
) -> None:
    """Refuse places that cannot be written, before hours are spent on what goes there.

    Parameters
    ----------
    source : Path or None
        The file that is read: it is never overwritten.
    outputs : dict
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
        reason = _why_not(path, real, taken.get(real), folders)
        if reason:
            problems.append(Problem(f"{option} {path}", f"cannot be written: {reason}."))
        taken[real] = f"what {option} writes"
    if problems:
        raise InputError(problems)


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
