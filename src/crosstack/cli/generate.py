"""``crosstack generate``: ready-made workloads, written to a file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from inspect import Parameter, Signature
from pathlib import Path
from typing import Annotated, Any

import typer

import crosstack
from crosstack.cli.inputs import check_number, check_outputs, options_named
from crosstack.cli.outputs import (
    DFMODEL_SUFFIXES,
    YAML_SUFFIXES,
    check_suffix,
    task_text,
    write,
)
from crosstack.errors import InputError, Problem
from crosstack.published.dfmodel.graphs.ssm import hyena, mamba
from crosstack.workload.ssm_graph import Convolution, Scan

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


def _llm(**given: Any) -> crosstack.Workload:
    """Return a transformer whose heads share its width where theirs is left out."""
    if given["head_size"] is None:
        hidden, heads = given["hidden"], given["n_heads"]
        check_number("--hidden", hidden, hidden >= 1, "a whole number, at least 1")
        divides = 1 <= heads <= hidden and hidden % heads == 0
        check_number("--heads", heads, divides, f"a divisor of --hidden {hidden}, or --head-size")
        given["head_size"] = hidden // heads
    return crosstack.llm(**given)


def _served(phase: str) -> Callable[..., crosstack.Workload]:
    """Return what makes a phase of serving a model with some of its fields changed."""

    def made(model: str, **given: Any) -> crosstack.Workload:
        from crosstack.io.transformers import transformer
        from crosstack.workload import serving

        own = {size.field: given.pop(size.field) for size in SHAPE}
        changes = {field: value for field, value in own.items() if value is not None}
        workload: crosstack.Workload = getattr(serving, phase)(
            replace(transformer(model), **changes), **given
        )
        return workload

    return made


WORD, WIDE_WORD = (Size("word", "Bytes of an element.", default) for default in (2, 8))
FORWARD = Size("forward", "Forward pass only.", False, kind=bool, metavar=None)
PLACES = (
    Size("system", "Take the machine and constraints from this file.", None, kind=Path | None,
         metavar="FILE"),
    Size("output", "Write here instead of printing.", None, kind=Path | None,
         metavar="FILE", short="-o"),
)  # fmt: skip
HIDDEN = Size("hidden", "Model width.")
SEQUENCE = Size("sequence_length", "Tokens of a sequence.", called="--sequence")
LAYERS = Size("n_layers", "Layers of the model.", 1, "--layers")
BATCH = Size("global_batch_size", "Sequences of one iteration.", 1, "--batch")
STATES = Size("state_size", "States of one channel of a recurrence.", 16)
SCAN = Size("scan", "How a recurrence is computed.", Scan.PARALLEL, kind=Scan, metavar=None)
MODEL = Size("model", "A model of `crosstack show library models`, or a config.json.", kind=str,
             metavar="NAME|FILE")  # fmt: skip
SHAPE = (
    *(
        Size(field, words, None, kind=int | None)
        for field, words in (
            ("hidden", "Model width, if not its own."),
            ("heads", "Query heads."),
            ("kv_heads", "Heads of keys and values; a divisor of --heads."),
            ("head_size", "Width of a head."),
            ("feed_forward", "Width inside the feed-forward network."),
            ("layers", "Layers of the model."),
        )
    ),
    Size("gated", "Whether that network is gated (SwiGLU).", None, "--gated/--plain",
         kind=bool | None, metavar=None),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Generator:
    """A command: what makes its workload, of which sizes; ``text`` is its help."""

    make: Callable[..., crosstack.Workload]
    sizes: tuple[Size, ...]
    text: str


GENERATORS = {
    "llm": Generator(
        _llm,
        (
            HIDDEN,
            Size("n_heads", "Attention heads.", called="--heads"),
            SEQUENCE,
            LAYERS,
            BATCH,
            Size("head_size", "Width of a head; hidden / heads if left out.", None,
                 kind=int | None),
            Size("layers_in_graph", "Layers the graph spells out.", 1),
            WORD,
            FORWARD,
        ),
        """Write a transformer, kernel by kernel, as native YAML or (by suffix .txt) DFModel text.

        Without `--system` only the workload section is written, to be completed by hand.

        Example: `crosstack generate llm --hidden 4096 --heads 32 --sequence 2048 -o llama.yaml`
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
            Size("samples", "Samples a chip works on at a time."),
            Size("global_batch_size", "Batches of so many samples in one iteration.", 1,
                 "--batch"),
            Size("pooled_rows", "Rows of each table that a sample looks up.", 1),
            WORD,
            FORWARD,
        ),
        """Write a recommendation model: perceptron layers and an exchange of embeddings.

        Example: `crosstack generate dlrm --width 3375 --bottom 10 --top 10 --tables 600
        --rows 14211469 --embedding-size 93 --samples 512 --pooled-rows 15 -o dlrm.yaml`
        """,
    ),
    "hpl": Generator(
        crosstack.hpl,
        (
            Size("size", "Rows of the matrix."),
            Size("block", "Columns of a panel."),
            Size("iterations", "Iterations; all of them if left out.", None, kind=int | None),
            WIDE_WORD,
        ),
        """Write the factorisation of a dense matrix, one kernel a panel.

        Example: `crosstack generate hpl --size 262144 --block 4096 -o hpl.yaml`
        """,
    ),
    "fft": Generator(
        crosstack.fft,
        (Size("length", "Points."), Size("radix", "Points of one butterfly.", 2), WIDE_WORD),
        """Write a Fourier transform of many points: columns, a transpose, rows.

        Example: `crosstack generate fft --length 1099511627776 --radix 32 -o fft.yaml`
        """,
    ),
    "prefill": Generator(
        _served("prefill"),
        (
            Size("tokens", "Tokens of a prompt."),
            MODEL,
            Size("global_batch_size", "Prompts of one iteration.", 1, "--batch"),
            *SHAPE,
            WORD,
        ),
        """Write the reading of a prompt by a transformer.

        Example: `crosstack generate prefill --model llama3-8b --tokens 4096 -o prefill.yaml`
        """,
    ),
    "decode": Generator(
        _served("decode"),
        (
            Size("context", "Tokens whose keys and values are kept."),
            MODEL,
            Size("tokens", "New tokens of a step.", 1),
            Size("global_batch_size", "Sequences written at once.", 1, "--batch"),
            Size("chips", "Write down what each of N tensor-parallel chips reads, for rules that "
                 "count no reading of weights.", None, kind=int | None),
            *SHAPE,
            WORD,
        ),
        """Write one step of a transformer that writes token after token.

        Example: `crosstack generate decode --model llama3-8b --context 4096 -o decode.yaml`
        """,
    ),
    "mamba": Generator(
        mamba,
        (
            HIDDEN,
            SEQUENCE,
            LAYERS,
            BATCH,
            STATES,
            Size("expansion", "Channels over model width.", 2),
            Size("filter_size", "Taps of the convolution.", 4),
            SCAN,
            WORD,
        ),
        """Write a model of selective state spaces, forward.

        Example: `crosstack generate mamba --hidden 4096 --sequence 4096 --layers 32 -o mamba.yaml`
        """,
    ),
    "hyena": Generator(
        hyena,
        (
            HIDDEN,
            SEQUENCE,
            LAYERS,
            BATCH,
            Size("convolution", "How the long convolutions are computed.", Convolution.FFT_GEMM,
                 kind=Convolution, metavar=None),
            STATES,
            Size("filter_size", "Taps of the short ones.", 3),
            SCAN,
            WORD,
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
        check_suffix("--output", output, (*YAML_SUFFIXES, *DFMODEL_SUFFIXES))
        check_outputs(system, {"--output": output})
        if system is None:
            check_suffix("--output", output, YAML_SUFFIXES, "; DFModel text needs --system FILE")


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
