"""``crosstack predict`` and ``crosstack trace``: the time of a step under a given strategy."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstack.cli.inputs import check_outputs, options_named
from crosstack.cli.outputs import show, write
from crosstack.cli.place import grid_of
from crosstack.errors import InputError, Problem

if TYPE_CHECKING:
    from crosstack.chip.hierarchy import ChipHierarchy
    from crosstack.evaluate.cluster import Cluster
    from crosstack.evaluate.predict import Prediction, Step
    from crosstack.io.deepflow import DeepflowHardware
    from crosstack.mapping.strategy import Strategy

__all__ = ["predict", "trace"]

Hardware = Annotated[
    Path, typer.Argument(metavar="FILE", help="Hardware in DeepFlow's YAML, with or without model.")
]
Gemm = Annotated[
    str | None, typer.Option("--gemm", metavar="M,K,N", help="One matrix product, M x K by K x N.")
]
Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        metavar="NAME|FILE",
        help="gpt-22b, gpt3-175b, gpt-530b, gpt-1t, lstm-lm, lstm-lm-40k, or a model in "
        "DeepFlow's YAML.",
    ),
]
Parallel = Annotated[
    str | None,
    typer.Option("--parallel", metavar="STRATEGY", help="RC-4-2-d8-p1 or CR-4-d8-p1."),
]
Batch = Annotated[int | None, typer.Option("--batch", metavar="N", help="Sequences of a step.")]
Sequence = Annotated[
    int | None, typer.Option("--sequence", metavar="N", help="Words of a sequence.")
]
Microbatches = Annotated[
    int | None,
    typer.Option("--microbatches", metavar="N", help="Parts of a replica's batch (transformers)."),
]
Package = Annotated[
    str | None,
    typer.Option(
        "--package",
        metavar="XxYxZ",
        help="Place the shards on packages of so many chips; otherwise the file says what is "
        "shared and what leaves a package.",
    ),
]
Packages = Annotated[
    str | None, typer.Option("--packages", metavar="XxYxZ", help="Packages along each axis.")
]
Torus = Annotated[
    bool, typer.Option("--torus", help="Join the last chip of every axis to the first.")
]
Set = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Change a field of FILE first."),
]
JsonOut = Annotated[
    Path | None, typer.Option("--json", metavar="OUT", help="Save the result as JSON.")
]


def predict(
    file: Hardware,
    gemm: Gemm = None,
    model: Model = None,
    parallel: Parallel = None,
    batch: Batch = None,
    sequence: Sequence = None,
    microbatches: Microbatches = None,
    package: Package = None,
    packages: Packages = None,
    torus: Torus = False,
    set_: Set = None,
    json_out: JsonOut = None,
) -> None:
    """Predict the time of a training step, or of one product, under a given strategy.

    Example: `crosstack predict v100.yaml --model lstm-lm-40k --batch 256 --parallel RC-1-1-d1-p1`
    """
    from crosstack.report.prediction_text import prediction_data, prediction_tables

    check_outputs(file, {"--json": json_out})
    workload = _workload(file, gemm, model, batch, sequence, microbatches, set_)
    found, chip = _predicted(file, workload, parallel, (package, packages, torus), set_)
    show(*prediction_tables(found, chip))
    if json_out is not None:
        write((json_out, json.dumps(prediction_data(found), indent=1) + "\n"))


def trace(
    file: Hardware,
    gemm: Gemm = None,
    model: Model = None,
    parallel: Parallel = None,
    batch: Batch = None,
    sequence: Sequence = None,
    microbatches: Microbatches = None,
    package: Package = None,
    packages: Packages = None,
    torus: Torus = False,
    set_: Set = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT", help="A trace for Perfetto or Chrome."),
    ] = None,
    svg_out: Annotated[
        Path | None, typer.Option("--svg", metavar="OUT", help="Save a Gantt chart.")
    ] = None,
) -> None:
    """Run a predicted step event by event and save when every kernel and transfer ran.

    Example: `crosstack trace v100.yaml --model lstm-lm-40k --parallel RC-1-1-d1-p4 -o trace.json`
    """
    from crosstack.report.prediction_text import prediction_tables
    from crosstack.report.timeline_figure import gantt_svg, trace_json

    check_outputs(file, {"--output": output, "--svg": svg_out})
    if output is None and svg_out is None:
        raise InputError(Problem("--output", "nothing to save; give --output OUT or --svg OUT."))
    workload = _workload(file, gemm, model, batch, sequence, microbatches, set_)
    found, chip = _predicted(file, workload, parallel, (package, packages, torus), set_)
    texts = []
    if output is not None:
        texts.append((output, trace_json(found.timelines)))
    if svg_out is not None:
        title = f"{workload.name} under {found.strategy} on {chip}"
        texts.append((svg_out, gantt_svg(found.timelines, title)))
    show(*prediction_tables(found, chip)[:2])
    write(*texts)


# ---------------------------------------------------------------- pieces


def _workload(
    file: Path,
    gemm: str | None,
    model: str | None,
    batch: int | None,
    sequence: int | None,
    microbatches: int | None,
    set_: list[str] | None,
) -> Step:
    """Return what the options ask for, or what the file holds."""
    from crosstack.workload.transformer_training import TransformerTraining

    if gemm is not None and model is not None:
        raise InputError(Problem("--gemm", "given with --model; allowed: one of them."))
    if gemm is not None:
        return _product(gemm)
    names = {"model": "--model", "batch": "--batch", "sequence": "--sequence"}
    with options_named(names | {"microbatches": "--microbatches"}):
        found = _model(file, model, set_)
        changes = {"batch": batch, "sequence": sequence, "microbatches": microbatches}
        given = {name: value for name, value in changes.items() if value is not None}
        if "microbatches" in given and not isinstance(found, TransformerTraining):
            raise InputError(Problem("microbatches", "allowed for a transformer only."))
        return replace(found, **given) if given else found  # type: ignore[arg-type]


def _product(text: str) -> Step:
    from crosstack.workload.product import Product

    parts = text.split(",")
    if len(parts) != 3 or not all(part.strip().isdecimal() for part in parts) or len(text) > 60:
        allowed = "three whole numbers M,K,N, such as 4096,4096,8192"
        raise InputError(Problem("--gemm", f"got {text[:60]!r}; allowed: {allowed}."))
    m, k, n = (int(part) for part in parts)
    with options_named({"m": "--gemm", "k": "--gemm", "n": "--gemm"}):
        return Product(m=m, k=k, n=n)


def _model(file: Path, model: str | None, set_: list[str] | None) -> Step:
    from crosstack.io.deepflow import read_model
    from crosstack.io.deepflow.steps import workload_of
    from crosstack.io.files import read_text
    from crosstack.workload.named_steps import step_named

    if model is None:
        held = _hardware(file, set_).model
        if held is None:
            message = f"{file} holds no model; give --gemm M,K,N or --model NAME|FILE."
            raise InputError(Problem("--model", message))
        return workload_of(held)
    if Path(model).suffix.lower() in (".yaml", ".yml"):
        return workload_of(read_model(read_text(model), model))
    return step_named(model)


def _hardware(file: Path, set_: list[str] | None) -> DeepflowHardware:
    from crosstack.io.deepflow import read_hardware
    from crosstack.io.files import read_text

    return read_hardware(read_text(file), str(file), set_ or ())


def _predicted(
    file: Path,
    workload: Step,
    parallel: str | None,
    grid: tuple[str | None, str | None, bool],
    set_: list[str] | None,
) -> tuple[Prediction, str]:
    """Return the prediction, and the name of the chip."""
    from crosstack.chip.generated import generate
    from crosstack.evaluate.kernel_times import CompulsoryTimes
    from crosstack.evaluate.predict import predict as run
    from crosstack.io.deepflow.steps import strategy_of
    from crosstack.mapping.strategy import parse_strategy

    hardware = _hardware(file, set_)
    chip = generate(hardware.template, hardware.budget).hierarchy
    with options_named({"strategy": "--parallel"}):
        strategy = strategy_of(hardware) if parallel is None else parse_strategy(parallel)
        cluster = _cluster(hardware, chip, strategy, grid)
        return run(workload, strategy, cluster, CompulsoryTimes(chip)), chip.name


def _cluster(
    hardware: DeepflowHardware,
    chip: ChipHierarchy,
    strategy: Strategy,
    grid: tuple[str | None, str | None, bool],
) -> Cluster:
    """Return the machine: placed on a grid that the options give, else as the file says."""
    from crosstack.evaluate.cluster import placed_cluster
    from crosstack.io.deepflow.steps import cluster_of
    from crosstack.mapping.placement import place

    package, packages, torus = grid
    if package is None:
        if packages is not None or torus:
            raise InputError(Problem("--package", "required with --packages or --torus."))
        return cluster_of(hardware, chip)
    return placed_cluster(chip, place(strategy, grid_of(package, packages, torus=torus)))
