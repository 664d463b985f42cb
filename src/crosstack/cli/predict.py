"""``crosstack predict`` and ``crosstack trace``: the time of a step under a given strategy."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crosstack.cli.hardware import hardware_of, source_of
from crosstack.cli.inputs import (
    JsonOut,
    check_outputs,
    in_file,
    options_named,
    rules_asked,
)
from crosstack.cli.options import with_options
from crosstack.cli.outputs import show, write
from crosstack.cli.place import grid_of
from crosstack.cli.predict_options import StepOptions
from crosstack.errors import InputError, Problem
from crosstack.units import parse_quantity

if TYPE_CHECKING:
    from crosstack.evaluate.predict import Prediction, Program, Step
    from crosstack.io.step_machines import Machine, Ranked, TypedChip
    from crosstack.machine.chip import Chip
    from crosstack.mapping.strategy import MappingOrder, Strategy
    from crosstack.model.rules import Rules as CountedRules


__all__ = ["predict", "trace"]

_NOT_SAVED = ("parallel", "rules", "set_")  # among what was asked: a result has them elsewhere
_PATHS = ("file", "library")


@with_options
def predict(asked: StepOptions, json_out: JsonOut = None) -> None:
    """Predict the time of a step, or of one product, under a given strategy.

    What the strategy leaves out, such as the sharding of each kernel, is decided as well as can be
    in a second or two; `crosstack map --parallel` looks further, and proves how good that is.

    Examples: `crosstack predict gpt3-175b --on h100-dgx --parallel tp=8,pp=8,dp=2
    --microbatches 8` and `crosstack predict examples/chips/n5_hbm3.yaml --set packages=512
    --model gpt3-175b --parallel RC-1-8-d8-p8 --microbatches 8`
    """
    from crosstack.model.kernels.clock import product_time
    from crosstack.model.rules import PREDICTED
    from crosstack.report.kernel_text import kernel_data, kernel_tables
    from crosstack.report.prediction_text import prediction_data, prediction_tables
    from crosstack.workload.product import Product

    asked = _named_first(asked)
    check_outputs(asked.file, {"--json": json_out})
    counted = rules_asked(asked.rules, PREDICTED)
    found, typed = _predicted(asked, counted)
    alone = isinstance(found.workload, Product) and found.strategy.n_chips == 1
    inputs = {f.name: getattr(asked, f.name) for f in fields(asked) if f.name not in _NOT_SAVED}
    inputs |= {name: None if inputs[name] is None else str(inputs[name]) for name in _PATHS}
    inputs["set"] = asked.set_ or []
    data = prediction_data(found, typed.chip, typed.dtype, counted.name, inputs)
    shown = [prediction_tables(data, parts=not alone)]
    if found.share is not None:
        kernel = product_time(counted.clock.kernels, typed.chip, *found.share, dtype=typed.dtype)
        data["kernel"] = kernel_data(kernel, found.share)
        shown.append(kernel_tables(data["kernel"]))
    show(*shown)
    if json_out is not None:
        write((json_out, json.dumps(data, indent=1, allow_nan=False) + "\n"))


@with_options
def trace(
    asked: StepOptions,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="OUT", help="A trace for Perfetto or Chrome."),
    ] = None,
    svg_out: Annotated[
        Path | None, typer.Option("--svg", metavar="OUT", help="Save a Gantt chart.")
    ] = None,
) -> None:
    """Run a predicted step event by event and save when every kernel and transfer ran.

    Example: `crosstack trace llama3-8b --on h100-dgx --batch 32 --sequence 4096
    --parallel tp=2,pp=4 -o trace.json --svg chart.svg`
    """
    from crosstack.model.rules import PREDICTED
    from crosstack.report.prediction_text import prediction_data, prediction_tables
    from crosstack.report.timeline_figure import gantt_svg, trace_json

    check_outputs(asked.file, {"--output": output, "--svg": svg_out})
    if output is None and svg_out is None:
        raise InputError(Problem("--output", "nothing to save; give --output OUT or --svg OUT."))
    counted = rules_asked(asked.rules, PREDICTED)
    found, typed = _predicted(_named_first(asked), counted)
    timelines = found.timelines()
    if not timelines:
        message = f"{counted.name} estimates a transformer without events; try deepflow-2025-graph."
        raise InputError(Problem("--rules", message))
    texts = []
    if output is not None:
        texts.append((output, trace_json(timelines)))
    if svg_out is not None:
        title = f"{found.workload.name} under {found.strategy} on {typed.chip.name}"
        texts.append((svg_out, gantt_svg(timelines, title)))
    show(
        prediction_tables(
            prediction_data(found, typed.chip, typed.dtype, counted.name, {}), parts=False
        )
    )
    write(*texts)


# ---------------------------------------------------------------- pieces


def _named_first(asked: StepOptions) -> StepOptions:
    """Return what is asked; the argument is a model's name where the machine has one too."""
    machine = asked.file is None or asked.file.suffix.lower() in (".yaml", ".yml")
    if machine or asked.on is None or asked.model is not None or asked.gemm is not None:
        return asked
    return replace(asked, file=None, model=str(asked.file))


