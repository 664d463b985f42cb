"""Points whose step is predicted: technology, budget and strategy to the time of a step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from crosstack.errors import InputError, Problem, unknown_name
from crosstack.evaluate.predict import Prediction, Step
from crosstack.explore.axes import Assignment
from crosstack.explore.evaluators import (
    BaseProblem,
    PointAnswer,
    Terms,
)
from crosstack.explore.flat import term_at
from crosstack.explore.options import FileEvaluator, rules_of, split_options
from crosstack.io import deepflow, step_machines
from crosstack.io.chip_file import ChipDescription, read_chip
from crosstack.io.deepflow.steps import strategy_of, workload_of
from crosstack.io.library import driven
from crosstack.io.library.named import LibraryMachine, library_machine
from crosstack.io.native.overrides import override
from crosstack.io.steps import step_named
from crosstack.io.yaml_tree import tree_of
from crosstack.machine.network import parse_levels
from crosstack.mapping.strategy import MappingOrder, Strategy, parse_order, parse_strategy
from crosstack.model.energy import energy_of_budget
from crosstack.model.rules import MAPPED, PREDICTED, Rules, rules_named
from crosstack.workload.dtype import Dtype
from crosstack.workload.job import is_product
from crosstack.workload.product import Product
from crosstack.workload.published_steps import CHANGES, changed_step

__all__ = ["Predicted"]

TERMS: dict[str, str | None] = {
    "time": "s",
    "throughput": "1/s",
    "busy_time": "s",
    "idle_time": "s",
    "n_chips": "1",
    "memory_used": "B",
    "peak_throughput": "FLOP/s",
    "memory.bandwidth": "B/s",
    "memory.capacity": "B",
    "power": "W",
    "energy": "J",
    "energy_basis": None,
}

LIBRARY = ("on", "chips", "fabric", "dtype", "accumulator")


@dataclass(frozen=True, slots=True)
class Predicted(FileEvaluator):
    """``predict``: the chip that a technology and a budget make, then a step on many of them."""

    name: str = "predict"
    allowed: tuple[str, ...] = (
        "model", "gemm", "given", "rules", "order", "topology", "framework", *LIBRARY, *CHANGES,
    )  # fmt: skip
    parts: tuple[str, ...] = PREDICTED
    units: Mapping[str, str | None] = field(default_factory=lambda: TERMS)

    def check_fields(
        self, base: BaseProblem, fields: Sequence[Assignment], options: dict[str, Any]
    ) -> None:
        """Raise `InputError` if a path leads nowhere in the chip file."""
        if _on_library(base, options, fields):
            return
        tree = tree_of(base.content)
        if deepflow.looks_like(tree) and isinstance(tree, dict):
            override(tree, fields, Any)
        else:
            read_chip(base.content, base.source, fields)

    def run(
        self, base: BaseProblem, assignments: Sequence[Assignment], keep: Sequence[str]
    ) -> PointAnswer:
        """Predict one step."""
        fields, options = split_options(base, assignments)
        rules = rules_of(options, PREDICTED) or rules_named("crosstack")
        machine: step_machines.Machine
        if _on_library(base, options, fields):
            machine = _of_library(options)
        else:
            machine = _machine(base, fields)
        levels, order = _levels(options), _order(options)
        with _of_options():
            machine = step_machines.joined(machine, levels)
        typed = step_machines.typed_chip(machine, rules.chips)
        workload = _workload(machine, options)
        strategy = _strategy(machine, workload, options)
        with _of_options():
            on = step_machines.ranked(
                machine, typed.chip, strategy, rules.step, levels=levels, order=order
            )
            on = _driven(on, options.get("framework"), rules)
        found = on.step(workload, strategy, on.system, typed.dtype, rules=rules, order=on.order)
        terms = _terms(found, typed)
        parts = {"parts": dict(found.parts), "busy": dict(found.busy), "run_time": found.run_time}
        kept: Terms = {path: term_at(parts, path) for path in keep}
        return PointAnswer(status="feasible", terms=terms | kept)


def _on_library(base: BaseProblem, options: dict[str, Any], fields: Sequence[Assignment]) -> bool:
    """Whether the machine is one of the library, which then stands in place of a base."""
    if options.get("on") is None:
        given = [name for name in LIBRARY[1:] if options.get(name) is not None]
        if given:
            raise InputError(Problem(f"options.{given[0]}", "allowed with options.on."))
        return False
    if base.source != "none":
        raise InputError(Problem("options.on", "allowed with base: none, and in place of it."))
    if fields:
        raise InputError(Problem(fields[0][0], "no such field: base is none; see options.on."))
    return True


def _of_library(options: dict[str, Any]) -> LibraryMachine:
    chips = options.get("chips")
    if chips is not None and (not isinstance(chips, int) or chips < 1):
        message = f"got {chips!r}; allowed: a whole number, at least 1."
        raise InputError(Problem("options.chips", message))
    types: dict[str, Dtype] = {}
    for name in ("dtype", "accumulator"):
        value = options.get(name)
        if value is not None and value not in list(Dtype):
            raise unknown_name(f"options.{name}", "type of number is", value, Dtype)
        types |= {} if value is None else {name: Dtype(value)}
    try:
        return library_machine(
            str(options["on"]),
            chips=chips,
            fabric=None if options.get("fabric") is None else str(options["fabric"]),
            dtype=types.get("dtype"),
            accumulator=types.get("accumulator"),
        )
    except InputError as error:
        named = {"n_chips": "chips", "system.chip.rates": "dtype"}
        named["workload.accumulator"] = "accumulator"
        raise error.renamed(named).under("options") from None


def _driven(on: step_machines.Ranked, framework: object, rules: Rules) -> step_machines.Ranked:
    """Return what a strategy runs on, driven by a framework where one is named."""
    if framework is None:
        return on
    if rules.lacking(MAPPED):
        message = f"allowed under rules that map; {rules.name} has kernels of its own."
        raise InputError(Problem("framework", message))
    return replace(on, system=driven(on.system, str(framework)))


def _machine(
    base: BaseProblem, changes: Sequence[Assignment]
) -> ChipDescription | deepflow.DeepflowHardware:
    if deepflow.looks_like(tree_of(base.content)):
        return deepflow.read_hardware(base.content, base.source, changes)
    return read_chip(base.content, base.source, changes)


def _workload(machine: step_machines.Machine, options: dict[str, Any]) -> Step:
    gemm, model = options.get("gemm"), options.get("model")
    changes = {name: options.get(name) for name in CHANGES}
    if gemm is not None:
        asked = model is not None or any(value is not None for value in changes.values())
        if not isinstance(gemm, list) or len(gemm) != 3 or asked:
            message = "allowed: a list of M, K and N, without a model and its batch."
            raise InputError(Problem("options.gemm", message))
        m, k, n = gemm
        return Product(m=m, k=k, n=n)
    if model is not None:
        return step_named(str(model), changes)
    if isinstance(machine, ChipDescription | LibraryMachine) or machine.model is None:
        raise InputError(Problem("options.model", "required, or gemm: the base holds none."))
    return changed_step(workload_of(machine.model), changes)


def _strategy(machine: step_machines.Machine, workload: Step, options: dict[str, Any]) -> Strategy:
    given = options.get("given")
    if given is not None:
        return parse_strategy(str(given))
    if is_product(workload) and not isinstance(machine, deepflow.DeepflowHardware):
        return Strategy()
    if isinstance(machine, deepflow.DeepflowHardware):
        deepflow.check_devices(machine)
        return strategy_of(machine)
    raise InputError(Problem("options.given", "required: a strategy such as RC-1-8-d4-p2."))


@contextmanager
def _of_options() -> Iterator[None]:
    """Say what is wrong with the order of ranks, the topology or a framework by its option."""
    try:
        yield
    except InputError as error:
        raise error.renamed(
            {name: f"options.{name}" for name in ("order", "topology", "framework")}
        ) from None


def _levels(options: dict[str, Any]) -> step_machines.Levels | None:
    topology = options.get("topology")
    return None if topology is None else parse_levels(str(topology))


def _order(options: dict[str, Any]) -> MappingOrder | None:
    order = options.get("order")
    return None if order is None else parse_order(str(order))


def _terms(found: Prediction, typed: step_machines.TypedChip) -> Terms:
    batch = getattr(found.workload, "batch", None)
    chips = found.strategy.n_chips
    chip, power = typed.chip, typed.power
    memory = chip.main_memory
    busy = max((time for _, time in found.busy), default=None)
    energy = None if power is None else energy_of_budget(power * chips, found.time)
    return {
        "time": found.time,
        # Of the busiest stage: the rest is bubbles, and sums that nothing hides.
        "busy_time": busy,
        "idle_time": None if busy is None else max(0.0, found.time - busy),
        "throughput": None if batch is None else batch / found.time,
        "n_chips": float(chips),
        "memory_used": None if found.memory is None else found.memory.peak,
        "peak_throughput": chip.throughput(typed.dtype),
        "memory.bandwidth": memory.speed,
        "memory.capacity": memory.room,
        "power": None if power is None else power * chips,
        "energy": None if energy is None else energy.total,
        "energy_basis": None if energy is None else energy.basis.value,
    }
