"""Training steps that were measured on clusters of A100, beside what we predict.

See ``measured_steps.yaml``. The machine is ``a100-dgx-80gb`` of the library, and nothing is fitted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from statistics import fmean
from typing import Any

from crosstack.evaluate.predict import Prediction, predict
from crosstack.evaluate.rules import crosstack
from crosstack.io import library
from crosstack.io.steps import step_named
from crosstack.io.yaml_tree import parse_yaml
from crosstack.machine.framework import Fusion
from crosstack.machine.node import system_of_nodes
from crosstack.mapping.strategy import parse_strategy
from crosstack.published.case import Progress, Row, held_row, run_each, silent
from crosstack.workload.dtype import Dtype
from crosstack.workload.transformer_training import (
    Exchange,
    Recompute,
    Schedule,
    TransformerTraining,
    Zero,
    transformer_training,
)

_TOLD: Any = parse_yaml(
    files(__package__).joinpath("measured_steps.yaml").read_text(encoding="utf-8")
)
NODE = "a100-dgx-80gb"
TOLERANCE = 0.10
# Where the numbers of a source that could not be opened were read.
READ_IN: dict[str, str] = _TOLD["read_in"]
ONE = next(iter(READ_IN))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured step: how it ran, and its time. [s]

    ``public`` is what the estimate of the public tool gives, where it was run. [s]
    ``fused_sums``: whether products added gradients of weights to those of earlier microbatches.
    """

    model: str
    strategy: str
    batch: int
    microbatches: int
    full: bool  # everything computed again, nothing spread; else attention alone, tokens spread
    source: str
    time: float = math.nan
    interleave: int = 1
    public: float | None = None
    derived: str = ""  # how the time follows from what is printed
    reason: str = ""
    fused_sums: bool = True

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.workload.name} under {self.strategy}, {self.workload.recompute} again"

    @property
    def workload(self) -> TransformerTraining:
        """The step as it ran."""
        return replace(
            transformer_training(step_named(self.model)),
            batch=self.batch,
            microbatches=self.microbatches,
            schedule=Schedule.ONE_F_ONE_B,
            interleave=self.interleave,
            recompute=Recompute.FULL if self.full else Recompute.ATTENTION,
            exchange=Exchange.PAIRED if self.full else Exchange.SEQUENCE,
            zero=Zero.NONE,  # both papers are older than Megatron's distributed optimizer
        )

    def predicted(self, *, frequency: float | None = None) -> Prediction:
        """Return our prediction at a clock. [Hz]"""
        node, strategy = library.node(NODE), parse_strategy(self.strategy)
        fabric, port = library.joined_by(node)
        chip = library.chip(node.chip.name, frequency=frequency)
        # Attention ran kernel by kernel, over all scores: fused kernels are later.
        chip = replace(chip, inter=node.chip.inter).without_fusion(Fusion.ATTENTION)
        system = system_of_nodes(
            replace(node, chip=chip), strategy.n_chips, fabric=fabric, port=port
        )
        framework = replace(library.framework("megatron"), fused_sums=self.fused_sums)
        driven = system.driven_by(framework)
        return predict(self.workload, strategy, driven, Dtype.BF16, rules=crosstack())


def recomputed_work(step: TransformerTraining) -> float:
    """Work of a step that computes every layer again, as its source counts it. [FLOP]

    Notes
    -----
    ``96 B s l h^2 (1 + s / (6 h) + V / (16 l h))`` of B sequences of s words, l layers of width h
    and V words in the vocabulary: matrix products alone, every layer forward, again, and backward.

    References
    ----------
    narayanan2021megatron, equation 3
    """
    s, h, layers = step.sequence, step.model.hidden, step.model.layers
    share = 1 + s / (6 * h) + step.model.vocabulary / (16 * layers * h)
    return 96 * step.batch * s * layers * h**2 * share


def _step(told: Any) -> MeasuredStep:
    """Return a step; its time, or what follows from the printed rate of a chip. [TFLOP/s]"""
    step = MeasuredStep(**{key: value for key, value in told.items() if key != "rate"})
    if "rate" not in told:
        return step
    rate, chips = told["rate"], parse_strategy(step.strategy).n_chips
    return replace(
        step,
        time=recomputed_work(step.workload) / (rate * 1e12 * chips),
        derived=f"derived from the printed {rate} TFLOP/s a chip, +-{0.5 / rate:.1%}",
    )


def measured_steps() -> list[MeasuredStep]:
    """Return every measured step."""
    return [_step(told) for told in _TOLD["steps"]]


def run_step(step: MeasuredStep) -> Row:
    """Predict a step and return its row."""
    ways = [f"{step.microbatches} microbatches", f"exchange {step.workload.exchange}"]
    if step.interleave > 1:
        ways.append(f"{step.interleave} stages a chip")
    if step.derived:
        ways.append(step.derived)
    ways.append(READ_IN[step.source])
    return held_row(
        suite="steps",
        case=step.name,
        source=step.source,
        rules="crosstack",
        quantity="time",
        unit="s",
        published=step.time,
        ours=step.predicted().time,
        tolerance=TOLERANCE,
        status="given",
        note="; ".join(ways),
        reason=step.reason,
        modelled=step.public,
    )


def step_rows(progress: Progress = silent) -> list[Row]:
    """Predict every measured step and return its row."""
    return run_each(measured_steps(), run_step, progress)


def errors_in_words(rows: Sequence[Row]) -> str:
    """Say how far off the steps of one replica and all steps are on average."""
    one = fmean(abs(row.error) for row in rows if row.source == ONE)
    every = fmean(abs(row.error) for row in rows)
    return (
        f"On average ours is {100 * one:.1f} % off on the steps of one replica, "
        f"{100 * every:.1f} % on all {len(rows)}."
    )
