"""Training steps that were measured on clusters of A100, beside what we predict.

The chip is `crosstack.chip.a100.a100_sxm_80gb`, a server holds eight, and nothing is fitted: the
clock is the one of the data sheet, links carry what the data sheet says. Model, batch, strategy,
what is computed again and what is exchanged are those of the sources.

``korthikanti2023reducing``: section 6, one replica; 175B and 530B interleave three stages a chip.
``narayanan2021megatron``: table 1; the time follows from the throughput that it prints. The numbers
of both are those of `A100_train.csv` of the public tool's successor (``deepflow_measured``).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from crosstack.chip.a100 import a100_sxm_80gb
from crosstack.chip.roofline import RooflineTimes
from crosstack.evaluate.cluster import named_cluster
from crosstack.evaluate.predict import Prediction, predict
from crosstack.mapping.strategy import parse_strategy
from crosstack.validation.case import Row, inside
from crosstack.workload.named_steps import step_named
from crosstack.workload.transformer_training import (
    Exchange,
    Recompute,
    Schedule,
    TransformerTraining,
)

__all__ = ["MeasuredStep", "measured_steps", "run_step", "step_rows"]

TOLERANCE = 0.10
ONE, MANY = "korthikanti2023reducing: section 6", "narayanan2021megatron: table 1"

SPREAD = (
    "gradients of all replicas are summed over links that share nothing, and dropout, GeLU and the "
    "biases are no kernels of ours; the measured run shares a network of three levels"
)
ELEMENTWISE = (
    "dropout and the biases are no kernels of ours, and the clock under load is not known: "
    "the one of the data sheet is the highest"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredStep:
    """A measured step: how it ran, and its time. [s]

    ``public`` is what the estimate of the public tool gives, where it was run. [s]
    """

    model: str
    strategy: str
    batch: int
    microbatches: int
    full: bool  # everything computed again, nothing spread; else attention alone, tokens spread
    time: float
    source: str
    interleave: int = 1
    public: float | None = None
    reason: str = ""

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.workload.name} under {self.strategy}, {self.workload.recompute} again"

    @property
    def workload(self) -> TransformerTraining:
        """The step as it ran."""
        step = step_named(self.model)
        assert isinstance(step, TransformerTraining)
        return replace(
            step,
            batch=self.batch,
            microbatches=self.microbatches,
            schedule=Schedule.ONE_F_ONE_B,
            interleave=self.interleave,
            recompute=Recompute.FULL if self.full else Recompute.ATTENTION,
            exchange=Exchange.PAIRED if self.full else Exchange.SEQUENCE,
        )

    def predicted(self) -> Prediction:
        """Return our prediction."""
        chip, strategy = a100_sxm_80gb(), parse_strategy(self.strategy)
        cluster = named_cluster(chip, strategy)
        return predict(self.workload, strategy, cluster, RooflineTimes(chip))


def _one(
    model: str,
    stages: int,
    batch: int,
    times: tuple[float, float],
    public: float | None,
    *,
    microbatches: int | None = None,
    interleave: int = 1,
    reasons: tuple[str, str] = ("", ""),
) -> list[MeasuredStep]:
    """One replica, everything and attention alone computed again."""
    return [
        MeasuredStep(
            model=model,
            strategy=f"RC-1-8-d1-p{stages}",
            batch=batch,
            microbatches=batch if microbatches is None else microbatches,
            full=full,
            time=time,
            source=ONE,
            interleave=interleave,
            public=None if full and model != "gpt-22b" else public,
            reason=reason,
        )
        for full, time, reason in zip((True, False), times, reasons, strict=True)
    ]


def measured_steps() -> list[MeasuredStep]:
    """Return every measured step."""
    many = [
        MeasuredStep(
            model=model,
            strategy=f"RC-1-8-d{replicas}-p{stages}",
            batch=batch,
            microbatches=batch // replicas,
            full=True,
            time=time,
            source=MANY,
            reason=reason,
        )
        for model, stages, replicas, batch, time, reason in (
            ("gpt-310b", 16, 15, 2160, 34.1, ""),
            ("gpt-530b", 35, 9, 2520, 51.2, SPREAD),
            ("gpt-1t", 64, 6, 3072, 100.7, SPREAD),
        )
    ]
    return [
        *_one("gpt-22b", 1, 4, (1.4, 1.1), 0.6128, microbatches=1),
        *_one("gpt3-175b", 8, 64, (16.9, 12.9), 9.393, interleave=3),
        *_one("gpt-530b", 35, 280, (46.8, 35.5), 28.23, interleave=3, reasons=("", ELEMENTWISE)),
        *_one(
            "gpt-1t",
            64,
            512,
            (87.9, 69.1),
            53.59,
        ),
        *many,
    ]


def run_step(step: MeasuredStep) -> Row:
    """Predict a step and return its row."""
    ours = step.predicted().time
    error = (ours - step.time) / step.time
    ways = [f"{step.microbatches} microbatches", f"exchange {step.workload.exchange}"]
    if step.interleave > 1:
        ways.append(f"{step.interleave} stages a chip")
    return Row(
        suite="steps",
        case=step.name,
        source=step.source,
        rules="crosstack",
        quantity="time",
        unit="s",
        sense="equal",
        published=step.time,
        ours=ours,
        tolerance=TOLERANCE,
        status="given",
        holds=inside("equal", error, TOLERANCE),
        note="; ".join(ways),
        reason=step.reason,
        modelled=step.public,
    )


def step_rows() -> list[Row]:
    """Predict every measured step and return its row."""
    return [run_step(step) for step in measured_steps()]
