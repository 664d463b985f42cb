"""Training runs as they were measured, beside what is predicted of them.

See `crosstack.evaluate.scores` of errors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.predicted import predict_job
from crosstack.evaluate.scores import Score
from crosstack.machine.system import System
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import Exchange, Hidden

ONE_MFU = 0.4  # of the plainest estimate: every step takes its FLOP at this share of the peak [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A training run: what it computes on which machine, what is given of how, and its step. [s]

    ``overlap`` is what of communication runs beside the work of chips, ``exchange`` what
    tensor-parallel chips send one another; None: what may, and what is best.
    """

    name: str
    source: str
    job: Job
    system: System
    given: str
    time: float
    overlap: tuple[Hidden, ...] | None = None
    exchange: Exchange | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """What is said of the step besides."""
        said = {"overlap": self.overlap, "exchange": self.exchange}
        return {name: value for name, value in said.items() if value is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is predicted of a run: its step, and that of the plainest estimate. [s]"""

    run: MeasuredRun
    time: float
    plain: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScore:
    """The score of some runs, None if all were refused; of one MFU for all; what was refused."""

    ours: Score | None
    plain: Score | None
    said: tuple[Said, ...]
    refused: tuple[tuple[MeasuredRun, str], ...]


def said_of(run: MeasuredRun) -> Said:
    """Predict the step of a run.

    Raises
    ------
    InputError, InfeasibleError
        If it cannot be spread so, or does not fit.
    """
    found = predict_job(run.job, run.system, run.given, **run.changes)
    assert found.plan is not None
    evaluation = found.plan.evaluation
    peak = run.system.chip.rate(run.job.workload.graph.dtype) * run.system.n_chips
    return Said(run=run, time=found.time, plain=evaluation.work / (ONE_MFU * peak))


def score_runs(
    runs: Sequence[MeasuredRun], tell: Callable[[str], None] = lambda name: None
) -> RunScore:
    """Score runs; ``tell`` is called with the name of each before it is predicted."""
    said, refused = list[Said](), list[tuple[MeasuredRun, str]]()
    for run in runs:
        tell(run.name)
        try:
            said.append(said_of(run))
        except (InputError, InfeasibleError) as error:
            refused.append((run, str(error)))
    measured = np.array([one.run.time for one in said])
    times, plain = (np.array([getattr(one, name) for one in said]) for name in ("time", "plain"))
    return RunScore(
        ours=Score.of(times, measured) if said else None,
        plain=Score.of(plain, measured) if said else None,
        said=tuple(said),
        refused=tuple(refused),
    )


def some_of(runs: Sequence[MeasuredRun], count: int) -> list[MeasuredRun]:
    """Return so many runs, spread evenly over all of them in their order."""
    if count >= len(runs):
        return list(runs)
    places = np.linspace(0, len(runs) - 1, count).round().astype(int)
    return [runs[i] for i in places]
