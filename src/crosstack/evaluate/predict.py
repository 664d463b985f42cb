"""The time of a workload under a given strategy on a machine, with everything it is made of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from crosstack.errors import InfeasibleError, InputError, Problem
from crosstack.evaluate.distributed import Distributed, KernelTimes, own_shape
from crosstack.evaluate.lstm_step import lstm_step
from crosstack.evaluate.ranks import peers_of, stage_peers
from crosstack.evaluate.step_memory import (
    check_capacity,
    lstm_memory,
    scores_do_not_fit,
    transformer_memory,
)
from crosstack.evaluate.step_settings import StepSettings
from crosstack.evaluate.transformer_step import require_timed, transformer_step
from crosstack.machine.system import System
from crosstack.mapping.strategy import NESTED, KernelSplit, MappingOrder, Strategy
from crosstack.model.memory import MemoryAccount
from crosstack.model.schedule.events import TaskGraphBuilder, Timeline, simulate
from crosstack.records import brief
from crosstack.units import format_quantity
from crosstack.workload.lstm import LstmModel
from crosstack.workload.product import Product
from crosstack.workload.transformer_training import Recompute, Schedule, TransformerTraining

__all__ = [
    "SUMMING",
    "WAITING",
    "Prediction",
    "Program",
    "Step",
    "busiest_of",
    "busy_stages",
    "made_of",
    "predict",
    "product_step",
    "step_of",
]

Step = Product | LstmModel | TransformerTraining


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """What one step takes.

    ``parts`` add up to ``time``: what the ``busiest`` stage does by name, how long it waits, and
    sums of gradients that end after the last backward pass. ``busy`` is how long each stage
    computes, by its name. ``run_time`` is that of a whole training, None where the workload names
    none. ``timelines`` runs the step event by event and returns what follows one another; an
    estimate has nothing to run. [s] ``scheduled`` says that the events set the time, so that a
    shorter kernel may make a longer step. ``share``: M, K and N of a product on the fullest chip,
    None for other workloads.
    """

    workload: Step
    strategy: Strategy
    time: float
    parts: tuple[tuple[str, float], ...]
    memory: MemoryAccount | None
    busy: tuple[tuple[str, float], ...]
    timelines: Callable[[], tuple[Timeline, ...]]
    run_time: float | None = None
    scheduled: bool = False
    share: tuple[int, int, int] | None = None

    __repr__ = brief

    def __str__(self) -> str:
        """Return the time of the step, and what most of it is."""
        longest = sorted(self.parts, key=lambda part: -part[1])[:MOST_PARTS]
        memory = () if self.memory is None else (("memory of a chip", self.memory.peak, "B"),)
        numbers = (("time of a step", self.time, "s"), *memory, *((n, t, "s") for n, t in longest))
        said = (f"  {name}: {format_quantity(value, unit)}" for name, value, unit in numbers)
        return "\n".join((f"{self.workload.name} under {self.strategy}", *said))

    @property
    def busiest(self) -> str | None:
        """The stage that computes longest, of equal ones the first; None for an estimate."""
        busy = dict(self.busy)
        return max(busy, key=lambda stage: busy[stage]) if busy else None


MOST_PARTS = 5  # that are printed
WAITING = "waiting for other stages and transfers"
SUMMING = "gradient sums after the last backward pass"


class Program(Protocol):
    """What predicts a step: `predict`, or the program of a release."""

    def __call__(
        self,
        workload: Step,
        strategy: Strategy,
        system: System,
        times: KernelTimes,
        settings: StepSettings | None = None,
        *,
        order: MappingOrder = NESTED,
    ) -> Prediction:
        """Time one step; see `predict`."""
        ...


def made_of(
    work: dict[str, float], busy: float, pass_time: float, time: float
) -> tuple[tuple[str, float], ...]:
    """Return the ``work`` of a stage and what is left of its step. [s]

    Kernels that run at once share the time in which the stage is ``busy`` in proportion.
    """
    alone = sum(work.values())
    share = busy / alone if alone else 0.0
    waiting = max(0.0, pass_time - busy)
    pieces = ((name, own * share) for name, own in work.items())
    return (*pieces, (WAITING, waiting), (SUMMING, max(0.0, time - pass_time)))


def busiest_of(busy: Sequence[float]) -> int:
    """Return the stage that works longest, of equal ones the first."""
    return max(range(len(busy)), key=lambda stage: busy[stage])


def predict(
    workload: Step,
    strategy: Strategy,
    system: System,
    times: KernelTimes,
    settings: StepSettings | None = None,
    *,
    order: MappingOrder = NESTED,
) -> Prediction:
    """Time one step of a workload.

    Parameters
    ----------
    workload : Step
        What is computed.
    strategy : Strategy
        How it is spread over chips.
    system : System
        The machine.
    times : KernelTimes
        What one of its chips takes for a kernel.
    settings : StepSettings or None
        Of optimizer and chip; None: the usual ones.
    order : tuple of ParallelDimension
        Of ranks on the network, the dimension whose chips are the nearest first.

    Raises
    ------
    InputError
        If the strategy cannot split the workload, or data is sent where there is no link.
    InfeasibleError
        If the step does not fit the main memory of a chip.
    """
    chips = Distributed(
        strategy=strategy,
        times=times,
        links=peers_of(strategy, system, order),
        stage_links=stage_peers(strategy, system, order),
    )
    return step_of(workload, chips, settings or StepSettings(), system.chip.main_memory.room)


def step_of(
    workload: Step, chips: Distributed, settings: StepSettings, capacity: float
) -> Prediction:
    """Time one step on chips that know whom they communicate with.

    Parameters
    ----------
    workload : Step
        What is computed.
    chips : Distributed
        How it is spread, what a kernel takes, and over which links data goes.
    settings : StepSettings
        Of optimizer and chip.
    capacity : float
        Of a chip's main memory. [B]

    Raises
    ------
    InputError, InfeasibleError
        As `predict`.
    """
    strategy = chips.strategy
    if isinstance(workload, Product):
        shape = workload.m, workload.k, workload.n
        return product_step(
            workload,
            strategy,
            share=own_shape(*shape, strategy),
            own=lambda: chips.own_product(*shape),
            total=lambda: chips.forward(*shape),
        )
    if isinstance(workload, LstmModel):
        return _lstm(workload, chips, settings, capacity)
    return _transformer(workload, chips, settings, capacity)


def _where(model: LstmModel | TransformerTraining, chips: Distributed) -> str:
    return f"one chip of {model.name} under {chips.strategy}"


def _lstm(
    model: LstmModel, chips: Distributed, settings: StepSettings, capacity: float
) -> Prediction:
    account = lstm_memory(model, chips.strategy, chips.times.element_size, settings)
    if settings.enforces_capacity:
        check_capacity(account, capacity, _where(model, chips))
    step = lstm_step(model, chips, settings)
    busy = busy_stages(step.forward, step.backward)
    most = busiest_of([time for _, time in busy])
    work = step.work(most, chips.strategy.lp)
    return Prediction(
        workload=model,
        strategy=chips.strategy,
        time=step.time,
        parts=made_of(work, busy[most][1], step.pass_time, step.time),
        memory=account,
        busy=busy,
        timelines=lambda: (step.forward, step.backward),
        scheduled=True,
    )


def _transformer(
    job: TransformerTraining, chips: Distributed, settings: StepSettings, capacity: float
) -> Prediction:
    def memory_of(other: TransformerTraining) -> MemoryAccount:
        return transformer_memory(other, chips.strategy, chips.times.element_size, settings)

    def instead() -> dict[str, MemoryAccount]:
        ways = (
            replace(job, recompute=Recompute.ATTENTION),
            replace(job, recompute=Recompute.FULL),
            replace(job, schedule=Schedule.ONE_F_ONE_B),
        )
        names = ("recompute attention", "recompute full", "schedule 1f1b")
        return {name: memory_of(way) for name, way in zip(names, ways, strict=True)}

    require_timed(job)
    scores = scores_do_not_fit(job, chips.strategy, chips.times.element_size, capacity, settings)
    if scores is not None and settings.enforces_capacity:
        raise scores
    account = memory_of(job)
    if settings.enforces_capacity:
        check_capacity(account, capacity, _where(job, chips), instead)
    try:
        trained = transformer_step(job, chips, settings)
    except InfeasibleError as error:  # some kernel rules refuse a product that does not fit
        raise scores or error from None
    most = busiest_of(trained.busy)
    return Prediction(
        workload=job,
        strategy=chips.strategy,
        time=trained.time,
        parts=made_of(trained.work(most), trained.busy[most], trained.pass_time, trained.time),
        memory=account,
        busy=tuple((f"stage {i}", time) for i, time in enumerate(trained.busy)),
        timelines=lambda: (trained.timeline(),),
        run_time=trained.time * job.steps if job.tokens else None,
        scheduled=trained.kernels_at_once > 1,
    )


def busy_stages(*timelines: Timeline) -> tuple[tuple[str, float], ...]:
    """Return how long every chip or stage works. [s]"""
    found: dict[str, float] = {}
    for timeline in timelines:
        for name, time in timeline.busy().items():
            if name.startswith(("stage", "chip")):
                found[name] = found.get(name, 0.0) + time
    return tuple(found.items())


def product_step(
    product: Product,
    strategy: Strategy,
    *,
    share: tuple[int, int, int],
    own: Callable[[], float],
    total: Callable[[], float],
) -> Prediction:
    """One product and its collective; replicas and stages have nothing to do with it.

    Parameters
    ----------
    product : Product
        All of it.
    strategy : Strategy
        What splits it.
    share : tuple of int
        M, K and N on the fullest chip. [1]
    own, total : callable
        What that chip computes, and that with what it exchanges; asked for once the strategy is
        known to split the product. [s]

    Raises
    ------
    InputError
        If the strategy cannot split the product.
    """
    _check_product(product, strategy)
    whole, computed = total(), own()
    build = TaskGraphBuilder()
    first = build.add("product", computed, resource="chip", kind="forward")
    if whole > computed:
        build.add("collective", whole - computed, resource="ring", after=[first], kind="transfer")
    timeline = simulate(build.build())
    return Prediction(
        workload=product,
        strategy=strategy,
        time=whole,
        parts=(("product", computed), ("collective", whole - computed)),
        memory=None,
        busy=busy_stages(timeline),
        timelines=lambda: (timeline,),
        share=share,
    )


def _check_product(product: Product, s: Strategy) -> None:
    """Refuse a strategy that cannot split a product."""
    if s.dp > 1 or s.lp > 1:
        message = f"{s}: a single product has no replicas and no stages; use d1 and p1."
        raise InputError(Problem("strategy", message))
    uneven = (
        [("K", product.k, s.kp1)]
        if s.split is KernelSplit.CR
        else [("M", product.m, s.kp1), ("N", product.n, s.kp2)]
    )
    for axis, extent, degree in uneven:
        if extent < degree:
            message = f"{s} splits {axis}, {extent}, {degree} ways."
            raise InputError(Problem("strategy", message))
