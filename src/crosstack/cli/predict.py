"""``crosstack predict`` and ``crosstack trace``: the time of a step under a given strategy."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crosstack.cli import inputs
from crosstack.cli.hardware import hardware_of, source_of
from crosstack.cli.outputs import (
    PageOptions,
    answer_data,
    asked_files,
    json_text,
    show,
    show_and_write,
    tell_ways,
    write,
)
from crosstack.cli.place import grid_of
from crosstack.errors import InfeasibleError, InputError, Problem
from crosstack.workload.dtype import Dtype

if TYPE_CHECKING:
    from crosstack.evaluate.plan import Plan
    from crosstack.evaluate.predict import Prediction, Program, Step
    from crosstack.io.step_machines import Levels, Machine, Ranked, TypedChip
    from crosstack.machine.chip import Chip
    from crosstack.mapping.strategy import MappingOrder, Strategy
    from crosstack.model.rules import Rules as CountedRules

_NUMBERS = ("batch", "sequence", "context", "expert_imbalance")  # of a model that serves
_NOT_SAVED = ("given", "rules", "set_")  # among what was asked: a result has them elsewhere


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOptions:
    """A step, its strategy and its machine, as options say them."""

    file: Path | None = None
    gemm: str | None = None
    model: str | None = None
    given: str | None = None
    prefill: bool = False
    decode: bool = False
    context: int | None = None
    dtype: Dtype | None = None
    batch: int | None = None
    sequence: int | None = None
    microbatches: int | None = None
    microbatch_size: int | None = None
    exchange: str | None = None
    recompute: str | None = None
    schedule: str | None = None
    interleave: int | None = None
    zero: str | None = None
    context_exchange: str | None = None
    overlap: str | None = None
    offload: str | None = None
    expert_imbalance: float | None = None
    expert_dispatch: str | None = None
    packed: int | None = None
    gradients: str | None = None
    optimizer: str | None = None
    package: str | None = None
    packages: str | None = None
    torus: bool = False
    order: str | None = None
    topology: str | None = None
    rules: str = "crosstack"
    on: str | None = None
    chips: int | None = None
    fabric: str | None = None
    framework: str | None = None
    library: Path | None = None
    set_: list[str] | None = None

    @property
    def changes(self) -> dict[str, object]:
        """What is asked of the step itself; None: as published."""
        from crosstack.workload.published_steps import CHANGES

        asked = {name: getattr(self, name) for name in CHANGES}
        return asked | {"zero": inputs.zero_given(self.zero)}

    @property
    def levels(self) -> Levels | None:
        """How the chips of a package are joined, and the packages where that is said."""
        from crosstack.machine.network import parse_levels

        return None if self.topology is None else parse_levels(self.topology)

    @property
    def inputs(self) -> dict[str, object]:
        """What a result keeps of them, so that its number can be computed again."""
        kept = {name: value for name, value in asdict(self).items() if name not in _NOT_SAVED}
        paths = {name: path and str(path) for name, path in kept.items() if isinstance(path, Path)}
        return kept | paths | {"set": self.set_ or []}

    def settled(self) -> StepOptions:
        """Return them with each decision of ``given`` in its place.

        The argument is a model or a graph where the machine has a name.
        """
        from crosstack.mapping.given import split_given

        named = self._named_first()
        if named.given is None:
            return named
        with inputs.options_named({"given": "--given"} | _called(*asdict(named))):
            strategy, decided = split_given(named.given, asdict(named))
        words: dict[str, Any] = {
            name: str(one) if isinstance(one, StrEnum) else one for name, one in decided.items()
        }
        return replace(named, given=strategy or None, **words)

    def _named_first(self) -> StepOptions:
        if None in (self.file, self.on) or self.model is not None or self.gemm is not None:
            return self
        return replace(self, file=None, model=str(self.file))


def predict(
    asked: StepOptions,
    json_out: Path | None = None,
    html_out: Path | None = None,
    tokens: str | None = None,
    electricity: str | None = None,
) -> None:
    """Predict the time of a step, or of one product, under a given strategy."""
    from crosstack.model.kernels.clock import product_time
    from crosstack.model.rules import PREDICTED
    from crosstack.report.prediction_text import (
        kernel_data,
        prediction_data,
        prediction_html,
        prediction_tables,
    )

    asked, count = asked.settled(), inputs.many_tokens(tokens)
    inputs.check_outputs(asked.file, {"--json": json_out, "--html": html_out})
    counted = inputs.rules_asked(asked.rules, PREDICTED)
    found, typed = _predicted(asked, counted, json_out, electricity)
    plan = _kept(found, counted)
    if plan is None:
        message = (
            "allowed for a step of a model, by rules that map it, on a machine of the library."
        )
        inputs.refuse({"--tokens": tokens, "--electricity": electricity}, message)
    else:
        inputs.check_tokens(plan.task, count)
        plan = replace(plan, tokens=count)
    data = prediction_data(found, typed.chip, typed.dtype, counted.name, asked.inputs)
    if found.share is not None:
        kernel = product_time(counted.clock.kernels, typed.chip, *found.share, dtype=typed.dtype)
        data["kernel"] = kernel_data(kernel, found.share)
    if plan is not None:
        data["plan"] = answer_data(plan)
    texts = asked_files(
        (json_out, lambda: json_text(data)), (html_out, lambda: prediction_html(data, plan))
    )
    show_and_write(prediction_tables(data, plan), texts)


def trace(asked: StepOptions, output: Path | None = None, svg_out: Path | None = None) -> None:
    """Run a predicted step event by event and save when every kernel and transfer ran."""
    from crosstack.model.rules import PREDICTED
    from crosstack.report.prediction_text import prediction_data, prediction_tables
    from crosstack.report.timeline_figure import gantt_svg, trace_json

    inputs.check_outputs(asked.file, {"--output": output, "--svg": svg_out})
    if output is None and svg_out is None:
        raise InputError(Problem("--output", "nothing to save; give --output OUT or --svg OUT."))
    counted = inputs.rules_asked(asked.rules, PREDICTED)
    found, typed = _predicted(asked.settled(), counted)
    timelines = found.timelines()
    if not timelines:
        message = f"{counted.name} estimates a transformer without events; try deepflow-2025-graph."
        raise InputError(Problem("--rules", message))
    title = f"{found.workload.name} under {found.strategy} on {typed.chip.name}"
    texts = asked_files(
        (output, lambda: trace_json(timelines)), (svg_out, lambda: gantt_svg(timelines, title))
    )
    data = prediction_data(found, typed.chip, typed.dtype, counted.name, {})
    show(prediction_tables(data, parts=False))
    write(*texts)


# ---------------------------------------------------------------- pieces


def _kept(found: Prediction, counted: CountedRules) -> Plan | None:
    """Return the plan of a step that a result can hold; None of a product, and where there is none.

    A result names its rules, so that settings of one's own are not among them; and a machine that
    is made of parts may have what no file says.
    """
    from crosstack.io.native import read_task, write_task

    plan = found.plan
    if plan is None or found.share is not None or plan.rules != counted:
        return None
    try:
        read_task(write_task(plan.task), "task")
    except InputError:
        return None
    return plan


def _called(*fields: str) -> dict[str, str]:
    """Return the option of each field."""
    return {field: f"--{field.replace('_', '-')}" for field in fields}


def _workload(file: Path, hardware: Machine, asked: StepOptions) -> Step:
    """Return what the options ask for, or what the file holds."""
    from crosstack.io.steps import step_named
    from crosstack.workload.published_steps import changed_step

    gemm, model, changes = asked.gemm, asked.model, asked.changes
    if asked.prefill or asked.decode or asked.context is not None:
        return _served(asked)
    if gemm is not None and model is not None:
        raise InputError(Problem("--gemm", "given with --model; allowed: one of them."))
    with inputs.options_named(_called("model", *changes)):
        if model is not None and Path(model).suffix.lower() not in inputs.YAML_SUFFIXES:
            return step_named(model, changes)
        found = _product(gemm) if gemm is not None else _held(file, hardware, asked)
        return changed_step(found, changes)


def _held(file: Path, hardware: Machine, asked: StepOptions) -> Step:
    """Return what a YAML file holds: a graph, or a model in DeepFlow's form."""
    from crosstack.io.deepflow.read import looks_like
    from crosstack.io.files import read_text
    from crosstack.io.yaml_tree import tree_of

    if asked.model is not None and asked.on is not None:
        held = Path(asked.model)
        with inputs.in_file(held):
            native = not looks_like(tree_of(read_text(held)))
        if native:
            machine = inputs.MachineOptions(on=asked.on, chips=asked.chips, fabric=asked.fabric)
            return machine.task(held, None).workload
    return _model(file, hardware, asked.model)


