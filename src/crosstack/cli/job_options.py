"""What a command maps: the task of a file, or a model by name with what is done with it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstack.cli.inputs import MACHINE, MachineOptions, in_file, options_named, refuse, zero_given
from crosstack.errors import InputError, Problem, unknown_name
from crosstack.workload.dtype import Dtype
from crosstack.workload.transformer_training import (
    ContextExchange,
    Schedule,
    offload_named,
    overlap_named,
    recompute_named,
)

if TYPE_CHECKING:
    from crosstack.mapping.mapping import Constraints, Task

SUFFIXES = (".yaml", ".yml", ".txt", ".pbtxt")  # of files that hold a task


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """What is done with a model, and how much of it."""

    train: bool = False
    prefill: bool = False
    decode: bool = False
    batch: int | None = None
    sequence: int | None = None
    context: int | None = None
    dtype: Dtype | None = None
    expert_imbalance: float | None = None
    expert_dispatch: Dtype | None = None
    packed: int | None = None
    gradients: str | None = None
    optimizer: str | None = None

    def refuse(self) -> None:
        """Raise `InputError` for options that a file leaves no room for."""
        message = "allowed with a model by name; a file says what is done (see --set)."
        options = {f"--{name.replace('_', '-')}": value for name, value in asdict(self).items()}
        refuse(options, message)

    def numbers(self) -> dict[str, Any]:
        """Return the fields of the job that are given, and its kind."""
        kinds = [kind for kind in ("train", "prefill", "decode") if getattr(self, kind)]
        if len(kinds) > 1:
            message = f"given with --{kinds[0]}; allowed: one of them."
            raise InputError(Problem(f"--{kinds[1]}", message))
        names = (
            "batch", "sequence", "context", "dtype", "expert_imbalance", "expert_dispatch",
            "packed", "gradients", "optimizer",
        )  # fmt: skip
        given = {name: getattr(self, name) for name in names}
        return {"kind": kinds[0] if kinds else "train", **given}


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenOptions:
    """Decisions that are given and not searched."""

    given: str | None = None
    microbatch_size: int | None = None
    recompute: str | None = None
    schedule: Schedule | None = None
    interleave: int | None = None
    zero: str | None = None
    context_exchange: ContextExchange | None = None
    overlap: str | None = None
    offload: str | None = None

    def refuse(self) -> None:
        """Raise `InputError` for options that a saved result leaves no room for."""
        options = {f"--{name.replace('_', '-')}": value for name, value in asdict(self).items()}
        refuse(options, "allowed with a task; a saved result is as it is.")

    def over(self, constraints: Constraints) -> Constraints:
        """Return constraints with what the options give."""
        from crosstack.mapping.degrees import parse_degrees
        from crosstack.mapping.given import split_given

        alone = asdict(self) | {"zero": zero_given(self.zero)}
        changes = {name: value for name, value in alone.items() if value is not None}
        with options_named(_WORDS):
            if self.overlap is not None:
                changes["overlap"] = overlap_named(self.overlap)
            if "given" in changes:
                degrees, decided = split_given(changes.pop("given"), changes)
                changes |= decided
                if degrees:
                    changes["degrees"] = parse_degrees(degrees)
            if "offload" in changes:
                changes["offload"] = offload_named(changes["offload"])
            if "recompute" in changes:
                changes |= _recomputed(changes["recompute"])
            return replace(constraints, **changes)


def _recomputed(said: str) -> dict[str, Any]:
    """Return what is computed again, and in how many layers, of its text."""
    return dict(zip(("recompute", "recompute_layers"), recompute_named(said), strict=True))


# How a problem of a job, a machine or a constraint is said by the option that gave it.
_CONSTRAINTS = {
    "degrees": "--given",
    "microbatch_size": "--microbatch-size",
    "recompute": "--recompute",
    "recompute_layers": "--recompute",
    "schedule": "--schedule",
    "interleave": "--interleave",
    "zero": "--zero",
    "context_exchange": "--context-exchange",
    "overlap": "--overlap",
    "offload": "--offload",
}
_WORDS = {
    "given": "--given",
    **_CONSTRAINTS,
    **{f"constraints.{field}": option for field, option in _CONSTRAINTS.items()},
    **{f: f"--{f}" for f in ("batch", "sequence", "context", "dtype", "packed")},
    **{f: f"--{f}" for f in ("gradients", "optimizer")},
    "kind": "--train, --prefill or --decode",
    "expert_imbalance": "--expert-imbalance",
    "expert_dispatch": "--expert-dispatch",
    **MACHINE,
    "workload.global_batch_size": "--batch",
    "system.chip.rates": "--dtype",
    "top": "--top",
    "front": "--front",
    "objective": "--objective",
}


def said_by(file: Path) -> AbstractContextManager[None]:
    """Say problems of a task by the options that it is of, or under the name of its file."""
    return options_named(_WORDS) if _is_model(file) else in_file(file)


def _is_model(file: Path) -> bool:
    from crosstack.io.transformers import known_models

    if file.suffix.lower() == ".json" or str(file) in known_models():
        return True
    return len(file.parts) == 1 and file.suffix.lower() not in SUFFIXES and not file.exists()


def asked_task(
    file: Path,
    set_: list[str] | None,
    machine: MachineOptions,
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
    machine, job, given
        What the options say of the machine, of a model, and of decisions.
    """
    if _is_model(file):
        task = _task_of_model(str(file), set_, machine, job)
    else:
        job.refuse()
        task = machine.task(file, set_)
    return replace(task, constraints=given.over(task.constraints))


def _task_of_model(
    name: str, set_: list[str] | None, machine: MachineOptions, job: JobOptions
) -> Task:
    from crosstack.io.steps import job_named
    from crosstack.io.transformers import known_models
    from crosstack.mapping.mapping import Task

    known = known_models()
    if not name.lower().endswith(".json") and name not in known:
        raise unknown_name("FILE|MODEL", "file or model is", name, known, "Models")
    refuse({"--set": set_}, f"allowed with a file; {name} has options instead.")
    system = machine.system()
    if system is None:
        message = "required with a model: a machine of the library, such as h100-dgx."
        raise InputError(Problem("--on", message))
    with options_named(_WORDS):
        return Task(workload=job_named(name, **job.numbers()).workload, system=system)
