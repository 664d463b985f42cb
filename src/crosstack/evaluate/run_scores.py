"""Training runs as they were measured, beside what is predicted of them.

Three questions are asked of a set of runs: how far steps are off (`crosstack.evaluate.scores` of
errors); whether it is said which runs fit their chips; and, of runs that differ in how they are
spread alone, how much slower the one is that is said to be the fastest. Where a framework ran a
group in several releases, its newest is asked about; how far the same runs are apart is the floor
under every error. Steps that are sums of equal microbatches, to more digits than a clock repeats,
were computed, not measured, and are told apart (`are_computed`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crosstack.errors import InfeasibleError, InputError
from crosstack.evaluate.predict import Prediction
from crosstack.evaluate.predicted import predict_job
from crosstack.evaluate.scores import Score
from crosstack.evaluate.step_settings import StepSettings
from crosstack.machine.calibration import Calibration
from crosstack.machine.system import System
from crosstack.mapping.mapping import Mapping
from crosstack.workload.architectures.transformer import Transformer
from crosstack.workload.job import Job
from crosstack.workload.transformer_training import Exchange, Hidden

ONE_MFU = 0.4  # of the plainest estimate: every step takes its FLOP at this share of the peak [1]
REPEATS = 1.1  # fastest and slowest of a group that says something are further apart [1]
NEAR = 1.05  # a choice is near the fastest run of its group [1]
FEWEST = 3  # runs alike but for their microbatches, which tell sums from times [1]
EQUAL = 1e-6  # no two measured microbatches are as near to each other as that [1]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRun:
    """A training run: what it computes on which machine, what is given of how, and its step. [s]

    ``time`` is None where it ran out of memory. Runs of a ``group`` train the same model on the
    same chips, spread in different ways; of those with a ``release`` of the framework the newest
    counts. ``overlap`` is what of communication runs beside the work of chips, ``exchange`` what
    tensor-parallel chips send one another; None: what may, and what is best. ``sustained`` is the
    clock at which arrays may be busy all the time over that of their rates, by what its source says
    of products; None: as the library has it. [1]
    """

    name: str
    source: str
    job: Job
    system: System
    given: str
    time: float | None
    group: str = ""
    release: tuple[int, ...] = ()
    overlap: tuple[Hidden, ...] | None = None
    exchange: Exchange | None = None
    sustained: float | None = None

    @property
    def machine(self) -> System:
        """Its machine at the clock that its source says."""
        if self.sustained is None:
            return self.system
        return replace(self.system, chip=self.system.chip.with_compute(sustained=self.sustained))

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
        """Return the run on its machine as it was measured, whatever its source says of that."""
        job = self.job
        if self.has_experts:
            job = replace(job, expert_imbalance=job.expert_imbalance * calibration.imbalance)
        return replace(self, system=calibration.applied(self.system), job=job, sustained=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What is predicted of a run: its step, and that of the plainest estimate [s]; its memory. [B]

    ``fits``: whether a chip has as much. ``given`` is what was given of it, ``mapping`` all else.
    """

    run: MeasuredRun
    time: float
    plain: float
    memory: float
    fits: bool
    given: str
    mapping: Mapping


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
    """The score of some runs, None if all were refused; of one MFU for all; what was refused.

    ``repeats``: how far runs are from the geometric mean of those spread in the same way, on
    average of |ln ratio|; None where nothing was run twice. [1] ``computed``: whether their steps
    were computed, not measured.
    """

    ours: Score | None
    plain: Score | None
    fits: FitScore | None
    choices: ChoiceScore | None
    repeats: float | None
    computed: bool
    said: tuple[Said, ...]
    refused: tuple[tuple[MeasuredRun, str], ...]

    @property
    def timed(self) -> tuple[Said, ...]:
        """What is said of the runs that have a time."""
        return tuple(one for one in self.said if one.run.time is not None)