def _served(asked: StepOptions) -> Step:
    from crosstack.io.steps import job_named
    from crosstack.workload.published_steps import changed_step

    if not asked.decode and asked.context is not None:
        raise InputError(Problem("--context", "allowed with --decode."))
    if asked.model is None or (asked.prefill and asked.decode):
        message = "required with --prefill or --decode, of which one is allowed."
        raise InputError(Problem("--model", message))
    kind = "prefill" if asked.prefill else "decode"
    numbers = {name: getattr(asked, name) for name in _NUMBERS}
    others = {name: value for name, value in asked.changes.items() if name not in numbers}
    with inputs.options_named(_called("model", *numbers, *others)):
        return changed_step(job_named(asked.model, kind, **numbers), others)


def _product(text: str) -> Step:
    from crosstack.workload.product import Product

    parts = text.split(",")
    good = len(parts) == 3 and len(text) <= 60
    if not good or not all(part.strip().isascii() and part.strip().isdecimal() for part in parts):
        allowed = "three whole numbers M,K,N, such as 4096,4096,8192"
        raise InputError(Problem("--gemm", f"got {text[:60]!r}; allowed: {allowed}."))
    m, k, n = (int(part) for part in parts)
    with inputs.options_named(dict.fromkeys("mkn", "--gemm")):
        return Product(m=m, k=k, n=n)