def _workload(file: Path, hardware: Machine, asked: StepOptions) -> Step:
    """Return what the options ask for, or what the file holds."""
    from crosstack.io.steps import step_named
    from crosstack.workload.published_steps import changed_step

    gemm, model, changes = asked.gemm, asked.model, asked.changes
    if asked.prefill or asked.decode or asked.context is not None:
        return _served(asked)
    if gemm is not None and model is not None:
        raise InputError(Problem("--gemm", "given with --model; allowed: one of them."))
    with options_named({name: f"--{name}" for name in ("model", *changes)}):
        if model is not None and Path(model).suffix.lower() not in (".yaml", ".yml"):
            return step_named(model, changes)
        found = _product(gemm) if gemm is not None else _model(file, hardware, model)
        return changed_step(found, changes)


def _served(asked: StepOptions) -> Step:
    from crosstack.io.steps import job_named
    from crosstack.workload.published_steps import changed_step

    if not asked.decode and asked.context is not None:
        raise InputError(Problem("--context", "allowed with --decode."))
    if asked.model is None or (asked.prefill and asked.decode):
        message = "required with --prefill or --decode, of which one is allowed."
        raise InputError(Problem("--model", message))
    kind = "prefill" if asked.prefill else "decode"
    numbers = {name: getattr(asked, name) for name in ("batch", "sequence", "context")}
    others = {name: value for name, value in asked.changes.items() if name not in numbers}
    with options_named({name: f"--{name}" for name in ("model", *numbers, *others)}):
        return changed_step(job_named(asked.model, kind, **numbers), others)


def _product(text: str) -> Step:
    from crosstack.workload.product import Product

    parts = text.split(",")
    good = len(parts) == 3 and len(text) <= 60
    if not good or not all(part.strip().isascii() and part.strip().isdecimal() for part in parts):
        allowed = "three whole numbers M,K,N, such as 4096,4096,8192"
        raise InputError(Problem("--gemm", f"got {text[:60]!r}; allowed: {allowed}."))
    m, k, n = (int(part) for part in parts)
    with options_named({"m": "--gemm", "k": "--gemm", "n": "--gemm"}):
        return Product(m=m, k=k, n=n)


def _model(file: Path, hardware: Machine, model: str | None) -> Step:
    from crosstack.io.chip_file import ChipDescription
    from crosstack.io.deepflow import read_model
    from crosstack.io.deepflow.steps import workload_of
    from crosstack.io.files import read_text
    from crosstack.io.library.named import LibraryMachine

    if model is None:
        held = None if isinstance(hardware, ChipDescription | LibraryMachine) else hardware.model
        if held is None:
            message = f"{file} holds no model; give --gemm M,K,N or --model NAME|FILE."
            raise InputError(Problem("--model", message))
        with in_file(file):
            return workload_of(held)
    held = read_model(read_text(model), model)
    with in_file(Path(model)):
        return workload_of(held)


