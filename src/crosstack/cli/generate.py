"""``crosstack generate``: ready-made workloads, written to a file."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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

if TYPE_CHECKING:
    from crosstack.workload.architectures import Transformer

__all__ = ["generate_app"]

generate_app = typer.Typer(no_args_is_help=True, help="Write a ready-made workload to a file.")

Word = Annotated[int, typer.Option(metavar="N", help="Bytes of an element.")]
Forward = Annotated[bool, typer.Option("--forward", help="Forward pass only.")]
SystemFile = Annotated[
    Path | None,
    typer.Option(
        "--system", metavar="FILE", help="Take the machine and constraints from this file."
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="FILE", help="Write here instead of printing."),
]


@generate_app.command("llm")
def generate_llm(
    hidden: Annotated[int, typer.Option(metavar="N", help="Model width.")],
    heads: Annotated[int, typer.Option(metavar="N", help="Attention heads.")],
    sequence: Annotated[int, typer.Option(metavar="N", help="Tokens of a sequence.")],
    layers: Annotated[int, typer.Option(metavar="N", help="Layers of the model.")] = 1,
    batch: Annotated[int, typer.Option(metavar="N", help="Sequences of one iteration.")] = 1,
    head_size: Annotated[
        int | None, typer.Option(metavar="N", help="Width of a head; hidden / heads if left out.")
    ] = None,
    layers_in_graph: Annotated[
        int, typer.Option(metavar="N", help="Layers the graph spells out.")
    ] = 1,
    word: Word = 2,
    forward: Forward = False,
    system: SystemFile = None,
    output: Output = None,
) -> None:
    """Write a transformer, kernel by kernel, as native YAML or (by suffix .txt) DFModel text.

    Without `--system` only the workload section is written, to be completed by hand.

    Example: `crosstack generate llm --hidden 4096 --heads 32 --sequence 2048 -o llama.yaml`
    """
    _check_output(system, output)
    if head_size is None:
        check_number("--hidden", hidden, hidden >= 1, "a whole number, at least 1")
        divides = 1 <= heads <= hidden and hidden % heads == 0
        check_number("--heads", heads, divides, f"a divisor of --hidden {hidden}, or --head-size")
        head_size = hidden // heads
    with options_named(_LLM_OPTIONS):
        workload = crosstack.llm(
            hidden=hidden,
            sequence_length=sequence,
            n_heads=heads,
            head_size=head_size,
            n_layers=layers,
            global_batch_size=batch,
            training=not forward,
            word=word,
            layers_in_graph=layers_in_graph,
        )
    _write(workload, system, output)


@generate_app.command("dlrm")
def generate_dlrm(
    width: Annotated[int, typer.Option(metavar="N", help="Width of every perceptron layer.")],
    bottom: Annotated[int, typer.Option(metavar="N", help="Layers before the embeddings.")],
    top: Annotated[int, typer.Option(metavar="N", help="Layers after the embeddings.")],
    tables: Annotated[int, typer.Option(metavar="N", help="Embedding tables.")],
    rows: Annotated[int, typer.Option(metavar="N", help="Rows of a table.")],
    embedding_size: Annotated[int, typer.Option(metavar="N", help="Numbers in a row.")],
    samples: Annotated[int, typer.Option(metavar="N", help="Samples a chip works on at a time.")],
    batch: Annotated[
        int, typer.Option(metavar="N", help="Batches of so many samples in one iteration.")
    ] = 1,
    pooled_rows: Annotated[
        int, typer.Option(metavar="N", help="Rows of each table that a sample looks up.")
    ] = 1,
    word: Word = 2,
    forward: Forward = False,
    system: SystemFile = None,
    output: Output = None,
) -> None:
    """Write a recommendation model: perceptron layers and an exchange of embeddings.

    Example: `crosstack generate dlrm --width 3375 --bottom 10 --top 10 --tables 600
    --rows 14211469 --embedding-size 93 --samples 512 --pooled-rows 15 -o dlrm.yaml`
    """
    _check_output(system, output)
    counts = {"n_bottom": "--bottom", "n_top": "--top", "n_tables": "--tables"}
    same = ("width", "rows", "embedding_size", "samples", "pooled_rows")
    with options_named(_named({**counts, "global_batch_size": "--batch"}, same)):
        workload = crosstack.dlrm(
            width=width,
            n_bottom=bottom,
            n_top=top,
            n_tables=tables,
            rows=rows,
            embedding_size=embedding_size,
            samples=samples,
            global_batch_size=batch,
            pooled_rows=pooled_rows,
            training=not forward,
            word=word,
        )
    _write(workload, system, output)


@generate_app.command("hpl")
def generate_hpl(
    size: Annotated[int, typer.Option(metavar="N", help="Rows of the matrix.")],
    block: Annotated[int, typer.Option(metavar="N", help="Columns of a panel.")],
    iterations: Annotated[
        int | None, typer.Option(metavar="N", help="Iterations; all of them if left out.")
    ] = None,
    word: Word = 8,
    system: SystemFile = None,
    output: Output = None,
) -> None:
    """Write the factorisation of a dense matrix, one kernel a panel.

    Example: `crosstack generate hpl --size 262144 --block 4096 -o hpl.yaml`
    """
    _check_output(system, output)
    with options_named(_named({}, ("size", "block", "iterations"))):
        workload = crosstack.hpl(size=size, block=block, iterations=iterations, word=word)
    _write(workload, system, output)


@generate_app.command("fft")
def generate_fft(
    length: Annotated[int, typer.Option(metavar="N", help="Points.")],
    radix: Annotated[int, typer.Option(metavar="N", help="Points of one butterfly.")] = 2,
    word: Word = 8,
    system: SystemFile = None,
    output: Output = None,
) -> None:
    """Write a Fourier transform of many points: columns, a transpose, rows.

    Example: `crosstack generate fft --length 1099511627776 --radix 32 -o fft.yaml`
    """
    _check_output(system, output)
    with options_named(_named({}, ("length", "radix"))):
        workload = crosstack.fft(length=length, radix=radix, word=word)
    _write(workload, system, output)


Model = Annotated[
    str,
    typer.Option(
        metavar="NAME|FILE", help="A model of `crosstack show library models`, or a config.json."
    ),
]
Hidden = Annotated[int | None, typer.Option(metavar="N", help="Model width, if not its own.")]
Heads = Annotated[int | None, typer.Option(metavar="N", help="Query heads.")]
KvHeads = Annotated[
    int | None, typer.Option(metavar="N", help="Heads of keys and values; a divisor of --heads.")
]
HeadSize = Annotated[int | None, typer.Option(metavar="N", help="Width of a head.")]
FeedForward = Annotated[
    int | None, typer.Option(metavar="N", help="Width inside the feed-forward network.")
]
Layers = Annotated[int | None, typer.Option(metavar="N", help="Layers of the model.")]
Gated = Annotated[
    bool | None, typer.Option("--gated/--plain", help="Whether that network is gated (SwiGLU).")
]


@generate_app.command("prefill")
def generate_prefill(
    tokens: Annotated[int, typer.Option(metavar="N", help="Tokens of a prompt.")],
    model: Model,
    batch: Annotated[int, typer.Option(metavar="N", help="Prompts of one iteration.")] = 1,
    hidden: Hidden = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    head_size: HeadSize = None,
    feed_forward: FeedForward = None,
    layers: Layers = None,
    gated: Gated = None,
    word: Word = 2,
    system: SystemFile = None,
    output: Output = None,
) -> None:
    """Write the reading of a prompt by a transformer.

    Example: `crosstack generate prefill --model llama3-8b --tokens 4096 -o prefill.yaml`
    """
    from crosstack.workload.serving import prefill

    _check_output(system, output)
    with options_named(_SERVING_OPTIONS):
        chosen = _transformer(
            model, hidden, heads, kv_heads, head_size, feed_forward, layers, gated
        )
        workload = prefill(chosen, tokens=tokens, global_batch_size=batch, word=word)
    _write(workload, system, output)


@generate_app.command("decode")
def generate_decode(
    context: Annotated[
        int, typer.Option(metavar="N", help="Tokens whose keys and values are kept.")
    ],
    model: Model,
    tokens: Annotated[int, typer.Option(metavar="N", help="New tokens of a step.")] = 1,
    batch: Annotated[int, typer.Option(metavar="N", help="Sequences written at once.")] = 1,
    chips: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Write down what each of N tensor-parallel chips reads, for rules that count no "
            "reading of weights.",
        ),
    ] = None,
    hidden: Hidden = None,
    heads: Heads = None,
    kv_heads: KvHeads = None,
    head_size: HeadSize = None,
    feed_forward: FeedForward = None,
    layers: Layers = None,
    gated: Gated = None,
    word: Word = 2,
    system: SystemFile = None,
    output: Output = None,
) -> None:
    """Write one step of a transformer that writes token after token.

    Example: `crosstack generate decode --model llama3-8b --context 4096 -o decode.yaml`
    """
    from crosstack.workload.serving import decode

    _check_output(system, output)
    with options_named(_SERVING_OPTIONS):
        chosen = _transformer(
            model, hidden, heads, kv_heads, head_size, feed_forward, layers, gated
        )
        workload = decode(
            chosen,
            context=context,
            tokens=tokens,
            global_batch_size=batch,
            word=word,
            chips=chips,
        )
    _write(workload, system, output)


Length = Annotated[int, typer.Option("--sequence", metavar="N", help="Tokens of a sequence.")]
Width = Annotated[int, typer.Option("--hidden", metavar="N", help="Model width.")]
Repeated = Annotated[int, typer.Option("--layers", metavar="N", help="Layers of the model.")]
Batch = Annotated[int, typer.Option("--batch", metavar="N", help="Sequences of one iteration.")]
States = Annotated[
    int, typer.Option("--state-size", metavar="N", help="States of one channel of a recurrence.")
]
ScanKind = Annotated[Scan, typer.Option("--scan", help="How a recurrence is computed.")]


@generate_app.command("mamba")
def generate_mamba(
    hidden: Width,
    sequence: Length,
    layers: Repeated = 1,
    batch: Batch = 1,
    state_size: States = 16,
    expansion: Annotated[int, typer.Option(metavar="N", help="Channels over model width.")] = 2,
    filter_size: Annotated[int, typer.Option(metavar="N", help="Taps of the convolution.")] = 4,
    scan: ScanKind = Scan.PARALLEL,
    word: Word = 2,
    system: SystemFile = None,
    output: Output = None,
) -> None:
    """Write a model of selective state spaces, forward.

    Example: `crosstack generate mamba --hidden 4096 --sequence 4096 --layers 32 -o mamba.yaml`
    """
    _check_output(system, output)
    with options_named(_STATE_SPACE_OPTIONS):
        workload = mamba(
            hidden=hidden,
            sequence_length=sequence,
            n_layers=layers,
            global_batch_size=batch,
            state_size=state_size,
            expansion=expansion,
            filter_size=filter_size,
            scan=scan,
            word=word,
        )
    _write(workload, system, output)


@generate_app.command("hyena")
def generate_hyena(
    hidden: Width,
    sequence: Length,
    layers: Repeated = 1,
    batch: Batch = 1,
    convolution: Annotated[
        Convolution, typer.Option(help="How the long convolutions are computed.")
    ] = Convolution.FFT_GEMM,
    state_size: States = 16,
    filter_size: Annotated[int, typer.Option(metavar="N", help="Taps of the short ones.")] = 3,
    scan: ScanKind = Scan.PARALLEL,
    word: Word = 2,
    system: SystemFile = None,
    output: Output = None,
) -> None:
    """Write a model of long convolutions, forward.

    Example: `crosstack generate hyena --hidden 4096 --sequence 4096 --convolution scan -o h.yaml`
    """
    _check_output(system, output)
    with options_named(_STATE_SPACE_OPTIONS):
        workload = hyena(
            hidden=hidden,
            sequence_length=sequence,
            n_layers=layers,
            global_batch_size=batch,
            convolution=convolution,
            state_size=state_size,
            filter_size=filter_size,
            scan=scan,
            word=word,
        )
    _write(workload, system, output)


_STATE_SPACE_OPTIONS = {
    "hidden": "--hidden",
    "sequence_length": "--sequence",
    "n_layers": "--layers",
    "global_batch_size": "--batch",
    "state_size": "--state-size",
    "expansion": "--expansion",
    "filter_size": "--filter-size",
    "word": "--word",
}


def _transformer(
    name: str,
    hidden: int | None,
    heads: int | None,
    kv_heads: int | None,
    head_size: int | None,
    feed_forward: int | None,
    layers: int | None,
    gated: bool | None,
) -> Transformer:
    """Return a model with what the options change."""
    from crosstack.io.transformers import transformer

    given: dict[str, Any] = {
        "hidden": hidden,
        "heads": heads,
        "kv_heads": kv_heads,
        "head_size": head_size,
        "feed_forward": feed_forward,
        "layers": layers,
        "gated": gated,
    }
    changes = {field: value for field, value in given.items() if value is not None}
    return replace(transformer(name), **changes)


_SERVING_OPTIONS = {
    "model": "--model",
    "hidden": "--hidden",
    "heads": "--heads",
    "kv_heads": "--kv-heads",
    "head_size": "--head-size",
    "feed_forward": "--feed-forward",
    "layers": "--layers",
    "tokens": "--tokens",
    "context": "--context",
    "chips": "--chips",
    "global_batch_size": "--batch",
    "word": "--word",
}


def _named(names: dict[str, str], same: tuple[str, ...]) -> dict[str, str]:
    """Return which option gives each field; those of ``same`` are called like their field."""
    called = {name: f"--{name.replace('_', '-')}" for name in (*same, "word")}
    return {**called, **names}


_LLM_OPTIONS = {
    "hidden": "--hidden",
    "n_heads": "--heads",
    "head_size": "--head-size",
    "sequence_length": "--sequence",
    "n_layers": "--layers",
    "layers_in_graph": "--layers-in-graph",
    "global_batch_size": "--batch",
    "word": "--word",
}


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