def _model(file: Path, hardware: Machine, model: str | None) -> Step:
    from crosstack.io.deepflow import DeepflowHardware, read_model
    from crosstack.io.deepflow.steps import workload_of
    from crosstack.io.files import read_text

    held = hardware.model if isinstance(hardware, DeepflowHardware) else None
    if model is not None:
        file, held = Path(model), read_model(read_text(model), model)
    if held is None:
        message = f"{file} holds no model; give --gemm M,K,N or --model NAME|FILE."
        raise InputError(Problem("--model", message))
    with inputs.in_file(file):
        return workload_of(held)


def _predicted(
    asked: StepOptions,
    counted: CountedRules,
    json_out: Path | None = None,
    electricity: str | None = None,
) -> tuple[Prediction, TypedChip]:
    """Return the prediction, and the chip with what it computed in.

    What would make a step fit that does not is said, and saved as ``json_out``. ``electricity`` is
    its price, as `crosstack.cli.inputs.billed` takes it.
    """
    from crosstack.evaluate.predict import settled
    from crosstack.evaluate.step_settings import StepSettings
    from crosstack.io.step_machines import as_measured, joined, typed_chip
    from crosstack.model.rules import MAPPED
    from crosstack.workload.optimizer import optimizer_named
    from crosstack.workload.transformer_training import CHOICES

    file = source_of(asked.file, asked.on)
    machine = inputs.MachineOptions(on=asked.on, chips=asked.chips, fabric=asked.fabric)
    hardware = hardware_of(asked.file, machine, asked.library, asked.set_ or [], asked.dtype)
    workload = _workload(file, hardware, asked)
    options = {"strategy": "--given", "order": "--order"}
    options |= {"constraints.degrees": "--given", "workload.global_batch_size": "--batch"}
    options |= dict.fromkeys(("topology", "shape", "package"), "--topology")
    options |= {f: f"--{f.replace('_', '-')}" for f in StepSettings.__dataclass_fields__}
    options |= _called(*CHOICES, "interleave", "overlap", "offload", "microbatch_size")
    options |= {"constraints.recompute_layers": "--recompute", "constraints.offload": "--offload"}
    with inputs.options_named(options):
        settings = StepSettings()
        if asked.optimizer is not None:
            with inputs.options_named({"": "--optimizer"}):
                settings = replace(settings, optimizer=optimizer_named(asked.optimizer))
        strategy = _strategy(file, hardware, workload, asked)
        if asked.levels is not None and asked.package is not None:
            message = "allowed without --package, which places on a mesh or torus of its own."
            raise InputError(Problem("--topology", message))
        hardware = joined(hardware, asked.levels)
        with inputs.in_file(file):
            typed = typed_chip(hardware, counted.chips)
        on = _ranked(hardware, typed.chip, strategy, asked, counted.step)
        if asked.framework is not None:
            on = _driven(on, asked.framework, counted)
        on, typed = as_measured(hardware, on, typed)
        system = inputs.billed(on.system, electricity)
        given = workload, strategy, system, typed.dtype, settings
        try:
            return on.step(*given, rules=counted, order=on.order), typed
        except InfeasibleError as error:
            if counted.lacking(MAPPED):  # a release, which is given every decision
                raise
            pages = PageOptions(json_out=json_out)
            raise tell_ways(error, settled(*given), counted, pages) from error


def _strategy(file: Path, hardware: Machine, workload: Step, asked: StepOptions) -> Strategy:
    """Return the strategy that is asked for, or that of a DeepFlow file; else one chip."""
    from crosstack.io.chip_file import ChipDescription
    from crosstack.io.deepflow import DeepflowHardware, check_devices
    from crosstack.io.deepflow.steps import strategy_of
    from crosstack.mapping.strategy import Strategy, parse_strategy
    from crosstack.workload.job import is_product

    if asked.given is not None:
        return parse_strategy(asked.given, asked.chips)
    if isinstance(hardware, DeepflowHardware):
        with inputs.in_file(file):
            if asked.package is None:
                check_devices(hardware)
            return strategy_of(hardware)
    if isinstance(hardware, ChipDescription) and not is_product(workload):
        chips = f"{hardware.chips_per_package * hardware.n_packages:,}"
        message = f"required: {file} has no strategy for its chips, {chips}; such as RC-1-8-d4-p2."
        raise InputError(Problem("--given", message))
    return Strategy()


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
    with inputs.options_named({"n_chips": "--chips"}):
        return ranked(hardware, chip, strategy, step, levels=asked.levels, order=order)


def _driven(on: Ranked, framework: str, counted: CountedRules) -> Ranked:
    """Return a machine that a framework drives."""
    from crosstack.io.library import driven
    from crosstack.model.rules import MAPPED

    if counted.lacking(MAPPED):
        message = f"allowed under rules that map; {counted.name} has kernels of its own."
        raise InputError(Problem("--framework", message))
    with inputs.options_named(inputs.MACHINE):
        return replace(on, system=driven(on.system, framework))


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