def said_of(run: MeasuredRun) -> Said:
    """Predict the step of a run, whether or not it fits.

    Where a run that was timed does not say what it computes again, and does not fit with nothing,
    it is taken to have computed as few whole layers again as let it fit.

    Raises
    ------
    InputError, InfeasibleError
        If it cannot be spread so.
    """
    found = _said(run, run.given)
    if found.fits or run.time is None or "recompute=" in run.given:
        return found
    layers = run.job.model.layers if isinstance(run.job.model, Transformer) else 0
    few, many, fitting = 0, layers + 1, found
    while many - few > 1:
        some = (few + many) // 2
        try:
            tried = _said(run, f"{run.given},recompute=full:{some}")
        except (InputError, InfeasibleError):
            many = some
            continue
        few, many, fitting = (few, some, tried) if tried.fits else (some, many, fitting)
    return fitting


def time_as_mapped(run: MeasuredRun, said: Said) -> float:
    """Time of a run as it was mapped on another machine. [s]"""
    return _predicted(run, said.given, said.mapping).time


def _predicted(run: MeasuredRun, given: str, mapping: Mapping | None = None) -> Prediction:
    settings = StepSettings(enforces_capacity=False)
    return predict_job(
        run.job, run.machine, given, settings=settings, mapping=mapping, **run.changes
    )


def _said(run: MeasuredRun, given: str) -> Said:
    found = _predicted(run, given)
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
        given=given,
        mapping=found.plan.mapping,
    )


def score_runs(
    runs: Sequence[MeasuredRun],
    tell: Callable[[str], None] = lambda name: None,
    *,
    most: int | None = None,
) -> RunScore:
    """Score the newest of some runs, or ``most`` of them, spread over all in their order.

    ``tell`` is called with the name of each before it is predicted.
    """
    said, refused = list[Said](), list[tuple[MeasuredRun, str]]()
    for run in some_of(newest_of(runs), most):
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
        repeats=repeats_of(runs),
        computed=are_computed(runs),
        said=tuple(said),
        refused=tuple(refused),
    )


def newest_of(runs: Sequence[MeasuredRun]) -> list[MeasuredRun]:
    """Return runs without those of a group that an older release ran."""
    newest: dict[str, tuple[int, ...]] = {}
    for run in runs:
        newest[run.group] = max(run.release, newest.get(run.group, ()))
    return [run for run in runs if run.release == newest[run.group] or not run.release]


def repeats_of(runs: Sequence[MeasuredRun]) -> float | None:
    """Return how far runs are from the geometric mean of those like them, as of `RunScore`."""
    alike: dict[tuple[object, ...], list[float]] = defaultdict(list)
    for run in runs:
        if run.time is not None and run.group:
            job = run.job
            alike[run.group, run.given, job.batch, job.sequence].append(float(np.log(run.time)))
    some = [each for each in alike.values() if len(each) > 1]
    apart = [abs(one - float(np.mean(each))) for each in some for one in each]
    return float(np.mean(apart)) if apart else None


def are_computed(runs: Sequence[MeasuredRun]) -> bool:
    """Whether the steps of some runs are sums, not times that were measured.

    So they are if, wherever three or more runs are alike but for their batch, each further sequence
    takes the same, to a part in a million; not if no three are.
    """
    alike: dict[tuple[object, ...], dict[int, float]] = defaultdict(dict)
    for run in runs:
        if run.time is not None:
            job = run.job
            alike[job.model, job.sequence, run.system.name, run.given][job.batch] = run.time
    many = [sorted(times.items()) for times in alike.values() if len(times) >= FEWEST]
    slopes = [np.diff([t for _, t in some]) / np.diff([b for b, _ in some]) for some in many]
    return bool(slopes) and all(bool(np.ptp(each) <= EQUAL * each.max()) for each in slopes)


def some_of(runs: Sequence[MeasuredRun], count: int | None) -> list[MeasuredRun]:
    """Return so many runs, spread evenly over all of them in their order; None: all."""
    if count is None or count >= len(runs):
        return list(runs)
    places = np.linspace(0, len(runs) - 1, count).round().astype(int)
    return [runs[i] for i in places]
