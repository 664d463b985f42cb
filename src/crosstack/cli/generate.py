"""``crosstack generate``: ready-made workloads, written to a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

import crosstack
from crosstack.cli.inputs import check_outputs, options_named
from crosstack.cli.outputs import (
    YAML_SUFFIXES,
    check_suffix,
    task_text,
    write,
)
from crosstack.errors import InputError, Problem
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import Job, JobKind
from crosstack.workload.ssm_graph import Convolution

__all__ = ["generate_app"]

generate_app = typer.Typer(no_args_is_help=True, help="Write a ready-made workload to a file.")

REQUIRED = Parameter.empty


@dataclass(frozen=True, slots=True)
class Size:
    """A field of a workload as an option; ``called`` where its name is not that of the field."""

    field: str
    help: str
    default: Any = REQUIRED
    called: str = ""
    kind: Any = int
    metavar: str | None = "N"
    short: str = ""

    @property
    def option(self) -> str:
        """Its name on the command line."""
        return self.called or f"--{self.field.replace('_', '-')}"

    @property
    def parameter(self) -> Parameter:
        """It, as typer reads it of a function."""
        names = (name for name in (self.short, self.option) if name)
        option = typer.Option(*names, metavar=self.metavar, help=self.help)
        return Parameter(
            self.field,
            Parameter.KEYWORD_ONLY,
            default=self.default,
            annotation=Annotated[self.kind, option],
        )


def _job(kind: JobKind) -> Callable[..., crosstack.Workload]:
    """Return what does something with a model with some of its fields changed, or of a shape."""

    def made(model: str | None, training: bool = True, **given: Any) -> crosstack.Workload:
        from crosstack.io.transformers import SHAPE, shaped

        own = {field: given.pop(field) for field in SHAPE}
        changes = {field: value for field, value in own.items() if value is not None}
        done = kind if training else JobKind.FORWARD
        return Job(model=shaped(model, changes, "transformer"), kind=done, **given).workload

    return made


FORWARD = Size("forward", "Forward pass only.", False, kind=bool, metavar=None)
PLACES = (
    Size("system", "Take the machine and constraints from this file.", None, kind=Path | None,
         metavar="FILE"),
    Size("output", "Write here instead of printing.", None, kind=Path | None,
         metavar="FILE", short="-o"),
)  # fmt: skip
HIDDEN = Size("hidden", "Model width.")
SEQUENCE = Size("sequence", "Tokens of a sequence.")
LAYERS = Size("layers", "Layers of the model.", 1)
BATCH = Size("batch", "Sequences of one iteration.", 1)
STATES = Size("state_size", "States of one channel of a recurrence.", 16)
DTYPE, SINGLE = (
    Size("dtype", "What it is computed in.", dtype, kind=Dtype, metavar=None)
    for dtype in (Dtype.BF16, Dtype.FP32)
)
TRANSFORMER = (
    Size("model", "A model of `crosstack show library models`, or a config.json; left out with "
         "--hidden, --layers and --heads.", None, kind=str | None, metavar="NAME|FILE"),
    BATCH,
    *(
        Size(field, words, None, kind=int | None)
        for field, words in (
            ("hidden", "Model width, if not its own."),
            ("heads", "Query heads."),
            ("kv_heads", "Heads of keys and values; a divisor of --heads."),
            ("head_size", "Width of a head."),
            ("feed_forward", "Width inside the feed-forward network."),
            ("layers", "Layers of the model."),
            ("vocabulary", "Tokens known."),
        )
    ),
    Size("gated", "Whether that network is gated (SwiGLU).", None, "--gated/--plain",
         kind=bool | None, metavar=None),
    Size("block", "Which layers, where a model has several kinds; those that repeat most.", "",
         kind=str, metavar="NAME"),
    DTYPE,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Generator:
    """A command: what makes its workload, of which sizes; ``text`` is its help."""

    make: Callable[..., crosstack.Workload]
    sizes: tuple[Size, ...]
    text: str


GENERATORS = {
    "llm": Generator(
        _job(JobKind.TRAIN),
        (SEQUENCE, *TRANSFORMER, FORWARD),
        """Write the training of a transformer, or its forward pass, as native YAML.

        Without `--system` only the workload section is written, to be completed by hand.

        Example: `crosstack generate llm --model llama3-8b --sequence 4096 --batch 64 -o llama.yaml`
        """,
    ),
    "prefill": Generator(
        _job(JobKind.PREFILL),
        (Size("sequence", "Tokens of a prompt."), *TRANSFORMER),
        """Write the reading of a prompt by a transformer.

        Example: `crosstack generate prefill --model llama3-8b --sequence 4096 -o prefill.yaml`
        """,
    ),
    "decode": Generator(
        _job(JobKind.DECODE),
        (
            Size("context", "Tokens whose keys and values are kept."),
            Size("sequence", "New tokens of a step.", 1, "--tokens"),
            *TRANSFORMER,
        ),
        """Write one step of a transformer that writes token after token.

        Example: `crosstack generate decode --model llama3-8b --context 4096 -o decode.yaml`
        """,
    ),
    "dlrm": Generator(
        crosstack.dlrm,
        (
            Size("width", "Width of every perceptron layer."),
            Size("n_bottom", "Layers before the embeddings.", called="--bottom"),
            Size("n_top", "Layers after the embeddings.", called="--top"),
            Size("n_tables", "Embedding tables.", called="--tables"),
            Size("rows", "Rows of a table."),
            Size("embedding_size", "Numbers in a row."),
            Size("samples", "Samples of one iteration."),
            Size("pooled_rows", "Rows of each table that a sample looks up.", 1),
            DTYPE,
            FORWARD,
        ),
        """Write a recommendation model: perceptron layers around embedding tables.

        Example: `crosstack generate dlrm --width 1024 --bottom 4 --top 6 --tables 128
        --rows 1000000 --embedding-size 64 --samples 65536 --pooled-rows 8 -o dlrm.yaml`
        """,
    ),
    "fft": Generator(
        crosstack.fft,
        (Size("length", "Points."), Size("radix", "Points of one butterfly.", 2), SINGLE),
        """Write a Fourier transform of many points: columns, then rows.

        Example: `crosstack generate fft --length 1099511627776 --radix 32 -o fft.yaml`
        """,
    ),
    "mamba": Generator(
        crosstack.mamba,
        (
            HIDDEN,
            SEQUENCE,
            LAYERS,
            BATCH,
            STATES,
            Size("expansion", "Channels over model width.", 2),
            Size("filter_size", "Taps of the convolution.", 4),
            DTYPE,
        ),
        """Write a model of selective state spaces, forward.

        Example: `crosstack generate mamba --hidden 4096 --sequence 4096 --layers 32 -o mamba.yaml`
        """,
    ),
    "hyena": Generator(
        crosstack.hyena,
        (
            HIDDEN,
            SEQUENCE,
            LAYERS,
            BATCH,
            Size("convolution", "How the long convolutions are computed.", Convolution.FFT_GEMM,
                 kind=Convolution, metavar=None),
            STATES,
            Size("filter_size", "Taps of the short ones.", 3),
            DTYPE,
        ),
        """Write a model of long convolutions, forward.

        Example: `crosstack generate hyena --hidden 4096 --sequence 4096 --convolution scan
        -o h.yaml`
        """,
    ),
}  # fmt: skip
"""Every workload that a command makes, by its name."""


def _command(generator: Generator) -> Callable[..., None]:
    """Return the function that typer makes a command of."""
    sizes = (*generator.sizes, *PLACES)

    def command(system: Path | None, output: Path | None, **given: Any) -> None:
        _check_output(system, output)
        if "forward" in given:
            given["training"] = not given.pop("forward")
        with options_named({size.field: size.option for size in generator.sizes}):
            workload = generator.make(**given)
        _write(workload, system, output)

    parameters = [size.parameter for size in sizes]
    command.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__doc__ = generator.text
    return command


for _name, _generator in GENERATORS.items():
    generate_app.command(_name)(_command(_generator))


def _check_output(system: Path | None, output: Path | None) -> None:
    if output is not None:
        check_suffix("--output", output, YAML_SUFFIXES)
        check_outputs(system, {"--output": output})


def _write(workload: crosstack.Workload, system: Path | None, output: Path | None) -> None:
    """Write a workload alone, or with the machine of a file."""
    from crosstack.io.native import write_workload

    if system is None:
        text, note = write_workload(workload), "; add a system section (see examples/) to map it"
    else:
        text, note = task_text(_on_machine(workload, system), output), ""
    if output is None:
        typer.echo(text, nl=False)
    else:
        write((output, text), note=note)


def _on_machine(workload: crosstack.Workload, system: Path) -> crosstack.Task:
    """Return the workload with the machine, constraints and rules of a file."""
    from crosstack.io.files import read_text
    from crosstack.io.native import read_system_alone

    if system.suffix.lower() in YAML_SUFFIXES:
        alone = read_system_alone(read_text(system), str(system))
        if alone is not None:
            return crosstack.Task(workload=workload, system=alone)
    task = replace(crosstack.load(system), workload=workload)
    pins = {
        f"constraints.{section}.{kernel}": kernel
        for section in ("partitions", "sharding")
        for kernel, _ in getattr(task.constraints, section)
    }
    problems = [
        Problem(f"{system}: {path}", "the generated workload has no such kernel.")
        for path, kernel in pins.items()
        if kernel not in workload.graph.index
    ]
    if problems:
        raise InputError(problems)
    return task
