"""Training runs as they were measured, beside what is predicted of them.

Three questions are asked of a set of runs: how far steps are off (`crosstack.evaluate.scores` of
errors); whether it is said which runs fit their chips; and, of runs that differ in how they are
spread alone, how much slower the one is that is said to be the fastest.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.predicted import predict_job
from crosstack.evaluate.scores import Score
from crosstack.evaluate.step_settings import StepSettings
from crosstack.machine.calibration import Calibration
from crosstack.machine.system import System
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import Exchange, Hidden

ONE_MFU = 0.4  # of the plainest estimate: every step takes its FLOP at this share of the peak [1]
REPEATS = 1.1  # fastest and slowest of a group that says something are further apart [1]
NEAR = 1.05  # a choice is near the fastest run of its group [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A training run: what it computes on which machine, what is given of how, and its step. [s]

    ``time`` is None where it ran out of memory. Runs of a ``group`` train the same model on the
    same chips, spread in different ways. ``overlap`` is what of communication runs beside the work
    of chips, ``exchange`` what tensor-parallel chips send one another; None: what may, and what is
    best.
    """

    name: str
    source: str
    job: Job
    system: System
    given: str
    time: float | None
    group: str = ""
    overlap: tuple[Hidden, ...] | None = None
    exchange: Exchange | None = None

    @property
    def changes(self) -> dict[str, Any]:
        """What is said of the step besides."""
        said = {"overlap": self.overlap, "exchange": self.exchange}
        return {name: value for name, value in said.items() if value is not None}

    @property
    def has_experts(self) -> bool:
        """Whether its model routes tokens to experts."""
        return isinstance(self.job.model, Transformer) and self.job.model.experts is not None

    @property
    def node(self) -> str:
        """What its machine is made of, as the library calls it."""
        return self.system.name.split(" x ")[-1]

    def under(self, calibration: Calibration) -> MeasuredRun:
        """Return the run on its machine as it was measured."""
        job = self.job
        if self.has_experts:
            job = replace(job, expert_imbalance=job.expert_imbalance * calibration.imbalance)
        return replace(self, system=calibration.applied(self.system), job=job)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is predicted of a run: its step, and that of the plainest estimate [s]; its memory. [B]

    ``fits``: whether a chip has as much.
    """

    run: MeasuredRun
    time: float
    plain: float
    memory: float
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FitScore:
    """Runs that fit and are said to, that do not and are said to, and that are not and are. [1]"""

    both: int
    said_alone: int
    measured_alone: int
    neither: int

    @classmethod
    def of(cls, said: Sequence[Said]) -> FitScore | None:
        """Return the score of runs of which some ran out of memory; None if none did."""
        if all(one.run.time is not None for one in said):
            return None
        count = {(a, b): 0 for a in (True, False) for b in (True, False)}
        for one in said:
            count[one.fits, one.run.time is not None] += 1
        return cls(
            both=count[True, True],
            said_alone=count[True, False],
            measured_alone=count[False, True],
            neither=count[False, False],
        )

    @property
    def f1(self) -> float:
        """Harmonic mean of the shares of those said to fit that do, and the other way. [1]"""
        wrong = self.said_alone + self.measured_alone
        return 2 * self.both / (2 * self.both + wrong) if self.both + wrong else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ChoiceScore:
    """How much slower the run said to be the fastest of each group is than the fastest. [1]

    ``regret`` on average, ``near`` the share of groups where it is by `NEAR` at most.
    """

    groups: int
    regret: float
    near: float

    @classmethod
    def of(cls, said: Sequence[Said]) -> ChoiceScore | None:
        """Return the score of groups whose runs differ by more than repeats do; None without."""
        groups: dict[str, list[Said]] = defaultdict(list)
        for one in said:
            groups[one.run.group].append(one)
        found = []
        for some in groups.values():
            times = [one.run.time for one in some if one.run.time]
            if len(times) < 2 or max(times) < REPEATS * min(times):
                continue
            chosen = min((one for one in some if one.run.time), key=lambda one: one.time)
            found.append((chosen.run.time or 0.0) / min(times))
        if not found:
            return None
        near = sum(ratio <= NEAR for ratio in found) / len(found)
        return cls(groups=len(found), regret=float(np.mean(found)) - 1.0, near=near)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScore:
    """The score of some runs, None if all were refused; of one MFU for all; what was refused."""

    ours: Score | None
    plain: Score | None
    fits: FitScore | None
    choices: ChoiceScore | None
    said: tuple[Said, ...]
    refused: tuple[tuple[MeasuredRun, str], ...]

    @property
    def timed(self) -> tuple[Said, ...]:
        """What is said of the runs that have a time."""
        return tuple(one for one in self.said if one.run.time is not None)


def said_of(run: MeasuredRun) -> Said:
    """Predict the step of a run, whether or not it fits.

    Raises
    ------
    InputError, InfeasibleError
        If it cannot be spread so.
    """
    settings = StepSettings(enforces_capacity=False)
    found = predict_job(run.job, run.system, run.given, settings=settings, **run.changes)
    assert found.plan is not None
    evaluation = found.plan.evaluation
    assert found.memory is not None
    peak = run.system.chip.rate(run.job.workload.graph.dtype) * run.system.n_chips
    return Said(
        run=run,
        time=found.time,
        plain=evaluation.work / (ONE_MFU * peak),
        memory=found.memory.peak,
        fits=found.memory.peak <= run.system.chip.memory_room(spilled=False),
    )


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
    timed = [one for one in said if one.run.time is not None]
    measured = np.array([one.run.time for one in timed], dtype=np.float64)
    times, plain = (np.array([getattr(one, name) for one in timed]) for name in ("time", "plain"))
    return RunScore(
        ours=Score.of(times, measured) if timed else None,
        plain=Score.of(plain, measured) if timed else None,
        fits=FitScore.of(said),
        choices=ChoiceScore.of(said),
        said=tuple(said),
        refused=tuple(refused),
    )


def some_of(runs: Sequence[MeasuredRun], count: int) -> list[MeasuredRun]:
    """Return so many runs, spread evenly over all of them in their order."""
    if count >= len(runs):
        return list(runs)
    places = np.linspace(0, len(runs) - 1, count).round().astype(int)
    return [runs[i] for i in places]