def _predicted(asked: StepOptions, counted: CountedRules) -> tuple[Prediction, TypedChip]:
    """Return the prediction, and the chip with what it computed in."""
    from crosstack.evaluate.step_settings import StepSettings
    from crosstack.io.step_machines import joined, typed_chip
    from crosstack.workload.transformer_training import CHOICES

    file = source_of(asked.file, asked.on)
    hardware = hardware_of(
        asked.file, asked.on, asked.chips, asked.fabric, asked.library, asked.set_ or []
    )
    workload = _workload(file, hardware, asked)
    options = {"strategy": "--parallel", "order": "--order"}
    options |= {"constraints.degrees": "--parallel", "workload.global_batch_size": "--batch"}
    options |= dict.fromkeys(("topology", "shape", "package"), "--topology")
    options |= {f: f"--{f.replace('_', '-')}" for f in StepSettings.__dataclass_fields__}
    with options_named(options | {name: f"--{name}" for name in (*CHOICES, "interleave")}):
        settings = StepSettings()
        if asked.optimizer_bytes is not None:
            with options_named({"": "--optimizer-bytes"}):
                state = parse_quantity(asked.optimizer_bytes, "B")
            settings = replace(settings, optimizer_bytes=state)
        placed = asked.package is not None
        strategy = _strategy(file, hardware, workload, asked.parallel, placed=placed)
        if asked.levels is not None and asked.package is not None:
            message = "allowed without --package, which places on a mesh or torus of its own."
            raise InputError(Problem("--topology", message))
        hardware = joined(hardware, asked.levels)
        with in_file(file):
            typed = typed_chip(hardware, counted.chips)
        on = _ranked(hardware, typed.chip, strategy, asked, counted.step)
        found = on.step(
            workload, strategy, on.system, typed.dtype, settings, rules=counted, order=on.order
        )
        return found, typed


def _strategy(
    file: Path,
    hardware: Machine,
    workload: Step,
    parallel: str | None,
    *,
    placed: bool,
) -> Strategy:
    """Return the strategy that is asked for, or that of a DeepFlow file; else one chip."""
    from crosstack.io.chip_file import ChipDescription
    from crosstack.io.deepflow import check_devices
    from crosstack.io.deepflow.steps import strategy_of
    from crosstack.io.library.named import LibraryMachine
    from crosstack.mapping.strategy import Strategy, parse_strategy
    from crosstack.workload.product import Product

    if parallel is not None:
        return parse_strategy(parallel)
    if isinstance(hardware, LibraryMachine):
        return Strategy()
    if isinstance(hardware, ChipDescription):
        if isinstance(workload, Product):
            return Strategy()
        chips = hardware.chips_per_package * hardware.n_packages
        message = (
            f"required: {file} has no strategy for its chips, {chips:,}; such as RC-1-8-d4-p2."
        )
        raise InputError(Problem("--parallel", message))
    with in_file(file):
        if not placed:
            check_devices(hardware)
        return strategy_of(hardware)


def _ranked(
    hardware: Machine, chip: Chip, strategy: Strategy, asked: StepOptions, step: Program
) -> Ranked:
    """Return what a strategy runs on: as the machine has it, or placed on a grid."""
    from crosstack.io.step_machines import ranked
    from crosstack.mapping.strategy import parse_order

    order = None if asked.order is None else parse_order(asked.order)
    if asked.package is not None:
        return _placed(chip, strategy, asked, order, step)
    if asked.packages is not None or asked.torus:
        raise InputError(Problem("--package", "required with --packages or --torus."))
    with options_named({"n_chips": "--chips"}):
        return ranked(hardware, chip, strategy, step, levels=asked.levels, order=order)


def _placed(
    chip: Chip, strategy: Strategy, asked: StepOptions, order: MappingOrder | None, step: Program
) -> Ranked:
    """Return chips on a grid, in the order that shares links least; a release has its rings."""
    from crosstack.io.step_machines import Ranked
    from crosstack.machine.packages import divided_system, system_of_grid, system_of_packages
    from crosstack.mapping.placement import place
    from crosstack.published.deepflow.edges import edges_of_placement
    from crosstack.published.deepflow.steps import ReleaseSteps, over_edges

    assert asked.package is not None
    grid = grid_of(asked.package, asked.packages, torus=asked.torus)
    placement = place(strategy, grid, order=order)
    if not isinstance(step, ReleaseSteps):
        return Ranked(system=divided_system(system_of_grid(chip, grid)), order=None, step=step)
    system = system_of_packages(
        chip, chips_per_package=grid.n_chips // grid.n_packages, n_packages=grid.n_packages
    )
    over = over_edges(step, edges_of_placement(placement))
    return Ranked(system=system, order=placement.order, step=over)
