"""``crosstack generate``: ready-made workloads, written to a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any, get_type_hints

import typer

import crosstack
from crosstack.cli.inputs import YAML_SUFFIXES, check_outputs, check_suffix, options_named
from crosstack.cli.options import add_commands, as_command, flags, known_options, option
from crosstack.cli.outputs import task_text, write
from crosstack.errors import InputError, Problem
from crosstack.workload.dlrm_graph import recommendation_graph
from crosstack.workload.dtype import Dtype
from crosstack.workload.fft_graph import fourier_graph
from crosstack.workload.job import Job, JobKind
from crosstack.workload.ssm_graph import hyena_graph, mamba_graph

NO_KERNEL = "the generated workload has no such kernel."
generate_app = typer.Typer(no_args_is_help=True, help="Write a ready-made workload to a file.")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOptions:
    """Where a workload goes, and with which machine."""

    system: Path | None = None
    output: Path | None = None

    def write(self, made: Callable[[], crosstack.Workload], options: dict[str, str]) -> None:
        """Write a workload alone, or with the machine of a file; problems named by options."""
        from crosstack.io.native import write_workload

        if self.output is not None:
            check_suffix("--output", self.output, YAML_SUFFIXES)
            check_outputs(self.system, {"--output": self.output})
        with options_named(options):
            workload = made()
        note = ""
        if self.system is None:
            text = write_workload(workload)
            note = "; add a system section (see examples/) to map it"
        else:
            text = task_text(_on_machine(workload, self.system), self.output)
        if self.output is None:
            typer.echo(text, nl=False)
        else:
            write((self.output, text), note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShapeOptions:
    """A transformer by name, with some of its fields changed, or a shape of one's own."""

    model: str | None = None
    batch: int = 1
    hidden: int | None = None
    heads: int | None = None
    kv_heads: int | None = None
    head_size: int | None = None
    feed_forward: int | None = None
    layers: int | None = None
    vocabulary: int | None = None
    gated: bool | None = None
    block: str = ""
    dtype: Dtype = Dtype.BF16

    def job(self, kind: JobKind, **given: Any) -> crosstack.Workload:
        """Return something done with the model."""
        from crosstack.io.transformers import SHAPE, shaped

        own = asdict(self)
        shape = {field: own.pop(field) for field in SHAPE}
        changes = {field: value for field, value in shape.items() if value is not None}
        model = shaped(own.pop("model"), changes, "transformer")
        return Job(model=model, kind=kind, **own, **given).workload


def llm(*, sequence: int, shape: ShapeOptions, forward: bool = False, places: PlaceOptions) -> None:
    """Write the training of a transformer, or its forward pass, as native YAML."""
    kind = JobKind.FORWARD if forward else JobKind.TRAIN
    said = flags("generate llm", ("sequence", *asdict(shape)))
    places.write(lambda: shape.job(kind, sequence=sequence), said)


def prefill(*, sequence: int, shape: ShapeOptions, places: PlaceOptions) -> None:
    """Write the reading of a prompt by a transformer."""
    said = flags("generate prefill", ("sequence", *asdict(shape)))
    places.write(lambda: shape.job(JobKind.PREFILL, sequence=sequence), said)


def decode(*, context: int, sequence: int = 1, shape: ShapeOptions, places: PlaceOptions) -> None:
    """Write one step of a transformer that writes token after token."""
    said = flags("generate decode", ("context", "sequence", *asdict(shape)))
    places.write(lambda: shape.job(JobKind.DECODE, context=context, sequence=sequence), said)


add_commands(generate_app, "generate", llm, prefill, decode)


def _of_sizes(
    command: str, make: Callable[..., crosstack.Workload], graph: Callable[..., Any], does: str
) -> Callable[..., None]:
    """Return a command that makes a workload, with what its ``graph`` is made of as options.

    What the catalogue does not name stays as it is there.
    """
    known, hints = known_options(command), get_type_hints(graph)
    sizes = {n: p.default for n, p in signature(graph).parameters.items() if n in known}
    taken = [option(command, name, hints[name], default) for name, default in sizes.items()]
    if "training" in signature(make).parameters:
        taken.append(option(command, "forward", bool, False))
    taken += [option(command, name, Path | None, None) for name in ("system", "output")]

    def run(system: Path | None, output: Path | None, **given: Any) -> None:
        if "forward" in given:
            given["training"] = not given.pop("forward")
        PlaceOptions(system=system, output=output).write(
            lambda: make(**given), flags(command, sizes)
        )

    return as_command(command, run, taken, does)


for _name, _make, _graph, _does in (
    (
        "dlrm",
        crosstack.dlrm,
        recommendation_graph,
        "Write a recommendation model: perceptron layers around embedding tables.",
    ),
    (
        "fft",
        crosstack.fft,
        fourier_graph,
        "Write a Fourier transform of many points: columns, then rows.",
    ),
    ("mamba", crosstack.mamba, mamba_graph, "Write a model of selective state spaces, forward."),
    ("hyena", crosstack.hyena, hyena_graph, "Write a model of long convolutions, forward."),
):
    generate_app.command(_name)(_of_sizes(f"generate {_name}", _make, _graph, _does))


def _on_machine(workload: crosstack.Workload, system: Path) -> crosstack.Task:
    """Return the workload with the machine, constraints and rules of a file."""
    from crosstack.io.files import read_text
    from crosstack.io.native import read_system_alone

    if system.suffix.lower() in YAML_SUFFIXES:
        alone = read_system_alone(read_text(system), str(system))
        if alone is not None:
            return crosstack.Task(workload=workload, system=alone)
    task = replace(crosstack.load(system), workload=workload)
    problems = [
        Problem(f"{system}: constraints.{section}.{kernel}", NO_KERNEL)
        for section in ("partitions", "sharding")
        for kernel, _ in getattr(task.constraints, section)
        if kernel not in workload.graph.index
    ]
    if problems:
        raise InputError(problems)
    return task
