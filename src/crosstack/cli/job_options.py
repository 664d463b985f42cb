"""What a command maps: the task of a file, or a model by name with what is done with it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crosstack.cli.inputs import MACHINE, in_file, library_system, loaded_task, options_named
from crosstack.errors import InputError, Problem, unknown_name
from crosstack.workload.dtype import Dtype
from crosstack.workload.transformer_training import Recompute, Schedule

if TYPE_CHECKING:
    from crosstack.mapping.mapping import Constraints, Task

__all__ = ["FileOrModel", "GivenOptions", "JobOptions", "asked_task", "said_by"]

SUFFIXES = (".yaml", ".yml", ".txt", ".pbtxt")  # of files that hold a task

FileOrModel = Annotated[
    Path,
    typer.Argument(
        metavar="FILE|MODEL",
        help="Native YAML or DFModel text; or, with --on, one of `crosstack show library models` "
        "or a config.json of the Hugging Face Hub.",
    ),
]
Count = int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What is done with a model, and how much of it."""

    train: Annotated[
        bool, typer.Option("--train", help="A MODEL's step of training; so if nothing is said.")
    ] = False
    prefill: Annotated[bool, typer.Option("--prefill", help="A MODEL reads prompts.")] = False
    decode: Annotated[
        bool, typer.Option("--decode", help="A MODEL writes the next token of sequences.")
    ] = False
    batch: Annotated[
        Count,
        typer.Option(
            "--batch",
            metavar="N",
            help="Sequences of an iteration; as published of its training, or 1 to serve.",
        ),
    ] = None
    sequence: Annotated[
        Count,
        typer.Option(
            "--sequence",
            metavar="N",
            help="Tokens of a sequence; as published of its training, or 1 to decode.",
        ),
    ] = None
    context: Annotated[
        Count, typer.Option("--context", metavar="N", help="With --decode: tokens kept of each.")
    ] = None
    dtype: Annotated[
        Dtype | None, typer.Option("--dtype", help="What a MODEL computes in; bf16 if left out.")
    ] = None

    def refuse(self) -> None:
        """Raise `InputError` for options that a file leaves no room for."""
        _refuse(self, "allowed with a model by name; a file says what is done (see --set).")

    def numbers(self) -> dict[str, Any]:
        """Return the fields of the job that are given, and its kind."""
        kinds = [kind for kind in ("train", "prefill", "decode") if getattr(self, kind)]
        if len(kinds) > 1:
            message = f"given with --{kinds[0]}; allowed: one of them."
            raise InputError(Problem(f"--{kinds[1]}", message))
        given = {"kind": kinds[0] if kinds else "train"}
        return given | {
            name: getattr(self, name) for name in ("batch", "sequence", "context", "dtype")
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOptions:
    """Decisions that are given and not searched."""

    parallel: Annotated[
        str | None,
        typer.Option(
            "--parallel",
            metavar="DEGREES",
            help="How many chips split tensors, layers and the batch, such as tp=8,pp=4,dp=16; "
            "one that is left out is searched.",
        ),
    ] = None
    microbatch_size: Annotated[
        Count,
        typer.Option(
            "--microbatch-size", metavar="N", help="Sequences a pipeline takes at a time."
        ),
    ] = None
    recompute: Annotated[
        Recompute | None,
        typer.Option("--recompute", help="What the backward pass computes again."),
    ] = None
    schedule: Annotated[
        Schedule | None, typer.Option("--schedule", help="Order of microbatches; 1f1b.")
    ] = None
    interleave: Annotated[
        Count,
        typer.Option("--interleave", metavar="N", help="Pieces of every stage over the model."),
    ] = None

    def refuse(self) -> None:
        """Raise `InputError` for options that a saved result leaves no room for."""
        _refuse(self, "allowed with a task; a saved result is as it is.")

    def over(self, constraints: Constraints) -> Constraints:
        """Return constraints with what the options give."""
        from crosstack.mapping.degrees import parse_degrees

        given = {f.name: getattr(self, f.name) for f in fields(self)}
        changes = {name: value for name, value in given.items() if value is not None}
        with options_named(_WORDS):
            if "parallel" in changes:
                changes["degrees"] = parse_degrees(changes.pop("parallel"))
            return replace(constraints, **changes)


def _refuse(options: JobOptions | GivenOptions, message: str) -> None:
    for field in fields(options):
        if getattr(options, field.name) not in (None, False):
            raise InputError(Problem(f"--{field.name.replace('_', '-')}", message))


# How a problem of a job, a machine or a constraint is said by the option that gave it.
_CONSTRAINTS = {
    "degrees": "--parallel",
    "microbatch_size": "--microbatch-size",
    "recompute": "--recompute",
    "schedule": "--schedule",
    "interleave": "--interleave",
}
_WORDS = {
    **_CONSTRAINTS,
    **{f"constraints.{field}": option for field, option in _CONSTRAINTS.items()},
    **{field: f"--{field}" for field in ("batch", "sequence", "context", "dtype")},
    **MACHINE,
    "workload.global_batch_size": "--batch",
    "system.chip.rates": "--dtype",
}


def said_by(file: Path) -> AbstractContextManager[None]:
    """Say problems of a task by the options that it is of, or under the name of its file."""
    return options_named(_WORDS) if _is_model(file) else in_file(file)


def _is_model(file: Path) -> bool:
    from crosstack.io.library import names

    if file.suffix.lower() == ".json" or str(file) in names("models"):
        return True
    return len(file.parts) == 1 and file.suffix.lower() not in SUFFIXES and not file.exists()


def asked_task(
    file: Path,
    set_: list[str] | None,
    on: str | None,
    chips: int | None,
    fabric: str | None,
    job: JobOptions,
    given: GivenOptions,
) -> Task:
    """Return the task of a file, or of a model by name on a machine of the library.

    Parameters
    ----------
    file : Path
        A file, or the name of a model.
    set_ : list of str or None
        Changes of a file's fields.
    on, chips, fabric
        What the options say of the machine.
    job, given
        What they say of a model, and of decisions.

    Raises
    ------
    InputError
        If there is no such file or model, saying the nearest; if options contradict one another.
    """
    if _is_model(file):
        task = _task_of_model(file, set_, on, chips, fabric, job)
    else:
        job.refuse()
        task = loaded_task(file, set_, on, chips, fabric)
    return replace(task, constraints=given.over(task.constraints))


def _task_of_model(
    file: Path,
    set_: list[str] | None,
    on: str | None,
    chips: int | None,
    fabric: str | None,
    job: JobOptions,
) -> Task:
    from crosstack.io.library import names
    from crosstack.io.steps import job_named
    from crosstack.mapping.mapping import Task

    known = names("models")
    if file.suffix.lower() != ".json" and str(file) not in known:
        raise unknown_name("FILE|MODEL", "file or model is", str(file), known, "Models")
    if set_:
        raise InputError(Problem("--set", f"allowed with a file; {file} has options instead."))
    system = library_system(on, chips, fabric)
    if system is None:
        message = "required with a model: a machine of the library, such as h100-dgx."
        raise InputError(Problem("--on", message))
    with options_named(_WORDS):
        return Task(workload=job_named(str(file), **job.numbers()).workload, system=system)
