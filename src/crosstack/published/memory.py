"""Memory of a chip in published training runs, beside what we say of them; see ``memory.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.resources import files
from typing import Any

from crosstack.evaluate.predict import predict
from crosstack.evaluate.rules import crosstack
from crosstack.evaluate.step_settings import StepSettings
from crosstack.io import library
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.framework import Fusion
from crosstack.machine.node import system_of_nodes
from crosstack.mapping.strategy import parse_strategy
from crosstack.model.memory_account import MemoryAccount
from crosstack.published.case import Progress, Row, held_row, run_each, silent
from crosstack.units import parse_quantity
from crosstack.workload.architectures import Transformer
from crosstack.workload.dtype import Dtype
from crosstack.workload.transformer_training import (
    Exchange,
    Recompute,
    Schedule,
    TransformerTraining,
    Zero,
)

_TOLD: Any = parse_yaml(files(__package__).joinpath("memory.yaml").read_text(encoding="utf-8"))
TOLERANCE = 0.02  # of a run that names none: the allocator rounds, and kernels set workspace aside
NUMBER = 2  # bytes of a number that a cache keeps
# Which of our rows a published number is: what it is called, and how it follows.
QUANTITIES = {
    "peak": "memory of the fullest chip",
    "state": "weights, gradients and optimizer's state of the first chip",
    "activations": "activations of the first chip",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRun:
    """A published run, and memory of a chip of it.

    ``gradient`` are bytes of gradients that the run keeps of a weight [B]; ``fused``: whether
    attention is one kernel; ``row`` is one of `QUANTITIES`, ``published`` its size. [B]
    """

    case: str
    model: str
    node: str
    strategy: str
    batch: int
    microbatches: int
    sequence: int
    recompute: str
    row: str
    published: float
    source: str
    shape: Mapping[str, Any] = field(default_factory=dict)
    interleave: int = 1
    gradient: float = 2.0
    fused: bool = True
    tolerance: float = TOLERANCE
    note: str = ""
    reason: str = ""

    @property
    def name(self) -> str:
        """For people."""
        again = f"{self.recompute} again"
        return f"{self.case}, {self.strategy}, {self.batch} sequences, {again}: {self.row}"

    @property
    def trained(self) -> Transformer:
        """The model, with the shape of the run."""
        return replace(library.model(self.model), **self.shape)

    def account(self) -> MemoryAccount:
        """Return what our chips hold, whether or not that fits."""
        step = TransformerTraining(
            model=self.trained,
            batch=self.batch,
            sequence=self.sequence,
            microbatches=self.microbatches,
            schedule=Schedule.ONE_F_ONE_B,
            interleave=self.interleave,
            recompute=Recompute(self.recompute),
            exchange=Exchange.SEQUENCE,
            zero=Zero.NONE,  # so ran those of several replicas
        )
        node, strategy = library.node(self.node), parse_strategy(self.strategy)
        fabric, port = library.joined_by(node)
        system = system_of_nodes(node, strategy.n_chips, fabric=fabric, port=port)
        if not self.fused:
            system = replace(system, chip=system.chip.without_fusion(Fusion.ATTENTION))
        rules = crosstack()
        rules = replace(rules, memory=replace(rules.memory, gradient_bytes=self.gradient))
        settings = StepSettings(enforces_capacity=False)
        found = predict(step, strategy, system, Dtype.BF16, settings, rules=rules).memory
        assert found is not None  # only releases keep none
        return found

    def ours(self) -> float:
        """Return our number for ``row``. [B]"""
        found = self.account()
        first = found.stage(0)
        match self.row:
            case "peak":
                return found.peak
            case "state":
                return first.weights + first.gradients + first.optimizer_state
            case _:
                return first.activations


def memory_runs() -> list[MemoryRun]:
    """Return every run, in the order of the file."""
    return [_run(told) for told in _TOLD["runs"]]


def _run(told: Any) -> MemoryRun:
    known = dict(told, published=parse_quantity(told["published"], "B"))
    for key in ("note", "reason"):
        if key in told:
            known[key] = _TOLD[f"{key}s"][told[key]]
    return MemoryRun(**known)


def run_memory(run: MemoryRun) -> Row:
    """Predict a run and return its row."""
    return held_row(
        suite="memory",
        case=run.name,
        source=run.source,
        rules="crosstack",
        quantity=QUANTITIES[run.row],
        unit="B",
        published=run.published,
        ours=run.ours(),
        tolerance=run.tolerance,
        status="given",
        note=run.note,
        reason=run.reason,
    )


def cache_row(model: str, published: float, source: str) -> Row:
    """Return the row of what a model keeps of a token, ``published`` in KB."""
    shape = library.model(model)
    return held_row(
        suite="memory",
        case=shape.name,
        source=source,
        rules="-",
        quantity="cache of a token",
        unit="B",
        published=published * 1e3,
        ours=float(shape.layers * shape.cached * NUMBER),
        tolerance=1e-9,
        status="counted",
    )


def memory_rows(progress: Progress = silent) -> list[Row]:
    """Predict every run, count every cache, and return their rows."""
    rows = run_each(memory_runs(), run_memory, progress)
    return rows + [cache_row(**told) for told in _TOLD["caches"]]
